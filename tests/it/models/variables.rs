//! Promise: the four variables of the models say what the file does not, and what they say is done.

use serde_json::json;

use super::{PLATYPUS, UNRULED, cache, found, health, made, ready, send};
use crate::support::{Answer, Driver, Setup, eventually, provider};

#[test]
fn variables_say_where_models_lie_when_they_are_loaded_and_how_many_requests_wait() {
    let (provider, cache) = (provider(), cache());
    let library = made::library();
    let analysis = format!(
        "security_analysis: {{ml_enabled: true, ml_model: tests/orders, ml_cache_dir: /nowhere, ml_preload: true, \
         ml_hub_url: null, ml_runtime_path: '{}'}}\n",
        library.display()
    );
    let gateway = Setup::new(Driver::Auto)
        .upstream(provider.url())
        .with(&analysis)
        .with("enforcement: {mode: block, timeout_ms: 60000}")
        .with("ml_pipeline: {max_concurrent_requests: 8}")
        .env("SERVICE_ML_CACHE_DIR", cache.path().to_str().unwrap())
        .env("SERVICE_ML_PRELOAD", "no")
        .env("SERVICE_ML_MAX_CONCURRENT", "1")
        .unlimited()
        .start();
    // Nothing is loaded before somebody asks, and who asks first does not wait.
    let report = ready(&gateway);
    let models = report["ml_models"]["models"].as_array().unwrap();
    let named = |name: &str| models.iter().find(|model| model["name"] == name).map(|model| model["status"].clone());
    assert_eq!(named("classifier"), Some(json!("waiting")), "{models:?}");
    let first = send(&gateway, PLATYPUS);
    assert_eq!(first.status, 200, "{}", first.text());
    assert_eq!(gateway.span_of(&first)["tags"]["absent_models"], "classifier");
    let refused = eventually("the model is loaded", || Some(send(&gateway, PLATYPUS)).filter(|one| one.status == 403));
    assert_eq!(refused.json()["error"]["findings"][0]["finding_type"], "ml_prompt_injection");
    // One request may wait for it at a time.
    std::thread::scope(|scope| {
        let long = |n: usize| {
            let gateway = &gateway;
            let text = format!("{n}: {}", "a long story about nothing in particular ".repeat(20_000));
            scope.spawn(move || send(gateway, &text))
        };
        let both = [long(1), long(2)];
        let answers: Vec<Answer> = both.into_iter().map(|asked| asked.join().unwrap()).collect();
        let mut statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 503]);
    });
}

#[test]
fn a_variable_switches_the_classifier_off() {
    let provider = provider();
    for (said, finds) in [("no", false), ("0", false), ("yes", true)] {
        let gateway = Setup::new(Driver::Auto)
            .upstream(provider.url())
            .with("security_analysis: {ml_enabled: true}")
            .env("SERVICE_ML_ENABLED", said)
            .start();
        let answer = send(&gateway, UNRULED);
        assert_eq!(!found(&gateway.span_of(&answer), "classifier").is_empty(), finds, "{said}");
        let status = if finds { "loaded" } else { "disabled" };
        assert_eq!(health(&gateway).1["ml_models"]["status"], json!(status), "{said}");
    }
}
