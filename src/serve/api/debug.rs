//! What helps to judge the gateway's judgement; there only while `server.debug_endpoints` is true, and then for everybody.
//!
//! | Method | Path                           | Answer                                                      |
//! |--------|--------------------------------|-------------------------------------------------------------|
//! | GET    | /debug/judge/verdicts          | `{"data":[...]}`: the verdicts about `trace_id`             |
//! | GET    | /debug/judge/golden_set/replay | the replay of the golden set below `SERVICE_GOLDEN_SET_PATH` |

use schemars::JsonSchema;
use serde::Serialize;
use weir_config::vocab::{TenantId, TraceId};
use weir_storage::JudgeVerdict;

use super::ask::Ask;
use super::error::ErrorAnswer;
use super::listed::{as_lines, lines_of};
use super::route::Answer;
use super::state::{Api, to_json};

pub(super) async fn replay(api: Api, _ask: Ask) -> Answer {
    let golden = api.golden.clone().ok_or_else(|| {
        ErrorAnswer::unset("SERVICE_GOLDEN_SET_PATH is not set; set it to the folder of a golden set and start again")
    })?;
    api.read(move |_| {
        let report = golden.replay().map_err(|fault| ErrorAnswer::unset(fault.to_string()))?;
        to_json(&report)
    })
    .await
}

/// Verdicts of the judge.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "JudgeVerdicts")]
pub(super) struct Verdicts {
    /// In the order in which they came.
    data: Vec<JudgeVerdict>,
}

pub(super) async fn verdicts(api: Api, ask: Ask) -> Answer {
    let trace: TraceId = ask.query.id("trace_id")?.ok_or_else(|| {
        ErrorAnswer::invalid("`trace_id` is missing; name the trace whose verdicts are to be shown, a UUID")
    })?;
    let tenant = ask.query.id("tenant_id")?.unwrap_or(TenantId::DEFAULT);
    let lines = ask.query.lines()?;
    let book = api.verdicts.clone();
    let verdicts = move || book.as_ref().map_or(Ok(Vec::new()), |book| book.list_verdicts(tenant, trace));
    if lines {
        // A trace has a thousand at most.
        return Ok(as_lines(api.read_piece(move |_| lines_of(&verdicts()?, to_json)).await?, None));
    }
    api.read(move |_| to_json(&Verdicts { data: verdicts()? })).await
}
