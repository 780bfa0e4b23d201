//! What does reading cost? A 1 KB chat request, a 1 KB answer and one stream frame, next to a general JSON parser's
//! tape on the same bytes (which gives no texts, no places and no offsets).

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use weir::inspect::{Declared, Takes, read_request};
use weir::json::Walker;
use weir::observe::{AnswerKind, AnswerReader};
use weir_config::vocab::Dialect;

const TEXT_MAX: usize = 1 << 20;

fn request() -> Vec<u8> {
    let turn = "Could you explain how the tides work, and why there are two of them each day? I read that the moon \
                pulls on the water, but then there should be only one bulge.";
    let body = format!(
        "{{\"model\":\"gpt-4o-mini\",\"messages\":[{{\"role\":\"system\",\"content\":\"You are a patient teacher. Answer \
         in plain words.\\nNever guess.\"}},{{\"role\":\"user\",\"content\":\"{turn}\"}},{{\"role\":\"assistant\",\
         \"content\":\"The moon pulls on the near side more than on the centre, and on the centre more than on the far \
         side.\"}},{{\"role\":\"user\",\"content\":[{{\"type\":\"text\",\"text\":\"{turn}\"}}]}}],\"temperature\":0.7,\
         \"max_tokens\":256,\"stream\":false,\"user\":\"u-1234\"}}"
    );
    pad(body, 1024)
}

fn answer() -> Vec<u8> {
    let body = "{\"id\":\"chatcmpl-AbCdEf0123456789\",\"object\":\"chat.completion\",\"created\":1700000000,\"model\":\
                \"gpt-4o-mini-2024-07-18\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\
                \"The moon's pull is stronger on the near side and weaker on the far side. Seen from the centre of the \
                earth, both sides are pulled away from it, so the water rises on both.\\n\\nThe earth turns under the \
                two bulges once a day, so most coasts see two high tides. The sun does the same with less than half \
                the strength; when both line up the tides are higher.\",\"refusal\":null,\"annotations\":[]},\
                \"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":139,\"completion_tokens\":92,\
                \"total_tokens\":231,\"prompt_tokens_details\":{\"cached_tokens\":0,\"audio_tokens\":0},\
                \"completion_tokens_details\":{\"reasoning_tokens\":0,\"audio_tokens\":0}},\"service_tier\":\"default\",\
                \"system_fingerprint\":\"fp_0123456789\"}";
    pad(body.to_owned(), 1024)
}

/// White space at the end, as some clients send it, so that sizes are comparable.
fn pad(body: String, len: usize) -> Vec<u8> {
    let mut body = body.into_bytes();
    body.resize(len.max(body.len()), b' ');
    body
}

const FRAME: &[u8] = b"data: {\"id\":\"chatcmpl-AbCdEf0123456789\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"gpt-4o-mini\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" tides\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n";

fn walk(document: &[u8]) -> usize {
    let Ok(mut walker) = Walker::new(document) else { return 0 };
    let mut count = 0;
    while let Ok(Some(_)) = walker.next_event() {
        count += 1;
    }
    count
}

fn tape(criterion: &mut Criterion, name: &str, body: &[u8]) {
    let mut buffers = simd_json::Buffers::new(body.len());
    criterion.bench_function(name, |bencher| {
        bencher.iter_batched_ref(
            || body.to_vec(),
            |copy| black_box(simd_json::to_tape_with_buffers(copy, &mut buffers).map(|tape| tape.0.len()).ok()),
            BatchSize::SmallInput,
        );
    });
}

fn bench(criterion: &mut Criterion) {
    let (request, answer) = (request(), answer());
    let claim = Declared { content_type: Some(b"application/json"), takes: Takes::Json, cut: false, until: None };
    criterion.bench_function("request 1 KB: walk only", |bencher| bencher.iter(|| walk(black_box(&request))));
    criterion.bench_function("request 1 KB: read_request", |bencher| {
        bencher.iter(|| read_request(Dialect::ChatCompletions, claim, black_box(&request), TEXT_MAX));
    });
    tape(criterion, "request 1 KB: simd-json tape", &request);
    criterion.bench_function("answer 1 KB: walk only", |bencher| bencher.iter(|| walk(black_box(&answer))));
    criterion.bench_function("answer 1 KB: AnswerReader", |bencher| {
        bencher.iter(|| {
            let mut reader = AnswerReader::new(AnswerKind::Json, None, TEXT_MAX);
            reader.feed(black_box(&answer));
            reader.finish()
        });
    });
    tape(criterion, "answer 1 KB: simd-json tape", &answer);
    let mut reader = AnswerReader::new(AnswerKind::EventStream, None, usize::MAX);
    criterion
        .bench_function("stream frame: AnswerReader::feed", |bencher| bencher.iter(|| reader.feed(black_box(FRAME))));
    drop(reader.finish());
    tape(criterion, "stream frame: simd-json tape", FRAME.get(6..).unwrap_or_default());

    let mut group = criterion.benchmark_group("1 MiB string");
    for (name, text) in [("ASCII", "a plain sentence ".repeat(61_681)), ("CJK", "潮汐是月亮引起的。".repeat(38_836))]
    {
        let document = format!("[\"{text}\"]").into_bytes();
        group.throughput(Throughput::Bytes(document.len() as u64));
        group.bench_function(name, |bencher| bencher.iter(|| walk(black_box(&document))));
    }
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
