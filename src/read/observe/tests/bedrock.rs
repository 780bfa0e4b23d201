//! Bedrock's streams: converse, and models invoked in their own dialects.

use base64::Engine as _;
use serde_json::{Value, json};

use super::*;
use crate::codec::amazon::encode;

fn event(name: &str, payload: &Value) -> Vec<u8> {
    encode(
        &[(":event-type", name), (":content-type", "application/json"), (":message-type", "event")],
        payload.to_string().as_bytes(),
    )
}

pub(super) fn converse_stream() -> Vec<u8> {
    let delta = |at: u32, delta: Value| {
        event("contentBlockDelta", &json!({"contentBlockIndex": at, "delta": delta, "p": "abcdef"}))
    };
    [
        event("messageStart", &json!({"role": "assistant", "p": "ab"})),
        delta(0, json!({"reasoningContent": {"text": "hm"}})),
        delta(0, json!({"reasoningContent": {"signature": "c2ln"}})),
        event("contentBlockStop", &json!({"contentBlockIndex": 0})),
        delta(1, json!({"text": "Hel"})),
        delta(1, json!({"text": "lo"})),
        event(
            "contentBlockStart",
            &json!({"contentBlockIndex": 2, "start": {"toolUse": {"toolUseId": "t1", "name": "bash"}}}),
        ),
        // The index may come last.
        encode(
            &[(":event-type", "contentBlockDelta")],
            br#"{"delta":{"toolUse":{"input":"{\"command\":"}},"contentBlockIndex":2}"#,
        ),
        delta(2, json!({"toolUse": {"input": "\"ls\"}"}})),
        delta(3, json!({"citation": {"title": "a source", "sourceContent": [{"text": "cited words"}]}})),
        event("messageStop", &json!({"stopReason": "tool_use"})),
        event(
            "metadata",
            &json!({"usage": {"inputTokens": 1000, "outputTokens": 200, "totalTokens": 1300,
            "cacheReadInputTokens": 60, "cacheWriteInputTokens": 40, "cacheDetails": [{"inputTokens": 30, "ttl": "1h"},
            {"inputTokens": 10, "ttl": "5m"}]}, "metrics": {"latencyMs": 5}}),
        ),
    ]
    .concat()
}

/// A model's own chunk, wrapped.
pub(super) fn chunk(inner: &Value) -> Vec<u8> {
    let bytes = base64::prelude::BASE64_STANDARD.encode(inner.to_string());
    event("chunk", &json!({"bytes": bytes, "p": "abc"}))
}

fn read_amazon(stream: &[u8]) -> Answer {
    read_pieces(AnswerKind::AmazonEvents, &[stream])
}

#[test]
fn reads_a_converse_stream() {
    let answer = read_amazon(&converse_stream());
    assert_parts(
        &answer,
        &[
            (Output, "response.output.message.content[0].reasoningContent", "hm"),
            (Output, "response.output.message.content[1].text", "Hello"),
            (Call, "response.output.message.content[2].toolUse", "{\"command\":\"ls\"}"),
            (PartKind::Tool, "response", "cited words\na source"),
        ],
    );
    assert_eq!(answer.tool_calls, [call(Some("t1"), "bash", "{\"command\":\"ls\"}")]);
    let usage = Usage { cached: Some(60), cache_write: Some(40), cache_write_1h: Some(30), ..tokens(1100, 200, 1300) };
    assert_eq!(answer.usage, Some(usage));
    assert_eq!((answer.finish_reason.as_deref(), answer.complete), (Some("tool_use"), true));
    assert!(answer.unread.is_empty() && !answer.truncated);
}

#[test]
fn a_converse_stream_is_complete_with_its_metadata_only() {
    let stream = converse_stream();
    for length in 0..stream.len() {
        let mut reader = AnswerReader::new(AnswerKind::AmazonEvents, None, MAX);
        reader.feed(&stream[..length]);
        assert!(!reader.is_complete(), "{length} of {} bytes", stream.len());
    }
}

