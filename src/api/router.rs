//! The route table and its handlers.
//!
//! | Method | Path                       | Answer                                        |
//! |--------|----------------------------|-----------------------------------------------|
//! | GET    | /health                    | health report; 503 while starting or draining |
//! | GET    | /livez, /readyz            | `{"status"}`                                  |
//! | GET    | /metrics                   | Prometheus text 0.0.4                         |
//! | GET    | /api/v1/traces             | paged traces with their spans                 |
//! | GET    | /api/v1/traces/{trace_id}  | one trace                                     |
//! | GET    | /api/v1/spans              | paged spans                                   |
//! | GET    | /api/v1/spans/{span_id}    | one span                                      |
//! | GET    | /api/v1/security/findings  | paged spans with a score above 0              |
//!
//! HEAD answers like GET (whoever frames the answer leaves the body out). Anything else the gateway calls its own is 404 or 405. Invariant: handlers
//! only parse and shape; reading and serialising happen on at most [`READERS_MAX`] blocking threads, so health and
//! metrics never wait for a query. Knows the store only as [`Records`].

use std::str::FromStr;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::Response;
use axum::routing::get;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use serde::Serialize;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;
use weir_config::vocab::{SpanId, TenantId, TraceId};

use super::error::Fault;
use super::query;
use super::records::Records;
use crate::admit::tenant;
use crate::meter::{self, Registry};
use crate::ops::health::Health;

/// Reads of the store at the same time; further ones wait their turn.
pub const READERS_MAX: usize = 4;

/// What the handlers work with.
#[derive(Clone)]
pub struct Api {
    records: Arc<dyn Records>,
    health: Arc<Health>,
    registry: Arc<Registry>,
    readers: Arc<Semaphore>,
}

/// What a path parameter was supposed to name.
type PathId = Result<Path<String>, PathRejection>;

impl Api {
    /// Handlers over this store, health and registry.
    pub fn new(records: Arc<dyn Records>, health: Arc<Health>, registry: Arc<Registry>) -> Self {
        Self { records, health, registry, readers: Arc::new(Semaphore::new(READERS_MAX)) }
    }

    /// Runs `read` on a blocking thread once a reader is free.
    async fn read<F>(&self, read: F) -> Result<Response, Fault>
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
    fn finished<T>(&self, outcome: Result<T, tokio::task::JoinError>) -> Result<T, Fault> {
        outcome.map_err(|fault| {
            if fault.is_panic() {
                self.registry.shared().panic();
                tracing::error!("a task of the API panicked");
            }
            Fault::internal()
        })
    }
}

/// The router with every route of the table above.
pub fn router(api: Api) -> Router {
    Router::new()
        .route("/health", get(health))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .route("/api/v1/traces", get(list_traces))
        .route("/api/v1/traces/{trace_id}", get(trace))
        .route("/api/v1/spans", get(list_spans))
        .route("/api/v1/spans/{span_id}", get(span))
        .route("/api/v1/security/findings", get(list_findings))
        .method_not_allowed_fallback(async || Fault::method_not_allowed("GET, HEAD"))
        .fallback(unknown)
        .with_state(api)
}

async fn unknown(method: Method, uri: Uri) -> Fault {
    let path: String = uri.path().chars().take(256).collect();
    Fault::not_found(format!("the gateway has no route {method} {path}"))
}

async fn health(State(api): State<Api>) -> Result<Response, Fault> {
    let (is_up, report) = api.health.report();
    let status = if is_up { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok(answer(status, to_json(&report)?, "application/json"))
}

async fn livez() -> Response {
    answer(StatusCode::OK, json!({"status": "alive"}).to_string(), "application/json")
}

async fn readyz(State(api): State<Api>) -> Response {
    let (status, word) = if api.health.is_ready() {
        (StatusCode::OK, "ready")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, api.health.report().1.status)
    };
    answer(status, json!({"status": word}).to_string(), "application/json")
}

async fn metrics(State(api): State<Api>) -> Result<Response, Fault> {
    let registry = api.registry.clone();
    let text = api.finished(spawn_blocking(move || registry.render()).await)?.map_err(|fault| {
        tracing::error!(%fault, "the metrics could not be rendered");
        Fault::internal()
    })?;
    Ok(answer(StatusCode::OK, text, meter::CONTENT_TYPE))
}

async fn list_traces(State(api): State<Api>, headers: HeaderMap, uri: Uri) -> Result<Response, Fault> {
    let (filter, page) = query::trace_list(&uri)?;
    let tenant = tenant_of(&headers);
    api.read(move |records| to_json(&records.list_traces(tenant, &filter, page)?)).await
}

async fn trace(State(api): State<Api>, id: PathId, headers: HeaderMap, uri: Uri) -> Result<Response, Fault> {
    let trace: TraceId = path_id("trace_id", id)?;
    query::nothing(&uri)?;
    let tenant = tenant_of(&headers);
    api.read(move |records| found("trace", records.trace(tenant, trace)?)).await
}

async fn list_spans(State(api): State<Api>, headers: HeaderMap, uri: Uri) -> Result<Response, Fault> {
    let (filter, page) = query::span_list(&uri)?;
    let tenant = tenant_of(&headers);
    api.read(move |records| to_json(&records.list_spans(tenant, &filter, page)?)).await
}

async fn span(State(api): State<Api>, id: PathId, headers: HeaderMap, uri: Uri) -> Result<Response, Fault> {
    let span: SpanId = path_id("span_id", id)?;
    query::nothing(&uri)?;
    let tenant = tenant_of(&headers);
    api.read(move |records| found("span", records.span(tenant, span)?)).await
}

async fn list_findings(State(api): State<Api>, headers: HeaderMap, uri: Uri) -> Result<Response, Fault> {
    let page = query::page(&uri)?;
    let tenant = tenant_of(&headers);
    api.read(move |records| to_json(&records.list_findings(tenant, page)?)).await
}

/// Whose data is asked for; resolved exactly as for proxied requests.
fn tenant_of(headers: &HeaderMap) -> TenantId {
    let value = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
    tenant::resolve(
        value("x-service-tenant-id"),
        value("authorization"),
        value("x-api-key").or_else(|| value("api-key")),
    )
}

fn path_id<T: FromStr>(name: &str, id: PathId) -> Result<T, Fault> {
    let refused = || Fault::invalid(format!("`{name}` is not a UUID such as 6f1c2b1e-0d5a-4c6f-9e7b-0d9a4c3b2a10"));
    id.ok().and_then(|Path(text)| text.parse().ok()).ok_or_else(refused)
}

/// One record, or a 404 that says nothing about whether another tenant has it.
fn found<T: Serialize>(what: &str, record: Option<T>) -> Result<Vec<u8>, Fault> {
    to_json(&record.ok_or_else(|| Fault::not_found(format!("no {what} with this id")))?)
}

fn to_json<T: Serialize>(value: &T) -> Result<Vec<u8>, Fault> {
    serde_json::to_vec(value).map_err(|fault| {
        tracing::error!(%fault, "an answer could not be serialised");
        Fault::internal()
    })
}

fn answer(status: StatusCode, body: impl Into<Body>, content_type: &'static str) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
