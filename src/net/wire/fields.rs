//! The ordered field list of a head, as offsets into the head's own bytes.
//!
//! Invariant: order, names and values are exactly what the peer sent, minus the optional white space around values;
//! a name is a non-empty ASCII token and a value holds no control character but the tab, because only the head
//! parsers of this folder build the list. Knows nothing of what fields mean beyond framing and hops.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::wire::hop::Role;

/// A piece of a head. 16 bits suffice: `limits::RESPONSE_HEAD_BYTES_MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Span {
    start: u16,
    end: u16,
}

/// One field of a head: where its name and value are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Field {
    pub(super) name: Span,
    pub(super) value: Span,
}

/// The fields of a head in order. Typical heads have 8 to 20; up to 24 are kept without an allocation.
///
/// Marks are bits beside the list instead of flags in it: heads are moved around, and this keeps them small.
#[derive(Debug, Clone, Default)]
pub(super) struct FieldList {
    pub(super) list: SmallVec<[Field; 24]>,
    /// Which lengths names have, a bit for each: most names that are asked for are not there, and no field is looked at for them.
    lengths: u64,
    /// Fields that belong to this connection only: hop-by-hop by definition or named in `Connection`.
    pub(super) hop: Marks,
    /// Fields left out when the head is passed on: every hop field, and what the writer of the new head adds itself.
    pub(super) dropped: Marks,
}

/// One bit for each field of a head.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Marks(u128);

/// The bytes of a head and the fields found in them.
#[derive(Clone)]
pub(super) struct Fields {
    pub(super) raw: Bytes,
    pub(super) list: FieldList,
}

/// A field of a parsed head. Only parsing makes one, so its bytes are safe to write into another head as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FieldRef<'a> {
    name: &'a [u8],
    value: &'a [u8],
    hop: bool,
}

// === impl Span ===

impl Span {
    /// The span from `start` to `end`; empty when they do not fit, which the limits on heads rule out.
    pub(super) fn new(start: usize, end: usize) -> Self {
        match (u16::try_from(start), u16::try_from(end)) {
            (Ok(start), Ok(end)) => Self { start, end },
            _ => Self::default(),
        }
    }

    /// The span that `part`, a slice of `whole`, has in it.
    #[inline]
    pub(super) fn of(part: &[u8], whole: &[u8]) -> Self {
        let start = part.as_ptr().addr().wrapping_sub(whole.as_ptr().addr());
        debug_assert!(start + part.len() <= whole.len(), "a field lies within its head");
        Self::new(start, start.wrapping_add(part.len()))
    }

    #[inline]
    pub(super) fn get(self, raw: &[u8]) -> &[u8] {
        raw.get(usize::from(self.start)..usize::from(self.end)).unwrap_or_default()
    }

    pub(super) fn start(self) -> usize {
        usize::from(self.start)
    }

    pub(super) fn end(self) -> usize {
        usize::from(self.end)
    }
}

// === impl FieldList ===

impl FieldList {
    /// Adds the fields of a head, which has no others.
    #[inline]
    pub(super) fn extend(&mut self, fields: impl Iterator<Item = Field>) {
        let lengths = &mut self.lengths;
        self.list.extend(fields.inspect(|field| *lengths |= length_bit(field.name.end() - field.name.start())));
    }

    /// Whether a field may have this name.
    #[inline]
    fn may_have(&self, name: &str) -> bool {
        self.lengths & length_bit(name.len()) != 0
    }
}

#[inline]
fn length_bit(length: usize) -> u64 {
    1 << length.min(63)
}

// === impl Marks ===

impl Marks {
    #[inline]
    pub(super) fn set(&mut self, index: usize) {
        self.0 |= 1 << index;
    }

    #[inline]
    fn has(self, index: usize) -> bool {
        self.0 >> index & 1 != 0
    }
}

// === impl FieldRef ===

impl<'a> FieldRef<'a> {
    /// The name in the peer's spelling.
    pub fn name(&self) -> &'a str {
        ascii(self.name)
    }

    /// The name's bytes: a token, hence ASCII.
    pub fn name_bytes(&self) -> &'a [u8] {
        self.name
    }

    /// The value without surrounding white space; may hold bytes above 0x7F.
    pub fn value(&self) -> &'a [u8] {
        self.value
    }

    /// Whether this field ends at this hop. The same as asking its head by name, without a search.
    pub fn is_hop_by_hop(&self) -> bool {
        self.hop
    }

    /// Whether this is the field called `name`, in any letter case.
    #[inline]
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }

    /// Whether the name begins with `prefix`, in any letter case.
    #[inline]
    pub fn name_starts_with(&self, prefix: &str) -> bool {
        self.name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
    }
}

// === impl Fields ===

impl Fields {
    #[inline]
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = FieldRef<'_>> + ExactSizeIterator + '_ {
        self.list.list.iter().enumerate().map(|(index, field)| FieldRef {
            name: field.name.get(&self.raw),
            value: field.value.get(&self.raw),
            hop: self.list.hop.has(index),
        })
    }

    pub(super) fn end_to_end(&self) -> impl Iterator<Item = FieldRef<'_>> + '_ {
        let dropped = self.list.dropped;
        self.iter().enumerate().filter(move |(index, _)| !dropped.has(*index)).map(|(_, field)| field)
    }

    pub(super) fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> + 'a {
        let some = if self.list.may_have(name) { usize::MAX } else { 0 };
        self.iter().take(some).filter(move |field| field.is(name)).map(|field| field.value)
    }

    #[inline]
    pub(super) fn get(&self, name: &str) -> Option<&[u8]> {
        if !self.list.may_have(name) {
            return None;
        }
        self.iter().find(|field| field.is(name)).map(|field| field.value)
    }

    pub(super) fn is_hop_by_hop(&self, name: &str) -> bool {
        Role::of(name.as_bytes()).is_hop() || self.iter().any(|field| field.hop && field.is(name))
    }

    pub(super) fn str(&self, span: Span) -> &str {
        ascii(span.get(&self.raw))
    }
}

/// Bytes the parser has already found to be ASCII, as text.
#[inline]
pub(super) fn ascii(bytes: &[u8]) -> &str {
    debug_assert!(bytes.is_ascii(), "only checked ASCII is read as text");
    std::str::from_utf8(bytes).unwrap_or_default()
}
