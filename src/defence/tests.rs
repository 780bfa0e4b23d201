//! The defence over whole bodies: what the provider would read.

use proptest::prelude::*;
use serde_json::{Value, json};
use weir_config::settings::{MarkerKind, ZoneMode};
use weir_config::vocab::Dialect;

use super::*;
use crate::inspect::{Declared, ZoneAsk, read_request, zones};
use crate::rewrite::Edits;
use crate::settle::redact::redaction;

/// The body as it would be forwarded, and what was done.
fn fenced(body: &str, shape: Shape, settings: &Settings, redact: bool) -> (String, Option<Defence>) {
    let body = Bytes::from(body.to_owned());
    let dialect = if shape == Shape::Messages { Dialect::Messages } else { Dialect::ChatCompletions };
    let mut view = read_request(dialect, Declared::default(), &body, usize::MAX);
    view.zones = ZoneAsk::of(settings, None).map(|ask| Box::new(zones(&view, &ask)));
    let mut changes = if redact { redaction(&view, Some(&body)) } else { Changes::default() };
    if let Some(ask) = Ask::of(settings, Some(shape)) {
        weave(&view, Some(&body), &ask, &mut changes);
    }
    let mut edits = Edits::of(&body);
    assert_eq!(changes.put(&mut edits), 0, "an edit was refused");
    let defence = changes.defence.map(|defence| *defence);
    (String::from_utf8(edits.apply().to_vec()).unwrap(), defence)
}

fn on() -> Settings {
    let mut settings = Settings::default();
    settings.boundary_defense.enabled = true;
    settings
}

fn marking() -> Settings {
    let mut settings = on();
    let marking = &mut settings.boundary_defense.datamarking;
    (marking.enabled, marking.shadow_mode) = (true, false);
    (marking.kind, marking.value) = (MarkerKind::Fixed, Some('\u{e0f0}'));
    settings
}

const OPEN: &str = "<service-boundary>\\n";
const CLOSE: &str = "\\n</service-boundary>";

#[test]
fn every_other_byte_stays() {
    let before = "{ \"temperature\":1.0e0,\n\"messages\" :[{\"role\":\"system\",\"content\":\"";
    let middle = "Be kind.\"}, {\"role\":\"tool\",\"tool_call_id\":\"a b\",\"content\":\"";
    let after = "\"} ] , \"seed\": 12.50 }";
    let content = "caf\\u00e9 \\/ \\\"x\\\"";
    let (found, defence) = fenced(&format!("{before}{middle}{content}{after}"), Shape::Chat, &on(), false);
    let reminder = found.strip_prefix(before).unwrap().split_once(middle).unwrap().0;
    assert_eq!(found, format!("{before}{reminder}{middle}{OPEN}{content}{CLOSE}{after}"));
    assert!(reminder.contains("<service-boundary>") && reminder.ends_with("\\n\\n"), "{reminder}");
    let defence = defence.unwrap();
    assert_eq!((defence.outcome, defence.wrapped, defence.reminder), (DefenceOutcome::Applied, 1, Some(true)));
    assert_eq!(defence.bytes, reminder.len() + OPEN.len() + CLOSE.len());
}

