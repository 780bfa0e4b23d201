//! What the handlers work with, and the bounded way to the store.
//!
//! Invariant: reading and serialising happen on at most [`READERS_MAX`] blocking threads, so health and metrics never wait
//! for a query; no tenant takes more than its share of them, and what ends credentials has workers of its own, so nobody can
//! put off being shut out; a panic costs one answer and is counted. Knows the store only by its roles ([`Roles`]).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::task::{JoinError, spawn_blocking};
use weir_config::vocab::TenantId;
use weir_storage::{AlertBook, AuditLog, ReportBook, SpanLog, VerdictBook};

use super::costs::Costs;
use super::error::ErrorAnswer;
use super::lane::Lane;
use super::reading::Reading;
use crate::golden::GoldenSet;
use crate::identity::{Identities, IdentityError, Kept};
use crate::ingest::Intake;
use crate::meter::Registry;
use crate::ops::health::Health;
use crate::ops::live::LiveSettings;
use crate::receipts::PublicKey;
use crate::redaction::Redaction;
use crate::replay::Replays;
use crate::reports::ReportBuilder;
use crate::rt::yielding;

/// Reads of the store at the same time; further ones wait their turn.
pub const READERS_MAX: usize = 4;
/// Writes at the same time; each waits for its commit, and those that wait together are committed together.
pub(super) const WRITERS_MAX: usize = 8;
/// Reads that run or wait their turn at most, of all tenants; more are refused. One tenant has half of them.
const READS_MAX: usize = 56;
/// The same of writes.
const WRITES_MAX: usize = 64;
/// Ends of credentials at the same time, and those that wait with them.
const ENDINGS_MAX: (usize, usize) = (2, 128);
/// Expositions at the same time, and those that wait with them: one takes a blocking thread, and scrapers are few.
const SCRAPES_MAX: (usize, usize) = (2, 32);

/// A call's record is committed a moment after its last byte was sent, and the client may ask for it sooner. These are the
/// pauses before it is asked for again, in milliseconds.
const PAUSES_MS: [u64; 4] = [10, 30, 80, 150];

/// What the handlers ask of the store, by role.
#[derive(Clone)]
pub struct Roles {
    /// Traces, spans and reported actions.
    pub spans: Arc<dyn SpanLog>,
    /// Administrative events.
    pub audit: Arc<dyn AuditLog>,
    /// Compliance reports.
    pub reports: Arc<dyn ReportBook>,
}

impl Roles {
    /// One store in all of them.
    pub fn of<S: SpanLog + AuditLog + ReportBook>(store: &Arc<S>) -> Self {
        Self {
            spans: Arc::clone(store) as Arc<dyn SpanLog>,
            audit: Arc::clone(store) as Arc<dyn AuditLog>,
            reports: Arc::clone(store) as Arc<dyn ReportBook>,
        }
    }
}

/// What the handlers work with.
#[derive(Clone)]
pub struct Api {
    pub(super) store: Roles,
    pub(super) health: Arc<Health>,
    pub(super) live: Arc<LiveSettings>,
    pub(super) registry: Arc<Registry>,
    /// `None` where nothing is spent, e.g. in tests of other routes.
    pub(super) costs: Option<Arc<Costs>>,
    /// The tenant that asks; the default tenant where there is no caller.
    asker: TenantId,
    /// `None` where SERVICE_GOLDEN_SET_PATH is not set.
    pub(super) golden: Option<Arc<GoldenSet>>,
    /// Verdicts of the judge; `None` in tests of other routes.
    pub(super) verdicts: Option<Arc<dyn VerdictBook>>,
    /// What channels of alerts were told; `None` in tests of other routes.
    pub(super) alerts: Option<Arc<dyn AlertBook>>,
    readers: Arc<Lane>,
    writers: Arc<Lane>,
    /// For whatever takes a credential away.
    endings: Arc<Lane>,
    scrapes: Arc<Lane>,
    /// The threads that read; `None` for those of the runtime that asks.
    reading_on: Option<Arc<Reading>>,
    identities: Option<Arc<Identities>>,
    /// Keeps credentials out of what is written down; `None` in tests of other routes.
    pub(super) redaction: Option<Arc<Redaction>>,
    /// Takes what applications report; `None` where that is off.
    pub(super) ingest: Option<Intake>,
    /// By which receipts are checked; `None` where there are none.
    pub(super) receipt_key: Option<PublicKey>,
    /// Builds the reports that are asked for; `None` in tests of other routes.
    pub(super) builder: Option<Arc<ReportBuilder>>,
    /// Has changes tried on recorded calls; `None` in tests of other routes.
    pub(super) replays: Option<Arc<Replays>>,
}

