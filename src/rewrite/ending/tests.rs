//! The end of each dialect, to the byte.

use serde_json::json;

use super::*;

/// What ends a stream that has said this: `event|document` per message.
fn end(said: &[(Option<&str>, Value)]) -> Option<Vec<String>> {
    let mut ending = Ending::default();
    for (event, message) in said {
        ending.note(*event, message);
    }
    let messages = ending.end("Withheld.")?;
    let shown = messages.into_iter().map(|Message { event, data }| {
        let data = match data {
            Data::Json(value) => value.to_string(),
            Data::Bare(words) => words.to_owned(),
        };
        format!("{}|{data}", event.unwrap_or(""))
    });
    Some(shown.collect())
}

fn bare(said: &[Value]) -> Option<Vec<String>> {
    let said: Vec<_> = said.iter().map(|message| (None, message.clone())).collect();
    end(&said)
}

#[test]
fn chat_completions_end_every_open_choice_and_say_done() {
    let chunk = |index: u64, delta: Value, reason: Value| {
        json!({"id": "c1", "object": "chat.completion.chunk", "created": 17, "model": "gpt-4o",
            "choices": [{"index": index, "delta": delta, "finish_reason": reason}]})
    };
    let said = [
        chunk(0, json!({"role": "assistant"}), Value::Null),
        chunk(1, json!({"content": "a"}), Value::Null),
        chunk(0, json!({}), json!("stop")),
    ];
    assert_eq!(
        bare(&said).unwrap(),
        [
            r#"|{"choices":[{"delta":{"content":"Withheld."},"finish_reason":null,"index":1}],"created":17,"id":"c1","model":"gpt-4o","object":"chat.completion.chunk"}"#,
            r#"|{"choices":[{"delta":{},"finish_reason":"content_filter","index":1}],"created":17,"id":"c1","model":"gpt-4o","object":"chat.completion.chunk"}"#,
            "|[DONE]",
        ]
    );
}

#[test]
fn completions_of_a_text_end_as_texts() {
    let said = json!({"id": "c1", "object": "text_completion", "created": 17, "model": "m",
        "choices": [{"index": 0, "text": "a", "logprobs": null, "finish_reason": null}]});
    assert_eq!(
        bare(&[said]).unwrap(),
        [
            r#"|{"choices":[{"finish_reason":null,"index":0,"logprobs":null,"text":"Withheld."}],"created":17,"id":"c1","model":"m","object":"text_completion"}"#,
            r#"|{"choices":[{"finish_reason":"content_filter","index":0,"logprobs":null,"text":""}],"created":17,"id":"c1","model":"m","object":"text_completion"}"#,
            "|[DONE]",
        ]
    );
}

#[test]
fn messages_end_the_open_text_block() {
    let start = json!({"type": "message_start", "message": {"id": "m", "usage": {"output_tokens": 1}}});
    let block = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}});
    let delta = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}});
    assert_eq!(
        bare(&[start, block, delta]).unwrap(),
        [
            r#"content_block_delta|{"delta":{"text":"Withheld.","type":"text_delta"},"index":0,"type":"content_block_delta"}"#,
            r#"content_block_stop|{"index":0,"type":"content_block_stop"}"#,
            r#"message_delta|{"delta":{"stop_reason":"refusal","stop_sequence":null},"type":"message_delta","usage":{"output_tokens":1}}"#,
            r#"message_stop|{"type":"message_stop"}"#,
        ]
    );
}

