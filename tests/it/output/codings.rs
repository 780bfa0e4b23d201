//! Content codings: providers are asked for none where an answer may be withheld, and one that comes all the same is undone.

use super::*;
use crate::support::{call, on_both_drivers_in_full};

/// Frames in a coding, each flushed, so that it can be read when it comes.
pub(crate) fn coded(coding: &str, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    match coding {
        "gzip" => flushed(
            flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()),
            frames,
            |coder| std::mem::take(coder.get_mut()),
            |coder| coder.finish().unwrap(),
        ),
        "zstd" => flushed(
            zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap(),
            frames,
            |coder| std::mem::take(coder.get_mut()),
            |coder| coder.finish().unwrap(),
        ),
        "br" => brotli(frames),
        _ => frames.to_vec(),
    }
}

fn flushed<C: std::io::Write>(
    mut coder: C,
    frames: &[Vec<u8>],
    take: fn(&mut C) -> Vec<u8>,
    end: fn(C) -> Vec<u8>,
) -> Vec<Vec<u8>> {
    let mut out: Vec<Vec<u8>> = Vec::new();
    for frame in frames {
        coder.write_all(frame).unwrap();
        coder.flush().unwrap();
        out.push(take(&mut coder));
    }
    out.push(end(coder));
    out
}

/// Stored meta-blocks of RFC 7932 section 9.2: the window's size once (one bit), then for each block that it is not the last, four
/// nibbles with its length less one, and that it is not compressed, padded to a byte.
fn brotli(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let block = |(at, frame): (usize, &Vec<u8>)| {
        let header = (frame.len() as u32 - 1) << 3 | 1 << 19;
        let header = if at == 0 { header << 1 } else { header };
        [&header.to_le_bytes()[..3], frame.as_slice()].concat()
    };
    frames.iter().enumerate().map(block).chain([vec![3]]).collect()
}

fn provider(coding: &'static str, frames: &[Vec<u8>]) -> Upstream {
    let pieces = coded(coding, frames);
    Upstream::play(move |peer| {
        while peer.request().is_some() {
            say_chunked(peer, &format!("{SSE}\r\nContent-Encoding: {coding}"), pieces.iter().map(Vec::as_slice));
        }
    })
}

on_both_drivers_in_full! {
    fn a_compressed_stream_is_looked_at_and_stopped_like_any_other(driver) {
        let dialect = DIALECTS[0];
        let said: Vec<String> = words("word", 200).into_iter().chain([private_key()]).chain(words("behind", 200)).collect();
        for coding in ["gzip", "br", "zstd"] {
            for (settings, sees_key) in [(STOPPING, true), (HOLDING, false)] {
                let upstream = provider(coding, &dialect.frames(&said));
                let gateway = setup(driver, &upstream, settings).start();
                let answer = call(gateway.addr, dialect.call().bytes());
                let text = answer.text();
                assert_eq!((answer.status, answer.header("content-encoding")), (200, None), "{coding}");
                assert!(text.contains("word50 ") && text.contains(dialect.stopped), "{coding}: {text}");
                assert!(text.ends_with("data: [DONE]\n\n") && !text.contains("behind99 "), "{coding}: {text}");
                assert!(sees_key || !text.contains("BEGIN"), "{coding}: {text}");
                assert!(has_critical(&gateway.span_of(&answer), "secret_leakage"));
            }
            let said = words("word", 100);
            let upstream = provider(coding, &dialect.frames(&said));
            let gateway = setup(driver, &upstream, HOLDING).start();
            let answer = call(gateway.addr, dialect.call().bytes());
            assert_eq!((answer.text(), answer.header("content-encoding")), (dialect.said(&said), None));
        }
    }

    fn a_compressed_document_is_blocked_and_a_broken_coding_is_a_failure(driver) {
        let body = json!({"choices": [{"index": 0, "message": {"role": "assistant", "content": private_key()}}]}).to_string();
        let pieces = coded("gzip", &[body.into_bytes()]).concat();
        for (bytes, status, error) in [(&pieces[..], 403, "output_safety_blocked"), (b"no gzip", 502, "upstream_protocol_error")] {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: ";
            let upstream = Upstream::always([format!("{head}{}\r\n\r\n", bytes.len()).as_bytes(), bytes].concat());
            let gateway = setup(driver, &upstream, BLOCKING).start();
            let answer = call(gateway.addr, Call::post("/v1/chat/completions", chat_body("Hello.").to_string()).bytes());
            assert_eq!(answer.status, status, "{}", answer.text());
            assert_eq!(answer.json()["error"]["type"], error);
        }
    }

    fn the_provider_is_asked_for_no_coding_only_where_answers_may_be_withheld(driver) {
        let dialect = DIALECTS[0];
        let settings = [("", "br, gzip;q=0.5"), ("output_safety: {enabled: true}", "br, gzip;q=0.5"), (STOPPING, "identity"), (BLOCKING, "identity")];
        for (settings, expected) in settings {
            let upstream = dialect.provider(&["Hello. "]);
            let gateway = setup(driver, &upstream, settings).start();
            assert_eq!(call(gateway.addr, dialect.call().field("Accept-Encoding", "br, gzip;q=0.5").bytes()).status, 200);
            let asked = upstream.requests().remove(0);
            let said: Vec<_> = asked.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("accept-encoding")).collect();
            assert_eq!(said.len(), 1, "{said:?}");
            assert_eq!(said[0].1, expected);
        }
    }
}
