//! Response heads: framing by method and status, reuse of the connection, and what makes an upstream a broken one.

use bytes::BytesMut;

use super::{refused, response_to};
use crate::wire::FaultKind::*;
use crate::wire::{HeadScanner, ResponseBody, ResponseHead, limits};

fn response(lines: &str) -> Result<ResponseHead, crate::wire::Fault> {
    response_to("POST", format!("HTTP/1.1 200 OK\r\n{lines}\r\n").as_bytes())
}

#[test]
fn r1_coding_beats_length_and_costs_the_connection() {
    let head = response("Content-Length: 5\r\nTransfer-Encoding: chunked\r\nA: b\r\n").unwrap();
    assert_eq!((head.body, head.keep_alive, head.declared_length), (ResponseBody::Chunked, false, None));
    assert_eq!(head.end_to_end_fields().map(|field| field.name()).collect::<Vec<_>>(), ["A"]);
}

#[test]
fn r2_r3_r4_broken_framing_is_a_bad_gateway() {
    for (head, kind) in [
        ("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", TransferCodingVersion),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", TransferCodingUnsupported),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n\r\n", TransferCoding),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", TransferCodingRepeated),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", ContentLengthRepeated),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", ContentLengthRepeated),
        ("HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n", ContentLengthSyntax),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n", ContentLengthSyntax),
    ] {
        assert_eq!(refused(response_to("POST", head.as_bytes())), (502, kind), "{head}");
    }
}

/// Columns: method, status line and fields, body, length to announce, connection reusable.
#[test]
fn r6_frames_the_body_by_method_and_status() {
    use ResponseBody::*;
    for (method, head, body, declared, reusable) in [
        ("POST", "1.1 200 OK\r\nContent-Length: 5\r\n", Length(5), Some(5), true),
        ("POST", "1.1 200 OK\r\nContent-Length: 0\r\n", Empty, Some(0), true),
        ("POST", "1.1 200 OK\r\nTransfer-Encoding: chunked\r\n", Chunked, None, true),
        ("POST", "1.1 200 OK\r\n", UntilClose, None, false),
        ("POST", "1.1 500 E\r\nConnection: keep-alive\r\n", UntilClose, None, false),
        ("HEAD", "1.1 200 OK\r\nContent-Length: 5\r\n", Empty, Some(5), true),
        ("HEAD", "1.1 200 OK\r\nTransfer-Encoding: chunked\r\n", Empty, None, true),
        ("HEAD", "1.1 200 OK\r\n", Empty, None, true),
        ("GET", "1.1 304 Not Modified\r\nContent-Length: 5\r\n", Empty, Some(5), true),
        ("GET", "1.1 204 No Content\r\n", Empty, None, true),
        ("GET", "1.1 204 No Content\r\nContent-Length: 0\r\n", Empty, None, true),
        ("GET", "1.1 204 No Content\r\nContent-Length: 5\r\n", Empty, None, false),
        ("GET", "1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n", Empty, None, false),
        ("GET", "1.1 100 Continue\r\n", Empty, None, true),
        ("GET", "1.1 103 Early Hints\r\nContent-Length: 5\r\n", Empty, None, false),
        ("GET", "1.1 101 Switching Protocols\r\n", Empty, None, true),
        ("CONNECT", "1.1 200 OK\r\nContent-Length: 5\r\n", Empty, Some(5), true),
        ("CONNECT", "1.1 407 No\r\nContent-Length: 5\r\n", Length(5), Some(5), true),
        ("head", "1.1 200 OK\r\nContent-Length: 5\r\n", Length(5), Some(5), true),
        ("GET", "1.0 200 OK\r\nContent-Length: 5\r\n", Length(5), Some(5), false),
        ("GET", "1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive\r\n", Length(5), Some(5), true),
        ("GET", "1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n", Length(5), Some(5), false),
    ] {
        let parsed = response_to(method, format!("HTTP/{head}\r\n").as_bytes()).unwrap();
        assert_eq!(
            (parsed.body, parsed.declared_length, parsed.keep_alive),
            (body, declared, reusable),
            "{method} {head}"
        );
        assert_eq!(parsed.is_informational(), head.starts_with("1.1 10"));
        assert!(parsed.end_to_end_fields().next().is_none());
    }
}

#[test]
fn r7_drops_hop_by_hop_fields_of_responses() {
    let head = response(
        "Content-Length: 5\r\nConnection: X-Hop\r\nKeep-Alive: 5\r\nX-Hop: a\r\nUpgrade: h2\r\nTrailer: X\r\n\
         Proxy-Authenticate: a\r\nWWW-Authenticate: b\r\nSet-Cookie: c\r\nSet-Cookie: d\r\n",
    )
    .unwrap();
    let fields: Vec<_> = head.end_to_end_fields().map(|field| (field.name(), field.value())).collect();
    let expected: [(&str, &[u8]); 3] = [("WWW-Authenticate", b"b"), ("Set-Cookie", b"c"), ("Set-Cookie", b"d")];
    assert_eq!(fields, expected);
}

