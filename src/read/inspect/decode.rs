//! Decodes a request body at once, for the copy that analysis reads.
//!
//! Invariant: whatever happens there is something to scan: the decoded bytes as far as they go, or the body as it came
//! when the coding is unknown.

use std::borrow::Cow;

use crate::codec::{ContentDecoder, DecodeError, is_identity};

/// A body ready to be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// The decoded bytes; borrowed when there was nothing to decode. With a fault: what had come out before it, or the
    /// bytes as they came when nothing had.
    pub bytes: Cow<'a, [u8]>,
    /// Why decoding stopped before the end.
    pub fault: Option<DecodeError>,
}

/// Decodes one body. At most `cap_bytes` come out, and at most `ratio_max` times its length (the first 64 KiB are
/// always allowed).
pub fn decode_body<'a>(
    content_encoding: Option<&[u8]>,
    body: &'a [u8],
    cap_bytes: usize,
    ratio_max: u32,
) -> Decoded<'a> {
    decode_while(content_encoding, body, cap_bytes, ratio_max, |_| Ok(()))
}

/// Bytes of a compressed body that are decoded at once: they become a hundred times as many at most.
const STEP_BYTES: usize = 16 << 10;

/// The same, step by step: after each, `goes_on` is asked with how many bytes have come out, and its fault ends it.
pub fn decode_while<'a>(
    content_encoding: Option<&[u8]>,
    body: &'a [u8],
    cap_bytes: usize,
    ratio_max: u32,
    mut goes_on: impl FnMut(usize) -> Result<(), DecodeError>,
) -> Decoded<'a> {
    if is_identity(content_encoding) {
        return Decoded { bytes: Cow::Borrowed(body), fault: None };
    }
    let mut decoder = ContentDecoder::new(content_encoding, cap_bytes as u64, ratio_max);
    let mut out = Vec::new();
    let mut step = |bytes: &[u8]| decoder.feed(bytes, &mut out).and_then(|()| goes_on(out.len()));
    let fed = body.chunks(STEP_BYTES).try_for_each(&mut step);
    let fault = fed.and_then(|()| decoder.finish(&mut out)).err();
    let bytes = if fault.is_some() && out.is_empty() { Cow::Borrowed(body) } else { Cow::Owned(out) };
    Decoded { bytes, fault }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn decodes_or_leaves_something_to_scan() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(b"{\"model\":\"m\"}").unwrap();
        let gzip = encoder.finish().unwrap();
        let whole = decode_body(Some(b"gzip"), &gzip, 1000, 100);
        assert_eq!((whole.bytes.as_ref(), whole.fault), (&b"{\"model\":\"m\"}"[..], None));
        let capped = decode_body(Some(b"gzip"), &gzip, 5, 100);
        assert_eq!((capped.bytes.as_ref(), capped.fault), (&b"{\"mod"[..], Some(DecodeError::TooLarge)));
        let unknown = decode_body(Some(b"gzip, br"), b"text", 1000, 100);
        assert_eq!((unknown.bytes.as_ref(), unknown.fault), (&b"text"[..], Some(DecodeError::Stacked)));
        assert!(matches!(decode_body(None, b"x", 0, 0), Decoded { bytes: Cow::Borrowed(b"x"), fault: None }));
    }
}
