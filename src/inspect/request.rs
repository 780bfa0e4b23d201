//! What a request body says: model, limits, and every text in it with its place.
//!
//! Invariant: a body that cannot be read as what it claims to be is still scanned, raw, and says so in `unreadable`.

use std::ops::Range;

use weir_config::vocab::{Dialect, Operation, Unread, UnreadSet};
use weir_inference::PartKind;

use super::expect::{self, Claim, Media, Takes};
use super::{form, walk};
use crate::json::{FaultKind, Location};

/// What one request asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestView {
    /// The model named at the top level, at most 256 bytes of it; of several, the last.
    pub model: Option<String>,
    /// Whether a stream is asked for; `None` when the body does not say. See [`RequestView::streams`].
    pub stream: Option<bool>,
    /// Bound on the tokens of the answer, whatever the provider calls it; of several, the largest.
    pub max_tokens: Option<u64>,
    /// All extracted texts joined by a newline: the prompt as stored.
    pub text: String,
    /// The texts to analyse, in the order of the body.
    pub parts: Vec<TextPart>,
    /// Byte offset right after the `[` of the one top-level `messages` array; `None` when there is none, several, or
    /// one at an unusual spelling.
    pub messages_open: Option<usize>,
    /// Whether that array is empty.
    pub messages_empty: bool,
    /// Why the body could not be read as JSON or as a form; its raw bytes are then the text.
    pub unreadable: Option<&'static str>,
    /// Tokens that are given as numbers: part of the prompt, and unreadable here.
    pub token_ids: u64,
    /// Whether text was left out because of a bound.
    pub truncated: bool,
    /// Ranges of `text` that are looked at and not recorded, in order: the content of files, and credentials.
    pub unrecorded: Vec<Range<usize>>,
    /// What was passed by: files, and bodies that are none we read.
    pub passed_by: UnreadSet,
}

impl RequestView {
    /// Whether the answer will be a stream: the local server's generate and chat calls stream unless told otherwise.
    pub fn streams(&self, dialect: Dialect, operation: Operation) -> bool {
        let by_default = dialect == Dialect::LocalServer && matches!(operation, Operation::Generate | Operation::Chat);
        self.stream.unwrap_or(by_default)
    }

    /// Everything that kept this request from being read whole.
    pub fn unread(&self) -> UnreadSet {
        let mut unread = self.passed_by;
        if self.unreadable.is_some() {
            unread.insert(Unread::UnreadableBody);
        }
        if self.token_ids > 0 {
            unread.insert(Unread::TokenIds);
        }
        if self.truncated {
            unread.insert(Unread::Truncated);
        }
        unread
    }

    /// The text as it is recorded: of files that are text only their descriptions are kept, of credentials nothing.
    pub fn into_recorded(self) -> String {
        if self.unrecorded.is_empty() {
            return self.text;
        }
        let mut kept = String::new();
        let mut from = 0;
        for range in &self.unrecorded {
            kept.push_str(self.text.get(from..range.start).unwrap_or_default());
            // The line break behind it goes with it.
            from = range.end + 1;
        }
        match self.text.get(from..) {
            Some(rest) => kept.push_str(rest),
            // It was the last: so does the one before it.
            None => drop(kept.pop()),
        }
        kept
    }
}

/// One text of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct TextPart {
    /// Where it stands in [`RequestView::text`].
    pub range: Range<usize>,
    /// Who speaks.
    pub kind: PartKind,
    /// Where it stands in the body.
    pub location: Location,
    /// Whether it is a credential: a secret is what belongs there.
    pub credential: bool,
}

/// Texts beyond this many share one last part, so that a body of tiny strings stays cheap.
const PARTS_MAX: usize = 4096;

/// Collects texts and their places.
pub(super) struct Gather {
    pub(super) view: RequestView,
    /// For each part: false while its kind still waits for a `role` or `type` further on.
    settled: Vec<bool>,
    text_max: usize,
}

impl Gather {
    fn new(text_max: usize, expected: usize) -> Self {
        let view = RequestView {
            model: None,
            stream: None,
            max_tokens: None,
            text: String::with_capacity(expected.min(text_max)),
            parts: Vec::with_capacity(4),
            messages_open: None,
            messages_empty: false,
            unreadable: None,
            token_ids: 0,
            truncated: false,
            unrecorded: Vec::new(),
            passed_by: UnreadSet::default(),
        };
        Self { view, settled: Vec::with_capacity(4), text_max }
    }

    /// Number of parts so far.
    pub(super) fn len(&self) -> usize {
        self.view.parts.len()
    }