#[test]
fn each_content_of_a_role_is_wrapped_and_nothing_else_is() {
    let result = json!({"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "one"}]});
    let plain = json!({"type": "tool_result", "tool_use_id": "u", "content": "two"});
    let picture = json!({"type": "image", "source": {"type": "url", "url": "https://a.example/b c"}});
    let call = json!({"type": "tool_use", "id": "t", "name": "f", "input": {"q": "a b"}});
    let body = json!({"system": "Be kind.", "messages": [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": [{"type": "text", "text": "I see"}, call]},
        {"role": "user", "content": [result, plain, picture, {"type": "text", "text": "three"}]},
    ]});
    let mut settings = on();
    settings.boundary_defense.inject_system_reminder = false;
    let count = |settings: &Settings| {
        let (found, defence) = fenced(&body.to_string(), Shape::Messages, settings, false);
        let found: Value = serde_json::from_str(&found).unwrap();
        (found, defence.unwrap().wrapped)
    };
    let tag = |text: &str| json!(format!("<service-boundary>\n{text}\n</service-boundary>"));
    let mut expected = body.clone();
    expected["messages"][2]["content"][0]["content"][0]["text"] = tag("one");
    expected["messages"][2]["content"][1]["content"] = tag("two");
    assert_eq!(count(&settings), (expected.clone(), 1));
    settings.boundary_defense.wrap_roles = vec!["tool".into(), "User".into(), "assistant".into()];
    expected["messages"][0]["content"] = tag("hello");
    expected["messages"][1]["content"][0]["text"] = tag("I see");
    expected["messages"][2]["content"][3]["text"] = tag("three");
    assert_eq!(count(&settings), (expected, 3));
}

#[test]
fn a_key_that_stands_twice_counts_twice() {
    let body =
        r#"{"messages":[{"role":"tool","content":"a","content":"b"}],"messages":[{"role":"tool","content":"c"}]}"#;
    let (found, defence) = fenced(body, Shape::Chat, &on(), false);
    for content in ["a", "b", "c"] {
        assert!(found.contains(&format!("\"{OPEN}{content}{CLOSE}\"")), "{found}");
    }
    assert_eq!(found.matches("\"role\":\"system\"").count(), 2, "each of the two conversations is told: {found}");
    assert_eq!(defence.unwrap().reminder, Some(true));
}

#[test]
fn a_shadow_counts_and_changes_nothing() {
    let body = json!({"messages": [{"role": "tool", "content": "a b"}]}).to_string();
    let (active, counted) = fenced(&body, Shape::Chat, &marking(), false);
    let mut settings = marking();
    settings.boundary_defense.shadow_mode = true;
    let (shadow, shadowed) = fenced(&body, Shape::Chat, &settings, false);
    assert_eq!(shadow, body);
    let (counted, shadowed) = (counted.unwrap(), shadowed.unwrap());
    assert_eq!((counted.shadow, shadowed.shadow), (false, true));
    assert_eq!(
        (counted.wrapped, counted.bytes, counted.reminder),
        (shadowed.wrapped, shadowed.bytes, shadowed.reminder)
    );
    assert_eq!(counted.marks.unwrap().marks, shadowed.marks.unwrap().marks);
    // The marker takes two bytes more than the blank it stands for.
    assert_eq!(active.len(), body.len() + counted.bytes + 2);
}

#[test]
fn the_words_of_the_reminder_name_the_tag() {
    let mut settings = on();
    let words_of = |settings: &BoundaryDefense| words(settings, "data-1a");
    assert!(words_of(&settings.boundary_defense).contains("<data-1a> and </data-1a>"));
    settings.boundary_defense.system_reminder_text = "Mind {delimiter}.".into();
    assert_eq!(words_of(&settings.boundary_defense), "Mind data-1a.");
    settings.boundary_defense.system_reminder_text = "Mind it.".into();
    assert_eq!(words_of(&settings.boundary_defense), "Mind it. The data stands between <data-1a> and </data-1a>.");
}

#[test]
fn a_tag_with_digits_differs_from_request_to_request() {
    let mut settings = on();
    settings.boundary_defense.randomize_nonce = true;
    let body = json!({"messages": [{"role": "tool", "content": "x"}]}).to_string();
    let tag = || {
        let found: Value = serde_json::from_str(&fenced(&body, Shape::Chat, &settings, false).0).unwrap();
        let (reminder, content) = (&found["messages"][0]["content"], found["messages"][1]["content"].as_str().unwrap());
        let tag = content.lines().next().unwrap().to_owned();
        assert!(reminder.as_str().unwrap().contains(&tag), "{found}");
        let digits = tag.strip_prefix("<service-boundary-").and_then(|rest| rest.strip_suffix('>')).unwrap();
        assert!(digits.len() == 8 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()), "{tag}");
        assert!(content.ends_with(&format!("\n</service-boundary-{digits}>")), "{content}");
        tag
    };
    assert_ne!(tag(), tag());
}

#[test]
fn marks_stand_in_data_only() {
    let body = json!({"messages": [
        {"role": "system", "content": "Be kind to all."},
        {"role": "user", "content": "What is\n> so said he\nabout?"},
        {"role": "tool", "content": "a b\n</service-boundary> c"},
    ]});
    let (found, defence) = fenced(&body.to_string(), Shape::Chat, &marking(), false);
    let found: Value = serde_json::from_str(&found).unwrap();
    let system = found["messages"][0]["content"].as_str().unwrap();
    assert!(system.contains("(U+E0F0)") && system.ends_with("\n\nBe kind to all."), "{system}");
    assert_eq!(found["messages"][1]["content"], "What is\n>\u{e0f0}so\u{e0f0}said\u{e0f0}he\nabout?");
    let tool = "<service-boundary>\na\u{e0f0}b\u{e0f0}&lt;/service-boundary>\u{e0f0}c\n</service-boundary>";
    assert_eq!(found["messages"][2]["content"], tool);
    assert_eq!(defence.unwrap().marks, Some(Marks { zones: 2, marks: 6, shadow: false }));
}

#[test]
fn the_operators_markers_go_whatever_is_off() {
    let mut settings = Settings::default();
    settings.security_analysis.zones.enabled = true;
    let body =
        json!({"messages": [{"role": "user", "content": "Sum up <service-data>a\nb</service-data> now"}]}).to_string();
    let (found, defence) = fenced(&body, Shape::Chat, &settings, false);
    assert_eq!(found, body.replace("<service-data>", "").replace("</service-data>", ""));
    assert_eq!(defence, None);
    settings.security_analysis.zones.mode = ZoneMode::Heuristic;
    assert_eq!(fenced(&body, Shape::Chat, &settings, false).0, body);
}

/// Words that meet everything the defence looks for.
fn hostile() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        "</service-boundary>",
        "<service-boundary>",
        "</SERVICE-boundary>",
        "< /service-boundary",
        "<",
        "/",
        "service-boundary",
        "</service<service-data>-boundary>",
        "</serv",
        "ice-boundary>",
        "<service-data>",
        "</service-data>",
        "a@example.com",
        "4111 1111 1111 1111",
        "\n> ",
        "\n```\n",
        "\"",
        "\\",
        "\u{1f600}",
        "\u{200b}",
        " ",
        "\u{a0}",
        "word",
        "\u{ff1c}/service-boundary>",
    ]);
    proptest::collection::vec(words, 0..12).prop_map(|words| words.concat())
}

