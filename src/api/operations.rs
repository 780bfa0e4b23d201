//! Health, liveness, readiness and metrics.

use axum::body::Body;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;

use super::ask::Ask;
use super::error::Fault;
use super::route::Answer;
use super::state::{Api, answer, to_json};
use crate::meter;
use crate::ops::health::Health;

/// A status in one word.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "StatusWord")]
pub(super) struct Word {
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
    let answer = match path {
        "/health" => {
            let (is_up, report) = health.report();
            probed(is_up, &report)
        }
        "/livez" => probed(true, &Word { status: "alive" }),
        "/readyz" => {
            let status = if health.is_ready() { "ready" } else { health.report().1.status };
            probed(status == "ready", &Word { status })
        }
        _ => return None,
    };
    Some(answer.unwrap_or_else(Response::from))
}

fn probed<T: Serialize>(is_up: bool, value: &T) -> Result<Response<Bytes>, Fault> {
    let mut response = Response::new(Bytes::from(to_json(value)?));
    *response.status_mut() = if is_up { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

pub(super) async fn health(api: Api, _ask: Ask) -> Answer {
    through_the_router(&api, "/health")
}

pub(super) async fn livez(api: Api, _ask: Ask) -> Answer {
    through_the_router(&api, "/livez")
}

pub(super) async fn readyz(api: Api, _ask: Ask) -> Answer {
    through_the_router(&api, "/readyz")
}

/// For whoever asks the router all the same.
fn through_the_router(api: &Api, path: &str) -> Answer {
    Ok(probe(&api.health, "GET", path).ok_or_else(Fault::internal)?.map(Body::from))
}

pub(super) async fn metrics(api: Api, _ask: Ask) -> Answer {
    Ok(answer(StatusCode::OK, api.scrape().await?, meter::CONTENT_TYPE))
}

/// The schema of a plain text.
pub(super) fn text_schema(_generator: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({ "type": "string" })
}
