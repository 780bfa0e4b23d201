//! Bodies: the chunked grammar, what of it is relayed, and counting by length.

use super::{Collected, Collector, refused};
use crate::wire::FaultKind::*;
use crate::wire::{
    BodyScanner, ChunkedScanner, Fault, FaultKind, LengthScanner, Progress, RequestBody, ResponseBody, Side, limits,
};

fn scan(input: &[u8]) -> Result<(Progress, Collected), Fault> {
    let mut collected = Collected::default();
    let progress = ChunkedScanner::new(Side::Request).scan(input, &mut Collector { input, into: &mut collected })?;
    Ok((progress, collected))
}

/// A body cut into single bytes, which has to behave as the whole.
fn scan_bytewise(input: &[u8]) -> Result<(), FaultKind> {
    let mut scanner = ChunkedScanner::new(Side::Request);
    for byte in input.chunks(1) {
        scanner
            .scan(byte, &mut Collector { input: byte, into: &mut Collected::default() })
            .map_err(|fault| fault.kind())?;
    }
    scanner.finish().map_err(|fault| fault.kind())
}

#[test]
fn relays_a_plain_body_in_one_piece_and_finds_its_content() {
    let input = b"5\r\nhello\r\n00A\r\n0123456789\r\n0\r\n\r\nGET / HTTP/1.1\r\n";
    let (progress, collected) = scan(input).unwrap();
    let body = input.len() - "GET / HTTP/1.1\r\n".len();
    assert_eq!(progress, Progress { consumed: body, done: true });
    assert_eq!(
        collected,
        Collected { relayed: input[..body].to_vec(), content: b"hello0123456789".to_vec(), pieces: 1 }
    );
}

