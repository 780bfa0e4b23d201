//! The provider seen from its clients: shapes, streams against whole answers, errors, directives.

use super::*;
use serde_json::{Value, json};

const GENERATING: [&str; 6] =
    ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/api/generate", "/api/chat"];

fn post(path: &str, body: &Value) -> Request {
    Request::new("POST", path).with_body(body.to_string())
}

fn ask_body(path: &str, prompt: &str, stream: bool) -> Value {
    let mut body = json!({"model": "fake-small", "stream": stream, "stream_options": {"include_usage": true}});
    match path {
        "/v1/completions" | "/api/generate" => body["prompt"] = json!(prompt),
        "/v1/responses" => body["input"] = json!(prompt),
        _ => body["messages"] = json!([{"role": "user", "content": prompt}]),
    }
    body
}

fn parsed(answer: &Answer) -> Value {
    serde_json::from_slice(&answer.body()).unwrap()
}

/// The JSON documents of a stream.
fn events(answer: &Answer) -> Vec<Value> {
    let text = String::from_utf8(answer.body()).unwrap();
    let data =
        text.lines().filter_map(|line| line.strip_prefix("data: ").or(Some(line).filter(|l| l.starts_with('{'))));
    data.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}

fn text_of(path: &str, whole: &Value) -> String {
    let pointer = match path {
        "/v1/chat/completions" => "/choices/0/message/content",
        "/v1/completions" => "/choices/0/text",
        "/v1/responses" => "/output/0/content/0/text",
        "/v1/messages" => "/content/0/text",
        "/api/generate" => "/response",
        _ => "/message/content",
    };
    whole.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("{path}: {whole}")).to_owned()
}

fn delta_of(path: &str, event: &Value) -> String {
    let pointer = match path {
        "/v1/chat/completions" => "/choices/0/delta/content",
        "/v1/responses" if event["type"] != "response.output_text.delta" => return String::new(),
        "/v1/responses" => "/delta",
        "/v1/messages" => "/delta/text",
        other => return event.pointer(pointer_of_local(other)).and_then(Value::as_str).unwrap_or_default().to_owned(),
    };
    event.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn pointer_of_local(path: &str) -> &'static str {
    match path {
        "/v1/completions" => "/choices/0/text",
        "/api/generate" => "/response",
        _ => "/message/content",
    }
}

/// Prompt and completion tokens, wherever the dialect keeps them.
fn usage_of(document: &Value) -> Option<(u64, u64)> {
    let usage = document.get("usage").or_else(|| document.pointer("/response/usage")).unwrap_or(document);
    let read = |names: [&str; 3]| names.iter().find_map(|name| usage.get(name)).and_then(Value::as_u64);
    let input = read(["prompt_tokens", "input_tokens", "prompt_eval_count"]);
    Some((input?, read(["completion_tokens", "output_tokens", "eval_count"])?))
}

#[test]
fn a_stream_joined_equals_the_whole_answer() {
    for path in GENERATING {
        let whole = parsed(&respond(&post(path, &ask_body(path, "Why \"quote\"?\n\u{e9}", false))));
        let streamed = respond(&post(path, &ask_body(path, "Why \"quote\"?\n\u{e9}", true)));
        let joined: String = events(&streamed).iter().map(|event| delta_of(path, event)).collect();
        assert_eq!(joined, text_of(path, &whole), "{path}");
        assert!(joined.len() > 100, "{path}");
    }
}

#[test]
fn whole_and_streamed_usage_agree() {
    for path in GENERATING {
        let whole = parsed(&respond(&post(path, &ask_body(path, "count me", false))));
        let streamed = events(&respond(&post(path, &ask_body(path, "count me", true))));
        let (input, output) = usage_of(&whole).unwrap_or_else(|| panic!("{path}: {whole}"));
        assert_eq!(input, 2, "{path}: 8 bytes of prompt");
        let words = text_of(path, &whole).split_whitespace().count() as u64;
        assert_eq!(output, words, "{path}");
        let last = if path == "/v1/messages" {
            assert_eq!(streamed[0]["message"]["usage"]["input_tokens"], json!(input));
            streamed.iter().find(|event| event["type"] == "message_delta").unwrap()["usage"]["output_tokens"].as_u64()
        } else {
            usage_of(streamed.last().unwrap()).filter(|usage| usage.0 == input).map(|usage| usage.1)
        };
        assert_eq!(last, Some(output), "{path}");
    }
}

