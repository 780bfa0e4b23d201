//! The message inside of a frame, and the frame with a changed message in it.
//!
//! Invariant: bytes of the frame that do not spell a changed place stay; lengths and checksums are those of what is written.

use std::ops::Range;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::{Bytes, BytesMut};

use super::edits::Edits;
use super::frames::Framed;
use crate::codec::amazon;
use crate::json::{Event, Walker, element};

/// What a frame says, apart from how it is framed.
pub struct Content {
    message: Bytes,
    /// Its name, where the framing names it.
    event: Option<String>,
    way: Way,
}

/// How the message stands in its frame.
enum Way {
    /// As it is, in pieces: where each begins in the message, and in the frame.
    Lines(Vec<(usize, usize)>),
    /// As the payload of an Amazon message.
    Payload,
    /// In base64 in the payload of one: what stands between the quotes there.
    Encoded { payload: Bytes, text: Range<usize> },
}

impl Content {
    /// What `frame` says; `None` where it says nothing, or cannot be read.
    pub fn of(framed: Framed, frame: &Bytes) -> Option<Self> {
        let content = match framed {
            Framed::Whole | Framed::Lines => {
                Self { message: frame.clone(), event: None, way: Way::Lines(vec![(0, 0)]) }
            }
            Framed::Array => {
                let (begin, message) = element(frame);
                Self { message: frame.slice_ref(message), event: None, way: Way::Lines(vec![(0, begin)]) }
            }
            Framed::Events => Self::of_event(frame),
            Framed::Amazon => Self::of_amazon(frame)?,
        };
        (!content.message.trim_ascii().is_empty()).then_some(content)
    }

    fn of_event(frame: &Bytes) -> Self {
        let (mut message, mut lines, mut at) = (BytesMut::new(), Vec::new(), 0);
        let mut only = None;
        for line in frame.split(|byte| matches!(byte, b'\n' | b'\r')) {
            if let Some(value) = line.strip_prefix(b"data:") {
                let value = value.strip_prefix(b" ").unwrap_or(value);
                let begin = at + line.len() - value.len();
                if !lines.is_empty() {
                    message.extend_from_slice(b"\n");
                }
                lines.push((message.len(), begin));
                message.extend_from_slice(value);
                only = Some(begin..begin + value.len());
            }
            at += line.len() + 1;
        }
        let message = match only {
            Some(range) if lines.len() == 1 => frame.slice(range),
            _ => message.freeze(),
        };
        Self { message, event: None, way: Way::Lines(lines) }
    }

    fn of_amazon(frame: &Bytes) -> Option<Self> {
        let read = amazon::message(frame)?;
        let payload = frame.slice_ref(read.payload);
        if read.error.is_some() {
            return None;
        }
        if read.event != Some("chunk") {
            return Some(Self { message: payload, event: read.event.map(str::to_owned), way: Way::Payload });
        }
        let text = string_of(&payload, "bytes")?;
        let message = BASE64_STANDARD.decode(payload.get(text.clone())?).ok()?;
        Some(Self { message: message.into(), event: None, way: Way::Encoded { payload, text } })
    }

    /// The message.
    pub const fn message(&self) -> &Bytes {
        &self.message
    }

    /// Its name, where the framing names it.
    pub fn event(&self) -> Option<&str> {
        self.event.as_deref()
    }

    /// The frame with these places of the message changed, in whatever order; places that overlap are changed once.
    pub fn put(&self, frame: &Bytes, changes: &[(Range<usize>, Bytes)]) -> Bytes {
        match &self.way {
            Way::Lines(lines) => {
                let place = |at: usize| {
                    let line = lines.partition_point(|(begin, _)| *begin <= at).saturating_sub(1);
                    lines.get(line).map_or(at, |(message, frame)| frame + (at - message))
                };
                let places = changes.iter().map(|(range, with)| (place(range.start)..place(range.end), with));
                changed(frame, places)
            }
            Way::Payload => {
                let message = changed(&self.message, changes.iter().map(|(range, with)| (range.clone(), with)));
                amazon::with_payload(frame, &message).map_or_else(|| frame.clone(), Bytes::from)
            }
            Way::Encoded { payload, text } => {
                let message = changed(&self.message, changes.iter().map(|(range, with)| (range.clone(), with)));
                let encoded = Bytes::from(BASE64_STANDARD.encode(message));
                let payload = changed(payload, std::iter::once((text.clone(), &encoded)));
                amazon::with_payload(frame, &payload).map_or_else(|| frame.clone(), Bytes::from)
            }
        }
    }
}

