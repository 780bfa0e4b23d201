//! Promise: what models are not given of texts over `security_analysis.max_analysis_text_bytes` is said, byte for byte: in a header
//! where one can still be sent, in a tag, a counter and a finding; and nothing is said of texts that they are given whole.

use super::*;

/// The bound in these tests.
const MAX: usize = 2_000;
const WORD: &str = "truncated_for_models";
/// A model that looks at requests, and one that looks at both sides.
const ORDERS_ON: &str = "ml_enabled: true, ml_model: tests/orders";
const NAMES_ON: &str = "ner_enabled: true, ner_model: tests/names";

/// A harmless text of so many bytes.
fn padding(bytes: usize) -> String {
    let words = "The river ends in a wide delta. ";
    words.chars().cycle().take(bytes).collect()
}

fn start(upstream: &str, models: &str, mode: &str) -> (Gateway, TempDir) {
    let cache = cache();
    let more = format!("{models}, max_analysis_text_bytes: {MAX}");
    let analysis = analysis(&cache, &made::library(), &more);
    let setup = Setup::new(Driver::Auto).upstream(upstream).unlimited().with(&analysis).with(mode);
    let gateway = setup.start();
    ready(&gateway);
    (gateway, cache)
}

/// What is said of a call: header, tags of request and answer, and where how many bytes were left out.
fn said(gateway: &Gateway, answer: &Answer) -> Value {
    let span = gateway.span_of(answer);
    let findings = span["security_findings"].as_array().unwrap().iter();
    let left_out: Vec<Value> = findings
        .filter(|finding| finding["finding_type"] == "analysis_truncated")
        .map(|finding| json!([finding["location"], finding["severity"], finding["metadata"]["left_out_bytes"]]))
        .collect();
    let tags = &span["tags"];
    json!([answer.header("x-service-analysis"), tags["unscanned"], tags["unscanned_response"], left_out])
}

fn counted(gateway: &Gateway, direction: &str) -> f64 {
    gateway.metric("service_unread_total", &format!("direction=\"{direction}\",reason=\"{WORD}\""))
}

#[test]
fn padding_takes_an_order_past_the_model_and_never_in_silence() {
    let upstream = Upstream::always(ANSWER);
    let (gateway, _cache) = start(&upstream.url(), ORDERS_ON, "enforcement: {mode: block}");
    let header = format!("skipped;reason={WORD}");
    // The order is behind what the model is given.
    for text in [padding(MAX) + " " + PLATYPUS, padding(MAX + 1)] {
        // What was not looked at whole is not known the next time either.
        for _ in 0..2 {
            let answer = send(&gateway, &text);
            assert_eq!(answer.status, 200, "{}", answer.text());
            let left_out = (text.len() - MAX).to_string();
            assert_eq!(said(&gateway, &answer), json!([header, WORD, null, [["request", "Low", left_out]]]));
        }
    }
    assert_eq!(counted(&gateway, "request"), 4.0);
    // Within the bound nothing is said, and the model finds it wherever it stands.
    let fits = send(&gateway, &padding(MAX));
    assert_eq!((fits.status, said(&gateway, &fits)), (200, json!([null, null, null, []])));
    let whole = padding(MAX - PLATYPUS.len() - 1) + " " + PLATYPUS;
    assert_eq!((whole.len(), send(&gateway, &whole).status), (MAX, 403));
    // The bound is on all texts of a request together.
    let messages =
        json!([{ "role": "user", "content": padding(1_500) }, { "role": "user", "content": padding(1_400) }]);
    let body = json!({ "model": "m", "messages": messages }).to_string();
    let answer = call(gateway.addr, Call::post("/v1/chat/completions", body).bytes());
    assert_eq!(said(&gateway, &answer), json!([header, WORD, null, [["request", "Low", "900"]]]));
    assert_eq!((counted(&gateway, "request"), counted(&gateway, "response")), (5.0, 0.0));
}

/// Texts in base64, each long enough to be looked into, and one more.
fn encoded(harmless: usize, last: &str) -> String {
    let words = (0..harmless).map(|at| format!("note {at}: the river ends in a wide delta"));
    words.chain([last.to_owned()]).map(|text| STANDARD.encode(text)).collect::<Vec<_>>().join(" and ")
}

#[test]
fn encoded_words_that_a_model_is_not_asked_about_are_said() {
    let upstream = Upstream::always(ANSWER);
    for (mode, waits) in [("enforcement: {mode: block}", true), ("llm_advisory_injection_enabled: false", false)] {
        let (gateway, _cache) = start(&upstream.url(), ORDERS_ON, mode);
        // The model is asked about eight of them.
        let seen = send(&gateway, &encoded(7, PLATYPUS));
        assert_eq!(
            (seen.status == 403, found(&gateway.span_of(&seen), "classifier")),
            (waits, vec!["ml_prompt_injection".to_owned()])
        );
        assert_eq!(counted(&gateway, "request"), 0.0);
        for (more, left) in [(8, "1"), (10, "3")] {
            let passed = send(&gateway, &encoded(more, PLATYPUS));
            let span = gateway.span_of(&passed);
            let finding = span["security_findings"]
                .as_array()
                .unwrap()
                .iter()
                .find(|finding| finding["detector"] == "classifier");
            let said = finding.map(|finding| (&finding["finding_type"], &finding["metadata"]["left_out_encoded"]));
            assert_eq!(said, Some((&json!("analysis_truncated"), &json!(left))), "{span}");
            assert_eq!((passed.status, &span["tags"]["unscanned"]), (200, &json!(WORD)));
        }
        assert_eq!(counted(&gateway, "request"), 2.0);
    }
}

#[test]
fn request_and_answer_that_are_looked_at_together_share_the_bound_and_say_so() {
    let message = json!({ "role": "assistant", "content": padding(1_400) });
    let body = json!({ "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }] }).to_string();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json";
    let upstream = Upstream::always(format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
    let (gateway, _cache) = start(&upstream.url(), NAMES_ON, "llm_advisory_injection_enabled: false");
    // Each is within the bound.
    let answer = send(&gateway, &padding(1_400));
    assert_eq!(said(&gateway, &answer), json!([null, null, WORD, [["response", "Low", "800"]]]));
    assert_eq!((counted(&gateway, "request"), counted(&gateway, "response")), (0.0, 1.0));
    // So are both.
    let answer = send(&gateway, &padding(600));
    assert_eq!(said(&gateway, &answer), json!([null, null, null, []]));
    // The request alone is over it: of the answer nothing is seen.
    let answer = send(&gateway, &padding(MAX + 300));
    let left_out = json!([["request", "Low", "300"], ["response", "Low", "1400"]]);
    assert_eq!(said(&gateway, &answer), json!([null, WORD, WORD, left_out]));
    assert_eq!((counted(&gateway, "request"), counted(&gateway, "response")), (1.0, 2.0));
    // Where the rules look before the request is forwarded, it is known then, and the client is told.
    let (gateway, _cache) = start(&upstream.url(), NAMES_ON, "");
    let answer = send(&gateway, &padding(MAX + 300));
    assert_eq!(answer.header("x-service-analysis"), Some(format!("skipped;reason={WORD}")));
}
