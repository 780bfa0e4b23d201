//! What fences strangers' words in and what redacts personal data, in one request: neither undoes the other.

use bytes::Bytes;
use proptest::prelude::*;
use serde_json::{Value, json};
use weir_config::Settings;
use weir_config::settings::{MarkerKind, ZoneMode};
use weir_config::vocab::{Dialect, Finding, Severity};

use super::redaction;
use crate::defence::{Ask, Shape, weave};
use crate::hostile::{Listed, assert_linear, assert_linear_in};
use crate::inspect::{Declared, ZoneAsk, find_zones, read_request};
use crate::rewrite::{Changes, Defence, Edits, advisory_message};

/// The body as it would be forwarded, and what was done.
fn fenced(body: &str, shape: Shape, settings: &Settings, redact: bool) -> (String, Option<Defence>) {
    let dialect = if shape == Shape::Messages { Dialect::Messages } else { Dialect::ChatCompletions };
    fenced_as(body, dialect, settings, redact)
}

fn fenced_as(body: &str, dialect: Dialect, settings: &Settings, redact: bool) -> (String, Option<Defence>) {
    let body = Bytes::from(body.to_owned());
    let shape = if dialect == Dialect::Messages { Shape::Messages } else { Shape::Chat };
    let mut view = read_request(dialect, Declared::default(), &body, usize::MAX);
    if let Some(ask) = ZoneAsk::of(settings, None) {
        find_zones(&mut view, &ask, Some(&body));
    }
    let mut changes = if redact { redaction(&view, Some(&body), &[], None) } else { Changes::default() };
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

/// A message as a dialect writes it; what a tool says is a block of a user's message among the messages.
fn turn(form: Dialect, role: &str, text: &str, blocks: bool) -> Value {
    let content = if blocks { json!([{"type": "text", "text": text}]) } else { json!(text) };
    match (form, role) {
        (Dialect::Messages, "tool") => {
            json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": content}]})
        }
        _ => json!({"role": role, "content": content}),
    }
}

/// What a message of [`turn`] says.
fn content(turn: &Value) -> &str {
    let mut content = &turn["content"];
    while let Some(block) = content.get(0) {
        content = if block["type"] == "text" { &block["text"] } else { &block["content"] };
    }
    content.as_str().unwrap()
}

/// What stands between the tags of a content, with eight digits in them or without; `None` where there are none.
fn inside(content: &str, nonce: bool) -> Option<&str> {
    let (opening, rest) = content.split_once(">\n")?;
    let digits = opening.strip_prefix("<service-boundary")?;
    let fits = |digits: &str| digits.len() == 8 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let is_ours = if nonce { digits.strip_prefix('-').is_some_and(fits) } else { digits.is_empty() };
    rest.strip_suffix(&format!("\n</service-boundary{digits}>")).filter(|_| is_ours)
}

/// Whether a reader who minds neither case nor blanks nor what nobody sees could take some of a text for a tag.
fn spells_the_tag(text: &str) -> bool {
    let unseen = |c: char| c.is_whitespace() || matches!(c, '\u{200b}' | '\u{e0f0}');
    let plain: String = text.chars().map(|c| if c == '\u{ff1c}' { '<' } else { c }).filter(|c| !unseen(*c)).collect();
    let plain = plain.to_lowercase();
    ["<service-boundary", "</service-boundary"].iter().any(|tag| {
        // A longer word is another one.
        plain
            .match_indices(tag)
            .any(|(at, _)| !plain[at + tag.len()..].starts_with(|c: char| c.is_ascii_alphanumeric()))
    })
}

proptest! {
    /// Whatever contents say: the body stays JSON, exactly our own tags open and close, however one reads them, and what is between
    /// them says what was said but for what is taken out.
    #[test]
    fn no_content_closes_its_boundary(
        said in proptest::collection::vec((prop::sample::select(vec!["tool", "user", "assistant"]), hostile()), 1..5),
        form in prop::sample::select(vec![Dialect::ChatCompletions, Dialect::LocalServer, Dialect::Messages]),
        (nonce, blocks, marks) in any::<(bool, bool, bool)>(), (redact, zoned, all) in any::<(bool, bool, bool)>(),
    ) {
        let mut settings = if marks { marking() } else { on() };
        settings.security_analysis.zones.enabled = zoned;
        settings.boundary_defense.randomize_nonce = nonce;
        if all {
            settings.boundary_defense.wrap_roles = vec!["tool".into(), "user".into(), "assistant".into()];
        }
        settings.boundary_defense.inject_system_reminder = false;
        let turns: Vec<Value> = said.iter().map(|(role, text)| turn(form, role, text, blocks)).collect();
        let body = json!({"messages": turns, "n": 1}).to_string();
        let (found, defence) = fenced_as(&body, form, &settings, redact);
        let after: Value = serde_json::from_str(&found).unwrap();
        let contents: Vec<&str> = after["messages"].as_array().unwrap().iter().map(content).collect();
        let mut wrapped = 0;
        for ((role, text), content) in said.iter().zip(&contents) {
            let is_wrapped = !text.is_empty() && (all || *role == "tool");
            if !is_wrapped {
                continue;
            }
            wrapped += 1;
            let inside = inside(content, nonce).unwrap_or_else(|| panic!("{content}"));
            prop_assert!(!spells_the_tag(inside), "{}", inside);
        }
        prop_assert_eq!(defence.unwrap().wrapped, wrapped);
        if !redact && !marks && !zoned {
            let bare = |text: &str| text.replace("&lt;", "<").replace("\u{ff1c}", "<");
            for ((_, text), content) in said.iter().zip(&contents) {
                prop_assert_eq!(bare(inside(content, nonce).unwrap_or(content)), bare(text));
            }
        }
    }

    /// All four together: the advisory is there once and changes nothing else, each content has one pair of tags, the reminder
    /// stands once, and there is nothing left to redact.
    #[test]
    fn no_rewrite_applies_twice_to_one_request(
        said in proptest::collection::vec((prop::sample::select(vec!["tool", "user", "assistant"]), hostile()), 1..5),
        marks in any::<bool>(), zoned in any::<bool>(), severe in any::<bool>(),
    ) {
        let mut settings = if marks { marking() } else { on() };
        settings.security_analysis.zones.enabled = zoned;
        let turns: Vec<Value> =
            said.iter().map(|(role, text)| turn(Dialect::ChatCompletions, role, text, false)).collect();
        let body = Bytes::from(json!({"messages": turns, "n": 1}).to_string());
        let view = read_request(Dialect::ChatCompletions, Declared::default(), &body, usize::MAX);
        let severity = if severe { Severity::High } else { Severity::Info };
        let findings = [Finding::new("jailbreak", severity, 0.9, "rules", "test")];
        let advisory = advisory_message(&findings, Severity::Medium, view.messages_empty);
        prop_assert_eq!(advisory.is_some(), severe);
        let (without, defence) = fenced_as(std::str::from_utf8(&body).unwrap(), Dialect::ChatCompletions, &settings, true);
        let (found, defence_too) = {
            let mut view = view.clone();
            if let Some(ask) = ZoneAsk::of(&settings, None) {
                find_zones(&mut view, &ask, Some(&body));
            }
            let mut changes = redaction(&view, Some(&body), &[], None);
            weave(&view, Some(&body), &Ask::of(&settings, Some(Shape::Chat)).unwrap(), &mut changes);
            let mut edits = Edits::of(&body);
            prop_assert_eq!(changes.put(&mut edits), 0);
            if let Some(message) = advisory.clone() {
                edits.insert(view.messages_open.unwrap(), message).unwrap();
            }
            (String::from_utf8(edits.apply().to_vec()).unwrap(), changes.defence)
        };
        prop_assert_eq!(defence.as_ref(), defence_too.as_deref());
        let spoken = String::from_utf8(advisory.unwrap_or_default()).unwrap();
        prop_assert_eq!(&found.replacen(&spoken, "", 1), &without);
        prop_assert_eq!(found.matches("Security notice from the gateway").count(), usize::from(severe));
        let defence = defence.unwrap();
        let (wrapped, reminded) = (defence.wrapped, defence.reminder == Some(true));
        prop_assert!(reminded || wrapped == 0, "{}", found);
        prop_assert_eq!(found.matches("Text between <service-boundary>").count(), usize::from(wrapped > 0), "{}", found);
        let after: Value = serde_json::from_str(&found).unwrap();
        let messages = after["messages"].as_array().unwrap();
        let ahead = messages.len() - said.len();
        prop_assert_eq!(ahead, usize::from(severe) + usize::from(reminded));
        for ((role, text), message) in said.iter().zip(&messages[ahead..]) {
            if *role == "tool" && !text.is_empty() {
                prop_assert!(inside(content(message), false).is_some_and(|inside| !spells_the_tag(inside)), "{}", found);
            }
        }
        let again = Bytes::from(found.clone());
        let view = read_request(Dialect::ChatCompletions, Declared::default(), &again, usize::MAX);
        prop_assert_eq!(redaction(&view, Some(&again), &[], None).personal, 0, "{}", found);
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

#[test]
fn whatever_is_fenced_in_and_redacted_takes_time_in_proportion_to_its_length() {
    let mut settings = marking();
    let zones = &mut settings.security_analysis.zones;
    (zones.enabled, zones.mode) = (true, ZoneMode::Operator);
    assert_linear("a body", |text| {
        let body = json!({"messages": [
            {"role": "system", "content": text},
            {"role": "user", "content": format!("<service-data>{text}</service-data>{text}")},
            {"role": "tool", "tool_call_id": "a", "content": text},
        ]});
        fenced(&body.to_string(), Shape::Chat, &settings, true);
    });
    let lists: [Listed; 5] = [
        ("{\"messages\":[{}", "]}", |number| {
            format!(",{{\"role\":\"tool\",\"tool_call_id\":\"{number}\",\"content\":\"a b\"}}")
        }),
        ("{\"messages\":[{\"role\":\"user\",\"content\":[{}", "]}]}", |number| {
            format!(
                ",{{\"type\":\"tool_result\",\"tool_use_id\":\"{number}\",\"content\":\"<service-boundary> a@b.example\"}}"
            )
        }),
        ("{\"messages\":[{\"role\":\"user\",\"content\":\"a", "\"}]}", |number| {
            format!("<service-data>a {number}</service-data> b@c.example")
        }),
        ("{\"a\":0", "}", |_| ",\"messages\":[{\"role\":\"system\",\"content\":\"a\"}]".to_owned()),
        ("{\"a\":0", "}", |_| ",\"system\":[{\"type\":\"text\",\"text\":\"a\"}]".to_owned()),
    ];
    for (before, after, unit) in lists {
        for shape in [Shape::Chat, Shape::Messages] {
            assert_linear_in("a body", (before, after), unit, |body| drop(fenced(body, shape, &settings, true)));
        }
    }
}
