//! Calls as lines of a table.

use weir_config::vocab::Timestamp;
use weir_storage::messages::{self, MessagePartType};
use weir_storage::record::{SpanRecord, TraceRecord};

use super::screen::Screen;

/// Below so many columns a call takes two lines.
const WIDE: usize = 110;
/// Characters of a tenant's name.
const TENANT_CHARS: usize = 13;
/// Characters of what was asked.
const ASKED_CHARS: usize = 80;

/// A line of the table.
pub(super) struct Row {
    at: Timestamp,
    id: String,
    tenant: String,
    status: String,
    model: String,
    tokens: String,
    cost: String,
    score: String,
    took: String,
    asked: String,
}

/// The names of the columns, where they fit.
pub(super) fn head(screen: &mut Screen) {
    if screen.width().is_none_or(|width| width >= WIDE) {
        let names = ["time", "trace", "tenant", "status", "score", "tokens", "USD", "ms", "model", "asked"];
        screen.line(&wide(names.map(str::to_owned)));
    }
}

impl Row {
    /// A trace; what is not a sum is that of its first span, a failure that of any.
    pub(super) fn of_trace(trace: &TraceRecord, tenant: &str) -> Self {
        let spans = &trace.spans;
        let sum = |count: fn(&SpanRecord) -> Option<u64>| {
            spans.iter().filter_map(count).reduce(|sum, more| sum.saturating_add(more))
        };
        let cost = spans.iter().filter_map(|span| span.estimated_cost_usd).reduce(|sum, more| sum + more);
        let first = spans.first();
        Self {
            at: trace.created_at,
            id: trace.trace_id.to_string(),
            tenant: short(tenant),
            status: spans.iter().max_by_key(|span| is_failed(span)).map_or_else(String::new, outcome),
            model: trace.model.clone().unwrap_or_default(),
            tokens: tokens(sum(|span| span.prompt_tokens), sum(|span| span.completion_tokens)),
            cost: cost.map_or_else(|| "-".to_owned(), dollars),
            score: trace.security_score.map_or_else(|| "-".to_owned(), |score| score.to_string()),
            took: format!("{:.0}", spans.iter().map(|span| span.duration_ms).sum::<f64>()),
            asked: first.map(asked).unwrap_or_default(),
        }
    }

    /// One call, under the id of its trace.
    pub(super) fn of_span(span: &SpanRecord, tenant: &str) -> Self {
        Self {
            at: span.start_time,
            id: span.trace_id.to_string(),
            tenant: short(tenant),
            status: outcome(span),
            model: span.model.clone().unwrap_or_default(),
            tokens: tokens(span.prompt_tokens, span.completion_tokens),
            cost: span.estimated_cost_usd.map_or_else(|| "-".to_owned(), dollars),
            score: span.security_score.map_or_else(|| "-".to_owned(), |score| score.to_string()),
            took: format!("{:.0}", span.duration_ms),
            asked: asked(span),
        }
    }

    /// Writes it, in two lines where one has no room.
    pub(super) fn print(self, screen: &mut Screen) {
        let Self { at, id, tenant, status, model, tokens, cost, score, took, asked } = self;
        let at = seconds(at);
        if screen.width().is_none_or(|width| width >= WIDE) {
            return screen.line(&wide([at, id, tenant, status, score, tokens, cost, took, model, asked]));
        }
        screen.line(&format!("{id}  {tenant}  {status}  score {score}"));
        screen.line(&format!("    {at}  {model}  {tokens}  {took} ms  {asked}"));
    }
}

/// A cost in the room there is; one that is not nothing does not read as nothing.
fn dollars(cost: f64) -> String {
    if cost > 0.0 && cost < 0.0001 { "<0.0001".to_owned() } else { format!("{cost:.4}") }
}

fn wide([at, id, tenant, status, score, tokens, cost, took, model, asked]: [String; 10]) -> String {
    format!(
        "{at:<20}  {id:<36}  {tenant:<TENANT_CHARS$}  {status:>6} {score:>5} {tokens:>11} {cost:>8} {took:>6}  {model:<24}  {asked}"
    )
}

/// A tenant's name, or the beginning of its id where it has none.
fn short(tenant: &str) -> String {
    let name = tenant.strip_prefix("tenant ").unwrap_or(tenant);
    name.chars().take(TENANT_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A time without the parts of its seconds.
pub(super) fn seconds(at: Timestamp) -> String {
    let text = at.to_string();
    text.get(..19).map_or(text.clone(), |seconds| format!("{seconds}Z"))
}

/// Prompt and answer.
pub(super) fn tokens(prompt: Option<u64>, completion: Option<u64>) -> String {
    match (prompt, completion) {
        (None, None) => "-".to_owned(),
        (prompt, completion) => format!("{}+{}", prompt.unwrap_or(0), completion.unwrap_or(0)),
    }
}

fn is_failed(span: &SpanRecord) -> bool {
    span.error_type.is_some() || span.status_code.is_none_or(|status| status >= 400)
}

/// Status, or why there is none.
pub(super) fn outcome(span: &SpanRecord) -> String {
    match (span.status_code, &span.error_type) {
        (Some(status), _) => status.to_string(),
        (None, Some(error)) => error.clone(),
        (None, None) => "-".to_owned(),
    }
}

/// The beginning of what was asked last, on one line.
fn asked(span: &SpanRecord) -> String {
    let said = messages::of(span);
    let words = said.iter().filter(|message| message.role == "user").flat_map(|message| &message.parts);
    let last = words.filter(|part| part.part_type == MessagePartType::Text).filter_map(|part| part.text).next_back();
    let text = last.or(span.prompt.as_deref()).unwrap_or_default();
    let line: String = text.chars().take(ASKED_CHARS).map(|c| if c.is_whitespace() { ' ' } else { c }).collect();
    line.trim().to_owned()
}
