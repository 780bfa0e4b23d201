//! Promise: an answer whose sentences the request does not support is recorded with the score of each, where a model that reads
//! pairs is there; where it is missing or not loaded yet the answer goes on and its record says so.

use super::*;
use crate::models::made::OVERLAP;

const FACTS: &str = "The shop sells blue bicycles. Opening hours are nine until five on weekdays.";
/// One sentence that the request supports, and one that it does not.
const ANSWER: &str = "The shop sells blue bicycles. We accept gold coins only, and the owner lives on the moon.";

fn says(words: &str) -> Upstream {
    let message = json!({ "role": "assistant", "content": words });
    let body = json!({ "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }] }).to_string();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json";
    Upstream::always(format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
}

fn setup(driver: Driver, upstream: &Upstream, analysis: &str, more: &str) -> Setup {
    let safety = "enabled: true, hallucination_enabled: true, hallucination_model: tests/overlap";
    let safety = format!("output_safety: {{{safety}, {more}}}");
    Setup::new(driver).upstream(upstream.url()).with(analysis).with(&safety)
}

fn with_overlap() -> TempDir {
    let cache = cache();
    OVERLAP.write(&cache.path().join("tests/overlap"));
    cache
}

fn ran(span: &Value) -> bool {
    span["detectors"].as_array().unwrap().contains(&json!("hallucination"))
}

on_both_drivers_in_full! {
    fn a_sentence_the_request_does_not_support_is_recorded_with_its_score(driver) {
        let (upstream, cache) = (says(ANSWER), with_overlap());
        let analysis = analysis(&cache, &made::library(), "ml_enabled: false");
        let gateway = setup(driver, &upstream, &analysis, "block_on_critical: true").start();
        let model = json!({
            "name": "hallucination", "status": "loaded", "self_test": true, "model": "tests/overlap", "reason": null,
        });
        assert_eq!(ready(&gateway)["ml_models"], json!({ "status": "loaded", "models": [model] }));
        let answer = send(&gateway, FACTS);
        assert_eq!(answer.status, 200, "it is never Critical");
        let span = gateway.span_of(&answer);
        assert!(ran(&span));
        assert_eq!(found(&span, "hallucination"), ["output_hallucination"]);
        let findings = span["security_findings"].as_array().unwrap();
        let finding = findings.iter().find(|finding| finding["detector"] == "hallucination").unwrap();
        assert_eq!(finding["location"], "response.choices[0].message.content");
        assert_eq!((&finding["metadata"]["judged_sentences"], &finding["metadata"]["flagged_sentences"]), (&json!("2"), &json!("1")));
        let scores: Vec<(usize, usize, f64)> =
            serde_json::from_str(finding["metadata"]["sentence_scores"].as_str().unwrap()).unwrap();
        assert_eq!(&ANSWER[scores[0].0..scores[0].1], "The shop sells blue bicycles.");
        assert!(scores[0].2 > 0.9 && scores[1].2 < 0.5, "{scores:?}");
        assert_eq!(span["security_score"], 60.0);
        // What a system prompt says supports it as well.
        let body = json!({ "model": "gpt-4o", "messages": [
            { "role": "system", "content": format!("{FACTS} We accept gold coins only. The owner lives on the moon.") },
            { "role": "user", "content": "Hello." },
        ] });
        let answer = call(gateway.addr, Call::post("/v1/chat/completions", body.to_string()).bytes());
        let span = gateway.span_of(&answer);
        assert!(ran(&span) && found(&span, "hallucination").is_empty(), "{span}");
    }
}

#[test]
fn a_short_answer_is_left_alone() {
    let cache = with_overlap();
    let words = "The owner lives on the moon.";
    let upstream = says(words);
    let analysis = analysis(&cache, &made::library(), "ml_enabled: false");
    for (least, flagged) in [(words.len() + 1, 0), (words.len(), 1)] {
        let more = format!("hallucination_min_response_length: {least}");
        let gateway = setup(Driver::Auto, &upstream, &analysis, &more).start();
        ready(&gateway);
        let span = gateway.span_of(&send(&gateway, FACTS));
        assert_eq!(found(&span, "hallucination").len(), flagged);
    }
}

#[test]
fn without_preload_the_first_answer_starts_the_load_and_is_not_held_up() {
    let (upstream, cache) = (says(ANSWER), with_overlap());
    let analysis = analysis(&cache, &made::library(), "ml_enabled: false, ml_preload: false");
    let gateway = setup(Driver::Auto, &upstream, &analysis, "").start();
    let report = ready(&gateway);
    assert_eq!(report["ml_models"]["models"][0]["status"], "waiting");
    let first = send(&gateway, FACTS);
    let span = gateway.span_of(&first);
    assert_eq!((first.status, ran(&span)), (200, false));
    assert_eq!(span["tags"]["absent_models"], "hallucination");
    eventually("the model is loaded", || {
        let span = gateway.span_of(&send(&gateway, FACTS));
        (found(&span, "hallucination").len() == 1).then_some(())
    });
}

#[test]
fn a_model_that_is_not_there_is_missing_and_its_detector_absent() {
    let (upstream, cache) = (says(ANSWER), cache());
    for (library, why) in [
        (made::library(), "there is no folder"),
        (PathBuf::from("/nowhere/libonnxruntime.so"), "libonnxruntime.so was found in none of"),
    ] {
        let analysis = analysis(&cache, &library, "ml_enabled: false");
        let gateway = setup(Driver::Auto, &upstream, &analysis, "").start();
        let report = ready(&gateway);
        assert_eq!(
            (&report["status"], &report["ml_models"]["models"][0]["status"]),
            (&json!("degraded"), &json!("missing"))
        );
        let reason = report["reasons"][0].as_str().unwrap();
        assert!(reason.starts_with("the model of hallucination is missing: ") && reason.contains(why), "{reason}");
        gateway.logged("that it is missing", |line| line.contains("\"WARN\"") && line.contains("hallucination"));
        let span = gateway.span_of(&send(&gateway, FACTS));
        assert!(!ran(&span));
        assert_eq!(span["tags"]["absent_models"], "hallucination");
    }
}
