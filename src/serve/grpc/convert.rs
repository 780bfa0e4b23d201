//! A span of the native format as the value that `ingest` takes. What does not fit is refused with the field's name, the value and
//! what is accepted.

use std::collections::BTreeMap;

use serde_json::{Number, Value as Json};
use weir_config::vocab::{SpanId, Timestamp, TraceId, fresh_uuid};
use weir_proto::v1::{AgentAction, Event, Message, Part, Span, Usage, Value, part, value};
use weir_storage::record;

use crate::ingest::{LeftOut, ReportedMessage, ReportedPart, ReportedSpan, ReportedUsage};

/// Characters of a text that an error repeats.
const SHOWN_MAX: usize = 64;
/// Bytes the name of an action may have: it is part of an index.
const NAME_BYTES_MAX: usize = 4_096;
/// Bytes the arguments of an action may have, and its metadata together.
const DETAIL_BYTES_MAX: usize = 65_536;
/// Bytes of an action's result that are kept.
const RESULT_BYTES_MAX: usize = 4_096;
/// Bytes the short fields of an action may have.
const WORD_BYTES_MAX: usize = 64;
/// What an action may be.
const ACTION_TYPES: [&str; 5] = ["tool_call", "skill_invocation", "command_execution", "web_access", "file_access"];

/// The value of `span`, or why there is none.
pub(super) fn span(span: Span) -> Result<ReportedSpan, String> {
    let start_time = time("start_time_unix_nano", span.start_time_unix_nano)?;
    let end_time = time("end_time_unix_nano", span.end_time_unix_nano)?;
    if end_time < start_time {
        return Err("end_time_unix_nano: it lies before start_time_unix_nano; accepted: not before it".to_owned());
    }
    let parent = Some(span.parent_span_id).filter(|id| !id.is_empty());
    Ok(ReportedSpan {
        trace_id: trace_id(&span.trace_id)?,
        span_id: span_id("span_id", &span.span_id)?,
        tenant_id: None,
        parent_span_id: parent.map(|id| span_id("parent_span_id", &id)).transpose()?,
        agent_id: said(span.agent_id),
        session_id: said(span.session_id),
        client: said(span.client),
        user_id: said(span.user_id),
        operation_name: said(span.operation_name),
        start_time,
        end_time,
        provider: said(span.provider),
        model: said(span.model),
        streaming: span.streaming,
        input: span.input.into_iter().map(message).collect(),
        output: span.output.into_iter().map(message).collect(),
        usage: span.usage.map(usage).unwrap_or_default(),
        time_to_first_token_ms: span
            .time_to_first_token_ms
            .map(|ms| span_of("time_to_first_token_ms", ms))
            .transpose()?,
        status_code: span.status_code.map(|status| http_status("status_code", status)).transpose()?,
        error_type: said(span.error_type),
        error_message: said(span.error_message),
        finish_reason: said(span.finish_reason),
        attributes: span.attributes.into_iter().map(|(name, value)| (name, json(value))).collect(),
        shared: Default::default(),
        elsewhere: Vec::new(),
        left_out: LeftOut::default(),
        events: span.events.into_iter().map(|it| event(it, start_time)).collect::<Result<_, _>>()?,
        agent_actions: span.actions.into_iter().map(|it| action(it, end_time)).collect::<Result<_, _>>()?,
    })
}

