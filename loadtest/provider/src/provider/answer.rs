//! What the provider answers, and the bytes that makes on a connection.
//!
//! Invariant: an [`Answer`] is a plan; it performs nothing. [`Answer::script`] turns it into timed writes, and head and
//! first body bytes always share one write.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Where [`stamp_now`] writes the sending time, as a JSON member.
const STAMP_MEMBER: &[u8] = b"\"fake_sent_ns\":\"";
/// Digits of a time in nanoseconds since 1970, until the year 2286.
pub const STAMP_DIGITS: usize = 19;

/// A piece of the body and the pause in front of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Time between the previous piece (or the head) and this one, in milliseconds.
    pub pause_ms: u64,
    /// Body bytes.
    pub bytes: Vec<u8>,
}

/// How the body is delimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// Content-Length.
    Length,
    /// The chunked coding, one chunk per piece.
    Chunked,
    /// The end of the connection.
    UntilClose,
}

/// What becomes of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It stays open if the client wants it to.
    KeepAlive,
    /// It is closed after a whole answer.
    Close,
    /// It is closed after this many body bytes, whatever the head promised.
    CutAfter(usize),
}

/// The plan of one answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Header fields without the framing ones, in order.
    pub headers: Vec<(String, String)>,
    /// Wait before the head, in milliseconds.
    pub delay_ms: u64,
    /// The body; empty for none.
    pub pieces: Vec<Piece>,
    /// How the body is delimited.
    pub framing: Framing,
    /// What becomes of the connection.
    pub ending: Ending,
}

/// One write of a [`Script`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// When it is due, counted from the moment the request was complete.
    pub due: Duration,
    /// What is written.
    pub bytes: Vec<u8>,
}

/// An answer as timed writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    /// The writes in order of their due times.
    pub writes: Vec<Write>,
    /// Whether the connection is closed after the last write.
    pub closes: bool,
}

impl Answer {
    /// A whole answer with a content type, counted by Content-Length.
    pub fn whole(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            delay_ms: 0,
            pieces: vec![Piece { pause_ms: 0, bytes: body.into() }],
            framing: Framing::Length,
            ending: Ending::KeepAlive,
        }
    }

    /// A streamed answer: one chunk per frame, `pause_ms` between frames.
    pub fn stream(content_type: &str, frames: Vec<Vec<u8>>, pause_ms: u64) -> Self {
        let pause = |index: usize| if index == 0 { 0 } else { pause_ms };
        let pieces = frames.into_iter().enumerate().map(|(i, bytes)| Piece { pause_ms: pause(i), bytes }).collect();
        Self { pieces, framing: Framing::Chunked, ..Self::whole(200, content_type, Vec::new()) }
    }

    /// The first value of a header field.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The body without framing.
    pub fn body(&self) -> Vec<u8> {
        self.pieces.iter().flat_map(|piece| piece.bytes.iter().copied()).collect()
    }

    /// The timed writes for a client that wants to keep the connection or not, and asked with HEAD or not.
    pub fn script(&self, keep_alive: bool, head_only: bool) -> Script {
        let closes = !keep_alive || self.ending != Ending::KeepAlive || self.framing == Framing::UntilClose;
        let mut due = Duration::from_millis(self.delay_ms);
        let mut writes = vec![Write { due, bytes: self.head(closes) }];
        if head_only || !has_body(self.status) {
            return Script { writes, closes };
        }
        let mut allowance = match self.ending {
            Ending::CutAfter(bytes) => bytes,
            _ => usize::MAX,
        };
        for piece in &self.pieces {
            due += Duration::from_millis(piece.pause_ms);
            let kept = piece.bytes.get(..allowance).unwrap_or(&piece.bytes);
            allowance -= kept.len();
            append(&mut writes, due, |out| self.frame(kept, out));
            if kept.len() < piece.bytes.len() {
                return Script { writes, closes };
            }
        }
        if self.framing == Framing::Chunked && !matches!(self.ending, Ending::CutAfter(_)) {
            append(&mut writes, due, |out| out.extend_from_slice(b"0\r\n\r\n"));
        }
        Script { writes, closes }
    }

    fn head(&self, closes: bool) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        for (name, value) in &self.headers {
            head.extend([name.as_str(), ": ", value, "\r\n"]);
        }
        match self.framing {
            _ if !has_body(self.status) => {}
            Framing::Length => {
                let length: usize = self.pieces.iter().map(|piece| piece.bytes.len()).sum();
                head.push_str(&format!("content-length: {length}\r\n"));
            }
            Framing::Chunked => head.push_str("transfer-encoding: chunked\r\n"),
            Framing::UntilClose => {}
        }
        // A connection that is going to be cut says nothing of it.
        if closes && !matches!(self.ending, Ending::CutAfter(_)) {
            head.push_str("connection: close\r\n");
        }
        head.push_str("\r\n");
        head.into_bytes()
    }

    fn frame(&self, bytes: &[u8], out: &mut Vec<u8>) {
        match self.framing {
            // An empty chunk would be the last one.
            Framing::Chunked if bytes.is_empty() => {}
            Framing::Chunked => {
                out.extend_from_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Framing::Length | Framing::UntilClose => out.extend_from_slice(bytes),
        }
    }
}

