//! What redaction and the operator's markers leave behind in every shape of request, byte for byte: bodies are put together from
//! pieces whose spelling is drawn by lot, so that the expected body is known without reading any.

use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use proptest::prelude::*;
use proptest::sample::select;
use weir_config::Settings;
use weir_config::settings::ZoneMode;
use weir_config::vocab::Dialect;
use weir_inference::{Analyser, Call, PartKind, PlanSettings};

use super::redaction;
use crate::defence::{Ask, weave};
use crate::inspect::{Declared, RequestView, Takes, ZoneAsk, find_zones, percent_encoded, read_request};
use crate::rewrite::{Changes, Edits};
use crate::settle::inspection::{How, Texts, run};

/// How a slot of a body spells its words.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Slot {
    Json,
    Percent,
    Plain,
    Quoted,
    Base64,
}

/// A body with `@` where words go; `~` is a file in base64.
#[derive(Debug, Clone, Copy)]
struct Shape {
    dialect: Dialect,
    content_type: &'static str,
    slot: Slot,
    body: &'static str,
}

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";
const MULTIPART: &str = "multipart/form-data; boundary=x";

const fn json(dialect: Dialect, body: &'static str) -> Shape {
    Shape { dialect, content_type: JSON, slot: Slot::Json, body }
}

const fn form(content_type: &'static str, slot: Slot, body: &'static str) -> Shape {
    Shape { dialect: Dialect::ChatCompletions, content_type, slot, body }
}

