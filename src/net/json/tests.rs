//! The walker against serde_json, the boundaries it must hold, and documents made to hurt it.

use std::fmt;

use proptest::prelude::*;
use serde::Deserializer as _;
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};

use super::*;

/// Everything a document says, in order.
fn walk(document: &[u8]) -> Result<Vec<String>, JsonError> {
    let mut walker = Walker::new(document)?;
    let mut seen = Vec::new();
    while let Some(event) = walker.next_event()? {
        seen.push(match event {
            Event::ObjectStart => "{".into(),
            Event::ObjectEnd => "}".into(),
            Event::ArrayStart => "[".into(),
            Event::ArrayEnd => "]".into(),
            Event::Key(text) => format!("key {}", text.decode()),
            Event::Str(text) => format!("str {}", text.decode()),
            Event::Number(_) => "number".into(),
            Event::Bool(value) => value.to_string(),
            Event::Null => "null".into(),
        });
    }
    Ok(seen)
}

/// The same list, as serde_json sees the document; duplicate keys are kept.
struct Opponent<'a>(&'a mut Vec<String>);

impl<'de> DeserializeSeed<'de> for Opponent<'_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Opponent<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.0.push(format!("str {text}"));
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        self.0.push("number".into());
        Ok(())
    }

    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<(), E> {
        self.visit_u64(0)
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<(), E> {
        self.visit_u64(0)
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.0.push(value.to_string());
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.0.push("null".into());
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.0.push("[".into());
        while items.next_element_seed(Opponent(&mut *self.0))?.is_some() {}
        self.0.push("]".into());
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        self.0.push("{".into());
        while let Some(key) = members.next_key::<String>()? {
            self.0.push(format!("key {key}"));
            members.next_value_seed(Opponent(&mut *self.0))?;
        }
        self.0.push("}".into());
        Ok(())
    }
}

fn opponent(document: &[u8]) -> Result<Vec<String>, serde_json::Error> {
    std::str::from_utf8(document).map_err(serde_json::Error::custom)?;
    let mut seen = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_slice(document);
    (&mut deserializer).deserialize_any(Opponent(&mut seen))?;
    deserializer.end()?;
    Ok(seen)
}

fn assert_agree(document: &[u8]) {
    match (walk(document), opponent(document)) {
        (Ok(ours), Ok(theirs)) => assert_eq!(ours, theirs),
        (Err(_), Err(_)) => {}
        // serde_json also refuses numbers that overflow f64, which RFC 8259 allows.
        (Ok(_), Err(fault)) if fault.to_string().contains("number out of range") => {}
        // And half a surrogate pair, which RFC 8259 leaves to each reader.
        (Ok(ours), Err(_)) if ours.iter().any(|seen| seen.contains(char::REPLACEMENT_CHARACTER)) => {}
        (ours, theirs) => panic!("{:?}: {ours:?} / {theirs:?}", String::from_utf8_lossy(document)),
    }
}

/// Text made of the fragments where JSON readers differ.
fn junk() -> impl Strategy<Value = Vec<u8>> {
    const FRAGMENTS: &[&[u8]] = &[
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\"",
        b"\\",
        b"\"a\"",
        b"\"\\u00e9\"",
        b"\"\\ud83d\\ude00\"",
        b"\"\\ud83d\"",
        b"\"\\u12\"",
        b"\"\\x\"",
        b"1",
        b"-0",
        b"01",
        b"1.5e+3",
        b"1.",
        b".5",
        b"true",
        b"nul",
        b"null",
        b"NaN",
        b" ",
        b"\n",
        b"\x00",
        b"//",
        b"\xef\xbb\xbf",
        b"\xff",
        "é".as_bytes(),
        b"\"k\":",
        b"\"\t\"",
    ];
    let fragment = prop::sample::select(FRAGMENTS);
    proptest::collection::vec(fragment, 0..12).prop_map(|parts| parts.concat())
}

