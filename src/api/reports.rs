//! `/api/v1/reports`: compliance reports are asked for, built in the background, and read.

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use weir_config::vocab::Timestamp;
use weir_storage::reports::{ReportStatus, ReportType};

use super::ask::Ask;
use super::error::Fault;
use super::route::Answer;
use super::state::{Api, found, to_json};
use crate::exchange::Proof;

/// A report to be built.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReportRequest {
    /// Which controls.
    report_type: ReportType,
    /// Inclusive start of the period.
    period_start: Timestamp,
    /// Exclusive end of the period.
    period_end: Timestamp,
}

/// A report that is being built.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct ReportAccepted {
    /// Names the report; `GET /api/v1/reports/{report_id}` shows it.
    id: Uuid,
    /// `pending`.
    status: ReportStatus,
}

pub(super) async fn generate(api: Api, ask: Ask) -> Answer {
    let wanted: ReportRequest = ask.json()?;
    if wanted.period_end <= wanted.period_start {
        return Err(Fault::invalid("`period_end` must be after `period_start`"));
    }
    let caller = ask.caller()?;
    // Whose credential is its tenant's may come after its tenant's end, and must not bring it back.
    let begin = matches!(caller.proof, Proof::Open | Proof::Bootstrap);
    api.write(move |records| {
        let (from, to) = (wanted.period_start, wanted.period_end);
        let report = records.create_report(begin, caller.tenant_id, wanted.report_type, from, to)?;
        let report = report.ok_or_else(|| Fault::not_found("no tenant with this id"))?;
        Ok((StatusCode::ACCEPTED, to_json(&ReportAccepted { id: report.id, status: report.status })?))
    })
    .await
}

pub(super) async fn list(api: Api, ask: Ask) -> Answer {
    let page = ask.query.page()?;
    let tenant = ask.tenant()?;
    api.read(move |records| to_json(&records.list_reports(tenant, page)?)).await
}

pub(super) async fn one(api: Api, ask: Ask) -> Answer {
    let id: Uuid = ask.id("report_id")?;
    let tenant = ask.tenant()?;
    api.read(move |records| found("report", records.report(tenant, id)?)).await
}
