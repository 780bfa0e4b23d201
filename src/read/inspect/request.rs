//! What a request body says: model, limits, and every text in it with its place.
//!
//! Invariant: a body that cannot be read as what it claims to be is still scanned, raw, and says so in `unreadable`.

use std::ops::Range;

use weir_config::vocab::frame::Frame;
use weir_config::vocab::{Dialect, Operation, Unread, UnreadSet};

use super::expect::{self, Declared, Media, Takes};
use super::gather::{Gather, REFERENCES_MAX};
use super::part::{BareCall, FileNote, Labels, Replaced, TextPart};
use super::place::Places;
use super::rpc::RpcCall;
use super::zone::Zones;
use super::{form, lines, walk};
use crate::exchange::Family;
use crate::json::JsonErrorKind;

/// What one request asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestView {
    /// The model named at the top level, at most 256 bytes of it; of several, the last.
    pub model: Option<String>,
    /// Whether it names several that are not the same.
    pub models_differ: bool,
    /// Keys and fields of its top that name a model, whatever stands there.
    pub model_fields: u32,
    /// Those of them that hold a name which is taken as it stands.
    pub models_named: u32,
    /// Whether only its beginning was read.
    pub is_cut: bool,
    /// The models it names elsewhere: for when that one does not answer (`models`, `fallbacks`), for its tools, for a session, for
    /// each call of a batch. Of too many, `models_differ`.
    pub other_models: Vec<String>,
    /// The objects it names that the provider keeps, and what kind each is of; what a model has said names none.
    pub references: Vec<(Family, String)>,
    /// Whether it names more than are kept.
    pub too_many_references: bool,
    /// The session the body names.
    pub session_id: Option<String>,
    /// The provider's id of the answer that it goes on from: what was said before is with the provider.
    pub previous_answer: Option<String>,
    /// The provider's id of the conversation that it goes on (Responses: `conversation`): what was said before is with the provider, too.
    pub conversation: Option<String>,
    /// The end of the user's turn before, where that came in a call of its own.
    pub former_turn: Option<Box<str>>,
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
    /// Whether there are more texts than are told apart: the last part has several.
    pub crowded: bool,
    /// Ranges of `text` that are looked at and not recorded, in order: the content of files, and credentials.
    pub unrecorded: Vec<Range<usize>>,
    /// The descriptions of files, in order: text of no part that is analysed.
    pub files: Vec<FileNote>,
    /// Calls of tools whose arguments hold no text, in order.
    pub bare: Vec<BareCall>,
    /// What was passed by: files, and bodies that are none we read.
    pub passed_by: UnreadSet,
    /// Which pieces of the texts are data, where somebody asked.
    pub zones: Option<Box<Zones>>,
    /// What stands in the place of pieces of the texts in what is forwarded, in order.
    pub replaced: Vec<Replaced>,
    /// The body without its texts, where its parts alone do not say enough to ask the same again.
    pub frame: Option<Box<Frame>>,
    /// What it asks for by JSON-RPC, where it is of that kind.
    pub rpc: Option<Box<RpcCall>>,
    pub(super) places: Places,
    pub(super) labels: Labels,
}

impl RequestView {
    /// Whether the answer will be a stream: the local server's generate and chat calls stream unless told otherwise.
    pub fn streams(&self, dialect: Dialect, operation: Operation) -> bool {
        let by_default = dialect == Dialect::LocalServer && matches!(operation, Operation::Generate | Operation::Chat);
        self.stream.unwrap_or(by_default)
    }

    /// Whether everybody who reads it finds the same models in it. What is unreadable or cut names none, and so does what names its
    /// model twice, or as something else than a name.
    pub fn models_are_plain(&self) -> bool {
        let is_one = self.model_fields == self.models_named && self.models_named <= 1;
        is_one && !self.models_differ && !self.is_cut && self.unreadable.is_none()
    }

    /// Takes the id of an object that the provider keeps.
    pub(super) fn refers_to(&mut self, family: Family, id: String) {
        // The calls of a file name the same one again and again.
        if self.references.iter().any(|(known, other)| *known == family && *other == id) {
            return;
        }
        if self.references.len() < REFERENCES_MAX {
            self.references.push((family, id));
        } else {
            self.too_many_references = true;
        }
    }

    /// Whether a message may be put before its first one: only where its messages have one place, and the answer is no stream, whose
    /// clients wait for its first words.
    pub fn may_be_advised(&self) -> bool {
        self.messages_open.is_some() && self.stream != Some(true) && self.unreadable.is_none()
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
}

/// Reads a request body (content-decoded). `text_max` bounds the extracted text in bytes.
///
/// Where the operation takes JSON, and where a body begins like it, it is read as JSON whatever the content type claims,
/// because providers do; forms are read by their parts; other text is one part. Only what is neither is passed by, and
/// said to be.
pub fn read_request(dialect: Dialect, declared: Declared<'_>, body: &[u8], text_max: usize) -> Box<RequestView> {
    let mut view = read_body(dialect, declared, body, text_max);
    if declared.content_type.is_some_and(|content_type| expect::foreign_charset(content_type, body)) {
        view.unreadable = view.unreadable.or(Some("a `charset` other than UTF-8"));
    }
    view.is_cut |= declared.cut;
    if declared.takes == Takes::Files {
        lines::references(&mut view, dialect, body, declared.until);
    }
    view
}

fn read_body(dialect: Dialect, declared: Declared<'_>, body: &[u8], text_max: usize) -> Box<RequestView> {
    let mut gather = Gather::new(text_max, body.len());
    if body.is_empty() {
        return gather.view;
    }
    let claimed = Media::of(declared.content_type);
    let media = if declared.takes == Takes::Json { Media::Json } else { claimed };
    let starts_like_json = matches!(body.trim_ascii_start().first(), Some(b'{' | b'['));
    if media == Media::Multipart {
        if let Err(reason) = form::multipart(&mut gather, declared.content_type.unwrap_or_default(), body) {
            gather.raw(body, Some(reason));
        }
        return gather.view;
    }
    if media == Media::Json || starts_like_json {
        let Err(fault) = walk::json(&mut gather, dialect, body, declared.until) else { return gather.view };
        if fault.kind == JsonErrorKind::Late {
            // There is no time to read it another way.
            gather.view.messages_open = None;
            gather.view.unreadable = Some(fault.kind.as_str());
            (gather.view.truncated, gather.view.is_cut) = (true, true);
            return gather.view;
        }
        if declared.cut && fault.kind == JsonErrorKind::End {
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
            if declared.cut || std::str::from_utf8(body).is_ok() || expect::words(body).is_some() =>
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
