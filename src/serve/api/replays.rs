//! `/api/v1/replays`: what a change of rules or settings would make of recorded calls, tried in the background.

use std::sync::Arc;

use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;
use uuid::Uuid;
use weir_config::vocab::{TenantId, Timestamp};

use super::ask::Ask;
use super::error::ErrorAnswer;
use super::listed::{as_lines, lines_of};
use super::route::Answer;
use super::state::{Api, answer, nothing, to_json};
use crate::replay::{Progress, Refused, ReplayChange, ReplayRequest, ReplayState, Replays, Run, StoppedBy, Tally};

/// How far a replay is.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ReplayProgress {
    /// Names the replay; `GET /api/v1/replays/{replay_id}` shows it.
    id: Uuid,
    tenant_id: TenantId,
    /// How far it is.
    state: ReplayState,
    /// When it was asked for.
    created_at: Timestamp,
    /// When it was its turn.
    started_at: Option<Timestamp>,
    /// When it was over.
    ended_at: Option<Timestamp>,
    /// Calls looked at.
    read: u64,
    /// Calls to be looked at; null while that is not known.
    expected: Option<u64>,
    /// Calls of which something would be different.
    changed: u64,
    /// Why a replay that is done has not looked at every call that is meant.
    stopped_by: Option<StoppedBy>,
    /// Why it failed.
    error: Option<String>,
}

/// A replay and what has come of it.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ReplayShown {
    #[serde(flatten)]
    progress: ReplayProgress,
    /// What was asked for.
    request: ReplayRequest,
    /// Calls that would be blocked and are not without the change.
    newly_blocked: u64,
    /// Calls that would be blocked no longer.
    no_longer_blocked: u64,
    /// What would be different in sum.
    summary: Tally,
    /// Calls of which something would be different, the newest first, up to 500.
    changes: Vec<ReplayChange>,
    /// There are more of them.
    changes_truncated: bool,
}

/// A tenant's replays.
#[derive(Serialize, JsonSchema)]
pub(super) struct ReplayList {
    /// The newest first.
    data: Vec<ReplayProgress>,
}

impl ReplayProgress {
    fn of(run: &Run, progress: &Progress) -> Self {
        let Progress { state, read, expected, started_at, ended_at, stopped_by, .. } = *progress;
        let (changed, error) = (progress.tally.changed, progress.error.clone());
        let (id, tenant_id, created_at) = (run.id, run.tenant, run.created_at);
        Self { id, tenant_id, state, created_at, started_at, ended_at, read, expected, changed, stopped_by, error }
    }
}

impl ReplayShown {
    fn of(run: &Run) -> Self {
        let now = run.progress();
        Self {
            progress: ReplayProgress::of(run, &now),
            request: run.request.clone(),
            newly_blocked: now.newly_blocked,
            no_longer_blocked: now.no_longer_blocked,
            changes_truncated: now.tally.changed > now.changes.len() as u64,
            summary: now.tally,
            changes: now.changes,
        }
    }
}

fn book(api: &Api) -> Result<Arc<Replays>, ErrorAnswer> {
    api.replays.clone().ok_or_else(ErrorAnswer::storage_unavailable)
}

fn unknown() -> ErrorAnswer {
    ErrorAnswer::not_found("no replay with this id; replays end with the gateway's process, and the latest are kept")
}

pub(super) async fn begin(api: Api, ask: Ask) -> Answer {
    let (tenant, request, replays) = (ask.tenant()?, ask.json::<ReplayRequest>()?, book(&api)?);
    // Reading rules takes as long as they are many.
    let begun = api
        .aside(move || {
            replays.begin(tenant, request).map_err(|refused| match refused {
                Refused::Invalid(message) => ErrorAnswer::invalid(message),
                Refused::Busy(message) => ErrorAnswer::too_many(message),
                Refused::Closing => ErrorAnswer::shutting_down(),
            })
        })
        .await?;
    let shown = to_json(&ReplayProgress::of(&begun, &begun.progress()))?;
    Ok(answer(StatusCode::ACCEPTED, shown, "application/json"))
}

pub(super) async fn list(api: Api, ask: Ask) -> Answer {
    let (tenant, lines) = (ask.tenant()?, ask.query.lines()?);
    let replays = book(&api)?;
    let listed =
        move || -> Vec<_> { replays.of(tenant).iter().map(|run| ReplayProgress::of(run, &run.progress())).collect() };
    if lines {
        let found = api.read_piece(move |_| lines_of(&listed(), to_json)).await?;
        return Ok(as_lines(found, None));
    }
    api.read(move |_| to_json(&ReplayList { data: listed() })).await
}

pub(super) async fn one(api: Api, ask: Ask) -> Answer {
    let (tenant, id) = (ask.tenant()?, ask.id("replay_id")?);
    let run = book(&api)?.one(tenant, id).ok_or_else(unknown)?;
    api.read(move |_| to_json(&ReplayShown::of(&run))).await
}

pub(super) async fn delete(api: Api, ask: Ask) -> Answer {
    let (tenant, id) = (ask.tenant()?, ask.id("replay_id")?);
    if book(&api)?.delete(tenant, id) { Ok(nothing()) } else { Err(unknown()) }
}
