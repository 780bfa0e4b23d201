//! Encoding: exact bytes of heads and chunks.

use bytes::BytesMut;

use super::{request, response_to};
use crate::wire::{HeadWriter, LAST_CHUNK, canonical_reason, chunk_head, data_chunk, write_decimal};

#[test]
fn writes_a_request_head_from_parsed_parts() {
    let head = request(
        b"POST http://own/v1/x?y HTTP/1.1\r\nHost: own\r\nA:  b \r\nConnection: c\r\nc: d\r\nContent-Length: 3\r\n\r\n",
    );
    let head = head.unwrap();
    let mut out = BytesMut::new();
    let mut writer = HeadWriter::new(&mut out);
    writer.request_line_below(head.method(), ["http://a.test", "/below"], head.target());
    writer.field("Host", b"upstream");
    head.end_to_end_fields().for_each(|field| writer.relay(field));
    writer.content_length(3);
    writer.end();
    assert_eq!(
        &out[..],
        b"POST http://a.test/below/v1/x?y HTTP/1.1\r\nHost: upstream\r\nA: b\r\nContent-Length: 3\r\n\r\n"
    );
}

#[test]
fn writes_a_response_head() {
    let head = response_to("GET", b"HTTP/1.0 429 Slow \xe9\r\nA : b\r\n\r\n").unwrap();
    let mut out = Vec::new();
    let mut writer = HeadWriter::new(&mut out);
    writer.status_line(head.status, head.reason());
    head.end_to_end_fields().for_each(|field| writer.relay(field));
    writer.number("Age", 0);
    writer.chunked();
    writer.connection_close();
    writer.end();
    let expected =
        b"HTTP/1.1 429 Slow \xe9\r\nA: b\r\nAge: 0\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";
    assert_eq!(out, expected);
}

#[test]
fn a_value_of_our_own_cannot_end_its_line() {
    let mut out = Vec::new();
    let mut writer = HeadWriter::new(&mut out);
    writer.field("X-A", b"b\r\nX-Evil: c\0\td\xff");
    writer.status_line(200, b"O\nK");
    assert_eq!(out, b"X-A: b  X-Evil: c \td\xff\r\nHTTP/1.1 200 O K\r\n");
}

#[test]
fn numbers_are_exact_at_their_edges() {
    for number in [0, 7, 10, 99, 1_000, u64::from(u32::MAX), u64::MAX - 1, u64::MAX] {
        let (mut decimal, mut hex) = (Vec::new(), Vec::new());
        write_decimal(&mut decimal, number);
        chunk_head(&mut hex, number);
        assert_eq!(decimal, number.to_string().as_bytes());
        assert_eq!(hex, format!("{number:x}\r\n").as_bytes());
    }
}

#[test]
fn an_empty_chunk_is_not_written_because_it_would_end_the_body() {
    let mut out = Vec::new();
    data_chunk(&mut out, b"");
    data_chunk(&mut out, &[b'x'; 17]);
    out.extend_from_slice(LAST_CHUNK);
    assert_eq!(out, b"11\r\nxxxxxxxxxxxxxxxxx\r\n0\r\n\r\n");
}

#[test]
fn every_status_we_raise_has_a_reason() {
    for kind in crate::wire::FaultKind::ALL {
        for side in [crate::wire::Side::Request, crate::wire::Side::Response] {
            let status = crate::wire::Fault::new(*kind, side, 0).status();
            assert_ne!(canonical_reason(status), "", "{status}");
        }
    }
}
