//! Promise: an answer is redacted or withheld wherever and however its provider writes it, or its record says that it was not.

use serde_json::{Value, json};

use crate::output::private_key;
use crate::support::{Call, Client, Driver, Gateway, Peer, Setup, Upstream, chat_body, on_both_drivers};

const MAIL: [&str; 2] = ["write to anna.berg@exa", "mple.com today"];

/// How an answer is framed: the name, its content type, and whether it comes message by message.
const FRAMES: [(&str, Option<&str>, bool); 9] = [
    ("JSON", Some("application/json"), false),
    ("JSON of another name", Some("application/vnd.a+json"), false),
    ("no type", None, false),
    ("bytes", Some("application/octet-stream"), false),
    ("text", Some("text/plain"), false),
    ("events", Some("text/event-stream"), true),
    ("events without a type", None, true),
    ("events as bytes", Some("application/octet-stream"), true),
    ("lines", Some("application/x-ndjson"), true),
];

/// Where a text stands in a message of an answer.
type Place = (&'static str, fn(&str) -> Value);

/// In documents and in streams alike.
const PLACES: [Place; 12] = [
    (
        "a message's content",
        |text| json!({"choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]}),
    ),
    ("a delta's content", |text| json!({"choices": [{"index": 0, "delta": {"content": text}}]})),
    ("an unknown member of a delta", |text| json!({"choices": [{"index": 0, "delta": {"news": text}}]})),
    ("reasoning", |text| json!({"choices": [{"index": 0, "delta": {"reasoning_content": text}}]})),
    ("a transcript", |text| json!({"choices": [{"index": 0, "delta": {"audio": {"id": "a", "transcript": text}}}]})),
    (
        "a delta of a block",
        |text| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}),
    ),
    (
        "an unknown delta of a block",
        |text| json!({"type": "content_block_delta", "index": 0, "delta": {"type": "new_delta", "news": text}}),
    ),
    (
        "a delta of an item",
        |text| json!({"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": text}),
    ),
    (
        "what was said aloud",
        |text| json!({"type": "response.audio.transcript.delta", "output_index": 0, "delta": text}),
    ),
    ("a delta nobody knows", |text| json!({"type": "news.delta", "delta": text})),
    ("a part", |text| json!({"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}}]})),
    ("a shape nobody knows", |text| json!({"news": {"said": text}})),
];

/// What providers say of failures.
const FAILURES: [Place; 5] = [
    ("an error's message", |text| json!({"error": {"type": "invalid_request", "message": text}})),
    ("an error", |text| json!({"error": text})),
    ("a detail", |text| json!({"detail": text})),
    ("a message", |text| json!({"code": "bad", "message": text})),
    ("what an error repeats", |text| json!({"error": {"message": "no", "metadata": {"raw": text}}})),
];

/// A spelling of JSON's strings.
type Spelling = fn(String) -> String;

const SPELLINGS: [(&str, Spelling); 2] = [
    ("as it is", |body| body),
    ("escaped", |body| body.replace('@', "\\u0040").replace("PRIVATE", "\\u0050RIVATE").replace("exa", "\\u0065xa")),
];

/// One answer of a provider.
#[derive(Debug, Clone)]
struct Cell {
    name: String,
    path: &'static str,
    status: u16,
    content_type: Option<&'static str>,
    frames: Vec<Vec<u8>>,
}

fn frames(frame: &str, messages: &[Value], spell: fn(String) -> String) -> Vec<Vec<u8>> {
    let spelled = messages.iter().map(|message| spell(message.to_string()));
    spelled
        .map(|message| match frame {
            "lines" => format!("{message}\n").into_bytes(),
            _ if frame.starts_with("events") => format!("data: {message}\n\n").into_bytes(),
            _ => message.into_bytes(),
        })
        .collect()
}

/// All of them, each saying these pieces of a text: in several messages, or in one.
fn cells(pieces: &[&str]) -> Vec<Cell> {
    let mut all = Vec::new();
    for (frame, content_type, is_stream) in FRAMES {
        for (spelling, spell) in SPELLINGS {
            for (place, message) in PLACES {
                for path in ["/v1/chat/completions", "/v1/unknown/path"] {
                    let said: Vec<Value> = if is_stream {
                        pieces.iter().map(|piece| message(piece)).collect()
                    } else {
                        vec![message(&pieces.concat())]
                    };
                    let name = format!("{frame} to {path}, {place}, {spelling}");
                    all.push(Cell { name, path, status: 200, content_type, frames: frames(frame, &said, spell) });
                }
            }
            for (place, message) in FAILURES {
                for status in if is_stream { &[200_u16][..] } else { &[400, 429, 500] } {
                    let name = format!("{frame} of {status}, {place}, {spelling}");
                    let frames = frames(frame, &[message(&pieces.concat())], spell);
                    all.push(Cell { name, path: "/v1/chat/completions", status: *status, content_type, frames });
                }
            }
        }
    }
    all
}

/// A provider that plays the cell that a request names.
fn provider(cells: Vec<Cell>) -> Upstream {
    Upstream::play(move |peer: &mut Peer| {
        while let Some(request) = peer.request() {
            let number: usize = request.header("x-cell").unwrap().parse().unwrap();
            let cell = &cells[number];
            let body = cell.frames.concat();
            let content_type =
                cell.content_type.map(|content_type| format!("Content-Type: {content_type}\r\n")).unwrap_or_default();
            peer.say(format!("HTTP/1.1 {} Said\r\n{content_type}Content-Length: {}\r\n\r\n", cell.status, body.len()));
            for frame in &cell.frames {
                peer.say(frame);
            }
        }
    })
}

/// What the client gets of a cell, whole or cut off.
fn got(gateway: &Gateway, number: usize, cell: &Cell) -> String {
    let mut client = Client::connect(gateway.addr);
    client.say(Call::post(cell.path, chat_body("hello").to_string()).field("X-Cell", &number.to_string()).bytes());
    let got = match client.answer_to("POST") {
        Ok(answer) => answer.text(),
        Err(cut) => String::from_utf8_lossy(&cut.received).into_owned(),
    };
    got.replace("\\u0040", "@").replace("\\u0050", "P").replace("\\u0065", "e")
}

/// The cells in which all of the pieces arrive, and the record says nothing of it.
fn silent(driver: Driver, settings: &str, pieces: &[&str], tags: &[&str]) -> (usize, Vec<String>, Vec<String>) {
    let cells = cells(pieces);
    let upstream = provider(cells.clone());
    let gateway = Setup::new(driver).upstream(upstream.url()).unlimited().with(settings).start();
    let (mut silent, mut said) = (Vec::new(), Vec::new());
    for (number, cell) in cells.iter().enumerate() {
        let got = got(&gateway, number, cell);
        let spelled = |piece: &&str| json!(piece).to_string().trim_matches('"').to_owned();
        if !pieces.iter().all(|piece| got.contains(&spelled(piece))) {
            continue;
        }
        let span = gateway.newest_span_of(number as u64 + 1);
        let reasons: Vec<&str> = tags.iter().filter_map(|tag| span["tags"][*tag].as_str()).collect();
        match reasons.first() {
            Some(reason) => said.push(format!("{}: {reason}", cell.name)),
            None => silent.push(format!("{}: {got}", cell.name)),
        }
    }
    (cells.len(), silent, said)
}

on_both_drivers! {
    fn every_form_of_an_answer_is_redacted_or_said_not_to_be(driver) {
        let settings = "pii: {redact_answers: personal}";
        let (cells, silent, said) = silent(driver, settings, &MAIL, &["answer_unredacted"]);
        assert!(silent.is_empty(), "{} of {cells} are silent: {silent:#?}", silent.len());
        assert!(said.len() <= cells / 20, "{} of {cells} only say so: {said:#?}", said.len());
    }

    fn every_form_of_an_answer_is_withheld_or_said_not_to_be(driver) {
        let settings = "output_safety: {enabled: true, block_on_critical: true}\n\
             streaming_analysis: {enabled: true, output_enabled: true, early_stop_on_critical: true, token_interval: 5, hold_back: true}";
        let key = private_key();
        let (first, rest) = key.split_at(key.len() / 2);
        let (cells, silent, said) = silent(driver, settings, &[first, rest], &["untapped_response"]);
        assert!(silent.is_empty(), "{} of {cells} are silent: {silent:#?}", silent.len());
        assert!(said.len() <= cells / 20, "{} of {cells} only say so: {said:#?}", said.len());
    }
}
