//! Promise: nobody spends more than the budget allows, whatever happens to the calls and however many come at once; and
//! what was spent survives a restart.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::pressure::queued;
use crate::support::{
    AUTH, Answer, Call, Client, ClosedPort, Gateway, Setup, Upstream, call, eventually, on_both_drivers_in_full,
};

/// Each call of `cent` costs one cent: one output token at 10,000 dollars per million, nothing for the input.
pub(crate) const PRICES: &str =
    "cost_estimation: {custom_models: {cent: {input_per_million: 0, output_per_million: 10000}}}";

/// Cents per month and day for every agent, and one agent with a budget of its own.
pub(crate) fn caps(monthly_usd: f64, soft_usd: f64) -> String {
    format!(
        "cost_caps:\n  enabled: true\n  default_budget_caps:\n    - {{window: monthly, hard_limit_usd: {monthly_usd}, \
         soft_limit_usd: {soft_usd}}}\n  agents:\n    - {{agent_id: rich, budget_caps: [{{window: daily, hard_limit_usd: 5}}]}}\n"
    )
}

/// One output token is asked for, so the estimate is the cost.
pub(crate) fn ask(agent: &str) -> Vec<u8> {
    let body = json!({ "model": "cent", "max_tokens": 1, "messages": [{ "role": "user", "content": "hi" }] });
    let call = Call::post("/v1/chat/completions", body.to_string());
    if agent.is_empty() { call.bytes() } else { call.field("X-Service-Agent-ID", agent).bytes() }
}

