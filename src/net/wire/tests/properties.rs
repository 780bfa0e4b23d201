//! Properties of heads, for generated ones and for damaged ones.

use bytes::BytesMut;
use proptest::prelude::*;

use crate::wire::diagnose::first_offence;
use crate::wire::{
    Fault, FaultKind, HeadScanner, HeadWriter, RequestBody, RequestHead, ResponseBody, ResponseHead, Side,
};

/// Everything a request head says, comparable.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    start: Vec<String>,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    passed_on: Vec<(Vec<u8>, Vec<u8>)>,
    flags: [bool; 3],
    body: String,
}

fn said(head: &RequestHead) -> Said {
    let owned = |field: crate::wire::FieldRef<'_>| (field.name_bytes().to_vec(), field.value().to_vec());
    Said {
        start: vec![
            head.method().into(),
            head.target().into(),
            head.path().into(),
            format!("{:?} {:?}", head.query(), head.host()),
        ],
        fields: head.fields().map(owned).collect(),
        passed_on: head.end_to_end_fields().map(owned).collect(),
        flags: [head.keep_alive, head.expect_continue, head.upgrade_websocket],
        body: format!("{:?}", head.body),
    }
}

fn said_response(head: &ResponseHead) -> Said {
    let owned = |field: crate::wire::FieldRef<'_>| (field.name_bytes().to_vec(), field.value().to_vec());
    Said {
        start: vec![head.status.to_string(), head.reason().escape_ascii().to_string()],
        fields: head.fields().map(owned).collect(),
        passed_on: head.end_to_end_fields().map(owned).collect(),
        flags: [head.keep_alive, head.is_informational(), head.declared_length.is_some()],
        body: format!("{:?}", head.body),
    }
}

/// Feeds `bytes` in reads ending at `cuts`, until there is a head or a fault. `None`: the head never ended.
fn read(bytes: &[u8], cuts: &[usize], side: Side) -> Option<Result<Said, Fault>> {
    let mut scanner = HeadScanner::default();
    let mut buffer = BytesMut::new();
    let mut start = 0;
    for end in cuts.iter().copied().chain([bytes.len()]) {
        buffer.extend_from_slice(&bytes[start..end]);
        start = end;
        let result = match side {
            Side::Request => scanner.request(&mut buffer).map(|head| head.as_ref().map(said)),
            Side::Response => scanner.response(&mut buffer, "POST").map(|head| head.as_ref().map(said_response)),
        };
        if let Some(result) = result.transpose() {
            return Some(result);
        }
    }
    None
}

fn field_lines() -> impl Strategy<Value = String> {
    let free = "[A-Za-z0-9!#$%&'*+.^_`|~-]{1,20}: ?[ -~\u{e9}\t]{0,40}";
    let telling = prop::sample::select(vec![
        "Content-Length: 5",
        "content-length:0",
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: gzip, chunked",
        "Connection: close",
        "Connection: keep-alive, X-A",
        "connection: Cookie",
        "X-A: 1",
        "Host: b",
        "Expect: 100-continue",
        "Upgrade: websocket",
        "TE: trailers",
        "Cookie: a=b",
    ]);
    let line = prop_oneof![3 => free.prop_map(String::from), 1 => telling.prop_map(String::from)];
    prop::collection::vec(line, 0..12).prop_map(|lines| lines.iter().map(|line| format!("{line}\r\n")).collect())
}

fn request_head() -> impl Strategy<Value = Vec<u8>> {
    let method = prop::sample::select(vec!["GET", "POST", "OPTIONS", "HEAD", "X-Odd", "TRACE"]);
    let target = prop_oneof![4 => "/[a-zA-Z0-9%./?&=-]{0,30}", 1 => "(https?://)?[a-z:]{0,5}[/?]?[ -~]{0,4}"];
    (method, target, prop::bool::weighted(0.9), field_lines()).prop_map(|(method, target, new, lines)| {
        let version = if new { "1.1" } else { "1.0" };
        format!("{method} {target} HTTP/{version}\r\nHost: a\r\n{lines}\r\n").into_bytes()
    })
}

fn response_head() -> impl Strategy<Value = Vec<u8>> {
    (100..600_u16, "[ -~]{0,12}", field_lines())
        .prop_map(|(status, reason, lines)| format!("HTTP/1.1 {status} {reason}\r\n{lines}\r\n").into_bytes())
}

