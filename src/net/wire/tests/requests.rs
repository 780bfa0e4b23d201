//! Request heads: what is refused and why, what is accepted and what it then means.

use bytes::BytesMut;

use super::{refused, request, request_with};
use crate::wire::FaultKind::*;
use crate::wire::{FaultKind, HeadScanner, RequestBody, RequestHead, Version, limits};

fn names(head: &RequestHead) -> Vec<&str> {
    head.end_to_end_fields().map(|field| field.name()).collect()
}

#[test]
fn r1_refuses_length_beside_coding() {
    assert_eq!(refused(request_with("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n")), (400, LengthAndCoding));
    assert_eq!(refused(request_with("Transfer-Encoding: chunked\r\ncontent-length: 0\r\n")), (400, LengthAndCoding));
    assert_eq!(refused(request_with("Transfer-Encoding: gzip\r\nContent-Length: 5\r\n")), (400, LengthAndCoding));
}

#[test]
fn refuses_a_framing_name_with_an_underscore() {
    for lines in
        ["Content_Length: 4\r\n", "Content-Length: 0\r\ncontent_length: 4\r\n", "Transfer_Encoding: chunked\r\n"]
    {
        assert_eq!(refused(request_with(lines)), (400, FramingLookalike), "{lines}");
    }
    assert_eq!(names(&request_with("X_Length: 4\r\nContent_Type: a\r\n").unwrap()), ["X_Length", "Content_Type"]);
}

#[test]
fn r2_refuses_any_coding_list_but_chunked() {
    for (value, expected) in [
        ("chunked, chunked", (400, TransferCoding)),
        ("identity", (400, TransferCoding)),
        ("identity, chunked", (400, TransferCoding)),
        ("chunked, identity", (400, TransferCoding)),
        ("chunked, gzip", (400, TransferCoding)),
        ("gzip", (400, TransferCoding)),
        ("", (400, TransferCoding)),
        ("xchunked", (400, TransferCoding)),
        ("chunked;q=1", (400, TransferCoding)),
        ("\"chunked\"", (400, TransferCoding)),
        ("chunked,", (400, TransferCoding)),
        (", chunked", (400, TransferCoding)),
        ("gzip, chunked", (501, TransferCodingUnsupported)),
        ("x-gzip, deflate , chunked", (501, TransferCodingUnsupported)),
    ] {
        assert_eq!(refused(request_with(&format!("Transfer-Encoding: {value}\r\n"))), expected, "{value}");
    }
    for lines in [
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\ntransfer-encoding: gzip\r\n",
    ] {
        assert_eq!(refused(request_with(lines)), (400, TransferCodingRepeated), "{lines}");
    }
    assert_eq!(request_with("transfer-encoding: \tCHUNKED \r\n").unwrap().body, RequestBody::Chunked);
}

#[test]
fn r3_refuses_a_coding_in_http_1_0() {
    let head = b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(refused(request(head)), (400, TransferCodingVersion));
}

#[test]
fn r4_accepts_one_plain_decimal_length_only() {
    for value in [
        "+5",
        "-5",
        "5, 5",
        "5,",
        "0x5",
        "5 5",
        "",
        "5.0",
        "five",
        "\u{664}",
        "10000000000000000000",
        "00000000000000000005",
    ] {
        let result = request_with(&format!("Content-Length: {value}\r\n"));
        assert_eq!(refused(result), (400, ContentLengthSyntax), "{value}");
    }
    for lines in ["Content-Length: 5\r\nContent-Length: 5\r\n", "Content-Length: 0\r\nContent-Length: 5\r\n"] {
        assert_eq!(refused(request_with(lines)), (400, ContentLengthRepeated), "{lines}");
    }
    for (value, body) in [
        ("0", RequestBody::Empty),
        ("5", RequestBody::Length(5)),
        ("007", RequestBody::Length(7)),
        ("9999999999999999999", RequestBody::Length(9_999_999_999_999_999_999)),
    ] {
        assert_eq!(request_with(&format!("Content-Length: {value} \r\n")).unwrap().body, body);
    }
    assert_eq!(request_with("").unwrap().body, RequestBody::Empty);
}

