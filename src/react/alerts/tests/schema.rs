//! What PagerDuty and Slack take, as JSON Schema: the fields of PagerDuty's OpenAPI document of its Events API v2 with the lengths
//! its documentation gives, and the blocks that are used of Slack's with theirs. A checker of the keywords that the two files have.

use serde_json::Value;

/// Why `value` is not what `schema` says; nothing where it is.
pub(super) fn fault(schema: &Value, value: &Value) -> Option<String> {
    let keywords = schema.as_object().expect("a schema is an object");
    keywords.iter().find_map(|(keyword, expected)| {
        let fault = of_keyword(schema, keyword, expected, value)?;
        Some(format!("{keyword}: {fault}"))
    })
}

fn of_keyword(schema: &Value, keyword: &str, expected: &Value, value: &Value) -> Option<String> {
    let fails = |is_so: bool| (!is_so).then(|| format!("{expected} and not {value:.200}"));
    let length = || value.as_str().map_or(0, |text| text.chars().count() as u64);
    let bound = || expected.as_u64().expect("a bound is a number");
    match keyword {
        "type" => fails(match expected.as_str().expect("one type") {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            other => panic!("a type nobody wrote: {other}"),
        }),
        "enum" => fails(expected.as_array().expect("values").contains(value)),
        "required" => {
            let mut names = expected.as_array().expect("names").iter().filter_map(Value::as_str);
            names.find(|name| value.get(name).is_none()).map(str::to_owned)
        }
        "properties" => {
            let known = expected.as_object().expect("schemas");
            known.iter().find_map(|(name, of)| Some(format!("{name}: {}", fault(of, value.get(name)?)?)))
        }
        "additionalProperties" => {
            assert_eq!(expected, false);
            let known = schema["properties"].as_object().expect("schemas");
            value.as_object()?.keys().find(|name| !known.contains_key(*name)).cloned()
        }
        "minLength" => fails(length() >= bound()),
        "maxLength" => fails(length() <= bound()),
        "maxItems" => fails(value.as_array()?.len() as u64 <= bound()),
        "items" => value.as_array()?.iter().find_map(|item| fault(expected, item)),
        "anyOf" => {
            let faults: Option<Vec<String>> =
                expected.as_array().expect("schemas").iter().map(|one| fault(one, value)).collect();
            faults.map(|faults| faults.join("; "))
        }
        "format" => {
            let rfc3339 = &time::format_description::well_known::Rfc3339;
            fails(value.as_str().is_some_and(|text| time::OffsetDateTime::parse(text, rfc3339).is_ok()))
        }
        other => panic!("a keyword nobody checks: {other}"),
    }
}

pub(super) fn pagerduty() -> Value {
    serde_json::from_str(include_str!("pagerduty.json")).unwrap()
}

pub(super) fn slack() -> Value {
    serde_json::from_str(include_str!("slack.json")).unwrap()
}

#[test]
fn the_schemas_tell_what_a_receiver_refuses() {
    let notice =
        super::Notice::of_condition(uuid::Uuid::nil(), "breaker_open", weir_config::vocab::Severity::High, "x");
    let key = "k".repeat(32);
    let (event, message) = (notice.pagerduty(&key), notice.slack());
    assert_eq!((fault(&pagerduty(), &event), fault(&slack(), &message)), (None, None));
    assert_eq!(fault(&pagerduty(), &notice.resolved().pagerduty(&key)), None);
    let broken = |pointer: &str, to: Value| {
        let (mut event, mut message) = (event.clone(), message.clone());
        let of_event = event.pointer_mut(pointer).map(|place| *place = to.clone()).is_some();
        let of_message = message.pointer_mut(pointer).map(|place| *place = to).is_some();
        assert!(of_event != of_message, "{pointer} is there");
        fault(&pagerduty(), &event).or_else(|| fault(&slack(), &message))
    };
    for (pointer, to) in [
        ("/routing_key", "k".repeat(31).into()),
        ("/dedup_key", "d".repeat(256).into()),
        ("/event_action", "raise".into()),
        ("/payload", Value::Null),
        ("/payload/summary", "ä".repeat(1_025).into()),
        ("/payload/summary", "".into()),
        ("/payload/severity", "High".into()),
        ("/payload/timestamp", "yesterday".into()),
        ("/payload/custom_details", "none".into()),
        ("/blocks/0/text/text", "h".repeat(151).into()),
        ("/blocks/1/text/text", "s".repeat(3_001).into()),
        ("/blocks/1/type", "header".into()),
        ("/blocks", vec![message["blocks"][0].clone(); 51].into()),
    ] {
        assert!(broken(pointer, to).is_some(), "{pointer} is not looked at");
    }
}