#[test]
fn r10_r12_r13_line_structure_is_as_strict_as_for_requests() {
    for (head, kind) in [
        ("HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n", ObsFold),
        ("HTTP/1.1 200 OK\r\n A: b\r\n\r\n", SpaceBeforeFields),
        ("HTTP/1.1 200 OK\nA: b\r\n\r\n", LineEnd),
        ("HTTP/1.1 200 OK\r\nA: b\n\r\n", LineEnd),
        ("HTTP/1.1 200 OK\r\nA: b\r\n\n", LineEnd),
        ("HTTP/1.1 200 OK\r\nA: b\rc\r\n\r\n", LineEnd),
        ("HTTP/1.1 200 O\rK\r\n\r\n", LineEnd),
        ("HTTP/1.1 200 OK\r\nA: b\0\r\n\r\n", FieldValue),
        ("HTTP/1.1 200 OK\r\nA b: c\r\n\r\n", FieldName),
        ("HTTP/1.1 200 OK\r\n: c\r\n\r\n", FieldName),
        ("\r\nHTTP/1.1 200 OK\r\n\r\n", EmptyLines),
        ("HTTP/1.1 20 OK\r\n\r\n", StatusLine),
        ("HTTP/1.1 2000 OK\r\n\r\n", StatusLine),
        ("HTTP/1.1  200 OK\r\n\r\n", StatusLine),
        ("HTTP/1.1 099 OK\r\n\r\n", StatusLine),
        ("HTTP/1.1 -20 OK\r\n\r\n", StatusLine),
        ("HTTP/1.1\r\n\r\n", StatusLine),
        ("HTTP/2.0 200 OK\r\n\r\n", VersionUnsupported),
        ("HTTP 200 OK\r\n\r\n", VersionSyntax),
        ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", VersionSyntax),
    ] {
        assert_eq!(refused(response_to("GET", head.as_bytes())), (502, kind), "{head:?}");
    }
}

#[test]
fn r11_removes_space_before_the_colon() {
    let head = response("Content-Length \t: 5\r\nA : b\r\n").unwrap();
    assert_eq!((head.body, head.get("a")), (ResponseBody::Length(5), Some(&b"b"[..])));
    assert_eq!(head.end_to_end_fields().map(|field| field.name()).collect::<Vec<_>>(), ["A"]);
}

#[test]
fn keeps_status_and_reason_as_sent() {
    for (line, status, reason) in [
        (&b"200 OK"[..], 200, &b"OK"[..]),
        (b"200", 200, b""),
        (b"200 ", 200, b""),
        (b"429 Slow  down\t!", 429, b"Slow  down\t!"),
        (b"999 \xe9\xff", 999, b"\xe9\xff"),
    ] {
        let head = [b"HTTP/1.1 ", line, b"\r\n\r\n"].concat();
        let head = response_to("GET", &head).unwrap();
        assert_eq!((head.status, head.reason()), (status, reason));
    }
}

#[test]
fn bounds_the_response_head() {
    let sized = |len: usize| {
        let fixed = "HTTP/1.1 200 OK\r\nA: \r\n\r\n".len();
        response_to("GET", format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "b".repeat(len - fixed)).as_bytes())
    };
    let largest = sized(limits::RESPONSE_HEAD_BYTES_MAX).unwrap();
    assert_eq!(largest.get("a").map(<[u8]>::len), Some(limits::RESPONSE_HEAD_BYTES_MAX - 24));
    assert_eq!(refused(sized(limits::RESPONSE_HEAD_BYTES_MAX + 1)), (502, HeadTooLarge));
    assert_eq!(refused(response(&"A: b\r\n".repeat(limits::FIELDS_MAX + 1))), (502, TooManyFields));
}

#[test]
fn reads_interim_responses_one_by_one_before_the_final_one() {
    let mut scanner = HeadScanner::default();
    let mut buffer = BytesMut::from(
        &b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nz"[..],
    );
    let mut statuses = Vec::new();
    while let Ok(Some(head)) = scanner.response(&mut buffer, "POST") {
        statuses.push((head.status, head.body));
    }
    assert_eq!(statuses, [(100, ResponseBody::Empty), (103, ResponseBody::Empty), (200, ResponseBody::Length(1))]);
    assert_eq!(&buffer[..], b"z");
}