#[test]
fn r7_drops_hop_by_hop_fields_and_those_connection_names() {
    let head = request_with(
        "X-First: 1\r\nConnection: keep-alive, X-Secret,, x-missing\r\nKeep-Alive: 5\r\nProxy-Connection: close\r\n\
         Proxy-Authorization: a\r\nProxy-Authenticate: a\r\nTE: trailers\r\nTrailer: X\r\nUpgrade: h2c\r\nExpect: 100-continue\r\n\
         x-secret: a\r\nX-SECRET: b\r\nConnection: X-Other\r\nX-Other: c\r\nContent-Length: 3\r\nX-Last: 2\r\n",
    )
    .unwrap();
    assert_eq!(names(&head), ["X-First", "X-Last"]);
    assert!(head.keep_alive);
    for field in head.fields() {
        assert_eq!(field.is_hop_by_hop(), head.is_hop_by_hop(field.name()), "{}", field.name());
    }
    for name in ["connection", "TE", "x-secret", "X-Other", "Proxy-Authorization", "Transfer-Encoding", "upgrade"] {
        assert!(head.is_hop_by_hop(name), "{name}");
    }
    for name in ["X-First", "Host", "Content-Length", "x-missing", "Expect"] {
        assert!(!head.is_hop_by_hop(name), "{name}");
    }
    assert_eq!(head.get("X-Secret"), Some(&b"a"[..]), "readable for us, not passed on");
    assert_eq!(head.get_all("x-secret").collect::<Vec<_>>(), [b"a", b"b"]);
}

#[test]
fn r7_drops_hop_by_hop_fields_wherever_they_stand() {
    let last = limits::FIELDS_MAX - 5;
    let head = request_with(&format!(
        "{}TE: a\r\nX-Named: b\r\nConnection: x-named\r\nX-Last: c\r\n",
        "A: b\r\n".repeat(last)
    ));
    let head = head.unwrap();
    assert_eq!(head.fields().len(), limits::FIELDS_MAX);
    assert_eq!(names(&head).len(), last + 1);
    assert_eq!(names(&head).last(), Some(&"X-Last"));
}

#[test]
fn r7_refuses_connection_options_that_would_strip_end_to_end_fields() {
    for name in ["Host", "content-length", "Transfer-Encoding", "AUTHORIZATION", "cookie"] {
        let result = request_with(&format!("Connection: close, {name}\r\n"));
        assert_eq!(refused(result), (400, ConnectionProtected), "{name}");
    }
    assert_eq!(refused(request_with("Connection: a b\r\n")), (400, ConnectionSyntax));
    assert_eq!(refused(request_with("Connection: \"close\"\r\n")), (400, ConnectionSyntax));
    let most = "a,".repeat(limits::CONNECTION_OPTIONS_MAX - 1) + "a";
    assert!(request_with(&format!("Connection: {most}\r\n")).is_ok());
    assert_eq!(refused(request_with(&format!("Connection: {most}\r\nConnection: a\r\n"))), (400, ConnectionSyntax));
}

#[test]
fn r9_demands_exactly_one_valid_host() {
    assert_eq!(refused(request(b"GET / HTTP/1.1\r\n\r\n")), (400, HostMissing));
    assert_eq!(refused(request_with("Host: a\r\n")), (400, HostRepeated));
    for host in [
        "",
        "a b",
        "a/b",
        "a@b",
        "a:b",
        "a:65536",
        "a:123456",
        "a:1:2",
        ":80",
        "[::1",
        "[::1]x",
        "[1.2.3.4]",
        "[]",
        "a,b\u{e9}",
        "a%",
        "a%4",
        "a%zz",
        "http://a",
        "a\\b",
        "a#b",
        "a?b",
    ] {
        let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(refused(request(head.as_bytes())), (400, HostSyntax), "{host}");
    }
    for host in
        ["a", "a.b:8080", "127.0.0.1:80", "[::1]:80", "[::ffff:1.2.3.4]", "a_b", "xn--bcher-kva.example", "a:", "a%41"]
    {
        let head = request(format!("GET / HTTP/1.1\r\nhOST:{host}\r\n\r\n").as_bytes()).unwrap();
        assert_eq!(head.host(), Some(host));
        assert_eq!(head.end_to_end_fields().count(), 0, "Host is for the writer of the next head");
    }
    assert_eq!(request(b"GET / HTTP/1.0\r\n\r\n").unwrap().host(), None);
    assert_eq!(refused(request(b"GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n")), (400, HostRepeated));
}

