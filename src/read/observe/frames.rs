//! Cuts a byte stream into messages: server-sent events (WHATWG HTML section 9.2) and JSON lines.
//!
//! Invariants: the messages do not depend on how the bytes were cut; at most [`FRAME_BYTES_MAX`] bytes of an
//! unfinished message are held, and the end of a longer one: it is handed on as cut, and counted. Must not know: what is in a
//! message.

use memchr::{memchr, memchr2};

use super::tail::Tail;
use crate::json::{Elements, element};

/// Longest line or event kept: 1 MiB.
pub(super) const FRAME_BYTES_MAX: usize = 1 << 20;

/// A message.
#[derive(Clone, Copy)]
pub(super) enum Frame<'a> {
    Whole(&'a [u8]),
    /// One over the bound: its beginning and its end.
    Cut(&'a [u8], &'a Tail),
}

/// What is held of a message that has not ended.
#[derive(Default)]
struct Held {
    head: Vec<u8>,
    /// What is over the bound; empty mostly, and in a box, as there is one of these for each call.
    tail: Option<Box<Tail>>,
}

impl Held {
    fn is_empty(&self) -> bool {
        self.head.is_empty() && self.tail.is_none()
    }

    fn push(&mut self, bytes: &[u8]) {
        if let Some(tail) = &mut self.tail {
            return tail.push(bytes);
        }
        let room = FRAME_BYTES_MAX.saturating_sub(self.head.len());
        match bytes.split_at_checked(room) {
            Some((kept, beyond)) if !beyond.is_empty() => {
                self.head.extend_from_slice(kept);
                self.tail.insert(Box::default()).push(beyond);
            }
            _ => self.head.extend_from_slice(bytes),
        }
    }

    fn frame(&self) -> Frame<'_> {
        match &self.tail {
            Some(tail) => Frame::Cut(&self.head, tail),
            None => Frame::Whole(&self.head),
        }
    }

    /// A long message leaves no large block behind.
    fn clear(&mut self) {
        if self.tail.take().is_some() {
            self.head = Vec::new();
        }
        self.head.clear();
    }
}

/// Splits lines that may arrive in pieces.
#[derive(Default)]
struct Lines {
    /// The beginning of a line whose end has not come.
    held: Held,
    /// The last byte was CR: an LF right after it belongs to it.
    after_cr: bool,
}

