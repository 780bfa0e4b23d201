//! Zones of request bodies, by the form of the text and by the operator's word.

use proptest::prelude::*;
use serde_json::{Value, json};
use weir_config::vocab::Dialect;

use super::*;
use crate::inspect::{Declared, ZoneKind, read_request};

fn read(body: &Value) -> Box<RequestView> {
    read_request(Dialect::ChatCompletions, Declared::default(), body.to_string().as_bytes(), usize::MAX)
}

fn user(text: &str) -> Box<RequestView> {
    read(&json!({"messages": [{"role": "user", "content": text}]}))
}

/// The zones of what was read, its markers left where they are.
fn zones(view: &RequestView, ask: &ZoneAsk) -> Zones {
    let mut view = view.clone();
    find_zones(&mut view, ask, None);
    *view.zones.unwrap()
}

fn ask(mode: ZoneMode, header: Option<&str>) -> ZoneAsk {
    ZoneAsk { mode, header: header.map(str::to_owned), scanned: true }
}

fn found(view: &RequestView, mode: ZoneMode, header: Option<&str>) -> Vec<(ZoneKind, String)> {
    let zones = zones(view, &ask(mode, header));
    zones.list.iter().map(|zone| (zone.kind, view.text[zone.range.clone()].to_owned())).collect()
}

fn by_form(text: &str) -> Vec<(ZoneKind, String)> {
    found(&user(text), ZoneMode::Heuristic, None)
}

#[track_caller]
fn assert_form(text: &str, expected: &[(ZoneKind, &str)]) {
    let expected: Vec<_> = expected.iter().map(|(kind, words)| (*kind, (*words).to_owned())).collect();
    assert_eq!(by_form(text), expected, "{text}");
}

#[test]
fn each_form_is_known_by_its_shape() {
    assert_form("Fix:\n```rust\nlet a;\n```\nplease", &[(ZoneKind::Fence, "let a;\n")]);
    assert_form("Fix ```let a;``` please", &[(ZoneKind::Fence, "let a;")]);
    assert_form("Sum up \"\"\"one\ntwo\"\"\" now", &[(ZoneKind::Fence, "one\ntwo")]);
    assert_form("He said:\n> one\n> two\nIs it so?", &[(ZoneKind::Quote, "> one\n> two")]);
    let mail = "From: a@example.com\nSubject: hello\n\nDear all,\nbye";
    assert_form(&format!("Answer this:\n{mail}\n-----\nin two lines"), &[(ZoneKind::Mail, mail)]);
    assert_form("Explain <div>a <div>b</div></div> to me", &[(ZoneKind::Markup, "<div>a <div>b</div></div>")]);
    assert_form(
        "What is in\n{\"a\": [1, {\"b\": \"}\"}]}\nand why",
        &[(ZoneKind::Json, "{\"a\": [1, {\"b\": \"}\"}]}")],
    );
    assert_form(
        "Add up\n| a | b |\n|---|---|\n| 1 | 2 |\nplease",
        &[(ZoneKind::Table, "| a | b |\n|---|---|\n| 1 | 2 |")],
    );
    assert_form("Add up\na\tb\n1\t2\n3\t4\nplease", &[(ZoneKind::Table, "a\tb\n1\t2\n3\t4")]);
    assert_form("Add up\na,b,c\n1,2,3\n4,5,6\nplease", &[(ZoneKind::Table, "a,b,c\n1,2,3\n4,5,6")]);
    assert_form(
        "Use this.\n<document id=\"1\">one</document>\n<document>two</document>\nWho?",
        &[(ZoneKind::Passage, "<document id=\"1\">one</document>\n<document>two</document>")],
    );
    assert_form(
        "Document 1 (wiki): one\nmore\nDocument 2: two\nQuestion: who?",
        &[(ZoneKind::Passage, " one\nmore"), (ZoneKind::Passage, " two")],
    );
}

#[test]
fn what_is_not_closed_reaches_to_the_end() {
    assert_form("a\n```\nb\nc", &[(ZoneKind::Fence, "b\nc")]);
    assert_form("a <document>b\nc", &[(ZoneKind::Passage, "<document>b\nc")]);
    assert_form("a <!doctype html><p>b", &[(ZoneKind::Markup, "<!doctype html><p>b")]);
}

#[test]
fn plain_words_have_no_zone() {
    for text in [
        "What is the capital of France?",
        "Is 3 > 2, and x <- 4 when a<b or Vec<T>?",
        "Apples, pears, plums.\nBread, milk, eggs.\nTea, salt, oil.",
        "From: here on I go alone.",
        "[1] see [2]",
        "Use `code` and \"words\" and a | b.",
        "see source https://example.com/a:b",
        "\"\"\"never closed",
        "<T>generic</T> and <foo>",
    ] {
        assert_form(text, &[]);
    }
}

