//! Tests of the wire layer: duties of RFC 9112 by row, and properties that hold for any input.
//!
//! The rows R1 to R26 name an intermediary's duties; the names of the tests carry the row they show.

mod answers;
mod bodies;
mod dialogues;
mod encoding;
mod properties;
mod requests;
mod responses;

use bytes::BytesMut;

use crate::wire::{ChunkSink, Fault, FaultKind, HeadScanner, RequestHead, ResponseHead};

/// One whole request head, read at once.
fn request(head: &[u8]) -> Result<RequestHead, Fault> {
    let head = HeadScanner::default().request(&mut BytesMut::from(head))?;
    Ok(head.expect("the head is whole"))
}

/// A request with these field lines after a valid request line and Host.
fn request_with(lines: &str) -> Result<RequestHead, Fault> {
    request(format!("POST /v1/x HTTP/1.1\r\nHost: a\r\n{lines}\r\n").as_bytes())
}

fn response_to(method: &str, head: &[u8]) -> Result<ResponseHead, Fault> {
    let head = HeadScanner::default().response(&mut BytesMut::from(head), method)?;
    Ok(head.expect("the head is whole"))
}

fn refused<T: std::fmt::Debug>(result: Result<T, Fault>) -> (u16, FaultKind) {
    let fault = result.expect_err("must be refused");
    assert!(fault.close());
    (fault.status(), fault.kind())
}

/// Collects what a scan reports.
#[derive(Debug, Default, PartialEq, Eq)]
struct Collected {
    relayed: Vec<u8>,
    content: Vec<u8>,
    /// How many stretches were reported for relaying.
    pieces: usize,
}

struct Collector<'a> {
    input: &'a [u8],
    into: &'a mut Collected,
}

impl ChunkSink for Collector<'_> {
    fn forward(&mut self, range: std::ops::Range<usize>) {
        self.into.relayed.extend_from_slice(&self.input[range]);
        self.into.pieces += 1;
    }

    fn data(&mut self, range: std::ops::Range<usize>) {
        self.into.content.extend_from_slice(&self.input[range]);
    }
}
