//! JSON answers that are blocked, and those that are not.

use serde_json::{Value, json};

use super::*;
use crate::support::{Client, call, on_both_drivers_in_full};

fn chat_answer(text: &str) -> String {
    json!({"id": "d", "object": "chat.completion", "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]})
    .to_string()
}

fn messages_answer(text: &str) -> String {
    json!({"id": "d", "type": "message", "role": "assistant", "model": "m", "content": [{"type": "text", "text": text}],
        "stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 1}})
    .to_string()
}

fn document(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn plain_call(path: &str) -> Call {
    let body = if path == "/v1/messages" { messages_body("Hello.") } else { chat_body("Hello.") };
    Call::post(path, body.to_string())
}

on_both_drivers_in_full! {
    fn a_critical_document_becomes_an_error_in_its_dialect(driver) {
        let said = format!("Here it is: {}", private_key());
        for (path, body) in [("/v1/chat/completions", chat_answer(&said)), ("/v1/messages", messages_answer(&said))] {
            let upstream = Upstream::always(document("200 OK", &body));
            let gateway = setup(driver, &upstream, BLOCKING).start();
            let mut client = Client::connect(gateway.addr);
            for _ in 0..2 {
                client.say(plain_call(path).bytes());
                let answer = client.answer();
                assert_eq!((answer.status, answer.keep_alive), (403, true), "{}", answer.text());
                let error = answer.json();
                assert_eq!(error["error"]["type"], "output_safety_blocked", "{error}");
                assert_eq!(error["type"], if path == "/v1/messages" { json!("error") } else { Value::Null });
                let message = error["error"]["message"].as_str().unwrap();
                assert!(message.contains("secret_leakage (Critical)") && message.contains("output_safety.block_on_critical"));
                assert!(!answer.text().contains("BEGIN"), "{}", answer.text());
                assert_eq!(answer.header("x-should-retry").as_deref(), Some("false"));
                let span = gateway.span_of(&answer);
                assert!(has_critical(&span, "secret_leakage"), "{span}");
                assert_eq!((&span["status_code"], &span["tags"]["response_stopped"]), (&json!(403), &json!("replaced")));
            }
        }
    }

    fn what_is_not_critical_is_the_provider_s_own(driver) {
        let calls = json!([{"id": "t", "type": "function", "function": {"name": "bash", "arguments": "{\"command\": \"ls\"}"}}]);
        let tool_call = json!({"choices": [{"index": 0, "message": {"role": "assistant", "tool_calls": calls}}]}).to_string();
        for body in [chat_answer("A private key is kept private."), chat_answer("Write to jane.doe@example.com"), tool_call] {
            let upstream = Upstream::always(document("200 OK", &body));
            let gateway = setup(driver, &upstream, BLOCKING).start();
            let answer = call(gateway.addr, plain_call("/v1/chat/completions").bytes());
            assert_eq!((answer.status, answer.text()), (200, body));
        }
        // An error of the provider's goes on like any answer.
        let body = json!({"error": {"message": "Slow down, please."}}).to_string();
        let upstream = Upstream::always(document("429 Too Many Requests", &body));
        let gateway = setup(driver, &upstream, BLOCKING).start();
        assert_eq!(call(gateway.addr, plain_call("/v1/chat/completions").bytes()).status, 429);
        // Without the switch it is a finding.
        let body = chat_answer(&private_key());
        let upstream = Upstream::always(document("200 OK", &body));
        let gateway = setup(driver, &upstream, "output_safety: {enabled: true}").start();
        let answer = call(gateway.addr, plain_call("/v1/chat/completions").bytes());
        assert_eq!((answer.status, answer.text()), (200, body));
        assert!(has_critical(&gateway.span_of(&answer), "secret_leakage"));
    }

    fn a_dangerous_tool_call_is_blocked(driver) {
        let arguments = json!({"command": "rm -rf /"}).to_string();
        let calls = json!([{"id": "t", "type": "function", "function": {"name": "bash", "arguments": arguments}}]);
        let body = json!({"choices": [{"index": 0, "message": {"role": "assistant", "tool_calls": calls}}]}).to_string();
        let upstream = Upstream::always(document("200 OK", &body));
        let gateway = setup(driver, &upstream, BLOCKING).start();
        let answer = call(gateway.addr, plain_call("/v1/chat/completions").bytes());
        assert_eq!(answer.status, 403, "{}", answer.text());
        assert!(answer.text().contains("dangerous_command (Critical)"), "{}", answer.text());
    }

    fn a_document_longer_than_what_may_wait_passes_and_says_so(driver) {
        let body = chat_answer(&format!("{}{}", "word ".repeat(300_000), private_key()));
        let upstream = Upstream::always(document("200 OK", &body));
        let gateway = setup(driver, &upstream, BLOCKING).start();
        let answer = call(gateway.addr, plain_call("/v1/chat/completions").bytes());
        assert_eq!((answer.status, answer.body.len()), (200, body.len()));
        let span = gateway.span_of(&answer);
        assert_eq!(span["tags"]["untapped_response"], "held_too_much", "{}", span["tags"]);
        let held: usize = span["tags"]["response_held_bytes"].as_str().unwrap().parse().unwrap();
        assert!(held <= 1 << 20, "{held}");
        assert_eq!(gateway.metric("service_dropped_total", "queue=\"output\",reason=\"held_too_much\""), 1.0);
    }

    fn an_analysis_that_takes_too_long_lets_the_answer_pass_and_says_so(driver) {
        let body = chat_answer(&format!("{}{}", "ignore all the words of this ".repeat(30_000), private_key()));
        let upstream = Upstream::always(document("200 OK", &body));
        let gateway = setup(driver, &upstream, BLOCKING).with("security_analysis_timeout_ms: 1").start();
        let answer = call(gateway.addr, plain_call("/v1/chat/completions").bytes());
        assert_eq!((answer.status, answer.body.len()), (200, body.len()));
        assert_eq!(gateway.span_of(&answer)["tags"]["untapped_response"], "analyzer_timeout");
        assert_eq!(gateway.metric("service_dropped_total", "queue=\"output\",reason=\"analyzer_timeout\""), 1.0);
    }
}
