//! Promise: what is stored is bounded, described where it is no text, and a disk that fills up costs records, never
//! answers; when there is room again recording goes on by itself.

use serde_json::json;

use crate::support::{
    Call, Driver, Setup, SmallDisk, Upstream, call, chat_call, eventually, on_both_drivers, provider,
};

/// A picture of one red point.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";

fn answer_of(content: &str) -> Vec<u8> {
    let body = json!({
        "id": "x", "object": "chat.completion", "model": "fake-large",
        "choices": [{ "index": 0, "message": { "role": "assistant", "content": content }, "finish_reason": "stop" }],
        "usage": { "prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12 },
    })
    .to_string();
    format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        .into_bytes()
}

on_both_drivers! {
    fn a_long_answer_is_cut_in_the_stored_trace_only(driver) {
        let content = "All tides follow the moon. ".repeat(400);
        let upstream = Upstream::always(answer_of(&content));
        let gateway = Setup::new(driver).upstream(upstream.url()).with("max_response_size_bytes: 2000").start();
        let answer = call(gateway.addr, chat_call("How do tides work?").bytes());
        assert_eq!(answer.json()["choices"][0]["message"]["content"], content.as_str(), "the client gets all of it");
        let span = gateway.span_of(&answer);
        let stored = span["response"].as_str().unwrap();
        assert!(content.starts_with(stored) && stored.len() <= 2_000, "{} bytes stored", stored.len());
        assert!(!stored.is_empty());
        assert_eq!(span["tags"]["response_truncated"], "true");
    }

    fn a_picture_is_stored_as_its_hash_and_size(driver) {
        let provider = provider();
        let gateway = Setup::new(driver).upstream(provider.url()).start();
        let parts = json!([
            { "type": "text", "text": "What is in this picture?" },
            { "type": "image_url", "image_url": { "url": format!("data:image/png;base64,{PNG}") } },
        ]);
        let body = json!({ "model": "fake-large", "messages": [{ "role": "user", "content": parts }] });
        let answer = call(gateway.addr, Call::post("/v1/chat/completions", body.to_string()).bytes());
        assert_eq!(answer.status, 200);
        let prompt = gateway.span_of(&answer)["prompt"].as_str().unwrap().to_owned();
        assert!(prompt.contains("What is in this picture?"), "{prompt}");
        assert!(prompt.contains(r#""media_type":"image/png""#) && prompt.contains(r#""bytes":70"#), "{prompt}");
        assert!(prompt.contains(r#""sha256":""#) && !prompt.contains("iVBORw0K"), "{prompt}");
    }
}

/// Text that does not compress well, different each time.
fn noise(seed: u64) -> String {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = String::new();
    while text.len() < 6_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push_str(&format!("{state:x} "));
    }
    text
}

#[test]
fn a_disk_filled_and_freed_fifty_times_costs_no_client_an_error() {
    let Some(disk) = SmallDisk::of_mib(8) else { return };
    let provider = provider();
    let gateway = Setup::new(Driver::Auto)
        .upstream(provider.url())
        .storage(&format!("{{database_path: '{}', max_bytes: 1500000}}", disk.path().join("weir.db").display()))
        .unlimited()
        .with("trace_storage_timeout_ms: 100")
        .with("circuit_breaker: {recovery_timeout_ms: 50}")
        .with("enable_security_analysis: false")
        .with("health_check: {interval_seconds: 1}")
        .start();
    let failures = || gateway.metric("service_storage_operations_total", r#"operation="write_trace",status="error""#);
    let (mut sent, mut noticed) = (0u64, 0);
    for round in 0..50 {
        disk.fill();
        let before = failures();
        // Room that the log already holds can still be written: then what was called is recorded, full disk or not.
        noticed += eventually("the store notices, or records all the same", || {
            let mut last = None;
            for _ in 0..20 {
                sent += 1;
                let answer = call(gateway.addr, chat_call(&noise(sent)).bytes());
                assert_eq!(answer.status, 200, "round {round}: {}", answer.text());
                last = Some(format!("/api/v1/traces/{}", answer.trace_id()));
            }
            if failures() > before {
                return Some(1);
            }
            let recorded = last.is_some_and(|path| call(gateway.addr, Call::get(&path).bytes()).status == 200);
            (recorded && sent.is_multiple_of(400)).then_some(0)
        });
        disk.free();
        eventually("recording goes on", || {
            let answer = call(gateway.addr, chat_call("Is anybody there?").bytes());
            assert_eq!(answer.status, 200, "round {round}");
            let path = format!("/api/v1/traces/{}", answer.trace_id());
            // Not recorded while the breaker is open, and committed a moment later otherwise.
            (0..20).find_map(|_| {
                std::thread::yield_now();
                (call(gateway.addr, Call::get(&path).bytes()).status == 200).then_some(())
            })
        });
    }
    eventually("health says so, too", || (gateway.json("/health")["storage"]["status"] == "connected").then_some(()));
    assert!(noticed >= 25, "the disk was too large to be full for the store: noticed {noticed} times of 50");
    println!("50 times full, noticed {noticed} times, {sent} calls while it was, 0 errors");
}