#[test]
fn a_chat_stream_ends_with_done_and_shows_usage_only_when_asked() {
    let mut body = ask_body("/v1/chat/completions", "hi", true);
    let asked = respond(&post("/v1/chat/completions", &body));
    assert!(asked.body().ends_with(b"\n\ndata: [DONE]\n\n"));
    assert_eq!(asked.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert_eq!(events(&asked).last().unwrap()["choices"], json!([]));
    body["stream_options"] = Value::Null;
    assert!(events(&respond(&post("/v1/chat/completions", &body))).iter().all(|event| event.get("usage").is_none()));
}

#[test]
fn a_messages_stream_names_its_events_in_order() {
    let answer =
        respond(&post("/v1/messages", &ask_body("/v1/messages", "hi", true)).with_header("x-fake-frames", "1"));
    let text = String::from_utf8(answer.body()).unwrap();
    let mut names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    names.dedup();
    let order = [
        "message_start",
        "content_block_start",
        "ping",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(names, order);
}

#[test]
fn the_local_server_streams_unless_told_not_to() {
    let mut body = ask_body("/api/chat", "hi", true);
    body.as_object_mut().unwrap().remove("stream");
    let answer = respond(&post("/api/chat", &body));
    assert_eq!(answer.header("content-type"), Some("application/x-ndjson"));
    let events = events(&answer);
    assert_eq!((events.last().unwrap()["done"].clone(), events[0]["done"].clone()), (json!(true), json!(false)));
}

#[test]
fn mentioned_tools_are_called_whole_and_streamed() {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let arguments = json!({"city": "sample city"});
    let body = |stream: bool, tool: &Value| json!({"model": "m", "stream": stream, "tools": [tool], "messages": [{"role": "user", "content": "use look_up"}]});
    let tool = json!({"type": "function", "function": {"name": "look_up", "parameters": schema}});
    let chat = parsed(&respond(&post("/v1/chat/completions", &body(false, &tool))));
    assert_eq!(chat["choices"][0]["finish_reason"], "tool_calls");
    let call = &chat["choices"][0]["message"]["tool_calls"][0]["function"];
    assert_eq!(serde_json::from_str::<Value>(call["arguments"].as_str().unwrap()).unwrap(), arguments);
    let streamed = events(&respond(&post("/v1/chat/completions", &body(true, &tool))));
    let pointer = "/choices/0/delta/tool_calls/0/function/arguments";
    let joined: String = streamed.iter().filter_map(|event| event.pointer(pointer)?.as_str()).collect();
    assert_eq!(joined, call["arguments"]);

    let tool = json!({"name": "look_up", "input_schema": schema});
    let messages = parsed(&respond(&post("/v1/messages", &body(false, &tool))));
    assert_eq!((&messages["stop_reason"], &messages["content"][0]["input"]), (&json!("tool_use"), &arguments));
    let streamed = events(&respond(&post("/v1/messages", &body(true, &tool))));
    let joined: String = streamed.iter().filter_map(|event| event.pointer("/delta/partial_json")?.as_str()).collect();
    assert_eq!(serde_json::from_str::<Value>(&joined).unwrap(), arguments);

    let local = parsed(&respond(&post("/api/chat", &body(false, &tool))));
    assert_eq!(local["message"]["tool_calls"][0]["function"], json!({"name": "look_up", "arguments": arguments}));
}

#[test]
fn failures_wear_the_dialects_shape() {
    let failing = |path: &str| {
        let answer = respond(&post(path, &ask_body(path, "hi", false)).with_header("x-fake-status", "429"));
        assert_eq!(answer.status, 429, "{path}");
        parsed(&answer)
    };
    assert_eq!(failing("/v1/chat/completions")["error"]["code"], "rate_limit_exceeded");
    assert_eq!(failing("/v1/messages")["error"]["type"], "rate_limit_error");
    assert!(failing("/api/chat")["error"].is_string());
    assert_eq!(respond(&Request::new("GET", "/v1/nothing")).status, 404);
    assert_eq!(respond(&post("/v1/messages", &json!({}))).status, 400);
}

#[test]
fn the_model_name_and_the_prompt_steer_too() {
    let body = json!({"model": "m@status=503", "messages": [{"role": "user", "content": "hi"}]});
    assert_eq!(respond(&post("/v1/chat/completions", &body)).status, 503);
    let body = json!({"model": "m@delay-ms=4", "messages": [{"role": "user", "content": "[[fake reply=yes]]"}]});
    let answer = respond(&post("/v1/chat/completions", &body));
    assert_eq!((answer.delay_ms, text_of("/v1/chat/completions", &parsed(&answer)).as_str()), (4, "yes"));
    assert_eq!(parsed(&answer)["model"], "m");
}

#[test]
fn answer_bytes_are_met_exactly_in_every_dialect() {
    for path in GENERATING {
        for bytes in [1024, 8192, 65_536] {
            let request =
                post(path, &ask_body(path, "hi", false)).with_header("x-fake-answer-bytes", &bytes.to_string());
            let answer = respond(&request);
            assert_eq!(answer.body().len(), bytes, "{path}");
            assert!(usage_of(&parsed(&answer)).is_some(), "{path}");
        }
    }
}

#[test]
fn gzip_frames_can_be_read_as_they_arrive() {
    use std::io::Read as _;
    let path = "/v1/chat/completions";
    let plain = respond(&post(path, &ask_body(path, "hi", true)));
    let packed = respond(&post(path, &ask_body(path, "hi", true)).with_header("x-fake-encoding", "gzip"));
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(packed.body().as_slice()).read_to_end(&mut unpacked).unwrap();
    assert_eq!(unpacked, plain.body());
    let mut first = vec![0; plain.pieces[0].bytes.len()];
    flate2::read::GzDecoder::new(packed.pieces[0].bytes.as_slice()).read_exact(&mut first).unwrap();
    assert_eq!(first, plain.pieces[0].bytes);
}

#[test]
fn embeddings_are_unit_vectors_in_numbers_and_base64() {
    use base64::Engine as _;
    let body = json!({"model": "e", "input": ["a", "b"], "dimensions": 8});
    let list = parsed(&respond(&post("/v1/embeddings", &body)));
    let vector: Vec<f64> = serde_json::from_value(list["data"][1]["embedding"].clone()).unwrap();
    assert_eq!(vector.len(), 8);
    assert!((vector.iter().map(|x| x * x).sum::<f64>() - 1.0).abs() < 1e-4);
    assert_ne!(list["data"][0]["embedding"], list["data"][1]["embedding"]);
    let body = json!({"model": "e", "input": ["b"], "dimensions": 8, "encoding_format": "base64"});
    let packed = parsed(&respond(&post("/v1/embeddings", &body)));
    let bytes =
        base64::engine::general_purpose::STANDARD.decode(packed["data"][0]["embedding"].as_str().unwrap()).unwrap();
    let first = f32::from_le_bytes(bytes[..4].try_into().unwrap());
    assert!((f64::from(first) - vector[0]).abs() < 1e-6);
    let local = parsed(&respond(&post("/api/embed", &body)));
    assert_eq!(local["embeddings"][0].as_array().unwrap().len(), 8);
}

#[test]
fn lists_and_probes_are_json_of_their_dialect() {
    assert_eq!(parsed(&respond(&Request::new("GET", "/v1/models")))["data"][0]["object"], "model");
    let messages = Request::new("GET", "/v1/models").with_header("anthropic-version", "2023-06-01");
    assert_eq!(parsed(&respond(&messages))["data"][0]["type"], "model");
    assert_eq!(parsed(&respond(&Request::new("GET", "/api/tags")))["models"][0]["name"], "fake-large:latest");
    assert_eq!(parsed(&respond(&Request::new("GET", "/v1/models/x")))["id"], "x");
    let count = json!({"model": "m", "messages": [{"role": "user", "content": "12345678"}]});
    assert_eq!(parsed(&respond(&post("/v1/messages/count_tokens", &count))), json!({"input_tokens": 2}));
}

#[test]
fn usage_can_be_left_out() {
    for path in GENERATING {
        let request = post(path, &ask_body(path, "hi", true)).with_header("x-fake-usage", "none");
        assert!(events(&respond(&request)).iter().all(|event| usage_of(event).is_none()), "{path}");
    }
}

#[test]
fn stamped_frames_are_json_and_carry_the_time() {
    for path in GENERATING {
        let answer = respond(&post(path, &ask_body(path, "hi", true)).with_header("x-fake-stamp", "1"));
        assert!(events(&answer).iter().all(|event| event["fake_sent_ns"].is_string()), "{path}");
    }
}
