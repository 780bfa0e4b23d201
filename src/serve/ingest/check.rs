//! What a reported span must be to be taken, and what of it is cut to what a record has room for.

use std::borrow::Cow;

use weir_config::vocab::{Provider, TenantId, Timestamp};

use super::span::{ReportedMessage, ReportedPart, ReportedSpan};

/// Bytes of text one span may bring.
const TEXT_BYTES_MAX: usize = 16 * 1024 * 1024;
/// How far ahead of ours a sender's clock may be, in microseconds.
const AHEAD_US_MAX: i64 = 24 * 60 * 60 * 1_000_000;
/// The beginning of the year 2000: no application reports an earlier call, and a clock that was never set does.
const EARLIEST_US: i64 = 946_684_800_000_000;
/// Bytes of a name (agent, session, model, ...) that are kept.
const NAME_BYTES_MAX: usize = 256;
/// Bytes of an error message that are kept.
const MESSAGE_BYTES_MAX: usize = 4096;
/// Counters above this say nothing.
const TOKENS_MAX: u64 = 1 << 40;

/// Why the span is not taken, with the field's name, what it said and what is accepted.
pub(super) fn refuse(span: &ReportedSpan, tenant: TenantId, now: Timestamp) -> Result<(), String> {
    if let Some(claimed) = span.tenant_id.filter(|claimed| *claimed != tenant) {
        return Err(format!(
            "`tenant_id` {claimed} is not the tenant of the credential it was sent with; leave it out"
        ));
    }
    if span.trace_id.uuid().is_nil() || span.span_id.uuid().is_nil() {
        return Err("`trace_id` and `span_id` must not be all zero".to_owned());
    }
    check_times(span, now)?;
    let text: usize = span.input.iter().chain(&span.output).flat_map(|message| &message.parts).map(bytes).sum();
    if text > TEXT_BYTES_MAX {
        return Err(format!("its messages have {text} bytes of text; at most {TEXT_BYTES_MAX} are taken"));
    }
    Ok(())
}

fn check_times(span: &ReportedSpan, now: Timestamp) -> Result<(), String> {
    let (start, end) = (span.start_time.micros(), span.end_time.micros());
    if start < EARLIEST_US {
        return Err("`start_time` is before the year 2000; set the clock or the field".to_owned());
    }
    if end < start {
        return Err("`end_time` is before `start_time`".to_owned());
    }
    if end > now.micros().saturating_add(AHEAD_US_MAX) {
        return Err("`end_time` is more than a day ahead of the gateway's clock".to_owned());
    }
    Ok(())
}

fn bytes(part: &ReportedPart) -> usize {
    match part {
        ReportedPart::Text(text) | ReportedPart::Reasoning(text) | ReportedPart::Refusal(text) => text.len(),
        ReportedPart::ToolCall { name, arguments: text, .. } | ReportedPart::ToolDefinition { name, text } => {
            name.len() + text.len()
        }
        ReportedPart::ToolResult { content, .. } => content.len(),
    }
}

/// Cuts names and counters to what a record holds.
pub(super) fn trim(span: &mut ReportedSpan) {
    for name in [
        &mut span.agent_id,
        &mut span.session_id,
        &mut span.client,
        &mut span.user_id,
        &mut span.model,
        &mut span.error_type,
        &mut span.finish_reason,
    ] {
        *name = name.take().and_then(|name| short(name, NAME_BYTES_MAX));
    }
    span.error_message = span.error_message.take().and_then(|message| short(message, MESSAGE_BYTES_MAX));
    for message in span.input.iter_mut().chain(&mut span.output) {
        trim_role(message);
    }
    let usage = &mut span.usage;
    for count in [
        &mut usage.prompt,
        &mut usage.completion,
        &mut usage.total,
        &mut usage.cached,
        &mut usage.cache_write,
        &mut usage.reasoning,
    ] {
        *count = count.filter(|count| *count <= TOKENS_MAX);
    }
    span.status_code = span.status_code.filter(|status| (100..=599).contains(status));
    span.time_to_first_token_ms = span.time_to_first_token_ms.filter(|ms| ms.is_finite() && *ms >= 0.0);
}

fn trim_role(message: &mut ReportedMessage) {
    message.role = short(std::mem::take(&mut message.role), 64).unwrap_or_else(|| "user".to_owned());
}

fn short(mut text: String, max: usize) -> Option<String> {
    text.truncate(text.floor_char_boundary(max));
    Some(text).filter(|text| !text.is_empty())
}

/// The operations that reported spans are kept under.
const OPERATIONS: [(&str, &str); 26] = [
    ("chat", "chat_completion"),
    ("chat_completion", "chat_completion"),
    ("messages", "messages"),
    ("responses", "responses"),
    ("generate_content", "generate_content"),
    ("interaction", "interaction"),
    ("converse", "converse"),
    ("realtime", "realtime"),
    ("generate", "generate"),
    ("text_completion", "completion"),
    ("completion", "completion"),
    ("embeddings", "embedding"),
    ("embedding", "embedding"),
    ("execute_tool", "execute_tool"),
    ("tool", "execute_tool"),
    ("invoke_agent", "invoke_agent"),
    ("create_agent", "create_agent"),
    ("agent", "invoke_agent"),
    ("invoke_workflow", "workflow"),
    ("workflow", "workflow"),
    ("chain", "workflow"),
    ("task", "workflow"),
    ("retrieval", "retrieval"),
    ("retriever", "retrieval"),
    ("reranker", "rerank"),
    ("guardrail", "guardrail"),
];
/// What a span without a name is kept under.
const UNNAMED: &str = "span";
/// Those that stand for calls of a model.
const CALLS: [&str; 10] = [
    "chat_completion",
    "responses",
    "messages",
    "generate_content",
    "interaction",
    "converse",
    "realtime",
    "generate",
    "completion",
    "embedding",
];