#[test]
fn reads_invoked_models_in_their_own_dialects() {
    let metrics = json!({"inputTokenCount": 11, "outputTokenCount": 7, "invocationLatency": 5, "firstByteLatency": 2});
    let streams: [(&str, Vec<Value>, Option<&str>); 5] = [
        (
            "messages",
            vec![
                json!({"type": "message_start", "message": {"id": "m", "role": "assistant", "model": "claude", "content": [],
                    "usage": {"input_tokens": 11, "output_tokens": 1}}}),
                json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}}),
                json!({"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": null}, "usage": {"output_tokens": 7}}),
                json!({"type": "message_stop", "amazon-bedrock-invocationMetrics": metrics}),
            ],
            Some("end_turn"),
        ),
        (
            "nova",
            vec![
                json!({"messageStart": {"role": "assistant"}}),
                json!({"contentBlockDelta": {"delta": {"text": "Hel"}, "contentBlockIndex": 0}}),
                json!({"contentBlockDelta": {"delta": {"text": "lo"}, "contentBlockIndex": 0}}),
                json!({"messageStop": {"stopReason": "end_turn"}}),
                json!({"metadata": {"usage": {"inputTokens": 11, "outputTokens": 7}}, "amazon-bedrock-invocationMetrics": metrics}),
            ],
            Some("end_turn"),
        ),
        (
            "llama",
            vec![
                json!({"generation": "Hel", "prompt_token_count": 11, "generation_token_count": 1, "stop_reason": null}),
                json!({"generation": "lo", "prompt_token_count": null, "generation_token_count": 7, "stop_reason": "stop",
                    "amazon-bedrock-invocationMetrics": metrics}),
            ],
            Some("stop"),
        ),
        (
            "titan",
            vec![
                json!({"outputText": "Hello", "index": 0, "totalOutputTextTokenCount": 7, "completionReason": "FINISH",
                "inputTextTokenCount": 11, "amazon-bedrock-invocationMetrics": metrics}),
            ],
            Some("FINISH"),
        ),
        (
            "mistral",
            vec![
                json!({"outputs": [{"text": "Hel", "stop_reason": null}]}),
                json!({"outputs": [{"text": "lo", "stop_reason": "stop"}], "amazon-bedrock-invocationMetrics": metrics}),
            ],
            Some("stop"),
        ),
    ];
    for (name, chunks, finish) in streams {
        let stream: Vec<u8> = chunks.iter().flat_map(chunk).collect();
        let answer = read_amazon(&stream);
        assert_eq!((answer.text.as_str(), answer.finish_reason.as_deref()), ("Hello", finish), "{name}");
        assert_eq!((answer.usage, answer.complete), (Some(tokens(11, 7, 18)), true), "{name}");
    }
}

#[test]
fn an_exception_ends_the_stream_with_its_type() {
    let stream = [
        event("contentBlockDelta", &json!({"contentBlockIndex": 0, "delta": {"text": "so far"}})),
        encode(
            &[(":exception-type", "throttlingException"), (":message-type", "exception")],
            br#"{"message":"Too many requests"}"#,
        ),
    ]
    .concat();
    let answer = read_amazon(&stream);
    assert_eq!((answer.text.as_str(), answer.complete), ("so far", false));
    assert_eq!(
        (answer.error_type.as_deref(), answer.error_message.as_deref()),
        (Some("throttlingException"), Some("Too many requests"))
    );
    let bare =
        encode(&[(":message-type", "error"), (":error-code", "InternalError"), (":error-message", "it broke")], b"");
    let answer = read_amazon(&bare);
    assert_eq!(
        (answer.error_type.as_deref(), answer.error_message.as_deref()),
        (Some("InternalError"), Some("it broke"))
    );
}

#[test]
fn what_cannot_be_read_of_an_event_stream_is_said() {
    let mut stream = converse_stream();
    stream[1] = 1;
    let answer = read_amazon(&stream);
    assert_eq!(
        (answer.unreadable, answer.unread.to_string().as_str()),
        (Some("event stream with a wrong checksum"), "unreadable_body")
    );
    let opaque = encode(&[(":event-type", "chunk")], br#"{"bytes":"not base64!"}"#);
    assert_eq!(read_amazon(&opaque).unread.to_string(), "unreadable_body");
    // An agent's answer is bare text; an event nobody has heard of is read all the same.
    let bytes = base64::prelude::BASE64_STANDARD.encode("said by an agent");
    let stream =
        [event("chunk", &json!({"bytes": bytes})), event("trace", &json!({"trace": {"rationale": "thought of"}}))]
            .concat();
    assert_eq!(read_amazon(&stream).text, "said by an agent\nthought of");
}