#[test]
fn only_what_users_say_is_told_by_its_form() {
    let messages = json!([
        {"role": "system", "content": "```\na\n```"},
        {"role": "assistant", "content": "```\nb\n```"},
        {"role": "tool", "tool_call_id": "t", "content": "```\nc\n```"},
        {"role": "user", "content": [{"type": "text", "text": "```\nd\n```"}, {"type": "text", "text": "> e"}]},
    ]);
    let view = read(&json!({ "messages": messages }));
    let expected = [(ZoneKind::Fence, "d\n".to_owned()), (ZoneKind::Quote, "> e".to_owned())];
    assert_eq!(found(&view, ZoneMode::Heuristic, None), expected);
}

#[test]
fn markers_are_the_applications_and_are_noted() {
    let messages = json!([
        {"role": "system", "content": "Be kind. <service-data>a</service-data> b"},
        {"role": "tool", "content": "</service-data>c<service-data>"},
        {"role": "user", "content": [
            {"type": "text", "text": "d </service-data> <service-data>e<service-data>f"},
            {"type": "text", "text": "g</service-data>h"},
        ]},
        {"role": "user", "content": "i"},
        {"role": "user", "content": "j<service-data>k"},
        {"role": "user", "content": "l"},
    ]);
    let view = read(&json!({ "messages": messages }));
    let marked = |words: &str| (ZoneKind::Marked, words.to_owned());
    assert_eq!(found(&view, ZoneMode::Operator, None), ["a", "e", "f", "g", "k"].map(marked));
    let markers = zones(&view, &ask(ZoneMode::Operator, None)).markers;
    let expected = [
        "<service-data>",
        "</service-data>",
        "</service-data>",
        "<service-data>",
        "<service-data>",
        "</service-data>",
        "<service-data>",
    ];
    assert_eq!(markers.iter().map(|range| &view.text[range.clone()]).collect::<Vec<_>>(), expected);
    assert_eq!(zones(&view, &ask(ZoneMode::Heuristic, None)), Zones { scanned: true, ..Zones::default() });
}

#[test]
fn the_header_names_places_or_a_delimiter() {
    let messages = json!([
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "say: é one"}, {"type": "text", "text": "two##three##four"}]},
    ]);
    let view =
        read(&json!({ "messages": messages, "tools": [{"type": "function", "function": {"description": "x y"}}] }));
    let marked = |words: &str| (ZoneKind::Marked, words.to_owned());
    let header = |text: &str| {
        let zones = zones(&view, &ask(ZoneMode::Operator, Some(text)));
        let words =
            zones.list.iter().map(|zone| (zone.kind, view.text[zone.range.clone()].to_owned())).collect::<Vec<_>>();
        (words, zones.bad_entries)
    };
    assert_eq!(header("1:8-11"), (vec![marked("one")], 0));
    assert_eq!(header("1:8-14, 0:3-7"), (vec![marked("kind"), marked("one"), marked("tw")], 0));
    assert_eq!(header("1:8-11,0-3"), (vec![marked("say"), marked("one")], 0), "the same message goes on");
    // In the middle of a character, backwards, behind the end, of no message, of no form.
    assert_eq!(header("1:6-7,1:3-3,1:4-2,0:0-99,7:0-1,x,0:3-7"), (vec![marked("kind")], 6));
    assert_eq!(header("##"), (vec![marked("three")], 0));
    assert_eq!(header("nowhere"), (vec![], 0));
    assert_eq!(found(&view, ZoneMode::Heuristic, Some("1:8-11")), []);
}

#[test]
fn the_operators_word_counts_where_both_speak() {
    let view = user("See\n```\none two\n```\n> three\nand <service-data>four</service-data>.");
    let both = found(&view, ZoneMode::Both, Some("0:8-11"));
    let expected = [
        (ZoneKind::Marked, "one".to_owned()),
        (ZoneKind::Quote, "> three".to_owned()),
        (ZoneKind::Marked, "four".to_owned()),
    ];
    assert_eq!(both, expected);
}

#[test]
fn zones_are_bounded_and_none_is_lost() {
    let view = user(&"> a\nb\n".repeat(3 * ZONES_MAX));
    let found = zones(&view, &ask(ZoneMode::Both, None)).list;
    assert_eq!(found.len(), ZONES_MAX);
    assert_eq!(found.last().unwrap().range.end, view.text.len());
    let marked = user(&"<service-data>a</service-data>b".repeat(3 * ZONES_MAX));
    let zones = zones(&marked, &ask(ZoneMode::Operator, None)).list;
    assert!(zones.len() <= ZONES_MAX && zones.last().unwrap().range.end > marked.text.len() - 20);
}

