//! The contents of messages: the strings of a body that a tag may be put around. Everything else in a message (arguments, ids,
//! addresses of pictures) is somebody's syntax and stays as it is.

use std::ops::Range;

use weir_config::vocab::part::PartForm;
use weir_inference::PartKind;

use crate::inspect::{RequestView, TextPart};
use crate::json::Segment;

/// One content, a single JSON string of the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Content {
    /// Index into [`RequestView::parts`].
    pub(super) part: usize,
    /// Its bytes in the body, without the quotes.
    pub(super) raw: Range<usize>,
    /// The message it belongs to.
    pub(super) message: u32,
}

/// The contents of a request, in order.
pub(super) fn contents(view: &RequestView) -> Vec<Content> {
    let parts = view.parts.iter().enumerate();
    let content = |(at, part): (usize, &TextPart)| {
        let (message, raw) = (part.message?, part.raw.clone()?);
        let raw = usize::try_from(raw.start).ok()?..usize::try_from(raw.end).ok()?;
        let words = view.text.get(part.range.clone()).unwrap_or_default();
        is_content(part, words).then_some(Content { part: at, raw, message })
    };
    parts.filter_map(content).collect()
}

/// Members of a tool's result whose strings are words for the model: texts, and what documents and results of a search bring.
const OF_RESULTS: [&str; 5] = ["text", "content", "data", "title", "context"];

/// `messages[i].content`, a text block in it, or the content of a tool's result in it, which may have blocks itself: texts, documents
/// with their titles, results of a search.
fn is_content(part: &TextPart, words: &str) -> bool {
    use Segment::{Index, Key};
    let [Key("messages"), Index(_), Key("content"), inner @ ..] = part.location.segments() else { return false };
    match inner {
        [] | [Index(_), Key("text")] => true,
        // What a short picture is spelled by has no blank.
        [Index(_), .., Key("data")] if !words.contains(char::is_whitespace) => false,
        // A file in base64 is spelled as a whole.
        [Index(_), .., last] if part.kind == PartKind::Tool && part.form == PartForm::Text => match last {
            Key(name) => OF_RESULTS.contains(name),
            Segment::Name(name) => OF_RESULTS.contains(&&**name),
            Index(_) => true,
        },
        _ => false,
    }
}

/// Whether the role of a content is one of `roles`. A tool's result is the tool's, whoever hands it in.
pub(super) fn is_of(view: &RequestView, content: &Content, roles: &[String]) -> bool {
    let Some(part) = view.parts.get(content.part) else { return false };
    let named = |role: &str| roles.iter().any(|known| known.eq_ignore_ascii_case(role));
    match part.kind {
        PartKind::Tool => named("tool") || named("function"),
        // A message whose role is missing, or said in two ways, may be a tool's for its reader.
        PartKind::User | PartKind::Assistant | PartKind::System => {
            view.label(part.role).map_or_else(|| named("tool") || named("function"), named)
        }
        PartKind::ToolDefinition | PartKind::ToolCall | PartKind::Output => false,
    }
}
