//! Cuts a byte stream into messages: server-sent events (WHATWG HTML section 9.2) and JSON lines.
//!
//! Invariants: the messages do not depend on how the bytes were cut; at most [`FRAME_BYTES_MAX`] bytes of an
//! unfinished message are held, longer ones are dropped and counted. Must not know: what is in a message.

use memchr::{memchr, memchr2};

use crate::json::{Elements, element};

/// Longest line or event kept: 1 MiB.
pub(super) const FRAME_BYTES_MAX: usize = 1 << 20;

/// Splits lines that may arrive in pieces.
#[derive(Default)]
struct Lines {
    /// The beginning of a line whose end has not come.
    held: Vec<u8>,
    /// The line is over the bound: nothing is kept until its end.
    overlong: bool,
    /// The last byte was CR: an LF right after it belongs to it.
    after_cr: bool,
}

/// One finished line.
enum Line<'a> {
    Whole(&'a [u8]),
    Overlong,
}

impl Lines {
    /// Calls `each` for every line that ends in `bytes`. With `cr`, a bare CR ends a line too.
    fn feed(&mut self, mut bytes: &[u8], cr: bool, mut each: impl FnMut(Line<'_>)) {
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
                return self.hold(bytes);
            };
            self.after_cr = rest.first() == Some(&b'\r');
            bytes = rest.get(1..).unwrap_or_default();
            if self.held.is_empty() && !self.overlong && line.len() <= FRAME_BYTES_MAX {
                each(Line::Whole(line));
                continue;
            }
            self.hold(line);
            self.end(&mut each);
        }
    }

    fn hold(&mut self, bytes: &[u8]) {
        self.overlong |= self.held.len() + bytes.len() > FRAME_BYTES_MAX;
        if self.overlong {
            self.held = Vec::new();
        } else {
            self.held.extend_from_slice(bytes);
        }
    }

    fn end(&mut self, each: &mut impl FnMut(Line<'_>)) {
        if std::mem::take(&mut self.overlong) {
            each(Line::Overlong);
        } else {
            each(Line::Whole(&self.held));
        }
        self.held.clear();
    }

    /// The stream is over: what is left is a line.
    fn finish(&mut self, mut each: impl FnMut(Line<'_>)) {
        if !self.held.is_empty() || self.overlong {
            self.end(&mut each);
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
    data: Vec<u8>,
    /// A `data` field has come (its value may be empty).
    has_data: bool,
    overlong: bool,
    /// A first line has come: a byte order mark may stand before it only.
    started: bool,
    dropped: u32,
}

impl EventStream {
    /// Calls `each` with the data of every event that ends in `bytes`.
    pub(super) fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        let event = &mut self.event;
        self.lines.feed(bytes, true, |line| event.line(line, &mut each));
    }

    /// The stream is over. An event without its empty line still counts: some servers leave it out after the last.
    pub(super) fn finish(&mut self, mut each: impl FnMut(&[u8])) {
        let event = &mut self.event;
        self.lines.finish(|line| event.line(line, &mut each));
        event.dispatch(&mut each);
    }

    /// Events dropped because they were too long.
    pub(super) const fn dropped(&self) -> u32 {
        self.event.dropped
    }
}

impl Event {
    fn line(&mut self, line: Line<'_>, each: &mut impl FnMut(&[u8])) {
        let line = match line {
            Line::Whole(line) => line,
            Line::Overlong => {
                self.overlong = true;
                return;
            }
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
        if self.data.len() + value.len() >= FRAME_BYTES_MAX {
            self.overlong = true;
            self.data = Vec::new();
        }
        if self.overlong {
            return;
        }
        if std::mem::replace(&mut self.has_data, true) {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(value);
    }

    fn dispatch(&mut self, each: &mut impl FnMut(&[u8])) {
        if std::mem::take(&mut self.overlong) {
            self.dropped = self.dropped.saturating_add(1);
        } else if self.has_data {
            each(&self.data);
        }
        self.has_data = false;
        self.data.clear();
    }
}

/// Reads JSON lines.
#[derive(Default)]
pub(super) struct JsonLines {
    lines: Lines,
    dropped: u32,
}

impl JsonLines {
    /// Calls `each` with every line that ends in `bytes` and is not blank.
    pub(super) fn feed(&mut self, bytes: &[u8], mut each: impl FnMut(&[u8])) {
        let dropped = &mut self.dropped;
        self.lines.feed(bytes, false, |line| one_line(line, dropped, &mut each));
    }

    /// The stream is over: what is left is a line.
    pub(super) fn finish(&mut self, mut each: impl FnMut(&[u8])) {
        let dropped = &mut self.dropped;
        self.lines.finish(|line| one_line(line, dropped, &mut each));
    }

    /// Lines dropped because they were too long.
    pub(super) const fn dropped(&self) -> u32 {
        self.dropped
    }
}

fn one_line(line: Line<'_>, dropped: &mut u32, each: &mut impl FnMut(&[u8])) {
    match line {
        Line::Whole(line) if line.trim_ascii().is_empty() => {}
        Line::Whole(line) => each(line.trim_ascii()),
        Line::Overlong => *dropped = dropped.saturating_add(1),
    }
}

/// Splits one array that may arrive in pieces into its elements.
#[derive(Default)]
pub(super) struct JsonArray {
    follow: Elements,
    /// The beginning of an element whose end has not come.
    held: Vec<u8>,
    overlong: bool,
    dropped: u32,
}

impl JsonArray {
    /// Calls `each` for every element that ends in `bytes`.
    pub(super) fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(&[u8])) {
        while let Some((last, rest)) = self.follow.end(bytes).and_then(|end| bytes.split_at_checked(end)) {
            self.hold(last);
            if std::mem::take(&mut self.overlong) {
                self.dropped = self.dropped.saturating_add(1);
            } else {
                each(element(&self.held).1);
            }
            self.held.clear();
            bytes = rest;
        }
        self.hold(bytes);
    }

    fn hold(&mut self, bytes: &[u8]) {
        self.overlong |= self.held.len() + bytes.len() > FRAME_BYTES_MAX;
        if self.overlong {
            self.held = Vec::new();
        } else {
            self.held.extend_from_slice(bytes);
        }
    }

    /// Whether it is no array.
    pub(super) const fn is_foreign(&self) -> bool {
        self.follow.is_foreign()
    }

    /// Elements left out because they were too long.
    pub(super) const fn dropped(&self) -> u32 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn events(pieces: &[&[u8]]) -> (Vec<String>, u32) {
        let mut stream = EventStream::default();
        let mut seen = Vec::new();
        for piece in pieces {
            stream.feed(piece, |data| seen.push(String::from_utf8_lossy(data).into_owned()));
        }
        stream.finish(|data| seen.push(String::from_utf8_lossy(data).into_owned()));
        (seen, stream.dropped())
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
    fn drops_what_is_over_the_bound_and_goes_on() {
        let long = "x".repeat(FRAME_BYTES_MAX);
        let half = "x".repeat(FRAME_BYTES_MAX / 2);
        let stream = format!("data: {long}\n\ndata: ok\n\ndata: {half}\ndata: {half}\n\ndata: fine\n\n");
        let pieces: Vec<&[u8]> = stream.as_bytes().chunks(1000).collect();
        assert_eq!(events(&[stream.as_bytes()]), (vec!["ok".into(), "fine".into()], 2));
        assert_eq!(events(&pieces), (vec!["ok".into(), "fine".into()], 2));
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
