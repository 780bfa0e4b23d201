//! A record as a span of OpenTelemetry: what is counted and found first, texts last, because receivers cut the end of what is large.

use std::borrow::Cow;

use serde_json::Value as Json;
use weir_config::settings::{OtelContent, OtelSemconv};
use weir_config::vocab::part::PartKind;
use weir_config::vocab::{FINDING_ALLOWED, Finding, SpanId};
use weir_storage::record::{COST_BREAKDOWN, SpanEvent, SpanRecord};

use super::content::{self, nanos};
use super::names::{self, Names};
use super::wire::{Message, Value};
use crate::record::RESPONSE_ID;
use crate::router::SOURCE;

/// Numbers of a span's fields.
const ATTRIBUTES: u64 = 9;
const EVENTS: u64 = 11;
/// Of an event's.
const EVENT_ATTRIBUTES: u64 = 3;
const KIND_CLIENT: u64 = 3;
const STATUS_ERROR: u64 = 2;
/// The trace is sampled, and whether the parent is another process's is known; and that it is.
const FLAGS: u32 = 0x101;
const FLAG_REMOTE: u32 = 0x200;
/// What SDKs send of a span at most; the others are counted in it.
const EVENTS_MAX: usize = 128;
/// A span without texts has about so many bytes.
const USUAL_BYTES: usize = 1_536;
/// The event of a try at one of several upstreams.
const TRY: &str = "upstream_attempt";
const MILLIS_PER_SECOND: f64 = 1_000.0;

/// How records become spans.
#[derive(Debug, Clone, Copy)]
pub(super) struct How {
    /// What is said of texts.
    pub(super) content: OtelContent,
    pub(super) semconv: OtelSemconv,
    /// Tries at upstreams are spans of their own.
    pub(super) tries: bool,
}

/// The span of a record, and whether its texts were cut.
pub(super) fn encode(record: &SpanRecord, how: How) -> (Message, bool) {
    let names = names::of(how.semconv);
    let operation = names::operation(&record.operation_name);
    let mut span = Message::with_capacity(USUAL_BYTES);
    span.bytes(1, record.trace_id.as_bytes());
    span.bytes(2, &short(record.span_id));
    if let Some(parent) = record.parent_span_id {
        span.bytes(4, &short(parent));
    }
    span.bytes(5, name(record, operation).as_bytes());
    span.uint(6, KIND_CLIENT);
    span.fixed64(7, nanos(record.start_time));
    span.fixed64(8, nanos(record.end_time).max(nanos(record.start_time)));
    conventional(&mut span, record, names, operation);
    ours(&mut span, record);
    let with_texts = how.content != OtelContent::None;
    events(&mut span, record, names, (with_texts, how.tries));
    status(&mut span, record, with_texts);
    span.fixed32(16, if record.parent_span_id.is_some() { FLAGS | FLAG_REMOTE } else { FLAGS });
    let is_cut = with_texts && content::write(&mut span, record, how.semconv);
    if is_cut {
        span.attribute(ATTRIBUTES, "weir.content.cut", Value::Bool(true));
    }
    (span, is_cut)
}