fn value() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<f64>().prop_map(Into::into),
        any::<String>().prop_map(Into::into),
        "[a-z\"\\\\\n]{0,80}".prop_map(Into::into),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(serde_json::Value::Array),
            proptest::collection::btree_map(any::<String>(), inner, 0..6)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn agrees_with_serde_json_on_junk(document in junk()) {
        assert_agree(&document);
    }

    #[test]
    fn agrees_with_serde_json_on_values_and_on_their_damaged_copies(
        value in value(), pretty in any::<bool>(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut document = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) }.unwrap();
        assert_agree(&document);
        prop_assert!(walk(&document).is_ok());
        let at = at.index(document.len());
        assert_agree(&document[..at]);
        document[at] = byte;
        assert_agree(&document);
    }

    #[test]
    fn spans_give_back_the_document(value in value()) {
        let document = serde_json::to_string_pretty(&value).unwrap();
        let mut walker = Walker::over(&document);
        let mut rebuilt = String::new();
        let mut end = 0;
        while let Some(event) = walker.next_event().unwrap() {
            let span = walker.span();
            if let Event::Key(text) | Event::Str(text) = event {
                prop_assert_eq!(&document[text.start()..text.end()], text.raw());
            }
            rebuilt.push_str(&document[end..span.end]);
            end = span.end;
        }
        prop_assert_eq!(rebuilt.as_str(), document.as_str());
    }

    #[test]
    fn finds_the_end_of_a_string_at_any_distance(text in "[ -!#-\\[\\]-~é]{0,200}", tail in "[a-z\"\\\\\n]{0,40}") {
        let document = format!("[{},{}]", serde_json::to_string(&text).unwrap(), serde_json::to_string(&tail).unwrap());
        assert_agree(document.as_bytes());
    }
}

#[test]
fn refuses_what_rfc_8259_refuses_and_says_where() {
    for (document, kind, at) in [
        (&b""[..], JsonErrorKind::End, 0),
        (b"\xef\xbb\xbf{}", JsonErrorKind::ByteOrderMark, 0),
        (b"{} {}", JsonErrorKind::Trailing, 3),
        (b"[1,]", JsonErrorKind::Unexpected, 3),
        (b"[NaN]", JsonErrorKind::Number, 1),
        (b"[01]", JsonErrorKind::Number, 1),
        (b"[1 /* one */]", JsonErrorKind::Unexpected, 3),
        (b"{\"a\":1,}", JsonErrorKind::Unexpected, 7),
        (b"{'a':1}", JsonErrorKind::Unexpected, 1),
        (b"[\"\xff\"]", JsonErrorKind::Utf8, 2),
        (b"[\"a\nb\"]", JsonErrorKind::Control, 3),
        (b"[\"\\ud8g0\"]", JsonErrorKind::Escape, 2),
        (b"[\"\\ud800\\x\"]", JsonErrorKind::Escape, 8),
        (b"[\"abc", JsonErrorKind::End, 5),
        (b"{\"a\" 1}", JsonErrorKind::Unexpected, 5),
        (b"[1}", JsonErrorKind::Unexpected, 2),
    ] {
        assert_eq!(walk(document), Err(JsonError { kind, at }), "{}", String::from_utf8_lossy(document));
    }
}

#[test]
fn reads_128_levels_and_not_129() {
    let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
    assert!(walk(&nested(128)).is_ok());
    assert_eq!(walk(&nested(129)), Err(JsonError { kind: JsonErrorKind::Depth, at: 128 }));
    assert_eq!(walk(&vec![b'['; 1_000_000]), Err(JsonError { kind: JsonErrorKind::Depth, at: 128 }));
}

#[test]
fn decodes_escapes_in_keys_and_values() {
    let document = br#"{"\u006dessages":"a\/b\"\\\b\f\n\r\t\u00e9\ud83d\ude00"}"#;
    assert_eq!(walk(document).unwrap(), ["{", "key messages", "str a/b\"\\\u{8}\u{c}\n\r\té😀", "}"]);
}

