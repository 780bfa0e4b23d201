//! The stage that holds a caller to the models and upstreams it may use. It stands behind the reading of the body, because a
//! model stands there, and before anything is decided, reserved or sent. Costs one branch where nothing is limited.

use std::rc::Rc;

use super::exchange::{Exchange, Stopped};
use super::look::{Inspected, Pending};
use super::steer::path_model;
use crate::exchange::{Payload, Refusal};
use crate::inspect::endpoint_in_path;
use crate::settle::text::RequestText;
use crate::wire::RequestBody;

/// A request whose sender may use the upstream and the models it names.
pub(super) struct Allowed(Inspected);

impl Allowed {
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
    let named = path_model(&exchange.head).or_else(|| endpoint_in_path(exchange.head.path()));
    let (model, others, is_ambiguous) = match &exchange.journal.inspection.text {
        RequestText::Read(view) => (view.model.as_deref(), view.other_models.as_slice(), view.models_differ),
        RequestText::None | RequestText::Raw(_) => (None, &[][..], false),
    };
    let asks_nothing = exchange.head.body == RequestBody::Empty && !exchange.head.upgrade_websocket;
    // A path and a body that name different models: nobody here can say which one the provider takes.
    let others = others.iter().map(String::as_str);
    let names: Vec<&str> = named.as_deref().into_iter().chain(model).chain(others).collect();
    match names.iter().find(|model| !allowed.allows_model(model)) {
        Some(model) => Err(refusal("model_not_allowed", &format!("the model `{model}`"), &allowed.models())),
        None if is_ambiguous => Err(refusal("model_not_allowed", "one of the models it names", &allowed.models())),
        None if names.is_empty() && !asks_nothing => {
            Err(refusal("model_not_allowed", "a request that names no model that can be read", &allowed.models()))
        }
        None => Ok(()),
    }
}

fn refusal(error_type: &'static str, what: &str, lists: &[&[String]]) -> Refusal {
    let lists: Vec<String> = lists.iter().map(|names| format!("[{}]", names.join(", "))).collect();
    let message = format!(
        "this tenant or key may not use {what}; allowed: {}; change the request, or `access` in the tenant's `config`",
        lists.join(" and ")
    );
    Refusal::new(403, error_type, message).header("x-should-retry", false).with("allowed", lists)
}
