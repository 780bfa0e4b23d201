//! `/api/v1/sessions`: the sessions that clients name, with what they used.

use super::ask::Ask;
use super::listed::List;
use super::query;
use super::route::Answer;
use super::state::Api;

pub(super) async fn list(api: Api, ask: Ask) -> Answer {
    let filter = query::session_filter(&ask.query)?;
    let (page, tenant) = (ask.query.listed_page()?, ask.tenant()?);
    let list = List::new(tenant, "sessions", &filter, ask.query.cursor()?, None);
    api.read(move |store| {
        let page = list.page(store, page)?;
        list.answer(store, store.spans.list_sessions(tenant, &filter, page)?)
    })
    .await
}
