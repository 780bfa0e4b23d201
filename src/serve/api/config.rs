//! The flags that change without a restart, and the running configuration.
//!
//! | Method | Path                                   | Answer                                                   |
//! |--------|----------------------------------------|----------------------------------------------------------|
//! | GET    | /api/v1/config/features                | the 13 flags, flat                                       |
//! | PUT    | /api/v1/config/features                | the same after the change, plus `persisted`              |
//! | GET    | /api/v1/config/live                    | `{"config", "sources", "not_built"}`, secrets masked     |
//! | GET    | /admin/feature-flags                   | `{"llm_judge_enabled"}`                                  |
//! | PUT    | /admin/feature-flags/llm_judge_enabled | the same after the change                                |
//!
//! Invariant: a change is all or nothing, and is on disk (or `persisted` is false) before it is answered. Knows the
//! settings as [`LiveSettings`](crate::ops::live::LiveSettings) only.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::task::spawn_blocking;
use weir_config::{FlagError, Refused};
use weir_storage::audit::AuditEvent;

use super::ask::Ask;
use super::error::ErrorAnswer;
use super::route::Answer;
use super::state::{Api, answer, to_json};
use crate::ops::live::Changed;

const JUDGE: &str = "llm_judge_enabled";

/// Flags by wire name; what may stand here is checked against the table of settings.
pub(super) type Flags = Map<String, Value>;

/// The running configuration, as documented.
#[derive(JsonSchema)]
#[allow(dead_code)] // Its schema only: the answer is made by the settings' own crate.
pub(super) struct Live {
    /// Every setting, nested by path; a secret is `***` when it is set.
    config: Map<String, Value>,
    /// By path: `default`, `file`, `overlay`, `env` or `cli`.
    sources: BTreeMap<String, String>,
    /// Settings that have no effect in this version, by path, with the feature they belong to.
    not_built: BTreeMap<String, String>,
}

/// The flag of the admin interface.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct AdminFlags {
    /// Whether the judge is on.
    llm_judge_enabled: bool,
}

/// What switches it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Switch {
    /// On or off.
    enabled: bool,
}

pub(super) async fn features(api: Api, _ask: Ask) -> Answer {
    Ok(answer(StatusCode::OK, to_json(&api.live.flags())?, "application/json"))
}

pub(super) async fn change_features(api: Api, ask: Ask) -> Answer {
    let mut changes: Flags = ask.json()?;
    if changes.len() == 1
        && let Some(Value::Object(inner)) = changes.get_mut("features")
    {
        changes = std::mem::take(inner);
    }
    let Changed { mut flags, persisted, .. } = change(&api, &ask, changes).await?;
    flags.insert("persisted".to_owned(), Value::Bool(persisted));
    Ok(answer(StatusCode::OK, to_json(&flags)?, "application/json"))
}

pub(super) async fn live(api: Api, _ask: Ask) -> Answer {
    Ok(answer(StatusCode::OK, to_json(&api.live.show())?, "application/json"))
}

pub(super) async fn admin_flags(api: Api, _ask: Ask) -> Answer {
    judge_flag(&api.live.flags())
}

pub(super) async fn change_admin_flag(api: Api, ask: Ask) -> Answer {
    let Switch { enabled } = ask.json()?;
    let changes = Map::from_iter([(JUDGE.to_owned(), Value::Bool(enabled))]);
    judge_flag(&change(&api, &ask, changes).await?.flags)
}

/// Changes the flags on a blocking thread: the overlay is synced to disk. The audit log is told beside it, because a
/// change must not wait for a store that is in trouble.
async fn change(api: &Api, ask: &Ask, changes: Flags) -> Result<Changed, ErrorAnswer> {
    let actor = ask.caller()?.actor().into_owned();
    let live = Arc::clone(&api.live);
    let changed =
        api.finished(spawn_blocking(move || live.change(&changes)).await)?.map_err(|faults| refusal(&faults))?;
    if !changed.moved.is_empty() {
        let log = Arc::clone(&api.store.audit);
        let event = AuditEvent {
            tenant: None,
            actor,
            action: "config.change".to_owned(),
            target: None,
            detail: changed.moved.clone(),
        };
        drop(spawn_blocking(move || {
            if let Err(error) = log.audit(event) {
                tracing::warn!(%error, "a change of flags could not be written to the audit log");
            }
        }));
    }
    Ok(changed)
}

/// One refusal for all faults; the kind of the first decides.
fn refusal(faults: &[FlagError]) -> ErrorAnswer {
    let sentences: Vec<String> = faults.iter().map(FlagError::to_string).collect();
    let message = format!("nothing was changed: {}", sentences.join(". "));
    match faults.first().map(|fault| fault.refused) {
        Some(Refused::Immutable) => ErrorAnswer::immutable(message),
        Some(Refused::Pinned) => ErrorAnswer::conflict(message),
        _ => ErrorAnswer::invalid(message),
    }
}

fn judge_flag(flags: &Flags) -> Answer {
    let is_on = flags.get(JUDGE).and_then(Value::as_bool).unwrap_or_default();
    Ok(answer(StatusCode::OK, to_json(&AdminFlags { llm_judge_enabled: is_on })?, "application/json"))
}
