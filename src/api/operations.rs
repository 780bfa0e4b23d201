//! Health, liveness, readiness and metrics.

use http::StatusCode;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use tokio::task::spawn_blocking;

use super::ask::Ask;
use super::error::Fault;
use super::route::Answer;
use super::state::{Api, answer, to_json};
use crate::meter;

/// A status in one word.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "StatusWord")]
pub(super) struct Word {
    /// `alive`, `ready`, `starting` or `draining`.
    status: String,
}

pub(super) async fn health(api: Api, _ask: Ask) -> Answer {
    let (is_up, report) = api.health.report();
    let status = if is_up { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok(answer(status, to_json(&report)?, "application/json"))
}

pub(super) async fn livez(_api: Api, _ask: Ask) -> Answer {
    word(StatusCode::OK, "alive")
}

pub(super) async fn readyz(api: Api, _ask: Ask) -> Answer {
    match api.health.is_ready() {
        true => word(StatusCode::OK, "ready"),
        false => word(StatusCode::SERVICE_UNAVAILABLE, api.health.report().1.status),
    }
}

pub(super) async fn metrics(api: Api, _ask: Ask) -> Answer {
    let registry = api.registry.clone();
    let text = api.finished(spawn_blocking(move || registry.render()).await)?.map_err(|fault| {
        tracing::error!(%fault, "the metrics could not be rendered");
        Fault::internal()
    })?;
    Ok(answer(StatusCode::OK, text, meter::CONTENT_TYPE))
}

fn word(status: StatusCode, word: &str) -> Answer {
    Ok(answer(status, to_json(&Word { status: word.to_owned() })?, "application/json"))
}

/// The schema of a plain text.
pub(super) fn text_schema(_generator: &mut SchemaGenerator) -> Schema {
    schemars::json_schema!({ "type": "string" })
}
