//! Promise: a call costs what its provider charges for it, to the microdollar, by that provider's own way of counting; what
//! nobody priced has no cost.
//!
//! Every expected figure was worked out by hand from the prices below; the sum stands beside it in microdollars.

use serde_json::{Value, json};

use crate::support::{Answer, Call, Client, Driver, Setup, Upstream, call, on_both_drivers_in_full};

/// Prices in USD per million tokens, the same as microdollars per token. `unit` names no public family, so that the texts
/// of calls without usage are counted by the documented estimate.
const PRICES: &str = "
cost_estimation:
  custom_models:
    unit-gpt: {input_per_million: 2.5, output_per_million: 10, cache_read_per_million: 1.25}
    unit-mini: {input_per_million: 0.15, output_per_million: 0.6, cache_read_per_million: 0.075}
    unit-claude: {input_per_million: 3, output_per_million: 15, cache_read_per_million: 0.3, cache_write_per_million: 3.75,
                  cache_write_1h_per_million: 6}
    unit-gemini: {input_per_million: 1.25, output_per_million: 10, cache_read_per_million: 0.125}
    unit-thinker: {input_per_million: 1, output_per_million: 4, reasoning_per_million: 6}
    unit-embed: {input_per_million: 0.02, output_per_million: 0}
";

/// One call: what is asked, what the provider says, what it costs.
struct Case {
    what: &'static str,
    call: Call,
    answer: Vec<u8>,
    usd: Option<&'static str>,
    estimated: bool,
}

fn ok(content_type: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}

/// An event stream that ends with its connection.
fn stream(events: &[Value], end: &str) -> Vec<u8> {
    let named = |event: &Value| match event["type"].as_str() {
        Some(kind) => format!("event: {kind}\ndata: {event}\n\n"),
        None => format!("data: {event}\n\n"),
    };
    let body: String = events.iter().map(named).collect();
    ok("text/event-stream", &format!("{body}{end}"))
}

fn case(what: &'static str, path: &str, asked: Value, answered: Value, usd: Option<&'static str>) -> Case {
    let call = Call::post(path, asked.to_string());
    Case { what, call, answer: ok("application/json", &answered.to_string()), usd, estimated: false }
}

/// A chat completion of `model` with this usage.
fn chat(what: &'static str, model: &str, usage: Value, usd: &'static str) -> Case {
    let asked = json!({ "model": model, "messages": [{ "role": "user", "content": "hi" }] });
    let answered = json!({ "model": model, "choices": [{ "index": 0, "message": { "role": "assistant", "content": "ho" } }], "usage": usage });
    case(what, "/v1/chat/completions", asked, answered, Some(usd))
}

/// A messages-style call with this usage.
fn messages(what: &'static str, usage: Value, usd: &'static str) -> Case {
    let asked = json!({ "model": "unit-claude", "max_tokens": 9, "messages": [{ "role": "user", "content": "hi" }] });
    let answered = json!({ "type": "message", "role": "assistant", "model": "unit-claude",
        "content": [{ "type": "text", "text": "ho" }], "stop_reason": "end_turn", "usage": usage });
    case(what, "/v1/messages", asked, answered, Some(usd))
}

fn gemini(what: &'static str, usage: Value, usd: &'static str) -> Case {
    let asked = json!({ "contents": [{ "role": "user", "parts": [{ "text": "hi" }] }] });
    let answered = json!({ "candidates": [{ "content": { "parts": [{ "text": "ho" }], "role": "model" }, "index": 0 }],
        "usageMetadata": usage });
    case(what, "/v1beta/models/unit-gemini:generateContent", asked, answered, Some(usd))
}

fn streamed(what: &'static str, path: &str, model: &str, answer: Vec<u8>, usd: &'static str, estimated: bool) -> Case {
    let asked = json!({ "model": model, "stream": true, "max_tokens": 9, "messages": [{ "role": "user", "content": "abcd efg" }] });
    Case { what, call: Call::post(path, asked.to_string()), answer, usd: Some(usd), estimated }
}

