//! `/api/v1/traces`: the list, one trace, and its end.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use http::StatusCode;
use weir_config::vocab::{Timestamp, TraceId};
use weir_storage::audit::AuditEvent;

use super::ask::Ask;
use super::error::ErrorAnswer;
use super::listed::{List, names_of, some_of};
use super::query;
use super::route::Answer;
use super::shown::{SpanShown, TraceShown};
use super::state::{Api, found, nothing, patiently, to_json};

/// A client that asks for a trace whose id is no older than this, in seconds, gets it as soon as it is committed.
const FRESH_S: u64 = 2;

/// What `fields` may name.
fn known() -> &'static [String] {
    static FIELDS: OnceLock<Vec<String>> = OnceLock::new();
    FIELDS.get_or_init(|| {
        let below = names_of::<SpanShown<'_>>().into_iter().map(|name| format!("spans.{name}"));
        names_of::<TraceShown<'_>>().into_iter().chain(below).collect()
    })
}

pub(super) async fn list(api: Api, ask: Ask) -> Answer {
    let (filter, tenant) = (query::trace_filter(&ask.query)?, ask.tenant()?);
    let list = List::new(&ask, "traces", &filter, known())?;
    list.read(&api, move |store, page| store.spans.list_traces(tenant, &filter, page)).await
}

pub(super) async fn one(api: Api, ask: Ask) -> Answer {
    let trace: TraceId = ask.id("trace_id")?;
    let tenant = ask.tenant()?;
    let fields = ask.query.fields(known())?;
    let read = || {
        let fields = fields.clone();
        api.read(move |store| {
            let record = store.spans.trace(tenant, trace)?;
            match (&record, &fields) {
                (Some(record), Some(fields)) => to_json(&some_of(record, fields)?),
                _ => found("trace", record.as_ref().map(TraceShown::of)),
            }
        })
    };
    if is_fresh(trace, Timestamp::now()) { patiently(read).await } else { read().await }
}

pub(super) async fn delete(api: Api, ask: Ask) -> Answer {
    let trace: TraceId = ask.id("trace_id")?;
    let (tenant, actor) = (ask.tenant()?, ask.caller()?.actor().into_owned());
    let by = AuditEvent {
        tenant: Some(tenant),
        actor,
        action: "trace.delete".to_owned(),
        target: Some(trace.to_string()),
        detail: BTreeMap::new(),
    };
    api.write(move |store| {
        if store.spans.delete_trace(tenant, trace, by)? {
            Ok((StatusCode::NO_CONTENT, Vec::new()))
        } else {
            Err(ErrorAnswer::not_found("no trace with this id"))
        }
    })
    .await
    .map(|_| nothing())
}

/// Whether the id says that its trace began a moment ago (UUID v7).
fn is_fresh(trace: TraceId, now: Timestamp) -> bool {
    let seconds = trace.uuid().get_timestamp().map(|made| made.to_unix().0);
    let now_s = u64::try_from(now.micros() / 1_000_000).unwrap_or(0);
    seconds.is_some_and(|made_s| now_s.abs_diff(made_s) <= FRESH_S)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_fresh_for_two_seconds() {
        let at = |seconds: i64| Timestamp::from_micros(seconds * 1_000_000);
        let trace = TraceId::fresh_at(at(1_700_000_000));
        for (now, expected) in [(0, true), (2, true), (3, false), (-3, false)] {
            assert_eq!(is_fresh(trace, at(1_700_000_000 + now)), expected, "{now}");
        }
        let foreign: TraceId = "0af76519-16cd-43dd-8448-eb211c80319c".parse().unwrap();
        assert!(!is_fresh(foreign, at(1_700_000_000)));
    }
}
