//! Whole byte streams, heads and bodies in turn: what a connection sees of ambiguous input, for any cut into reads.

use bytes::BytesMut;
use proptest::prelude::*;

use super::{Collected, Collector};
use crate::wire::FaultKind::*;
use crate::wire::{BodyScanner, Fault, FaultKind, HeadScanner};

/// What one connection made of a stream: each request's target and content, then how it ended.
#[derive(Debug, PartialEq, Eq)]
struct Transcript {
    requests: Vec<(String, Vec<u8>)>,
    relayed: Vec<u8>,
    fault: Option<Fault>,
    /// In the middle of a head or a body.
    unfinished: bool,
}

/// Feeds the stream in reads that end at `cuts`, the way a connection does.
fn converse(stream: &[u8], cuts: &[usize]) -> Transcript {
    let (mut heads, mut body) = (HeadScanner::default(), None::<BodyScanner>);
    let mut buffer = BytesMut::new();
    let mut transcript = Transcript { requests: Vec::new(), relayed: Vec::new(), fault: None, unfinished: false };
    let mut start = 0;
    for end in cuts.iter().copied().chain([stream.len()]) {
        buffer.extend_from_slice(&stream[start..end]);
        start = end;
        loop {
            let Some(scanner) = &mut body else {
                match heads.request(&mut buffer) {
                    Ok(Some(head)) => {
                        transcript.requests.push((head.target().to_owned(), Vec::new()));
                        body = Some(BodyScanner::request(head.body));
                        continue;
                    }
                    Ok(None) => break,
                    Err(fault) => return Transcript { fault: Some(fault), ..transcript },
                }
            };
            let mut collected = Collected::default();
            let result = scanner.scan(&buffer, &mut Collector { input: &buffer, into: &mut collected });
            let progress = match result {
                Ok(progress) => progress,
                Err(fault) => return Transcript { fault: Some(fault), ..transcript },
            };
            transcript.requests.last_mut().unwrap().1.extend_from_slice(&collected.content);
            transcript.relayed.extend_from_slice(&collected.relayed);
            let _read = buffer.split_to(progress.consumed);
            if !progress.done {
                break;
            }
            body = None;
        }
    }
    transcript.unfinished = body.is_some() || heads.has_begun();
    transcript
}

/// How the strictest reading of RFC 9112 ends for inputs that well-known servers disagree on.
enum Expected {
    Refused(FaultKind),
    /// The targets of the requests seen, in order.
    Requests(&'static [&'static str]),
}

#[test]
fn reads_ambiguous_streams_in_one_way_or_refuses_them() {
    use Expected::*;
    let post = |lines: &str, rest: &str| format!("POST /a HTTP/1.1\r\nHost: a\r\n{lines}\r\n{rest}");
    let next = "GET /b HTTP/1.1\r\nHost: a\r\n\r\n";
    for (stream, expected) in [
        (post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), Refused(LengthAndCoding)),
        (post("Content-Length: 0\r\nContent-Length: 5\r\n", "hello"), Refused(ContentLengthRepeated)),
        (
            post("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
            Refused(TransferCodingRepeated),
        ),
        (
            post("Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n", "0\r\n\r\n"),
            Refused(TransferCodingRepeated),
        ),
        ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".into(), Refused(TransferCodingVersion)),
        ("GET /a HTTP/1.1\r\nHost: a\n\nGET /hidden HTTP/1.1\r\nHost: a\r\n\r\n".into(), Refused(LineEnd)),
        (post("Transfer-Encoding: chunked\r\n", "\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"), Refused(ChunkSize)),
        (post("Transfer-Encoding: chunked\r\n", "1;x=y\r\na\r\n0\r\nT: u\r\n\r\n") + next, Requests(&["/a", "/b"])),
        ("GET / HTTP/1.1\r\n\r\n".into(), Refused(HostMissing)),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".into(), Refused(HostRepeated)),
        (post(&format!("A: {}\r\n", "b".repeat(1 << 20)), ""), Refused(HeadTooLarge)),
        (post(&format!("{}: b\r\n", "A".repeat(70_000)), ""), Refused(HeadTooLarge)),
        (post("Expect: 100-continue\r\nContent-Length: 1\r\n", "x") + next, Requests(&["/a", "/b"])),
        (post("A: b\r\n c\r\n", ""), Refused(ObsFold)),
        (post("Content-Length : 5\r\n", "hello"), Refused(SpaceBeforeColon)),
        (post("A: \0\r\n", ""), Refused(FieldValue)),
        (post("A: b\rc\r\n", ""), Refused(LineEnd)),
        (post("Content-Length: +5\r\n", "hello"), Refused(ContentLengthSyntax)),
        (post("Content-Length: 5, 5\r\n", "hello"), Refused(ContentLengthSyntax)),
        (post("Transfer-Encoding: chunked\r\n", "0x5\r\nhello\r\n0\r\n\r\n"), Refused(ChunkSize)),
        (post("Transfer-Encoding: chunked\r\n", "fffffffffffffffff\r\n"), Refused(ChunkSizeTooLong)),
        (post("Content-Length: 2\r\n", "xy") + next + next, Requests(&["/a", "/b", "/b"])),
    ] {
        let shown = stream.get(..120).unwrap_or(&stream).escape_debug();
        let transcript = converse(stream.as_bytes(), &[]);
        match expected {
            Refused(kind) => assert_eq!(transcript.fault.map(|fault| fault.kind()), Some(kind), "{shown}"),
            Requests(targets) => {
                assert_eq!(transcript.fault, None, "{shown}");
                assert!(!transcript.unfinished, "{shown}");
                assert_eq!(
                    transcript.requests.iter().map(|(target, _)| target).collect::<Vec<_>>(),
                    targets,
                    "{shown}"
                );
            }
        }
    }
}

