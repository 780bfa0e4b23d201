//! `/api/v1/spans` and `/api/v1/security/findings`: spans by filter, one span, and those with something found.

use weir_config::vocab::SpanId;

use super::ask::Ask;
use super::query;
use super::route::Answer;
use super::shown::SpanShown;
use super::state::{Api, found, to_json};

pub(super) async fn list(api: Api, ask: Ask) -> Answer {
    let (filter, page) = query::span_list(&ask.query)?;
    let tenant = ask.tenant()?;
    api.read(move |store| to_json(&store.spans.list_spans(tenant, &filter, page)?)).await
}

pub(super) async fn one(api: Api, ask: Ask) -> Answer {
    let span: SpanId = ask.id("span_id")?;
    let tenant = ask.tenant()?;
    api.read(move |store| found("span", store.spans.span(tenant, span)?.as_ref().map(SpanShown::of))).await
}

pub(super) async fn findings(api: Api, ask: Ask) -> Answer {
    let page = ask.query.page()?;
    let tenant = ask.tenant()?;
    api.read(move |store| to_json(&store.spans.list_findings(tenant, page)?)).await
}
