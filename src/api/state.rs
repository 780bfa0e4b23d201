//! What the handlers work with, and the bounded way to the store.
//!
//! Invariant: reading and serialising happen on at most [`READERS_MAX`] blocking threads, so health and metrics never wait
//! for a query; a panic costs one answer and is counted. Knows the store only as [`Records`].

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, spawn_blocking};

use super::costs::Costs;
use super::error::Fault;
use super::records::Records;
use crate::meter::Registry;
use crate::ops::health::Health;

/// Reads of the store at the same time; further ones wait their turn.
pub const READERS_MAX: usize = 4;

/// What the handlers work with.
#[derive(Clone)]
pub struct Api {
    pub(super) records: Arc<dyn Records>,
    pub(super) health: Arc<Health>,
    pub(super) registry: Arc<Registry>,
    /// `None` where nothing is spent, e.g. in tests of other routes.
    pub(super) costs: Option<Arc<Costs>>,
    readers: Arc<Semaphore>,
}

impl Api {
    /// Handlers over this store, health and registry.
    pub fn new(records: Arc<dyn Records>, health: Arc<Health>, registry: Arc<Registry>) -> Self {
        Self { records, health, registry, costs: None, readers: Arc::new(Semaphore::new(READERS_MAX)) }
    }

    /// The same with spend to show.
    #[must_use]
    pub fn with_costs(mut self, costs: Costs) -> Self {
        self.costs = Some(Arc::new(costs));
        self
    }

    /// Runs `read` on a blocking thread once a reader is free; its bytes become a 200.
    pub(super) async fn read<F>(&self, read: F) -> Result<Response, Fault>
    where
        F: FnOnce(&dyn Records) -> Result<Vec<u8>, Fault> + Send + 'static,
    {
        let permit = self.readers.clone().acquire_owned().await.map_err(|_| Fault::shutting_down())?;
        let records = self.records.clone();
        let reading = spawn_blocking(move || {
            // Held by the thread, not by the asker: one that leaves does not let a fifth reader in.
            let _permit = permit;
            read(&*records)
        });
        Ok(answer(StatusCode::OK, self.finished(reading.await)??, "application/json"))
    }

    /// What came of a blocking task; its panic is counted and costs this answer.
    pub(super) fn finished<T>(&self, outcome: Result<T, JoinError>) -> Result<T, Fault> {
        outcome.map_err(|fault| {
            if fault.is_panic() {
                self.registry.shared().panic();
                tracing::error!("a task of the API panicked");
            }
            Fault::internal()
        })
    }
}

/// One record, or a 404 that says nothing about whether another tenant has it.
pub(super) fn found<T: Serialize>(what: &str, record: Option<T>) -> Result<Vec<u8>, Fault> {
    to_json(&record.ok_or_else(|| Fault::not_found(format!("no {what} with this id")))?)
}

/// The bytes of an answer.
pub(super) fn to_json<T: Serialize>(value: &T) -> Result<Vec<u8>, Fault> {
    serde_json::to_vec(value).map_err(|fault| {
        tracing::error!(%fault, "an answer could not be serialised");
        Fault::internal()
    })
}

/// An answer with a body. Nothing here may be cached: it is data of a tenant, or of this moment.
pub(super) fn answer(status: StatusCode, body: impl Into<Body>, content_type: &'static str) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