/// An empty text of proto3 is one that was not said.
fn said(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

fn trace_id(bytes: &[u8]) -> Result<TraceId, String> {
    let whole = <[u8; 16]>::try_from(bytes).ok().filter(|id| *id != [0; 16]);
    whole.map(TraceId::from_bytes).ok_or_else(|| bad_id("trace_id", bytes, "16 bytes"))
}

fn span_id(field: &str, bytes: &[u8]) -> Result<SpanId, String> {
    let id = match bytes.len() {
        8 => <[u8; 8]>::try_from(bytes).ok().map(SpanId::from_w3c),
        _ => <[u8; 16]>::try_from(bytes).ok().map(SpanId::from_bytes),
    };
    id.filter(|id| !id.uuid().is_nil()).ok_or_else(|| bad_id(field, bytes, "8 or 16 bytes"))
}

fn bad_id(field: &str, bytes: &[u8], accepted: &str) -> String {
    let shown: String = bytes.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("{field}: got {} bytes `{shown}`; accepted: {accepted}, not all zero", bytes.len())
}

fn time(field: &str, nanos: u64) -> Result<Timestamp, String> {
    match i64::try_from(nanos / 1_000) {
        Ok(micros) if nanos > 0 => Ok(Timestamp::from_micros(micros)),
        _ => Err(format!("{field}: got {nanos}; accepted: nanoseconds since 1970-01-01T00:00:00Z, more than 0")),
    }
}

/// Milliseconds.
fn span_of(field: &str, ms: f64) -> Result<f64, String> {
    if ms.is_finite() && ms >= 0.0 {
        return Ok(ms);
    }
    Err(format!("{field}: got {ms}; accepted: a number of at least 0"))
}

fn http_status(field: &str, status: u32) -> Result<u16, String> {
    let fits = u16::try_from(status).ok().filter(|status| (100..=599).contains(status));
    fits.ok_or_else(|| format!("{field}: got {status}; accepted: 100 to 599"))
}

fn usage(usage: Usage) -> ReportedUsage {
    ReportedUsage {
        prompt: usage.prompt_tokens,
        completion: usage.completion_tokens,
        total: usage.total_tokens,
        cached: usage.cached_tokens,
        cache_write: usage.cache_write_tokens,
        reasoning: usage.reasoning_tokens,
    }
}

fn message(message: Message) -> ReportedMessage {
    ReportedMessage { role: message.role, parts: message.parts.into_iter().filter_map(part_of).collect() }
}

fn part_of(part: Part) -> Option<ReportedPart> {
    Some(match part.content? {
        part::Content::Text(text) => ReportedPart::Text(text),
        part::Content::Reasoning(text) => ReportedPart::Reasoning(text),
        part::Content::Refusal(text) => ReportedPart::Refusal(text),
        part::Content::ToolCall(call) => {
            ReportedPart::ToolCall { id: said(call.id), name: call.name, arguments: call.arguments }
        }
        part::Content::ToolResult(result) => {
            ReportedPart::ToolResult { id: said(result.id), name: said(result.name), content: result.content }
        }
        part::Content::ToolDefinition(tool) => ReportedPart::ToolDefinition { name: tool.name, text: tool.definition },
    })
}

/// The value as JSON; a number that JSON does not have is null. Decoding has bounded how deep it goes.
fn json(value: Value) -> Json {
    match value.kind {
        None => Json::Null,
        Some(value::Kind::StringValue(text)) => Json::String(text),
        Some(value::Kind::BoolValue(truth)) => Json::Bool(truth),
        Some(value::Kind::IntValue(number)) => Json::Number(number.into()),
        Some(value::Kind::DoubleValue(number)) => Number::from_f64(number).map_or(Json::Null, Json::Number),
        Some(value::Kind::ListValue(list)) => Json::Array(list.values.into_iter().map(json).collect()),
        Some(value::Kind::MapValue(map)) => {
            Json::Object(map.values.into_iter().map(|(name, value)| (name, json(value))).collect())
        }
    }
}

fn event(event: Event, start: Timestamp) -> Result<record::SpanEvent, String> {
    let timestamp = match event.time_unix_nano {
        0 => start,
        nanos => time("events.time_unix_nano", nanos)?,
    };
    Ok(record::SpanEvent {
        timestamp,
        event_type: event.event_type.into(),
        description: event.description,
        data: event.data,
    })
}

fn action(action: AgentAction, end: Timestamp) -> Result<record::AgentAction, String> {
    if !ACTION_TYPES.contains(&action.action_type.as_str()) {
        let (got, accepted) = (shown(&action.action_type), ACTION_TYPES.join(", "));
        return Err(format!("actions.action_type: got `{got}`; accepted: {accepted}"));
    }
    if action.name.trim().is_empty() {
        return Err(format!("actions.name: it is blank; accepted: 1 to {NAME_BYTES_MAX} bytes"));
    }
    let metadata: usize = action.metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    for (field, bytes, max) in [
        ("name", action.name.len(), NAME_BYTES_MAX),
        ("arguments", action.arguments.len(), DETAIL_BYTES_MAX),
        ("http_method", action.http_method.len(), WORD_BYTES_MAX),
        ("file_operation", action.file_operation.len(), WORD_BYTES_MAX),
        ("metadata", metadata, DETAIL_BYTES_MAX),
    ] {
        if bytes > max {
            return Err(format!("actions.{field}: got {bytes} bytes; accepted: at most {max}"));
        }
    }
    let timestamp = match action.time_unix_nano {
        0 => end,
        nanos => time("actions.time_unix_nano", nanos)?,
    };
    Ok(record::AgentAction {
        id: fresh_uuid(timestamp),
        action_type: action.action_type,
        name: action.name,
        arguments: said(action.arguments),
        result: said(action.result).map(cut),
        duration_ms: action.duration_ms.map(|ms| span_of("actions.duration_ms", ms)).transpose()?,
        success: action.success.unwrap_or(true),
        exit_code: action.exit_code,
        http_method: said(action.http_method),
        http_status: action.http_status.map(|status| http_status("actions.http_status", status)).transpose()?,
        file_operation: said(action.file_operation),
        metadata: BTreeMap::from_iter(action.metadata),
        timestamp,
    })
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(RESULT_BYTES_MAX));
    text
}

