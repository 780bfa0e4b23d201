//! Streams that are stopped, and streams that are not.

use serde_json::{Value, json};

use super::*;
use crate::support::{Client, call, eventually, on_both_drivers_in_full};

/// Words before a private key, which comes in pieces, and words behind it.
fn with_key(before: usize, behind: usize) -> Vec<String> {
    let key = private_key();
    let pieces = key.as_bytes().chunks(7).map(|piece| String::from_utf8_lossy(piece).into_owned());
    words("word", before).into_iter().chain(pieces).chain(words("behind", behind)).collect()
}

on_both_drivers_in_full! {
    fn a_stream_stops_within_an_interval_behind_the_critical_word(driver) {
        for dialect in DIALECTS {
            let upstream = dialect.provider(&with_key(100, 400));
            let gateway = setup(driver, &upstream, STOPPING).start();
            let mut client = Client::connect(gateway.addr);
            for _ in 0..2 {
                client.say(dialect.call().bytes());
                let answer = client.answer();
                let text = answer.text();
                assert_eq!((answer.status, answer.keep_alive), (200, true), "{}: {text}", dialect.path);
                assert!(text.contains("word99 ") && text.contains(dialect.stopped), "{}: {text}", dialect.path);
                assert!(text.contains("secret_leakage (Critical)"), "{}: {text}", dialect.path);
                // The key is critical once 16 characters of it have come; a look is due at most 10 frames later.
                let behind = text.matches("behind").count();
                assert!(behind <= 10, "{}: {behind} words came behind the key", dialect.path);
                let span = gateway.span_of(&answer);
                assert!(has_critical(&span, "secret_leakage"), "{span}");
                assert_eq!((&span["tags"]["response_stopped"], &span["streaming"]), (&json!("ended"), &json!(true)));
                assert_eq!(span["security_score"], 95, "{span}");
            }
        }
    }

    fn with_hold_back_nothing_of_the_critical_word_is_seen(driver) {
        for dialect in DIALECTS {
            let upstream = dialect.provider(&with_key(200, 400));
            let gateway = setup(driver, &upstream, HOLDING).start();
            let answer = call(gateway.addr, dialect.call().bytes());
            let text = answer.text();
            assert_eq!(answer.status, 200, "{}: {text}", dialect.path);
            assert!(text.contains("word50 ") && text.contains(dialect.stopped), "{}: {text}", dialect.path);
            assert!(!text.contains("-----") && !text.contains("BEGIN") && !text.contains("behind"), "{}: {text}", dialect.path);
            let span = gateway.span_of(&answer);
            assert!(has_critical(&span, "secret_leakage"), "{span}");
            let held: usize = span["tags"]["response_held_bytes"].as_str().unwrap().parse().unwrap();
            assert!((512..100_000).contains(&held), "{held}");
        }
    }

    fn a_stream_with_nothing_critical_in_it_is_the_provider_s_own(driver) {
        for settings in [STOPPING, HOLDING, BLOCKING] {
            for dialect in DIALECTS {
                let upstream = dialect.provider(&words("word", 300));
                let gateway = setup(driver, &upstream, settings).start();
                let mut client = Client::connect(gateway.addr);
                for _ in 0..2 {
                    client.say(dialect.call().bytes());
                    let answer = client.answer();
                    assert_eq!((answer.status, answer.keep_alive), (200, true));
                    assert_eq!(answer.text(), dialect.said(&words("word", 300)), "{}", dialect.path);
                    let span = gateway.span_of(&answer);
                    assert_eq!(span["tags"]["response_stopped"], Value::Null, "{span}");
                    assert_eq!(span["tags"]["untapped_response"], Value::Null, "{span}");
                }
                assert_eq!(upstream.connections(), 1, "{}: it is used again", dialect.path);
            }
        }
    }

    fn a_stream_that_begins_with_the_critical_word_is_replaced(driver) {
        let dialect = DIALECTS[0];
        let upstream = dialect.provider(&[private_key()]);
        let gateway = setup(driver, &upstream, HOLDING).start();
        let answer = call(gateway.addr, dialect.call().bytes());
        assert_eq!(answer.status, 403, "{}", answer.text());
        assert_eq!(answer.json()["error"]["type"], "output_safety_blocked");
        assert_eq!(answer.header("x-should-retry").as_deref(), Some("false"));
        assert_eq!(gateway.span_of(&answer)["tags"]["response_stopped"], "replaced");
        assert_eq!(gateway.metric("service_answers_stopped_total", "how=\"replaced\""), 1.0);
    }

    fn blocking_alone_stops_streams_too(driver) {
        let dialect = DIALECTS[0];
        let upstream = dialect.provider(&with_key(100, 400));
        let gateway = setup(driver, &upstream, BLOCKING).start();
        let answer = call(gateway.addr, dialect.call().bytes());
        assert!(answer.text().contains("`output_safety.block_on_critical` stops"), "{}", answer.text());
        // The core counts it behind the answer.
        eventually("it is counted", || {
            (gateway.metric("service_answers_stopped_total", "how=\"ended\"") == 1.0).then_some(())
        });
        assert!(answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
    }

    fn a_message_too_long_for_a_core_is_looked_at_before_it_goes_on(driver) {
        let dialect = DIALECTS[0];
        let long = format!("{}{}", "plain words ".repeat(5_000), private_key());
        let upstream = dialect.provider(&["first ".to_owned(), long]);
        let gateway = setup(driver, &upstream, STOPPING).start();
        let answer = call(gateway.addr, dialect.call().bytes());
        let text = answer.text();
        assert!(text.contains("first ") && !text.contains("plain words") && text.contains(dialect.stopped), "{text}");
    }

    // The client would act on it.
    fn a_dangerous_tool_call_does_not_reach_its_end(driver) {
        let delta = |arguments: &str| {
            let call = json!({"index": 0, "id": "t", "type": "function", "function": {"name": "bash", "arguments": arguments}});
            json!({"id": "c", "choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": null}]})
        };
        let end = json!({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]});
        for (command, stops) in [("rm -rf /", true), ("ls -l /tmp", false)] {
            let arguments = json!({"command": command}).to_string();
            let events = [delta(&arguments), end.clone()].map(|event| format!("data: {event}\n\n"));
            let frames = [events.concat(), "data: [DONE]\n\n".to_owned()];
            let upstream = Upstream::play(move |peer| {
                while peer.request().is_some() {
                    say_chunked(peer, SSE, frames.iter().map(String::as_bytes));
                }
            });
            let gateway = setup(driver, &upstream, STOPPING).start();
            let text = call(gateway.addr, DIALECTS[0].call().bytes()).text();
            assert_eq!(text.contains("content_filter"), stops, "{text}");
            assert_eq!(text.contains("\"finish_reason\":\"tool_calls\""), !stops, "{text}");
        }
    }

    fn without_a_switch_that_stops_a_stream_it_is_only_noted(driver) {
        let dialect = DIALECTS[0];
        let said = with_key(100, 100);
        for (settings, noted) in [("streaming_analysis: {enabled: true}", true), ("output_safety: {enabled: true}", false)] {
            let upstream = dialect.provider(&said);
            let gateway = setup(driver, &upstream, settings).start();
            let answer = call(gateway.addr, dialect.call().bytes());
            assert_eq!(answer.text(), dialect.said(&said));
            let chunk = |frame: &Vec<u8>| format!("{:x}\r\n{}\r\n", frame.len(), String::from_utf8_lossy(frame));
            let framed: String = dialect.frames(&said).iter().map(chunk).collect();
            assert_eq!(String::from_utf8_lossy(&answer.raw_body), format!("{framed}0\r\n\r\n"), "chunk by chunk");
            let span = gateway.span_of(&answer);
            assert!(has_critical(&span, "secret_leakage"), "{span}");
            let events = span["events"].as_array().unwrap();
            let event = events.iter().find(|event| event["event_type"] == "streaming_finding");
            assert_eq!(event.is_some(), noted, "{span}");
            assert!(event.is_none_or(|event| event["description"].as_str().unwrap().contains("secret_leakage")));
        }
    }

    fn the_provider_is_not_kept_at_work(driver) {
        let dialect = DIALECTS[0];
        let frames = dialect.frames(&with_key(20, 400));
        let ended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let flag = std::sync::Arc::clone(&ended);
        let upstream = Upstream::play(move |peer| {
            peer.request();
            peer.say(format!("HTTP/1.1 200 OK\r\n{SSE}\r\nTransfer-Encoding: chunked\r\n\r\n"));
            for frame in frames.iter().take(200) {
                peer.say([format!("{:x}\r\n", frame.len()).as_bytes(), frame, b"\r\n"].concat());
            }
            flag.store(peer.wait_closed().is_some(), std::sync::atomic::Ordering::SeqCst);
        });
        let gateway = setup(driver, &upstream, STOPPING).start();
        let answer = call(gateway.addr, dialect.call().bytes());
        assert!(answer.text().ends_with("data: [DONE]\n\n"), "{}", answer.text());
        eventually("its connection is closed", || ended.load(std::sync::atomic::Ordering::SeqCst).then_some(()));
    }
}
