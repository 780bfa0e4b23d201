//! The schema for editors says what loading says.

use serde_json::{Value, json};
use weir_config::catalogue::{self, Build};
use weir_config::schema;

use super::{Bench, HEARD_WHERE_WRITTEN};

/// A reading of the few keywords the schema uses, written from the JSON Schema specification.
fn accepts(schema: &Value, value: &Value) -> bool {
    let is = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "null" => value.is_null(),
        other => panic!("unknown type {other}"),
    };
    let Some(keywords) = schema.as_object() else { return schema.as_bool().unwrap() };
    keywords.iter().all(|(keyword, rule)| match keyword.as_str() {
        "$schema" | "title" | "description" | "default" | "propertyNames" | "pattern" | "minLength" | "x-on-reload" => {
            true
        }
        "type" => is(rule.as_str().unwrap()),
        "enum" => rule.as_array().unwrap().contains(value),
        "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap()),
        "maximum" => value.as_f64().is_none_or(|number| number <= rule.as_f64().unwrap()),
        "anyOf" => rule.as_array().unwrap().iter().any(|one| accepts(one, value)),
        "items" => value.as_array().is_none_or(|items| items.iter().all(|item| accepts(rule, item))),
        "required" => value.as_object().is_none_or(|object| {
            rule.as_array().unwrap().iter().all(|name| object.contains_key(name.as_str().unwrap()))
        }),
        "properties" => value.as_object().is_none_or(|object| {
            object.iter().all(|(name, inner)| rule.get(name).is_none_or(|rule| accepts(rule, inner)))
        }),
        "additionalProperties" => value.as_object().is_none_or(|object| {
            let known = schema.get("properties").and_then(Value::as_object);
            object
                .iter()
                .filter(|(name, _)| !known.is_some_and(|known| known.contains_key(*name)))
                .all(|(_, inner)| accepts(rule, inner))
        }),
        other => panic!("unknown keyword {other}"),
    })
}

/// `value` at `path` of an otherwise empty document.
fn document(path: &str, value: Value) -> Value {
    path.rsplit('.').fold(value, |inner, part| json!({ part: inner }))
}

#[test]
fn every_setting_is_described_and_accepts_its_default() {
    let schema = schema();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    for setting in catalogue::settings().filter(|setting| setting.in_file()) {
        let at = setting.path.split('.').fold(&schema, |at, part| &at["properties"][part]);
        assert!(at["description"].as_str().is_some_and(|text| !text.is_empty()), "{}", setting.path);
        assert_eq!(at["default"], setting.default.to_value(), "{}", setting.path);
        assert_eq!(at["x-on-reload"], setting.on_reload().as_str(), "{}", setting.path);
        assert!(accepts(&schema, &document(setting.path, setting.default.to_value())), "{}", setting.path);
    }
}

#[test]
fn what_loading_refuses_the_schema_refuses() {
    let schema = schema();
    for (path, value) in [
        ("timeout_ms", json!(0)),
        ("timeout_ms", json!("soon")),
        ("listen_adr", json!("127.0.0.1:1")),
        ("storage.profile", json!("paper")),
        ("enforcement.min_confidence", json!(1.5)),
        ("enforcement.categories", json!([{"finding_type": "jailbreak"}])),
        ("enforcement.categories", json!([{"finding_type": "jailbreak", "action": "allow"}])),
        ("enable_streaming", json!(null)),
        ("ml_pipeline.max_concurrent_requests", json!(0)),
    ] {
        let document = document(path, value);
        assert!(!accepts(&schema, &document), "{document}");
        assert!(Bench::with_file(document.to_string()).load().is_err(), "{document}");
    }
    for (path, value) in [
        ("storage.profile", json!("sqlite")),
        ("upstream_ca_file", json!(null)),
        ("enforcement.categories", json!([{"finding_type": "jailbreak", "action": "block"}])),
        ("security_analysis.ml_enabled", json!(false)),
    ] {
        let document = document(path, value);
        assert!(accepts(&schema, &document), "{document}");
        assert!(Bench::with_file(document.to_string()).load().is_ok(), "{document}");
    }
}

#[test]
fn what_is_printed_is_a_file_that_loads_to_the_same_settings() {
    let file = "enforcement: {mode: flag, min_confidence: 1}\nrate_limiting: {window_seconds: 5}\n";
    let bench = Bench::with_file(file).overlay("enforcement_mode: block\n").env(&[("SERVICE_LOG_LEVEL", "warn")]);
    let loaded = bench.loaded();
    let printed = weir_config::described(&loaded);
    assert!(
        printed.lines().any(|line| line.starts_with("  mode: \"block\"") && line.ends_with(" # overlay")),
        "{printed}"
    );
    assert!(printed.lines().any(|line| line.starts_with("  level: \"warn\"") && line.ends_with(" # env")), "{printed}");
    assert!(
        printed.lines().any(|line| line.starts_with("  window_seconds: 5") && line.ends_with(" # file")),
        "{printed}"
    );
    assert!(
        printed.lines().any(|line| line.starts_with("timeout_ms: 30000") && line.ends_with(" # default")),
        "{printed}"
    );
    let again = Bench::with_file(&printed).loaded();
    assert_eq!(again.settings, loaded.settings);
    for setting in catalogue::settings().filter(|setting| setting.in_file()) {
        let shown = again.origins[setting.path] == weir_config::Origin::File;
        let expected = matches!(setting.build, Build::Built { .. }) && !HEARD_WHERE_WRITTEN.contains(&setting.path);
        assert_eq!(shown, expected, "{}", setting.path);
    }
    // A line that nobody wrote is a comment where reading it back would count as writing it.
    assert!(printed.lines().any(|line| line.starts_with("  # jailbreak_threshold: ")), "{printed}");
    let written = weir_config::described(&Bench::with_file("security_analysis: {jailbreak_threshold: 0.5}").loaded());
    assert!(written.lines().any(|line| line.starts_with("  jailbreak_threshold: 0.5")), "{written}");
}

#[test]
fn a_secret_is_printed_as_set_and_never_in_clear() {
    let bench = Bench::with_file("auth: {enabled: true, admin_key: canary-0123456789-canary-0123456789}\n");
    let printed = weir_config::described(&bench.loaded());
    assert!(printed.contains("admin_key: \"***\"") && !printed.contains("canary"), "{printed}");
}
