//! Health, liveness, readiness and metrics.

use axum::body::Body;
use http::StatusCode;
use schemars::{Schema, SchemaGenerator};

use super::ask::Ask;
use super::error::ErrorAnswer;
use super::route::Answer;
use super::state::{Api, answer};
use crate::control::probe;
use crate::meter;

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
    Ok(probe(&api.health, "GET", path).ok_or_else(ErrorAnswer::internal)?.map(Body::from))
}

pub(super) async fn metrics(api: Api, _ask: Ask) -> Answer {
    Ok(answer(StatusCode::OK, api.scrape().await?, meter::CONTENT_TYPE))
}

/// The schema of a plain text.
pub(super) fn text_schema(_generator: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({ "type": "string" })
}