/// A head, bytes after it, a few places where bytes were overwritten, inserted or removed, and cuts.
fn damaged(head: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = (Vec<u8>, Vec<usize>)> {
    let byte = prop::sample::select(&b"\r\n\0 \t:,#.%/\x7f\xff\x0bA0"[..]);
    let damage = prop::collection::vec((any::<prop::sample::Index>(), byte, 0..3_u8), 0..4);
    (head, damage, prop::collection::vec(any::<prop::sample::Index>(), 0..8)).prop_map(|(mut bytes, damage, cuts)| {
        for (index, byte, action) in damage {
            let at = index.index(bytes.len());
            match action {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => {
                    bytes.remove(at);
                }
            }
        }
        // Whatever the damage did, the head ends somewhere.
        bytes.extend_from_slice(b"\r\n\r\nrest");
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.sort_unstable();
        (bytes, cuts)
    })
}

/// An independent reading of a written head: exactly one framing field or none, CRLF only, nothing odd in any line.
fn assert_canonical(bytes: &[u8]) {
    let text = bytes.strip_suffix(b"\r\n\r\n").expect("ends with one empty line");
    let lines: Vec<&[u8]> = {
        let mut lines = vec![&text[..0]; 0];
        let mut rest = text;
        while let Some(at) = rest.windows(2).position(|pair| pair == b"\r\n") {
            lines.push(&rest[..at]);
            rest = &rest[at + 2..];
        }
        lines.push(rest);
        lines
    };
    let mut framings = 0;
    for (number, line) in lines.iter().enumerate() {
        assert!(!line.is_empty() && line.iter().all(|byte| *byte == b'\t' || *byte >= b' ' && *byte != 0x7f));
        if number > 0 {
            let colon = line.iter().position(|byte| *byte == b':').expect("a colon");
            let name = &line[..colon];
            assert!(
                !name.is_empty()
                    && name.iter().all(|byte| byte.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]{}".contains(byte))
            );
            assert!(line[colon..].starts_with(b": "));
            let name = name.to_ascii_lowercase();
            framings += usize::from(name == b"content-length" || name == b"transfer-encoding");
        }
    }
    assert!(framings <= 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4 * ProptestConfig::default().cases))]

    #[test]
    fn any_cut_of_a_request_head_reads_the_same((bytes, cuts) in damaged(request_head())) {
        prop_assert_eq!(read(&bytes, &[], Side::Request), read(&bytes, &cuts, Side::Request));
    }

    #[test]
    fn any_cut_of_a_response_head_reads_the_same((bytes, cuts) in damaged(response_head())) {
        prop_assert_eq!(read(&bytes, &[], Side::Response), read(&bytes, &cuts, Side::Response));
    }

    #[test]
    fn what_is_accepted_passes_the_strict_automaton_and_what_fails_it_is_refused(
        (requests, _) in damaged(request_head()), (responses, _) in damaged(response_head()),
    ) {
        for (bytes, side) in [(requests, Side::Request), (responses, Side::Response)] {
            // An empty line or its half before the start line is the scanner's business, not a line of the head.
            if matches!(bytes.first(), Some(b'\r' | b'\n')) {
                continue;
            }
            let result = read(&bytes, &[], side).expect("the head ends");
            match first_offence(&bytes, side) {
                // A method that is not served decides before its target is looked at.
                _ if result.as_ref().is_err_and(|fault| fault.kind() == FaultKind::MethodRefused) => {}
                Some(fault) => prop_assert_eq!(result, Err(fault)),
                None => prop_assert_ne!(result.map_err(|fault| fault.kind()), Err(FaultKind::Malformed)),
            }
        }
    }

    #[test]
    fn a_regenerated_request_head_is_canonical_and_says_the_same((bytes, _) in damaged(request_head())) {
        let Some(Ok(head)) = HeadScanner::default().request(&mut BytesMut::from(&bytes[..])).transpose() else { return Ok(()) };
        let mut out = BytesMut::new();
        let mut writer = HeadWriter::new(&mut out);
        writer.request_line(head.method(), head.target());
        writer.field("Host", b"upstream.example");
        head.end_to_end_fields().for_each(|field| writer.relay(field));
        match head.body {
            RequestBody::Empty => {}
            RequestBody::Length(length) => writer.content_length(length),
            RequestBody::Chunked => writer.chunked(),
        }
        writer.end();
        assert_canonical(&out);
        let again = HeadScanner::default().request(&mut out).unwrap().expect("a whole head");
        prop_assert!(out.is_empty());
        prop_assert_eq!(said(&again).passed_on, said(&head).passed_on);
        prop_assert_eq!((again.method(), again.target(), again.body), (head.method(), head.target(), head.body));
    }

    #[test]
    fn a_regenerated_response_head_is_canonical_and_says_the_same((bytes, _) in damaged(response_head())) {
        let parsed = HeadScanner::default().response(&mut BytesMut::from(&bytes[..]), "POST").transpose();
        let Some(Ok(head)) = parsed else { return Ok(()) };
        let mut out = BytesMut::new();
        let mut writer = HeadWriter::new(&mut out);
        writer.status_line(head.status, head.reason());
        head.end_to_end_fields().for_each(|field| writer.relay(field));
        match (head.declared_length, head.body) {
            (Some(length), _) => writer.content_length(length),
            (None, ResponseBody::Chunked | ResponseBody::UntilClose) => writer.chunked(),
            (None, _) => {}
        }
        writer.end();
        assert_canonical(&out);
        let again = HeadScanner::default().response(&mut out, "POST").unwrap().expect("a whole head");
        prop_assert_eq!(said_response(&again).passed_on, said_response(&head).passed_on);
        prop_assert_eq!((again.status, again.reason()), (head.status, head.reason()));
    }
}
