//! The reader: content coding, then framing, then messages.

use std::borrow::Cow;
use std::time::Instant;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use weir_config::vocab::Unread;
use weir_inference::PartKind;

use super::answer::{Answer, Channel, Collector, Piece, Slot, bounded, message as cut_message};
use super::frames::{EventStream, Frame, JsonArray, JsonLines};
use super::head::is_last;
use super::tail::Tail;
use super::{absorb, dialect, usage};
use crate::codec::amazon::{Message, MessageStream};
use crate::codec::{ContentDecoder, DecodeError};
use crate::json::{Event, JsonError, JsonErrorKind, Location, Walker};

/// Most output per input byte of a compressed answer.
const RATIO_MAX: u32 = 100;
/// A JSON document is kept up to twice the text bound, within these limits.
const BODY_BYTES_MIN: usize = 64 * 1024;
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes of a stream that may wait to be read: some ten frames.
const WAITING_BYTES_MAX: usize = 2 * 1024;

/// How the messages of an answer are framed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerKind {
    /// One JSON document.
    Json,
    /// Server-sent events.
    EventStream,
    /// One JSON document per line.
    JsonLines,
    /// Messages of an Amazon event stream.
    AmazonEvents,
    /// One JSON array whose elements are the messages.
    JsonArray,
    /// Something else, or not said: looked at only if it starts like one of the others.
    Other,
}

impl AnswerKind {
    /// From the `Content-Type` of the answer.
    pub fn from_content_type(content_type: Option<&[u8]>) -> Self {
        let name = content_type.unwrap_or_default().split(|&b| b == b';').next().unwrap_or_default().trim_ascii();
        let ends = |suffix: &[u8]| {
            name.len()
                .checked_sub(suffix.len())
                .and_then(|at| name.get(at..))
                .is_some_and(|end| end.eq_ignore_ascii_case(suffix))
        };
        if name.eq_ignore_ascii_case(b"application/json") {
            // What most answers are.
            Self::Json
        } else if ends(b"text/event-stream") {
            Self::EventStream
        } else if ends(b"vnd.amazon.eventstream") {
            Self::AmazonEvents
        } else if ends(b"ndjson") || ends(b"jsonl") || ends(b"json-lines") || ends(b"stream+json") || ends(b"json-seq")
        {
            Self::JsonLines
        } else if ends(b"json") {
            Self::Json
        } else {
            Self::Other
        }
    }

    /// Whether answers of this kind come message by message.
    pub const fn is_stream(self) -> bool {
        matches!(self, Self::EventStream | Self::JsonLines | Self::AmazonEvents | Self::JsonArray)
    }

    /// From the first byte that is not white space, where an answer does not say what it is; `None` for a byte that begins neither JSON
    /// nor a line of an event stream.
    pub fn from_first_byte(byte: u8) -> Option<Self> {
        match byte {
            b'{' | b'[' => Some(Self::Json),
            b'd' | b'e' | b'i' | b'r' | b':' => Some(Self::EventStream),
            _ => None,
        }
    }
}

enum Frames {
    Json(Vec<u8>),
    Events(EventStream),
    Lines(JsonLines),
    Amazon(MessageStream),
    Array(JsonArray),
    /// The kind is not known yet; only white space has come.
    Unknown,
    /// Not for us.
    Ignored,
}

/// Reads one answer as it arrives.
pub struct AnswerReader {
    frames: Frames,
    /// `None` where there is no content coding. In a box: decoders are large, and most answers need none.
    decoder: Option<Box<ContentDecoder>>,
    /// What the decoder made last; without one, bytes of a stream that are read with those that follow them. One field for both, as
    /// there is one of these for each call.
    waiting: Vec<u8>,
    decoded_bytes: usize,
    messages: Messages,
    body_max: usize,
    /// The end of a document that is longer than what is kept.
    tail: Tail,
    failed: bool,
}

/// The messages read so far.
struct Messages {
    collector: Collector,
    read: u32,
    broken: u32,
    fault: Option<JsonErrorKind>,
}

impl Messages {
    fn take(&mut self, data: &[u8]) {
        if data == b"[DONE]" {
            self.collector.answer.complete = true;
            return;
        }
        if data.is_empty() {
            return;
        }
        let outcome = absorb::message(&mut self.collector, data);
        self.note(outcome);
    }