/// The shapes of all dialects, some with keys that stand twice.
const SHAPES: [Shape; 22] = [
    json(
        Dialect::ChatCompletions,
        r#"{ "model":"m" ,"messages":[{"role":"system","content":"@"},{"content":"@","role":"user"}],"n":1.0e0}"#,
    ),
    json(
        Dialect::ChatCompletions,
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"@\"},\n {\"text\":\"@\",\"type\":\"text\"}]}]}",
    ),
    json(
        Dialect::ChatCompletions,
        r#"{"messages":[{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"@"}}]},{"role":"tool","tool_call_id":"c","content":"@"}]}"#,
    ),
    json(
        Dialect::ChatCompletions,
        r#"{"messages":[{"role":"user","content":[{"type":"file","file":{"file_data":"data:text/plain;base64,~","filename":"a.txt"}},{"type":"text","text":"@"}]}]}"#,
    ),
    json(
        Dialect::ChatCompletions,
        r#"{"messages":[{"content":"@","content":"@"}],"n":12.50,"messages":[{"content":"@"}]}"#,
    ),
    json(Dialect::ChatCompletions, r#"{"prompt":["@", "@"],"max_tokens":7,"prompt":"@"}"#),
    json(Dialect::ChatCompletions, r#"{"model":"m","input":"@","instructions":"@"}"#),
    json(
        Dialect::ChatCompletions,
        r#"{"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"@"}]},{"type":"function_call_output","call_id":"c","output":"@"}]}"#,
    ),
    json(Dialect::ChatCompletions, r#"{"anything":{"at":["all", "@"], "at":"@"},"x":"@"}"#),
    json(Dialect::Messages, r#"{"max_tokens":9,"system":"@","messages":[{"role":"user","content":"@"}]}"#),
    json(
        Dialect::Messages,
        r#"{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{"who":"@","n":4}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"@"}]},{"type":"text","text":"@"}]}]}"#,
    ),
    json(
        Dialect::Messages,
        r#"{"messages":[{"role":"user","content":[{"type":"document","source":{"type":"base64","media_type":"text/plain","data":"~"}},{"type":"text","text":"@","text":"@"}]}]}"#,
    ),
    json(Dialect::LocalServer, r#"{"model":"m","messages":[{"role":"user","content":"@"}]}"#),
    json(Dialect::LocalServer, r#"{"model":"m","system":"@","prompt":"@","stream":false}"#),
    json(
        Dialect::Gemini,
        r#"{"systemInstruction":{"parts":[{"text":"@"}]},"contents":[{"role":"user","parts":[{"text":"@"},{"text":"@"}]}]}"#,
    ),
    json(
        Dialect::Gemini,
        r#"{"contents":[{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"r":"@"}}}]}]}"#,
    ),
    json(Dialect::Bedrock, r#"{"messages":[{"role":"user","content":[{"text":"@"}]}],"system":[{"text":"@"}]}"#),
    json(Dialect::Bedrock, r#"{"anthropic_version":"bedrock-2023-05-31","messages":[{"role":"user","content":"@"}]}"#),
    form(FORM, Slot::Percent, "model=m&prompt=@&empty=&&x=%zz+%2&mail=@"),
    form(FORM, Slot::Percent, "@"),
    form(
        MULTIPART,
        Slot::Plain,
        "--x\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\n@\r\n--x\r\nContent-Disposition: form-data; name=a; filename=\"a.txt\"\r\nContent-Type: text/plain\r\n\r\n@\r\n--x--\r\n",
    ),
    form(
        MULTIPART,
        Slot::Quoted,
        "--x\r\nContent-Disposition: form-data; name=file; filename=\"@\"\r\n\r\nRIFF\0\u{1}\r\n--x--\r\n",
    ),
];

/// Personal data, and the tag that takes its place.
const PERSONAL: [(&str, &str); 3] = [
    ("a.berg@example.com", "[PII:EMAIL]"),
    ("4111 1111 1111 1111", "[PII:CREDIT_CARD]"),
    ("GB82WEST12345698765432", "[PII:IBAN]"),
];
const WORDS: [&str; 9] =
    ["word", "é", "\u{1f600}", "\"quoted\"", "back\\slash", "a/b", "100%", "a+b=c&d", "two\nlines"];
const MARKERS: [&str; 2] = ["<service-data>", "</service-data>"];

/// A word, the tag that takes its place if it goes, and what to draw its spelling by.
type Word = (&'static str, Option<&'static str>, u64);

fn words(gone: Vec<(&'static str, &'static str)>) -> impl Strategy<Value = Vec<Word>> {
    let word = prop_oneof![
        select(WORDS.to_vec()).prop_map(|word| (word, None)),
        select(gone).prop_map(|(word, tag)| (word, Some(tag))),
    ];
    proptest::collection::vec((word, any::<u64>()).prop_map(|((word, tag), seed)| (word, tag, seed)), 1..6)
}

/// A shape with words in each of its slots.
fn filled(gone: Vec<(&'static str, &'static str)>) -> impl Strategy<Value = (Shape, Vec<Vec<Word>>)> {
    select(SHAPES.to_vec()).prop_flat_map(move |shape| {
        let slots = shape.body.matches(['@', '~']).count();
        (Just(shape), proptest::collection::vec(words(gone.clone()), slots))
    })
}

/// One word in a spelling of the slot, each character by another bit of `seed`.
fn spelled(slot: Slot, word: &str, seed: u64) -> String {
    let mut bits = (0..64).cycle().map(|bit| seed >> bit & 1 == 1);
    let mut draw = || bits.next().unwrap_or_default();
    match slot {
        Slot::Plain | Slot::Base64 => word.to_owned(),
        Slot::Quoted => {
            word.chars().flat_map(|c| if matches!(c, '"' | '\\') { vec!['\\', c] } else { vec![c] }).collect()
        }
        Slot::Percent => word
            .bytes()
            .map(|byte| match byte {
                b' ' if draw() => "+".to_owned(),
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'@' | b'.' | b'/' if draw() => char::from(byte).to_string(),
                byte if draw() => format!("%{byte:02x}"),
                byte => format!("%{byte:02X}"),
            })
            .collect(),
        Slot::Json => word
            .chars()
            .map(|c| match c {
                '"' | '\\' => format!("\\{c}"),
                '\n' if draw() => "\\n".to_owned(),
                '/' if draw() => "\\/".to_owned(),
                '!'..='~' | ' ' if draw() => c.to_string(),
                '\u{80}'.. if draw() => c.to_string(),
                _ => c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
            })
            .collect(),
    }
}

/// The tag as it is expected in the slot.
fn tag_in(slot: Slot, tag: &str) -> String {
    if slot == Slot::Percent { percent_encoded(tag) } else { tag.to_owned() }
}

/// The body with these words, with and without those that go.
fn body(shape: Shape, slots: &[Vec<Word>]) -> [String; 2] {
    [false, true].map(|without| {
        let mut slots = slots.iter();
        let mut out = String::new();
        for c in shape.body.chars() {
            let slot = match c {
                '@' => shape.slot,
                '~' => Slot::Base64,
                c => {
                    out.push(c);
                    continue;
                }
            };
            let word = |(word, tag, seed): &Word| match tag {
                Some(tag) if without => tag_in(slot, tag),
                // A file's name has one line.
                _ if slot == Slot::Quoted => spelled(slot, &word.replace('\n', " "), *seed),
                _ => spelled(slot, word, *seed),
            };
            let blank = |seed: u64| spelled(slot, " and ", seed);
            let text: String =
                slots.next().into_iter().flatten().map(|one| word(one) + &blank(one.2.rotate_left(7))).collect();
            out.push_str(&if slot == Slot::Base64 { STANDARD.encode(text) } else { text });
        }
        out
    })
}

fn view(shape: Shape, body: &[u8]) -> Box<RequestView> {
    let takes = if shape.content_type == JSON { Takes::Json } else { Takes::Anything };
    let declared = Declared { takes, content_type: Some(shape.content_type.as_bytes()), ..Declared::default() };
    read_request(shape.dialect, declared, body, usize::MAX)
}

fn applied(body: &Bytes, changes: &Changes) -> (String, usize) {
    let mut edits = Edits::of(body);
    let left = changes.put(&mut edits);
    (String::from_utf8(edits.apply().to_vec()).unwrap(), left)
}

fn redacted(shape: Shape, body: &str) -> (String, usize) {
    let body = Bytes::from(body.to_owned());
    applied(&body, &redaction(&view(shape, &body), Some(&body), &[], None))
}

fn analyser() -> &'static Analyser {
    static ANALYSER: LazyLock<Analyser> = LazyLock::new(|| Analyser::builtin().unwrap());
    &ANALYSER
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Of keys that stand twice each occurrence counts: nobody knows which one a provider reads.
    #[test]
    fn nothing_but_personal_data_changes_and_once_is_enough((shape, slots) in filled(PERSONAL.to_vec())) {
        let [came, expected] = body(shape, &slots);
        let (goes, left) = redacted(shape, &came);
        prop_assert_eq!(&goes, &expected, "{}", came);
        prop_assert_eq!(left, 0);
        prop_assert_eq!(redacted(shape, &goes), (expected, 0));
    }

    #[test]
    fn nothing_but_the_operators_markers_goes(
        (shape, slots) in filled(MARKERS.map(|marker| (marker, "")).to_vec()).prop_filter("files stay", |(shape, _)| !shape.body.contains('~')),
    ) {
        let [came, _] = body(shape, &slots);
        let came = Bytes::from(came);
        let mut settings = Settings::default();
        settings.security_analysis.zones.enabled = true;
        settings.security_analysis.zones.mode = ZoneMode::Operator;
        let mut view = view(shape, &came);
        find_zones(&mut view, &ZoneAsk { mode: ZoneMode::Operator, header: None, scanned: true }, Some(&came));
        // What a tool or the model said before is not the operator's: its markers stay.
        let of_operator: Vec<bool> =
            view.parts.iter().map(|part| matches!(part.kind, PartKind::User | PartKind::System)).collect();
        let mut changes = Changes::default();
        weave(&view, Some(&came), &Ask::of(&settings, None).unwrap(), &mut changes);
        let (goes, left) = applied(&came, &changes);
        prop_assert_eq!(left, 0);
        if of_operator.iter().all(|own| *own) {
            prop_assert_eq!(&goes, &body(shape, &slots)[1]);
        }
        // Whatever went was a marker, in whichever spelling.
        let mut rest = goes.as_bytes();
        let mut at = 0;
        for (range, with) in &changes.list {
            prop_assert!(with.is_empty());
            let kept = &came[at..range.start];
            prop_assert!(rest.starts_with(kept));
            rest = &rest[kept.len()..];
            at = range.end;
        }
        prop_assert_eq!(rest, &came[at..]);
        prop_assert!(of_operator.contains(&true) || changes.list.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Each piece is found once, and its span and the spots of that hold it as it was written.
    #[test]
    fn a_finding_points_at_its_piece_in_every_shape((shape, slots) in filled(PERSONAL.to_vec())) {
        let came = body(shape, &slots)[0].clone();
        let view = view(shape, came.as_bytes());
        let plan = Arc::new(analyser().plan(&PlanSettings::default()));
        let texts = Texts { request: Some(&view), answer: None, before: 0, context: None };
        let how = How { call: Call::of(&plan), text_max: usize::MAX };
        let findings = run(analyser(), &mut analyser().scratch(), &texts, &how).unwrap().findings;
        let mut found: Vec<&str> = Vec::new();
        for finding in findings.iter().filter(|finding| finding.metadata.contains_key("pii_type") && !is_across(finding)) {
            let part = &view.parts[finding.part.unwrap() as usize];
            let span = finding.span.unwrap();
            let whole = part.range.start + span.start..part.range.start + span.end;
            found.push(&view.text[whole.clone()]);
            let Some(spots) = view.spots(came.as_bytes(), whole.clone()) else {
                prop_assert!(view.file_at(&whole).is_some());
                continue;
            };
            let raw: String = spots.iter().map(|spot| &came[spot.raw.clone()]).collect();
            let written = slots.iter().flatten().filter(|(_, tag, _)| tag.is_some());
            let written: Vec<String> = written.map(|(word, _, seed)| spelled(shape.slot, word, *seed)).collect();
            prop_assert!(written.contains(&raw), "{} {:?}", raw, written);
        }
        let mut expected: Vec<&str> =
            slots.iter().flatten().filter(|(_, tag, _)| tag.is_some()).map(|(word, ..)| *word).collect();
        found.sort_unstable();
        expected.sort_unstable();
        prop_assert_eq!(found, expected, "{}", came);
    }
}

/// Whether a finding is about words that stand in several texts.
fn is_across(finding: &weir_config::vocab::Finding) -> bool {
    finding.metadata.keys().any(|key| key.starts_with("split_over"))
}
