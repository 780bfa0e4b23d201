//! `/api/v1/spans` and `/api/v1/security/findings`: spans by filter, one span, and those with something found.

use std::sync::OnceLock;

use weir_config::vocab::SpanId;
use weir_storage::record::SpanRecord;

use super::ask::Ask;
use super::listed::{List, names_of};
use super::query;
use super::route::Answer;
use super::shown::SpanShown;
use super::state::{Api, found};

/// What `fields` may name.
fn known() -> &'static [String] {
    static FIELDS: OnceLock<Vec<String>> = OnceLock::new();
    FIELDS.get_or_init(names_of::<SpanRecord>)
}

pub(super) async fn list(api: Api, ask: Ask) -> Answer {
    let filter = query::span_filter(&ask.query)?;
    let (page, tenant) = (ask.query.listed_page()?, ask.tenant()?);
    let list = List::new(tenant, "spans", &filter, ask.query.cursor()?, ask.query.fields(known())?);
    api.read(move |store| {
        let page = list.page(store, page)?;
        list.answer(store, store.spans.list_spans(tenant, &filter, page)?)
    })
    .await
}

pub(super) async fn one(api: Api, ask: Ask) -> Answer {
    let span: SpanId = ask.id("span_id")?;
    let tenant = ask.tenant()?;
    api.read(move |store| found("span", store.spans.span(tenant, span)?.as_ref().map(SpanShown::of))).await
}

pub(super) async fn findings(api: Api, ask: Ask) -> Answer {
    let (page, tenant) = (ask.query.listed_page()?, ask.tenant()?);
    let list = List::new(tenant, "findings", &(), ask.query.cursor()?, ask.query.fields(known())?);
    api.read(move |store| {
        let page = list.page(store, page)?;
        list.answer(store, store.spans.list_findings(tenant, page)?)
    })
    .await
}
