//! Events of hostile words, read back as others read them.

use std::collections::BTreeMap;

use proptest::prelude::*;
use weir_config::vocab::{Severity, Timestamp};

use super::event::{Event, Kind};
use super::syslog::Heading;
use super::{cef, json};

fn event(words: &str, kind: Kind) -> Event {
    let some = || Some(words.to_owned());
    Event {
        kind,
        id: words.to_owned(),
        at: Timestamp::from_micros(1_700_000_000_000_001),
        name: words.to_owned(),
        says: words.to_owned(),
        severity: Severity::High,
        is_blocked: true,
        confidence: Some(0.5),
        detector: some(),
        rule: some(),
        location: some(),
        evidence: some(),
        tenant: some(),
        trace: some(),
        span: some(),
        provider: some(),
        model: some(),
        session: some(),
        actor: some(),
        target: some(),
        source: some(),
        status: Some(403),
        score: Some(80),
        detail: BTreeMap::from([(words.to_owned(), words.to_owned())]),
    }
}

/// The messages of a stream, by the lengths in front of them.
fn messages(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let at = bytes.iter().position(|byte| *byte == b' ').unwrap();
        let len: usize = std::str::from_utf8(&bytes[..at]).unwrap().parse().unwrap();
        let (message, rest) = bytes[at + 1..].split_at(len);
        all.push(message);
        bytes = rest;
    }
    all
}

/// The values of an extension as a reader of CEF takes them apart: a key is a word before an unescaped `=`.
fn extension(text: &str) -> BTreeMap<String, String> {
    let mut equals = Vec::new();
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '\\' if !escaped => escaped = true,
            '=' if !escaped => equals.push(at),
            _ => escaped = false,
        }
    }
    let key_begins = |at: usize| text[..at].rfind(' ').map_or(0, |blank| blank + 1);
    let ends = equals.iter().skip(1).map(|at| key_begins(*at).saturating_sub(1)).chain([text.len()]);
    equals
        .iter()
        .zip(ends)
        .map(|(at, end)| (text[key_begins(*at)..*at].to_owned(), text[at + 1..end].to_owned()))
        .collect()
}

#[test]
fn hostile_words_end_no_field_and_no_message() {
    let words = "a|b=c\\d\ne\r\n<34>1 - - - - - - CEF:0|x src=6.6.6.6\u{2028}\u{0}\u{1b}[31m é😀";
    for kind in [Kind::Finding, Kind::Refusal, Kind::Audit] {
        let event = event(words, kind);
        let text = cef::text(&event);
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.chars().any(|c| c.is_control() || c == '\u{2028}'), "{text}");
        let bare = text.replace("\\\\", "").replace("\\|", "");
        // The header's bars are escaped, those of the extension need not be.
        let fields: Vec<&str> = bare.splitn(8, '|').collect();
        assert_eq!((fields[0], fields[6]), ("CEF:0", "8"), "{text}");
        let pairs = extension(fields[7]);
        assert_eq!(pairs["outcome"], "403");
        assert_eq!(pairs["cn1"], "80");
        assert!(!pairs.values().any(|value| value == "6.6.6.6"), "{pairs:?}");
        for record in [json::ocsf(&event), json::ecs(&event)] {
            assert!(record.is_ascii() && record.lines().count() == 1, "{record}");
            let read: serde_json::Value = serde_json::from_str(&record).unwrap();
            assert_eq!(read["message"], words);
        }
    }
}

proptest! {
    #[test]
    fn any_words_stay_in_their_message(words in proptest::collection::vec("\\PC{0,40}|[|=\\\\\n\r <>0-9]{0,40}|.{0,9000}", 1..5)) {
        let (heading, mut stream) = (Heading::here(), Vec::new());
        let events: Vec<Event> = words.iter().map(|words| event(words, Kind::Finding)).collect();
        for event in &events {
            heading.frame(event, &cef::text(event), &mut stream);
            heading.frame(event, &json::ecs(event), &mut stream);
        }
        let all = messages(&stream);
        prop_assert_eq!(all.len(), 2 * events.len());
        for message in all {
            let message = std::str::from_utf8(message).unwrap();
            prop_assert!(message.starts_with("<35>1 2023-11-14T22:13:20.000001Z ") && message.contains(" finding - "), "{message}");
            prop_assert!(!message.contains(['\n', '\r']), "{message}");
        }
    }
}
