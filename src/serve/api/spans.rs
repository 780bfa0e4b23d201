//! `/api/v1/spans` and `/api/v1/security/findings`: spans by filter, one span, and those with something found.

use std::sync::OnceLock;

use weir_config::vocab::SpanId;

use super::ask::Ask;
use super::listed::{List, names_of, some_of};
use super::query;
use super::route::Answer;
use super::shown::SpanShown;
use super::state::{Api, found, to_json};

/// What `fields` may name.
fn known() -> &'static [String] {
    static FIELDS: OnceLock<Vec<String>> = OnceLock::new();
    FIELDS.get_or_init(names_of::<SpanShown<'static>>)
}

pub(super) async fn list(api: Api, ask: Ask) -> Answer {
    let (filter, tenant) = (query::span_filter(&ask.query)?, ask.tenant()?);
    let list = List::new(&ask, "spans", &filter, known())?;
    list.read(&api, move |store, page| store.spans.list_spans(tenant, &filter, page)).await
}

pub(super) async fn one(api: Api, ask: Ask) -> Answer {
    let span: SpanId = ask.id("span_id")?;
    let tenant = ask.tenant()?;
    let fields = ask.query.fields(known())?;
    api.read(move |store| {
        let record = match span.as_w3c() {
            Some(id) => store.spans.span_by_w3c(tenant, id)?,
            None => store.spans.span(tenant, span)?,
        };
        match (&record, &fields) {
            (Some(record), Some(fields)) => to_json(&some_of(record, fields)?),
            _ => found("span", record.as_ref().map(SpanShown::of)),
        }
    })
    .await
}

pub(super) async fn findings(api: Api, ask: Ask) -> Answer {
    let tenant = ask.tenant()?;
    let list = List::new(&ask, "findings", &(), known())?;
    list.read(&api, move |store, page| store.spans.list_findings(tenant, page)).await
}
