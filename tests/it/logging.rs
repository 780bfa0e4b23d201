//! Promise: a log line is one object, says nothing a caller confided, and the banner says what is on and off.

use serde_json::Value;

use crate::support::{Call, Driver, Setup, call, chat_body, on_both_drivers, provider};

const CANARY_TEXT: &str = "the-canary-sentence-of-this-test";
const CANARY_KEY: &str = "sk-canary-0123456789abcdef";

on_both_drivers! {
    fn no_prompt_and_no_credential_is_logged_at_info(driver) {
        let provider = provider();
        let gateway = Setup::new(driver).upstream(provider.url()).start();
        let body = chat_body(CANARY_TEXT).to_string();
        for (field, value) in
            [("authorization", format!("Bearer {CANARY_KEY}")), ("x-api-key", CANARY_KEY.to_owned()), ("x-service-token", CANARY_KEY.to_owned())]
        {
            call(gateway.addr, Call::post("/v1/chat/completions", body.clone()).field(field, &value).bytes());
        }
        call(gateway.addr, Call::post("/v1/chat/completions", "{broken").field("authorization", CANARY_KEY).bytes());
        call(gateway.addr, format!("GET /x HTTP/1.1\r\nHost: a\r\nHost: b\r\nAuthorization: {CANARY_KEY}\r\n\r\n"));
        let lines = gateway.log();
        for line in &lines {
            assert!(!line.contains("canary"), "{line}");
            let object: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("not one object: {line}"));
            for key in ["timestamp", "level", "message", "target"] {
                assert!(object[key].is_string(), "{key}: {line}");
            }
        }
    }
}

#[test]
fn the_banner_says_what_is_on_off_and_failing_open() {
    let gateway = Setup::new(Driver::Auto).with("enable_streaming: false").unlimited().start();
    let line = gateway.logged("the features", |line| line.contains("\"message\":\"features\""));
    let object: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&object["streaming"], &object["rate_limit"]), (&Value::from("off"), &Value::from("off")));
    assert_eq!((&object["analysis"], &object["authentication"]), (&Value::from("on"), &Value::from("off")));
    assert!(object["fails_open"].as_str().is_some_and(|text| text.contains("analysis") && text.contains("storage")));
    gateway.logged("what is not built", |line| {
        line.contains("not built into this version") && line.contains("ML classifier")
    });
}

#[test]
fn levels_are_per_module() {
    let gateway = Setup::new(Driver::Auto).env("RUST_LOG", "warn,weir::cli=info").start();
    assert!(
        gateway.log().iter().all(|line| !line.contains("\"INFO\"") || line.contains("weir::cli")),
        "{:?}",
        gateway.log()
    );
}
