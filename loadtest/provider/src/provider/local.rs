//! The local server's dialect: `/api/generate`, `/api/chat`, `/api/tags`. Streams are lines of JSON.

use super::ask::Ask;
use super::reply::{Finish, Reply};
use super::steer::Steering;
use super::{Endpoint, MODELS, quoted};

/// When every answer was made: the second of `CREATED`, as this dialect writes it.
const CREATED_AT: &str = "2023-11-14T22:13:20.000000Z";
/// Nanoseconds of work claimed per token.
const TOKEN_NS: usize = 12_000_000;

/// The whole answer.
pub(super) fn whole(endpoint: Endpoint, ask: &Ask, reply: &Reply, steering: &Steering) -> String {
    line("", ask, &said(endpoint, &reply.text, Some(reply)), Some(&closing(endpoint, reply, steering)))
}

/// The lines of a stream.
pub(super) fn frames(endpoint: Endpoint, ask: &Ask, reply: &Reply, steering: &Steering, stamp: &str) -> Vec<String> {
    let part = |text: &str, with: Option<&Reply>| line(stamp, ask, &said(endpoint, text, with), None) + "\n";
    let mut lines: Vec<String> = reply.frames().iter().map(|text| part(text, None)).collect();
    if reply.tool.is_some() && endpoint == Endpoint::LocalChat {
        lines.push(part("", Some(reply)));
    }
    lines.push(line(stamp, ask, &said(endpoint, "", None), Some(&closing(endpoint, reply, steering))) + "\n");
    lines
}

fn line(stamp: &str, ask: &Ask, said: &str, closing: Option<&str>) -> String {
    let model = quoted(&ask.model);
    let done = closing.is_some();
    let closing = closing.unwrap_or_default();
    format!(r#"{{{stamp}"model":{model},"created_at":"{CREATED_AT}",{said},"done":{done}{closing}}}"#)
}

fn said(endpoint: Endpoint, text: &str, with_tool: Option<&Reply>) -> String {
    if endpoint == Endpoint::LocalGenerate {
        return format!(r#""response":{}"#, quoted(text));
    }
    let tool = with_tool.and_then(|reply| reply.tool.as_ref()).map_or(String::new(), |tool| {
        let function = format!(r#"{{"name":{},"arguments":{}}}"#, quoted(&tool.name), tool.arguments);
        format!(r#","tool_calls":[{{"function":{function}}}]"#)
    });
    format!(r#""message":{{"role":"assistant","content":{}{tool}}}"#, quoted(text))
}

fn closing(endpoint: Endpoint, reply: &Reply, steering: &Steering) -> String {
    let reason = if reply.finish == Finish::Length { "length" } else { "stop" };
    let context = if endpoint == Endpoint::LocalGenerate { r#","context":[1,2,3]"# } else { "" };
    if steering.no_usage {
        return format!(r#","done_reason":"{reason}"{context}"#);
    }
    let (prompt_ns, eval_ns) = (reply.prompt_tokens * TOKEN_NS / 10, reply.completion_tokens * TOKEN_NS);
    format!(
        r#","done_reason":"{reason}"{context},"total_duration":{},"load_duration":1000000,"prompt_eval_count":{},"prompt_eval_duration":{prompt_ns},"eval_count":{},"eval_duration":{eval_ns}"#,
        1_000_000 + prompt_ns + eval_ns,
        reply.prompt_tokens,
        reply.completion_tokens
    )
}

/// The list of models.
pub(super) fn tags() -> String {
    let models: Vec<String> = MODELS
        .iter()
        .map(|name| {
            let digest = format!("{:016x}", super::reply::fnv1a(&[name.as_bytes()])).repeat(4);
            format!(
                r#"{{"name":"{name}:latest","model":"{name}:latest","modified_at":"{CREATED_AT}","size":1000000000,"digest":"{digest}","details":{{"parent_model":"","format":"gguf","family":"fake","families":["fake"],"parameter_size":"1B","quantization_level":"Q4_0"}}}}"#
            )
        })
        .collect();
    format!(r#"{{"models":[{}]}}"#, models.join(","))
}
