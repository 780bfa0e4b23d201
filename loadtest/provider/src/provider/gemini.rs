//! `models/{name}:generateContent` and `:streamGenerateContent`, below `/v1beta/` or `/v1/`. Streams are events, with the line ends
//! that this provider writes.

use super::ask::Ask;
use super::quoted;
use super::reply::{Finish, Reply};
use super::steer::Steering;

/// The model a path names, and whether it asks for a stream.
pub(super) fn model_of(path: &str) -> Option<(&str, bool)> {
    let rest = path.strip_prefix("/v1beta/models/").or_else(|| path.strip_prefix("/v1/models/"))?;
    let (model, method) = rest.rsplit_once(':')?;
    match method {
        "generateContent" => Some((model, false)),
        "streamGenerateContent" => Some((model, true)),
        _ => None,
    }
}

/// The whole answer.
pub(super) fn whole(ask: &Ask, reply: &Reply, steering: &Steering) -> String {
    document("", ask, reply, steering, Some(&reply.text), true)
}

/// The events of a stream.
pub(super) fn frames(ask: &Ask, reply: &Reply, steering: &Steering, stamp: &str) -> Vec<String> {
    let event =
        |text: Option<&str>, last: bool| format!("data: {}\r\n\r\n", document(stamp, ask, reply, steering, text, last));
    let mut events: Vec<String> = reply.frames().iter().map(|text| event(Some(text), false)).collect();
    events.push(event(None, true));
    events
}

/// An error in this provider's shape.
pub(super) fn error(status: u16, message: &str) -> String {
    let name = match status {
        400 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        _ => "INTERNAL",
    };
    format!(r#"{{"error":{{"code":{status},"message":{},"status":"{name}"}}}}"#, quoted(message))
}

fn document(stamp: &str, ask: &Ask, reply: &Reply, steering: &Steering, text: Option<&str>, last: bool) -> String {
    let call = reply
        .tool
        .as_ref()
        .filter(|_| last)
        .map(|tool| format!(r#"{{"functionCall":{{"name":{},"args":{}}}}}"#, quoted(&tool.name), tool.arguments));
    let words = text.filter(|text| call.is_none() || !text.is_empty());
    let words = words.map(|text| format!(r#"{{"text":{}}}"#, quoted(text)));
    let parts: Vec<String> = words.into_iter().chain(call).collect();
    let finish = match (last, reply.finish) {
        (false, _) => "",
        (true, Finish::Length) => r#","finishReason":"MAX_TOKENS""#,
        (true, _) => r#","finishReason":"STOP""#,
    };
    let usage = if last && !steering.no_usage { usage(reply, steering) } else { String::new() };
    format!(
        r#"{{{stamp}"candidates":[{{"content":{{"parts":[{}],"role":"model"}}{finish},"index":0}}]{usage},"modelVersion":{},"responseId":"{}"}}"#,
        parts.join(","),
        quoted(&ask.model),
        reply.key
    )
}

fn usage(reply: &Reply, steering: &Steering) -> String {
    let thoughts = steering.reasoning.unwrap_or(0);
    let said = reply.completion_tokens.saturating_sub(thoughts);
    format!(
        r#","usageMetadata":{{"promptTokenCount":{},"cachedContentTokenCount":{},"candidatesTokenCount":{said},"thoughtsTokenCount":{thoughts},"totalTokenCount":{}}}"#,
        reply.prompt_tokens,
        steering.cached.unwrap_or(0),
        reply.prompt_tokens + said + thoughts
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::http::Request;
    use crate::provider::{Answer, respond};

    fn ask(method: &str, body: &Value) -> Answer {
        respond(&Request::new("POST", &format!("/v1beta/models/fake-small:{method}")).with_body(body.to_string()))
    }

    fn events(answer: &Answer) -> Vec<Value> {
        let text = String::from_utf8(answer.body()).unwrap();
        text.split_terminator("\r\n\r\n").map(|event| serde_json::from_str(&event["data: ".len()..]).unwrap()).collect()
    }

    fn text_of(document: &Value) -> &str {
        document.pointer("/candidates/0/content/parts/0/text").and_then(Value::as_str).unwrap_or_default()
    }

    #[test]
    fn a_stream_joined_is_the_whole_answer_and_ends_with_its_tokens() {
        let body = json!({"contents": [{"role": "user", "parts": [{"text": "hello"}]}]});
        let whole: Value = serde_json::from_slice(&ask("generateContent", &body).body()).unwrap();
        let events = events(&ask("streamGenerateContent?alt=sse", &body));
        assert_eq!(events.iter().map(text_of).collect::<String>(), text_of(&whole));
        let last = events.last().unwrap();
        assert_eq!(last["usageMetadata"], whole["usageMetadata"]);
        assert_eq!(last["candidates"][0]["finishReason"], "STOP");
        assert!(whole["usageMetadata"]["promptTokenCount"].as_u64().unwrap() > 0);
    }

    #[test]
    fn a_tool_is_called_when_it_is_named_and_errors_have_their_status() {
        let tools = json!([{"functionDeclarations": [{"name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]}]);
        let body = json!({"contents": [{"role": "user", "parts": [{"text": "use get_weather"}]}], "tools": tools});
        let whole: Value = serde_json::from_slice(&ask("generateContent", &body).body()).unwrap();
        let call = whole.pointer("/candidates/0/content/parts/0/functionCall").unwrap();
        assert_eq!(call, &json!({"name": "get_weather", "args": {"city": "sample city"}}));
        let refused = ask("generateContent", &json!({"contents": [{"parts": [{"text": "[[fake status=429]]"}]}]}));
        let error: Value = serde_json::from_slice(&refused.body()).unwrap();
        assert_eq!((refused.status, error["error"]["status"].as_str()), (429, Some("RESOURCE_EXHAUSTED")));
    }
}
