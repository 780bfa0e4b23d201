//! Promise: usage, refusals, errors, thoughts and calls are read wherever providers put them, and what is said beside something large is
//! read, too.

use serde_json::{Value, json};

use crate::support::{Call, Driver, Gateway, Setup, Upstream, call, on_both_drivers};

fn answer_with(content_type: &str, fields: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
        .into_bytes()
}

fn events(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

fn chunk(members: Value) -> Value {
    let mut chunk = json!({ "id": "c", "object": "chat.completion.chunk", "model": "m" });
    chunk.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    chunk
}

/// The span of one call whose provider says this.
fn span(driver: Driver, path: &str, asked: &Value, said: Vec<u8>) -> Value {
    let upstream = Upstream::always(said);
    let gateway: Gateway = Setup::new(driver).upstream(upstream.url()).start();
    gateway.span_of(&call(gateway.addr, Call::post(path, asked.to_string()).bytes()))
}

fn chat(stream: bool) -> Value {
    json!({ "model": "m", "stream": stream, "messages": [{ "role": "user", "content": "hi" }] })
}

fn streamed(driver: Driver, chunks: &[Value]) -> Value {
    let body = events(chunks) + "data: [DONE]\n\n";
    span(driver, "/v1/chat/completions", &chat(true), answer_with("text/event-stream", "", &body))
}

fn used(span: &Value) -> (Option<u64>, Option<u64>, bool) {
    (span["prompt_tokens"].as_u64(), span["completion_tokens"].as_u64(), span["tokens_estimated"] == true)
}

/// Name and arguments of the calls in the answer.
fn calls(span: &Value, side: &str) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let messages = span["messages"].as_array().unwrap().iter().filter(|message| message["side"] == side);
    let parts = messages.flat_map(|message| message["parts"].as_array().unwrap());
    parts.filter(|part| part["type"] == "tool_call").map(|part| (text(&part["name"]), text(&part["text"]))).collect()
}