impl Api {
    /// Handlers over this store, health, settings and registry.
    pub fn new(store: Roles, health: Arc<Health>, live: Arc<LiveSettings>, registry: Arc<Registry>) -> Self {
        let lane = |(workers, places)| Arc::new(Lane::new(workers, places));
        Self {
            store,
            health,
            live,
            registry,
            costs: None,
            asker: TenantId::DEFAULT,
            golden: None,
            verdicts: None,
            alerts: None,
            readers: lane((READERS_MAX, READS_MAX)),
            writers: lane((WRITERS_MAX, WRITES_MAX)),
            endings: lane(ENDINGS_MAX),
            scrapes: lane(SCRAPES_MAX),
            reading_on: None,
            identities: None,
            redaction: None,
            receipt_key: None,
            builder: None,
            replays: None,
            ingest: None,
        }
    }

    /// The same for a call of this tenant, whose share of the workers it takes.
    pub(super) fn asked_by(mut self, tenant: TenantId) -> Self {
        self.asker = tenant;
        self
    }

    /// The same with spend to show.
    #[must_use]
    pub fn with_costs(mut self, costs: Costs) -> Self {
        self.costs = Some(Arc::new(costs));
        self
    }

    /// The same with a golden set to replay.
    #[must_use]
    pub fn with_golden(mut self, golden: Option<Arc<GoldenSet>>) -> Self {
        self.golden = golden;
        self
    }

    /// The same with the key of receipts to show.
    #[must_use]
    pub fn with_receipt_key(mut self, key: Option<PublicKey>) -> Self {
        self.receipt_key = key;
        self
    }

    /// The same with verdicts to show.
    #[must_use]
    pub fn with_verdicts(mut self, verdicts: Arc<dyn VerdictBook>) -> Self {
        self.verdicts = Some(verdicts);
        self
    }

    /// The same with alerts to show.
    #[must_use]
    pub fn with_alerts(mut self, alerts: Arc<dyn AlertBook>) -> Self {
        self.alerts = Some(alerts);
        self
    }

    /// The same with reads on this runtime's blocking threads as long as those get a CPU.
    #[must_use]
    pub fn reading_on(mut self, runtime: Handle) -> Self {
        self.reading_on = Some(Arc::new(Reading::on(runtime)));
        self
    }

    /// Runs `read` on a blocking thread once a reader is free; its bytes become a 200.
    pub(super) async fn read<F>(&self, read: F) -> Result<Response, ErrorAnswer>
    where
        F: Fn(&Roles) -> Result<Vec<u8>, ErrorAnswer> + Send + Sync + 'static,
    {
        Ok(answer(StatusCode::OK, self.read_piece(read).await?, "application/json"))
    }

    /// What `read` gives, on a blocking thread once a reader is free.
    pub(super) async fn read_piece<T, F>(&self, read: F) -> Result<T, ErrorAnswer>
    where
        T: Send + 'static,
        F: Fn(&Roles) -> Result<T, ErrorAnswer> + Send + Sync + 'static,
    {
        match &self.reading_on {
            None => self.on_lane(&self.readers, read).await,
            Some(reading) => {
                let permit = self.readers.enter(self.asker).await?;
                let store = self.store.clone();
                self.finished(reading.run(permit, move || read(&store)).await)?
            }
        }
    }

    /// Runs `write` on a blocking thread once a writer is free; its bytes are the answer.
    pub(super) async fn write<F>(&self, write: F) -> Result<Response, ErrorAnswer>
    where
        F: FnOnce(&Roles) -> Result<(StatusCode, Vec<u8>), ErrorAnswer> + Send + 'static,
    {
        let (status, bytes) = self.on_lane(&self.writers, write).await?;
        Ok(answer(status, bytes, "application/json"))
    }

