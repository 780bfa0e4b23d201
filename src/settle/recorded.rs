//! A recorded call looked at once more: its texts as they are stored, part by part, by the detectors that looked at them when they
//! were sent. Models are not asked.

use weir_config::vocab::Finding;
use weir_config::vocab::part::{PartKind, PartRecord, PartSide};
use weir_inference::action::{self, Action, ActionKind};
use weir_inference::{Analyser, Call, Part, Ran, Scratch};
use weir_storage::record::SpanRecord;

use super::inspection::{self, survive};

/// What another look found.
pub(crate) struct Again {
    pub(crate) findings: Vec<(PartSide, Finding)>,
    pub(crate) ran: Ran,
    /// Bytes of text there were.
    pub(crate) text_bytes: usize,
}

/// Looks at the texts of `span`. One that says nothing of its parts counts as a user's words and a model's answer. `None` when a
/// detector panicked.
pub(crate) fn look_again(
    analyser: &Analyser,
    scratch: &mut Scratch,
    span: &SpanRecord,
    call: &Call<'_>,
) -> Option<Again> {
    let texts = texts(span);
    let parts: Vec<Part<'_>> = texts.iter().map(|(_, part, _)| *part).collect();
    let (hits, ran) = inspection::look(analyser, scratch, &parts, call)?;
    let mut findings: Vec<(PartSide, Finding)> = Vec::with_capacity(hits.len());
    for hit in hits {
        findings.extend(texts.get(hit.part).map(|(side, _, _)| (*side, hit.finding)));
    }
    let called = texts.iter().filter(|(side, part, _)| *side == PartSide::Response && part.kind == PartKind::ToolCall);
    for (_, part, tool) in called {
        let name = tool.unwrap_or_default();
        let action = Action { kind: ActionKind::Tool, name, arguments: Some(part.text), writes: false };
        let found = survive(|| action::check(&action, call.deadline))?;
        findings.extend(found.into_iter().map(|finding| (PartSide::Response, finding)));
    }
    Some(Again { findings, ran, text_bytes: parts.iter().map(|part| part.text.len()).sum() })
}

/// The texts, each with its side and the tool it is about.
fn texts(span: &SpanRecord) -> Vec<(PartSide, Part<'_>, Option<&str>)> {
    let of_side = |side| match side {
        PartSide::Request => span.prompt.as_deref(),
        PartSide::Response => span.response.as_deref(),
    };
    if span.parts.is_empty() {
        let bare = [(PartSide::Request, PartKind::User), (PartSide::Response, PartKind::Output)];
        return bare
            .into_iter()
            .filter_map(|(side, kind)| Some((side, Part { text: of_side(side)?, kind }, None)))
            .collect();
    }
    let text = |part: &PartRecord| {
        let range = part.text.as_ref()?;
        of_side(part.side)?.get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
    };
    span.parts
        .iter()
        .filter_map(|part| {
            let tool = part.tool.as_ref().and_then(|tool| tool.name.as_deref());
            Some((part.side, Part { text: text(part)?, kind: part.kind }, tool))
        })
        .collect()
}
