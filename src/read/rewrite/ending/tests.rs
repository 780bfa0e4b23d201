//! The end of each dialect, to the byte.

use serde_json::json;

use super::*;

/// What ends a stream that has said this: `event|document` per message.
fn end(said: &[(Option<&str>, Value)]) -> Option<Vec<String>> {
    end_for(false, said)
}

fn end_for(client_retries: bool, said: &[(Option<&str>, Value)]) -> Option<Vec<String>> {
    let mut ending = Ending::new(client_retries);
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
fn responses_fail_for_who_would_ask_again() {
    let created = json!({"type": "response.created", "sequence_number": 0,
        "response": {"id": "r1", "model": "gpt-5", "created_at": 17, "status": "in_progress"}});
    assert_eq!(
        end_for(true, &[(None, created)]).unwrap(),
        [
            r#"response.failed|{"response":{"created_at":17,"error":{"code":"invalid_prompt","message":"Withheld."},"id":"r1","incomplete_details":null,"model":"gpt-5","object":"response","output":[],"parallel_tool_calls":true,"status":"failed","tool_choice":"auto","tools":[],"usage":{"input_tokens":0,"input_tokens_details":{"cached_tokens":0},"output_tokens":0,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":0}},"sequence_number":1,"type":"response.failed"}"#
        ]
    );
    // Where every client takes the end for final there is one for all.
    let chat = json!({"id": "c1", "created": 17, "model": "m",
        "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": null}]});
    assert_eq!(end_for(true, &[(None, chat.clone())]), bare(&[chat]));
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
fn models_that_speak_converse_themselves_end_inside_of_documents() {
    let said = [
        json!({"messageStart": {"role": "assistant"}}),
        json!({"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": "a"}}}),
    ];
    assert_eq!(
        bare(&said).unwrap(),
        [
            r#"|{"contentBlockDelta":{"contentBlockIndex":0,"delta":{"text":"Withheld."}}}"#,
            r#"|{"contentBlockStop":{"contentBlockIndex":0}}"#,
            r#"|{"messageStop":{"stopReason":"content_filtered"}}"#,
        ]
    );
}

#[test]
fn cohere_ends_its_block_and_its_message() {
    let start = json!({"type": "message-start", "id": "c1", "delta": {"message": {"role": "assistant"}}});
    let text = json!({"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": "a"}}}});
    let call = json!({"type": "tool-call-start", "index": 1, "delta": {"message": {"tool_calls": {"id": "t"}}}});
    let rest = |index: u64| {
        [
            format!(
                r#"content-delta|{{"delta":{{"message":{{"content":{{"text":"Withheld."}}}}}},"index":{index},"type":"content-delta"}}"#
            ),
            format!(r#"content-end|{{"index":{index},"type":"content-end"}}"#),
            r#"message-end|{"delta":{"error":"Withheld.","finish_reason":"ERROR"},"id":"c1","type":"message-end"}"#
                .to_owned(),
        ]
    };
    assert_eq!(bare(&[start.clone(), text]).unwrap(), rest(0));
    let ended = bare(&[start, call]).unwrap();
    assert_eq!(
        ended[..2],
        [
            r#"tool-call-end|{"index":1,"type":"tool-call-end"}"#,
            r#"content-start|{"delta":{"message":{"content":{"text":"","type":"text"}}},"index":2,"type":"content-start"}"#,
        ]
    );
    assert_eq!(ended[2..], rest(2));
}

#[test]
fn cohere_s_first_version_ends_in_lines() {
    let named = json!({"event_type": "stream-start", "generation_id": "g", "is_finished": false});
    assert_eq!(
        bare(&[named]).unwrap(),
        [
            r#"|{"event_type":"text-generation","is_finished":false,"text":"Withheld."}"#,
            r#"|{"event_type":"stream-end","finish_reason":"ERROR_TOXIC","is_finished":true,"response":{"finish_reason":"ERROR_TOXIC","generation_id":"g","text":"Withheld."}}"#,
        ]
    );
    assert_eq!(
        bare(&[json!({"text": "a", "is_finished": false})]).unwrap(),
        [r#"|{"is_finished":false,"text":"Withheld."}"#, r#"|{"finish_reason":"ERROR_TOXIC","is_finished":true}"#,]
    );
}

#[test]
fn sglang_repeats_its_text_unless_it_comes_in_pieces() {
    let say = |text: &str| json!({"text": text, "meta_info": {"id": "g", "prompt_tokens": 3, "finish_reason": null}});
    let ends = |text: &str| {
        [
            format!(
                r#"|{{"meta_info":{{"completion_tokens":null,"finish_reason":{{"message":"Withheld.","type":"abort"}},"id":"g","prompt_tokens":3}},"text":"{text}"}}"#
            ),
            "|[DONE]".to_owned(),
        ]
    };
    assert_eq!(bare(&[say("a "), say("a b ")]).unwrap(), ends("a b Withheld."));
    assert_eq!(bare(&[say("a "), say("b ")]).unwrap(), ends("Withheld."));
}

#[test]
fn bare_texts_end_with_the_reason_their_model_knows() {
    let titan = json!({"outputText": "a", "index": 0, "completionReason": null, "inputTextTokenCount": 3});
    let llama = json!({"generation": "a", "prompt_token_count": 3, "generation_token_count": 1, "stop_reason": null});
    let mistral = json!({"outputs": [{"text": "a", "stop_reason": null}]});
    for (said, end) in [
        (
            titan,
            r#"|{"completionReason":"CONTENT_FILTERED","index":0,"inputTextTokenCount":3,"outputText":"Withheld.","totalOutputTextTokenCount":null}"#,
        ),
        (
            llama,
            r#"|{"generation":"Withheld.","generation_token_count":1,"prompt_token_count":3,"stop_reason":"stop"}"#,
        ),
        (mistral, r#"|{"outputs":[{"stop_reason":"stop","text":"Withheld."}]}"#),
    ] {
        assert_eq!(bare(&[said]).unwrap(), [end]);
    }
}

#[test]
fn transcriptions_are_done_with_all_of_their_text() {
    let say = |delta: &str| json!({"type": "transcript.text.delta", "delta": delta});
    assert_eq!(
        bare(&[say("a "), say("b ")]).unwrap(),
        [
            r#"transcript.text.delta|{"delta":"Withheld.","type":"transcript.text.delta"}"#,
            r#"transcript.text.done|{"text":"a b Withheld.","type":"transcript.text.done"}"#,
        ]
    );
}

#[test]
fn nobody_knows_the_end_of_an_unknown_stream() {
    assert_eq!(bare(&[json!({"hello": 1}), json!([1]), json!({"type": "ping"})]), None);
}
