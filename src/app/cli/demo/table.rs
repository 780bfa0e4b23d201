//! The recorded traces as a table for a terminal.

use weir_config::vocab::TraceId;
use weir_storage::record::{SpanRecord, TraceRecord};

use super::calls::Made;
use crate::cli::common::say;

/// Prints one row per call and says what the columns mean. True when every call left its trace.
pub(super) fn print(made: &[Made], trace: impl Fn(TraceId) -> Option<TraceRecord>) -> bool {
    say(&row(["call", "status", "model", "tokens", "score", "ms", "added", "findings"].map(str::to_owned)));
    say(&"-".repeat(118));
    let mut complete = true;
    for call in made {
        let span = call.trace.and_then(&trace).and_then(|trace| trace.spans.into_iter().next());
        complete &= span.is_some();
        let status = match &call.outcome {
            Ok(status) => status.to_string(),
            Err(reason) => reason.clone(),
        };
        say(&match span {
            Some(span) => recorded(call.title, status, &span),
            None => row([call.title.to_owned(), status, "no trace".to_owned()].into_iter().collect::<Cells>().0),
        });
    }
    say("");
    say("score: 0 clean to 95 critical. added: what Weir added to the call, in microseconds. Nothing was blocked:");
    say("`enforcement.mode` is `log` unless you set it to `flag` or `block`.");
    complete
}

fn recorded(title: &str, status: String, span: &SpanRecord) -> String {
    let tokens = match (span.prompt_tokens, span.completion_tokens) {
        (None, None) => "-".to_owned(),
        (prompt, completion) => format!("{}+{}", prompt.unwrap_or(0), completion.unwrap_or(0)),
    };
    let mut found: Vec<String> = span
        .security_findings
        .iter()
        .map(|finding| format!("{} ({})", finding.finding_type, finding.severity))
        .collect();
    found.extend(
        span.events.iter().filter(|event| event.event_type == "tool_call").map(|event| event.description.clone()),
    );
    found.extend(span.error_type.iter().map(|error| format!("error: {error}")));
    found.dedup();
    row([
        title.to_owned(),
        status,
        span.model.clone().unwrap_or_default(),
        tokens,
        span.security_score.map_or_else(|| "-".to_owned(), |score| score.to_string()),
        format!("{:.1}", span.duration_ms),
        span.overhead_us.map_or_else(|| "-".to_owned(), |added| added.to_string()),
        found.join(", "),
    ])
}

/// A row with its missing cells empty.
struct Cells([String; 8]);

impl FromIterator<String> for Cells {
    fn from_iter<I: IntoIterator<Item = String>>(cells: I) -> Self {
        let mut row: [String; 8] = Default::default();
        for (place, cell) in row.iter_mut().zip(cells) {
            *place = cell;
        }
        Self(row)
    }
}

fn row([call, status, model, tokens, score, ms, added, findings]: [String; 8]) -> String {
    format!("{call:<28} {status:>6}  {model:<11} {tokens:>8} {score:>6} {ms:>7} {added:>6}  {findings}")
}
