//! `/api/v1/traces`: the list and one trace.

use weir_config::vocab::TraceId;

use super::ask::Ask;
use super::query;
use super::route::Answer;
use super::state::{Api, found, to_json};

pub(super) async fn list(api: Api, ask: Ask) -> Answer {
    let (filter, page) = query::trace_list(&ask.query)?;
    let tenant = ask.tenant()?;
    api.read(move |records| to_json(&records.list_traces(tenant, &filter, page)?)).await
}

pub(super) async fn one(api: Api, ask: Ask) -> Answer {
    let trace: TraceId = ask.id("trace_id")?;
    let tenant = ask.tenant()?;
    api.read(move |records| found("trace", records.trace(tenant, trace)?)).await
}
