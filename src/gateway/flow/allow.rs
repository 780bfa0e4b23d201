//! The stage that holds a caller to the models and upstreams it may use. It stands behind the reading of the body, because a
//! model stands there, and before anything is decided, reserved or sent. Costs one branch where nothing is limited.
//!
//! Invariant: under a list of models only operations that are known pass, each by its place of the model. Two servers that read a
//! request differently would be asked for two models, so what is spelt unusually, unreadable or cut names none.

use std::rc::Rc;

use super::exchange::{Exchange, Stopped};
use super::look::{Inspected, Pending};
use super::speaks::Speaks;
use super::steer::path_model;
use crate::admit::access::Allowed as Granted;
use crate::exchange::{ModelPlace, Payload, Refusal, operation};
use crate::inspect::{RequestView, endpoint_in_path, models_in_query};
use crate::settle::text::RequestText;

/// A request whose sender may use the upstream and the models it names.
pub(super) struct Allowed(Inspected);

impl Allowed {
    pub(super) fn exchange(&self) -> &Exchange {
        self.0.exchange()
    }

    pub(super) fn exchange_mut(&mut self) -> &mut Exchange {
        self.0.exchange_mut()
    }

    /// See [`Inspected::into_parts`].
    pub(super) fn into_parts(self) -> (Box<Exchange>, Payload, Option<Box<Pending>>) {
        self.0.into_parts()
    }
}

/// Lets the request go on, or says what its sender may use.
pub(super) fn allow(inspected: Inspected) -> Result<Allowed, Stopped> {
    match judge(inspected.exchange()) {
        Ok(()) => Ok(Allowed(inspected)),
        Err(refusal) => {
            let (exchange, ..) = inspected.into_parts();
            Err(Stopped { exchange, why: refusal.into() })
        }
    }
}

fn judge(exchange: &Exchange) -> Result<(), Refusal> {
    let Some(allowed) = &exchange.allowed else { return Ok(()) };
    let settings = Rc::clone(&exchange.journal.settings);
    let table = &settings.local_upstreams;
    let target = table.target(exchange.chosen.target);
    let mut members = target.members.iter().map(|at| &table.member(*at).name);
    // A group goes by its name, or by the names of its members where all of them may be used.
    if !allowed.allows_upstream(&target.name) && !members.all(|name| allowed.allows_upstream(name)) {
        return Err(refusal("upstream_not_allowed", &format!("the upstream `{}`", target.name), &allowed.upstreams()));
    }
    if !allowed.limits_models() {
        return Ok(());
    }
    judge_models(exchange, allowed).map_err(|what| refusal("model_not_allowed", &what, &allowed.models()))
}

/// Holds a message of a WebSocket to the list of models. One that asks for an answer on its own names its model, as a request does.
pub(super) fn judge_turn(exchange: &Exchange, names_model: bool) -> Result<(), Refusal> {
    let Some(allowed) = exchange.allowed.as_ref().filter(|allowed| allowed.limits_models()) else { return Ok(()) };
    let refused = |what: &str| Err(refusal("model_not_allowed", what, &allowed.models()));
    let RequestText::Read(view) = &exchange.journal.inspection.text else {
        return refused("a message whose model cannot be read");
    };
    if !view.models_are_plain() || names_model && view.model.is_none() {
        return refused("a message that names no model that can be read for sure");
    }
    match names_in(view).find(|name| !allows(allowed, name)) {
        Some(model) => refused(&format!("the model `{model}`")),
        None => Ok(()),
    }
}

/// Holds it to a list of models; what its sender may not use where it may not.
fn judge_models(exchange: &Exchange, allowed: &Granted) -> Result<(), String> {
    let head = &exchange.head;
    let view = match &exchange.journal.inspection.text {
        RequestText::Read(view) => Some(&**view),
        RequestText::None | RequestText::Raw(_) => None,
    };
    let mut names: Vec<String> = path_model(head).or_else(|| endpoint_in_path(head.path())).into_iter().collect();
    let in_query = models_in_query(head.query());
    names.extend(view.into_iter().flat_map(names_in).map(str::to_owned));
    names.extend(in_query.iter().cloned());
    let known = operation(head.method(), head.path());
    let place = known.as_ref().map(|known| known.model.clone());
    if let Some(ModelPlace::Path(name)) = &place {
        names.push(name.clone());
    }
    if let Some(model) = names.iter().find(|name| !allows(allowed, name)) {
        return Err(format!("the model `{model}`"));
    }
    let (Some(place), Some(known)) = (place, known) else {
        return Err(
            "an operation that is not known here, or that is spelt unusually: no list can be held against it".into()
        );
    };
    // A body is there to be read, or there is none.
    let is_plain = view.is_none_or(RequestView::models_are_plain);
    let in_body = view.and_then(|view| view.model.as_deref()).is_some();
    let is_named = match place {
        ModelPlace::Body => in_body,
        ModelPlace::Each => view.is_some_and(|view| !view.other_models.is_empty()),
        ModelPlace::Path(_) => true,
        ModelPlace::Query => in_query.len() == 1,
        ModelPlace::Nowhere => true,
        // Its messages are held to the list one by one, where they are read.
        ModelPlace::Unread if head.upgrade_websocket && Speaks::of(head) == Some(Speaks::Responses) => {
            exchange.journal.wants_text()
        }
        ModelPlace::Unread => allowed.names_operations(known.family),
    };
    match (is_plain, is_named) {
        (false, _) => {
            Err("a request whose models cannot be read for sure: its body is unreadable, too long to be read, or \
                           names a model twice or as something else than a name"
                .into())
        }
        (true, false) if place == ModelPlace::Unread => {
            let family = known.family.as_str();
            Err(format!("an operation whose models nobody here reads, unless `allowed_operations` names `{family}`"))
        }
        (true, false) => Err("a request that names no model that can be read".into()),
        (true, true) => Ok(()),
    }
}

/// The models that a body names, in all its places.
fn names_in(view: &RequestView) -> impl Iterator<Item = &str> {
    view.model.iter().chain(&view.other_models).map(String::as_str)
}

/// Whether a model may be used by its name, or by that of the resource (`models/<name>`).
fn allows(allowed: &Granted, name: &str) -> bool {
    allowed.allows_model(name) || name.strip_prefix("models/").is_some_and(|name| allowed.allows_model(name))
}

fn refusal(error_type: &'static str, what: &str, lists: &[&[String]]) -> Refusal {
    let lists: Vec<String> = lists.iter().map(|names| format!("[{}]", names.join(", "))).collect();
    let message = format!(
        "this tenant or key may not use {what}; allowed: {}; change the request, or `access` in the tenant's `config`",
        lists.join(" and ")
    );
    Refusal::new(403, error_type, message).header("x-should-retry", false).with("allowed", lists)
}
