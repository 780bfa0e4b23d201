//! Swagger UI over the served document, from files in the binary.
//!
//! Invariant: nothing is loaded from elsewhere, and the page's security policy says so to the browser. The large files are
//! kept compressed and sent so to whoever accepts it.

use std::io::Read;

use http::header::{ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::ask::Ask;
use super::error::ErrorAnswer;
use super::route::Answer;
use super::state::{Api, answer};

/// A file of the page.
struct Asset {
    name: &'static str,
    content_type: &'static str,
    bytes: &'static [u8],
    is_gzip: bool,
}

const INDEX: Asset = Asset {
    name: "index.html",
    content_type: "text/html; charset=utf-8",
    bytes: include_bytes!("assets/index.html"),
    is_gzip: false,
};
const ASSETS: [Asset; 4] = [
    INDEX,
    Asset {
        name: "initializer.js",
        content_type: "text/javascript; charset=utf-8",
        bytes: include_bytes!("assets/initializer.js"),
        is_gzip: false,
    },
    Asset {
        name: "swagger-ui.css",
        content_type: "text/css; charset=utf-8",
        bytes: include_bytes!("assets/swagger-ui.css.gz"),
        is_gzip: true,
    },
    Asset {
        name: "swagger-ui-bundle.js",
        content_type: "text/javascript; charset=utf-8",
        bytes: include_bytes!("assets/swagger-ui-bundle.js.gz"),
        is_gzip: true,
    },
];
/// The page sets styles on elements; scripts come from files only, and nothing from elsewhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The page.
pub(super) async fn index(_api: Api, ask: Ask) -> Answer {
    serve(&INDEX, ask.headers())
}

/// A file of the page.
pub(super) async fn file(_api: Api, ask: Ask) -> Answer {
    let asset = ASSETS.iter().find(|asset| ask.text("file") == Some(asset.name));
    serve(asset.ok_or_else(|| ErrorAnswer::not_found("Swagger UI has no file of this name"))?, ask.headers())
}

fn serve(asset: &'static Asset, asked: &HeaderMap) -> Answer {
    let sends_gzip = asset.is_gzip && accepts_gzip(asked);
    let mut response = if asset.is_gzip && !sends_gzip {
        answer(StatusCode::OK, unpacked(asset.bytes)?, asset.content_type)
    } else {
        answer(StatusCode::OK, asset.bytes, asset.content_type)
    };
    let headers = response.headers_mut();
    if sends_gzip {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    Ok(response)
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

fn unpacked(bytes: &[u8]) -> Result<Vec<u8>, ErrorAnswer> {
    let mut whole = Vec::new();
    // The files are part of the binary; a test unpacks each of them.
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut whole).map_err(|_| ErrorAnswer::internal())?;
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packed_file_unpacks() {
        for asset in ASSETS.iter().filter(|asset| asset.is_gzip) {
            assert!(unpacked(asset.bytes).unwrap().len() > asset.bytes.len(), "{}", asset.name);
        }
        assert!(ASSETS.iter().map(|asset| asset.bytes.len()).sum::<usize>() < 600_000, "the binary stays small");
    }

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
}