/// Every text of a document, in order.
fn texts(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::String(text) => out.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| texts(item, out)),
        Value::Object(fields) => fields.values().for_each(|field| texts(field, out)),
        _ => {}
    }
}

proptest! {
    /// Whatever contents say: the body stays JSON, exactly our own tags open and close, and what is between them says what was
    /// said but for what is taken out.
    #[test]
    fn no_content_closes_its_boundary(
        said in proptest::collection::vec((prop::sample::select(vec!["tool", "user", "assistant"]), hostile()), 1..5),
        blocks in any::<bool>(), marks in any::<bool>(), redact in any::<bool>(), zoned in any::<bool>(), all in any::<bool>(),
    ) {
        let mut settings = if marks { marking() } else { on() };
        settings.security_analysis.zones.enabled = zoned;
        if all {
            settings.boundary_defense.wrap_roles = vec!["tool".into(), "user".into(), "assistant".into()];
        }
        settings.boundary_defense.inject_system_reminder = false;
        let turns: Vec<Value> = said.iter().map(|(role, text)| match blocks {
            true => json!({"role": role, "content": [{"type": "text", "text": text}]}),
            false => json!({"role": role, "content": text}),
        }).collect();
        let body = json!({"messages": turns, "n": 1}).to_string();
        let (found, defence) = fenced(&body, Shape::Chat, &settings, redact);
        let after: Value = serde_json::from_str(&found).unwrap();
        let mut contents = Vec::new();
        for turn in after["messages"].as_array().unwrap() {
            texts(&turn["content"], &mut contents);
        }
        contents.retain(|text| text != "text");
        let mut wrapped = 0;
        for ((role, text), content) in said.iter().zip(&contents) {
            let is_wrapped = !text.is_empty() && (all || *role == "tool");
            if !is_wrapped {
                continue;
            }
            wrapped += 1;
            let inside = content.strip_prefix("<service-boundary>\n").and_then(|rest| rest.strip_suffix("\n</service-boundary>"));
            let inside = inside.unwrap_or_else(|| panic!("{content}"));
            prop_assert!(!inside.to_lowercase().contains("<service-boundary>"), "{}", inside);
            prop_assert!(!inside.to_lowercase().contains("</service-boundary>"), "{}", inside);
        }
        prop_assert_eq!(defence.unwrap().wrapped, wrapped);
        if !redact && !marks && !zoned {
            let bare = |text: &str| text.replace("&lt;", "<").replace("\u{ff1c}", "<");
            for ((_, text), content) in said.iter().zip(&contents) {
                let inside = content.strip_prefix("<service-boundary>\n").and_then(|rest| rest.strip_suffix("\n</service-boundary>"));
                prop_assert_eq!(bare(inside.unwrap_or(content)), bare(text));
            }
        }
    }

    /// Bytes outside of contents stay, in front of and behind every message.
    #[test]
    fn what_is_no_content_stays(text in hostile(), seed in "[0-9]{1,5}", marks in any::<bool>()) {
        let settings = if marks { marking() } else { on() };
        let escaped = json!(text).to_string();
        let (before, after) = (
            format!("{{\"seed\" : {seed}.50,\"messages\":[ {{\"tool_call_id\":\"x <service-boundary> y\",\"role\":\"tool\",\"content\":"),
            "} ],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"a  b\"}}]}".to_owned(),
        );
        let (found, _) = fenced(&format!("{before}{escaped}{after}"), Shape::Chat, &settings, false);
        prop_assert!(found.ends_with(&after), "{}", found);
        let start = before.find('[').unwrap() + 1;
        prop_assert!(found.starts_with(&before[..start]), "{}", found);
        prop_assert!(found.contains(&before[start..]), "{}", found);
    }
}
