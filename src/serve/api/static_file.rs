//! Files for browsers that are part of the binary: the API's page and the console.
//!
//! Invariant: nothing is loaded from elsewhere, and each page's security policy says so to the browser. A file has its digest as its
//! tag, so that a browser asks again and gets the file again only after an upgrade.

use std::io::{Read, Write};
use std::sync::OnceLock;

use bytes::Bytes;
use flate2::Compression;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, ETAG, IF_NONE_MATCH, REFERRER_POLICY,
    VARY,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use sha2::{Digest, Sha256};

use super::error::ErrorAnswer;
use super::route::Answer;
use super::state::answer;

/// A file of a page.
pub(super) struct StaticFile {
    pub(super) name: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
    /// `bytes` are gzip already.
    is_packed: bool,
    /// Made when it is first asked for, then kept.
    ready: OnceLock<Ready>,
}

/// What is sent of a file.
struct Ready {
    packed: Bytes,
    tag: HeaderValue,
}

impl StaticFile {
    /// A file that lies in the sources as it is.
    pub(super) const fn plain(name: &'static str, content_type: &'static str, bytes: &'static [u8]) -> Self {
        Self { name, content_type, bytes, is_packed: false, ready: OnceLock::new() }
    }

    /// A file that lies in the sources as gzip.
    pub(super) const fn packed(name: &'static str, content_type: &'static str, bytes: &'static [u8]) -> Self {
        Self { name, content_type, bytes, is_packed: true, ready: OnceLock::new() }
    }

    fn ready(&self) -> &Ready {
        self.ready.get_or_init(|| {
            let packed = if self.is_packed { Bytes::from_static(self.bytes) } else { pack(self.bytes) };
            let digest = Sha256::digest(self.bytes);
            let tag: String = digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
            let tag = HeaderValue::from_str(&format!("\"{tag}\""));
            Ready { packed, tag: tag.unwrap_or(HeaderValue::from_static("\"\"")) }
        })
    }

    /// The file as it is for whoever does not accept gzip.
    pub(super) fn unpacked(&self) -> Result<Bytes, ErrorAnswer> {
        if !self.is_packed {
            return Ok(Bytes::from_static(self.bytes));
        }
        let mut whole = Vec::new();
        // The files are part of the binary; a test unpacks each of them.
        flate2::read::GzDecoder::new(self.bytes).read_to_end(&mut whole).map_err(|_| ErrorAnswer::internal())?;
        Ok(whole.into())
    }

    /// The answer to a request for it, under the page's security policy.
    pub(super) fn serve(&self, asked: &HeaderMap, policy: &'static str) -> Answer {
        let ready = self.ready();
        let is_known = asked.get_all(IF_NONE_MATCH).iter().any(|known| names(known, &ready.tag));
        let sends_gzip = accepts_gzip(asked);
        let mut response = if is_known {
            answer(StatusCode::NOT_MODIFIED, Bytes::new(), self.content_type)
        } else if sends_gzip {
            answer(StatusCode::OK, ready.packed.clone(), self.content_type)
        } else {
            answer(StatusCode::OK, self.unpacked()?, self.content_type)
        };
        let headers = response.headers_mut();
        if sends_gzip && !is_known {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(ETAG, ready.tag.clone());
        headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
        Ok(response)
    }

    /// Bytes that it takes in the binary.
    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Bytes that a browser which accepts gzip gets.
    #[cfg(test)]
    pub(super) fn sent_bytes(&self) -> usize {
        self.ready().packed.len()
    }
}

fn pack(bytes: &[u8]) -> Bytes {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Compression::best());
    let packed = encoder.write_all(bytes).and_then(|()| encoder.finish());
    // Writing into memory does not fail.
    packed.unwrap_or_default().into()
}

/// Whether a list of `If-None-Match` holds this tag (RFC 9110 section 13.1.2: weak comparison).
fn names(list: &HeaderValue, tag: &HeaderValue) -> bool {
    let tags = list.to_str().unwrap_or_default().split(',').map(str::trim);
    tags.into_iter().any(|one| one == "*" || one.trim_start_matches("W/").as_bytes() == tag.as_bytes())
}

/// Whether `gzip` is accepted, and not with a weight of zero (RFC 9110 section 12.5.3).
fn accepts_gzip(asked: &HeaderMap) -> bool {
    let values = asked.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|item| {
        let mut parts = item.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|coding| coding.eq_ignore_ascii_case("gzip"));
        let refused = |weight: &str| {
            weight.strip_prefix("q=").is_some_and(|weight| weight.parse().is_ok_and(|weight: f32| weight == 0.0))
        };
        is_gzip && !parts.any(refused)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_is_sent_to_those_who_accept_it() {
        for (value, expected) in [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("gzip; q=0.0", false),
            ("br", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(value))]);
            assert_eq!(accepts_gzip(&headers), expected, "{value}");
        }
    }

    #[test]
    fn a_file_that_the_browser_has_is_not_sent_again() {
        static FILE: StaticFile = StaticFile::plain("a.js", "text/javascript", b"let a = 1;");
        let first = FILE.serve(&HeaderMap::new(), "default-src 'none'").unwrap();
        let tag = first.headers()[ETAG].clone();
        let again = |value: HeaderValue| {
            FILE.serve(&HeaderMap::from_iter([(IF_NONE_MATCH, value)]), "default-src 'none'").unwrap().status()
        };
        assert_eq!(first.status(), StatusCode::OK);
        assert_eq!(again(tag.clone()), StatusCode::NOT_MODIFIED);
        let weak = format!("\"other\", W/{}", tag.to_str().unwrap());
        assert_eq!(again(HeaderValue::from_str(&weak).unwrap()), StatusCode::NOT_MODIFIED);
        assert_eq!(again(HeaderValue::from_static("\"other\"")), StatusCode::OK);
    }
}
