//! Whatever is cut where: the client's text is the provider's text without the pieces, and frames without them stay.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::effort::superlinear;
use crate::hostile::{Listed, assert_linear, assert_linear_in};

const ALL: Taking = Taking { personal: true, secrets: true };
const WORDS: [&str; 14] = [
    "jane@example.com",
    "4111 1111 1111 1111",
    "passport",
    "C01X00T47",
    "12 apples",
    "the river",
    "\"",
    "\\",
    "\n",
    "é",
    "\u{1f600}",
    "born 9 March 1975",
    "ssn 219-09-9999",
    "https://deploy:eXw10oN8nzBZh2Ucqo@git.example/repo.git",
];

fn event(message: &Value) -> Bytes {
    Bytes::from(format!("data: {message}\n\n"))
}

/// What the client gets of these frames, and the most frames that waited.
fn through(framed: Framed, frames: &[Bytes]) -> (Vec<Bytes>, usize, Redaction) {
    let mut redactor = Redactor::new(framed, ALL);
    let (mut out, mut most) = (Vec::new(), 0);
    for (at, frame) in frames.iter().enumerate() {
        redactor.read(frame);
        most = most.max(redactor.waiting());
        while out.len() + redactor.waiting() <= at {
            out.push(redactor.pass(frames[out.len()].clone()));
        }
    }
    redactor.end();
    while out.len() < frames.len() {
        out.push(redactor.pass(frames[out.len()].clone()));
    }
    (out, most, redactor.redaction())
}

fn without(text: &str) -> String {
    let mut out = text.to_owned();
    for piece in Taker::new(ALL).pieces(text, PartKind::Output).iter().rev() {
        out.replace_range(piece.range.clone(), piece.tag);
    }
    out
}

fn delta(text: &str) -> Value {
    json!({"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]})
}

fn said(frames: &[Bytes]) -> String {
    let words = frames.iter().map(|frame| {
        let text = std::str::from_utf8(frame).unwrap();
        let message: Value = serde_json::from_str(text.strip_prefix("data: ").unwrap()).unwrap();
        message["choices"][0]["delta"]["content"].as_str().unwrap().to_owned()
    });
    words.collect()
}

#[test]
fn the_first_of_several_strings_gets_the_tag() {
    let frames = ["Mail ", "jane", "@exam", "ple.com", " and ", "rest "].map(|text| event(&delta(text)));
    let (out, most, redaction) = through(Framed::Events, &frames);
    let expected = ["Mail ", "[PII:EMAIL]", "", "", " and ", "rest "].map(|text| event(&delta(text)));
    assert_eq!(out, expected);
    assert_eq!((redaction.taken, redaction.left), (1, None));
    assert!(most <= 5, "{most}");
}

#[test]
fn texts_that_come_side_by_side_are_told_apart() {
    let piece = |choice: u32, text: &str| json!({"choices": [{"index": choice, "delta": {"content": text}}]});
    let frames = [(0, "jane@exam"), (1, "the quiet "), (0, "ple.com"), (1, "river "), (0, " is it ")]
        .map(|(choice, text)| event(&piece(choice, text)));
    let (out, _, redaction) = through(Framed::Events, &frames);
    let expected = [(0, "[PII:EMAIL]"), (1, "the quiet "), (0, ""), (1, "river "), (0, " is it ")]
        .map(|(choice, text)| event(&piece(choice, text)));
    assert_eq!((out, redaction.taken), (expected.to_vec(), 1));
}

#[test]
fn what_must_stay_is_said() {
    let call =
        json!({"index": 0, "id": "t", "function": {"name": "mail", "arguments": "{\"to\":\"jane@example.com\"}"}});
    let called = json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]});
    let thought = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "jane@example.com "}});
    let tokens =
        json!({"choices": [{"index": 0, "delta": {"content": "jane@example.com "}, "logprobs": {"content": []}}]});
    for (message, left, changed) in
        [(called, "tool_call", false), (thought, "signed_reasoning", false), (tokens, "logprobs", true)]
    {
        let frames = [event(&message)];
        let (out, most, redaction) = through(Framed::Events, &frames);
        assert_eq!(redaction.left, Some(left));
        assert_eq!(out != frames, changed);
        assert!(changed || most == 0);
    }
    let frames = [Bytes::from_static(b"data: {\"choices\": broken\n\n")];
    assert_eq!(through(Framed::Events, &frames).2, Redaction { taken: 0, left: Some("not_read") });
}

#[test]
fn a_frame_that_may_wait_no_longer_goes_with_what_is_known() {
    let frames = ["jane@example.com", " 4111 1111"].map(|text| event(&delta(text)));
    let mut redactor = Redactor::new(Framed::Events, ALL);
    frames.iter().for_each(|frame| redactor.read(frame));
    assert_eq!(redactor.waiting(), 2);
    assert_eq!(redactor.pass(frames[0].clone()), event(&delta("[PII:EMAIL]")));
    assert_eq!(redactor.redaction(), Redaction { taken: 1, left: Some("held_too_much") });
}