/// The spans of a call's tries at upstreams, its children. Their ids follow from the call's, so that they are the same when it comes again.
pub(super) fn tries(record: &SpanRecord) -> Vec<Message> {
    let parent = short(record.span_id);
    let tries = record.events.iter().filter(|event| event.event_type == TRY).take(EVENTS_MAX);
    let span = |(place, tried): (usize, &SpanEvent)| {
        let data = |name: &str| tried.data.get(name).map_or("", String::as_str);
        let step = (place as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let id = (u64::from_be_bytes(parent) ^ step).max(1);
        let end = nanos(tried.timestamp);
        let took = data("duration_ms").parse::<f64>().unwrap_or(0.0).max(0.0) * 1e6;
        let mut span = Message::with_capacity(256);
        span.bytes(1, record.trace_id.as_bytes());
        span.bytes(2, &id.to_be_bytes());
        span.bytes(4, &parent);
        span.bytes(5, format!("try {}", data("upstream")).as_bytes());
        span.uint(6, KIND_CLIENT);
        span.fixed64(7, end.saturating_sub(took as u64));
        span.fixed64(8, end);
        span.attribute(ATTRIBUTES, "weir.upstream", Value::Text(data("upstream")));
        span.attribute(ATTRIBUTES, "weir.outcome", Value::Text(data("outcome")));
        let status = data("outcome").parse::<u16>().ok();
        if let Some(status) = status {
            span.attribute(ATTRIBUTES, names::STATUS, int(status.into()));
        }
        if status.is_none_or(|status| status >= 400) {
            span.attribute(ATTRIBUTES, names::ERROR_TYPE, Value::Text(data("outcome")));
            let mut failed = Message::default();
            failed.uint(3, STATUS_ERROR);
            span.message(15, &failed);
        }
        span.fixed32(16, FLAGS);
        span
    };
    tries.enumerate().map(span).collect()
}

/// The 8 bytes of an id; the other half where these are all zero, which no id may be.
pub(super) fn short(id: SpanId) -> [u8; 8] {
    match id.to_w3c() {
        [0, 0, 0, 0, 0, 0, 0, 0] => id.uuid().as_u64_pair().0.max(1).to_be_bytes(),
        low => low,
    }
}

fn name<'a>(record: &'a SpanRecord, operation: Option<&'a str>) -> Cow<'a, str> {
    match (operation, &record.model) {
        (Some(operation), Some(model)) => Cow::Owned(format!("{operation} {model}")),
        (Some(operation), None) => Cow::Borrowed(operation),
        (None, _) => Cow::Borrowed(&record.operation_name),
    }
}

/// What the conventions name.
fn conventional(span: &mut Message, record: &SpanRecord, names: &Names, operation: Option<&str>) {
    let mut text = |name: &str, value: Option<&str>| {
        if let Some(value) = value {
            span.attribute(ATTRIBUTES, name, Value::Text(value));
        }
    };
    text(names::OPERATION, operation);
    text(names.provider, Some(names::provider(&record.provider)));
    text(names::REQUEST_MODEL, record.model.as_deref());
    text(names::RESPONSE_ID, record.attributes.get(RESPONSE_ID).and_then(Json::as_str));
    text(names::CONVERSATION, record.session_id.as_deref());
    text(names::SESSION, record.session_id.as_deref());
    text(names::AGENT, record.agent_id.as_deref());
    text(names::CLIENT, record.client.as_deref());
    text(names::ERROR_TYPE, error_type(record).as_deref());
    if let Some(reason) = &record.finish_reason {
        span.attribute(ATTRIBUTES, names::FINISH_REASONS, Value::Texts(&[reason]));
    }
    let counts = [
        (names::STATUS, record.status_code.map(u64::from)),
        (names::INPUT_TOKENS, record.prompt_tokens),
        (names::OUTPUT_TOKENS, record.completion_tokens),
        (names.cache_read, record.cached_tokens),
        (names.cache_write, cache_written(record)),
        (names.reasoning, record.reasoning_tokens),
    ];
    for (name, count) in counts {
        if let Some(count) = count {
            span.attribute(ATTRIBUTES, name, int(count));
        }
    }
    if record.streaming {
        span.attribute(ATTRIBUTES, names.stream, Value::Bool(true));
        if let Some(millis) = record.time_to_first_token_ms {
            span.attribute(ATTRIBUTES, names.first_chunk, Value::Double(millis / MILLIS_PER_SECOND));
        }
    }
}

/// What only the gateway knows.
fn ours(span: &mut Message, record: &SpanRecord) {
    span.attribute(ATTRIBUTES, "weir.tenant.id", Value::Text(&record.tenant_id.to_string()));
    span.attribute(ATTRIBUTES, "weir.span.id", Value::Text(&record.span_id.to_string()));
    span.attribute(ATTRIBUTES, "weir.operation", Value::Text(&record.operation_name));
    span.attribute(ATTRIBUTES, "weir.enforcement", Value::Text(&record.enforcement));
    if let Some(score) = record.security_score {
        span.attribute(ATTRIBUTES, "weir.security.score", int(score.into()));
    }
    if !record.security_findings.is_empty() {
        span.attribute(ATTRIBUTES, "weir.security.findings", int(record.security_findings.len() as u64));
    }
    if let Some(cost) = record.estimated_cost_usd {
        span.attribute(ATTRIBUTES, "weir.cost.usd", Value::Double(cost));
        let mut words = record.attributes.get(COST_BREAKDOWN).and_then(Json::as_str).unwrap_or_default().split(' ');
        for name in ["weir.cost.price_source", "weir.cost.tier"] {
            if let Some(word) = words.next().filter(|word| !word.is_empty()) {
                span.attribute(ATTRIBUTES, name, Value::Text(word));
            }
        }
    }
    if record.tokens_estimated {
        span.attribute(ATTRIBUTES, "weir.usage.estimated", Value::Bool(true));
    }
    if let Some(micros) = record.overhead_us {
        span.attribute(ATTRIBUTES, "weir.overhead", Value::Double(micros as f64 / 1e6));
    }
    if let Some(cache) = &record.prompt_cache {
        let word = |value: Option<Json>| value.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default();
        let (state, by_provider) =
            (serde_json::to_value(cache.state).ok(), serde_json::to_value(cache.provider_use).ok());
        span.attribute(ATTRIBUTES, "weir.prompt_cache.state", Value::Text(&word(state)));
        span.attribute(ATTRIBUTES, "weir.prompt_cache.provider_use", Value::Text(&word(by_provider)));
        span.attribute(ATTRIBUTES, "weir.prompt_cache.equal_tokens", int(cache.equal_tokens));
        span.attribute(ATTRIBUTES, "weir.prompt_cache.lost_tokens", int(cache.lost_tokens));
        if let Some(lost) = cache.lost_usd {
            span.attribute(ATTRIBUTES, "weir.prompt_cache.lost_usd", Value::Double(lost));
        }
    }
    // Whose address a call came from is for the record alone.
    for (tag, value) in record.tags.iter().filter(|(tag, _)| *tag != SOURCE) {
        span.attribute(ATTRIBUTES, &format!("weir.tag.{tag}"), Value::Text(value));
    }
}

/// What happened, and what was found.
fn events(span: &mut Message, record: &SpanRecord, names: &Names, (with_texts, without_tries): (bool, bool)) {
    let found = record.security_findings.iter().map(|finding| finding_event(finding, record, names, with_texts));
    let own = || record.events.iter().filter(move |event| !(without_tries && event.event_type == TRY));
    let happened = own().map(|event| own_event(event, with_texts));
    let reported = record.agent_actions.iter().map(|action| {
        let mut event = Message::event("weir.agent_action", nanos(action.timestamp));
        event.attribute(EVENT_ATTRIBUTES, names::TOOL_NAME, Value::Text(&action.name));
        event.attribute(EVENT_ATTRIBUTES, "weir.action.type", Value::Text(&action.action_type));
        event.attribute(EVENT_ATTRIBUTES, "weir.action.success", Value::Bool(action.success));
        for (name, text) in [(names::TOOL_ARGUMENTS, &action.arguments), (names::TOOL_RESULT, &action.result)] {
            if let Some(text) = text.as_deref().filter(|_| with_texts) {
                event.attribute(EVENT_ATTRIBUTES, name, Value::Text(content::head(text)));
            }
        }
        event
    });
    for event in found.chain(happened).chain(reported).take(EVENTS_MAX) {
        span.message(EVENTS, &event);
    }
    let all = record.security_findings.len() + own().count() + record.agent_actions.len();
    if let Some(beyond) = all.checked_sub(EVENTS_MAX).filter(|beyond| *beyond > 0) {
        span.uint(12, beyond as u64);
    }
}

fn own_event(said: &SpanEvent, with_texts: bool) -> Message {
    let mut event = Message::event(&format!("weir.{}", said.event_type), nanos(said.timestamp));
    let is_call = said.event_type == "tool_call";
    if is_call && let Some(tool) = said.description.split_once('`').and_then(|(_, rest)| rest.rsplit_once('`')) {
        event.attribute(EVENT_ATTRIBUTES, names::TOOL_NAME, Value::Text(tool.0));
    } else if !is_call {
        event.attribute(EVENT_ATTRIBUTES, "weir.description", Value::Text(&said.description));
    }
    for (name, value) in &said.data {
        match (is_call, name.as_str()) {
            (true, "arguments") if with_texts => {
                event.attribute(EVENT_ATTRIBUTES, names::TOOL_ARGUMENTS, Value::Text(content::head(value)));
            }
            (_, "arguments") => {}
            (true, "id") => event.attribute(EVENT_ATTRIBUTES, "gen_ai.tool.call.id", Value::Text(value)),
            (_, name) => event.attribute(EVENT_ATTRIBUTES, &format!("weir.{name}"), Value::Text(value)),
        }
    }
    event
}

fn finding_event(finding: &Finding, record: &SpanRecord, names: &Names, with_texts: bool) -> Message {
    // The draft for guardrails came after 1.36.
    let is_latest = names.schema_url.is_empty();
    let mut event = Message::event(if is_latest { names::FINDING } else { "weir.finding" }, nanos(finding.detected_at));
    let mut text = |name: &str, value: &str| event.attribute(EVENT_ATTRIBUTES, name, Value::Text(value));
    text("weir.finding.type", &finding.finding_type);
    text("weir.finding.severity", finding.severity.as_str());
    text("weir.finding.detector", &finding.detector);
    text("weir.finding.location", &finding.location);
    text("weir.finding.description", &finding.description);
    if with_texts && !finding.evidence.is_empty() {
        text("weir.finding.evidence", &finding.evidence);
    }
    let allowed = finding.finding_type == FINDING_ALLOWED;
    if is_latest {
        text(names::FINDING_CATEGORY, &finding.finding_type);
        text(names::FINDING_POLICY, &finding.detector);
        text(names::FINDING_COMPONENT, "weir");
        text(names::FINDING_ID, &finding.id.to_string());
        let is_answer = finding.location.starts_with("response");
        text(names::FINDING_TARGET, if is_answer { "output" } else { "input" });
        let part = finding.part.and_then(|part| record.parts.get(usize::try_from(part).ok()?));
        text(
            names::FINDING_SUBTARGET,
            match part.map(|part| part.kind) {
                Some(PartKind::Tool | PartKind::ToolCall) => "tool_call",
                Some(PartKind::ToolDefinition) => "tool_definition",
                _ => "llm",
            },
        );
        let blocked = record.enforcement == "blocked";
        text(
            names::FINDING_VERDICT,
            match (allowed, blocked) {
                (true, _) => "allow",
                (false, true) => "deny",
                (false, false) => "warn",
            },
        );
        text(names::FINDING_ACTION, if blocked { "block" } else { "audit" });
        if let Some(rule) = finding.metadata.get("rule") {
            text(names::FINDING_RULE, rule);
        }
    }
    let score = if is_latest { names::FINDING_SCORE } else { "weir.finding.confidence" };
    event.attribute(EVENT_ATTRIBUTES, score, Value::Double(finding.confidence));
    event
}

fn status(span: &mut Message, record: &SpanRecord, with_texts: bool) {
    if error_type(record).is_none() {
        return;
    }
    let mut status = Message::default();
    // A provider may repeat what it was sent.
    if let Some(message) = record.error_message.as_deref().filter(|_| with_texts) {
        status.bytes(2, content::head(message).as_bytes());
    }
    status.uint(3, STATUS_ERROR);
    span.message(15, &status);
}

pub(super) fn error_type(record: &SpanRecord) -> Option<Cow<'_, str>> {
    let own = record.error_type.as_deref().map(Cow::Borrowed);
    own.or_else(|| record.status_code.filter(|status| *status >= 400).map(|status| Cow::Owned(status.to_string())))
}

/// Tokens that were written to the provider's cache, as the cost says.
fn cache_written(record: &SpanRecord) -> Option<u64> {
    let breakdown = record.attributes.get(COST_BREAKDOWN)?.as_str()?;
    let written = breakdown.split(' ').filter_map(|line| {
        let mut cells = line.split(':');
        let is_written = matches!(cells.next(), Some("w" | "wl"));
        cells.next().filter(|_| is_written)?.parse::<u64>().ok()
    });
    written.reduce(u64::saturating_add)
}

fn int(count: u64) -> Value<'static> {
    Value::Int(i64::try_from(count).unwrap_or(i64::MAX))
}
