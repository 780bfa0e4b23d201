//! Answers that are let through, held and stopped, however they were cut.

use proptest::prelude::*;

use super::*;
use crate::codec::amazon;
use crate::effort::superlinear;
use crate::hostile::{Listed, assert_linear, assert_linear_in};

/// Stops at the frame that holds a word, and holds so many frames back.
struct Word(&'static str, usize);

impl Tap for Word {
    fn look(&mut self, frame: &[u8]) -> Verdict {
        match memchr::memmem::find(frame, self.0.as_bytes()) {
            Some(_) => Verdict::Stop,
            None => Verdict::Hold(self.1),
        }
    }

    fn warning(&self) -> &str {
        "Withheld."
    }
}

/// What a future says that has nothing to wait for.
fn now<T>(future: impl Future<Output = T>) -> T {
    futures_util::FutureExt::now_or_never(future).expect("it waits for nothing")
}

/// Waits for the end, and says then whether it has seen the word.
struct Late(&'static str, bool);

impl Tap for Late {
    fn look(&mut self, frame: &[u8]) -> Verdict {
        self.1 |= memchr::memmem::find(frame, self.0.as_bytes()).is_some();
        Verdict::Hold(usize::MAX)
    }

    fn end(&mut self) -> Verdict {
        Verdict::Later
    }

    fn answer(&mut self) -> LateVerdict<'_> {
        Box::pin(std::future::ready(if self.1 { Verdict::Stop } else { Verdict::Pass }))
    }

    fn warning(&self) -> &str {
        "Withheld."
    }
}

#[test]
fn a_verdict_at_the_end_that_takes_longer_replaces_a_document_or_lets_it_go() {
    let document = br#"{"choices":[{"message":{"content":"two"}}]}"#;
    for (word, expected) in [("two", Onward::Replace), ("three", Onward::Send(Bytes::from_static(document)))] {
        let mut tapped = Tapped::new(Box::new(Late(word, false)), Framed::Whole, false);
        assert_eq!(now(tapped.feed(&document[..20])), Onward::Send(Bytes::new()));
        assert_eq!(now(tapped.feed(&document[20..])), Onward::Send(Bytes::new()));
        assert_eq!(tapped.most_held_bytes(), document.len());
        assert_eq!(now(tapped.finish()), expected);
    }
    // Where there is no room for it, it goes.
    let mut tapped = Tapped::new(Box::new(Late("two", false)), Framed::Whole, false);
    assert_eq!(now(tapped.feed(&document[..20])), Onward::Send(Bytes::new()));
    assert_eq!((tapped.let_go(), tapped.overheld()), (Bytes::from_static(&document[..20]), 1));
    assert_eq!(now(tapped.feed(&document[20..])), Onward::Send(Bytes::new()));
    assert_eq!(now(tapped.finish()), Onward::Cut(Bytes::new()));
}

/// What the client gets, and how it ended.
fn tapped(tap: Word, framed: Framed, pieces: &[&[u8]]) -> (Vec<u8>, &'static str) {
    let mut tapped = Tapped::new(Box::new(tap), framed, false);
    let mut out = Vec::new();
    let all = pieces.iter().map(Some).chain([None]);
    for piece in all {
        let onward = match piece {
            Some(piece) => now(tapped.feed(piece)),
            None => now(tapped.finish()),
        };
        match onward {
            Onward::Send(bytes) => out.extend_from_slice(&bytes),
            Onward::End(bytes) => {
                out.extend_from_slice(&bytes);
                return (out, "end");
            }
            Onward::Replace => return (out, "replace"),
            Onward::Cut(bytes) => {
                out.extend_from_slice(&bytes);
                return (out, "cut");
            }
        }
    }
    (out, "whole")
}

const CHAT: &str = "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"one\"},\"finish_reason\":null}]}\n\ndata: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"two\"},\"finish_reason\":null}]}\r\n\r\ndata: [DONE]\n\n";

#[test]
fn a_stream_that_is_stopped_ends_legally() {
    let (out, how) = tapped(Word("two", 0), Framed::Events, &[CHAT.as_bytes()]);
    let out = String::from_utf8(out).unwrap();
    assert_eq!(how, "end");
    let first = CHAT.find("data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"two").unwrap();
    assert_eq!(out[..first], CHAT[..first]);
    assert!(
        out[first..].contains("Withheld.")
            && out.ends_with("\"object\":\"chat.completion.chunk\"}\n\ndata: [DONE]\n\n"),
        "{out}"
    );
}

#[test]
fn what_is_held_back_is_not_sent_where_the_answer_is_stopped() {
    let lines = "{\"model\":\"m\",\"response\":\"a\",\"done\":false}\n{\"response\":\"b\",\"done\":false}\n{\"response\":\"bad\",\"done\":false}\n";
    let (out, how) = tapped(Word("bad", 1), Framed::Lines, &[lines.as_bytes()]);
    let out = String::from_utf8(out).unwrap();
    assert_eq!(how, "end");
    assert!(out.contains("\"a\"") && !out.contains("\"b\"") && out.ends_with("\"response\":\"Withheld.\"}\n"), "{out}");
}

#[test]
fn an_answer_of_which_nothing_was_seen_is_replaced_and_a_half_document_is_cut() {
    let document = br#"{"choices":[{"message":{"content":"two"}}]}"#;
    assert_eq!(tapped(Word("two", 0), Framed::Whole, &[document]), (Vec::new(), "replace"));
    assert_eq!(tapped(Word("two", 9), Framed::Whole, &[&document[..20], &document[20..]]).1, "replace");
    assert_eq!(
        tapped(Word("two", 0), Framed::Whole, &[&document[..20], &document[20..]]),
        (document[..20].to_vec(), "cut")
    );
    let unknown = b"data: {\"x\":1}\n\ndata: two\n\n";
    assert_eq!(tapped(Word("two", 0), Framed::Events, &[unknown]).1, "cut");
}

#[test]
fn messages_of_an_event_stream_end_with_right_checksums() {
    let message = |event: &str, payload: &str| {
        amazon::encode(&[(":event-type", event), (":message-type", "event")], payload.as_bytes())
    };
    let stream = [
        message("messageStart", r#"{"role":"assistant"}"#),
        message("contentBlockDelta", r#"{"contentBlockIndex":0,"delta":{"text":"one"}}"#),
        message("contentBlockDelta", r#"{"contentBlockIndex":0,"delta":{"text":"two"}}"#),
    ]
    .concat();
    let (out, how) = tapped(Word("two", 0), Framed::Amazon, &[&stream]);
    let (mut reader, mut seen) = (amazon::MessageStream::default(), Vec::new());
    reader.feed(&out, |message| seen.push(message.event.unwrap_or_default().to_owned()));
    assert_eq!((how, reader.broken()), ("end", 0));
    assert_eq!(seen, ["messageStart", "contentBlockDelta", "contentBlockDelta", "contentBlockStop", "messageStop"]);
    // A model's own events stand inside of chunks.
    let start = r#"{"bytes":"eyJ0eXBlIjoibWVzc2FnZV9zdGFydCIsIm1lc3NhZ2UiOnt9fQ=="}"#;
    let stream = [message("chunk", start), message("chunk", r#"{"bytes":"dHdv"}"#)].concat();
    let (out, how) = tapped(Word("dHdv", 0), Framed::Amazon, &[&stream]);
    let (mut reader, mut seen) = (amazon::MessageStream::default(), Vec::new());
    reader.feed(&out, |message| seen.push(message.event.unwrap_or_default().to_owned()));
    assert_eq!((how, seen), ("end", vec!["chunk".to_owned(); 6]));
}

#[test]
fn events_end_with_an_empty_line_whatever_ends_its_lines() {
    for end in ["\n\n", "\r\r", "\r\n\r\n", "\n\r", "\n\r\n", "\r\n\n", "\r\n\r"] {
        let body = format!("data: one{end}data: two{end}data: three{end}");
        let (out, _) = tapped(Word("two", 0), Framed::Events, &[body.as_bytes()]);
        assert_eq!(out, format!("data: one{end}").into_bytes(), "{end:?}");
    }
}

#[test]
fn no_more_waits_than_the_bound() {
    let mut tapped = Tapped::new(Box::new(Word("never", usize::MAX)), Framed::Lines, false);
    let line = [vec![b'x'; 300 * 1024], b"\n".to_vec()].concat();
    let mut sent = 0;
    for _ in 0..10 {
        let Onward::Send(bytes) = now(tapped.feed(&line)) else { panic!("it passes") };
        sent += bytes.len();
        assert!(tapped.held_bytes <= HOLD_BYTES_MAX);
    }
    assert_eq!((sent, tapped.overheld()), (7 * line.len(), 7));
    // Nor more frames, however short they are.
    let mut tapped = Tapped::new(Box::new(Word("never", usize::MAX)), Framed::Events, false);
    for _ in 0..100 {
        let Onward::Send(_) = now(tapped.feed(&b"\n\n".repeat(1000))) else { panic!("it passes") };
        assert!(tapped.held.len() * FRAME_COST_BYTES <= HOLD_BYTES_MAX);
    }
    // A frame without an end is no frame.
    let mut tapped = Tapped::new(Box::new(Word("never", 0)), Framed::Events, false);
    let mut sent = 0;
    for _ in 0..20 {
        let Onward::Send(bytes) = now(tapped.feed(&[b'x'; 100 * 1024])) else { panic!("it passes") };
        sent += bytes.len();
    }
    assert_eq!(sent, 20 * 100 * 1024);
}

proptest! {
    #[test]
    fn cuts_do_not_matter_and_what_passes_is_what_came(
        texts in proptest::collection::vec("[a-z]{0,8}", 0..6), ends in proptest::collection::vec(0usize..4, 6),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8), single in any::<bool>(), hold in 0usize..3,
        kind in 0usize..3,
    ) {
        let (framed, body) = match kind {
            0 => {
                let events = texts.iter().zip(&ends).map(|(text, end)| {
                    format!("data: {{\"choices\":[],\"t\":\"{text}\"}}{}", ["\n\n", "\r\n\r\n", "\r\r", "\n\r"][*end])
                });
                (Framed::Events, events.collect::<String>().into_bytes())
            }
            1 => (Framed::Lines, texts.iter().map(|text| format!("{{\"done\":false,\"t\":\"{text}\"}}\n")).collect::<String>().into_bytes()),
            _ => (Framed::Amazon, texts.iter().flat_map(|text| amazon::encode(&[(":event-type", "messageStart")], text.as_bytes())).collect()),
        };
        let pieces: Vec<&[u8]> = if single {
            body.chunks(1).collect()
        } else {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
            cuts.extend([0, body.len()]);
            cuts.sort_unstable();
            cuts.windows(2).map(|pair| &body[pair[0]..pair[1]]).collect()
        };
        prop_assert_eq!(tapped(Word("NEVER", hold), framed, &pieces), (body.clone(), "whole"));
        prop_assert_eq!(tapped(Word("z", hold), framed, &pieces), tapped(Word("z", hold), framed, &[&body]));
    }
}

/// Frames of every dialect, and what is none.
const FRAMES: [Listed; 8] = [
    ("", "", |number| format!("{{\"choices\":[{{\"index\":{number},\"delta\":{{\"content\":\"a\"}}}}]}}")),
    ("", "", |_| "{\"choices\":[{\"text\":\"a\"}],\"id\":\"c\"}".to_owned()),
    ("", "", |number| format!("{{\"type\":\"message_start\",\"index\":{number}}}")),
    ("", "", |number| format!("{{\"type\":\"content_block_start\",\"index\":{number}}}")),
    ("", "", |number| format!("{{\"type\":\"response.created\",\"response\":{{\"id\":\"r{number}\"}}}}")),
    ("", "", |number| {
        format!("{{\"type\":\"response.output_text.delta\",\"response\":{{}},\"item_id\":\"{number}\"}}")
    }),
    ("", "", |number| format!("{{\"candidates\":[{{\"index\":{number}}}],\"responseId\":\"{number}\"}}")),
    ("", "", |number| {
        format!("{{\"done\":false,\"message\":{{\"content\":\"{number}\"}},\"token\":{{\"text\":\"a\"}}}}")
    }),
];

/// Goes on, holds back, and ends: with what has come and, where the last word is found, with what the dialect ends with.
fn passes(held: usize, framed: Framed, body: &[u8], step: usize) {
    let mut tapped = Tapped::new(Box::new(Word("never said", held)), framed, false);
    for piece in body.chunks(step) {
        now(tapped.feed(piece));
    }
    now(tapped.feed(b"data: never said\n\n"));
    now(tapped.finish());
}

#[test]
fn whatever_is_held_takes_time_in_proportion_to_its_length() {
    for framed in [Framed::Events, Framed::Lines, Framed::Array, Framed::Amazon, Framed::Whole] {
        for (held, step) in [(0, 16), (64, 16), (3, 4_096)] {
            assert_linear(&format!("{framed:?}, {held} held, {step} bytes at a time"), |text| {
                passes(held, framed, text.as_bytes(), step);
            });
        }
    }
}

#[test]
fn whatever_a_dialect_says_is_followed_in_proportion_to_its_length() {
    for (_, _, frame) in FRAMES {
        let event = |number| format!("data: {}\n\n", frame(number));
        assert_linear_in("events", ("", ""), event, |text| passes(64, Framed::Events, text.as_bytes(), 100));
        assert_linear_in("events", ("", ""), event, |text| passes(2, Framed::Events, text.as_bytes(), 10_000));
        let line = |number| format!("{}\n", frame(number));
        assert_linear_in("lines", ("", ""), line, |text| passes(2, Framed::Lines, text.as_bytes(), 1_000));
        let element = |number| format!("{}{}", if number == 0 { "" } else { "," }, frame(number));
        assert_linear_in("a list", ("[", "]"), element, |text| passes(2, Framed::Array, text.as_bytes(), 1_000));
        let one = |number| format!(",{}", frame(number));
        let all = |text: &str| passes(0, Framed::Events, format!("data: [0{text}]\n\n").as_bytes(), 1_000);
        assert_linear_in("an event", ("", ""), one, all);
    }
    let message = amazon::encode(&[(":event-type", "contentBlockDelta")], b"{\"delta\":{\"text\":\"b\"}}");
    let messages = |length: usize| message.repeat(length / message.len());
    let found = superlinear(messages, |body| passes(64, Framed::Amazon, body, 100));
    assert_eq!(found, None, "messages of Amazon");
}
