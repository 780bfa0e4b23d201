//! Whether an answer repeats the system prompt it was given (`output_safety.enabled`).

use std::time::Instant;

use weir_config::vocab::part::PartForm;
use weir_config::vocab::{ByteSpan, Finding, Severity};
use weir_inference::{Original, PartKind, Repeated};

use super::text;
use crate::inspect::RequestView;
use crate::observe::Answer;

/// From this part of the prompt on the answer gives it away.
const MOST: f64 = 0.5;

/// What `answer` repeats of the instructions in `view`; `before` parts of the record stand before those of the answer. What a
/// model thinks is left out: it reads its instructions there. What is read by the deadline counts.
pub(crate) fn findings(view: &RequestView, answer: &Answer, before: usize, deadline: Option<Instant>) -> Vec<Finding> {
    let system = view.parts.iter().filter(|part| part.kind == PartKind::System && !part.is_credential());
    let system = system.filter_map(|part| view.text.get(part.range.clone()));
    let Some(original) = Original::of(system) else { return Vec::new() };
    let said = answer.parts.iter().enumerate().filter(|(_, part)| {
        matches!(part.kind, PartKind::Output | PartKind::ToolCall) && part.form != PartForm::Reasoning
    });
    said.filter_map(|(at, part)| {
        let words = answer.text.get(part.range.clone())?;
        let mut finding = finding(original.repeated_by(words, deadline)?);
        finding.location = text::answer_location(answer, at);
        finding.part = u32::try_from(before + at).ok();
        Some(finding)
    })
    .collect()
}

fn finding(Repeated { range, words, share }: Repeated) -> Finding {
    let (severity, confidence) = if share >= MOST { (Severity::High, 0.95) } else { (Severity::Medium, 0.8) };
    let said = "The answer repeats its system prompt word for word";
    let mut finding = Finding::new("data_leakage", severity, confidence, "output_safety", said);
    finding.span = Some(ByteSpan { start: range.start, end: range.end });
    // No evidence: the instructions may hold what must not be shown, and the span says where it stands.
    finding.metadata.insert("leakage_type".to_owned(), "system_prompt".to_owned());
    finding.metadata.insert("repeated_words".to_owned(), words.to_string());
    finding.metadata.insert("share".to_owned(), format!("{share:.2}"));
    finding
}
