//! `/api/v1/alerts`: what channels were told, and that somebody knows of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::StatusCode;
use uuid::Uuid;
use weir_config::vocab::Severity;
use weir_storage::AlertBook;
use weir_storage::alerts::{AlertFilter, AlertState};
use weir_storage::audit::AuditEvent;

use super::ask::Ask;
use super::error::ErrorAnswer;
use super::listed::List;
use super::query::{ALERT_STATES, SEVERITIES};
use super::route::Answer;
use super::state::{Api, found, to_json};

fn book(api: &Api) -> Result<Arc<dyn AlertBook>, ErrorAnswer> {
    api.alerts.clone().ok_or_else(ErrorAnswer::storage_unavailable)
}

pub(super) async fn list(api: Api, ask: Ask) -> Answer {
    let state = ask.query.word("state", ALERT_STATES)?;
    let severity = ask.query.word("severity", SEVERITIES)?;
    let filter = AlertFilter {
        state: state.and_then(|name| AlertState::ALL.into_iter().find(|state| state.as_str() == name)),
        finding_type: ask.query.text("finding_type")?,
        severity: severity.and_then(|name| name.parse::<Severity>().ok()),
    };
    let (page, tenant, book) = (ask.query.page()?, ask.tenant()?, book(&api)?);
    let list = List::new(&ask, "alerts", &filter, &[])?;
    if list.comes_as_lines() {
        return list.read_lines(&api, move |_, page| Ok(book.list_alerts(tenant, &filter, page)?)).await;
    }
    api.read(move |_| to_json(&book.list_alerts(tenant, &filter, page)?)).await
}

pub(super) async fn acknowledge(api: Api, ask: Ask) -> Answer {
    let (tenant, id, book) = (ask.tenant()?, ask.id("alert_id")?, book(&api)?);
    let by = event(&ask, "alert.ack", id)?;
    api.write(move |_| Ok((StatusCode::OK, found("alert", book.acknowledge_alert(tenant, id, by)?)?))).await
}

/// Has its channel told once more.
pub(super) async fn redeliver(api: Api, ask: Ask) -> Answer {
    let (tenant, id, book) = (ask.tenant()?, ask.id("alert_id")?, book(&api)?);
    let by = event(&ask, "alert.redeliver", id)?;
    api.write(move |_| Ok((StatusCode::ACCEPTED, found("alert", book.redeliver_alert(tenant, id, by)?)?))).await
}

fn event(ask: &Ask, action: &str, id: Uuid) -> Result<AuditEvent, ErrorAnswer> {
    Ok(AuditEvent {
        tenant: Some(ask.tenant()?),
        actor: ask.caller()?.actor().into_owned(),
        action: action.to_owned(),
        target: Some(id.to_string()),
        detail: BTreeMap::new(),
    })
}