    /// A message, or what was kept of one that is too long: what its beginning says, and the counters at its end.
    fn take_frame(&mut self, frame: Frame<'_>) {
        let (head, tail) = match frame {
            Frame::Whole(data) => return self.take(data),
            Frame::Cut(head, tail) => (head, tail),
        };
        let whole = std::str::from_utf8(head).map_or_else(|fault| fault.valid_up_to(), str::len);
        let head = head.get(..whole).unwrap_or_default();
        // It breaks off somewhere, and what stood before that has been read.
        let _cut = absorb::message(&mut self.collector, head).is_err();
        self.read = self.read.saturating_add(1);
        if member(head, "type").is_some_and(|name| is_last(&name)) {
            self.collector.answer.complete = true;
            if let Some(name) = member(head, "type")
                && let Some(status) = name.strip_prefix("response.")
                && self.collector.answer.finish_reason.is_none()
            {
                self.collector.answer.finish_reason = Some(status.to_owned());
            }
        }
        tail.read_end(&mut self.collector);
        self.collector.leave_out(tail.lost() + tail.bytes().len());
    }

    fn note(&mut self, outcome: Result<(), JsonError>) {
        match outcome {
            Ok(()) => self.read = self.read.saturating_add(1),
            Err(fault) => {
                self.broken = self.broken.saturating_add(1);
                self.fault = Some(fault.kind);
            }
        }
    }

    /// A message of an Amazon event stream: an error, a piece of a model's own answer, or an event by its name.
    fn take_amazon(&mut self, message: &Message<'_>) {
        if let Some(error) = message.error {
            let told = member(message.payload, "message").or_else(|| member(message.payload, "Message"));
            let answer = &mut self.collector.answer;
            answer.error_type = Some(bounded(error));
            answer.error_message = told.as_deref().or(message.error_message).map(cut_message);
            self.read = self.read.saturating_add(1);
            return;
        }
        let name = message.event.unwrap_or_default();
        if name != "chunk" {
            let outcome = dialect::amazon_message(&mut self.collector, name, message.payload);
            return self.note(outcome);
        }
        let inner = member(message.payload, "bytes").and_then(|encoded| BASE64_STANDARD.decode(&*encoded).ok());
        match inner {
            Some(inner) if inner.trim_ascii_start().first() == Some(&b'{') => self.take(&inner),
            // An agent's answer is bare text.
            Some(inner) => {
                let slot = Slot { choice: 0, channel: Channel::Content, block: 0 };
                let text = String::from_utf8_lossy(&inner);
                self.collector.append(slot, Piece::Raw(&text), || Location::root("response"));
                self.read = self.read.saturating_add(1);
            }
            None => self.broken = self.broken.saturating_add(1),
        }
    }
}

/// A string of a JSON object.
fn member<'a>(object: &'a [u8], name: &str) -> Option<Cow<'a, str>> {
    let mut walker = Walker::new(object).ok()?;
    let Some(Event::ObjectStart) = walker.next_event().ok()? else { return None };
    while let Some(Event::Key(key)) = walker.next_event().ok()? {
        if key.raw() == name {
            let Some(Event::Str(text)) = walker.next_event().ok()? else { return None };
            return Some(text.decode());
        }
        walker.next_raw().ok()?;
    }
    None
}

impl AnswerReader {
    /// A reader for one answer. `text_max` bounds the text kept, in bytes. Dialects are recognised by what is said, so that a
    /// provider that answers in another one than the request's path promised is read all the same.
    pub fn new(kind: AnswerKind, content_encoding: Option<&[u8]>, text_max: usize) -> Self {
        let frames = match kind {
            AnswerKind::Json => Frames::Json(Vec::new()),
            AnswerKind::EventStream => Frames::Events(EventStream::default()),
            AnswerKind::JsonLines => Frames::Lines(JsonLines::default()),
            AnswerKind::AmazonEvents => Frames::Amazon(MessageStream::default()),
            AnswerKind::JsonArray => Frames::Array(JsonArray::default()),
            AnswerKind::Other => Frames::Unknown,
        };
        Self {
            frames,
            decoder: Some(ContentDecoder::new(content_encoding, u64::MAX, RATIO_MAX))
                .filter(|decoder| !decoder.is_identity())
                .map(Box::new),
            waiting: Vec::new(),
            decoded_bytes: 0,
            messages: Messages { collector: Collector::new(text_max), read: 0, broken: 0, fault: None },
            body_max: text_max.saturating_mul(2).clamp(BODY_BYTES_MIN, BODY_BYTES_MAX),
            tail: Tail::default(),
            failed: false,
        }
    }