proptest! {
    /// Whatever stands there: zones lie in their part at character boundaries, in order, apart from one another, and what the
    /// operator marks is found.
    #[test]
    fn zones_are_places_of_their_part(
        words in proptest::collection::vec(prop::sample::select(vec![
            "```", "\n", "> ", "{\"a\":", "[\"", "}", "]", "<div>", "</div>", "<document>", "</document>", "From: a\n",
            "Subject: b\n", "Context: ", "Question: ", "| a | b |\n", "|---|---|\n", "\"\"\"", "a,b,c\n", "é", " word ",
            "<service-data>", "</service-data>", "##", "<", "`", "\u{1f600}",
        ]), 0..40),
        header in prop::sample::select(vec![None, Some("##"), Some("0:1-5,1:0-3"), Some("0:0-2,9:1-2,z")]),
    ) {
        let text = words.concat();
        let (first, second) = text.split_at(text.floor_char_boundary(text.len() / 2));
        let view = read(&json!({"messages": [{"role": "user", "content": first}, {"role": "user", "content": second}]}));
        for mode in [ZoneMode::Heuristic, ZoneMode::Operator, ZoneMode::Both] {
            let zones = zones(&view, &ask(mode, header));
            let mut reached = 0;
            for zone in &zones.list {
                let part = &view.parts[zone.part];
                prop_assert!(part.range.start <= zone.range.start && zone.range.end <= part.range.end);
                prop_assert!(reached <= zone.range.start && zone.range.start < zone.range.end);
                prop_assert!(view.text.get(zone.range.clone()).is_some());
                reached = zone.range.end;
            }
            for marker in &zones.markers {
                let left = view.text[marker.clone()].replace("<service-data>", "").replace("</service-data>", "");
                prop_assert_eq!(left, "");
            }
        }
        let marked = zones(&view, &ask(ZoneMode::Operator, header)).list;
        let both = zones(&view, &ask(ZoneMode::Both, header)).list;
        prop_assert!(marked.iter().all(|zone| both.contains(zone)));
    }

    /// What is left of the texts is what is left of the body, without a marker in either, and every place is one in it: the frame
    /// and the texts are the body that will be sent.
    #[test]
    fn markers_are_taken_out_of_texts_and_body_alike(
        words in proptest::collection::vec(prop::sample::select(vec![
            "<service-data>", "</service-data>", "<service-", "</serv", "ice-", "data>", "<", ">", "/", "\"", "\n", "é", "\u{1f600}", " word ",
        ]), 0..24),
        escapes in any::<bool>(),
    ) {
        // What has no text is no part.
        let said = format!("x{}", words.concat());
        let messages = json!([
            {"role": "user", "content": [{"type": "text", "text": said}, {"type": "text", "text": "end"}]},
            {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\":\"<service-data>\"}"}}]},
            {"role": "tool", "tool_call_id": "c", "content": format!("{said}</service-data>")},
        ]);
        let mut body = json!({ "messages": messages }).to_string();
        if escapes {
            body = body.replace('<', "\\u003c").replace('a', "\\u0061");
        }
        let mut view = read_request(Dialect::ChatCompletions, Declared::default(), body.as_bytes(), usize::MAX);
        find_zones(&mut view, &ask(ZoneMode::Both, None), Some(body.as_bytes()));
        let zones = view.zones.clone().unwrap();
        prop_assert!(zones.markers.is_empty());
        let mut sent = body.clone();
        for cut in zones.cuts.iter().rev() {
            sent.replace_range(cut.clone(), "");
        }
        let again = read_request(Dialect::ChatCompletions, Declared::default(), sent.as_bytes(), usize::MAX);
        prop_assert_eq!(&again.text, &view.text);
        let own = &view.text[view.parts[0].range.clone()];
        prop_assert!(!own.contains("<service-data>") && !own.contains("</service-data>"), "{}", own);
        let ranges = |view: &RequestView| view.parts.iter().map(|part| part.range.clone()).collect::<Vec<_>>();
        prop_assert_eq!(ranges(&again), ranges(&view));
        for part in &view.parts {
            let spots = view.spots(body.as_bytes(), part.range.clone()).unwrap();
            let raw: String = spots.iter().map(|spot| &body[spot.raw.clone()]).collect();
            let raw: String = serde_json::from_str(&format!("\"{raw}\"")).unwrap();
            prop_assert_eq!(raw, &view.text[part.range.clone()]);
        }
        let record = |view: RequestView| {
            let frame = view.frame.clone().unwrap();
            frame.body(&view.into_record().0)
        };
        prop_assert_eq!(
            serde_json::from_str::<Value>(&record(*view)).unwrap(), serde_json::from_str::<Value>(&record(*again)).unwrap()
        );
    }
}