impl Lines {
    /// Calls `each` for every line that ends in `bytes`. With `cr`, a bare CR ends a line too.
    fn feed(&mut self, mut bytes: &[u8], cr: bool, mut each: impl FnMut(Frame<'_>)) {
        loop {
            if std::mem::take(&mut self.after_cr) {
                if bytes.is_empty() {
                    self.after_cr = true;
                    return;
                }
                bytes = bytes.strip_prefix(b"\n").unwrap_or(bytes);
            }
            let end = if cr { memchr2(b'\r', b'\n', bytes) } else { memchr(b'\n', bytes) };
            let Some((line, rest)) = end.and_then(|at| bytes.split_at_checked(at)) else {
                return self.held.push(bytes);
            };
            self.after_cr = rest.first() == Some(&b'\r');
            bytes = rest.get(1..).unwrap_or_default();
            if self.held.is_empty() && line.len() <= FRAME_BYTES_MAX {
                each(Frame::Whole(line));
                continue;
            }
            self.held.push(line);
            each(self.held.frame());
            self.held.clear();
        }
    }

    /// The stream is over: what is left is a line.
    fn finish(&mut self, mut each: impl FnMut(Frame<'_>)) {
        if !self.held.is_empty() {
            each(self.held.frame());
            self.held.clear();
        }
    }
}

/// Reads server-sent events.
#[derive(Default)]
pub(super) struct EventStream {
    lines: Lines,
    event: Event,
}

#[derive(Default)]
struct Event {
    data: Held,
    /// A `data` field has come (its value may be empty).
    has_data: bool,
    /// A first line has come: a byte order mark may stand before it only.
    started: bool,
    cut: u32,
}

impl EventStream {
    /// Calls `each` with the data of every event that ends in `bytes`.
    pub(super) fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(Frame<'_>)) {
        let event = &mut self.event;
        self.lines.feed(bytes, true, |line| event.line(line, &mut each));
    }

    /// The stream is over. An event without its empty line still counts: some servers leave it out after the last.
    pub(super) fn finish(&mut self, mut each: impl FnMut(Frame<'_>)) {
        let event = &mut self.event;
        self.lines.finish(|line| event.line(line, &mut each));
        event.dispatch(&mut each);
    }

    /// Events of which only the beginning and the end were read, because they were too long.
    pub(super) const fn cut(&self) -> u32 {
        self.event.cut
    }
}

impl Event {
    fn line(&mut self, line: Frame<'_>, each: &mut impl FnMut(Frame<'_>)) {
        let (line, tail) = match line {
            Frame::Whole(line) => (line, None),
            Frame::Cut(head, tail) => (head, Some(tail)),
        };
        let line = if std::mem::replace(&mut self.started, true) {
            line
        } else {
            line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line)
        };
        if line.is_empty() {
            return self.dispatch(each);
        }
        let Some(value) = line.strip_prefix(b"data") else { return };
        let value = match value.split_first() {
            None => value,
            Some((b':', value)) => value.strip_prefix(b" ").unwrap_or(value),
            Some(_) => return,
        };
        if std::mem::replace(&mut self.has_data, true) {
            self.data.push(b"\n");
        }
        self.data.push(value);
        if let Some(tail) = tail {
            self.data.tail.get_or_insert_default().follow(tail);
        }
    }

    fn dispatch(&mut self, each: &mut impl FnMut(Frame<'_>)) {
        if std::mem::take(&mut self.has_data) {
            self.cut = self.cut.saturating_add(u32::from(self.data.tail.is_some()));
            each(self.data.frame());
        }
        self.data.clear();
    }
}

/// Reads JSON lines.
#[derive(Default)]
pub(super) struct JsonLines {
    lines: Lines,
    cut: u32,
}

impl JsonLines {
    /// Calls `each` with every line that ends in `bytes` and is not blank.
    pub(super) fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(Frame<'_>)) {
        let cut = &mut self.cut;
        self.lines.feed(bytes, false, |line| one_line(line, cut, &mut each));
    }

    /// The stream is over: what is left is a line.
    pub(super) fn finish(&mut self, mut each: impl FnMut(Frame<'_>)) {
        let cut = &mut self.cut;
        self.lines.finish(|line| one_line(line, cut, &mut each));
    }

    /// Lines of which only the beginning and the end were read, because they were too long.
    pub(super) const fn cut(&self) -> u32 {
        self.cut
    }
}

fn one_line(line: Frame<'_>, cut: &mut u32, each: &mut impl FnMut(Frame<'_>)) {
    match line {
        Frame::Whole(line) if line.trim_ascii().is_empty() => {}
        Frame::Whole(line) => each(Frame::Whole(line.trim_ascii())),
        Frame::Cut(..) => {
            *cut = cut.saturating_add(1);
            each(line);
        }
    }
}

/// Splits one array that may arrive in pieces into its elements.
#[derive(Default)]
pub(super) struct JsonArray {
    follow: Elements,
    /// The beginning of an element whose end has not come.
    held: Held,
    cut: u32,
}

impl JsonArray {
    /// Calls `each` for every element that ends in `bytes`.
    pub(super) fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(Frame<'_>)) {
        while let Some((last, rest)) = self.follow.end(bytes).and_then(|end| bytes.split_at_checked(end)) {
            self.held.push(last);
            match self.held.frame() {
                Frame::Whole(held) => each(Frame::Whole(element(held).1)),
                Frame::Cut(head, tail) => {
                    self.cut = self.cut.saturating_add(1);
                    let begins = head.iter().position(|byte| *byte == b'{').unwrap_or(0);
                    each(Frame::Cut(head.get(begins..).unwrap_or_default(), tail));
                }
            }
            self.held.clear();
            bytes = rest;
        }
        self.held.push(bytes);
    }

    /// Whether it is no array.
    pub(super) const fn is_foreign(&self) -> bool {
        self.follow.is_foreign()
    }

    /// Elements of which only the beginning and the end were read, because they were too long.
    pub(super) const fn cut(&self) -> u32 {
        self.cut
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(pieces: &[&[u8]]) -> (Vec<String>, u32) {
        let mut stream = EventStream::default();
        let mut seen = Vec::new();
        let mut take = |frame: Frame<'_>| {
            seen.push(match frame {
                Frame::Whole(data) => String::from_utf8_lossy(data).into_owned(),
                Frame::Cut(head, tail) => {
                    format!("{} ... {}", head.len(), head.len() + tail.lost() + tail.bytes().len())
                }
            });
        };
        for piece in pieces {
            stream.feed(piece, &mut take);
        }
        stream.finish(&mut take);
        (seen, stream.cut())
    }

    #[test]
    fn follows_the_event_stream_grammar() {
        for (stream, expected) in [
            ("data: a\n\ndata:b\r\n\r\ndata: c\r\rdata: d", &["a", "b", "c", "d"][..]),
            (": comment\nevent: x\nid: 1\ndata: a\ndata: b\ndata\n\n", &["a\nb\n"]),
            ("\u{feff}data: a\n\n\u{feff}data: b\n\n", &["a"]),
            ("data:  two spaces\n\ndatax: no\n\n\n\nevent: only\n\n", &[" two spaces"]),
            ("data:\n\n", &[""]),
            ("", &[]),
        ] {
            assert_eq!(events(&[stream.as_bytes()]).0, expected, "{stream:?}");
        }
    }

    #[test]
    fn of_what_is_over_the_bound_beginning_and_end_are_kept() {
        let long = "x".repeat(FRAME_BYTES_MAX + 50_000);
        let half = "x".repeat(FRAME_BYTES_MAX / 2);
        let stream = format!("data: {long}\n\ndata: ok\n\ndata: {half}\ndata: {half}\n\ndata: fine\n\n");
        let pieces: Vec<&[u8]> = stream.as_bytes().chunks(1000).collect();
        for pieces in [&[stream.as_bytes()][..], &pieces] {
            let (seen, cut) = events(pieces);
            // `data: ` counts in the line, and is none of its value.
            let first = format!("{} ... {}", FRAME_BYTES_MAX - 6, long.len());
            let third = format!("{FRAME_BYTES_MAX} ... {}", FRAME_BYTES_MAX + 1);
            assert_eq!((seen, cut), (vec![first, "ok".into(), third, "fine".into()], 2));
        }
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter(
            stream in proptest::collection::vec(prop::sample::select(vec![
                "data: x", "data:", "\n", "\r", "\r\n", ":c", "é", "\u{feff}", "event: e", "data", " ",
            ]), 0..30).prop_map(|parts| parts.concat()),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..4),
        ) {
            let bytes = stream.as_bytes();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(events(&pieces), events(&[bytes]));
        }
    }
}