    /// Takes counters that stand outside of the body: prompt, answer, read from a cache, written to one.
    pub fn counted(&mut self, told: [Option<&[u8]>; 4]) {
        let counters = &mut self.messages.collector.counters;
        let slots =
            [&mut counters.prompt, &mut counters.completion, &mut counters.cache_read, &mut counters.cache_write];
        for (slot, told) in slots.into_iter().zip(told) {
            if let Some(told) = told.and_then(|told| std::str::from_utf8(told).ok()) {
                usage::raise(slot, told.trim());
            }
        }
    }

    /// Takes the next bytes of the body (as they came from the provider).
    pub fn feed(&mut self, body_bytes: &[u8]) {
        self.catch_up();
        self.read(body_bytes);
    }

    /// The same for bytes that nobody asks about yet: frames that come one by one find nothing of this code in the caches, so some of
    /// them are read together. What was read so far is known after [`Self::catch_up`].
    pub fn feed_later(&mut self, body_bytes: &[u8]) {
        if !self.may_wait() || self.waiting.len() + body_bytes.len() > WAITING_BYTES_MAX {
            return self.feed(body_bytes);
        }
        if self.waiting.capacity() == 0 {
            self.waiting.reserve_exact(WAITING_BYTES_MAX);
        }
        self.waiting.extend_from_slice(body_bytes);
    }

    /// Whether bytes may wait: those of a stream without a content coding, as what a coding unpacks has to be known at once.
    pub const fn may_wait(&self) -> bool {
        self.decoder.is_none() && matches!(self.frames, Frames::Events(_) | Frames::Lines(_) | Frames::Array(_))
    }

    /// Reads what waits.
    pub fn catch_up(&mut self) {
        if self.decoder.is_none() && !self.waiting.is_empty() {
            let mut waiting = std::mem::take(&mut self.waiting);
            self.read(&waiting);
            waiting.clear();
            self.waiting = waiting;
        }
    }

    fn read(&mut self, body_bytes: &[u8]) {
        if self.failed || body_bytes.is_empty() {
            return;
        }
        let Some(decoder) = &mut self.decoder else {
            self.decoded_bytes += body_bytes.len();
            return self.take(body_bytes);
        };
        let mut decoded = std::mem::take(&mut self.waiting);
        decoded.clear();
        let outcome = decoder.feed(body_bytes, &mut decoded);
        self.take(&decoded);
        self.decoded_bytes += decoded.len();
        self.waiting = decoded;
        if let Err(fault) = outcome {
            self.failed = true;
            self.messages.collector.undecodable(fault);
        }
    }

    /// There is no room for more: from here on only the end of a document is kept, where its counters stand, and of a stream
    /// all but its text.
    pub fn keep_less(&mut self) {
        self.catch_up();
        self.body_max = 0;
        if !matches!(self.frames, Frames::Json(_) | Frames::Unknown) {
            self.messages.collector.keep_no_more_text();
        }
    }

    /// Whether [`Self::keep_less`] was asked for.
    pub const fn keeps_less(&self) -> bool {
        self.body_max == 0
    }

    /// There is no time to read a long document: of it only the end stays.
    pub fn keep_end(&mut self) {
        self.body_max = 0;
        if let Frames::Json(body) = &mut self.frames {
            let (body, after) = (std::mem::take(body), std::mem::take(&mut self.tail));
            self.tail.push(&body);
            self.tail.follow(&after);
        }
    }

    /// How many bytes have been read so far, without their coding: what is kept is kept decoded.
    pub const fn decoded_bytes(&self) -> usize {
        self.decoded_bytes
    }

    /// Whether any text, reasoning or tool call has been seen so far; for streams only, documents are read at the end.
    pub const fn first_text_seen(&self) -> bool {
        self.messages.collector.has_text()
    }

    /// Whether the answer's own last message has been seen; for streams only, documents are read at the end.
    pub const fn is_complete(&self) -> bool {
        self.messages.collector.answer.complete
    }

    /// Whether the answer has said why it ends, or sent its last message; for streams only.
    pub const fn has_ended(&self) -> bool {
        self.is_complete() || self.messages.collector.answer.finish_reason.is_some()
    }