/// Adds bytes to the last write if they are due with it, else as a write of their own.
fn append(writes: &mut Vec<Write>, due: Duration, fill: impl FnOnce(&mut Vec<u8>)) {
    match writes.last_mut() {
        Some(last) if last.due == due => fill(&mut last.bytes),
        _ => {
            let mut bytes = Vec::new();
            fill(&mut bytes);
            if !bytes.is_empty() {
                writes.push(Write { due, bytes });
            }
        }
    }
}

fn has_body(status: u16) -> bool {
    !matches!(status, 100..=199 | 204 | 304)
}

/// The reason phrase of the statuses providers use.
fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        413 => "Content Too Large",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        529 => "Overloaded",
        _ => "Status",
    }
}

/// Nanoseconds since 1970 on this machine's clock, which sender and receiver of a stamp share.
pub fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The JSON member a stamped frame carries, its time still zero, with a trailing comma.
pub(super) const STAMP_BLANK: &str = "\"fake_sent_ns\":\"0000000000000000000\",";

/// Writes the present time into the stamp of an outgoing frame, if it carries one.
pub fn stamp_now(bytes: &mut [u8]) {
    let Some(start) = stamp_at(bytes) else { return };
    let Some(digits) = bytes.get_mut(start..start + STAMP_DIGITS) else { return };
    let mut rest = now_ns();
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
    }
}

/// Where a frame's stamp begins, if it has one: [`STAMP_DIGITS`] digits.
pub fn stamp_at(frame: &[u8]) -> Option<usize> {
    memchr::memmem::find(frame, STAMP_MEMBER).map(|at| at + STAMP_MEMBER.len())
}

/// The time at which a frame was stamped, in nanoseconds since 1970.
pub fn read_stamp(frame: &[u8]) -> Option<u64> {
    let start = stamp_at(frame)?;
    std::str::from_utf8(frame.get(start..start + STAMP_DIGITS)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(value: u64) -> Duration {
        Duration::from_millis(value)
    }

    #[test]
    fn head_and_first_body_bytes_share_a_write() {
        let script = Answer::whole(200, "text/plain", "hi").script(true, false);
        let text = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 2\r\n\r\nhi".to_vec();
        assert_eq!(script, Script { writes: vec![Write { due: ms(0), bytes: text }], closes: false });
    }

    #[test]
    fn frames_are_due_at_multiples_of_the_pause() {
        let mut answer = Answer::stream("text/event-stream", vec![b"a".to_vec(), b"b".to_vec(), b"c".to_vec()], 10);
        answer.delay_ms = 5;
        let script = answer.script(true, false);
        let dues: Vec<_> = script.writes.iter().map(|write| write.due).collect();
        assert_eq!(dues, [ms(5), ms(15), ms(25)]);
        assert_eq!(script.writes[2].bytes, b"1\r\nc\r\n0\r\n\r\n");
    }

    #[test]
    fn a_cut_promises_all_and_sends_a_part() {
        let mut answer = Answer::whole(200, "text/plain", "0123456789");
        answer.ending = Ending::CutAfter(4);
        let script = answer.script(true, false);
        let text = String::from_utf8(script.writes[0].bytes.clone()).unwrap();
        assert!(text.contains("content-length: 10\r\n") && text.ends_with("\r\n\r\n0123"), "{text}");
        assert!(script.closes && !text.contains("connection"));
    }

    #[test]
    fn a_cut_stream_has_no_last_chunk() {
        let mut answer = Answer::stream("text/event-stream", vec![b"aaaa".to_vec(), b"bbbb".to_vec()], 0);
        answer.ending = Ending::CutAfter(6);
        assert!(answer.script(true, false).writes[0].bytes.ends_with(b"4\r\naaaa\r\n2\r\nbb\r\n"));
    }

    #[test]
    fn head_requests_and_bodiless_statuses_get_no_body() {
        assert!(Answer::whole(200, "a/b", "hi").script(true, true).writes[0].bytes.ends_with(b"length: 2\r\n\r\n"));
        let none = Answer::whole(204, "a/b", "hi").script(true, false);
        assert_eq!(none.writes[0].bytes, b"HTTP/1.1 204 No Content\r\ncontent-type: a/b\r\n\r\n");
    }

    #[test]
    fn a_stamp_reads_back() {
        let before = now_ns();
        let mut frame = format!("data: {{{STAMP_BLANK}\"id\":1}}\n\n").into_bytes();
        stamp_now(&mut frame);
        let stamped = read_stamp(&frame).unwrap();
        assert!((before..=now_ns()).contains(&stamped));
        assert_eq!(read_stamp(b"data: {}\n\n"), None);
    }
}
