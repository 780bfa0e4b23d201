//! Whole frames of an answer's body, and frames of our own: a tap sees, holds and stops nothing smaller.
//!
//! Invariants: the frames put together are the body, byte for byte; they do not depend on how the bytes were cut; at most
//! [`FRAME_BYTES_MAX`] bytes of an unfinished one are kept, after which the rest of the body passes in the pieces it comes in.

use std::borrow::Cow;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::{Bytes, BytesMut};
use serde_json::{Value, json};

use super::ending::{Data, Ending, Message};
use crate::codec::amazon::{self, FRAME_BYTES_MAX, PRELUDE_BYTES};
use crate::json::{Elements, element};

/// How the messages of a body are framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framed {
    /// Server-sent events.
    Events,
    /// One JSON document per line.
    Lines,
    /// Messages of an Amazon event stream.
    Amazon,
    /// Elements of one JSON array.
    Array,
    /// Not in messages: a document, or a content coding hides them.
    Whole,
}

/// Cuts a body into whole frames.
pub(super) struct Frames {
    framed: Framed,
    /// The beginning of a frame whose end has not come.
    held: BytesMut,
    /// The bytes of it that have been searched for its end.
    searched: usize,
    /// The answer is spoken inside of `chunk` events.
    chunks: bool,
    elements: Elements,
}

impl Frames {
    pub(super) fn new(framed: Framed) -> Self {
        Self { framed, held: BytesMut::new(), searched: 0, chunks: false, elements: Elements::default() }
    }

    /// Whether frames have an end that can be told.
    pub(super) fn are_told(&self) -> bool {
        self.framed != Framed::Whole
    }

    /// Whether the beginning of a frame waits for its end.
    pub(super) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    pub(super) fn put(&mut self, content: &[u8]) {
        self.held.extend_from_slice(content);
    }

    /// The next whole frame.
    pub(super) fn next(&mut self) -> Option<Bytes> {
        let end = match self.framed {
            Framed::Whole => self.held.len(),
            Framed::Lines => self.line_end()?,
            Framed::Events => self.event_end()?,
            Framed::Amazon => self.message_end()?,
            Framed::Array => self.element_end()?,
        };
        self.searched = 0;
        (end > 0).then(|| self.held.split_to(end).freeze())
    }

    /// What is left when the body is over.
    pub(super) fn rest(&mut self) -> Bytes {
        self.searched = 0;
        self.held.split().freeze()
    }

    /// Gives up on cutting: what comes passes as it comes.
    fn give_up(&mut self) -> usize {
        self.framed = Framed::Whole;
        self.held.len()
    }

    fn line_end(&mut self) -> Option<usize> {
        let found = memchr::memchr(b'\n', self.held.get(self.searched..)?).map(|at| self.searched + at + 1);
        self.search_on(found, 0)
    }

    /// Behind the empty line that ends an event, whichever line ends it is made of.
    fn event_end(&mut self) -> Option<usize> {
        let bytes = &self.held;
        let found = memchr::memchr2_iter(b'\n', b'\r', bytes.get(self.searched..)?).find_map(|at| {
            let at = self.searched + at;
            match (bytes.get(at)?, bytes.get(at + 1)?, bytes.get(at + 2)) {
                (b'\n', b'\r', Some(b'\n')) => Some(at + 3),
                // What follows says whether the CR is a line's end of its own.
                (b'\n', b'\r', None) => None,
                (b'\n', b'\n' | b'\r', _) | (b'\r', b'\r', _) => Some(at + 2),
                _ => None,
            }
        });
        // The end may be cut.
        self.search_on(found, 3)
    }

    fn message_end(&mut self) -> Option<usize> {
        let prelude = self.held.get(..PRELUDE_BYTES)?;
        match amazon::total_bytes(prelude).filter(|total| *total <= FRAME_BYTES_MAX) {
            Some(total) => (self.held.len() >= total).then_some(total),
            None => Some(self.give_up()),
        }
    }

    fn element_end(&mut self) -> Option<usize> {
        let found = self.elements.end(self.held.get(self.searched..)?).map(|at| self.searched + at);
        if found.is_none() && self.elements.is_foreign() {
            return Some(self.give_up());
        }
        self.search_on(found, 0)
    }

    fn search_on(&mut self, found: Option<usize>, overlap: usize) -> Option<usize> {
        if found.is_none() {
            self.searched = self.held.len().saturating_sub(overlap);
            if self.held.len() > FRAME_BYTES_MAX {
                return Some(self.give_up());
            }
        }
        found
    }

    /// Follows a frame that the client gets.
    pub(super) fn follow(&mut self, frame: &[u8], ending: &mut Ending) {
        let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok();
        match self.framed {
            Framed::Whole => {}
            Framed::Array => json(element(frame).1).iter().for_each(|value| ending.note(None, value)),
            Framed::Lines => json(frame).iter().for_each(|value| ending.note(None, value)),
            Framed::Events => json(&event_data(frame)).iter().for_each(|value| ending.note(None, value)),
            Framed::Amazon => {
                let Some(message) = amazon::message(frame) else { return };
                let Some(value) = json(message.payload) else { return };
                if message.event != Some("chunk") {
                    return ending.note(message.event, &value);
                }
                self.chunks = true;
                let inner =
                    value.get("bytes").and_then(Value::as_str).and_then(|text| BASE64_STANDARD.decode(text).ok());
                inner.and_then(|inner| json(&inner)).iter().for_each(|value| ending.note(None, value));
            }
        }
    }

    /// Frames with these messages.
    pub(super) fn encode(&self, messages: &[Message]) -> Bytes {
        let mut out = BytesMut::new();
        for Message { event, data } in messages {
            let is_bare = matches!(data, Data::Bare(_));
            let data = match data {
                Data::Json(value) => value.to_string(),
                Data::Bare(words) => (*words).to_owned(),
            };
            match self.framed {
                Framed::Whole => {}
                // An element stands before it: what ends a stream is no beginning.
                Framed::Array => out.extend_from_slice(format!(",\r\n{data}").as_bytes()),
                Framed::Lines => out.extend_from_slice(format!("{data}\n").as_bytes()),
                Framed::Events => {
                    let named = event.map(|event| format!("event: {event}\n")).unwrap_or_default();
                    out.extend_from_slice(format!("{named}data: {data}\n\n").as_bytes());
                }
                Framed::Amazon => {
                    let (event, data) = match event {
                        // Words of another framing are none of this one.
                        _ if is_bare => continue,
                        _ if self.chunks => ("chunk", json!({ "bytes": BASE64_STANDARD.encode(&data) }).to_string()),
                        Some(event) => (*event, data),
                        None => continue,
                    };
                    let headers =
                        [(":event-type", event), (":content-type", "application/json"), (":message-type", "event")];
                    out.extend_from_slice(&amazon::encode(&headers, data.as_bytes()));
                }
            }
        }
        if self.framed == Framed::Array {
            out.extend_from_slice(b"\r\n]");
        }
        out.freeze()
    }
}

/// The data of a whole event.
fn event_data(event: &[u8]) -> Cow<'_, [u8]> {
    let mut lines = event.split(|byte| matches!(byte, b'\n' | b'\r')).filter_map(|line| {
        let value = line.strip_prefix(b"data:")?;
        Some(value.strip_prefix(b" ").unwrap_or(value))
    });
    let first = lines.next().unwrap_or_default();
    let mut all = Cow::Borrowed(first);
    for line in lines {
        all.to_mut().push(b'\n');
        all.to_mut().extend_from_slice(line);
    }
    all
}
