//! The answers to probes, given where they are asked.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;

use crate::ops::health::Health;

/// A status in one word.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "StatusWord")]
pub struct Word {
    /// `alive`, `ready`, `starting` or `draining`.
    status: &'static str,
}

/// The answer to a probe (`/health`, `/livez`, `/readyz`), `None` where `path` or `method` is not one's. Needs neither a
/// thread nor the store, so that whoever has read the request can answer: a liveness probe that waits its turn behind other
/// work kills a gateway that is only busy.
pub fn probe(health: &Health, method: &str, path: &str) -> Option<Response<Bytes>> {
    if !matches!(method, "GET" | "HEAD") {
        return None;
    }
    match path {
        "/health" => {
            let (is_up, report) = health.report();
            Some(probed(is_up, &report))
        }
        "/livez" => Some(probed(true, &Word { status: "alive" })),
        "/readyz" => {
            let status = if health.is_ready() { "ready" } else { health.report().1.status };
            Some(probed(status == "ready", &Word { status }))
        }
        _ => None,
    }
}

fn probed<T: Serialize>(is_up: bool, value: &T) -> Response<Bytes> {
    // A report of words and numbers always has a JSON form.
    let mut response = Response::new(Bytes::from(serde_json::to_vec(value).unwrap_or_default()));
    *response.status_mut() = if is_up { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
