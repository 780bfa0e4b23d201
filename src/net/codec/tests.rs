//! Round trips through real encoders, cut anywhere; bombs and damaged bodies.

use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use proptest::prelude::*;

use super::*;

/// "hello hello hello hello\n" in brotli (made with the reference tool, quality 11).
const BROTLI_HELLO: &[u8] = &[
    0x1b, 0x17, 0x0, 0xf8, 0x8d, 0x94, 0x6e, 0xde, 0x44, 0x55, 0x86, 0xd6, 0xa, 0x20, 0x6c, 0x6f, 0x4a, 0x11, 0x79,
    0xe2, 0x80, 0xae, 0x16,
];

fn encode(name: &str, text: &[u8]) -> Vec<u8> {
    match name {
        "gzip" => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        }
        "deflate" => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        }
        "raw deflate" => {
            let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
            encoder.write_all(text).unwrap();
            encoder.finish().unwrap()
        }
        "zstd" => zstd::stream::encode_all(text, 3).unwrap(),
        _ => text.to_vec(),
    }
}

fn header(name: &str) -> &[u8] {
    name.rsplit(' ').next().unwrap_or_default().as_bytes()
}

fn decode(name: &str, pieces: &[&[u8]], cap_bytes: u64) -> (Vec<u8>, Result<(), DecodeError>) {
    let mut decoder = ContentDecoder::new(Some(header(name)), cap_bytes, 100);
    let mut out = Vec::new();
    for piece in pieces {
        if let Err(fault) = decoder.feed(piece, &mut out) {
            return (out, Err(fault));
        }
    }
    let end = decoder.finish(&mut out);
    (out, end)
}

proptest! {
    #[test]
    fn gives_back_the_text_however_it_is_cut(
        text in proptest::collection::vec(any::<u8>(), 0..3000),
        name in prop::sample::select(vec!["gzip", "deflate", "raw deflate", "zstd", "identity"]),
        cut in any::<prop::sample::Index>(), second in any::<prop::sample::Index>(),
    ) {
        let encoded = encode(name, &text);
        let cut = cut.index(encoded.len() + 1);
        let second = cut + second.index(encoded.len() - cut + 1);
        let pieces = [&encoded[..cut], &encoded[cut..second], &encoded[second..]];
        prop_assert_eq!(decode(name, &pieces, u64::MAX), (text.clone(), Ok(())));
        let bytes: Vec<&[u8]> = encoded.chunks(1).collect();
        prop_assert_eq!(decode(name, &bytes, u64::MAX), (text, Ok(())));
    }

    #[test]
    fn never_panics_on_junk(
        junk in proptest::collection::vec(any::<u8>(), 0..400),
        name in prop::sample::select(vec!["gzip", "deflate", "br", "zstd"]),
    ) {
        let (out, _) = decode(name, &[&junk], 1000);
        prop_assert!(out.len() <= 1000);
    }
}

#[test]
fn reads_brotli() {
    assert_eq!(decode("br", &[BROTLI_HELLO], 1000), (b"hello hello hello hello\n".to_vec(), Ok(())));
    let bytes: Vec<&[u8]> = BROTLI_HELLO.chunks(1).collect();
    assert_eq!(decode("br", &bytes, 1000).1, Ok(()));
    let cut = &BROTLI_HELLO[..BROTLI_HELLO.len() - 1];
    assert_eq!(decode("br", &[cut], 1000).1, Err(DecodeError::Truncated));
}

#[test]
fn an_early_end_is_told_from_a_whole_body() {
    let text = b"some text that is long enough to leave something to cut".repeat(20);
    for name in ["gzip", "deflate", "raw deflate", "zstd"] {
        let encoded = encode(name, &text);
        assert_eq!(decode(name, &[&encoded[..encoded.len() - 1]], u64::MAX).1, Err(DecodeError::Truncated), "{name}");
        assert!(decode(name, &[&encoded, b"tail"], u64::MAX).1.is_err(), "{name}: trailing bytes");
    }
    assert_eq!(decode("gzip", &[], 10), (Vec::new(), Ok(())), "no body at all is not a broken one");
}

#[test]
fn a_bomb_stops_at_the_ratio_and_at_the_cap() {
    let bomb = vec![b'a'; 10_000_000];
    for name in ["gzip", "deflate", "zstd"] {
        let encoded = encode(name, &bomb);
        let (out, end) = decode(name, &[&encoded], u64::MAX);
        assert_eq!(end, Err(DecodeError::Ratio), "{name}");
        assert_eq!(out.len(), 4096 * 100, "{name}: within the first step of input");
        let (out, end) = decode(name, &[&encoded], 5_000);
        assert_eq!((out.len(), end), (5_000, Err(DecodeError::TooLarge)), "{name}");
    }
}

#[test]
fn the_ratio_does_not_depend_on_how_the_body_was_cut() {
    // A long run first, then something that hardly shrinks: fine as a whole, 1,000:1 in its first 300 bytes.
    let mut state = 1_u64;
    let mut noise = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_be_bytes()[0]
    };
    let noise: Vec<u8> = (0..200_000).map(|_| noise()).collect();
    let text = [vec![b'A'; 300_000], noise].concat();
    for name in ["gzip", "deflate", "zstd"] {
        let encoded = encode(name, &text);
        for size in [1, 100, 4095, 4096, 5000, encoded.len()] {
            let pieces: Vec<&[u8]> = encoded.chunks(size).collect();
            let (out, end) = decode(name, &pieces, u64::MAX);
            assert_eq!((out.len(), end), (text.len(), Ok(())), "{name} in pieces of {size}");
            assert!(out == text, "{name} in pieces of {size}");
        }
    }
}

#[test]
fn a_failed_body_stays_failed() {
    let mut decoder = ContentDecoder::new(Some(b"gzip"), 1000, 100);
    let mut out = Vec::new();
    assert_eq!(decoder.feed(b"this is not gzip", &mut out), Err(DecodeError::Corrupt));
    assert_eq!(decoder.feed(&encode("gzip", b"x"), &mut out), Err(DecodeError::Corrupt));
    assert_eq!(decoder.finish(&mut out), Err(DecodeError::Corrupt));
}

#[test]
fn takes_one_known_coding_only() {
    for (name, expected) in [
        ("GZIP", Ok(Coding::Gzip)),
        ("x-gzip", Ok(Coding::Gzip)),
        (" identity , br ", Ok(Coding::Brotli)),
        ("", Ok(Coding::Identity)),
        ("gzip, gzip", Err(DecodeError::Stacked)),
        ("br,zstd", Err(DecodeError::Stacked)),
        ("compress", Err(DecodeError::Unknown)),
        ("gzip;q=1", Err(DecodeError::Unknown)),
    ] {
        assert_eq!(coding(Some(name.as_bytes())), expected, "{name}");
    }
}

#[test]
fn two_gzip_members_are_one_body() {
    let both = [encode("gzip", b"one "), encode("gzip", b"two")].concat();
    assert_eq!(decode("gzip", &[&both], 1000), (b"one two".to_vec(), Ok(())));
}