#[test]
fn messages_close_a_tool_call_before_the_warning_and_open_a_block_for_it() {
    let start = json!({"type": "message_start", "message": {}});
    let block = json!({"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "t"}});
    let end = bare(&[start, block]).unwrap();
    assert_eq!(
        end[..3],
        [
            r#"content_block_stop|{"index":1,"type":"content_block_stop"}"#,
            r#"content_block_start|{"content_block":{"text":"","type":"text"},"index":2,"type":"content_block_start"}"#,
            r#"content_block_delta|{"delta":{"text":"Withheld.","type":"text_delta"},"index":2,"type":"content_block_delta"}"#,
        ]
    );
}

#[test]
fn responses_are_incomplete() {
    let created = json!({"type": "response.created", "sequence_number": 0,
        "response": {"id": "r1", "model": "gpt-5", "created_at": 17, "status": "in_progress"}});
    let delta = json!({"type": "response.output_text.delta", "sequence_number": 4, "item_id": "i", "output_index": 0,
        "content_index": 0, "delta": "a"});
    let incomplete = |sequence: u64, said: u64| {
        format!(
            r#"response.incomplete|{{"response":{{"created_at":17,"error":null,"id":"r1","incomplete_details":{{"reason":"content_filter"}},"model":"gpt-5","object":"response","output":[],"parallel_tool_calls":true,"status":"incomplete","tool_choice":"auto","tools":[],"usage":{{"input_tokens":0,"input_tokens_details":{{"cached_tokens":0}},"output_tokens":{said},"output_tokens_details":{{"reasoning_tokens":0}},"total_tokens":{said}}}}},"sequence_number":{sequence},"type":"response.incomplete"}}"#
        )
    };
    assert_eq!(bare(std::slice::from_ref(&created)).unwrap(), [incomplete(1, 0)]);
    assert_eq!(
        bare(&[created, delta]).unwrap(),
        [
            r#"response.output_text.delta|{"content_index":0,"delta":"Withheld.","item_id":"i","logprobs":[],"output_index":0,"sequence_number":5,"type":"response.output_text.delta"}"#.to_owned(),
            incomplete(6, 1),
        ]
    );
}

#[test]
fn gemini_names_a_reason() {
    let said = json!({"candidates": [{"content": {"parts": [{"text": "a"}]}}], "modelVersion": "g", "responseId": "r"});
    assert_eq!(
        bare(&[said]).unwrap(),
        [
            r#"|{"candidates":[{"content":{"parts":[{"text":"Withheld."}],"role":"model"},"finishReason":"SAFETY","index":0}],"modelVersion":"g","responseId":"r"}"#
        ]
    );
}

#[test]
fn the_local_server_is_done() {
    let chat = json!({"model": "m", "created_at": "t", "message": {"content": "a"}, "done": false});
    assert_eq!(
        bare(&[chat]).unwrap(),
        [
            r#"|{"created_at":"t","done":true,"done_reason":"content_filter","message":{"content":"Withheld.","role":"assistant"},"model":"m"}"#
        ]
    );
    let text = json!({"model": "m", "created_at": "t", "response": "a", "done": false});
    assert_eq!(
        bare(&[text]).unwrap(),
        [r#"|{"created_at":"t","done":true,"done_reason":"content_filter","model":"m","response":"Withheld."}"#]
    );
}

#[test]
fn text_generation_fails_with_the_warning() {
    let token = json!({"index": 1, "token": {"id": 7, "text": "a", "logprob": -0.5, "special": false},
        "generated_text": null, "details": null});
    assert_eq!(bare(&[token]).unwrap(), [r#"|{"error":"Withheld.","error_type":"incomplete_generation"}"#]);
}

#[test]
fn converse_streams_stop_their_message() {
    let start = (Some("messageStart"), json!({"role": "assistant"}));
    let call = (Some("contentBlockStart"), json!({"contentBlockIndex": 1, "start": {"toolUse": {"name": "f"}}}));
    let text = (Some("contentBlockDelta"), json!({"contentBlockIndex": 0, "delta": {"text": "a"}}));
    let rest = |index: u64| {
        [
            format!(r#"contentBlockDelta|{{"contentBlockIndex":{index},"delta":{{"text":"Withheld."}}}}"#),
            format!(r#"contentBlockStop|{{"contentBlockIndex":{index}}}"#),
            r#"messageStop|{"stopReason":"content_filtered"}"#.to_owned(),
        ]
    };
    assert_eq!(end(&[start.clone(), text]).unwrap(), rest(0));
    let ended = end(&[start, call]).unwrap();
    assert_eq!(ended[0], r#"contentBlockStop|{"contentBlockIndex":1}"#);
    assert_eq!(ended[1..], rest(2));
}

#[test]
fn nobody_knows_the_end_of_an_unknown_stream() {
    assert_eq!(bare(&[json!({"hello": 1}), json!([1]), json!({"type": "ping"})]), None);
}
