//! What a document is: by what its head says, and by its first bytes.

use crate::observe::AnswerKind;

/// What a document says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    Json,
    /// Text; or nothing.
    Text,
    /// Bytes that may be anything.
    Bytes,
    /// Sound, a picture, a film.
    Media,
}

impl Body {
    /// What the content type of an answer of this kind says.
    pub(crate) fn of(kind: AnswerKind, content_type: Option<&[u8]>) -> Self {
        let Some(said) = content_type else { return Self::Text };
        let is = |family: &[u8]| said.get(..family.len()).is_some_and(|start| start.eq_ignore_ascii_case(family));
        match () {
            () if kind == AnswerKind::Json => Self::Json,
            () if is(b"text/") => Self::Text,
            () if [&b"audio/"[..], b"image/", b"video/", b"font/", b"model/"].iter().any(|family| is(family)) => {
                Self::Media
            }
            () => Self::Bytes,
        }
    }
}

/// Whether the beginning of a body is that of no text.
pub(super) fn is_binary(beginning: &[u8]) -> bool {
    // The last character may be cut.
    let broken = std::str::from_utf8(beginning).is_err_and(|fault| fault.error_len().is_some());
    broken || memchr::memchr(0, beginning).is_some()
}

/// What a body whose kind is not said is by its first bytes, where those of a document or of a stream have come.
pub(crate) fn sniffed(beginning: &[u8]) -> Option<AnswerKind> {
    let beginning = beginning.strip_prefix(b"\xef\xbb\xbf").unwrap_or(beginning).trim_ascii_start();
    let is_event = [&b"data:"[..], b"event:", b"id:", b"retry:", b":"].iter().any(|field| beginning.starts_with(field));
    match beginning.first() {
        Some(b'{' | b'[') => Some(AnswerKind::Json),
        _ => is_event.then_some(AnswerKind::EventStream),
    }
}
