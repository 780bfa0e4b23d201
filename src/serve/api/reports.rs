//! `/api/v1/reports`: compliance reports are asked for, built in the background, and read.

use http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use weir_config::vocab::Timestamp;
use weir_storage::reports::{ReportStatus, ReportType};

use super::ask::Ask;
use super::error::ErrorAnswer;
use super::listed::List;
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
        return Err(ErrorAnswer::invalid("`period_end` must be after `period_start`"));
    }
    let caller = ask.caller()?;
    // A caller with its tenant's credential may come after the tenant was deleted, and must not bring it back.
    let begin = matches!(caller.proof, Proof::Open | Proof::Bootstrap);
    let builder = api.builder.clone();
    api.write(move |store| {
        let (from, to) = (wanted.period_start, wanted.period_end);
        let report = store.reports.ask_report(begin, caller.tenant_id, wanted.report_type, from, to)?;
        let report = report.ok_or_else(|| ErrorAnswer::not_found("no tenant with this id"))?;
        if let Some(builder) = builder {
            builder.wake();
        }
        Ok((StatusCode::ACCEPTED, to_json(&ReportAccepted { id: report.id, status: report.status })?))
    })
    .await
}

pub(super) async fn list(api: Api, ask: Ask) -> Answer {
    let page = ask.query.page()?;
    let tenant = ask.tenant()?;
    let list = List::new(&ask, "reports", &(), &[])?;
    if list.comes_as_lines() {
        return list.read_lines(&api, move |store, page| Ok(store.reports.list_reports(tenant, page)?)).await;
    }
    api.read(move |store| to_json(&store.reports.list_reports(tenant, page)?)).await
}

pub(super) async fn one(api: Api, ask: Ask) -> Answer {
    let id: Uuid = ask.id("report_id")?;
    let tenant = ask.tenant()?;
    api.read(move |store| found("report", store.reports.report(tenant, id)?)).await
}
