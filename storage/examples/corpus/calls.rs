//! Calls as the examples store them: single ones, and agents' conversations of twenty turns, each of which sends 90 KB of instructions
//! and tools and all that was said before.

use weir_config::vocab::part::{PartForm, PartKind, PartRecord, PartSide};
use weir_storage::record::SpanRecord;

use crate::corpus::{spans, texts};

/// Instructions and tools.
type Fixed = (String, Vec<String>);

/// Calls of a conversation.
pub(crate) const TURNS: usize = 20;

/// Gives a span these texts as its request's parts.
pub(crate) fn told(mut span: SpanRecord, said: &[(PartKind, Option<u32>, &str)], answer: &str) -> SpanRecord {
    let (mut prompt, mut parts) = (String::new(), Vec::new());
    for (kind, message, text) in said {
        if !prompt.is_empty() {
            prompt.push('\n');
        }
        let start = prompt.len() as u32;
        prompt.push_str(text);
        let text = Some(start..prompt.len() as u32);
        let (side, form) = (PartSide::Request, PartForm::Text);
        parts.push(PartRecord { side, kind: *kind, form, role: None, message: *message, text, raw: None, tool: None });
    }
    parts.push(PartRecord {
        side: PartSide::Response,
        kind: PartKind::Output,
        form: PartForm::Text,
        role: None,
        message: Some(0),
        text: Some(0..answer.len() as u32),
        raw: None,
        tool: None,
    });
    (span.prompt, span.response, span.parts) = (Some(prompt), Some(answer.to_owned()), parts);
    span
}

/// Calls that have nothing to do with each other, of so many bytes.
pub(crate) fn single(count: usize, bytes: usize) -> Vec<SpanRecord> {
    let mut text = texts();
    spans(count)
        .into_iter()
        .map(|span| {
            let (asked, answered) = (text(bytes), text(500));
            told(span, &[(PartKind::User, Some(0), &asked)], &answered)
        })
        .collect()
}

/// Conversations, turn by turn in the order in which agents that work side by side send them; alike in instructions and tools, or in
/// nothing.
pub(crate) fn conversations(count: usize, alike: bool) -> Vec<SpanRecord> {
    let mut text = texts();
    let mut blank = spans(count * TURNS).into_iter();
    let (mut all, mut known): (Vec<Vec<SpanRecord>>, Option<Fixed>) = (Vec::new(), None);
    for _ in 0..count {
        let mut fixed = || (text(10_000), (0..40).map(|_| text(2_000)).collect::<Vec<_>>());
        let (system, tools) = match known.take().filter(|_| alike) {
            Some(known) => known,
            None => fixed(),
        };
        // Each turn: what the model said, the tool it asked for, what that brought.
        let turns: Vec<[String; 3]> = (0..TURNS).map(|_| [text(300), text(150), text(1_500)]).collect();
        let task = text(400);
        let conversation = (0..TURNS).zip(blank.by_ref()).map(|(turn, span)| {
            let mut said = vec![(PartKind::System, None, system.as_str()), (PartKind::User, Some(0), task.as_str())];
            for (at, [answer, call, result]) in turns.iter().take(turn).enumerate() {
                let message = 1 + 2 * at as u32;
                said.push((PartKind::Assistant, Some(message), answer));
                said.push((PartKind::ToolCall, Some(message), call));
                said.push((PartKind::Tool, Some(message + 1), result));
            }
            said.extend(tools.iter().map(|tool| (PartKind::ToolDefinition, None, tool.as_str())));
            told(span, &said, &turns[turn][0])
        });
        all.push(conversation.collect());
        known = Some((system, tools));
    }
    (0..TURNS).flat_map(|turn| all.iter().filter_map(move |conversation| conversation.get(turn).cloned())).collect()
}
