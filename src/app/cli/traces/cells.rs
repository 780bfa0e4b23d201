//! A call as a row of a table (RFC 4180): what is counted of it, no texts.

use serde_json::Value;
use weir_storage::record::SpanRecord;

/// Names of the columns, which are those of the record.
const COLUMNS: [&str; 26] = [
    "trace_id",
    "span_id",
    "parent_span_id",
    "tenant_id",
    "agent_id",
    "session_id",
    "client",
    "operation_name",
    "start_time",
    "end_time",
    "provider",
    "model",
    "streaming",
    "status_code",
    "error_type",
    "finish_reason",
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "tokens_estimated",
    "time_to_first_token_ms",
    "duration_ms",
    "estimated_cost_usd",
    "security_score",
];
/// Names of those that are made of what was found.
const FOUND: [&str; 2] = ["enforcement", "findings"];

/// The first line.
pub(super) fn head() -> String {
    COLUMNS.iter().chain(&FOUND).copied().collect::<Vec<_>>().join(",")
}

/// A call's line.
pub(super) fn row(span: &SpanRecord) -> String {
    let record = serde_json::to_value(span).unwrap_or_default();
    let cells = COLUMNS.iter().map(|name| match record.get(name) {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => cell(text),
        Some(other) => other.to_string(),
    });
    let mut found: Vec<&str> = span.security_findings.iter().map(|finding| finding.finding_type.as_ref()).collect();
    found.sort_unstable();
    found.dedup();
    cells.chain([cell(&span.enforcement), cell(&found.join(";"))]).collect::<Vec<_>>().join(",")
}

/// A text in quotes where it has to be. What a table calculator would take for a formula begins with an apostrophe: names are strangers'
/// words.
fn cell(text: &str) -> String {
    let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let text = if is_formula { format!("'{text}") } else { text.to_owned() };
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_quoted_and_no_formula() {
        let cells = ["gpt-4o", "a,b", "say \"hi\"\n", "=1+1", "-x,y", ""].map(cell);
        assert_eq!(cells, ["gpt-4o", "\"a,b\"", "\"say \"\"hi\"\"\n\"", "'=1+1", "\"'-x,y\"", ""]);
    }
}
