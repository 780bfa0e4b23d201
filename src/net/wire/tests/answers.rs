//! Whole streams of answers, interim ones included, as an upstream connection sees them: any cut reads the same.

use bytes::BytesMut;
use proptest::prelude::*;

use super::{Collected, Collector};
use crate::wire::{BodyScanner, HeadScanner};

/// What one upstream connection made of a stream of answers.
#[derive(Debug, PartialEq, Eq, Default)]
struct Transcript {
    /// Status, content, and whether the connection may go on.
    answers: Vec<(u16, Vec<u8>, bool)>,
    relayed: Vec<u8>,
    is_faulty: bool,
    /// Bytes behind the last answer.
    rest: usize,
}

/// Reads the answers to requests with these methods, in reads that end at `cuts`.
fn read_answers(stream: &[u8], methods: &[&str], cuts: &[usize]) -> Transcript {
    let (mut heads, mut buffer, mut body) = (HeadScanner::default(), BytesMut::new(), None::<BodyScanner>);
    let mut transcript = Transcript::default();
    let mut methods = methods.iter();
    let Some(mut method) = methods.next() else { return transcript };
    let mut start = 0;
    for end in cuts.iter().copied().chain([stream.len()]) {
        buffer.extend_from_slice(&stream[start..end]);
        start = end;
        loop {
            let Some(scanner) = &mut body else {
                match heads.response(&mut buffer, method) {
                    Ok(Some(head)) => {
                        transcript.answers.push((head.status, Vec::new(), head.keep_alive));
                        body = (!head.is_informational()).then(|| BodyScanner::response(head.body));
                        continue;
                    }
                    Ok(None) => break,
                    Err(_) => return Transcript { is_faulty: true, ..transcript },
                }
            };
            let mut collected = Collected::default();
            let Ok(progress) = scanner.scan(&buffer, &mut Collector { input: &buffer, into: &mut collected }) else {
                return Transcript { is_faulty: true, ..transcript };
            };
            transcript.answers.last_mut().unwrap().1.extend_from_slice(&collected.content);
            transcript.relayed.extend_from_slice(&collected.relayed);
            let _read = buffer.split_to(progress.consumed);
            if !progress.done {
                break;
            }
            body = None;
            match methods.next() {
                Some(next) => method = next,
                None => {
                    transcript.rest = buffer.len() + stream.len() - start;
                    return transcript;
                }
            }
        }
    }
    transcript
}

/// One answer on the wire: the method it answers, its bytes, its status and its content.
fn answer() -> impl Strategy<Value = (&'static str, Vec<u8>, u16, Vec<u8>)> {
    let interim = prop::sample::select(vec![
        "",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n",
        "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 \r\nX: y\r\n\r\n",
    ]);
    let content = prop::collection::vec(any::<u8>(), 0..60);
    let trailers = "(T: [ -~]{0,9}\r\n){0,2}";
    (interim, content, 0..5_usize, 1..9_usize, trailers).prop_map(|(interim, content, kind, size, trailers)| {
        let mut bytes = interim.as_bytes().to_vec();
        let (method, status) = [("GET", 200), ("POST", 201), ("HEAD", 200), ("GET", 204), ("GET", 304)][kind];
        bytes.extend_from_slice(format!("HTTP/1.1 {status} Some reason\r\nX-A: b\r\n").as_bytes());
        let mut expected = Vec::new();
        match kind {
            0 => {
                bytes.extend_from_slice(format!("Content-Length: {}\r\n\r\n", content.len()).as_bytes());
                bytes.extend_from_slice(&content);
                expected = content;
            }
            1 => {
                bytes.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
                for chunk in content.chunks(size) {
                    bytes.extend_from_slice(format!("{:x};e=\"{size}\"\r\n", chunk.len()).as_bytes());
                    bytes.extend_from_slice(chunk);
                    bytes.extend_from_slice(b"\r\n");
                }
                bytes.extend_from_slice(format!("0\r\n{trailers}\r\n").as_bytes());
                expected = content;
            }
            2 | 4 => bytes.extend_from_slice(format!("Content-Length: {}\r\n\r\n", content.len()).as_bytes()),
            _ => bytes.extend_from_slice(b"\r\n"),
        }
        (method, bytes, status, expected)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4 * ProptestConfig::default().cases))]

    #[test]
    fn any_cut_of_a_stream_of_answers_reads_the_same(
        answers in prop::collection::vec(answer(), 1..5),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        damage in prop::option::of((any::<prop::sample::Index>(), prop::sample::select(&b"\r\n\0 \t:;0f5x\x7f\xff"[..]))),
    ) {
        let mut stream: Vec<u8> = answers.iter().flat_map(|(_, bytes, ..)| bytes.clone()).collect();
        let methods: Vec<&str> = answers.iter().map(|(method, ..)| *method).collect();
        if let Some((at, byte)) = &damage {
            let at = at.index(stream.len());
            stream[at] = *byte;
        }
        // What is behind the last answer is not taken for one.
        stream.extend_from_slice(b"HTTP/1.1 200 OK\r\n\r\n");
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
        cuts.sort_unstable();
        let whole = read_answers(&stream, &methods, &[]);
        let bytewise: Vec<usize> = (0..stream.len()).collect();
        for cut in [cuts, bytewise] {
            let cut = read_answers(&stream, &methods, &cut);
            prop_assert_eq!(cut.is_faulty, whole.is_faulty);
            // What was relayed before a fault depends on where the reads ended; which answers began does not.
            let statuses = |transcript: &Transcript| transcript.answers.iter().map(|answer| answer.0).collect::<Vec<_>>();
            prop_assert_eq!(statuses(&cut), statuses(&whole));
            if !whole.is_faulty {
                prop_assert_eq!(&cut, &whole);
            }
        }
        if damage.is_none() {
            prop_assert!(!whole.is_faulty);
            prop_assert_eq!(whole.rest, b"HTTP/1.1 200 OK\r\n\r\n".len());
            let finals: Vec<_> = whole.answers.iter().filter(|answer| answer.0 >= 200).collect();
            prop_assert_eq!(finals.len(), answers.len());
            for (seen, (_, _, status, content)) in finals.iter().zip(&answers) {
                prop_assert_eq!((seen.0, &seen.1), (*status, content));
                prop_assert!(seen.2, "the connection can go on");
            }
        }
    }
}