    /// Does work for the caller on a blocking thread once a writer is free.
    pub(super) async fn aside<T, F>(&self, work: F) -> Result<T, ErrorAnswer>
    where
        T: Send + 'static,
        F: FnOnce() -> Result<T, ErrorAnswer> + Send + 'static,
    {
        self.on_lane(&self.writers, |_| work()).await
    }

    async fn on_lane<T, F>(&self, lane: &Lane, work: F) -> Result<T, ErrorAnswer>
    where
        T: Send + 'static,
        F: FnOnce(&Roles) -> Result<T, ErrorAnswer> + Send + 'static,
    {
        let permit = lane.enter(self.asker).await?;
        let store = self.store.clone();
        let working = spawn_blocking(move || {
            // Held by the thread, not by the asker: one that leaves does not let one too many in.
            let _permit = permit;
            work(&store)
        });
        self.finished(working.await)?
    }

    /// With these tenants and keys to administer.
    #[must_use]
    pub fn with_identities(mut self, identities: Arc<Identities>) -> Self {
        self.identities = Some(identities);
        self
    }

    /// Reads or changes tenants, keys and tokens on a blocking thread; what is changed is durable and in force when this
    /// returns.
    pub(super) async fn change<F>(&self, change: F) -> Result<Response, ErrorAnswer>
    where
        F: FnOnce(&Identities) -> Result<Response, ErrorAnswer> + Send + 'static,
    {
        self.on_identities(&self.writers, change).await
    }

    /// The same for what takes a credential away, which waits for nothing else that the API is asked.
    pub(super) async fn end<F>(&self, end: F) -> Result<Response, ErrorAnswer>
    where
        F: FnOnce(&Identities) -> Result<Response, ErrorAnswer> + Send + 'static,
    {
        self.on_identities(&self.endings, end).await
    }

    /// Tenants, keys and tokens.
    pub(super) fn identities(&self) -> Result<Arc<Identities>, ErrorAnswer> {
        self.identities.clone().ok_or_else(ErrorAnswer::storage_unavailable)
    }

    async fn on_identities<F>(&self, lane: &Lane, work: F) -> Result<Response, ErrorAnswer>
    where
        F: FnOnce(&Identities) -> Result<Response, ErrorAnswer> + Send + 'static,
    {
        let identities = self.identities()?;
        let permit = lane.enter(self.asker).await?;
        let working = spawn_blocking(move || {
            let _permit = permit;
            work(&identities)
        });
        self.finished(working.await)?
    }

    /// The exposition, rendered on a blocking thread.
    pub(super) async fn scrape(&self) -> Result<String, ErrorAnswer> {
        let permit = self.scrapes.enter(self.asker).await?;
        let registry = self.registry.clone();
        let rendering = spawn_blocking(move || {
            let _permit = permit;
            registry.render()
        });
        self.finished(rendering.await)?.map_err(|fault| {
            tracing::error!(%fault, "the metrics could not be rendered");
            ErrorAnswer::internal()
        })
    }

    /// With this to build the reports that are asked for.
    #[must_use]
    pub fn with_builder(mut self, builder: Arc<ReportBuilder>) -> Self {
        self.builder = Some(builder);
        self
    }

    /// With this to have changes tried on recorded calls.
    #[must_use]
    pub fn with_replays(mut self, replays: Arc<Replays>) -> Self {
        self.replays = Some(replays);
        self
    }

    /// With an intake for reported spans.
    #[must_use]
    pub fn with_ingest(mut self, ingest: Option<Intake>) -> Self {
        self.ingest = ingest;
        self
    }

    /// With this to keep credentials out of what is written down.
    #[must_use]
    pub fn with_redaction(mut self, redaction: Arc<Redaction>) -> Self {
        self.redaction = Some(redaction);
        self
    }