on_both_drivers! {
    fn usage_is_read_wherever_it_stands(driver) {
        let usage = json!({ "prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1200 });
        let hello = chunk(json!({ "choices": [{ "index": 0, "delta": { "content": "hello" }, "finish_reason": null }] }));
        let stop = |more: Value| {
            let mut last = chunk(json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }] }));
            last.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            last
        };
        let counted = (Some(1000), Some(200), false);
        for last in [
            chunk(json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop", "usage": usage }] })),
            stop(json!({ "x_groq": { "id": "r", "usage": usage } })),
            stop(json!({ "timings": { "prompt_n": 900, "cache_n": 100, "predicted_n": 200 } })),
        ] {
            assert_eq!(used(&streamed(driver, &[hello.clone(), last.clone()])), counted, "{last}");
        }
        let fields = "x-amzn-bedrock-input-token-count: 700\r\nx-amzn-bedrock-output-token-count: 420\r\n";
        let invoked = answer_with("application/json", fields, r#"{"outputs":[{"text":"hello","stop_reason":"stop"}]}"#);
        let invoked = span(driver, "/model/mistral.mistral-large-2402-v1:0/invoke", &json!({ "prompt": "hi" }), invoked);
        assert_eq!(used(&invoked), (Some(700), Some(420), false));
        // Thoughts that a total counts and no part does.
        let document = |model: &str, usage: Value| {
            let body = json!({ "id": "x", "object": "chat.completion", "model": model, "choices": [{ "index": 0, "message": { "role": "assistant", "content": "ok" }, "finish_reason": "stop" }], "usage": usage });
            let asked = json!({ "model": model, "messages": [{ "role": "user", "content": "hi" }] });
            span(driver, "/v1/chat/completions", &asked, answer_with("application/json", "", &body.to_string()))
        };
        let thought = document("m", json!({ "prompt_tokens": 20, "completion_tokens": 198, "total_tokens": 623 }));
        assert_eq!(used(&thought), (Some(20), Some(603), false));
        // The provider's own word, marked as such, where there is no price.
        let said = document("z-ai/unknown", json!({ "prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100, "cost": 0.0123 }));
        assert_eq!((&said["estimated_cost_usd"], &said["cost_breakdown"]["source"]), (&json!(0.0123), &json!("provider")), "{said}");
        assert_eq!(said["tags"].get("unpriced_model"), None);
        let free = document("z-ai/unknown", json!({ "prompt_tokens": 1000, "completion_tokens": 100 }));
        assert_eq!((&free["estimated_cost_usd"], &free["tags"]["unpriced_model"]), (&Value::Null, &json!("true")));
    }

    fn what_comes_beside_something_large_is_counted(driver) {
        let big = "A".repeat(1_200_000);
        let body = events(&[
            json!({ "type": "response.created", "response": { "id": "r", "model": "gpt-5-mini", "status": "in_progress" } }),
            json!({ "type": "response.output_text.delta", "item_id": "i", "output_index": 0, "content_index": 0, "delta": "done" }),
            json!({ "type": "response.completed", "response": { "id": "r", "model": "gpt-5-mini", "status": "completed",
                "output": [{ "type": "image_generation_call", "id": "g", "result": big }], "usage": { "input_tokens": 1000, "output_tokens": 200, "total_tokens": 1200 } } }),
        ]);
        let asked = json!({ "model": "gpt-5-mini", "stream": true, "input": "draw" });
        let drawn = span(driver, "/v1/responses", &asked, answer_with("text/event-stream", "", &body));
        assert_eq!(used(&drawn), (Some(1000), Some(200), false), "{}", drawn["tags"]);
        assert_eq!(drawn["estimated_cost_usd"], json!(0.00065));
        assert!(drawn["tags"]["unscanned_response"].as_str().unwrap().contains("truncated"));
        let part = |part: Value| json!({ "content": { "role": "model", "parts": [part] } });
        let mut last = part(json!({ "inlineData": { "mimeType": "image/png", "data": big } }));
        last["finishReason"] = json!("STOP");
        let gemini = [
            json!({ "candidates": [part(json!({ "text": "here" }))], "usageMetadata": { "promptTokenCount": 10, "totalTokenCount": 10 } }),
            json!({ "candidates": [last], "usageMetadata": { "promptTokenCount": 10, "candidatesTokenCount": 1290, "totalTokenCount": 1300 } }),
        ];
        let asked = json!({ "contents": [{ "role": "user", "parts": [{ "text": "draw" }] }] });
        for (path, content_type, body) in [
            ("/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse", "text/event-stream", events(&gemini)),
            ("/v1beta/models/gemini-2.5-flash:streamGenerateContent", "application/json", json!(gemini).to_string()),
        ] {
            let span = span(driver, path, &asked, answer_with(content_type, "", &body));
            assert_eq!(used(&span), (Some(10), Some(1290), false), "{path}: {}", span["tags"]);
            assert_eq!(span["finish_reason"], "STOP", "{path}");
        }
        let context: Vec<u32> = (0..260_000).map(|id| 128_000 + id % 100).collect();
        // The order of Ollama's keys matters: its counters stand behind the context.
        let lines = format!(
            "{}\n{{\"model\":\"llama3.1\",\"response\":\"\",\"done\":true,\"done_reason\":\"stop\",\"context\":{},\"prompt_eval_count\":160000,\"eval_count\":298}}\n",
            json!({ "model": "llama3.1", "response": "he", "done": false }), json!(context)
        );
        let span = span(driver, "/api/generate", &json!({ "model": "llama3.1", "prompt": "hi" }), answer_with("application/x-ndjson", "", &lines));
        assert_eq!(used(&span), (Some(160_000), Some(298), false), "{}", span["tags"]);
    }

    fn calls_without_arguments_are_calls(driver) {
        let delta = |call: Value| chunk(json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [call] }, "finish_reason": null }] }));
        let end = chunk(json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": "tool_calls" }] }));
        for arguments in [json!(""), Value::Null] {
            let span = streamed(driver, &[delta(json!({ "index": 0, "id": "A", "type": "function", "function": { "name": "delete_all", "arguments": arguments } })), end.clone()]);
            assert_eq!(calls(&span, "response"), [("delete_all".to_owned(), String::new())], "{span}");
        }
        let message = json!({ "id": "m", "type": "message", "role": "assistant", "content": [{ "type": "tool_use", "id": "T", "name": "delete_all", "input": {} }],
            "stop_reason": "tool_use", "usage": { "input_tokens": 1, "output_tokens": 1 } });
        let gemini = json!({ "candidates": [{ "content": { "role": "model", "parts": [{ "functionCall": { "name": "delete_all" } }] }, "finishReason": "STOP" }] });
        let asked = json!({ "model": "m", "max_tokens": 9, "messages": [{ "role": "user", "content": "hi" }] });
        for (path, asked, said) in [("/v1/messages", asked, message), ("/v1beta/models/g:generateContent", json!({ "contents": [{ "parts": [{ "text": "hi" }] }] }), gemini)] {
            let span = span(driver, path, &asked, answer_with("application/json", "", &said.to_string()));
            assert_eq!(calls(&span, "response"), [("delete_all".to_owned(), String::new())], "{path}: {span}");
        }
        // Sent back in the history.
        for arguments in [json!(""), Value::Null, json!("{}")] {
            let asked = json!({ "model": "m", "messages": [{ "role": "user", "content": "go" },
                { "role": "assistant", "content": null, "tool_calls": [{ "id": "A", "type": "function", "function": { "name": "delete_all", "arguments": arguments } }] },
                { "role": "tool", "tool_call_id": "A", "content": "done" }] });
            let span = span(driver, "/v1/chat/completions", &asked, answer_with("application/json", "", "{}"));
            let names: Vec<String> = calls(&span, "request").into_iter().map(|(name, _)| name).collect();
            assert_eq!(names, ["delete_all"], "{arguments}: {span}");
        }
    }

    fn parallel_calls_at_one_index_are_several(driver) {
        let delta = |call: Value| chunk(json!({ "choices": [{ "index": 0, "delta": { "tool_calls": [call] }, "finish_reason": null }] }));
        let function = |name: &str, arguments: &str| delta(json!({ "index": 0, "id": "", "type": "function", "function": { "name": name, "arguments": arguments } }));
        let pair = |a: (&str, &str), b: (&str, &str)| [(a.0.to_owned(), a.1.to_owned()), (b.0.to_owned(), b.1.to_owned())];
        let span = streamed(driver, &[function("bash", "{\"a\":1}"), function("delete_all", "{\"b\":2}")]);
        assert_eq!(calls(&span, "response"), pair(("bash", "{\"a\":1}"), ("delete_all", "{\"b\":2}")));
        let span = streamed(driver, &[function("read", "{\"a\":1}"), function("read", "{\"a\":2}")]);
        assert_eq!(calls(&span, "response"), pair(("read", "{\"a\":1}"), ("read", "{\"a\":2}")));
        // A name that is said with every piece begins nothing.
        let span = streamed(driver, &[function("read", "{\"a\":"), function("read", "\"}\""), function("read", "}"), function("read", "")]);
        assert_eq!(calls(&span, "response"), [("read".to_owned(), "{\"a\":\"}\"}".to_owned())]);
    }

    fn thoughts_in_lists_are_thoughts(driver) {
        let content = json!([{ "type": "thinking", "thinking": [{ "type": "text", "text": "hmm" }] }, { "type": "text", "text": "the answer" }]);
        let document = json!({ "id": "x", "object": "chat.completion", "model": "magistral", "choices": [{ "index": 0, "message": { "role": "assistant", "content": content }, "finish_reason": "stop" }] });
        let whole = span(driver, "/v1/chat/completions", &chat(false), answer_with("application/json", "", &document.to_string()));
        let delta = |delta: Value| chunk(json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] }));
        let stream = streamed(driver, &[
            delta(json!({ "content": [{ "type": "thinking", "thinking": [{ "type": "text", "text": "hmm" }] }] })),
            delta(json!({ "content": "the answer" })),
        ]);
        let listed = streamed(driver, &[delta(json!({ "reasoning_content": ["hmm"] })), delta(json!({ "content": "the answer" }))]);
        for span in [whole, stream, listed] {
            let parts: Vec<&Value> = span["messages"].as_array().unwrap().iter().filter(|it| it["side"] == "response").flat_map(|it| it["parts"].as_array().unwrap()).collect();
            let mut kinds: Vec<(&str, &str)> = parts.iter().map(|part| (part["type"].as_str().unwrap(), part["text"].as_str().unwrap())).collect();
            kinds.sort_unstable();
            assert_eq!(kinds, [("reasoning", "hmm"), ("text", "the answer")], "{span}");
        }
    }

    fn a_refused_prompt_is_no_empty_success(driver) {
        let said = json!({ "promptFeedback": { "blockReason": "PROHIBITED_CONTENT", "blockReasonMessage": "not this" }, "usageMetadata": { "promptTokenCount": 9, "totalTokenCount": 9 } });
        let asked = json!({ "contents": [{ "parts": [{ "text": "hi" }] }] });
        for (path, content_type, body) in [
            ("/v1beta/models/g:generateContent", "application/json", said.to_string()),
            ("/v1beta/models/g:streamGenerateContent?alt=sse", "text/event-stream", events(std::slice::from_ref(&said))),
        ] {
            let span = span(driver, path, &asked, answer_with(content_type, "", &body));
            assert_eq!((&span["finish_reason"], &span["response"]), (&json!("PROHIBITED_CONTENT"), &json!("not this")), "{path}");
            assert_eq!(span["tags"].get("response_incomplete"), None);
        }
        let guarded = json!({ "outputs": [{ "text": "Sorry." }], "amazon-bedrock-guardrailAction": "INTERVENED" });
        let span = span(driver, "/model/m/invoke", &json!({ "prompt": "hi" }), answer_with("application/json", "", &guarded.to_string()));
        assert_eq!(span["finish_reason"], "INTERVENED");
    }

    fn errors_in_a_stream_and_events_under_the_name_of_json_are_read(driver) {
        let hello = chunk(json!({ "choices": [{ "index": 0, "delta": { "content": "hello" }, "finish_reason": null }] }));
        for error in [
            json!({ "object": "error", "message": "out of memory", "type": "InternalServerError", "code": 500 }),
            json!({ "message": "out of memory", "code": "server_error" }),
            json!({ "error": { "message": "out of memory", "code": 500 } }),
            json!({ "error": "out of memory" }),
            json!({ "type": "error", "message": "out of memory" }),
        ] {
            let span = streamed(driver, &[hello.clone(), error.clone()]);
            assert_eq!((&span["error_message"], &span["response"]), (&json!("out of memory"), &json!("hello")), "{error}");
        }
        let usage = chunk(json!({ "choices": [], "usage": { "prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1200 } }));
        let body = events(&[hello, usage]) + "data: [DONE]\n\n";
        let span = span(driver, "/v1/chat/completions", &chat(true), answer_with("application/json", "", &body));
        assert_eq!((used(&span), &span["response"]), ((Some(1000), Some(200), false), &json!("hello")), "{span}");
        assert_eq!(span["tags"].get("unscanned_response"), None);
    }
}
