//! The chat-completions dialect: `/v1/chat/completions`, `/v1/completions`, `/v1/models`, and its errors.
//!
//! Bodies are written member by member in the provider's own order, which a parsed and re-printed value would lose.

use super::ask::Ask;
use super::reply::{Finish, Reply};
use super::steer::Steering;
use super::{CREATED, Endpoint, MODELS, quoted};

/// The whole answer of `/v1/chat/completions`.
pub(super) fn whole(ask: &Ask, reply: &Reply, steering: &Steering) -> String {
    let content = if reply.tool.is_some() && reply.text.is_empty() { "null".to_owned() } else { quoted(&reply.text) };
    let tool_calls = reply.tool.as_ref().map_or(String::new(), |tool| {
        format!(
            r#","tool_calls":[{{"id":"call_{}","type":"function","function":{{"name":{},"arguments":{}}}}}]"#,
            reply.key,
            quoted(&tool.name),
            quoted(&tool.arguments)
        )
    });
    let usage = if steering.no_usage { String::new() } else { format!(",\"usage\":{}", usage(reply, steering)) };
    format!(
        r#"{{"id":"chatcmpl-{}","object":"chat.completion","created":{CREATED},"model":{},"choices":[{{"index":0,"message":{{"role":"assistant","content":{content}{tool_calls},"refusal":null}},"logprobs":null,"finish_reason":"{}"}}]{usage},"service_tier":"default","system_fingerprint":"fp_fake"}}"#,
        reply.key,
        quoted(&ask.model),
        finish_reason(reply.finish),
    )
}

/// The whole answer of `/v1/completions`.
pub(super) fn whole_completion(ask: &Ask, reply: &Reply, steering: &Steering) -> String {
    let usage = if steering.no_usage { String::new() } else { format!(",\"usage\":{}", usage(reply, steering)) };
    format!(
        r#"{{"id":"cmpl-{}","object":"text_completion","created":{CREATED},"model":{},"choices":[{{"text":{},"index":0,"logprobs":null,"finish_reason":"{}"}}]{usage}}}"#,
        reply.key,
        quoted(&ask.model),
        quoted(&reply.text),
        finish_reason(reply.finish),
    )
}

/// The events of either endpoint's stream, `[DONE]` included.
pub(super) fn frames(endpoint: Endpoint, ask: &Ask, reply: &Reply, steering: &Steering, stamp: &str) -> Vec<String> {
    let (id, object) = match endpoint {
        Endpoint::Completion => ("cmpl", "text_completion"),
        _ => ("chatcmpl", "chat.completion.chunk"),
    };
    let with_usage = ask.include_usage && !steering.no_usage;
    let open_usage = if with_usage { ",\"usage\":null" } else { "" };
    let model = quoted(&ask.model);
    let event = |choices: &str, usage: &str| {
        format!(
            "data: {{{stamp}\"id\":\"{id}-{}\",\"object\":\"{object}\",\"created\":{CREATED},\"model\":{model},\"service_tier\":\"default\",\"system_fingerprint\":\"fp_fake\",\"choices\":[{choices}]{usage}}}\n\n",
            reply.key
        )
    };
    let finish = finish_reason(reply.finish);
    let mut events = Vec::new();
    if endpoint == Endpoint::Completion {
        let choice = |text: &str, finish: &str| {
            format!(r#"{{"text":{},"index":0,"logprobs":null,"finish_reason":{finish}}}"#, quoted(text))
        };
        events.extend(reply.frames().iter().map(|text| event(&choice(text, "null"), open_usage)));
        events.push(event(&choice("", &quoted(finish)), open_usage));
    } else {
        let choice = |delta: &str, finish: &str| {
            format!(r#"{{"index":0,"delta":{{{delta}}},"logprobs":null,"finish_reason":{finish}}}"#)
        };
        let opening = if reply.tool.is_some() { "null" } else { "\"\"" };
        let role = format!(r#""role":"assistant","content":{opening},"refusal":null"#);
        events.push(event(&choice(&role, "null"), open_usage));
        let deltas = reply.frames().into_iter().map(|text| format!("\"content\":{}", quoted(&text)));
        events.extend(deltas.chain(tool_deltas(reply)).map(|delta| event(&choice(&delta, "null"), open_usage)));
        events.push(event(&choice("", &quoted(finish)), open_usage));
    }
    if with_usage {
        events.push(event("", &format!(",\"usage\":{}", usage(reply, steering))));
    }
    events.push("data: [DONE]\n\n".to_owned());
    events
}

/// The call announced, then its arguments in two halves.
fn tool_deltas(reply: &Reply) -> Vec<String> {
    let Some(tool) = &reply.tool else { return Vec::new() };
    let announced = format!(
        r#""tool_calls":[{{"index":0,"id":"call_{}","type":"function","function":{{"name":{},"arguments":""}}}}]"#,
        reply.key,
        quoted(&tool.name)
    );
    let arguments = |part: &str| format!(r#""tool_calls":[{{"index":0,"function":{{"arguments":{}}}}}]"#, quoted(part));
    let (head, tail) = halves(&tool.arguments);
    vec![announced, arguments(head), arguments(tail)]
}

/// A text cut near its middle.
pub(super) fn halves(text: &str) -> (&str, &str) {
    let middle = (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.split_at(middle)
}

fn usage(reply: &Reply, steering: &Steering) -> String {
    format!(
        r#"{{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},"prompt_tokens_details":{{"cached_tokens":{},"audio_tokens":0}},"completion_tokens_details":{{"reasoning_tokens":{},"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}}"#,
        reply.prompt_tokens,
        reply.completion_tokens,
        reply.prompt_tokens + reply.completion_tokens,
        steering.cached.unwrap_or(0),
        steering.reasoning.unwrap_or(0),
    )
}

fn finish_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
        Finish::ToolCall => "tool_calls",
    }
}

/// The list of models.
pub(super) fn models() -> String {
    let models: Vec<String> = MODELS.iter().map(|name| model(name)).collect();
    format!(r#"{{"object":"list","data":[{}]}}"#, models.join(","))
}

/// One model.
pub(super) fn model(name: &str) -> String {
    format!(r#"{{"id":{},"object":"model","created":{CREATED},"owned_by":"fake"}}"#, quoted(name))
}

/// An error body.
pub(super) fn error(status: u16, message: &str) -> String {
    let (kind, code) = match status {
        401 => ("invalid_request_error", "\"invalid_api_key\""),
        404 => ("invalid_request_error", "\"not_found\""),
        429 => ("requests", "\"rate_limit_exceeded\""),
        500.. => ("server_error", "null"),
        _ => ("invalid_request_error", "null"),
    };
    format!(r#"{{"error":{{"message":{},"type":"{kind}","param":null,"code":{code}}}}}"#, quoted(message))
}