    /// Bytes of text kept so far; for streams only.
    pub const fn text_bytes(&self) -> usize {
        self.messages.collector.text_bytes()
    }

    /// What a provider says of a failure is read as a text of the answer, too.
    pub fn with_failures(mut self) -> Self {
        self.messages.collector.reads_failures = true;
        self
    }

    /// Whether messages could not be read.
    pub const fn has_broken(&self) -> bool {
        self.messages.broken > 0
    }

    /// Whether text has been left out because of a bound.
    pub const fn is_truncated(&self) -> bool {
        self.messages.collector.answer.truncated
    }

    /// The texts so far and their roles, in the order in which they began; for streams only.
    pub fn texts(&self) -> impl Iterator<Item = (PartKind, &str)> {
        self.messages.collector.texts()
    }

    /// The tool calls so far: name, arguments, and whether it is a tool that changes files; for streams only.
    pub fn calls(&self) -> impl Iterator<Item = (&str, &str, bool)> {
        self.messages.collector.calls()
    }

    /// The same as [`Self::finish`], as far as there is time: what is not read of a document by the deadline is unread.
    pub fn finish_by(&mut self, deadline: Option<Instant>) -> Answer {
        self.messages.collector.until = deadline;
        self.finish()
    }

    /// Ends the answer and takes it out of the reader, which is done with.
    pub fn finish(&mut self) -> Answer {
        self.catch_up();
        if let Some(decoder) = self.decoder.as_mut().filter(|_| !self.failed) {
            let mut rest = Vec::new();
            let outcome = decoder.finish(&mut rest);
            self.take(&rest);
            if let Err(fault) = outcome {
                self.messages.collector.undecodable(fault);
            }
        }
        let messages = &mut self.messages;
        let mut dropped = 0;
        match &mut self.frames {
            Frames::Json(body) => {
                if self.tail.lost() == 0 {
                    body.extend_from_slice(self.tail.bytes());
                    document(messages, body);
                } else {
                    messages.collector.answer.truncated = true;
                    document(messages, body);
                    self.tail.read_usage(&mut messages.collector);
                    messages.collector.leave_out(self.tail.lost() + self.tail.bytes().len());
                }
            }
            Frames::Events(stream) => {
                stream.finish(|frame| messages.take_frame(frame));
                dropped = stream.cut();
            }
            Frames::Lines(lines) => {
                lines.finish(|frame| messages.take_frame(frame));
                dropped = lines.cut();
            }
            Frames::Amazon(stream) => {
                dropped = stream.dropped();
                messages.broken = messages.broken.saturating_add(stream.broken());
                if stream.is_lost() {
                    let answer = &mut messages.collector.answer;
                    answer.unreadable = Some("event stream with a wrong checksum");
                    answer.unread.insert(Unread::UnreadableBody);
                }
            }
            Frames::Array(array) => dropped = array.cut(),
            Frames::Unknown => {}
            Frames::Ignored => messages.collector.answer.unread.insert(Unread::MediaType),
        }
        let collector = &mut messages.collector;
        // A stream that says nothing of it was cut.
        let in_background = collector.background.unwrap_or(matches!(self.frames, Frames::Json(_)));
        collector.answer.pending = collector.is_response && collector.unfinished && in_background;
        collector.answer.ended = collector.is_response && !collector.unfinished && collector.answer.complete;
        let answer = &mut collector.answer;
        answer.skipped_events = messages.broken.saturating_add(dropped);
        answer.truncated |= dropped > 0;
        if messages.read == 0 && answer.unreadable.is_none() {
            answer.unreadable = messages.fault.map(JsonErrorKind::as_str);
        }
        if messages.broken > 0 {
            answer.unread.insert(Unread::UnreadableBody);
        }
        if answer.truncated {
            answer.unread.insert(Unread::Truncated);
        }
        self.messages.collector.finish()
    }

