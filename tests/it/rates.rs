//! Promise: a call costs what its provider publishes, to the nanodollar: service tiers, what is no text, tools that the provider runs;
//! the record says how the cost came about, and names what has no price.

use serde_json::{Value, json};

use crate::support::{AUTH, Call, Driver, Gateway, Setup, Upstream, call, eventually, on_both_drivers_in_full};

fn span(driver: Driver, path: &str, asked: &Value, said: &Value) -> Value {
    let body = said.to_string();
    let answer =
        format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let upstream = Upstream::always(answer.into_bytes());
    let gateway: Gateway = Setup::new(driver).upstream(upstream.url()).start();
    gateway.span_of(&call(gateway.addr, Call::post(path, asked.to_string()).bytes()))
}

fn chat(model: &str, members: Value, usage: Value) -> Value {
    let mut said = json!({ "id": "x", "object": "chat.completion", "model": model, "usage": usage,
        "choices": [{ "index": 0, "message": { "role": "assistant", "content": "ok" }, "finish_reason": "stop" }] });
    said.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    said
}

fn asked(model: &str) -> Value {
    json!({ "model": model, "messages": [{ "role": "user", "content": "hi" }] })
}

fn nano(span: &Value) -> u64 {
    (span["estimated_cost_usd"].as_f64().unwrap_or_else(|| panic!("no cost: {span}")) * 1e9).round() as u64
}

fn units(span: &Value) -> Vec<(String, f64)> {
    let units = span["cost_breakdown"]["units"].as_array().unwrap_or_else(|| panic!("no breakdown: {span}"));
    units.iter().map(|unit| (unit["unit"].as_str().unwrap().to_owned(), unit["quantity"].as_f64().unwrap())).collect()
}