/// The operation a span is kept under, and whether it stands for a call of a model.
pub(super) fn operation(span: &ReportedSpan) -> (&'static str, bool) {
    let said = span.operation_name.as_deref().unwrap_or_default().to_ascii_lowercase();
    match OPERATIONS.iter().find(|(name, _)| *name == said) {
        Some((_, known)) => (known, CALLS.contains(known)),
        // Who names a model and what it used has called it.
        None if span.model.is_some() && !span.usage.is_empty() => ("chat_completion", true),
        None => (UNNAMED, false),
    }
}

/// Longest name of a span that is no known operation.
const SPAN_NAME_BYTES_MAX: usize = 128;

/// The name a record has: that of its operation, or what its sender calls it. How many names a tenant may have is the store's matter.
pub(super) fn operation_name(span: &ReportedSpan) -> Cow<'static, str> {
    let (known, _) = operation(span);
    if known != UNNAMED {
        return Cow::Borrowed(known);
    }
    let of_span = || span.attributes.iter().find(|(name, _)| name == "span.name").and_then(|(_, value)| value.as_str());
    let said = span.operation_name.as_deref().or_else(of_span).map(str::trim).unwrap_or_default();
    short(said.to_owned(), SPAN_NAME_BYTES_MAX).map_or(Cow::Borrowed(known), Cow::Owned)
}

/// Who makes a model, where its name says so: Langfuse names the model of a call and nobody who answered it. A name with a part for
/// whoever serves it (`azure/gpt-4o`, `claude-haiku-4-5@20251001`) is not the maker's own, and one that anybody may serve
/// (`gpt-oss-120b`) says nothing.
fn maker(model: &str) -> &'static str {
    const MAKERS: [(&str, &str); 10] = [
        ("gpt-3.5", "openai"),
        ("gpt-4", "openai"),
        ("gpt-5", "openai"),
        ("chatgpt-", "openai"),
        ("text-embedding-3-", "openai"),
        ("o1-", "openai"),
        ("o3-", "openai"),
        ("o4-", "openai"),
        ("claude-", "anthropic"),
        ("gemini-", "gemini"),
    ];
    if model.contains(['/', ':', '@']) {
        return "";
    }
    // `o1` is a name, too.
    let model = format!("{}-", model.to_ascii_lowercase());
    MAKERS.iter().find(|(start, _)| model.starts_with(start)).map_or("", |(_, maker)| maker)
}

/// Who answered, by the identifiers proxied calls have.
pub(super) fn provider(span: &ReportedSpan) -> Cow<'static, str> {
    const SPELLINGS: [(&str, &str); 12] = [
        ("az.ai.openai", "azure_openai"),
        ("azure.ai.openai", "azure_openai"),
        ("azure.ai.inference", "azure_openai"),
        ("azure", "azure_openai"),
        ("aws.bedrock", "bedrock"),
        ("aws_bedrock", "bedrock"),
        ("gcp.gemini", "gemini"),
        ("gcp.gen_ai", "gemini"),
        ("gcp.vertex_ai", "gemini"),
        ("google", "gemini"),
        ("vertexai", "gemini"),
        ("openai.responses", "openai"),
    ];
    let said = span.provider.as_deref().unwrap_or_default().to_ascii_lowercase();
    let said = if said.is_empty() { maker(span.model.as_deref().unwrap_or_default()) } else { said.as_str() };
    let spelled = SPELLINGS.iter().find(|(name, _)| *name == said).map_or(said, |(_, known)| known);
    let named = Provider::named(spelled);
    let known = named.label();
    if known == named.as_str() { Cow::Borrowed(known) } else { Cow::Owned(named.to_string()) }
}

#[cfg(test)]
mod tests {
    use weir_config::vocab::{SpanId, TraceId};

    use super::*;

    #[test]
    fn a_span_that_names_nobody_who_answered_is_the_makers_where_its_model_says_so() {
        for (said, model, is) in [
            (None, "gpt-4o", "openai"),
            (None, "GPT-4.1-mini", "openai"),
            (None, "o1", "openai"),
            (None, "o3-mini", "openai"),
            (None, "text-embedding-3-large", "openai"),
            (None, "claude-sonnet-4-5", "anthropic"),
            (None, "gemini-2.5-flash", "gemini"),
            (Some("azure"), "gpt-4o", "azure_openai"),
            (Some("groq"), "gpt-4o", "groq"),
            (None, "azure/gpt-4o", "custom"),
            (None, "claude-haiku-4-5@20251001", "custom"),
            (None, "gpt-oss-120b", "custom"),
            (None, "o1x", "custom"),
            (None, "llama3:8b", "custom"),
            (None, "", "custom"),
        ] {
            let moment = Timestamp::now();
            let mut span = ReportedSpan::new(TraceId::from_bytes([1; 16]), SpanId::from_bytes([2; 16]), moment, moment);
            span.provider = said.map(str::to_owned);
            span.model = Some(model.to_owned());
            assert_eq!(provider(&span), is, "{said:?} {model}");
        }
    }
}
