//! The stage that holds a caller to the operations it may do, and to the objects its tenant has made: with the operator's provider key,
//! which opens the whole account, nobody reads or deletes what another tenant has there. It stands behind the question which models
//! are allowed, and waits for the store where a request names an object that memory does not know.

use std::time::Duration;

use smallvec::SmallVec;

use super::allow::Allowed;
use super::exchange::{Exchange, Stopped};
use super::look::Pending;
use crate::admit::operations::{Operations, Verdict};
use crate::exchange::{Family, KnownOperation, Payload, Refusal, Scope, operation};
use crate::process::Core;
use crate::rt;
use crate::settle::made::{Maker, Makes};
use crate::settle::text::RequestText;
use crate::wire::ResponseHead;

/// How long the store may take to say whose an object is.
const STORE_LIMIT: Duration = Duration::from_secs(5);

/// A request whose sender may do what it asks for.
pub(super) struct Permitted(Allowed);

impl Permitted {
    /// See [`Allowed::into_parts`].
    pub(super) fn into_parts(self) -> (Box<Exchange>, Payload, Option<Box<Pending>>) {
        self.0.into_parts()
    }
}

type Lists = SmallVec<[Operations; 2]>;

/// Lets the request go on, or says what its sender may do.
pub(super) async fn permit(core: &Core, allowed: Allowed) -> Result<Permitted, Stopped> {
    let exchange = allowed.exchange();
    if !exchange.is_lent && !exchange.lists_operations() {
        return Ok(Permitted(allowed));
    }
    match Box::pin(judge(core, exchange)).await {
        Ok(makes) => {
            let mut allowed = allowed;
            allowed.exchange_mut().makes = makes;
            Ok(Permitted(allowed))
        }
        Err(refusal) => {
            let (exchange, ..) = allowed.into_parts();
            Err(Stopped { exchange, why: refusal.into() })
        }
    }
}

/// Holds a message of a WebSocket to the objects that its tenant has made.
pub(super) async fn permit_turn(core: &Core, exchange: &Exchange) -> Result<(), Refusal> {
    if !exchange.is_lent {
        return Ok(());
    }
    if !matches!(exchange.journal.inspection.text, RequestText::Read(_)) {
        return Err(foreign(exchange, "objects that cannot be read"));
    }
    let objects = references(exchange, &lists(exchange))?;
    Box::pin(own_all(core, exchange, objects)).await
}

/// What its sender may do is said in these lists; none where it may do everything.
fn lists(exchange: &Exchange) -> Lists {
    let (of_tenant, of_key) = exchange.allowed.as_ref().map_or((None, None), |allowed| allowed.operations());
    let of_tenant = of_tenant.or_else(|| exchange.is_lent.then_some(Operations::LENT));
    of_tenant.into_iter().chain(of_key).collect()
}

async fn judge(core: &Core, exchange: &Exchange) -> Result<Option<Makes>, Refusal> {
    let lists = lists(exchange);
    let known = operation(exchange.head.method(), exchange.head.path());
    let verdicts = lists.iter().map(|list| list.verdict(known.as_ref()));
    let mut is_own_only = false;
    for verdict in verdicts {
        match verdict {
            Verdict::Allowed => {}
            Verdict::IfOwn => is_own_only = true,
            Verdict::Denied => return Err(not_allowed(exchange, known.as_ref())),
        }
    }
    if exchange.is_lent {
        if exchange.head.upgrade_websocket && !exchange.journal.wants_text() {
            return Err(foreign(
                exchange,
                "whatever is said in a WebSocket that nobody reads (records and analysis are off)",
            ));
        }
        let mut objects: Vec<String> = Vec::new();
        if let (true, Some(KnownOperation { scope: Scope::Object(id), .. })) = (is_own_only, &known) {
            objects.push((*id).to_owned());
        }
        objects.extend(references(exchange, &lists)?);
        own_all(core, exchange, objects).await?;
    }
    Ok(known.filter(|_| exchange.is_lent).and_then(|known| makes(exchange, &known)))
}

/// The objects that a body names and its sender may use only if they are its tenant's.
fn references(exchange: &Exchange, lists: &Lists) -> Result<Vec<String>, Refusal> {
    let RequestText::Read(view) = &exchange.journal.inspection.text else { return Ok(Vec::new()) };
    let is_free = |family: Family| lists.iter().all(|list| list.names(family));
    let named = view.references.iter().filter(|(family, _)| !is_free(*family));
    if view.too_many_references && !is_free(Family::Files) {
        return Err(foreign(exchange, "more objects than can be asked for at once"));
    }
    Ok(named.map(|(_, id)| id.clone()).collect())
}

