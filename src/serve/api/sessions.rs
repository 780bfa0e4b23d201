//! `/api/v1/sessions`: the sessions that clients name, with what they used.

use super::ask::Ask;
use super::listed::List;
use super::query;
use super::route::Answer;
use super::state::Api;

pub(super) async fn list(api: Api, ask: Ask) -> Answer {
    let (filter, tenant) = (query::session_filter(&ask.query)?, ask.tenant()?);
    let list = List::new(&ask, "sessions", &filter, &[])?;
    list.read(&api, move |store, page| store.spans.list_sessions(tenant, &filter, page)).await
}