#[test]
fn a_document_of_many_pieces_takes_no_longer_for_each_of_them() {
    let text = "jane@example.com\n".repeat(20_000);
    let document = Bytes::from(json!({"choices": [{"message": {"role": "assistant", "content": text}}]}).to_string());
    let started = std::time::Instant::now();
    let (out, _, redaction) = through(Framed::Whole, &[document]);
    assert_eq!(redaction.taken, 20_000);
    assert_eq!(out[0].windows(11).filter(|bytes| bytes == b"[PII:EMAIL]").count(), 20_000);
    // Walking it once for each piece would take minutes.
    assert!(started.elapsed() < std::time::Duration::from_secs(30));
}

proptest! {
    #[test]
    fn a_stream_says_the_same_without_the_pieces(
        words in proptest::collection::vec(prop::sample::select(WORDS.to_vec()), 0..8),
        glue in prop::sample::select(vec![" ", ""]),
        steps in proptest::collection::vec(1_usize..9, 1..12),
    ) {
        let text = words.join(glue);
        let (mut frames, mut at) = (Vec::new(), 0);
        for step in steps.iter().cycle() {
            let end = text.ceil_char_boundary((at + step).min(text.len()));
            frames.push(event(&delta(&text[at..end])));
            at = end;
            if at == text.len() {
                break;
            }
        }
        let (out, _, redaction) = through(Framed::Events, &frames);
        let expected = without(&text);
        prop_assert_eq!(said(&out), expected.clone());
        prop_assert_eq!(redaction.left, None);
        if expected == text {
            prop_assert_eq!(&out, &frames);
        }
        // As a document, too.
        let document = json!({"choices": [{"message": {"role": "assistant", "content": text}}], "n": 1.50});
        let (out, ..) = through(Framed::Whole, &[Bytes::from(document.to_string())]);
        let after: Value = serde_json::from_slice(&out[0]).unwrap();
        prop_assert_eq!(after["choices"][0]["message"]["content"].as_str(), Some(expected.as_str()));
    }
}

#[test]
fn a_document_with_any_number_of_pieces_takes_time_in_proportion_to_its_text() {
    for (before, piece) in
        [("", "a@example.com "), ("\n", "a@example.com "), ("", "a@example.com\n"), ("", "é@example.com a@b.co ")]
    {
        let document = |length: usize| {
            let said = [before, &piece.repeat(length / piece.len())].concat();
            Bytes::from(
                json!({"choices": [{"index": 0, "message": {"role": "assistant", "content": said}}]}).to_string(),
            )
        };
        let found = superlinear(document, |document| drop(through(Framed::Whole, std::slice::from_ref(document))));
        assert_eq!(found, None, "{before:?}{piece:?}");
    }
}

/// Reads a body cut into events of so many characters of its text each.
fn streamed(text: &str, each: usize) {
    let letters: Vec<char> = text.chars().collect();
    let frames: Vec<Bytes> =
        letters.chunks(each).map(|piece| event(&delta(&piece.iter().collect::<String>()))).collect();
    through(Framed::Events, &frames);
}

#[test]
fn a_stream_of_any_words_takes_time_in_proportion_to_its_length() {
    assert_linear("a stream", |text| streamed(text, 512));
    // What never ends, and what begins as it does.
    for piece in ["aB3", "QUJD+/", "1", "eyJhbGciOiJIUzI1NiJ9", "a@", "a.b"] {
        for before in ["", "api_key = "] {
            let text = |length: usize| [before, &piece.repeat(length / piece.len())].concat();
            let found = superlinear(text, |text| streamed(text, 64));
            assert_eq!(found, None, "{before}{piece}");
        }
    }
}

#[test]
fn a_document_of_any_words_takes_time_in_proportion_to_its_length() {
    assert_linear("a document", |text| {
        let document = json!({"choices": [{"message": {"role": "assistant", "content": text}}], "other": [text]});
        through(Framed::Whole, &[Bytes::from(document.to_string())]);
    });
    assert_linear("bytes", |text| drop(through(Framed::Whole, &[Bytes::copy_from_slice(text.as_bytes())])));
    let lists: [Listed; 3] = [
        ("{\"choices\":[0", "]}", |number| {
            format!(",{{\"index\":{number},\"message\":{{\"content\":\"a@b.example\"}}}}")
        }),
        ("{\"choices\":[0", "]}", |number| format!(",{{\"index\":{number},\"delta\":{{\"content\":\"a\"}}}}")),
        ("{\"a\":0", "}", |number| format!(",\"b{number}\":[{{\"c\":\"a@b.example\"}}]")),
    ];
    for (before, after, unit) in lists {
        assert_linear_in("a document", (before, after), unit, |text| {
            through(Framed::Whole, &[Bytes::copy_from_slice(text.as_bytes())]);
        });
    }
}
