//! A model of toxicity and streams that may be stopped: it is asked at every look, and what it was asked about goes on when it has
//! answered, or not at all.

use std::path::Path;

use serde_json::json;

use super::made::{TOXIC, library};
use super::{analysis, cache, found, ready};
use crate::output::{DIALECTS, has_critical, words};
use crate::support::{Gateway, Setup, Upstream, call, eventually, on_both_drivers_in_full};

/// Ways to stop a stream: with `block_on_critical` alone, and with early stop, without hold-back and with it.
const WAYS: [(&str, &str, bool); 3] = [
    ("block_on_critical: true", "token_interval: 10", false),
    ("", "enabled: true, output_enabled: true, early_stop_on_critical: true, token_interval: 10", false),
    ("block_on_critical: true", "token_interval: 10, hold_back: true", true),
];

fn start(setup: &Setup, folder: &tempfile::TempDir, library: &Path, (safety, streaming): (&str, &str)) -> Gateway {
    let gateway = setup
        .clone()
        .with(&analysis(folder, library, "ml_enabled: false"))
        .with(&format!(
            "output_safety: {{enabled: true, toxicity_enabled: true, toxicity_model: tests/toxic, {safety}}}"
        ))
        .with(&format!("streaming_analysis: {{{streaming}}}"))
        .start();
    assert_eq!(ready(&gateway)["ml_models"]["models"][0]["status"], "loaded");
    gateway
}

/// `count` words, something toxic or not, and many more words.
fn around(middle: &[&str]) -> Vec<String> {
    words("word", 200)
        .into_iter()
        .chain(middle.iter().map(|&word| word.to_owned()))
        .chain(words("behind", 400))
        .collect()
}

on_both_drivers_in_full! {
    fn a_toxic_stream_stops_within_an_interval_in_every_dialect(driver) {
        let (folder, library) = (cache(), library());
        TOXIC.write(&folder.path().join("tests/toxic"));
        for dialect in DIALECTS {
            for (safety, streaming, holds) in WAYS {
                let upstream = dialect.provider(&around(&["I will ", "kill ", "you. "]));
                let setup = Setup::new(driver).upstream(upstream.url());
                let gateway = start(&setup, &folder, &library, (safety, streaming));
                let answer = call(gateway.addr, dialect.call().bytes());
                let text = answer.text();
                assert_eq!(answer.status, 200, "{}: {text}", dialect.path);
                assert!(text.contains("word50 ") && text.contains(dialect.stopped), "{}: {text}", dialect.path);
                assert!(text.contains("output_toxicity (Critical)"), "{}: {text}", dialect.path);
                let behind = text.matches("behind").count();
                if holds {
                    assert!(!text.contains("kill") && behind == 0, "{}: {text}", dialect.path);
                } else {
                    assert!(text.contains("kill") && behind <= 10, "{}: {behind} words came behind it", dialect.path);
                }
                let span = gateway.span_of(&answer);
                assert!(has_critical(&span, "output_toxicity"), "{span}");
                assert_eq!((&span["tags"]["response_stopped"], &span["tags"]["untapped_response"]), (&json!("ended"), &json!(null)));
                assert!(gateway.metric("service_security_detector_latency_seconds_count", r#"detector="toxicity""#) > 2.0);
            }
        }
    }

    fn an_insult_lets_the_stream_be_and_the_last_words_are_looked_at_too(driver) {
        let (folder, library) = (cache(), library());
        TOXIC.write(&folder.path().join("tests/toxic"));
        for (safety, streaming, holds) in WAYS {
            for dialect in DIALECTS {
                let said = around(&["What ", "an ", "idiot. "]);
                let upstream = dialect.provider(&said);
                let setup = Setup::new(driver).upstream(upstream.url());
                let gateway = start(&setup, &folder, &library, (safety, streaming));
                let answer = call(gateway.addr, dialect.call().bytes());
                assert_eq!(answer.text(), dialect.said(&said), "{}", dialect.path);
                assert_eq!(found(&gateway.span_of(&answer), "toxicity"), ["output_toxicity"]);
            }
            // Three words are no interval: the frame that ends the answer waits for the model.
            let dialect = DIALECTS[0];
            let upstream = dialect.provider(&["I will ", "kill ", "you. "]);
            let gateway = start(&Setup::new(driver).upstream(upstream.url()), &folder, &library, (safety, streaming));
            let answer = call(gateway.addr, dialect.call().bytes());
            let text = answer.text();
            assert!(!text.contains("\"finish_reason\":\"stop\"") && text.contains("output_toxicity (Critical)"), "{text}");
            assert_eq!(answer.status, if holds { 403 } else { 200 }, "{text}");
        }
    }

    fn a_model_that_does_not_answer_in_time_is_said_and_the_stream_goes_on(driver) {
        let dialect = DIALECTS[0];
        let said = around(&["think ", "for ", "long "]);
        for streaming in ["token_interval: 10", "token_interval: 10, hold_back: true"] {
            let upstream: Upstream = dialect.provider(&said);
            let gateway = Setup::new(driver)
                .upstream(upstream.url())
                .guest("toy_model")
                .with("security_analysis_timeout_ms: 500\noutput_safety: {enabled: true, block_on_critical: true}")
                .with(&format!("streaming_analysis: {{{streaming}}}"))
                .start();
            let answer = call(gateway.addr, dialect.call().bytes());
            assert_eq!(answer.text(), dialect.said(&said));
            let dropped = || gateway.metric("service_dropped_total", r#"queue="output",reason="analyzer_timeout""#);
            eventually("it is counted", || (dropped() >= 1.0).then_some(()));
            assert_eq!(gateway.span_of(&answer)["tags"]["untapped_response"], "analyzer_timeout");
        }
    }
}