    fn take(&mut self, bytes: &[u8]) {
        let messages = &mut self.messages;
        match &mut self.frames {
            // No JSON begins so: events under the name of JSON.
            Frames::Json(body) if begins_events(body, bytes) => {
                self.frames = Frames::Events(EventStream::default());
                self.take(bytes);
            }
            Frames::Json(body) => {
                let room = self.body_max.saturating_sub(body.len());
                let (kept, beyond) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
                body.extend_from_slice(kept);
                self.tail.push(beyond);
            }
            Frames::Events(stream) => stream.feed(bytes, |frame| messages.take_frame(frame)),
            Frames::Lines(lines) => lines.feed(bytes, |frame| messages.take_frame(frame)),
            Frames::Amazon(stream) => stream.feed(bytes, |message| messages.take_amazon(&message)),
            Frames::Array(array) => {
                array.feed(bytes, |frame| messages.take_frame(frame));
                // Nobody looks at what it is instead.
                messages.collector.answer.truncated |= array.is_foreign();
            }
            Frames::Unknown => {
                let rest = bytes.trim_ascii_start();
                let Some(&first) = rest.first() else { return };
                self.frames = match AnswerKind::from_first_byte(first) {
                    Some(AnswerKind::Json) => Frames::Json(Vec::new()),
                    Some(AnswerKind::EventStream) => Frames::Events(EventStream::default()),
                    _ => Frames::Ignored,
                };
                self.take(rest);
            }
            Frames::Ignored => {}
        }
    }
}

impl Collector {
    /// Notes why the answer's content coding could not be undone. One that only ends early has given all it had.
    fn undecodable(&mut self, fault: DecodeError) {
        self.answer.unreadable = Some(fault.as_str());
        if fault != DecodeError::Truncated {
            self.answer.unread.insert(Unread::UnreadableBody);
        }
    }
}

/// White space before a first byte that is looked at.
const BLANK_BYTES_MAX: usize = 64;

/// Whether what is kept of a body and what comes next begin like server-sent events: after a little white space at most, however that
/// was cut.
fn begins_events(body: &[u8], bytes: &[u8]) -> bool {
    let blank =
        |bytes: &[u8]| bytes.iter().take(BLANK_BYTES_MAX + 1).take_while(|byte| byte.is_ascii_whitespace()).count();
    if blank(body) < body.len() {
        return false;
    }
    let before = blank(bytes);
    let first = bytes.get(before).filter(|_| body.len() + before <= BLANK_BYTES_MAX);
    first.and_then(|first| AnswerKind::from_first_byte(*first)) == Some(AnswerKind::EventStream)
}

/// Reads a document that has been collected.
fn document(messages: &mut Messages, body: &[u8]) {
    if body.trim_ascii().is_empty() {
        return;
    }
    let cut = messages.collector.answer.truncated;
    // A cut may have split a character.
    let whole =
        if cut { std::str::from_utf8(body).map_or_else(|fault| fault.valid_up_to(), str::len) } else { body.len() };
    let body = body.get(..whole).unwrap_or_default();
    messages.collector.in_document = true;
    let outcome = absorb::message(&mut messages.collector, body);
    if outcome.is_ok() {
        messages.read = 1;
        messages.collector.answer.complete = true;
        unknown_shape(&mut messages.collector, body);
    }
    messages.collector.in_document = false;
    match outcome {
        Ok(()) => {}
        // Some servers send lines under the name of JSON.
        Err(fault) if fault.kind == JsonErrorKind::Trailing => {
            messages.read = 1;
            let rest = body.get(fault.at..).unwrap_or_default();
            let mut lines = JsonLines::default();
            lines.feed(rest, |line| messages.take_frame(line));
            lines.finish(|line| messages.take_frame(line));
        }
        Err(_) if cut => messages.read = 1,
        Err(fault) => {
            messages.broken = 1;
            messages.fault = Some(fault.kind);
            if messages.collector.answer.unreadable.is_none() {
                messages.collector.answer.unreadable = Some(fault.kind.as_str());
            }
        }
    }
}

/// A document in which no known shape was found: its sentences are the text, so that nothing passes unscanned.
fn unknown_shape(collector: &mut Collector, body: &[u8]) {
    let answer = &collector.answer;
    let known = answer.first_text_seen || answer.usage.is_some() || answer.error_message.is_some();
    if known || answer.finish_reason.is_some() {
        return;
    }
    let Ok(mut walker) = Walker::new(body) else { return };
    let mut block = 0;
    while let Ok(Some(event)) = walker.next_event() {
        // Names and ids have no space in them.
        if let Event::Str(text) = event
            && memchr::memchr(b' ', text.raw().as_bytes()).is_some()
        {
            let slot = Slot { choice: 0, channel: Channel::Content, block };
            collector.append(slot, Piece::Text(text), || Location::root("response"));
            block = block.saturating_add(1);
        }
    }
}