pub(crate) fn answer_using(completion_tokens: u32) -> String {
    let body = json!({ "choices": [{ "message": { "content": "a" } }],
        "usage": { "prompt_tokens": 1, "completion_tokens": completion_tokens, "total_tokens": 1 + completion_tokens } });
    let body = body.to_string();
    format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// One call that has settled: it does so when its answer has left, which is a moment after the client has it, and what is recorded
/// has settled.
fn settled(gateway: &Gateway, request: impl AsRef<[u8]>) -> Answer {
    let answer = call(gateway.addr, request);
    gateway.trace_of(&answer);
    answer
}

/// How many of `calls` calls in a row are served, each after the one before has settled.
pub(crate) fn served(gateway: &Gateway, agent: &str, calls: usize) -> usize {
    (0..calls).filter(|_| settled(gateway, ask(agent)).status == 200).count()
}

fn refused(answer: &Answer) -> Value {
    assert_eq!(answer.status, 429, "{}", answer.text());
    let error = answer.json()["error"].clone();
    assert_eq!(error["type"], "cost_cap_exceeded");
    assert_eq!(answer.header("x-should-retry").as_deref(), Some("false"));
    error
}

on_both_drivers_in_full! {
    fn a_budget_is_spent_to_the_cent_and_then_refused_per_agent(driver) {
        let upstream = Upstream::always(answer_using(1));
        let gateway = Setup::new(driver).upstream(upstream.url()).with(PRICES).with(&caps(0.03, 0.02)).start();
        let answers: Vec<Answer> = (0..4).map(|_| settled(&gateway, ask(""))).collect();
        assert_eq!(answers.iter().map(|answer| answer.status).collect::<Vec<_>>(), [200, 200, 200, 429]);
        let error = refused(&answers[3]);
        assert_eq!(
            (&error["scope"], &error["window"], &error["limit"], &error["current"], &error["agent_id"]),
            (&json!("budget"), &json!("monthly"), &json!(0.03), &json!(0.03), &json!("_default")),
        );
        assert!(error["message"].as_str().unwrap().contains("`_default` has spent $0.03 of its monthly budget of $0.03"), "{error}");
        let seconds: u64 = answers[3].header("retry-after").unwrap().parse().unwrap();
        assert!((1..=31 * 86_400).contains(&seconds), "{seconds}");
        assert_eq!(upstream.requests().len(), 3, "what is refused is not sent");
        // The refused call is recorded like any other: who hit the cap, and with what.
        let span = gateway.span_of(&answers[3]);
        assert_eq!((&span["model"], &span["prompt"]), (&json!("cent"), &json!("hi")));
        assert_eq!((&span["status_code"], &span["error_type"]), (&json!(429), &json!("cost_cap_exceeded")));
        assert_eq!(span["estimated_cost_usd"], Value::Null);

        // The call that reached the soft limit says so, and only that one.
        let warned = |answer: &Answer| {
            let span = gateway.span_of(answer);
            let findings = span["security_findings"].as_array().unwrap().clone();
            findings.into_iter().find(|finding| finding["finding_type"] == "cost_cap_warning")
        };
        assert_eq!(warned(&answers[0]), None);
        let warning = warned(&answers[1]).unwrap();
        assert_eq!(warning["metadata"], json!({ "scope": "budget", "budget_of": "agent", "agent_id": "_default", "window": "monthly", "limit": "0.02", "current": "0.02" }));
        assert_eq!(warned(&answers[2]), None);

        // Others have budgets of their own.
        assert_eq!(served(&gateway, "another", 4), 3);
        assert_eq!(served(&gateway, "rich", 10), 10);
        let tenant = "X-Service-Tenant-ID: 6f1c2b1e-0d5a-4c6f-9e7b-0d9a4c3b2a10\r\n";
        let elsewhere = String::from_utf8(ask("")).unwrap().replacen("Host:", &format!("{tenant}Host:"), 1);
        assert_eq!(call(gateway.addr, elsewhere).status, 200);
    }

    fn a_request_that_alone_exceeds_its_budget_is_told_what_helps(driver) {
        let upstream = Upstream::always(answer_using(1));
        for (of, setting) in [("agent", "default_budget_caps"), ("tenant", "tenant_budget_caps")] {
            let caps = format!("cost_caps: {{enabled: true, {setting}: [{{window: daily, hard_limit_usd: 0.02}}]}}");
            let gateway = Setup::new(driver).upstream(upstream.url()).with(PRICES).with(&caps).start();
            let ask = |max_tokens: u32| {
                let body = json!({ "model": "cent", "max_tokens": max_tokens, "messages": [{ "role": "user", "content": "hi" }] });
                settled(&gateway, Call::post("/v1/chat/completions", body.to_string()).bytes())
            };
            let answer = ask(3);
            let error = refused(&answer);
            assert_eq!((&error["budget_of"], &error["limit"]), (&json!(of), &json!(0.02)));
            assert_eq!(answer.header("retry-after"), None, "no later moment is better");
            let message = error["message"].as_str().unwrap();
            assert!(message.starts_with("this request may cost $0.03, more than the whole daily budget of $0.02 of "), "{message}");
            assert!(message.contains("waiting does not help") && message.contains("lower `max_tokens`"), "{message}");
            assert_eq!([ask(1).status, ask(1).status], [200, 200], "it has taken nothing from the budget");
            let later = ask(1);
            assert!(refused(&later)["message"].as_str().unwrap().contains("wait until"));
            assert!(later.header("retry-after").is_some());
        }
    }

    fn current_spend_is_shown_per_agent_and_not_at_all_while_caps_are_off(driver) {
        let upstream = Upstream::always(answer_using(1));
        let caps = "cost_caps:\n  enabled: true\n  default_token_cap: {max_total_tokens: 9000}\n  default_budget_caps:\n    \
                    - {window: monthly, hard_limit_usd: 0.08, soft_limit_usd: 0.04}\n    - {window: weekly, hard_limit_usd: 1}\n";
        let gateway = Setup::new(driver).upstream(upstream.url()).with(PRICES).with(caps).start();
        assert_eq!(served(&gateway, "a/b c", 3), 3);
        let shown = eventually("three calls are settled", || {
            let shown = gateway.json("/api/v1/costs/current?agent_id=a%2Fb%20c");
            (shown["windows"][0]["current_spend_usd"] == 0.03).then_some(shown)
        });
        let resets: Vec<Value> = [0, 1].map(|at| shown["windows"][at]["resets_at"].clone()).to_vec();
        assert_eq!(shown, json!({
            "tenant_id": "00000000-0000-0000-0000-000000000000",
            "agent_id": "a/b c",
            "windows": [
                { "window": "weekly", "current_spend_usd": 0.03, "reserved_usd": 0.0, "hard_limit_usd": 1.0,
                    "soft_limit_usd": null, "utilization_pct": 3.0, "resets_at": resets[0] },
                { "window": "monthly", "current_spend_usd": 0.03, "reserved_usd": 0.0, "hard_limit_usd": 0.08,
                    "soft_limit_usd": 0.04, "utilization_pct": 37.5, "resets_at": resets[1] },
            ],
            "tenant_windows": [],
            "token_cap": { "max_prompt_tokens": null, "max_completion_tokens": null, "max_total_tokens": 9000 },
        }));
        assert!(resets[0].as_str().unwrap().ends_with("T00:00:00.000000Z"), "{resets:?}");
        assert!(resets[1].as_str().unwrap().ends_with("-01T00:00:00.000000Z"), "{resets:?}");
        let nobody = gateway.json("/api/v1/costs/current");
        assert_eq!((&nobody["agent_id"], &nobody["windows"][0]["current_spend_usd"]), (&json!("_default"), &json!(0.0)));

        let off = Setup::new(driver).upstream(upstream.url()).start();
        let answer = call(off.addr, "GET /api/v1/costs/current HTTP/1.1\r\nHost: weir\r\n\r\n");
        assert_eq!((answer.status, &answer.json()["error"]["type"]), (404, &json!("not_found")));
        let answer = call(gateway.addr, "GET /api/v1/costs/current?agent=a HTTP/1.1\r\nHost: weir\r\n\r\n");
        assert_eq!(answer.status, 400, "{}", answer.text());
    }

    fn caps_are_switched_while_traffic_flows(driver) {
        let upstream = Upstream::always(answer_using(1));
        let gateway =
            Setup::new(driver).upstream(upstream.url()).with(PRICES).with(&caps(0.01, 1.0).replace("enabled: true", "enabled: false")).start();
        let switch = |on: bool| {
            let body = json!({ "cost_caps_enabled": on }).to_string();
            let head = "PUT /api/v1/config/features HTTP/1.1\r\nHost: weir\r\nContent-Type: application/json\r\n";
            let answer = call(gateway.addr, format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()));
            assert_eq!(answer.status, 200, "{}", answer.text());
        };
        assert_eq!(served(&gateway, "a", 3), 3);
        switch(true);
        assert_eq!(served(&gateway, "a", 3), 1, "what was spent while caps were off does not count");
        switch(false);
        assert_eq!(served(&gateway, "a", 3), 3);
        switch(true);
        assert_eq!(served(&gateway, "a", 1), 0);
    }

    fn what_was_spent_survives_a_stop_and_a_kill(driver) {
        let upstream = Upstream::always(answer_using(1));
        let mut gateway = Setup::new(driver).upstream(upstream.url()).with(PRICES).with(&caps(0.03, 1.0)).start();
        assert_eq!(served(&gateway, "a", 1), 1);
        gateway.terminate();
        assert!(gateway.wait().success());
        gateway.restart();
        assert_eq!(served(&gateway, "a", 1), 1);
        eventually("spend is written down", || {
            (gateway.metric("service_storage_operations_total", "operation=\"write_spend\",status=\"success\"") > 0.0).then_some(())
        });
        gateway.kill();
        gateway.restart();
        assert_eq!(served(&gateway, "a", 3), 1, "two of three cents were spent before");
    }

    fn a_call_that_fails_gives_its_reservation_back(driver) {
        let upstream = Upstream::play(|peer| {
            while let Some(request) = peer.request() {
                match request.header("x-fate") {
                    Some("error") => peer.say("HTTP/1.1 500 Oops\r\nContent-Length: 2\r\n\r\n{}"),
                    Some("cut") => return,
                    _ => peer.say(answer_using(1)),
                }
            }
        });
        let closed = ClosedPort::new();
        let gateway = Setup::new(driver).upstream(upstream.url()).with(PRICES).with(&caps(0.02, 1.0)).start();
        let fated = |fate: &str| String::from_utf8(ask("a")).unwrap().replacen("Host:", &format!("X-Fate: {fate}\r\nHost:"), 1);
        for (fate, status) in [("error", 500), ("cut", 502)] {
            for _ in 0..5 {
                assert_eq!(settled(&gateway, fated(fate)).status, status);
            }
        }
        assert_eq!(served(&gateway, "a", 5), 2);
        let nobody = Setup::new(driver).upstream(format!("http://{}", closed.addr)).with(PRICES).with(&caps(0.02, 1.0)).start();
        let statuses: Vec<u16> = (0..5).map(|_| settled(&nobody, ask("a")).status).collect();
        assert_eq!(statuses, [502; 5]);
    }

    fn a_call_that_nobody_waits_for_any_more_costs_its_estimate(driver) {
        let upstream = Upstream::play(|peer| {
            peer.request();
            peer.wait_closed();
        });
        let setup = Setup::new(driver).upstream(upstream.url()).with(PRICES).with(&caps(0.02, 1.0));
        let gateway = setup.with("timeout_ms: 100").start();
        let statuses: Vec<u16> = (0..4).map(|_| settled(&gateway, ask("a")).status).collect();
        assert_eq!(statuses, [504, 504, 429, 429], "two estimates fit the budget");
        let mut client = Client::connect(gateway.addr);
        // Another agent, whose client leaves.
        client.say(ask("b"));
        upstream.wait_for_requests(3);
        drop(client);
        eventually("its estimate is spent", || {
            let shown = gateway.json("/api/v1/costs/current?agent_id=b");
            (shown["windows"][0]["current_spend_usd"] == 0.01 && shown["windows"][0]["reserved_usd"] == 0.0).then_some(())
        });
    }

    fn an_answer_dearer_than_its_estimate_is_charged_in_full(driver) {
        let upstream = Upstream::always(answer_using(4));
        let gateway = Setup::new(driver).upstream(upstream.url()).with(PRICES).with(&caps(0.05, 1.0)).start();
        // The estimate is one cent, the answer costs four: the second call still has room for its estimate.
        assert_eq!(served(&gateway, "a", 4), 2);
        let error = refused(&call(gateway.addr, ask("a")));
        assert_eq!(error["current"], 0.08);
    }

    fn token_caps_refuse_what_asks_for_more_and_flag_what_used_more(driver) {
        let upstream = Upstream::always(answer_using(60));
        let caps = "cost_caps:\n  enabled: true\n  default_token_cap: {max_prompt_tokens: 100, max_completion_tokens: 50}\n  \
                    agents:\n    - {agent_id: free, token_cap: {}}\n";
        let gateway = Setup::new(driver).upstream(upstream.url()).with(caps).start();
        let asked = |text: &str, max_tokens: Value, agent: &str| {
            let body = json!({ "model": "m", "max_tokens": max_tokens, "messages": [{ "role": "user", "content": text }] });
            call(gateway.addr, Call::post("/v1/chat/completions", body.to_string()).field("X-Service-Agent-ID", agent).bytes())
        };
        let long = "words ".repeat(200);
        let answer = asked(&long, json!(10), "a");
        let error = refused(&answer);
        let span = gateway.span_of(&answer);
        assert_eq!((&span["model"], &span["prompt"]), (&json!("m"), &json!(long)));
        assert_eq!((&error["scope"], &error["cap"], &error["limit"]), (&json!("tokens"), &json!("max_prompt_tokens"), &json!(100)));
        let error = refused(&asked("hi", json!(51), "a"));
        assert_eq!((&error["cap"], &error["limit"], &error["current"]), (&json!("max_completion_tokens"), &json!(50), &json!(51)));
        assert_eq!(upstream.requests().len(), 0);
        assert_eq!(asked(&long, json!(51), "free").status, 200);
        // Without a bound of its own the request goes out, and the answer is looked at.
        let answer = asked("hi", Value::Null, "a");
        let span = gateway.span_of(&answer);
        assert_eq!((answer.status, &span["tags"]["token_cap_exceeded"]), (200, &json!("max_completion_tokens")));
        assert_eq!(span["security_findings"][0]["finding_type"], "cost_cap_warning");
    }

    fn every_dialect_and_path_is_held_to_the_same_budget(driver) {
        let upstream = Upstream::always(answer_using(1));
        let gateway = Setup::new(driver).upstream(upstream.url()).with(PRICES).with(&caps(0.02, 1.0)).start();
        let body = json!({ "model": "cent", "max_tokens": 1, "stream": false, "prompt": "hi", "input": "hi",
            "messages": [{ "role": "user", "content": "hi" }] }).to_string();
        let generate = json!({ "contents": [], "generationConfig": { "maxOutputTokens": 1 }, "inferenceConfig": { "maxTokens": 1 } }).to_string();
        let calls = [
            ("/v1/chat/completions", &body), ("/v1/messages", &body), ("/api/chat", &body), ("/v1/responses", &body),
            ("/v1/completions", &body), ("/some/other/path", &body), ("/v1beta/models/cent:generateContent", &generate),
            ("/model/cent/converse", &generate),
        ];
        for (at, (path, body)) in calls.into_iter().enumerate() {
            let agent = format!("agent-{at}");
            let call = |bytes: Vec<u8>| settled(&gateway, bytes).status;
            let asked = Call::post(path, body.as_bytes()).field("X-Service-Agent-ID", &agent);
            let statuses = [call(asked.bytes()), call(asked.chunked(7)), call(asked.bytes())];
            assert_eq!(statuses, [200, 200, 429], "{path}");
        }
    }

    // What a stream on a path nobody knows says is a model's text, and is charged (B-L4).
    fn a_stream_on_an_unknown_path_uses_up_the_budget(driver) {
        let events = r#"data: {"choices":[{"delta":{"content":"one two three four five"}}]}"#;
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
        let upstream = Upstream::always(format!("{head}Content-Length: {}\r\n\r\n{events}\n\n", events.len() + 2));
        let gateway = Setup::new(driver).upstream(upstream.url()).with(PRICES).with(&caps(0.04, 1.0)).start();
        let body = json!({ "model": "cent", "max_tokens": 1, "stream": true, "prompt": "hi" }).to_string();
        let ask = || call(gateway.addr, Call::post("/v9/foo", body.clone()).bytes());
        assert_eq!(ask().status, 200);
        // More than four tokens of a cent each.
        eventually("the stream is charged", || {
            let spent = gateway.json("/api/v1/costs/current")["windows"][0]["current_spend_usd"].as_f64();
            (spent > Some(0.04)).then_some(())
        });
        refused(&ask());
    }

    // A client's word on the model is worth nothing where the path names it, and its method changes no price (B-H3, B-L3).
    fn the_path_s_model_is_charged_under_every_method_that_brings_a_body(driver) {
        let upstream = Upstream::always(answer_using(1));
        let prices = "cost_estimation: {custom_models: {cent: {input_per_million: 0, output_per_million: 10000}, \
                      grain: {input_per_million: 0, output_per_million: 0}}}";
        let gateway = Setup::new(driver).upstream(upstream.url()).with(prices).with(&caps(0.02, 1.0)).start();
        let asking_for = |model: &str| {
            json!({ "model": model, "max_tokens": 1, "messages": [{ "role": "user", "content": "hi" }] }).to_string()
        };
        let calls = [
            ("POST", "/openai/deployments/cent/chat/completions", "grain"),
            ("POST", "/model/cent/converse", "grain"),
            ("POST", "/v1beta/models/cent:generateContent", "grain"),
            ("PUT", "/v1/chat/completions", "cent"),
            ("PATCH", "/v1/messages", "cent"),
        ];
        for (at, (method, path, model)) in calls.into_iter().enumerate() {
            let agent = format!("agent-{at}");
            let asked = Call::with_method(method, path, asking_for(model)).field("X-Service-Agent-ID", &agent).bytes();
            let statuses = [(); 3].map(|()| settled(&gateway, &asked).status);
            assert_eq!(statuses, [200, 200, 429], "{method} {path}");
        }
    }

    // Nobody buys free calls by filling the memory for bodies, and slow bodies give it back (A-H1).
    fn calls_cost_what_they_cost_while_the_memory_for_bodies_is_full(driver) {
        let body = json!({ "choices": [{ "message": { "content": "word ".repeat(20_000) } }],
            "usage": { "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 } }).to_string();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        let upstream = Upstream::always(head + &body);
        let gateway = Setup::new(driver).upstream(upstream.url()).with(PRICES).with(&caps(0.03, 1.0)).server("max_body_memory_bytes: 1048576").start();
        // A sixteenth is kept for the API, and a held byte counts twice.
        let held = 475_000;
        let mut slow = Client::connect(gateway.addr);
        let mut sent = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: weir\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            held + 60
        ).into_bytes();
        sent.resize(sent.len() + held, b' ');
        slow.say(&sent);
        let client = slow.stream.local_addr().unwrap();
        eventually("all of it has been read", || (queued(client, gateway.addr) == 0).then_some(()));
        let longer = Call::post("/v1/chat/completions", " ".repeat(20_000)).bytes();
        assert_eq!(call(gateway.addr, longer).status, 503, "the memory is full");
        let answers: Vec<u16> = (0..5).map(|_| call(gateway.addr, ask("")).status).collect();
        assert_eq!(answers, [200, 200, 200, 429, 429]);
        let spans = gateway.json("/api/v1/spans?limit=10");
        assert!(spans["data"].is_array(), "the API has room of its own: {spans}");
        assert_eq!(slow.answer().status, 408, "who holds it and sends nothing gives it back");
        let record = eventually("the calls are recorded", || {
            let spans = gateway.json("/api/v1/spans?limit=10")["data"].clone();
            spans.as_array().unwrap().iter().find(|span| span["model"] == "cent" && span["tags"]["unscanned_response"] == "truncated").cloned()
        });
        assert_eq!((&record["completion_tokens"], &record["estimated_cost_usd"]), (&json!(1), &json!(0.01)));
        let truncated = gateway.metric("service_unread_total", "direction=\"response\",reason=\"truncated\"");
        assert!(truncated > 2.5, "{truncated}");
    }

    fn sixty_four_connections_at_once_never_exceed_budget_and_rate(driver) {
        let upstream = Upstream::always(answer_using(1));
        let rate = "rate_limiting: {requests_per_second: 1, burst_size: 500}";
        let gateway = Setup::new(driver).upstream(upstream.url()).with(PRICES).with(&caps(1.0, 9.0)).with(rate).start();
        let started = std::time::Instant::now();
        let (served, capped, limited) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..64 {
                scope.spawn(|| {
                    let mut client = Client::connect(gateway.addr);
                    for _ in 0..10 {
                        client.say(ask("a"));
                        let answer = client.answer();
                        let counter = match (answer.status, answer.header("x-should-retry").is_some()) {
                            (200, _) => &served,
                            (429, true) => &capped,
                            (429, false) => &limited,
                            (other, _) => panic!("{other}: {}", answer.text()),
                        };
                        counter.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        let [served, capped, limited] = [served, capped, limited].map(AtomicUsize::into_inner);
        let refilled = started.elapsed().as_secs() as usize + 1;
        assert_eq!(served, 100, "one dollar is a hundred calls of a cent");
        assert_eq!(upstream.requests().len(), 100);
        assert!(served + capped <= 500 + refilled, "{served} + {capped} passed the rate limit in {refilled} s");
        assert_eq!(served + capped + limited, 640);
        let counted = || gateway.metric("service_cost_usd_total", "model=\"cent\"");
        eventually("all of them are counted", || (counted() >= 1e6).then_some(()));
        assert_eq!(counted(), 1e6);
    }

    fn a_restart_in_the_middle_of_the_rush_costs_no_cent_of_the_budget(driver) {
        let upstream = Upstream::always(answer_using(1));
        let mut gateway =
            Setup::new(driver).upstream(upstream.url()).with(PRICES).with(&caps(3.0, 9.0)).unlimited().start();
        let addr = Mutex::new(gateway.addr);
        let (refused, done) = (AtomicUsize::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        let to = *addr.lock().unwrap();
                        let Some(mut client) = Client::try_connect(to) else {
                            // Between the two processes nobody listens; the CPU is the new one's.
                            std::thread::sleep(std::time::Duration::from_millis(5));
                            continue;
                        };
                        if client.try_say(ask("a")) && client.answer_to("POST").is_ok_and(|answer| answer.status == 429) {
                            refused.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            eventually("a part of the budget is spent", || (upstream.requests().len() > 30).then_some(()));
            gateway.terminate();
            assert!(gateway.wait().success());
            let is_left = upstream.requests().len() < 300;
            // Whoever asks would never end.
            done.store(!is_left, Ordering::Relaxed);
            assert!(is_left, "there is something left for the second process");
            refused.store(0, Ordering::Relaxed);
            gateway.restart();
            *addr.lock().unwrap() = gateway.addr;
            eventually("the rest is spent", || (refused.load(Ordering::Relaxed) > 100).then_some(()));
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(upstream.requests().len(), 300, "three dollars are three hundred calls of a cent, before and after");
    }

    fn fresh_agent_names_buy_nothing_from_the_tenant_s_budget(driver) {
        let upstream = Upstream::always(answer_using(1));
        let caps = "cost_caps:\n  enabled: true\n  tenant_budget_caps:\n    \
                    - {window: monthly, hard_limit_usd: 0.03, soft_limit_usd: 0.02}\n";
        let mut gateway = Setup::new(driver).upstream(upstream.url()).with(PRICES).with(caps).start();
        let fresh = |gateway: &Gateway, from: usize, to: usize| -> Vec<Answer> {
            (from..to).map(|at| settled(gateway, ask(&format!("agent-{at}")))).collect()
        };
        let first = fresh(&gateway, 0, 2);
        assert_eq!(first.iter().map(|answer| answer.status).collect::<Vec<_>>(), [200, 200]);
        let span = gateway.span_of(&first[1]);
        assert_eq!(span["security_findings"][0]["metadata"]["budget_of"], "tenant", "the soft limit is the tenant's");
        gateway.terminate();
        assert!(gateway.wait().success());
        gateway.restart();
        let later = fresh(&gateway, 2, 5);
        assert_eq!(later.iter().map(|answer| answer.status).collect::<Vec<_>>(), [200, 429, 429]);
        let error = refused(&later[2]);
        let tenant = "00000000-0000-0000-0000-000000000000";
        assert_eq!(
            (&error["scope"], &error["budget_of"], &error["tenant_id"], &error["limit"], &error["current"]),
            (&json!("budget"), &json!("tenant"), &json!(tenant), &json!(0.03), &json!(0.03)),
        );
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("over all its agents, has spent $0.03") && message.contains("tenant_budget_caps"), "{message}");
        let shown = gateway.json("/api/v1/costs/current?agent_id=agent-0");
        assert_eq!((&shown["windows"], &shown["tenant_windows"][0]["current_spend_usd"]), (&json!([]), &json!(0.03)));
        let elsewhere = "X-Service-Tenant-ID: 6f1c2b1e-0d5a-4c6f-9e7b-0d9a4c3b2a10\r\n";
        let elsewhere = String::from_utf8(ask("a")).unwrap().replacen("Host:", &format!("{elsewhere}Host:"), 1);
        assert_eq!(call(gateway.addr, elsewhere).status, 200, "another tenant has a budget of its own");

        let gone = call(gateway.addr, Call::delete(&format!("/api/v1/tenants/{tenant}")).bytes());
        assert_eq!(gone.status, 204, "{}", gone.text());
        assert_eq!(call(gateway.addr, ask("agent-9")).status, 200, "its spend went with the tenant");
    }

    fn a_client_s_provider_header_changes_the_label_and_no_price(driver) {
        let upstream = Upstream::always(answer_using(1));
        // Each call is expected to cost 22.5 millionths of a dollar, and costs 12.5.
        let caps = "cost_caps: {enabled: true, default_budget_caps: [{window: monthly, hard_limit_usd: 0.00004}]}";
        let statuses = |trusted: bool, provider: &str| {
            let trust = format!("cost_estimation: {{trust_provider_header: {trusted}}}");
            let gateway = Setup::new(driver).upstream(upstream.url()).with(AUTH).with(caps).with(&trust).start();
            let body = json!({ "model": "gpt-4o", "max_tokens": 1, "messages": [{ "role": "user", "content": "hi" }] });
            let asked = Call::post("/v1/chat/completions", body.to_string());
            let asked = if provider.is_empty() { asked } else { asked.field("X-Service-Provider", provider) };
            // A call settles when its answer has left, which is a moment after the client has it: what is recorded has settled.
            let recorded = |answer: &Answer| {
                let path = format!("/api/v1/traces/{}", answer.trace_id());
                eventually("the call is recorded", || {
                    let answer = gateway.admin(Call::get(&path));
                    (answer.status == 200).then(|| answer.json()["spans"][0].clone())
                })
            };
            let calls: Vec<(u16, Value)> = (0..4)
                .map(|_| gateway.admin(asked.clone()))
                .map(|answer| (answer.status, recorded(&answer)))
                .collect();
            let span = &calls[0].1;
            (calls.iter().map(|(status, _)| *status).collect::<Vec<_>>(), span["provider"].clone(), span["estimated_cost_usd"].clone())
        };
        let held = vec![200, 200, 429, 429];
        for (provider, label) in [("", "openai"), ("ollama", "ollama"), ("vllm", "vllm"), ("my-own", "my-own")] {
            assert_eq!(statuses(false, provider), (held.clone(), json!(label), json!(0.0000125)), "{provider}");
        }
        assert_eq!(statuses(true, "ollama"), (vec![200; 4], json!("ollama"), json!(0.0)));
    }

    fn a_tunnel_is_not_opened_once_the_budget_is_used_up(driver) {
        let upstream = Upstream::play(|peer| {
            while let Some(request) = peer.request() {
                if request.header("upgrade").is_some() {
                    let switched = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n";
                    return peer.say(format!("{switched}Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"));
                }
                peer.say(answer_using(1));
            }
        });
        let gateway = Setup::new(driver).upstream(upstream.url()).with(PRICES).with(&caps(0.02, 1.0)).start();
        let handshake = "GET /v1/realtime HTTP/1.1\r\nHost: weir\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
            Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        assert_eq!(served(&gateway, "", 1), 1);
        let mut tunnel = Client::connect(gateway.addr);
        tunnel.say(handshake);
        let head = tunnel.read_until(|bytes| bytes.ends_with(b"\r\n\r\n"));
        assert!(head.starts_with(b"HTTP/1.1 101 "), "half of the budget is left: {}", String::from_utf8_lossy(&head));
        assert_eq!(served(&gateway, "", 2), 1);
        let error = refused(&call(gateway.addr, handshake));
        assert_eq!((&error["scope"], &error["current"]), (&json!("budget"), &json!(0.02)));
        assert_eq!(served(&gateway, "rich", 1), 1, "another agent's budget is its own");
    }

    fn a_tunnel_is_not_opened_where_its_budget_has_no_room_for_one_answer(driver) {
        let upstream = Upstream::always(answer_using(1));
        let gateway = Setup::new(driver).upstream(upstream.url()).with(PRICES).with(&caps(0.02, 1.0)).start();
        let handshake = |target: &str| {
            format!(
                "GET {target} HTTP/1.1\r\nHost: weir\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            )
        };
        // Thousands of tokens, at a cent each, are counted for an answer that nobody bounds.
        let error = refused(&call(gateway.addr, handshake("/v1/realtime?model=cent")));
        assert_eq!((&error["scope"], &error["current"]), (&json!("budget"), &json!(0.0)));
        assert_eq!(upstream.requests().len(), 0);
        assert_eq!(call(gateway.addr, handshake("/v1/realtime?model=unpriced")).status, 200, "nobody can say");
    }
}