#[test]
fn r9_reduces_an_absolute_target_to_origin_form() {
    for (method, target, origin, path, query) in [
        ("GET", "http://own:1/a/b?c=d?e", "/a/b?c=d?e", "/a/b", Some("c=d?e")),
        ("GET", "HTTPS://own:1/a", "/a", "/a", None),
        ("GET", "http://own:1", "/", "/", None),
        ("GET", "http://own:1?x=1", "/?x=1", "/", Some("x=1")),
        ("OPTIONS", "http://own:1", "*", "*", None),
        ("OPTIONS", "http://own:1/", "/", "/", None),
    ] {
        let head = request(format!("{method} {target} HTTP/1.1\r\nHost: other\r\nA: b\r\n\r\n").as_bytes()).unwrap();
        assert_eq!((head.target(), head.path(), head.query()), (origin, path, query), "{target}");
        assert_eq!(head.host(), Some("own:1"), "the target beats Host");
        assert!(head.is_absolute_form());
        assert_eq!(head.get("a"), Some(&b"b"[..]));
    }
}

#[test]
fn refuses_targets_that_are_no_path() {
    for target in [
        "a",
        "v1/chat",
        "?x",
        "*",
        "http:/a",
        "http://",
        "http:///a",
        "ftp://own/a",
        "http://u@own/a",
        "http://u:p@own/",
        "own:80",
        "http://own:99999/",
    ] {
        let head = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(refused(request(head.as_bytes())), (400, TargetForm), "{target}");
    }
    assert_eq!(refused(request(b"OPTIONS ** HTTP/1.1\r\nHost: a\r\n\r\n")), (400, TargetForm));
    assert_eq!(request(b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").unwrap().target(), "*");
}

#[test]
fn refuses_bytes_that_do_not_belong_into_a_target() {
    for target in [&b"/a#b"[..], b"/\xc3\xa9", b"/a\x7f", b"/a\tb", b"/a\0", b"/\x0b"] {
        let head = [b"GET ", target, b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
        assert_eq!(refused(request(&head)), (400, TargetSyntax), "{target:?}");
    }
    let kept = "/v1/x%2Fy;z=1/{a}|b\"<>^`//?q=#"; // `#` only to be cut off below
    let kept = kept.trim_end_matches('#');
    let head = request(format!("GET {kept} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
    assert_eq!(head.target(), kept);
}

#[test]
fn refuses_dot_segments_in_every_spelling() {
    for path in [
        "/.",
        "/..",
        "/../a",
        "/a/./b",
        "/a/..",
        "/a/../b?x",
        "/%2e/a",
        "/a/%2E%2e/b",
        "/a/.%2e",
        "/a%2f..%2fb",
        "/a%2F%2e%2e",
        "/a\\..\\b",
        "/a%5c..",
        "/a/..;x=1/b",
        "/..;/a",
        "/.;",
        "http://own/../a",
    ] {
        let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(refused(request(head.as_bytes())), (400, DotSegment), "{path}");
    }
    for path in [
        "/v1/models/gpt-4.1",
        "/.well-known/x",
        "/...",
        "/a/..b",
        "/a/b..",
        "/a/.b.",
        "/a?x=/../b",
        "/%2e%2e%2e",
        "/%252e%252e/",
        "/a/%zz..",
        "/a;..",
        "/;.",
        "/%2",
        "/%",
        "//",
        "/a//b",
    ] {
        let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(request(head.as_bytes()).unwrap().target(), path);
    }
}

#[test]
fn r10_refuses_folded_lines() {
    for lines in ["A: b\r\n c\r\n", "A: b\r\n\tc: d\r\n", "A:\r\n b\r\n"] {
        assert_eq!(refused(request_with(lines)), (400, ObsFold), "{lines:?}");
    }
}

#[test]
fn r11_refuses_space_before_the_colon_and_controls_in_values() {
    assert_eq!(refused(request_with("Content-Length : 5\r\n")), (400, SpaceBeforeColon));
    assert_eq!(refused(request_with("A\t: b\r\n")), (400, SpaceBeforeColon));
    for byte in (0..0x20).chain([0x7f]).filter(|byte| !matches!(byte, b'\t' | b'\n' | b'\r')) {
        let head = [b"GET / HTTP/1.1\r\nHost: a\r\nA: b", &[byte][..], b"c\r\n\r\n"].concat();
        assert_eq!(refused(request(&head)), (400, FieldValue), "{byte:#x}");
    }
    for line in [": b", "A b: c", "A(b): c", "\u{e9}: c", "A", "A\0: b", "A\x0b: b", "[a]: b"] {
        let (status, kind) = refused(request_with(&format!("{line}\r\n")));
        assert_eq!(status, 400, "{line}");
        assert!(matches!(kind, FieldName | SpaceBeforeColon), "{line}: {kind:?}");
    }
}

#[test]
fn r12_refuses_bare_cr_and_bare_lf_everywhere() {
    for head in [
        &b"GET / HTTP/1.1\nHost: a\r\n\r\n"[..],
        b"GET / HTTP/1.1\r\nHost: a\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n\n",
        b"GET / HTTP/1.1\nHost: a\n\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nA: b\rc: d\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nA: b\r\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nA:\n\r\n",
        b"GET / HTTP/1.1\rHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\n\rX\r\n\r\n",
    ] {
        assert_eq!(refused(request(head)), (400, LineEnd), "{}", head.escape_ascii());
    }
    // A second request hidden behind a bare LF is never seen.
    let head = b"GET / HTTP/1.1\r\nHost: a\n\nGET /hidden HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(refused(request(head)), (400, LineEnd));
}

#[test]
fn r13_refuses_space_before_the_first_field() {
    for head in ["GET / HTTP/1.1\r\n Host: a\r\n\r\n", "GET / HTTP/1.1\r\n\tX: y\r\nHost: a\r\n\r\n"] {
        assert_eq!(refused(request(head.as_bytes())), (400, SpaceBeforeFields));
    }
}

#[test]
fn r17_reads_the_expectation_and_refuses_others() {
    for (lines, expected) in [
        ("Content-Length: 5\r\nExpect: 100-Continue\r\n", true),
        ("Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n", true),
        ("Expect: 100-continue\r\n", false),
        ("Expect: 100-continue\r\nContent-Length: 0\r\n", false),
        ("Content-Length: 5\r\n", false),
    ] {
        assert_eq!(request_with(lines).unwrap().expect_continue, expected, "{lines}");
    }
    let old = request(b"POST / HTTP/1.0\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n").unwrap();
    assert!(!old.expect_continue);
    for lines in ["Expect: 200-ok\r\n", "Expect:\r\n", "Expect: 100-continue\r\nExpect: 100-continue\r\n"] {
        assert_eq!(refused(request_with(lines)), (417, Expectation), "{lines}");
    }
}

#[test]
fn r18_refuses_connect_and_trace_and_names_what_is_allowed() {
    for head in ["CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n", "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let fault = request(head.as_bytes()).unwrap_err();
        assert_eq!((fault.status(), fault.allow()), (405, Some("DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT")));
    }
    assert_eq!(request(b"PROPFIND / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap().method(), "PROPFIND");
}

#[test]
fn recognises_a_websocket_upgrade_and_ignores_others() {
    let upgrade = |head: &str| request(head.as_bytes()).unwrap().upgrade_websocket;
    assert!(upgrade("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n\r\n"));
    for head in [
        "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        "GET / HTTP/1.0\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: 5\r\n\r\n",
    ] {
        assert!(!upgrade(head), "{head}");
    }
}

#[test]
fn r19_never_keeps_a_connection_with_an_old_client() {
    let keep_alive = |version: &str, connection: &str| {
        let head = format!("GET / HTTP/{version}\r\nHost: a\r\n{connection}\r\n");
        let head = request(head.as_bytes()).unwrap();
        assert_eq!(head.version, if version == "1.0" { Version::Http10 } else { Version::Http11 });
        head.keep_alive
    };
    assert!(keep_alive("1.1", ""));
    assert!(!keep_alive("1.0", ""));
    assert!(!keep_alive("1.0", "Connection: keep-alive\r\n"));
}

#[test]
fn r20_obeys_connection_close() {
    for connection in ["close", "Close", "keep-alive, close", "close,keep-alive", "x , CLOSE"] {
        assert!(!request_with(&format!("Connection: {connection}\r\n")).unwrap().keep_alive, "{connection}");
    }
    assert!(request_with("Connection: closed\r\n").unwrap().keep_alive);
    assert!(!request_with("Connection: x\r\nConnection: close\r\n").unwrap().keep_alive);
}

#[test]
fn r24_keeps_order_spelling_and_bytes_of_fields() {
    let head = request(
        b"GET / HTTP/1.1\r\nb: 1\r\nHOST: a\r\nA:\t two  words \t\r\nB:2\r\nEmpty:\r\nraw: \xe9\xff\t|\r\n\r\n",
    );
    let head = head.unwrap();
    let fields: Vec<_> = head.fields().map(|field| (field.name(), field.value())).collect();
    let expected: [(&str, &[u8]); 6] =
        [("b", b"1"), ("HOST", b"a"), ("A", b"two  words"), ("B", b"2"), ("Empty", b""), ("raw", b"\xe9\xff\t|")];
    assert_eq!(fields, expected);
    assert_eq!(names(&head), ["b", "A", "B", "Empty", "raw"]);
    assert_eq!(head.get_all("b").collect::<Vec<_>>(), [b"1", b"2"]);
}

#[test]
fn r26_bounds_the_request_line_the_head_and_the_fields() {
    let line = |len: usize| {
        let target = "a".repeat(len - "GET / HTTP/1.1".len());
        request(format!("GET /{target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())
    };
    assert!(line(limits::REQUEST_LINE_BYTES_MAX).is_ok());
    assert_eq!(refused(line(limits::REQUEST_LINE_BYTES_MAX + 1)), (414, RequestLineTooLong));
    let sized = |len: usize| {
        let fixed = "GET / HTTP/1.1\r\nHost: a\r\nA: \r\n\r\n".len();
        request(format!("GET / HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n", "b".repeat(len - fixed)).as_bytes())
    };
    assert_eq!(sized(limits::HEAD_BYTES_MAX).unwrap().wire_bytes(), limits::HEAD_BYTES_MAX);
    assert_eq!(refused(sized(limits::HEAD_BYTES_MAX + 1)), (431, HeadTooLarge));
    let fields = |count: usize| request_with(&"A: b\r\n".repeat(count - 1));
    assert_eq!(fields(limits::FIELDS_MAX).unwrap().fields().len(), limits::FIELDS_MAX);
    assert_eq!(refused(fields(limits::FIELDS_MAX + 1)), (431, TooManyFields));
}

#[test]
fn r26_refuses_an_endless_head_before_it_ends() {
    for (start, expected) in [
        (&b"GET /"[..], (414, RequestLineTooLong)),
        (b"GET / HTTP/1.1\r\nA: ", (431, HeadTooLarge)),
        (b"GET / HTTP/1.1\r\n", (431, HeadTooLarge)),
    ] {
        let mut scanner = HeadScanner::default();
        let mut buffer = BytesMut::from(start);
        let fault = loop {
            match scanner.request(&mut buffer) {
                Ok(head) => assert!(head.is_none()),
                Err(fault) => break fault,
            }
            assert!(buffer.len() <= limits::HEAD_BYTES_MAX + 1);
            buffer.extend_from_slice(b"a");
        };
        assert_eq!((fault.status(), fault.kind()), expected);
    }
}

#[test]
fn tells_versions_apart_that_are_unknown_and_those_that_are_nonsense() {
    for (version, expected) in [
        ("HTTP/2.0", (505, VersionUnsupported)),
        ("HTTP/1.2", (505, VersionUnsupported)),
        ("HTTP/0.9", (505, VersionUnsupported)),
        ("HTTP/1", (400, VersionSyntax)),
        ("HTTP/1.10", (400, VersionSyntax)),
        ("http/1.1", (400, VersionSyntax)),
        ("HTTP/1.1 ", (400, VersionSyntax)),
        (" HTTP/1.1", (400, VersionSyntax)),
        ("", (400, VersionSyntax)),
        ("ICAP/1.0", (400, VersionSyntax)),
    ] {
        let head = format!("GET / {version}\r\nHost: a\r\n\r\n");
        assert_eq!(refused(request(head.as_bytes())), expected, "{version}");
    }
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    assert_eq!(refused(request(preface)), (505, VersionUnsupported));
    for (line, kind) in [
        ("GET  / HTTP/1.1", TargetSyntax),
        (" GET / HTTP/1.1", MethodSyntax),
        ("GET\t/ HTTP/1.1", MethodSyntax),
        ("G@T / HTTP/1.1", MethodSyntax),
        ("GET /", TargetSyntax),
        ("GET", MethodSyntax),
    ] {
        let head = format!("{line}\r\nHost: a\r\n\r\n");
        assert_eq!(refused(request(head.as_bytes())), (400, kind), "{line}");
    }
}

#[test]
fn ignores_one_empty_line_before_a_request_line_and_no_more() {
    assert!(request(b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n").is_ok());
    for head in
        ["\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", "\rGET / HTTP/1.1\r\n"]
    {
        assert_eq!(refused(request(head.as_bytes())), (400, EmptyLines), "{head:?}");
    }
}

#[test]
fn leaves_bytes_after_the_head_and_reads_pipelined_requests_in_order() {
    let mut scanner = HeadScanner::default();
    let mut buffer = BytesMut::from(
        &b"POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET /2 HTTP/1.1\r\nHost: a\r\n\r\n\r\nGET /3 HT"
            [..],
    );
    let head = scanner.request(&mut buffer).unwrap().unwrap();
    assert_eq!((head.target(), head.body), ("/1", RequestBody::Length(3)));
    assert!(buffer.starts_with(b"abcGET"));
    let _body = buffer.split_to(3);
    assert_eq!(scanner.request(&mut buffer).unwrap().unwrap().target(), "/2");
    assert!(scanner.request(&mut buffer).unwrap().is_none());
    assert!(scanner.has_begun());
    buffer.extend_from_slice(b"TP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(scanner.request(&mut buffer).unwrap().unwrap().target(), "/3");
    assert!(buffer.is_empty() && !scanner.has_begun());
}

#[test]
fn messages_say_what_where_and_what_is_accepted_but_never_repeat_input() {
    let fault = request_with("X-Key: <script>\0</script>\r\n").unwrap_err();
    assert_eq!(
        fault.message(),
        "a control character in a field value at byte 45 of the request head; accepted: field values are visible characters, \
         spaces and tabs"
    );
    let limit = |kind: FaultKind, limit: usize| {
        let text = crate::wire::Fault::new(kind, crate::wire::Side::Request, 0).message();
        assert!(text.contains(&limit.to_string()), "{text}");
    };
    limit(RequestLineTooLong, limits::REQUEST_LINE_BYTES_MAX);
    limit(HeadTooLarge, limits::HEAD_BYTES_MAX);
    limit(HeadTooLarge, limits::RESPONSE_HEAD_BYTES_MAX);
    limit(TooManyFields, limits::FIELDS_MAX);
    limit(ConnectionSyntax, limits::CONNECTION_OPTIONS_MAX);
    limit(ContentLengthSyntax, limits::CONTENT_LENGTH_DIGITS_MAX);
    limit(ChunkSizeTooLong, usize::from(limits::CHUNK_SIZE_DIGITS_MAX));
    limit(ChunkExtensionsTooLong, limits::CHUNK_EXT_BYTES_MAX);
    limit(TrailersTooLong, limits::TRAILER_BYTES_MAX);
}

#[test]
fn debug_output_shows_no_field_values() {
    let head = request(b"GET /?key=q-secret HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer s-secret\r\n\r\n").unwrap();
    assert!(!format!("{head:?}").contains("secret"));
}
