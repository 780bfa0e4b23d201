//! What the provider says from the moment it is asked: interim responses, which are passed on, and the head of its answer.
//! It may begin while the request is still being sent.
//!
//! Invariant: bytes are taken in as they arrive, however they are cut, so that neither part of an interim response is taken
//! for an answer nor an answer overheard behind one.

use bytes::{Bytes, BytesMut};

use super::websocket;
use crate::client::session::Session;
use crate::limits::{INTERIM_MAX, READ_BYTES_STREAM};
use crate::rt::EarlyReader;
use crate::wire::{HeadScanner, HeadWriter, RequestHead, ResponseHead, Version};

/// How interim responses begin.
const INTERIM: [&[u8]; 2] = [b"HTTP/1.1 1", b"HTTP/1.0 1"];

/// Reads what the provider says to one request, also while that is still being written.
pub(crate) struct AnswerListener<'a> {
    asked: &'a RequestHead,
    scanner: HeadScanner,
    /// What has arrived and is no complete head yet, or stands behind one.
    pub(crate) buf: BytesMut,
    /// Interim responses on their way to the client.
    interim: Vec<ResponseHead>,
    interim_seen: usize,
    /// An interim response that announces a body, or is of HTTP/1.0, costs the connection like a final one.
    reusable: bool,
    /// The head of the answer, or what is wrong, found while the request was being sent.
    found: Option<Result<Box<ResponseHead>, String>>,
}

impl<'a> AnswerListener<'a> {
    /// For the answer to `asked`; `buf` is the connection's empty read buffer.
    pub(crate) fn new(asked: &'a RequestHead, buf: BytesMut) -> Self {
        let scanner = HeadScanner::default();
        Self { asked, scanner, buf, interim: Vec::new(), interim_seen: 0, reusable: true, found: None }
    }

    /// Whether not a byte has come.
    pub(crate) fn is_silent(&self) -> bool {
        self.buf.is_empty() && self.interim_seen == 0 && self.found.is_none()
    }

    /// The head of the answer, where it came while the request was being sent.
    pub(crate) fn early_head(&self) -> Option<&ResponseHead> {
        self.found.as_ref().and_then(|found| found.as_deref().ok())
    }

    /// The head of the answer, if it is complete, or what makes it unusable. Interim responses in front of it are kept for
    /// [`AnswerListener::pass_on`].
    pub(crate) fn head(&mut self) -> Option<Result<Box<ResponseHead>, String>> {
        if self.found.is_some() {
            return self.found.take();
        }
        loop {
            let mut head = match self.scanner.response(&mut self.buf, self.asked.method()) {
                Ok(head) => head?,
                Err(fault) => return Some(Err(fault.message().into_owned())),
            };
            let switched = head.status == 101 && self.asked.upgrade_websocket && websocket::has_switched(&head);
            if !head.is_informational() || switched {
                head.keep_alive &= self.reusable || switched;
                return Some(Ok(Box::new(head)));
            }
            self.interim_seen += 1;
            self.reusable &= head.keep_alive;
            if head.status == 101 || self.interim_seen > INTERIM_MAX {
                return Some(Err(format!("it sent an unexpected {} response", head.status)));
            }
            // 100 we have said ourselves, and HTTP/1.0 knows none of them.
            if head.status != 100 && self.asked.version == Version::Http11 {
                self.interim.push(head);
            }
        }
    }

    /// Passes on what has come in front of the answer. A failure shows at the next write.
    pub(crate) async fn pass_on(&mut self, session: &mut Session) {
        for head in self.interim.drain(..) {
            if let Err(error) = session.send(written(&head)).await {
                tracing::debug!(%error, "an interim response could not be relayed");
            }
        }
    }
}

impl EarlyReader for AnswerListener<'_> {
    fn buffer(&mut self) -> &mut BytesMut {
        if self.buf.capacity() == self.buf.len() {
            self.buf.reserve(READ_BYTES_STREAM / 2);
        }
        &mut self.buf
    }

    fn take_in(&mut self) -> bool {
        self.found = self.head();
        self.found.is_some() || begins_answer(&self.buf)
    }
}

/// Whether what begins like this is an answer. What may still become an interim response is none yet.
fn begins_answer(first: &[u8]) -> bool {
    let could_be = |interim: &[u8]| interim.iter().zip(first).all(|(expected, byte)| expected == byte);
    !INTERIM.into_iter().any(could_be)
}

fn written(head: &ResponseHead) -> Bytes {
    let mut out = BytesMut::with_capacity(head.wire_bytes() + 16);
    let mut writer = HeadWriter::new(&mut out);
    writer.status_line(head.status, head.reason());
    for field in head.end_to_end_fields() {
        if !field.name_starts_with("x-service-") {
            writer.relay(field);
        }
    }
    writer.end();
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_that_may_still_become_an_interim_response_is_no_answer() {
        for undecided in ["", "H", "HTTP/1.", "HTTP/1.1 ", "HTTP/1.0 1", "HTTP/1.1 103 Early"] {
            assert!(!begins_answer(undecided.as_bytes()), "{undecided}");
        }
        for answer in ["HTTP/1.1 2", "HTTP/1.0 5", "HTTP/2", "ICY 200", "\r\n", "{"] {
            assert!(begins_answer(answer.as_bytes()), "{answer}");
        }
    }
}