on_both_drivers_in_full! {
    fn service_tiers_have_their_prices(driver) {
        let usage = json!({ "prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1200, "prompt_tokens_details": { "cached_tokens": 400 } });
        // $1.25 and $10 a million, 0.125 cached; twice that first in line, half of it when there is room.
        for (tier, cost, shown) in [
            ("default", 600 * 1250 + 400 * 125 + 200 * 10_000, "standard"),
            ("priority", 600 * 2500 + 400 * 250 + 200 * 20_000, "priority"),
            ("flex", (600 * 1250 + 400 * 125 + 200 * 10_000) / 2, "flex"),
        ] {
            let said = chat("gpt-5", json!({ "service_tier": tier }), usage.clone());
            let span = span(driver, "/v1/chat/completions", &asked("gpt-5"), &said);
            assert_eq!((nano(&span), &span["cost_breakdown"]["tier"]), (cost, &json!(shown)), "{tier}");
            assert_eq!(span["cost_breakdown"]["source"], "list");
            assert_eq!(units(&span), [("input_tokens".to_owned(), 600.0), ("cache_read_tokens".to_owned(), 400.0), ("output_tokens".to_owned(), 200.0)]);
            assert_eq!(span["tags"].get("unpriced_units"), None);
        }
        // A tier that nobody has priced costs what it costs otherwise, and that is said.
        let said = chat("gpt-3.5-turbo", json!({ "service_tier": "priority" }), json!({ "prompt_tokens": 1000, "completion_tokens": 100 }));
        let span = span(driver, "/v1/chat/completions", &asked("gpt-3.5-turbo"), &said);
        assert_eq!((nano(&span), &span["tags"]["unpriced_units"]), (1000 * 500 + 100 * 1500, &json!("priority")));
    }

    fn no_spelling_of_a_tier_makes_a_call_cheaper_in_silence(driver) {
        let usage = json!({ "prompt_tokens": 1000, "completion_tokens": 200, "total_tokens": 1200 });
        let (standard, twice) = (1000 * 1250 + 200 * 10_000, 2 * (1000 * 1250 + 200 * 10_000));
        for (tier, cost, unpriced) in [
            (json!("PRIORITY"), twice, None),
            (json!("Priority"), twice, None),
            (json!("auto"), standard, None),
            (json!(null), standard, None),
            // What nobody knows costs what it costs otherwise, and that is said.
            (json!("turbo"), standard, Some("unknown_tier")),
            (json!("flex "), standard, Some("unknown_tier")),
            (json!("batch,flex"), standard, Some("unknown_tier")),
        ] {
            let said = chat("gpt-5", json!({ "service_tier": tier }), usage.clone());
            let span = span(driver, "/v1/chat/completions", &asked("gpt-5"), &said);
            assert_eq!((nano(&span), span["tags"].get("unpriced_units").and_then(Value::as_str)), (cost, unpriced), "{tier}");
        }
        // What a client asks for is no tier: the provider says which it was.
        let mut asked_flex = asked("gpt-5");
        asked_flex["service_tier"] = json!("flex");
        let of_client = span(driver, "/v1/chat/completions", &asked_flex, &chat("gpt-5", json!({}), usage.clone()));
        assert_eq!(nano(&of_client), standard);
        // Of two names the last one holds, in a document and in a stream.
        for (first, last, cost) in [("flex", "priority", twice), ("priority", "default", standard), ("flex", "standard", standard), ("priority", "auto", twice)] {
            let chunk = |tier: &str, more: Value| {
                let mut chunk = json!({ "id": "c", "object": "chat.completion.chunk", "model": "gpt-5", "service_tier": tier, "choices": [{ "index": 0, "delta": { "content": "ok" } }] });
                chunk.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                format!("data: {chunk}\n\n")
            };
            let stream = format!("{}{}data: [DONE]\n\n", chunk(first, json!({})), chunk(last, json!({ "usage": usage })));
            let upstream = Upstream::always(format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {}\r\n\r\n{stream}", stream.len()));
            let gateway = Setup::new(driver).upstream(upstream.url()).start();
            let span = gateway.span_of(&call(gateway.addr, Call::post("/v1/chat/completions", asked("gpt-5").to_string()).bytes()));
            assert_eq!(nano(&span), cost, "{first} and then {last}");
        }
    }

    fn a_batch_counts_once_in_the_budgets_of_whoever_fetches_its_results_first(driver) {
        let usage = json!({ "prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100 });
        let line = |id: &str| json!({ "id": id, "custom_id": id, "response": { "status_code": 200, "request_id": "r", "body": chat("gpt-5", json!({}), usage.clone()) }, "error": null });
        let results = format!("{}\n{}\n", line("a"), line("b"));
        let upstream = Upstream::always(format!("HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {}\r\n\r\n{results}", results.len()).into_bytes());
        // One result costs 1000 x 0.625 + 100 x 5 millionths of a dollar.
        let cost = 2.0 * 0.001_125;
        let caps = "cost_caps: {enabled: true, default_budget_caps: [{window: daily, hard_limit_usd: 0.002}], tenant_budget_caps: [{window: daily, hard_limit_usd: 1}]}\n";
        let gateway = Setup::new(driver).unlimited().upstream(upstream.url()).with(AUTH).with(caps).start();
        let tenant = gateway.tenant("one");
        let keys = [gateway.key(&tenant, "operator").1, gateway.key(&tenant, "operator").1];
        let path = "/v1/files/file-1/content";
        let fetch = |key: &str, agent: &str| {
            // A part of the results would be charged as if it were all of them.
            let asked = Call::get(path).key(key).field("X-Service-Agent-ID", agent).field("Range", "bytes=0-9");
            let answer = call(gateway.addr, asked.bytes());
            assert_eq!(answer.status, 200, "{}", answer.text());
        };
        let read = |path: &str| call(gateway.addr, Call::get(path).key(&keys[0]).bytes()).json();
        let spent = |holder: &str| {
            let costs = read(&format!("/api/v1/costs/current{holder}"));
            costs["windows"][0]["current_spend_usd"].as_f64().unwrap_or_else(|| panic!("{costs}"))
        };
        fetch(&keys[0], "ada");
        eventually("the batch is counted", || ((spent("?agent_id=ada") - cost).abs() < 1e-9).then_some(()));
        // By another key, for another agent, and again: it was paid for.
        fetch(&keys[1], "bob");
        fetch(&keys[0], "ada");
        assert!(upstream.wait_for_requests(3).iter().all(|request| request.header("range").is_none()));
        let spans = eventually("three fetches are recorded", || {
            let page = read("/api/v1/spans?limit=50");
            let spans = page["data"].as_array().unwrap().clone();
            (spans.len() >= 3).then_some(spans)
        });
        assert_eq!(spans.iter().filter(|span| span["tags"]["batch"] == "charged_before").count(), 2, "{spans:?}");
        assert!((spent("?agent_id=ada") - cost).abs() < 1e-9 && spent("?agent_id=bob").abs() < 1e-9);
        // It counted although it was more than was left: the agent asks for nothing more today.
        let asked_more = Call::post("/v1/chat/completions", asked("gpt-5").to_string()).key(&keys[0]).field("X-Service-Agent-ID", "ada");
        assert_eq!(call(gateway.addr, asked_more.bytes()).status, 429);
    }

    fn tools_of_the_provider_are_charged(driver) {
        let message = json!({ "id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5-20250929", "content": [{ "type": "text", "text": "ok" }], "stop_reason": "end_turn",
            "usage": { "input_tokens": 1000, "output_tokens": 100, "server_tool_use": { "web_search_requests": 3 } } });
        let asked_messages = json!({ "model": "claude-sonnet-4-5-20250929", "max_tokens": 9, "messages": [{ "role": "user", "content": "hi" }] });
        let searched = span(driver, "/v1/messages", &asked_messages, &message);
        assert_eq!(nano(&searched), 1000 * 3000 + 100 * 15_000 + 3 * 10_000_000);
        assert!(units(&searched).contains(&("web_searches".to_owned(), 3.0)));
        let output = json!([{ "type": "web_search_call", "id": "w", "status": "completed", "action": { "type": "search", "query": "q" } },
            { "type": "file_search_call", "id": "f", "queries": ["q"] }, { "type": "message", "content": [{ "type": "output_text", "text": "ok" }] }]);
        let response = json!({ "id": "r", "object": "response", "status": "completed", "model": "gpt-5", "output": output, "usage": { "input_tokens": 1000, "output_tokens": 100, "total_tokens": 1100 } });
        let searched = span(driver, "/v1/responses", &json!({ "model": "gpt-5", "input": "hi" }), &response);
        assert_eq!(nano(&searched), 1000 * 1250 + 100 * 10_000 + 10_000_000);
        assert_eq!(searched["tags"]["unpriced_units"], "file_searches");
    }

    fn batches_are_charged_once_when_their_results_are_fetched(driver) {
        let usage = json!({ "prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100 });
        let line = |id: &str, model: &str| json!({ "id": id, "custom_id": id, "response": { "status_code": 200, "request_id": "r", "body": chat(model, json!({}), usage.clone()) }, "error": null });
        let results = format!("{}\n{}\n", line("a", "gpt-5"), line("b", "gpt-5-mini"));
        let message = json!({ "type": "message", "role": "assistant", "model": "claude-sonnet-4-5-20250929", "content": [{ "type": "text", "text": "said in a batch" }], "stop_reason": "end_turn", "usage": { "input_tokens": 1000, "output_tokens": 100 } });
        let messages = format!("{}\n", json!({ "custom_id": "a", "result": { "type": "succeeded", "message": message } }));
        // 600 tokens of the first call's 1000 were cached; of its output 20 tokens were thought. 0.15 and 1.25 a million, 0.03 from the cache.
        let gemini = (400 * 150 + 600 * 30 + 120 * 1250) + (1000 * 50 + 100 * 200);
        let generated = |model: &str, usage: Value| json!({ "candidates": [{ "content": { "role": "model", "parts": [{ "text": "said by Gemini" }] }, "finishReason": "STOP" }],
            "modelVersion": model, "usageMetadata": usage, "responseId": model });
        let first = generated("gemini-2.5-flash", json!({ "promptTokenCount": 1000, "cachedContentTokenCount": 600, "candidatesTokenCount": 100, "thoughtsTokenCount": 20, "totalTokenCount": 1120 }));
        let second = generated("gemini-2.5-flash-lite", json!({ "promptTokenCount": 1000, "candidatesTokenCount": 100, "totalTokenCount": 1100 }));
        let inlined = json!({ "inlinedResponses": [{ "response": first, "metadata": { "key": "a" } }, { "response": second, "metadata": { "key": "b" } }] });
        // An operation says all of it twice.
        let operation = serde_json::to_string_pretty(&json!({ "name": "batches/b2",
            "metadata": { "@type": "type.googleapis.com/google.ai.generativelanguage.v1main.GenerateContentBatch", "model": "models/gemini-2.5-flash", "name": "batches/b2",
                "output": { "inlinedResponses": inlined }, "state": "BATCH_STATE_SUCCEEDED" },
            "done": true, "response": { "@type": "type.googleapis.com/google.ai.generativelanguage.v1main.GenerateContentBatchOutput", "inlinedResponses": inlined } })).unwrap();
        let lines = format!("{}\n{}\n", json!({ "key": "a", "response": first }), json!({ "key": "b", "response": second }));
        let other_lines = format!("{{\"response\":{first},\"key\":\"a\"}}\n{{\"response\":{second},\"key\":\"b\"}}\n");
        for (path, content_type, body, cost, words) in [
            // Half of the usual prices: 0.625 and 5, 0.125 and 1 a million.
            ("/v1/files/file-1/content", "application/octet-stream", results, 1000 * 625 + 100 * 5000 + 1000 * 125 + 100 * 1000, "ok"),
            ("/v1/messages/batches/b1/results", "application/x-jsonl", messages, 1000 * 1500 + 100 * 7500, "said in a batch"),
            ("/v1beta/batches/b2", "application/json; charset=UTF-8", operation, gemini, "said by Gemini"),
            ("/v1beta/files/batch-b2:download?alt=media", "application/octet-stream", lines, gemini, "said by Gemini"),
            ("/download/v1beta/files/batch-b3:download?alt=media", "application/json", other_lines, gemini, "said by Gemini"),
        ] {
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            let upstream = Upstream::always(answer.into_bytes());
            let gateway = Setup::new(driver).upstream(upstream.url()).start();
            let first = gateway.span_of(&call(gateway.addr, Call::get(path).bytes()));
            assert_eq!((nano(&first), &first["cost_breakdown"]["tier"]), (cost, &json!("batch")), "{path}: {first}");
            assert!(first["response"].as_str().unwrap().contains(words), "{first}");
            let again = gateway.span_of(&call(gateway.addr, Call::get(path).bytes()));
            assert_eq!((&again["estimated_cost_usd"], &again["prompt_tokens"], &again["tags"]["batch"]), (&Value::Null, &Value::Null, &json!("charged_before")), "{path}");
        }
        let upstream = Upstream::always("HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: 11\r\n\r\nhello there");
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let file = gateway.span_of(&call(gateway.addr, Call::get("/v1/files/file-1/content").bytes()));
        assert_eq!((&file["estimated_cost_usd"], &file["completion_tokens"], file["tags"].get("unpriced_model")), (&Value::Null, &Value::Null, None), "{file}");
    }

    fn sound_pictures_and_seconds_have_their_prices(driver) {
        let usage = json!({ "prompt_tokens": 1000, "completion_tokens": 300, "total_tokens": 1300,
            "prompt_tokens_details": { "audio_tokens": 900, "text_tokens": 100 }, "completion_tokens_details": { "audio_tokens": 200, "text_tokens": 100 } });
        let spoken = span(driver, "/v1/chat/completions", &asked("gpt-4o-audio-preview"), &chat("gpt-4o-audio-preview", json!({}), usage));
        let rate = |unit: &str| spoken["cost_breakdown"]["units"].as_array().unwrap().iter().find(|it| it["unit"] == unit).unwrap_or_else(|| panic!("{unit}: {spoken}"))["usd_per_million"].as_f64().unwrap();
        assert_eq!((rate("input_tokens"), rate("output_tokens")), (2.5, 10.0));
        assert!(rate("input_audio_tokens") > 2.5 && rate("output_audio_tokens") > 10.0);
        let gemini = json!({ "candidates": [{ "content": { "parts": [{ "text": "ok" }] }, "finishReason": "STOP" }], "modelVersion": "gemini-2.5-flash",
            "usageMetadata": { "promptTokenCount": 1000, "candidatesTokenCount": 10, "totalTokenCount": 1010, "promptTokensDetails": [{ "modality": "TEXT", "tokenCount": 100 }, { "modality": "AUDIO", "tokenCount": 900 }] } });
        let heard = span(driver, "/v1beta/models/gemini-2.5-flash:generateContent", &json!({ "contents": [{ "parts": [{ "text": "hi" }] }] }), &gemini);
        // $0.30 for text, $1.00 for sound, $2.50 for what is written.
        assert_eq!(nano(&heard), 100 * 300 + 900 * 1000 + 10 * 2500);
        let drawn = json!({ "created": 1, "data": [{ "b64_json": "iVBORw0KGgo=" }], "usage": { "input_tokens": 50, "output_tokens": 4160, "total_tokens": 4210, "input_tokens_details": { "text_tokens": 50, "image_tokens": 0 } } });
        let drawn = span(driver, "/v1/images/generations", &json!({ "model": "gpt-image-1", "prompt": "a fox" }), &drawn);
        assert_eq!(nano(&drawn), 50 * 5000 + 4160 * 40_000);
        let transcribed = json!({ "text": "hello", "usage": { "type": "duration", "seconds": 8.5 } });
        let transcribed = span(driver, "/v1/audio/transcriptions", &json!({ "model": "whisper-1" }), &transcribed);
        assert_eq!((nano(&transcribed), units(&transcribed)), (850_000, vec![("audio_seconds".to_owned(), 8.5)]));
        let speech = span(driver, "/v1/audio/speech", &json!({ "model": "tts-1", "input": "twenty characters ok", "voice": "alloy" }), &json!({}));
        assert_eq!((nano(&speech), units(&speech)), (20 * 15_000, vec![("characters".to_owned(), 20.0)]));
    }
}
