//! `/api/v1/stats`: a tenant's records in sum.

use super::ask::Ask;
use super::route::Answer;
use super::state::{Api, to_json};

pub(super) async fn show(api: Api, ask: Ask) -> Answer {
    let tenant = ask.tenant()?;
    api.read(move |store| to_json(&store.spans.stats(tenant)?)).await
}
