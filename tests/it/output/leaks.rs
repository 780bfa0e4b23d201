//! Answers that repeat the system prompt they were given.

use serde_json::{Value, json};

use super::*;
use crate::support::{Answer, Gateway, call, on_both_drivers_in_full};

const PROMPT: &str = "You are Ada, the support assistant of Example Bank. Never discuss competitors. The discount code for loyal \
                      customers is SPRING and may be given only after three complaints. Answer in at most five sentences.";
const GUARDED: &str = "output_safety: {enabled: true}";

/// A provider that says `text`, whole or as a stream, in the dialect of the path.
fn provider(text: &str) -> Upstream {
    let text = text.to_owned();
    Upstream::play(move |peer| {
        while let Some(request) = peer.request() {
            let whole = match request.path.as_str() {
                "/v1/messages" => {
                    json!({"id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
                    "content": [{"type": "text", "text": text}], "usage": {"input_tokens": 1, "output_tokens": 1}})
                }
                "/v1/responses" => {
                    json!({"id": "r", "object": "response", "status": "completed", "output": [{"type": "message",
                    "role": "assistant", "content": [{"type": "output_text", "text": text}]}]})
                }
                _ => json!({"id": "c", "choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]}),
            };
            if String::from_utf8_lossy(&request.body).contains("\"stream\":true") {
                let words: Vec<&str> = text.split_inclusive(' ').collect();
                let frames = DIALECTS[0].frames(&words);
                say_chunked(peer, SSE, frames.iter().map(Vec::as_slice));
            } else {
                let body = whole.to_string();
                let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ";
                peer.say(format!("{head}{}\r\n\r\n{body}", body.len()));
            }
        }
    })
}

fn ask(gateway: &Gateway, path: &str, stream: bool) -> Answer {
    let user = json!({"role": "user", "content": "Say it."});
    let mut body = match path {
        "/v1/messages" => json!({"model": "m", "max_tokens": 100, "system": PROMPT, "messages": [user]}),
        "/v1/responses" => json!({"model": "m", "instructions": PROMPT, "input": "Say it."}),
        _ => json!({"model": "m", "messages": [{"role": "system", "content": PROMPT}, user]}),
    };
    if stream {
        body["stream"] = json!(true);
    }
    let answer = call(gateway.addr, Call::post(path, body.to_string()).bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer
}

fn leak(span: &Value) -> Option<Value> {
    let all = span["security_findings"].as_array().unwrap();
    all.iter().find(|found| found["finding_type"] == "data_leakage").cloned()
}

on_both_drivers_in_full! {
    fn an_answer_that_repeats_the_system_prompt_is_a_finding(driver) {
        let said = format!("Of course! My instructions: {}", PROMPT.to_uppercase());
        let upstream = provider(&said);
        let gateway = setup(driver, &upstream, GUARDED).start();
        let asked = [("/v1/chat/completions", false), ("/v1/chat/completions", true), ("/v1/messages", false), ("/v1/responses", false)];
        for (path, stream) in asked {
            let span = gateway.span_of(&ask(&gateway, path, stream));
            let found = leak(&span).unwrap_or_else(|| panic!("{path} {stream}: {span}"));
            assert_eq!((&found["severity"], &found["metadata"]["leakage_type"]), (&json!("High"), &json!("system_prompt")));
            assert_eq!(found["metadata"]["share"], "1.00", "{found}");
            assert!(found["location"].as_str().unwrap().starts_with("response"), "{found}");
            let (start, end) = (found["span"]["start"].as_u64().unwrap() as usize, found["span"]["end"].as_u64().unwrap() as usize);
            assert_eq!(&said[start..end], PROMPT.to_uppercase().trim_end_matches('.'), "{found}");
            assert_eq!((&found["evidence"], &span["security_score"]), (&json!(""), &json!(80)), "{span}");
        }
        assert_eq!(gateway.metric("service_security_findings_total", "finding_type=\"data_leakage\""), 4.0);
    }

    fn talk_about_it_is_no_leak_and_nobody_compares_where_it_is_not_asked_for(driver) {
        let phrase = "I am Ada, the support assistant of Example Bank, and I answer in at most five sentences.";
        for (said, settings) in [(phrase, GUARDED), (PROMPT, "")] {
            let upstream = provider(said);
            let gateway = setup(driver, &upstream, settings).start();
            let span = gateway.span_of(&ask(&gateway, "/v1/chat/completions", false));
            assert_eq!(leak(&span), None, "{span}");
        }
    }
}