    /// What came of a blocking task; its panic is counted and costs this answer.
    pub(super) fn finished<T>(&self, outcome: Result<T, JoinError>) -> Result<T, ErrorAnswer> {
        outcome.map_err(|fault| {
            if fault.is_panic() {
                self.registry.shared().panic();
                tracing::error!("a task of the API panicked");
            }
            ErrorAnswer::internal()
        })
    }
}

/// Asks again after each of [`PAUSES_MS`] while the answer is 404.
pub(super) async fn patiently<F, Fut>(mut ask: F) -> Result<Response, ErrorAnswer>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Response, ErrorAnswer>>,
{
    let mut pauses = PAUSES_MS.iter();
    loop {
        match (ask().await, pauses.next()) {
            (Err(fault), Some(pause)) if fault.status == StatusCode::NOT_FOUND => {
                tokio::time::sleep(Duration::from_millis(*pause)).await;
            }
            (answer, _) => return answer,
        }
    }
}

/// One record, or a 404 that says nothing about whether another tenant has it.
pub(super) fn found<T: Serialize>(what: &str, record: Option<T>) -> Result<Vec<u8>, ErrorAnswer> {
    to_json(&record.ok_or_else(|| ErrorAnswer::not_found(format!("no {what} with this id")))?)
}

/// 200 with a JSON body.
pub(super) fn ok<T: Serialize>(value: &T) -> Result<Response, ErrorAnswer> {
    Ok(answer(StatusCode::OK, to_json(value)?, "application/json"))
}

/// 201 with a JSON body.
pub(super) fn created<T: Serialize>(value: &T) -> Result<Response, ErrorAnswer> {
    Ok(answer(StatusCode::CREATED, to_json(value)?, "application/json"))
}

/// 204.
pub(super) fn nothing() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// What a denial answers while it is in force and the store has not kept it.
#[derive(Serialize, JsonSchema)]
pub(super) struct NotPersisted {
    /// False: it holds until the process ends, and is written down as soon as the store can.
    persisted: bool,
}

/// 204 where a denial has been kept, 202 where it is in force only.
pub(super) fn denied(kept: Kept) -> Result<Response, ErrorAnswer> {
    match kept {
        Kept::Durably => Ok(nothing()),
        Kept::InMemory => {
            Ok(answer(StatusCode::ACCEPTED, to_json(&NotPersisted { persisted: false })?, "application/json"))
        }
    }
}

impl From<IdentityError> for ErrorAnswer {
    fn from(error: IdentityError) -> Self {
        let fault = match &error {
            IdentityError::CallerGone => return Self::unauthenticated(),
            IdentityError::LimitedKey => return Self::limited_key(error.to_string()),
            IdentityError::UnknownKey(_) => return Self::invalid(error.to_string()),
            IdentityError::AccessUnreadable | IdentityError::ChangedMeanwhile => {
                return Self::conflict(error.to_string());
            }
            IdentityError::NotRead(read) => return read.clone().into(),
            IdentityError::NotWritten(_) => Self::storage_unavailable(),
            IdentityError::KeyFile(_) | IdentityError::NoRandom | IdentityError::NoCipher => Self::internal(),
        };
        tracing::error!(%error, "a tenant, key or token could not be read or changed");
        fault
    }
}

/// The bytes of an answer.
pub(super) fn to_json<T: Serialize>(value: &T) -> Result<Vec<u8>, ErrorAnswer> {
    let mut answer = Answering::default();
    serde_json::to_writer(&mut answer, value).map_err(|fault| {
        tracing::error!(%fault, "an answer could not be serialised");
        ErrorAnswer::internal()
    })?;
    Ok(answer.bytes)
}

/// Bytes of an answer between two places where the thread that writes it can be put off.
const TURN_BYTES: usize = 16 * 1024;

/// An answer being written, by a thread that lets others go first.
#[derive(Default)]
struct Answering {
    bytes: Vec<u8>,
    /// Length of `bytes` at which others are let go.
    turn_at: usize,
}

impl io::Write for Answering {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() >= self.turn_at {
            yielding::pause();
            self.turn_at = self.bytes.len() + TURN_BYTES;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An answer with a body. Nothing here may be cached: it is data of a tenant, or of this moment.
pub(super) fn answer(status: StatusCode, body: impl Into<Body>, content_type: &'static str) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
