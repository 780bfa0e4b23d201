//! `/v1/responses`, as far as a text answer or one function call needs it.

use super::ask::Ask;
use super::chat::halves;
use super::reply::{Finish, Reply};
use super::steer::Steering;
use super::{CREATED, quoted};

/// The whole answer.
pub(super) fn whole(ask: &Ask, reply: &Reply, steering: &Steering) -> String {
    response(ask, reply, steering, Some(&item(reply, "completed", true)))
}

/// The events of a stream.
pub(super) fn frames(ask: &Ask, reply: &Reply, steering: &Steering, stamp: &str) -> Vec<String> {
    let mut events = Vec::new();
    let mut push = |name: &str, members: String| {
        let number = events.len();
        let data = format!(r#"{{{stamp}"type":"{name}","sequence_number":{number},{members}}}"#);
        events.push(format!("event: {name}\ndata: {data}\n\n"));
    };
    let id = item_id(reply);
    let place = format!(r#""item_id":"{id}","output_index":0"#);
    push("response.created", format!(r#""response":{}"#, response(ask, reply, steering, None)));
    push("response.output_item.added", format!(r#""output_index":0,"item":{}"#, item(reply, "in_progress", false)));
    if let Some(tool) = &reply.tool {
        let (head, tail) = halves(&tool.arguments);
        for part in [head, tail] {
            push("response.function_call_arguments.delta", format!(r#"{place},"delta":{}"#, quoted(part)));
        }
        let arguments = quoted(&tool.arguments);
        push("response.function_call_arguments.done", format!(r#"{place},"arguments":{arguments}"#));
    } else {
        let place = format!(r#"{place},"content_index":0"#);
        push("response.content_part.added", format!(r#"{place},"part":{}"#, part("")));
        for text in reply.frames() {
            push("response.output_text.delta", format!(r#"{place},"delta":{},"logprobs":[]"#, quoted(&text)));
        }
        push("response.output_text.done", format!(r#"{place},"text":{},"logprobs":[]"#, quoted(&reply.text)));
        push("response.content_part.done", format!(r#"{place},"part":{}"#, part(&reply.text)));
    }
    let done = item(reply, "completed", true);
    push("response.output_item.done", format!(r#""output_index":0,"item":{done}"#));
    let last = if reply.finish == Finish::Length { "response.incomplete" } else { "response.completed" };
    push(last, format!(r#""response":{}"#, response(ask, reply, steering, Some(&done))));
    events
}

fn response(ask: &Ask, reply: &Reply, steering: &Steering, output: Option<&str>) -> String {
    let (status, incomplete) = match (output, reply.finish) {
        (None, _) => ("in_progress", "null"),
        (Some(_), Finish::Length) => ("incomplete", r#"{"reason":"max_output_tokens"}"#),
        (Some(_), _) => ("completed", "null"),
    };
    let usage = match output {
        Some(_) if !steering.no_usage => format!(
            r#"{{"input_tokens":{},"input_tokens_details":{{"cached_tokens":{}}},"output_tokens":{},"output_tokens_details":{{"reasoning_tokens":{}}},"total_tokens":{}}}"#,
            reply.prompt_tokens,
            steering.cached.unwrap_or(0),
            reply.completion_tokens,
            steering.reasoning.unwrap_or(0),
            reply.prompt_tokens + reply.completion_tokens
        ),
        _ => "null".to_owned(),
    };
    format!(
        r#"{{"id":"resp_{}","object":"response","created_at":{CREATED},"status":"{status}","error":null,"incomplete_details":{incomplete},"instructions":null,"max_output_tokens":{},"model":{},"output":[{}],"parallel_tool_calls":true,"previous_response_id":null,"temperature":1.0,"text":{{"format":{{"type":"text"}}}},"tool_choice":"auto","tools":[],"top_p":1.0,"truncation":"disabled","usage":{usage},"metadata":{{}}}}"#,
        reply.key,
        ask.max_tokens.map_or("null".to_owned(), |cap| cap.to_string()),
        quoted(&ask.model),
        output.unwrap_or_default(),
    )
}

fn item_id(reply: &Reply) -> String {
    format!("{}_{}", if reply.tool.is_some() { "fc" } else { "msg" }, reply.key)
}

fn item(reply: &Reply, status: &str, filled: bool) -> String {
    let id = item_id(reply);
    if let Some(tool) = &reply.tool {
        let arguments = if filled { tool.arguments.as_str() } else { "" };
        return format!(
            r#"{{"id":"{id}","type":"function_call","status":"{status}","arguments":{},"call_id":"call_{}","name":{}}}"#,
            quoted(arguments),
            reply.key,
            quoted(&tool.name)
        );
    }
    let content = if filled { part(&reply.text) } else { String::new() };
    format!(r#"{{"id":"{id}","type":"message","status":"{status}","content":[{content}],"role":"assistant"}}"#)
}

fn part(text: &str) -> String {
    format!(r#"{{"type":"output_text","annotations":[],"logprobs":[],"text":{}}}"#, quoted(text))
}
