//! Which upstream or group a request goes to, and what that says of its provider. Settled by the head alone, or once more when
//! its body has been read for the sake of its model.

use weir_config::Settings;
use weir_config::vocab::{Dialect, Operation, Provider};

use super::exchange::Exchange;
use crate::exchange::Refusal;
use crate::inspect::{self, Route};
use crate::money::list_name_of_host;
use crate::process::InEffect;
use crate::settle::text::RequestText;
use crate::upstreams::{Asked, Chosen, Model, UpstreamTable, addressed};
use crate::wire::{RequestBody, RequestHead};

/// What a request's provider is called, and whose prices hold where those are not its own.
pub(super) struct Named {
    pub(super) route: Route,
    pub(super) priced_as: Option<Provider>,
}

/// Where a request goes as far as its head says. Takes the address of an upstream out of its path.
pub(super) fn at_first(table: &UpstreamTable, head: &mut RequestHead) -> Chosen {
    if table.is_alone {
        return Chosen::default();
    }
    if let Some((name, rest)) = addressed(head.path()) {
        let nobody = Chosen { is_nobody: true, ..Chosen::default() };
        let chosen = if rest.is_empty() { nobody } else { table.named(name) };
        if !chosen.is_nobody {
            head.strip_path(head.path().len() - rest.len());
        }
        return chosen;
    }
    let named = if table.asks_models() { path_model(head) } else { None };
    let model = match &named {
        Some(model) => Model::Named(model),
        None if head.body == RequestBody::Empty => Model::None,
        None => Model::Unread,
    };
    table.choose(&asked(head, model))
}

/// The model that the address names.
pub(super) fn path_model(head: &RequestHead) -> Option<String> {
    let path = head.path();
    inspect::model_in_path(path).or_else(|| inspect::model_in_query(path, head.query()))
}

/// Where a request goes whose body has been read.
pub(super) fn with_model(exchange: &mut Exchange) {
    let settings = std::rc::Rc::clone(&exchange.journal.settings);
    let model = match &exchange.journal.inspection.text {
        RequestText::Read(view) => view.model.as_deref().map_or(Model::None, Model::Named),
        RequestText::None | RequestText::Raw(_) => Model::None,
    };
    exchange.chosen = settings.local_upstreams.choose(&asked(&exchange.head, model));
    let Named { route, priced_as } = named(&settings, &exchange.head, &exchange.chosen);
    // How the body is read does not change behind its reading.
    exchange.route.provider = route.provider.clone();
    exchange.journal.goes_to(route.provider, priced_as);
}

/// Whom a call pays that another member of its group has answered than the one it was meant for.
pub(super) fn answered_by_member(exchange: &mut Exchange) {
    let settings = std::rc::Rc::clone(&exchange.journal.settings);
    let table = &settings.local_upstreams;
    let target = table.target(exchange.chosen.target);
    if target.is_of_its_members && target.members.first() != Some(&exchange.member) {
        let member = Chosen { target: table.alone(exchange.member), ..exchange.chosen };
        let Named { route, priced_as } = named(&settings, &exchange.head, &member);
        exchange.journal.goes_to(route.provider, priced_as);
    }
}

fn asked<'a>(head: &'a RequestHead, model: Model<'a>) -> Asked<'a> {
    Asked { path: head.path(), provider: forced(head), dialect: dialect(head), model }
}

/// Whose dialect a request is. `/v1/models` and `/v1/files` are several providers' paths; their clients' fields tell.
fn dialect(head: &RequestHead) -> Option<&'static str> {
    let with = |field, provider| head.get(field).is_some().then_some(provider);
    inspect::provider_of_path(head.path())
        .or_else(|| with("anthropic-version", "anthropic"))
        .or_else(|| with("x-goog-api-key", "gemini"))
}

fn forced(head: &RequestHead) -> Option<&str> {
    head.get("x-service-provider").and_then(|value| std::str::from_utf8(value).ok())
}

/// Refuses the address of an upstream that is not there.
pub(super) fn refuse_unknown(settings: &InEffect, exchange: &Exchange) -> Result<(), Refusal> {
    if !exchange.chosen.is_nobody {
        return Ok(());
    }
    let names = settings.local_upstreams.names();
    let message = format!(
        "no upstream answers at this address; use /upstream/<name>/<path of the provider>, where the name is one of {}",
        names.join(", ")
    );
    Err(Refusal::new(404, "upstream_not_found", message).with("upstreams", names))
}

/// The provider and the operation of a request that goes to `chosen`. What the operator says an upstream serves counts more
/// than what a client or a path says.
pub(super) fn named(settings: &InEffect, head: &RequestHead, chosen: &Chosen) -> Named {
    let table = &settings.local_upstreams;
    let mut target = table.target(chosen.target);
    if target.is_of_its_members {
        target = table.target(table.alone(target.members.first().copied().unwrap_or_default()));
    }
    let Some(first) = target.providers.first() else {
        let member = table.member(target.members.first().copied().unwrap_or_default());
        return by_head(settings, head, (&member.endpoint.host, !table.is_alone));
    };
    let served = |said: Provider| if target.providers.contains(&said) { said } else { first.clone() };
    let (by_path, forced) = (inspect::route(None, head.path(), ""), forced(head));
    let priced_as = (forced.is_some() && !is_trusted(settings)).then(|| served(by_path.provider.clone()));
    let said = forced.map_or_else(|| by_path.provider.clone(), |name| Provider::named(name.trim()));
    let provider = served(said);
    let is_same = provider == by_path.provider;
    let route = if is_same { by_path } else { inspect::route(Some(provider.as_str()), head.path(), "") };
    Named { route, priced_as }
}

fn by_head(settings: &Settings, head: &RequestHead, (host, has_others): (&str, bool)) -> Named {
    let route = route(host, head);
    let untrusted = !is_trusted(settings) && head.get("x-service-provider").is_some();
    let priced_as = untrusted.then(|| inspect::route(None, head.path(), host).provider);
    // Beside other upstreams the names of this host's models are its own matter.
    let paid = priced_as.as_ref().unwrap_or(&route.provider);
    let listed = (has_others && *paid == Provider::OPENAI).then(|| list_name_of_host(host)).flatten();
    Named { priced_as: listed.map(Provider::named).or(priced_as), route }
}

/// Whether a client says what a call costs: one with a credential says who answers, and no more.
fn is_trusted(settings: &Settings) -> bool {
    !settings.auth.enabled || settings.cost_estimation.trust_provider_header
}

/// Where a request goes and what it is, as far as its head and the upstream's host say.
pub(super) fn route(host: &str, head: &RequestHead) -> Route {
    let forced = forced(head);
    let mut route = inspect::route(forced, head.path(), host);
    // `/v1/models` and `/v1/files` are several providers' paths; only the clients of one say which version they speak.
    if matches!(route.operation, Operation::ListModels | Operation::Proxy)
        && route.provider == Provider::OPENAI
        && forced.is_none()
        && head.get("anthropic-version").is_some()
    {
        (route.provider, route.dialect) = (Provider::ANTHROPIC, Dialect::Messages);
    }
    route
}
