//! A provider whose model calls a tool: the arguments come a word at a time, as long ones do.

use serde_json::{Value, json};
use weir_fake_provider::http::Request;
use weir_fake_provider::provider::Answer;

/// The stream of a call of `keep_note` with the arguments in the field `x-fake-arguments`; `None` without it.
pub(crate) fn as_calling(request: &Request) -> Option<Answer> {
    let arguments = request.header("x-fake-arguments")?;
    let words: Vec<&str> = arguments.split_inclusive(' ').collect();
    let frames = match request.path.as_str() {
        "/v1/chat/completions" => in_chat(&words),
        "/v1/messages" => named(in_messages(&words)),
        "/v1/responses" => named(in_responses(arguments, &words)),
        _ => return None,
    };
    Some(Answer::stream("text/event-stream", frames, 0))
}

fn in_chat(words: &[&str]) -> Vec<Vec<u8>> {
    let chunk = |delta: Value, reason: Option<&str>| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": reason });
        let chunk = json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "fake-large",
            "choices": [choice]
        });
        format!("data: {chunk}\n\n").into_bytes()
    };
    let function = json!({ "name": "keep_note", "arguments": "" });
    let call = json!({ "index": 0, "id": "call_1", "type": "function", "function": function });
    let begin = chunk(json!({ "role": "assistant", "content": null, "tool_calls": [call] }), None);
    let word = |word: &&str| json!({ "tool_calls": [{ "index": 0, "function": { "arguments": word } }] });
    let says = words.iter().map(|said| chunk(word(said), None));
    let end = [chunk(json!({}), Some("tool_calls")), b"data: [DONE]\n\n".to_vec()];
    std::iter::once(begin).chain(says).chain(end).collect()
}

fn in_messages(words: &[&str]) -> Vec<Value> {
    let message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "fake-large", "content": [], "stop_reason": null,
        "stop_sequence": null, "usage": { "input_tokens": 10, "output_tokens": 1 }
    });
    let block = json!({ "type": "tool_use", "id": "toolu_1", "name": "keep_note", "input": {} });
    let begin = [
        json!({ "type": "message_start", "message": message }),
        json!({ "type": "content_block_start", "index": 0, "content_block": block }),
    ];
    let delta = |word: &&str| json!({ "type": "input_json_delta", "partial_json": word });
    let says = words.iter().map(|word| json!({ "type": "content_block_delta", "index": 0, "delta": delta(word) }));
    let end = [
        json!({ "type": "content_block_stop", "index": 0 }),
        json!({
            "type": "message_delta", "delta": { "stop_reason": "tool_use", "stop_sequence": null },
            "usage": { "output_tokens": 9 }
        }),
        json!({ "type": "message_stop" }),
    ];
    begin.into_iter().chain(says).chain(end).collect()
}

fn in_responses(arguments: &str, words: &[&str]) -> Vec<Value> {
    let item = |status: &str, arguments: &str| {
        json!({
            "id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "keep_note", "status": status,
            "arguments": arguments
        })
    };
    let response = |status: &str, output: Vec<Value>| {
        json!({
            "id": "resp_1", "object": "response", "created_at": 1_700_000_000, "status": status, "model": "fake-large",
            "output": output, "parallel_tool_calls": true, "tool_choice": "auto", "tools": []
        })
    };
    let kind = |name: &str| format!("response.{name}");
    let begin = [
        json!({ "type": kind("created"), "response": response("in_progress", Vec::new()) }),
        json!({ "type": kind("output_item.added"), "output_index": 0, "item": item("in_progress", "") }),
    ];
    let says = words.iter().map(|word| {
        json!({ "type": kind("function_call_arguments.delta"), "item_id": "fc_1", "output_index": 0, "delta": word })
    });
    let done = item("completed", arguments);
    let end = [
        json!({
            "type": kind("function_call_arguments.done"), "item_id": "fc_1", "output_index": 0, "name": "keep_note",
            "arguments": arguments
        }),
        json!({ "type": kind("output_item.done"), "output_index": 0, "item": done }),
        json!({ "type": kind("completed"), "response": response("completed", vec![done]) }),
    ];
    let mut events: Vec<Value> = begin.into_iter().chain(says).chain(end).collect();
    for (number, event) in events.iter_mut().enumerate() {
        event["sequence_number"] = json!(number);
    }
    events
}

/// Each event with its name, as these dialects write them.
fn named(events: Vec<Value>) -> Vec<Vec<u8>> {
    let frame = |event: &Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap()).into_bytes();
    events.iter().map(frame).collect()
}