/// Refuses what names an object that the tenant has not made.
async fn own_all(core: &Core, exchange: &Exchange, mut objects: Vec<String>) -> Result<(), Refusal> {
    if objects.is_empty() {
        return Ok(());
    }
    objects.sort_unstable();
    objects.dedup();
    let made = &core.process.parts.policy.objects;
    let tenant = exchange.journal.ids.tenant_id;
    let upstreams = members(exchange);
    let mut unknown = Vec::new();
    for object in objects {
        let mut known = upstreams.iter().filter_map(|upstream| made.is_own(tenant, upstream, &object)).peekable();
        if known.peek().is_none() {
            unknown.push(object);
        } else if !known.any(|is_own| is_own) {
            return Err(foreign(exchange, &format!("`{object}`")));
        }
    }
    if unknown.is_empty() {
        return Ok(());
    }
    let told = made.ask(tenant, upstreams, unknown.clone()).ok_or_else(unanswered)?;
    let Some(Ok(own)) = rt::within(STORE_LIMIT, told).await else { return Err(unanswered()) };
    match unknown.iter().zip(own).find(|(_, is_own)| !is_own) {
        Some((object, _)) => Err(foreign(exchange, &format!("`{object}`"))),
        None => Ok(()),
    }
}

/// The upstreams it may go to.
fn members(exchange: &Exchange) -> Vec<String> {
    let table = &exchange.journal.settings.local_upstreams;
    table.target(exchange.chosen.target).members.iter().map(|at| table.member(*at).name.to_string()).collect()
}

/// What the answer is read for.
fn makes(exchange: &Exchange, known: &KnownOperation<'_>) -> Option<Makes> {
    match (known.family, known.scope) {
        (Family::Batches, Scope::Create | Scope::Object(_)) => Some(Makes::Batch),
        (Family::Files, Scope::Object(_)) if exchange.head.path().ends_with("/complete") => Some(Makes::Upload),
        (Family::Assistants, Scope::Create) if exchange.head.path().ends_with("/runs") => Some(Makes::Run),
        (Family::Files | Family::CachedContents, Scope::Create) => Some(Makes::Named),
        (_, Scope::Create) => Some(Makes::One),
        _ => None,
    }
}

/// Begins to read an answer for what was made, where it says so.
pub(super) fn begin(exchange: &mut Exchange, head: &ResponseHead, is_stream: bool) {
    let Some(makes) = exchange.makes.filter(|_| (200..300).contains(&head.status)) else { return };
    let maker = Maker {
        makes,
        tenant: exchange.journal.ids.tenant_id,
        upstream: exchange.journal.settings.local_upstreams.member(exchange.member).name.to_string(),
        coding: head.get("content-encoding").map(bytes::Bytes::copy_from_slice),
        is_stream,
        buffer: Vec::new(),
        noted: SmallVec::new(),
    };
    exchange.journal.maker = Some(Box::new(maker));
}

fn not_allowed(exchange: &Exchange, known: Option<&KnownOperation<'_>>) -> Refusal {
    let family = known.map_or(Family::Other, |known| known.family).as_str();
    let (method, path) = (exchange.head.method(), exchange.head.path());
    let path: String = path.chars().take(200).collect();
    let why = if exchange.is_lent { "the operator's provider key is not lent for it" } else { "it is not on its list" };
    let message = format!(
        "this tenant or key may not do `{method} {path}`: {why}; it counts as `{family}`, which \
         `access.allowed_operations` in the tenant's `config`, and of a limited key, has to name; a call with a provider key of \
         its own is not held to what is lent"
    );
    refusal(message, family)
}

fn foreign(exchange: &Exchange, what: &str) -> Refusal {
    let what: String = what.chars().take(200).collect();
    let family = operation(exchange.head.method(), exchange.head.path()).map_or(Family::Other, |known| known.family);
    let message = format!(
        "this request names {what}, and this tenant has not made it through this gateway; with the operator's provider key a \
         tenant uses its own objects alone, unless `access.allowed_operations` in its `config` names their kind"
    );
    refusal(message, family.as_str())
}

fn refusal(message: String, family: &str) -> Refusal {
    Refusal::new(403, "operation_not_allowed", message)
        .header("x-should-retry", false)
        .with("operation", family)
        .with("setting", "access.allowed_operations")
}

fn unanswered() -> Refusal {
    let message = "whose object this request names cannot be said while the store does not answer; send it again";
    Refusal::new(503, "storage_unavailable", message).header("Retry-After", 1)
}
