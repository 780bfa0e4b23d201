//! The messages dialect: `/v1/messages`, its model list and its errors.

use super::ask::Ask;
use super::chat::halves;
use super::reply::{Finish, Reply};
use super::steer::Steering;
use super::{MODELS, quoted};

/// The whole answer.
pub(super) fn whole(ask: &Ask, reply: &Reply, steering: &Steering) -> String {
    let mut blocks = Vec::new();
    if !reply.text.is_empty() || reply.tool.is_none() {
        blocks.push(format!(r#"{{"type":"text","text":{}}}"#, quoted(&reply.text)));
    }
    if let Some(tool) = &reply.tool {
        blocks.push(tool_block(reply, &tool.name, &tool.arguments));
    }
    let stop_reason = format!("\"{}\"", stop_reason(reply.finish));
    message(ask, reply, steering, &blocks.join(","), &stop_reason, reply.completion_tokens)
}

/// The events of a stream.
pub(super) fn frames(ask: &Ask, reply: &Reply, steering: &Steering, stamp: &str) -> Vec<String> {
    let mut events = Vec::new();
    let mut push = |name: &str, members: String| {
        let comma = if members.is_empty() { "" } else { "," };
        events.push(format!("event: {name}\ndata: {{{stamp}\"type\":\"{name}\"{comma}{members}}}\n\n"));
    };
    push("message_start", format!(r#""message":{}"#, message(ask, reply, steering, "", "null", 1)));
    let mut index = 0;
    if !reply.text.is_empty() || reply.tool.is_none() {
        push("content_block_start", format!(r#""index":{index},"content_block":{{"type":"text","text":""}}"#));
        push("ping", String::new());
        for text in reply.frames() {
            let delta = format!(r#"{{"type":"text_delta","text":{}}}"#, quoted(&text));
            push("content_block_delta", format!(r#""index":{index},"delta":{delta}"#));
        }
        push("content_block_stop", format!(r#""index":{index}"#));
        index += 1;
    }
    if let Some(tool) = &reply.tool {
        let block = tool_block(reply, &tool.name, "{}");
        push("content_block_start", format!(r#""index":{index},"content_block":{block}"#));
        let (head, tail) = halves(&tool.arguments);
        for part in [head, tail] {
            let delta = format!(r#"{{"type":"input_json_delta","partial_json":{}}}"#, quoted(part));
            push("content_block_delta", format!(r#""index":{index},"delta":{delta}"#));
        }
        push("content_block_stop", format!(r#""index":{index}"#));
    }
    let usage = match steering.no_usage {
        true => String::new(),
        false => format!(r#","usage":{{"output_tokens":{}}}"#, reply.completion_tokens),
    };
    let stop_reason = stop_reason(reply.finish);
    push("message_delta", format!(r#""delta":{{"stop_reason":"{stop_reason}","stop_sequence":null}}{usage}"#));
    push("message_stop", String::new());
    events
}

fn message(ask: &Ask, reply: &Reply, steering: &Steering, content: &str, stop_reason: &str, output: usize) -> String {
    let usage = match steering.no_usage {
        true => String::new(),
        false => format!(
            r#","usage":{{"input_tokens":{},"cache_creation_input_tokens":{},"cache_read_input_tokens":{},"output_tokens":{output},"service_tier":"standard"}}"#,
            reply.prompt_tokens,
            steering.cache_write.unwrap_or(0),
            steering.cached.unwrap_or(0),
        ),
    };
    format!(
        r#"{{"id":"msg_{}","type":"message","role":"assistant","model":{},"content":[{content}],"stop_reason":{stop_reason},"stop_sequence":null{usage}}}"#,
        reply.key,
        quoted(&ask.model)
    )
}

fn tool_block(reply: &Reply, name: &str, input: &str) -> String {
    format!(r#"{{"type":"tool_use","id":"toolu_{}","name":{},"input":{input}}}"#, reply.key, quoted(name))
}

fn stop_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "end_turn",
        Finish::Length => "max_tokens",
        Finish::ToolCall => "tool_use",
    }
}

/// The list of models.
pub(super) fn models() -> String {
    let models: Vec<String> = MODELS.iter().map(|name| model(name)).collect();
    let (first, last) = (quoted(MODELS[0]), quoted(MODELS[MODELS.len() - 1]));
    format!(r#"{{"data":[{}],"has_more":false,"first_id":{first},"last_id":{last}}}"#, models.join(","))
}

/// One model.
pub(super) fn model(name: &str) -> String {
    let name = quoted(name);
    format!(r#"{{"type":"model","id":{name},"display_name":{name},"created_at":"2023-11-14T22:13:20Z"}}"#)
}

/// An error body.
pub(super) fn error(status: u16, message: &str) -> String {
    let kind = match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    };
    let key = super::reply::fnv1a(&[message.as_bytes()]);
    format!(
        r#"{{"type":"error","error":{{"type":"{kind}","message":{}}},"request_id":"req_{key:016x}"}}"#,
        quoted(message)
    )
}