fn delta(text: &str) -> Value {
    json!({ "choices": [{ "index": 0, "delta": { "content": text } }] })
}

fn message_start(usage: Value) -> Value {
    json!({ "type": "message_start", "message": { "role": "assistant", "model": "unit-claude", "content": [], "usage": usage } })
}

fn text_delta(text: &str) -> Value {
    json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": text } })
}

fn chat_style() -> Vec<Case> {
    let details = |cached: u32, reasoning: u32| {
        json!({ "prompt_tokens": 1000, "completion_tokens": 900, "total_tokens": 1900,
            "prompt_tokens_details": { "cached_tokens": cached }, "completion_tokens_details": { "reasoning_tokens": reasoning } })
    };
    vec![
        // 1000 × 2.5 + 500 × 10 = 7,500
        chat(
            "plain",
            "unit-gpt",
            json!({ "prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500 }),
            "0.0075",
        ),
        // 600 × 2.5 + 400 × 1.25 + 900 × 10 = 11,000
        chat("cached tokens are a part of the prompt", "unit-gpt", details(400, 0), "0.011"),
        // 1000 × 1.25 + 9,000 = 10,250
        chat("all cached", "unit-gpt", details(1000, 0), "0.01025"),
        // 2,500 + 9,000: reasoning is a part of the completion
        chat("reasoning at the output's price", "unit-gpt", details(0, 800), "0.0115"),
        // 1000 × 1 + 100 × 4 + 800 × 6 = 6,200
        chat("reasoning at its own price", "unit-thinker", details(0, 800), "0.0062"),
        // 10 × 2.5 + (5 + 100) × 10 = 1,075
        chat(
            "reasoning that the total counts beside the completion",
            "unit-gpt",
            json!({ "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 115,
                "completion_tokens_details": { "reasoning_tokens": 100 } }),
            "0.001075",
        ),
        // 100 × 0.15 + 900 × 0.075 + 10 × 0.6 = 88.5
        chat(
            "cache hits beside misses",
            "unit-mini",
            json!({ "prompt_tokens": 1000, "completion_tokens": 10, "total_tokens": 1010,
                "prompt_cache_hit_tokens": 900, "prompt_cache_miss_tokens": 100 }),
            "0.0000885",
        ),
        // 600 × 3 + 400 × 0.3 + 10 × 15 = 2,070
        chat(
            "messages' counters beside prompt_tokens are parts of it",
            "unit-claude",
            json!({ "prompt_tokens": 1000, "completion_tokens": 10, "total_tokens": 1010, "cache_read_input_tokens": 400,
                "cache_creation_input_tokens": 0 }),
            "0.00207",
        ),
        // 400 × 3 + 100 × 0.3 + 500 × 3.75 = 3,105
        chat(
            "written to a cache, within the prompt",
            "unit-claude",
            json!({ "prompt_tokens": 1000, "completion_tokens": 0, "total_tokens": 1000,
                "prompt_tokens_details": { "cached_tokens": 100, "cache_write_tokens": 500 } }),
            "0.003105",
        ),
        // 7 × 0.15 + 3 × 0.6 = 2.85
        case(
            "a legacy completion",
            "/v1/completions",
            json!({ "model": "unit-mini", "prompt": "hi" }),
            json!({ "choices": [{ "text": "ho", "index": 0 }], "usage": { "prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10 } }),
            Some("0.00000285"),
        ),
        // 500 × 2.5 + 1500 × 1.25 + 50 × 10 = 3,625
        case(
            "the responses interface",
            "/v1/responses",
            json!({ "model": "unit-gpt", "input": "hi" }),
            json!({ "object": "response", "status": "completed", "model": "unit-gpt",
                "output": [{ "type": "message", "content": [{ "type": "output_text", "text": "ho" }] }],
                "usage": { "input_tokens": 2000, "input_tokens_details": { "cached_tokens": 1500 }, "output_tokens": 50,
                    "output_tokens_details": { "reasoning_tokens": 20 }, "total_tokens": 2050 } }),
            Some("0.003625"),
        ),
        // 1234 × 0.02 = 24.68
        case(
            "embeddings",
            "/v1/embeddings",
            json!({ "model": "unit-embed", "input": ["hi"] }),
            json!({ "data": [{ "embedding": [0.5], "index": 0 }], "model": "unit-embed", "usage": { "prompt_tokens": 1234, "total_tokens": 1234 } }),
            Some("0.00002468"),
        ),
        // 1 × 0.02
        case(
            "one token to embed",
            "/v1/embeddings",
            json!({ "model": "unit-embed", "input": "h" }),
            json!({ "data": [], "usage": { "prompt_tokens": 1, "total_tokens": 1 } }),
            Some("0.00000002"),
        ),
    ]
}

fn messages_style() -> Vec<Case> {
    vec![
        // 1000 × 3 + 100 × 15 = 4,500
        messages("messages, plain", json!({ "input_tokens": 1000, "output_tokens": 100 }), "0.0045"),
        // 10 × 3 + 1000 × 0.3 + 20 × 15 = 630
        messages(
            "messages, read from the cache beside the input",
            json!({ "input_tokens": 10, "cache_read_input_tokens": 1000, "cache_creation_input_tokens": 0, "output_tokens": 20 }),
            "0.00063",
        ),
        // 30 + 1000 × 3.75 + 300 = 4,080
        messages(
            "messages, written for five minutes",
            json!({ "input_tokens": 10, "cache_creation_input_tokens": 1000, "output_tokens": 20 }),
            "0.00408",
        ),
        // 30 + 400 × 3.75 + 600 × 6 + 300 = 5,430
        messages(
            "messages, written for five minutes and for an hour",
            json!({ "input_tokens": 10, "cache_creation_input_tokens": 1000, "cache_read_input_tokens": 0, "output_tokens": 20,
                "cache_creation": { "ephemeral_5m_input_tokens": 400, "ephemeral_1h_input_tokens": 600 } }),
            "0.00543",
        ),
        // 300 + 2000 × 0.3 + 500 × 3.75 + 300 × 15 = 7,275
        messages(
            "messages, all kinds at once",
            json!({ "input_tokens": 100, "cache_read_input_tokens": 2000, "cache_creation_input_tokens": 500, "output_tokens": 300 }),
            "0.007275",
        ),
    ]
}

fn other_dialects() -> Vec<Case> {
    let bedrock = json!({ "messages": [{ "role": "user", "content": [{ "text": "hi" }] }] });
    vec![
        // 100 × 1.25 + 50 × 10 = 625
        gemini(
            "gemini, plain",
            json!({ "promptTokenCount": 100, "candidatesTokenCount": 50, "totalTokenCount": 150 }),
            "0.000625",
        ),
        // 4 × 1.25 + (5 + 6) × 10 = 115
        gemini(
            "gemini, thoughts beside the candidates",
            json!({ "promptTokenCount": 4, "candidatesTokenCount": 5, "thoughtsTokenCount": 6, "totalTokenCount": 15 }),
            "0.000115",
        ),
        // 200 × 1.25 + 800 × 0.125 + 100 = 450
        gemini(
            "gemini, cached content within the prompt",
            json!({ "promptTokenCount": 1000, "cachedContentTokenCount": 800, "candidatesTokenCount": 10, "totalTokenCount": 1010 }),
            "0.00045",
        ),
        // (100 + 20) × 1.25 + 100 = 250
        gemini(
            "gemini, what tools brought in",
            json!({ "promptTokenCount": 100, "toolUsePromptTokenCount": 20, "candidatesTokenCount": 10, "totalTokenCount": 130 }),
            "0.00025",
        ),
        // 1000 × 3 + 500 × 0.3 + 200 × 3.75 + 100 × 15 = 5,400
        case(
            "bedrock converse, caches beside the input",
            "/model/unit-claude/converse",
            bedrock,
            json!({ "output": { "message": { "role": "assistant", "content": [{ "text": "ho" }] } }, "stopReason": "end_turn",
                "usage": { "inputTokens": 1000, "outputTokens": 100, "totalTokens": 1800, "cacheReadInputTokens": 500,
                    "cacheWriteInputTokens": 200 } }),
            Some("0.0054"),
        ),
        // 40 × 2.5 + 10 × 10 = 200
        case(
            "azure, the model in the path",
            "/openai/deployments/unit-gpt/chat/completions?api-version=1",
            json!({ "messages": [{ "role": "user", "content": "hi" }] }),
            json!({ "choices": [], "usage": { "prompt_tokens": 40, "completion_tokens": 10, "total_tokens": 50 } }),
            Some("0.0002"),
        ),
        // 100 × 0.15 + 20 × 0.6 = 27
        case(
            "a local server's model with a price",
            "/api/chat",
            json!({ "model": "unit-mini", "stream": false, "messages": [{ "role": "user", "content": "hi" }] }),
            json!({ "model": "unit-mini", "message": { "role": "assistant", "content": "ho" }, "done": true,
                "prompt_eval_count": 100, "eval_count": 20 }),
            Some("0.000027"),
        ),
        case(
            "a local server's model without one is free",
            "/api/generate",
            json!({ "model": "llama3.1", "stream": false, "prompt": "hi" }),
            json!({ "model": "llama3.1", "response": "ho", "done": true, "prompt_eval_count": 100, "eval_count": 20 }),
            Some("0"),
        ),
        // The public list: 1000 × 0.15 + 100 × 0.6 = 210
        chat(
            "a public model, dated",
            "gpt-4o-mini-2024-07-18",
            json!({ "prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100 }),
            "0.00021",
        ),
    ]
}

fn streams() -> Vec<Case> {
    let usage = json!({ "choices": [], "usage": { "prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18 } });
    let chat = [delta("abcd"), delta(" efg")];
    let begun = message_start(
        json!({ "input_tokens": 10, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 100, "output_tokens": 1 }),
    );
    let plain = message_start(json!({ "input_tokens": 10, "output_tokens": 1 }));
    let ended =
        json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": 42 } });
    let stop = json!({ "type": "message_stop" });
    let text = text_delta("abcd efg abcd efg");
    let (completions, messages) = ("/v1/chat/completions", "/v1/messages");
    let with_usage = [chat[0].clone(), chat[1].clone(), usage];
    vec![
        // 11 × 2.5 + 7 × 10 = 97.5
        streamed(
            "a stream with its usage",
            completions,
            "unit-gpt",
            stream(&with_usage, "data: [DONE]\n\n"),
            "0.0000975",
            false,
        ),
        // "abcd efg" is 2 tokens by the estimate: 2 × 2.5 + 2 × 10 = 25
        streamed(
            "a stream without usage",
            completions,
            "unit-gpt",
            stream(&chat, "data: [DONE]\n\n"),
            "0.000025",
            true,
        ),
        streamed("a stream that stops half way", completions, "unit-gpt", stream(&chat, ""), "0.000025", true),
        // 10 × 3 + 5 × 3.75 + 100 × 0.3 + 42 × 15 = 708.75
        streamed(
            "a messages stream",
            messages,
            "unit-claude",
            stream(&[begun, text.clone(), ended, stop], ""),
            "0.00070875",
            false,
        ),
        // The count so far is 1, the text is 5 tokens: 10 × 3 + 5 × 15 = 105
        streamed(
            "a messages stream that stops half way",
            messages,
            "unit-claude",
            stream(&[plain, text], ""),
            "0.000105",
            true,
        ),
        // Whatever path it stands on (B-L4): 2 × 2.5 + 2 × 10 = 25, and 97.5 as above
        streamed("a stream on a path nobody knows", "/v9/foo", "unit-gpt", stream(&chat, ""), "0.000025", true),
        streamed("the same with its usage", "/v9/foo", "unit-gpt", stream(&with_usage, ""), "0.0000975", false),
        Case {
            usd: None,
            ..streamed("the same without a price", "/v9/foo", "unheard-of-8", stream(&chat, ""), "", true)
        },
    ]
}

fn without_cost() -> Vec<Case> {
    let usage = json!({ "prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20 });
    let unknown = Case { usd: None, ..chat("a model nobody priced", "unheard-of-9", usage.clone(), "") };
    let body = json!({ "error": { "message": "overloaded" }, "usage": usage }).to_string();
    let answer =
        format!("HTTP/1.1 500 Oops\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let failed =
        Case { answer: answer.into_bytes(), usd: None, ..chat("a failed call", "unit-gpt", usage.clone(), "") };
    let local = Case { usd: None, ..chat("a public name on a server of one's own", "gpt-4o", usage.clone(), "") };
    let local = Case { call: local.call.field("X-Service-Provider", "vllm"), ..local };
    let again =
        json!({ "object": "response", "model": "unit-gpt", "usage": { "input_tokens": 5, "output_tokens": 5 } });
    let looked_up = Case {
        call: Call::get("/v1/responses/resp_1"),
        answer: ok("application/json", &again.to_string()),
        ..case("looking an answer up again", "/", json!({}), json!({}), None)
    };
    vec![unknown, failed, local, looked_up]
}

/// A gateway whose provider gives each case its answer, told by a field of the request.
fn play(driver: Driver, cases: &[Case]) -> Vec<(Answer, Value)> {
    let answers: Vec<Vec<u8>> = cases.iter().map(|case| case.answer.clone()).collect();
    let upstream = Upstream::play(move |peer| {
        while let Some(request) = peer.request() {
            let at = request.header("x-case").and_then(|at| at.parse::<usize>().ok()).unwrap_or_default();
            peer.say(&answers[at]);
        }
    });
    let gateway = Setup::new(driver).upstream(upstream.url()).with(PRICES).unlimited().start();
    let play = |(at, case): (usize, &Case)| {
        let answer = call(gateway.addr, case.call.clone().field("X-Case", &at.to_string()).bytes());
        let span = gateway.span_of(&answer);
        (answer, span)
    };
    let played: Vec<_> = cases.iter().enumerate().map(play).collect();
    let shown = gateway.metric("service_cost_usd_total", "model=\"unit-gpt\"");
    let sum: f64 = played
        .iter()
        .filter(|(_, span)| span["model"] == "unit-gpt")
        .filter_map(|(_, span)| span["estimated_cost_usd"].as_f64())
        .sum();
    // Each is known to the nanodollar; their sum as floating point is not.
    let microdollars = ((sum * 1e9).round() / 1e3).floor();
    assert_eq!(shown, microdollars, "the counter is the sum, in whole microdollars");
    assert_eq!(gateway.metric("service_unpriced_requests_total", "model=\"unheard-of-9\""), 1.0);
    played
}

on_both_drivers_in_full! {
    fn every_dialect_is_priced_by_its_own_way_of_counting(driver) {
        let cases: Vec<Case> =
            [chat_style(), messages_style(), other_dialects(), streams(), without_cost()].into_iter().flatten().collect();
        assert!(cases.len() >= 36, "{}", cases.len());
        for (case, (_, span)) in cases.iter().zip(play(driver, &cases)) {
            let expected = case.usd.map(|usd| usd.parse::<f64>().unwrap());
            assert_eq!(span["estimated_cost_usd"].as_f64(), expected, "{}: {span}", case.what);
            assert_eq!(span["tokens_estimated"], case.estimated, "{}: {span}", case.what);
            if span["model"] == "unheard-of-8" {
                assert_eq!(span["tags"]["unpriced_model"], "true", "{span}");
            }
        }
    }

    fn a_model_without_a_price_is_tagged_and_estimation_can_be_switched_off(driver) {
        let body = r#"{"usage":{"prompt_tokens":10,"completion_tokens":10,"total_tokens":20}}"#;
        let upstream = Upstream::always(ok("application/json", body));
        let asked = |model: &str| {
            let asked = json!({ "model": model, "messages": [{ "role": "user", "content": "hi" }] });
            Call::post("/v1/chat/completions", asked.to_string()).bytes()
        };
        let gateway = Setup::new(driver).upstream(upstream.url()).start();
        let span = gateway.span_of(&call(gateway.addr, asked("unheard-of-9")));
        assert_eq!((&span["estimated_cost_usd"], &span["tags"]["unpriced_model"]), (&Value::Null, &json!("true")));
        let off = Setup::new(driver).upstream(upstream.url()).with("cost_estimation: {enabled: false}").start();
        let span = off.span_of(&call(off.addr, asked("gpt-4o")));
        assert_eq!((&span["estimated_cost_usd"], &span["tags"]["unpriced_model"]), (&Value::Null, &Value::Null));
        assert_eq!((&span["prompt_tokens"], off.metric("service_cost_usd_total", "")), (&json!(10), 0.0));
    }

    // Of two names in a request one may be bait: what the provider says it ran counts where it is dearer (B-H3, B-L2).
    fn where_asked_and_answered_differ_the_dearer_of_two_listed_prices_holds(driver) {
        let upstream = Upstream::play(|peer| {
            while let Some(request) = peer.request() {
                let model = request.header("x-answers").unwrap_or_default();
                let body = json!({ "model": model, "usage": { "prompt_tokens": 1000, "completion_tokens": 100 } });
                peer.say(ok("application/json", &body.to_string()));
            }
        });
        let gateway = Setup::new(driver).upstream(upstream.url()).with(PRICES).unlimited().start();
        // 1,000 and 100 tokens: gpt-4o 1000 × 2.5 + 100 × 10 = 3500, gpt-4o-mini 1000 × 0.15 + 100 × 0.6 = 210,
        // the operator's own unit-mini the same 210
        for (asked, answered, usd) in [
            (r#""model":"gpt-4o-mini""#, "gpt-4o-mini", 0.00021),
            (r#""model":"gpt-4o-mini""#, "gpt-4o", 0.0035),
            (r#""model":"gpt-4o""#, "gpt-4o-mini", 0.0035),
            (r#""model":"gpt-4o","model":"gpt-4o-mini""#, "gpt-4o", 0.0035),
            (r#""model":"unheard-of-9""#, "gpt-4o", 0.0035),
            (r#""model":"gpt-4o""#, "unheard-of-9", 0.0035),
            (r#""model":"unit-mini""#, "gpt-4o", 0.00021),
        ] {
            let body = format!("{{{asked},\"messages\":[]}}");
            let asked_for = Call::post("/v1/chat/completions", body).field("X-Answers", answered);
            let span = gateway.span_of(&call(gateway.addr, asked_for.bytes()));
            assert_eq!(span["estimated_cost_usd"].as_f64(), Some(usd), "{asked} answered by {answered}: {span}");
        }
    }

    fn a_pricing_file_is_read_at_start_and_named_when_it_is_broken(driver) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let price = |input: &str| format!("{{\"house-model\":{{\"input_cost_per_token\":{input},\"output_cost_per_token\":0}}}}");
        std::fs::write(file.path(), price("2e-6")).unwrap();
        let body = r#"{"usage":{"prompt_tokens":10,"completion_tokens":1,"total_tokens":11}}"#;
        let upstream = Upstream::always(ok("application/json", body));
        let gateway = Setup::new(driver)
            .upstream(upstream.url())
            .with(&format!("cost_estimation: {{pricing_file: '{}'}}", file.path().display()))
            .start();
        let mut client = Client::connect(gateway.addr);
        let asked = json!({ "model": "house-model", "messages": [{ "role": "user", "content": "hi" }] });
        client.say(Call::post("/v1/chat/completions", asked.to_string()).bytes());
        assert_eq!(gateway.span_of(&client.answer())["estimated_cost_usd"], 0.00002);

        std::fs::write(file.path(), price("-1")).unwrap();
        let config = gateway.folder().join("service.yaml");
        let start = crate::support::weir(&["--config", config.to_str().unwrap()]).output().unwrap();
        let said = String::from_utf8_lossy(&start.stderr).into_owned();
        assert!(!start.status.success());
        assert!(said.contains("`house-model`: `input_cost_per_token` is -1"), "{said}");
        assert!(said.contains(&file.path().display().to_string()), "{said}");
    }
}
