//! `/api/v1/audit`: what was administered, by whom, and whether the log is whole.

use schemars::JsonSchema;
use serde::Serialize;
use weir_storage::audit::{AuditCheck, AuditEntry};
use weir_storage::query::Paged;

use super::ask::Ask;
use super::error::ErrorAnswer;
use super::listed::List;
use super::route::Answer;
use super::state::{Api, to_json};

/// A page of the log and the state of its chain.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct AuditPage {
    #[serde(flatten)]
    page: Paged<AuditEntry>,
    /// What checking the log gave; null with `verify=false`.
    chain: Option<AuditCheck>,
}

pub(super) async fn list(api: Api, ask: Ask) -> Answer {
    let page = ask.query.page()?;
    let tenant = ask.query.id("tenant_id")?;
    let verify = ask.query.flag("verify")?;
    let list = List::new(&ask, "audit", &tenant, &[])?;
    if list.comes_as_lines() {
        if verify.is_some() {
            let message =
                "`verify` does not go with `format=jsonl`, whose lines have no place for what it gives; ask for a page";
            return Err(ErrorAnswer::invalid(message));
        }
        return list.read_lines(&api, move |store, page| Ok(store.audit.list_audit(tenant, page)?)).await;
    }
    api.read(move |store| {
        let page = store.audit.list_audit(tenant, page)?;
        let chain = match verify {
            Some(true) => Some(store.audit.check_audit()?),
            None => Some(store.audit.check_audit_since(&page.data)?),
            Some(false) => None,
        };
        to_json(&AuditPage { page, chain })
    })
    .await
}
