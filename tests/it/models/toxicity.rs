//! Promise: without a model of the operator's the embedded one looks for toxic answers; what it is sure of is Critical, and stopped where
//! that is asked for.

use super::*;

const INSULT: &str = "You are a stupid worthless idiot, and everybody hates you, you pathetic piece of trash.";

fn says(words: &str) -> Upstream {
    let message = json!({ "role": "assistant", "content": words });
    let body = json!({ "choices": [{ "index": 0, "message": message, "finish_reason": "stop" }] }).to_string();
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json";
    Upstream::always(format!("{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
}

on_both_drivers_in_full! {
    fn the_embedded_model_records_a_toxic_answer_and_stops_what_it_is_sure_of(driver) {
        let (toxic, kind) = (says(INSULT), says("Thank you for your help, have a nice day."));
        for (upstream, blocks, expected, status) in [
            (&toxic, false, &["output_toxicity"][..], 200),
            (&toxic, true, &["output_toxicity"][..], 403),
            (&kind, true, &[], 200),
        ] {
            let safety = format!(
                "output_safety: {{enabled: true, toxicity_enabled: true, block_on_critical: {blocks}}}\n\
                 security_analysis: {{ml_enabled: false}}"
            );
            let gateway = Setup::new(driver).upstream(upstream.url()).with(&safety).start();
            let model = json!({ "name": "toxicity", "status": "loaded", "self_test": true, "model": null, "reason": null });
            assert_eq!(ready(&gateway)["ml_models"], json!({ "status": "loaded", "models": [model] }));
            let answer = send(&gateway, "Hello.");
            assert_eq!(answer.status, status, "{}", answer.text());
            let span = gateway.span_of(&answer);
            assert!(span["detectors"].as_array().unwrap().contains(&json!("toxicity")));
            assert_eq!(found(&span, "toxicity"), expected);
            assert_eq!(span["security_score"], if expected.is_empty() { 0.0 } else { 95.0 });
        }
    }
}

#[test]
fn it_is_off_with_either_switch() {
    let upstream = says(INSULT);
    for safety in ["{enabled: true}", "{toxicity_enabled: true}"] {
        let settings = format!("output_safety: {safety}\nsecurity_analysis: {{ml_enabled: false}}");
        let gateway = Setup::new(Driver::Auto).upstream(upstream.url()).with(&settings).start();
        assert_eq!(ready(&gateway)["ml_models"], json!({ "status": "disabled", "models": [] }));
        let span = gateway.span_of(&send(&gateway, "Hello."));
        assert!(
            found(&span, "toxicity").is_empty() && !span["detectors"].as_array().unwrap().contains(&json!("toxicity"))
        );
    }
}