/// As much of a text as an error repeats.
fn shown(text: &str) -> String {
    text.chars().take(SHOWN_MAX).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn valid() -> Span {
        Span {
            trace_id: vec![1; 16],
            span_id: vec![2; 8],
            start_time_unix_nano: 1_700_000_000_000_000_000,
            end_time_unix_nano: 1_700_000_001_000_000_000,
            ..Span::default()
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_by_the_name_of_its_field() {
        assert!(span(valid()).is_ok());
        let action = AgentAction { action_type: "tool_call".into(), name: "sh".into(), ..AgentAction::default() };
        assert!(span(Span { actions: vec![action.clone()], ..valid() }).is_ok());
        for (bad, said) in [
            (Span { trace_id: vec![1; 15], ..valid() }, "trace_id: got 15 bytes"),
            (Span { trace_id: vec![0; 16], ..valid() }, "not all zero"),
            (Span { span_id: Vec::new(), ..valid() }, "span_id: got 0 bytes"),
            (Span { parent_span_id: vec![0; 8], ..valid() }, "parent_span_id: got 8 bytes"),
            (Span { start_time_unix_nano: 0, ..valid() }, "start_time_unix_nano: got 0"),
            (Span { end_time_unix_nano: 1, ..valid() }, "before start_time_unix_nano"),
            (Span { status_code: Some(99), ..valid() }, "status_code: got 99; accepted: 100 to 599"),
            (Span { time_to_first_token_ms: Some(f64::NAN), ..valid() }, "time_to_first_token_ms: got NaN"),
            (
                Span { actions: vec![AgentAction { action_type: "dance".into(), ..action.clone() }], ..valid() },
                "actions.action_type: got `dance`; accepted: tool_call",
            ),
            (Span { actions: vec![AgentAction { name: " ".into(), ..action.clone() }], ..valid() }, "actions.name"),
            (
                Span { actions: vec![AgentAction { http_method: "x".repeat(65), ..action }], ..valid() },
                "actions.http_method: got 65 bytes; accepted: at most 64",
            ),
        ] {
            let reason = span(bad).unwrap_err();
            assert!(reason.contains(said), "{reason} / {said}");
        }
    }

    #[test]
    fn messages_keep_their_order_and_tools_their_calls() {
        let part = |content| Part { content: Some(content) };
        let call = weir_proto::v1::ToolCall { id: "c1".into(), name: "sh".into(), arguments: "{}".into() };
        let parts = vec![
            part(part::Content::Text("a".into())),
            Part { content: None },
            part(part::Content::Reasoning("b".into())),
            part(part::Content::ToolCall(call)),
        ];
        let taken = span(Span { input: vec![Message { role: "assistant".into(), parts }], ..valid() }).unwrap();
        let call = ReportedPart::ToolCall { id: Some("c1".into()), name: "sh".into(), arguments: "{}".into() };
        let expected = vec![ReportedPart::Text("a".into()), ReportedPart::Reasoning("b".into()), call];
        assert_eq!(taken.input, [ReportedMessage { role: "assistant".into(), parts: expected }]);
        assert!(taken.output.is_empty());
    }

    #[test]
    fn attributes_become_json_and_a_number_json_does_not_have_null() {
        let of = |kind| Value { kind: Some(kind) };
        let list = weir_proto::v1::ListValue { values: vec![of(value::Kind::IntValue(7)), Value { kind: None }] };
        let map = weir_proto::v1::MapValue { values: [("l".to_owned(), of(value::Kind::ListValue(list)))].into() };
        assert_eq!(json(of(value::Kind::MapValue(map))), serde_json::json!({"l": [7, null]}));
        assert_eq!(json(of(value::Kind::DoubleValue(f64::NAN))), Json::Null);
    }
}