#[test]
fn half_a_surrogate_pair_is_one_unknown_character() {
    for (document, said) in [
        (&br#"["\ud800"]"#[..], "\u{fffd}"),
        (br#"["a\udc00\ud800b"]"#, "a\u{fffd}\u{fffd}b"),
        (br#"["\ud800\u0041"]"#, "\u{fffd}A"),
        (br#"["\ud83d\ud83d\ude00"]"#, "\u{fffd}\u{1f600}"),
        (br#"["\ude00\n"]"#, "\u{fffd}\n"),
    ] {
        assert_eq!(
            walk(document).unwrap(),
            ["[", &format!("str {said}"), "]"],
            "{}",
            String::from_utf8_lossy(document)
        );
    }
    // What stands behind it is found at its place.
    let raw = r"\ud83d \u0061b";
    assert_eq!(spelled(raw, 4..6), (7..14, 6));
}

#[test]
fn hands_out_a_value_as_it_is_spelled() {
    let mut walker = Walker::over(r#"{"a": {"b": [1, "]"]} , "c": 2}"#);
    walker.next_event().unwrap();
    walker.next_event().unwrap();
    assert_eq!(walker.next_raw().unwrap(), Some(r#"{"b": [1, "]"]}"#));
    assert!(matches!(walker.next_event().unwrap(), Some(Event::Key(key)) if key.raw() == "c"));
    assert_eq!(walker.next_raw().unwrap(), Some("2"));
    assert_eq!(walker.next_raw().unwrap(), None);
    assert_eq!(walker.next_event().unwrap(), None);
}

#[test]
fn reads_counts_however_they_are_spelled() {
    for (spelled, count) in [
        ("12", Some(12)),
        ("12.0", Some(12)),
        ("1.2e1", Some(12)),
        ("18446744073709551615", Some(u64::MAX)),
        ("-1", None),
        ("1.5", None),
        ("1e999", None),
        ("99999999999999999999", None),
        ("-0", Some(0)),
    ] {
        assert_eq!(integer(spelled), count, "{spelled}");
    }
}

#[test]
fn shows_locations_the_way_people_write_them() {
    let mut at = Location::root("request").key("messages").index(2).key("content");
    assert_eq!(at.to_string(), "request.messages[2].content");
    at.push(Segment::name(&"né\n".repeat(40)));
    assert!(at.to_string().starts_with("request.messages[2].content.né\u{fffd}né"));
    for _ in 0..200 {
        at.push(Segment::Index(7));
    }
    assert!(at.to_string().len() < 200 && at.to_string().ends_with("[7]..."));
}

/// A string's inside and what it says, made of characters spelled in every way JSON has.
fn spelling() -> impl Strategy<Value = (String, String)> {
    let one = prop_oneof![
        "[a-z ]{1,6}".prop_map(|text| (text.clone(), text)),
        prop_oneof![Just('\u{e9}'), Just('\u{4e2d}'), Just('\u{1f600}')].prop_map(|c| (c.to_string(), c.to_string())),
        prop_oneof![
            Just((r#"\""#, "\"")),
            Just((r"\\", "\\")),
            Just((r"\/", "/")),
            Just((r"\n", "\n")),
            Just((r"\t", "\t")),
            Just((r"\b", "\u{8}")),
            Just((r"\f", "\u{c}")),
            Just((r"\r", "\r")),
        ]
        .prop_map(|(raw, text)| (raw.to_owned(), text.to_owned())),
        any::<char>().prop_map(|c| {
            let mut units = [0; 2];
            let raw = c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04X}")).collect();
            (raw, c.to_string())
        }),
    ];
    proptest::collection::vec(one, 0..12).prop_map(|pairs| pairs.into_iter().unzip())
}

proptest! {
    #[test]
    fn bytes_of_a_string_are_found_in_its_spelling(
        (raw, text) in spelling(), from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>(),
    ) {
        let mut ends: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        let (a, b) = (ends[from.index(ends.len())], ends[to.index(ends.len())]);
        let (start, end) = (a.min(b), a.max(b));
        let document = format!("\"{raw}\"");
        let Ok(Some(Event::Str(string))) = Walker::over(&document).next_event() else { panic!("{document}") };
        prop_assert_eq!(&*string.decode(), text.as_str());
        let (bytes, read) = spelled(&raw, start..end);
        prop_assert_eq!(read, end.max(start));
        // Decoding the three pieces gives the three pieces.
        let decode = |piece: &str| {
            let piece = format!("\"{piece}\"");
            match Walker::over(&piece).next_event() {
                Ok(Some(Event::Str(string))) => string.decode().into_owned(),
                other => panic!("{piece}: {other:?}"),
            }
        };
        if start < end {
            prop_assert_eq!(decode(&raw[..bytes.start]), &text[..start]);
            prop_assert_eq!(decode(&raw[bytes.clone()]), &text[start..end]);
            prop_assert_eq!(decode(&raw[bytes.end..]), &text[end..]);
        }
        // An offset inside of a character takes the whole of it.
        ends.clear();
        if end - start > 1 {
            let (inner, _) = spelled(&raw, start + 1..end);
            prop_assert!(inner.start >= bytes.start && inner.end == bytes.end);
            prop_assert!(raw.is_char_boundary(inner.start));
        }
    }
}