#[test]
fn r14_drops_extensions_and_reads_on() {
    let (progress, collected) = scan(b"5;a=b;c=\"d;\xe9\"\r\nhello\r\n1 \t; x\r\n!\r\n0;last\r\n\r\n").unwrap();
    assert!(progress.done);
    assert_eq!(collected.relayed, b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n");
    assert_eq!(collected.content, b"hello!");
}

#[test]
fn r14_bounds_extensions_over_the_whole_message() {
    let body = |bytes: usize| {
        let half = bytes / 2;
        let (first, second) = ("x".repeat(half - 1), "x".repeat(bytes - half - 1));
        scan(format!("1;{first}\r\na\r\n0;{second}\r\n\r\n").as_bytes())
    };
    assert!(body(limits::CHUNK_EXT_BYTES_MAX).is_ok());
    assert_eq!(refused(body(limits::CHUNK_EXT_BYTES_MAX + 1)), (400, ChunkExtensionsTooLong));
}

#[test]
fn r15_drops_trailer_fields_and_keeps_the_end() {
    let input = b"1\r\na\r\n0\r\nContent-Length: 5\r\nX:\r\n\r\nnext";
    let (progress, collected) = scan(input).unwrap();
    assert_eq!(progress, Progress { consumed: input.len() - 4, done: true });
    assert_eq!(collected.relayed, b"1\r\na\r\n0\r\n\r\n");
    let body = |bytes: usize| scan(format!("0\r\nA:{}\r\n\r\n", "x".repeat(bytes - 4)).as_bytes());
    assert!(body(limits::TRAILER_BYTES_MAX).is_ok());
    assert_eq!(refused(body(limits::TRAILER_BYTES_MAX + 1)), (431, TrailersTooLong));
}

#[test]
fn r12_r14_refuses_every_other_chunk_grammar_whole_or_in_single_bytes() {
    for (input, kind) in [
        (&b"\r\nGET / HTTP/1.1\r\n"[..], ChunkSize),
        (b";x\r\n", ChunkSize),
        (b" 5\r\nhello\r\n", ChunkSize),
        (b"+5\r\n", ChunkSize),
        (b"-1\r\n", ChunkSize),
        (b"0x5\r\n", ChunkSize),
        (b"5_0\r\n", ChunkSize),
        (b"5g\r\n", ChunkSize),
        (b"5,5\r\n", ChunkSize),
        (b"5 \r\nhello\r\n", ChunkSize),
        (b"5 5\r\n", ChunkSize),
        (b"5\x0b\r\n", ChunkSize),
        (b"5\0\r\n", ChunkSize),
        (b"\xb25\r\n", ChunkSize),
        (b"0000000000000005\r\n", ChunkSizeTooLong),
        (b"fffffffffffffffff\r\n", ChunkSizeTooLong),
        (b"5\nhello\r\n", ChunkLineEnd),
        (b"\n", ChunkLineEnd),
        (b"5\rhello\r\n", ChunkLineEnd),
        (b"5\r\r\nhello\r\n", ChunkLineEnd),
        (b"5;a\nhello\r\n", ChunkLineEnd),
        (b"5 \nhello", ChunkLineEnd),
        (b"5;a\rb\r\nhello\r\n", ChunkLineEnd),
        (b"5;a\0\r\n", ChunkExtension),
        (b"5;\x7f\r\n", ChunkExtension),
        (b"5\r\nhello0\r\n\r\n", ChunkDataEnd),
        (b"5\r\nhello\n", ChunkDataEnd),
        (b"5\r\nhello\rX", ChunkDataEnd),
        (b"5\r\nhello!\r\n", ChunkDataEnd),
        (b"0\r\n\n", ChunkLineEnd),
        (b"0\r\n\rX", ChunkLineEnd),
        (b"0\r\nA: b\n\r\n", ChunkLineEnd),
        (b"0\r\nA: b\rX", ChunkLineEnd),
        (b"0\r\nA\r\n", Trailer),
        (b"0\r\n: b\r\n", Trailer),
        (b"0\r\nA : b\r\n", Trailer),
        (b"0\r\n A: b\r\n", Trailer),
        (b"0\r\nA: b\r\n c\r\n", Trailer),
        (b"0\r\nA: \0\r\n", Trailer),
        (b"0\r\nGET / HTTP/1.1\r\n", Trailer),
    ] {
        assert_eq!(refused(scan(input)).1, kind, "{}", input.escape_ascii());
        assert_eq!(scan_bytewise(input), Err(kind), "{}", input.escape_ascii());
    }
}

#[test]
fn accepts_the_largest_size_without_overflow() {
    let mut scanner = ChunkedScanner::new(Side::Response);
    let input = b"fffffffffffffff\r\nabc";
    let progress = scanner.scan(input, &mut Collector { input, into: &mut Collected::default() }).unwrap();
    assert_eq!((progress, scanner.data_bytes()), (Progress { consumed: 20, done: false }, 3));
}

#[test]
fn r5_a_body_cut_short_never_looks_complete() {
    let whole = b"3\r\nabc\r\n0\r\nA: b\r\n\r\n";
    for end in 0..whole.len() {
        let mut scanner = ChunkedScanner::new(Side::Response);
        let input = &whole[..end];
        let progress = scanner.scan(input, &mut Collector { input, into: &mut Collected::default() }).unwrap();
        assert_eq!(progress, Progress { consumed: end, done: false });
        let fault = scanner.finish().unwrap_err();
        assert_eq!((fault.kind(), fault.status(), fault.at()), (BodyIncomplete, 502, end as u64));
    }
    let mut scanner = LengthScanner::new(5, Side::Request);
    assert_eq!(scanner.take(3), Progress { consumed: 3, done: false });
    let fault = scanner.finish().unwrap_err();
    assert_eq!((fault.kind(), fault.status(), fault.at()), (BodyIncomplete, 400, 3));
    assert_eq!(scanner.take(9), Progress { consumed: 2, done: true });
    assert_eq!(scanner.finish(), Ok(()));
}

#[test]
fn reads_every_framing_through_one_reader() {
    let input = b"3\r\nabc\r\n0\r\n\r\n";
    for (mut scanner, consumed, content, done) in [
        (BodyScanner::request(RequestBody::Empty), 0, &b""[..], true),
        (BodyScanner::request(RequestBody::Length(4)), 4, b"3\r\na", true),
        (BodyScanner::request(RequestBody::Length(40)), 13, input, false),
        (BodyScanner::request(RequestBody::Chunked), 13, b"abc", true),
        (BodyScanner::response(ResponseBody::UntilClose), 13, input, false),
        (BodyScanner::response(ResponseBody::Chunked), 13, b"abc", true),
    ] {
        let mut collected = Collected::default();
        let progress = scanner.scan(input, &mut Collector { input, into: &mut collected }).unwrap();
        assert_eq!(progress, Progress { consumed, done }, "{scanner:?}");
        assert_eq!(collected.content, content, "{scanner:?}");
        assert_eq!(collected.relayed, input[..consumed], "{scanner:?}");
        assert_eq!(scanner.is_done(), done);
        assert_eq!(scanner.finish().is_ok(), done || matches!(scanner, BodyScanner::UntilClose));
    }
}