#[test]
fn a_dialogue_cut_at_every_single_place_reads_the_same() {
    let stream = b"\r\nPOST /1?a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x\r\nhello\r\n1\r\n!\r\n0\r\nT: u\r\n\r\n\
        PUT /2 HTTP/1.1\r\nhost: a\r\ncontent-length: 4\r\n\r\n\r\n\r\nGET http://a?q HTTP/1.1\r\nHost: a\r\n\r\n\r\n";
    let whole = converse(stream, &[]);
    let targets: Vec<_> = whole.requests.iter().map(|(target, body)| (&target[..], &body[..])).collect();
    assert_eq!(targets, [("/1?a", &b"hello!"[..]), ("/2", b"\r\n\r\n"), ("/?q", b"")]);
    assert_eq!(whole.relayed, b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n\r\n\r\n");
    for first in 0..=stream.len() {
        assert_eq!(converse(stream, &[first]), whole, "cut at {first}");
    }
    let bytewise: Vec<_> = (0..stream.len()).collect();
    assert_eq!(converse(stream, &bytewise), whole);
}

/// A chunked body with extensions and trailer fields, and its content.
fn chunked_body() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let chunk = (prop::collection::vec(any::<u8>(), 1..40), 0..4_usize, "(;[ -~]{0,9})?");
    (prop::collection::vec(chunk, 0..5), "(;[a-z=]{0,5})?", prop::collection::vec("[A-Za-z-]{1,8}:[ -~]{0,9}", 0..3))
        .prop_map(|(chunks, last_extension, trailers)| {
            let (mut wire, mut content) = (Vec::new(), Vec::new());
            for (data, zeros, extension) in chunks {
                let size = format!("{}{:X}{extension}\r\n", "0".repeat(zeros), data.len());
                wire.extend_from_slice(size.as_bytes());
                wire.extend_from_slice(&data);
                wire.extend_from_slice(b"\r\n");
                content.extend_from_slice(&data);
            }
            wire.extend_from_slice(format!("0{last_extension}\r\n").as_bytes());
            trailers.iter().for_each(|trailer| wire.extend_from_slice(format!("{trailer}\r\n").as_bytes()));
            wire.extend_from_slice(b"\r\n");
            (wire, content)
        })
}

fn cuts_of(len: usize) -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0..=len, 0..12).prop_map(|mut cuts| {
        cuts.sort_unstable();
        cuts
    })
}

fn chunked_dialogue() -> impl Strategy<Value = (Vec<u8>, Vec<u8>, Vec<usize>)> {
    chunked_body().prop_flat_map(|(body, content)| {
        let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let stream = [&head[..], &body, b"GET /next HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
        let cuts = cuts_of(stream.len());
        (Just(stream), Just(content), cuts)
    })
}

proptest! {
    #[test]
    fn any_cut_of_a_chunked_dialogue_reads_the_same((stream, content, cuts) in chunked_dialogue()) {
        let whole = converse(&stream, &[]);
        prop_assert_eq!(&whole.fault, &None);
        prop_assert_eq!(whole.requests.len(), 2);
        prop_assert_eq!(&whole.requests[0].1, &content);
        prop_assert_eq!(&converse(&stream, &cuts), &whole);
        // The canonical form means the same, and relaying it changes nothing any more.
        let head = &b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"[..];
        let again = converse(&[head, &whole.relayed].concat(), &[]);
        prop_assert_eq!(&again.requests[0].1, &content);
        prop_assert_eq!(&again.relayed, &whole.relayed);
        prop_assert!(again.fault.is_none() && !again.unfinished);
        prop_assert!(!whole.relayed.contains(&b';') || content.contains(&b';'));
    }

    #[test]
    fn any_cut_of_a_damaged_chunked_dialogue_reads_the_same(
        (mut stream, _content, cuts) in chunked_dialogue(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(&b"\r\n\0 ;:0f5xG\t\x7f"[..])), 1..4),
    ) {
        for (index, byte) in damage {
            let at = index.index(stream.len());
            stream[at] = byte;
        }
        // Half a line may be refused sooner when it arrives with the lines before it; a whole head may not.
        stream.extend_from_slice(b"\r\n\r\n");
        let (whole, cut) = (converse(&stream, &[]), converse(&stream, &cuts));
        prop_assert_eq!(whole.fault.map(|fault| fault.kind()), cut.fault.map(|fault| fault.kind()));
        prop_assert_eq!(whole.requests.len(), cut.requests.len());
        if whole.fault.is_none() {
            prop_assert_eq!(whole, cut);
        }
    }

    #[test]
    fn random_bytes_never_panic_and_are_never_taken_twice(stream in prop::collection::vec(any::<u8>(), 0..300), cut in 0..300_usize) {
        let cut = cut.min(stream.len());
        let transcript = converse(&stream, &[cut]);
        prop_assert!(transcript.relayed.len() <= stream.len());
    }
}
