//! What does HTTP/1.1 framing cost: one typical head parsed, one regenerated, one chunked body scanned?
//!
//! Budget: at most 400 ns to parse a request head of 10 fields.

use std::hint::black_box;
use std::ops::Range;

use bytes::BytesMut;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use weir::wire::{ChunkSink, ChunkedScanner, HeadScanner, HeadWriter, Side};

const REQUEST: &[u8] = b"POST /v1/chat/completions HTTP/1.1\r\n\
    Host: api.example.com\r\n\
    Accept-Encoding: gzip, deflate\r\n\
    Connection: keep-alive\r\n\
    Accept: application/json\r\n\
    Content-Type: application/json\r\n\
    User-Agent: Client/Python 1.61.0\r\n\
    X-Client-Lang: python\r\n\
    X-Client-Runtime-Version: 3.12.4\r\n\
    Authorization: Bearer sk-0123456789abcdef0123456789abcdef0123456789abcdef\r\n\
    Content-Length: 1024\r\n\
    \r\n";

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\n\
    Date: Fri, 20 Nov 2026 12:00:00 GMT\r\n\
    Content-Type: application/json\r\n\
    Content-Length: 1057\r\n\
    Connection: keep-alive\r\n\
    X-Request-Id: req_0123456789abcdef0123456789abcdef\r\n\
    X-Ratelimit-Limit-Requests: 10000\r\n\
    X-Ratelimit-Remaining-Requests: 9999\r\n\
    Processing-Ms: 412\r\n\
    Server: provider\r\n\
    \r\n";

struct Count(usize);

impl ChunkSink for Count {
    fn forward(&mut self, range: Range<usize>) {
        self.0 += range.len();
    }

    fn data(&mut self, range: Range<usize>) {
        self.0 ^= range.len();
    }
}

fn heads(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wire/head");
    // Filling a buffer that already exists and giving it back is part of each figure; `floor` says how much.
    group.bench_function("floor: fill and split a buffer", |bencher| {
        let mut buffer = BytesMut::with_capacity(4096);
        bencher.iter(|| {
            buffer.reserve(REQUEST.len());
            buffer.extend_from_slice(black_box(REQUEST));
            black_box(buffer.split_to(REQUEST.len()).freeze())
        });
    });
    group.bench_function("request of 10 fields", |bencher| {
        let (mut buffer, mut scanner) = (BytesMut::with_capacity(4096), HeadScanner::default());
        bencher.iter(|| {
            buffer.reserve(REQUEST.len());
            buffer.extend_from_slice(black_box(REQUEST));
            black_box(scanner.request(&mut buffer).is_ok_and(|head| head.is_some_and(|head| head.keep_alive)))
        });
    });
    group.bench_function("response of 9 fields", |bencher| {
        let (mut buffer, mut scanner) = (BytesMut::with_capacity(4096), HeadScanner::default());
        bencher.iter(|| {
            buffer.reserve(RESPONSE.len());
            buffer.extend_from_slice(black_box(RESPONSE));
            black_box(scanner.response(&mut buffer, "POST").is_ok_and(|head| head.is_some_and(|head| head.keep_alive)))
        });
    });
    group.bench_function("request in 64-byte reads", |bencher| {
        let (mut buffer, mut scanner) = (BytesMut::with_capacity(4096), HeadScanner::default());
        bencher.iter(|| {
            let mut whole = false;
            buffer.reserve(REQUEST.len());
            for read in black_box(REQUEST).chunks(64) {
                buffer.extend_from_slice(read);
                whole |= scanner.request(&mut buffer).is_ok_and(|head| head.is_some());
            }
            black_box(whole)
        });
    });
    group.bench_function("regenerate a request of 10 fields", |bencher| {
        let Ok(Some(head)) = HeadScanner::default().request(&mut BytesMut::from(REQUEST)) else { return };
        let mut out = Vec::with_capacity(1024);
        bencher.iter(|| {
            out.clear();
            let mut writer = HeadWriter::new(&mut out);
            writer.request_line(black_box(&head).method(), head.target());
            writer.field("Host", b"api.example.com");
            head.end_to_end_fields().for_each(|field| writer.relay(field));
            writer.content_length(1024);
            writer.end();
            black_box(out.len())
        });
    });
    group.finish();
}

fn chunks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("wire/chunked");
    let frame = [&b"be\r\n"[..], &[b'x'; 0xbe], b"\r\n"].concat();
    let frames = frame.repeat(50);
    let page = [&b"3ff8\r\n"[..], &[b'x'; 0x3ff8], b"\r\n"].concat();
    for (name, input) in
        [("one 190-byte frame", &frame), ("50 frames of 190 bytes", &frames), ("one 16 KiB chunk", &page)]
    {
        group.throughput(Throughput::Bytes(input.len() as u64));
        group.bench_function(name, |bencher| {
            bencher.iter_batched_ref(
                || (ChunkedScanner::new(Side::Response), Count(0)),
                |(scanner, sink)| black_box(scanner.scan(black_box(input), sink).is_ok()),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, heads, chunks);
criterion_main!(benches);