    /// Adds one part whose text `write` appends.
    pub(super) fn part(
        &mut self,
        kind: PartKind,
        settled: bool,
        location: impl FnOnce() -> Location,
        write: impl FnOnce(&mut String),
    ) {
        if self.len() >= PARTS_MAX {
            return self.extend(self.len() - 1, write);
        }
        let Some(range) = self.append(write) else { return };
        // The last part takes all that follows, so nothing may exempt it from scanning.
        let last = self.len() + 1 == PARTS_MAX;
        let (kind, settled) = if last { (PartKind::User, true) } else { (kind, settled) };
        let location = if last { Location::root("request") } else { location() };
        self.view.parts.push(TextPart { range, kind, location, credential: false });
        self.settled.push(settled);
    }

    /// Adds to the part `at`, on a new line, when it is the last one.
    pub(super) fn extend(&mut self, at: usize, write: impl FnOnce(&mut String)) {
        if let Some(range) = self.append(write)
            && let Some(part) = self.view.parts.get_mut(at)
        {
            part.range.end = range.end;
        }
    }

    /// Adds the content of a file that is text.
    pub(super) fn file(&mut self, location: impl FnOnce() -> Location, content: &str) {
        self.unrecorded(PartKind::User, true, location, |out| out.push_str(content));
    }

    /// Adds what goes to the provider, or to a server of its tools, as a credential.
    pub(super) fn credential(
        &mut self,
        kind: PartKind,
        settled: bool,
        location: impl FnOnce() -> Location,
        write: impl FnOnce(&mut String),
    ) {
        let before = self.len();
        self.unrecorded(kind, settled, location, write);
        if let Some(part) = self.view.parts.get_mut(before) {
            part.credential = true;
        }
    }

    fn unrecorded(
        &mut self,
        kind: PartKind,
        settled: bool,
        location: impl FnOnce() -> Location,
        write: impl FnOnce(&mut String),
    ) {
        let before = self.view.text.len();
        self.part(kind, settled, location, write);
        let end = self.view.text.len();
        let start = before + usize::from(before > 0);
        if end > start {
            match self.view.unrecorded.last_mut().filter(|last| last.end + 1 == start) {
                Some(last) => last.end = end,
                None => self.view.unrecorded.push(start..end),
            }
        }
    }

    /// Says that something was not read.
    pub(super) const fn pass_by(&mut self, reason: Unread) {
        self.view.passed_by.insert(reason);
    }

    /// Adds text that is stored and not analysed.
    pub(super) fn note(&mut self, text: &str) {
        self.append(|out| out.push_str(text));
    }

    /// Gives `kind` to the parts from `start` on that still wait for theirs.
    pub(super) fn settle(&mut self, start: usize, kind: PartKind) {
        // Slices, because skipping in a zip would walk all parts for every object of a body.
        let parts = self.view.parts.get_mut(start..).unwrap_or_default();
        let settled = self.settled.get_mut(start..).unwrap_or_default();
        for (part, settled) in parts.iter_mut().zip(settled) {
            if !*settled {
                *settled = true;
                part.kind = kind;
            }
        }
    }

    /// Takes back the milder kind `from` in the parts from `start` on.
    pub(super) fn demote(&mut self, start: usize, from: PartKind, to: PartKind) {
        for part in self.view.parts.iter_mut().skip(start).filter(|part| part.kind == from) {
            part.kind = to;
        }
    }

    fn append(&mut self, write: impl FnOnce(&mut String)) -> Option<Range<usize>> {
        let text = &mut self.view.text;
        let before = text.len();
        if self.view.truncated || before >= self.text_max {
            self.view.truncated = true;
            return None;
        }
        if before > 0 {
            text.push('\n');
        }
        let start = text.len();
        write(text);
        if text.len() > self.text_max {
            let mut end = self.text_max;
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
            self.view.truncated = true;
        }
        if text.len() <= start {
            text.truncate(before);
            return None;
        }
        Some(start..text.len())
    }

    /// Forgets the texts found so far and takes the whole body as one.
    fn raw(&mut self, body: &[u8], reason: Option<&'static str>) {
        self.view.text.clear();
        self.view.parts.clear();
        self.view.unrecorded.clear();
        self.view.token_ids = 0;
        self.settled.clear();
        self.view.truncated = false;
        self.view.passed_by = UnreadSet::default();
        self.view.messages_open = None;
        self.view.messages_empty = false;
        self.view.unreadable = reason;
        let text_max = self.text_max;
        self.part(
            PartKind::User,
            true,
            || Location::root("request"),
            |out| match reason {
                Some(_) => raw_text(body, text_max, out),
                None => out.push_str(&expect::words(body).unwrap_or_else(|| String::from_utf8_lossy(body))),
            },
        );
    }
}

