//! Promise: what all detectors say of a text is weighed together by the weights in the binary or by an operator's, and
//! a file that is no such weights is named before anything runs.

use serde_json::{Value, json};

use crate::support::{Driver, Gateway, Setup, call, chat_call, provider, weir};

/// Weights by which everything is an attack, with a confidence of 0.96.
fn everything() -> Value {
    let weights = json!({
        "high": 0, "medium": 0, "low": 0, "signs": 0, "encoded": 0, "data": 0, "classifier": 0, "guard_a": 0, "guard_b": 0,
    });
    json!({"version": 1, "bias": 1, "weights": weights, "classifier_absent": 0, "confidence": [[0, 0.9], [1, 0.96]]})
}

/// The detectors that looked at a harmless call, and what they found.
fn greeted(gateway: &Gateway) -> (Value, Value) {
    let span = gateway.span_of(&call(gateway.addr, chat_call("Hello there.").bytes()));
    (span["detectors"].clone(), span["security_findings"].clone())
}

#[test]
fn an_operator_s_weights_take_the_place_of_those_in_the_binary() {
    let provider = provider();
    let start = |settings: &str| Setup::new(Driver::Auto).upstream(provider.url()).with(settings).start();
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("fusion.json");
    std::fs::write(&model, everything().to_string()).unwrap();
    let named = format!("fusion_model_path: '{}'", model.display());

    let (ran, found) = greeted(&start(&format!("security_analysis: {{fusion_enabled: true, {named}}}\n")));
    assert!(ran.as_array().unwrap().contains(&json!("fusion")), "{ran}");
    let said = |key: &str| found[0][key].clone();
    assert_eq!(
        [said("finding_type"), said("severity"), said("confidence"), said("detector")],
        [json!("fusion_prompt_injection"), json!("High"), json!(0.96), json!("fusion")]
    );

    let (ran, found) = greeted(&start("security_analysis: {fusion_enabled: true}\n"));
    assert!(ran.as_array().unwrap().contains(&json!("fusion")), "{ran}");
    assert_eq!(found, json!([]));

    let (ran, found) = greeted(&start(&format!("security_analysis: {{{named}}}\n")));
    assert!(!ran.as_array().unwrap().contains(&json!("fusion")), "{ran}");
    assert_eq!(found, json!([]));
}

#[test]
fn weights_that_do_not_fit_are_named_by_check_and_start() {
    let folder = tempfile::tempdir().unwrap();
    let (model, config) = (folder.path().join("fusion.json"), folder.path().join("weir.conf"));
    let text = format!(
        "listen_addr: 127.0.0.1:0\nupstream_url: http://127.0.0.1:1\nstorage: {{database_path: '{}'}}\nsecurity_analysis: \
         {{fusion_model_path: '{}'}}\n",
        folder.path().join("weir.db").display(),
        model.display()
    );
    std::fs::write(&config, text).unwrap();
    let run = |args: &[&str]| {
        let output = weir(&[args, &["--config", &config.display().to_string()]].concat()).output().unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let refused = |parts: &[&str]| {
        for args in [&["check"][..], &[]] {
            let (code, said) = run(args);
            assert_ne!(code, Some(0), "{said}");
            for part in [&["security_analysis.fusion_model_path", "fusion.json"], parts].concat() {
                assert!(said.contains(part), "{part:?} in {said}");
            }
        }
    };
    refused(&["cannot be read", "name a file that can be"]);
    let mut broken = everything();
    broken["weights"]["high"] = json!(1e6);
    std::fs::write(&model, broken.to_string()).unwrap();
    refused(&["`weights.high`", "1000000", "accepted: -100 to 100"]);
    std::fs::write(&model, " ".repeat(70_000)).unwrap();
    refused(&["more than 65536 bytes"]);
    std::fs::write(&model, everything().to_string()).unwrap();
    let (code, said) = run(&["check"]);
    assert!(code == Some(0) && said.contains("fusion.json: can be used"), "{said}");
}