fn changed<'a>(bytes: &Bytes, changes: impl Iterator<Item = (Range<usize>, &'a Bytes)>) -> Bytes {
    let mut edits = Edits::of(bytes);
    for (range, with) in changes {
        // One that overlaps another has lost its bytes to it.
        edits.replace(range, with.clone()).unwrap_or_default();
    }
    edits.apply()
}

/// What stands between the quotes of a string of an object, where nothing in it is escaped.
fn string_of(object: &[u8], name: &str) -> Option<Range<usize>> {
    let mut walker = Walker::new(object).ok()?;
    let Some(Event::ObjectStart) = walker.next_event().ok()? else { return None };
    while let Some(Event::Key(key)) = walker.next_event().ok()? {
        if key.raw() == name {
            let Some(Event::Str(text)) = walker.next_event().ok()? else { return None };
            return (!text.is_escaped()).then(|| text.start()..text.end());
        }
        walker.next_raw().ok()?;
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn with(framed: Framed, frame: &[u8], find: &str, put: &'static str) -> Vec<u8> {
        let frame = Bytes::copy_from_slice(frame);
        let content = Content::of(framed, &frame).unwrap();
        let message = std::str::from_utf8(content.message()).unwrap().to_owned();
        let at = message.find(find).unwrap();
        content.put(&frame, &[(at..at + find.len(), Bytes::from_static(put.as_bytes()))]).to_vec()
    }

    #[test]
    fn every_other_byte_of_an_event_stays() {
        for (event, expected) in [
            ("event: x\r\ndata: {\"a\":\"b c\"}\r\n\r\n", "event: x\r\ndata: {\"a\":\"d c\"}\r\n\r\n"),
            (": hi\ndata:{\"a\":\ndata: \"b\"}\nid: 7\n\n", ": hi\ndata:{\"a\":\ndata: \"d\"}\nid: 7\n\n"),
            ("data: {\"b\":1}", "data: {\"d\":1}"),
        ] {
            assert_eq!(with(Framed::Events, event.as_bytes(), "b", "d"), expected.as_bytes());
        }
        assert_eq!(with(Framed::Array, b",\r\n{\"a\":\"b\"}", "b", "dd"), b",\r\n{\"a\":\"dd\"}");
        assert!(Content::of(Framed::Array, &Bytes::from_static(b"\n]\n")).is_none());
        assert_eq!(with(Framed::Lines, b" {\"a\":\"b\"} \r\n", "b", "dd"), b" {\"a\":\"dd\"} \r\n");
        assert!(Content::of(Framed::Events, &Bytes::from_static(b": a comment\n\n")).is_none());
    }

    #[test]
    fn an_amazon_message_keeps_its_headers_and_gets_new_checksums() {
        let headers = [(":event-type", "contentBlockDelta"), (":x", "y")];
        let frame = amazon::encode(&headers, b"{\"delta\":{\"text\":\"b\"}}");
        let after = with(Framed::Amazon, &frame, "b", "ddd");
        assert_eq!(after, amazon::encode(&headers, b"{\"delta\":{\"text\":\"ddd\"}}"));
        let inner = BASE64_STANDARD.encode("{\"text\":\"b\"}");
        let headers = [(":event-type", "chunk")];
        let frame = amazon::encode(&headers, json!({"bytes": inner, "p": "abc"}).to_string().as_bytes());
        let after = with(Framed::Amazon, &frame, "b", "ddd");
        let payload: Value = serde_json::from_slice(amazon::message(&after).unwrap().payload).unwrap();
        assert_eq!(payload, json!({"bytes": BASE64_STANDARD.encode("{\"text\":\"ddd\"}"), "p": "abc"}));
        assert!(Content::of(Framed::Amazon, &Bytes::copy_from_slice(&frame[..frame.len() - 1])).is_none());
    }
}
