//! The same corpus without sockets: whatever the gateway's parser accepts is written anew and has to pass the strict
//! automaton and all other readings. `SMUGGLE_PURE` says how many damaged cases; the gate takes 50,000.

use bytes::BytesMut;
use weir::wire::{BodyScanner, ChunkSink, HeadScanner, HeadWriter, RequestBody};

use super::corpus::corpus;
use super::readings::disagreement;
use super::setting;

struct Relayed<'a> {
    input: &'a [u8],
    out: &'a mut Vec<u8>,
}

impl ChunkSink for Relayed<'_> {
    fn forward(&mut self, range: std::ops::Range<usize>) {
        self.out.extend_from_slice(&self.input[range]);
    }

    fn data(&mut self, _: std::ops::Range<usize>) {}
}

/// What would be sent onward for everything on this connection, and how many requests that is.
fn rewritten(stream: &[u8]) -> (Vec<u8>, usize) {
    let (mut heads, mut buffer, mut out, mut count) = (HeadScanner::default(), BytesMut::from(stream), Vec::new(), 0);
    while let Ok(Some(head)) = heads.request(&mut buffer) {
        count += 1;
        let mut writer = HeadWriter::new(&mut out);
        writer.request_line(head.method(), head.target());
        writer.field("Host", b"provider");
        head.end_to_end_fields().for_each(|field| writer.relay(field));
        match head.body {
            RequestBody::Empty => {}
            RequestBody::Length(length) => writer.content_length(length),
            RequestBody::Chunked => writer.chunked(),
        }
        writer.end();
        let mut body = BodyScanner::request(head.body);
        match body.scan(&buffer, &mut Relayed { input: &buffer, out: &mut out }) {
            Ok(progress) if progress.done => drop(buffer.split_to(progress.consumed)),
            _ => break,
        }
    }
    (out, count)
}

#[test]
fn what_the_parser_accepts_is_canonical_when_written_anew() {
    let cases = corpus(setting("SMUGGLE_SEED", 2026) as u64 + 1, setting("SMUGGLE_PURE", 50_000));
    let (mut accepted, mut faults) = (0, Vec::new());
    for (id, case) in cases.iter().enumerate() {
        let bytes = case.bytes(id);
        let (out, count) = rewritten(&bytes);
        accepted += usize::from(count > 0);
        if let Some(why) = disagreement(&out) {
            faults.push(format!("{}: {why}\n  {:?}", case.family, String::from_utf8_lossy(&bytes)));
        }
    }
    println!("{} cases, {accepted} with a request that is accepted", cases.len());
    super::assert_no_faults("cases can be read in two ways when written anew", &faults);
    assert!(accepted > cases.len() / 20, "a corpus that is always refused proves little: {accepted}");
}
