//! Where a record's texts lie: in its own body, or among those that records share.
//!
//! In the body the layout stands behind all fields: its version, the entries of the request, of the answer and of the
//! request's frame, and which part each finding is about. An entry is a run of pieces, a stretch of the frame, or the integer of
//! a shared text, which is a leaf (pieces, a stretch) or a branch (other shared texts, in order).

use smallvec::SmallVec;
use weir_config::vocab::Finding;

use super::bytes::{Packer, Unpacker, put_varint, take_varint};
use super::frames::{self, ReadStretch, Stretch};
use super::pieces::{self, Piece, Read};
use super::{Damaged, TEXT_MAX};

/// Version of a layout without a frame, and of one with it; from schema 25 on.
const VERSION: u8 = 1;
const WITH_FRAME: u8 = 2;
/// What an entry is.
const PIECES: u8 = 0;
const NODE: u8 = 1;
const STRETCH: u8 = 2;

/// Where a text on its way into the store is to lie. The messages of the pieces are told from those of the pieces before them, across
/// entries.
#[derive(Debug)]
pub(crate) enum Entry<'a> {
    /// In the body; `last` is the message of the last part before these.
    Pieces { pieces: &'a [Piece<'a>], last: i64 },
    /// A stretch of the frame, in the body.
    Stretch(Stretch<'a>),
    /// Among the shared ones.
    Node(i64),
}

/// Calls that stand alone have one on each side, which needs no memory of its own.
pub(crate) type Entries<'a> = SmallVec<[Entry<'a>; 1]>;

/// Where a record's texts are to lie.
#[derive(Debug, Default)]
pub(crate) struct Laid<'a> {
    pub(crate) request: Entries<'a>,
    pub(crate) response: Entries<'a>,
    pub(crate) frame: Entries<'a>,
    /// The parts of the request and those of the answer in the order in which they are stored, each as its index in the span's list.
    pub(crate) order: [&'a [(u32, usize)]; 2],
}

/// Where a record's texts lie.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Layout {
    pub(crate) request: Vec<Lying>,
    pub(crate) response: Vec<Lying>,
    pub(crate) frame: Vec<Lying>,
    /// Whether there is one: a record of an earlier version has its texts in its fields.
    pub(crate) is_there: bool,
}

/// An entry that was read.
#[derive(Debug, PartialEq)]
pub(crate) enum Lying {
    Pieces(Vec<Read>),
    Stretch(ReadStretch),
    Node(i64),
}

/// A shared text that was read.
#[derive(Debug, PartialEq)]
pub(crate) enum Stored {
    Leaf(Vec<Read>),
    Stretch(ReadStretch),
    Branch(Vec<i64>),
}

impl Laid<'_> {
    /// The shared texts it names, in order.
    pub(crate) fn nodes(&self) -> Vec<i64> {
        let node = |entry: &Entry<'_>| if let Entry::Node(id) = entry { Some(*id) } else { None };
        self.request.iter().chain(&self.response).chain(&self.frame).filter_map(node).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.request.is_empty() && self.response.is_empty() && self.frame.is_empty()
    }
}

impl Layout {
    /// The shared texts it names, in order.
    pub(crate) fn nodes(&self) -> Vec<i64> {
        let node = |entry: &Lying| if let Lying::Node(id) = entry { Some(*id) } else { None };
        self.request.iter().chain(&self.response).chain(&self.frame).filter_map(node).collect()
    }
}

pub(super) fn pack(to: &mut Packer, laid: &Laid<'_>, findings: &[Finding]) {
    to.byte(if laid.frame.is_empty() { VERSION } else { WITH_FRAME });
    let with_frame = (!laid.frame.is_empty()).then_some(&laid.frame);
    for side in [&laid.request, &laid.response].into_iter().chain(with_frame) {
        to.varint(side.len() as u64);
        for entry in side {
            match entry {
                Entry::Pieces { pieces, last } => {
                    to.byte(PIECES);
                    let mut last = *last;
                    pieces::pack(to, pieces, &mut last);
                }
                Entry::Stretch(stretch) => {
                    to.byte(STRETCH);
                    frames::pack(to, stretch);
                }
                Entry::Node(id) => {
                    to.byte(NODE);
                    to.varint(id.cast_unsigned());
                }
            }
        }
    }
    let stored_at =
        |part: u32| laid.order.iter().copied().flatten().position(|(_, at)| usize::try_from(part) == Ok(*at));
    let places: Vec<u64> =
        findings.iter().map(|finding| finding.part.and_then(stored_at).map_or(0, |at| at as u64 + 1)).collect();
    let placed = places.iter().any(|place| *place > 0);
    to.varint(if placed { places.len() as u64 } else { 0 });
    for place in places.into_iter().filter(|_| placed) {
        to.varint(place);
    }
}

/// Reads the layout, and says in `findings` which part each is about.
pub(super) fn unpack(from: &mut Unpacker<'_>, findings: &mut [Finding]) -> Result<Layout, Damaged> {
    let version = from.byte()?;
    if ![VERSION, WITH_FRAME].contains(&version) {
        return Err(Damaged);
    }
    let side = |from: &mut Unpacker<'_>| from.list(entry);
    let (request, response) = (side(from)?, side(from)?);
    let frame = if version == WITH_FRAME { side(from)? } else { Vec::new() };
    let layout = Layout { request, response, frame, is_there: true };
    let places = from.list(Unpacker::varint)?;
    for (finding, place) in findings.iter_mut().zip(places) {
        finding.part = place.checked_sub(1).map(u32::try_from).transpose().map_err(|_| Damaged)?;
    }
    Ok(layout)
}

fn entry(from: &mut Unpacker<'_>) -> Result<Lying, Damaged> {
    match from.byte()? {
        PIECES => pieces::unpack(from).map(Lying::Pieces),
        STRETCH => frames::unpack(from).map(Lying::Stretch),
        NODE => Ok(Lying::Node(from.varint()?.cast_signed())),
        _ => Err(Damaged),
    }
}

/// Each integer after the first as its distance from the one before: a branch's children mostly came one after another.
pub(super) fn put_branch(mut body: Vec<u8>, children: &[i64]) -> Vec<u8> {
    let mut former = 0;
    for child in children {
        let step = child.wrapping_sub(former);
        put_varint(&mut body, ((step << 1) ^ (step >> 63)).cast_unsigned());
        former = *child;
    }
    body
}

pub(super) fn branch(mut body: &[u8]) -> Result<Vec<i64>, Damaged> {
    let (mut children, mut former) = (Vec::new(), 0i64);
    while !body.is_empty() {
        let step = take_varint(&mut body)?;
        former = former.wrapping_add((step >> 1).cast_signed() ^ -((step & 1).cast_signed()));
        children.push(former);
    }
    Ok(children)
}

// A node's text counts toward the same bound as a body's.
const _: () = assert!(TEXT_MAX < i32::MAX as usize);
