//! Gemini streams that come as one JSON array: its elements are the messages, and it ends as an array.

use serde_json::{Value, json};

use super::*;
use crate::support::{Client, call, on_both_drivers_in_full};

const PATH: &str = "/v1beta/models/m:streamGenerateContent";
const JSON: &str = "Content-Type: application/json; charset=UTF-8";

fn element(text: &str) -> Value {
    json!({"candidates": [{"index": 0, "content": {"role": "model", "parts": [{"text": text}]}}]})
}

/// The array as Google writes it: an element in several lines, a chunk each.
fn chunks<T: AsRef<str>>(words: &[T]) -> Vec<Vec<u8>> {
    let last = json!({"candidates": [{"index": 0, "content": {"parts": []}, "finishReason": "STOP"}], "usageMetadata": {"totalTokenCount": 9}});
    let all = words.iter().map(|word| element(word.as_ref())).chain([last]);
    let spelled = all.enumerate().map(|(at, message)| {
        let lines = serde_json::to_string_pretty(&message).unwrap();
        format!("{}{lines}", if at == 0 { "[" } else { ",\r\n" }).into_bytes()
    });
    spelled.chain([b"\n]\n".to_vec()]).collect()
}

fn provider<T: AsRef<str>>(words: &[T]) -> Upstream {
    let chunks = chunks(words);
    Upstream::play(move |peer| {
        while peer.request().is_some() {
            say_chunked(peer, JSON, chunks.iter().map(Vec::as_slice));
        }
    })
}

fn asked() -> Vec<u8> {
    Call::post(PATH, json!({"contents": [{"role": "user", "parts": [{"text": "Tell me."}]}]}).to_string()).bytes()
}

/// What the elements say, of an array that is whole.
fn said(elements: &Value) -> String {
    let texts =
        elements.as_array().unwrap().iter().flat_map(|element| element["candidates"][0]["content"]["parts"].as_array());
    texts.flatten().filter_map(|part| part["text"].as_str()).collect()
}

on_both_drivers_in_full! {
    fn an_array_stops_at_a_critical_word_and_is_whole(driver) {
        let all: Vec<String> = words("word", 200).into_iter().chain([private_key()]).chain(words("behind", 400)).collect();
        for (settings, sees_key) in [(STOPPING, true), (HOLDING, false), (BLOCKING, true)] {
            let upstream = provider(&all);
            let gateway = setup(driver, &upstream, settings).start();
            let mut client = Client::connect(gateway.addr);
            for _ in 0..2 {
                client.say(asked());
                let answer = client.answer();
                assert_eq!((answer.status, answer.keep_alive), (200, true), "{}", answer.text());
                let elements = answer.json();
                let text = said(&elements);
                assert!(text.contains("word50 ") && text.contains("secret_leakage (Critical)"), "{text}");
                assert!(sees_key || !text.contains("BEGIN"), "{text}");
                assert!(!text.contains("behind150 "), "{text}");
                let last = elements.as_array().unwrap().last().unwrap();
                assert_eq!(last["candidates"][0]["finishReason"], "SAFETY", "{last}");
                let span = gateway.span_of(&answer);
                assert!(has_critical(&span, "secret_leakage"), "{span}");
                assert_eq!(span["tags"]["response_stopped"], "ended");
            }
        }
    }

    fn one_that_begins_with_the_critical_word_is_replaced(driver) {
        let upstream = provider(&[private_key()]);
        let gateway = setup(driver, &upstream, HOLDING).start();
        let answer = call(gateway.addr, asked());
        assert_eq!((answer.status, &answer.json()["error"]["status"]), (403, &json!("PERMISSION_DENIED")), "{}", answer.text());
    }

    fn without_a_critical_word_every_byte_is_the_provider_s(driver) {
        let all = words("word", 300);
        for settings in [STOPPING, HOLDING, BLOCKING, "pii: {redact_answers: all}"] {
            let upstream = provider(&all);
            let gateway = setup(driver, &upstream, settings).start();
            let answer = call(gateway.addr, asked());
            assert_eq!(answer.body, chunks(&all).concat());
            let tags = &gateway.span_of(&answer)["tags"];
            assert_eq!((&tags["response_stopped"], &tags["untapped_response"]), (&Value::Null, &Value::Null));
        }
    }

    fn a_piece_over_several_elements_becomes_one_tag(driver) {
        let upstream = provider(&["Write to jane", ".doe@exam", "ple.com, about ", "12 apples"]);
        let gateway = setup(driver, &upstream, "pii: {redact_answers: personal}").start();
        let answer = call(gateway.addr, asked());
        let expected = chunks(&["Write to [PII:EMAIL]", "", ", about ", "12 apples"]).concat();
        assert_eq!(answer.body, expected);
    }

    fn what_is_no_array_passes_and_is_said(driver) {
        let body = element(&private_key()).to_string();
        let upstream = Upstream::always(format!("HTTP/1.1 200 OK\r\n{JSON}\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
        let gateway = setup(driver, &upstream, STOPPING).start();
        let answer = call(gateway.addr, asked());
        assert_eq!((answer.status, answer.text()), (200, body));
        let span = gateway.span_of(&answer);
        assert_eq!(span["tags"]["untapped_response"], "text_limit");
        assert!(has_critical(&span, "secret_leakage"), "{span}");
    }
}