/// Reads a request body (content-decoded). `text_max` bounds the extracted text in bytes.
///
/// Where the operation takes JSON, and where a body begins like it, it is read as JSON whatever the content type claims,
/// because providers do; forms are read by their parts; other text is one part. Only what is neither is passed by, and
/// said to be.
pub fn read_request(dialect: Dialect, claim: Claim<'_>, body: &[u8], text_max: usize) -> RequestView {
    let mut view = read_body(dialect, claim, body, text_max);
    if claim.content_type.is_some_and(|content_type| expect::foreign_charset(content_type, body)) {
        view.unreadable = view.unreadable.or(Some("a `charset` other than UTF-8"));
    }
    view
}

fn read_body(dialect: Dialect, claim: Claim<'_>, body: &[u8], text_max: usize) -> RequestView {
    let mut gather = Gather::new(text_max, body.len());
    if body.is_empty() {
        return gather.view;
    }
    let claimed = Media::of(claim.content_type);
    let media = if claim.takes == Takes::Json { Media::Json } else { claimed };
    let starts_like_json = matches!(body.trim_ascii_start().first(), Some(b'{' | b'['));
    if media == Media::Multipart {
        if let Err(reason) = form::multipart(&mut gather, claim.content_type.unwrap_or_default(), body) {
            gather.raw(body, Some(reason));
        }
        return gather.view;
    }
    if media == Media::Json || starts_like_json {
        let Err(fault) = walk::json(&mut gather, dialect, body) else { return gather.view };
        if claim.cut && fault.kind == FaultKind::End {
            // It was JSON as far as it goes.
            gather.view.messages_open = None;
            return gather.view;
        }
        match media {
            Media::Json if claimed == Media::Form => {
                gather = Gather::new(text_max, body.len());
                form::urlencoded(&mut gather, body);
                gather.view.unreadable = Some(fault.kind.as_str());
                return gather.view;
            }
            Media::Form | Media::Text => gather = Gather::new(text_max, body.len()),
            _ => {
                gather.raw(body, Some(fault.kind.as_str()));
                return gather.view;
            }
        }
    }
    match media {
        Media::Form => form::urlencoded(&mut gather, body),
        Media::Text | Media::Unknown
            if claim.cut || std::str::from_utf8(body).is_ok() || expect::words(body).is_some() =>
        {
            gather.raw(body, None);
        }
        Media::Text => gather.raw(body, Some("text that is not UTF-8")),
        Media::Unknown => gather.raw(body, Some("neither text nor a known media type")),
        Media::Binary if expect::words(body).is_some() => gather.raw(body, None),
        Media::Binary => gather.pass_by(Unread::MediaType),
        Media::Json | Media::Multipart => {}
    }
    gather.view
}

/// The bytes of an unreadable body as text, for scanning: UTF-16 is recognised, other bytes are read as UTF-8 with replacement
/// characters, and JSON escapes are undone so that they hide nothing.
fn raw_text(body: &[u8], text_max: usize, out: &mut String) {
    let body = body.get(..body.len().min(text_max.saturating_mul(6).saturating_add(6))).unwrap_or(body);
    let wide = |big: bool| {
        let units = body.chunks_exact(2).map(move |pair| match pair {
            [a, b] if big => u16::from_be_bytes([*a, *b]),
            [a, b] => u16::from_le_bytes([*a, *b]),
            _ => 0,
        });
        char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect::<String>()
    };
    let text = match body {
        [0xfe, 0xff, ..] | [0, 1..=u8::MAX, ..] => wide(true).into(),
        [0xff, 0xfe, ..] | [1..=u8::MAX, 0, ..] => wide(false).into(),
        _ => String::from_utf8_lossy(body),
    };
    let mut rest: &str = &text;
    while let Some(at) = memchr::memchr(b'\\', rest.as_bytes()) {
        let (plain, tail) = rest.split_at(at);
        out.push_str(plain);
        let digits = tail.strip_prefix("\\u").and_then(|rest| rest.get(..4));
        let unit = digits.filter(|four| four.bytes().all(|b| b.is_ascii_hexdigit()));
        let decoded = unit.and_then(|four| u32::from_str_radix(four, 16).ok()).and_then(char::from_u32);
        let (c, used) = match decoded {
            Some(c) => (c, 6),
            None if tail.starts_with("\\n") => ('\n', 2),
            None if tail.starts_with("\\t") => ('\t', 2),
            None if tail.starts_with("\\\"") => ('"', 2),
            None if tail.starts_with("\\/") => ('/', 2),
            None => ('\\', 1),
        };
        out.push(c);
        rest = tail.get(used..).unwrap_or_default();
    }
    out.push_str(rest);
}
