//! What the actions of the router need beside their names.

use super::layers::Layers;
use super::secrets::{NO_SIGNING_SECRET, NO_URL, is_signing_secret, is_url};
use crate::error::{Place, Violation};
use crate::settings::{EnforcementMode, IpBlock, RouterAction, Settings};

const TTL: &str = "action_router.ip_block.ttl_seconds";
const OFFENSES: &str = "action_router.ip_block.max_offenses";

/// Hands the rules that act on requests to enforcement, and refuses actions that could never be taken.
pub(super) fn settle(settings: &mut Settings, layers: &mut Layers) {
    let router = &settings.action_router;
    if let Some(url) = &router.webhook.url
        && !is_url(url.expose())
    {
        refuse(layers, "action_router.webhook.url", NO_URL, "correct it");
    }
    if let Some(secret) = &router.webhook.secret
        && !is_signing_secret(secret.expose())
    {
        refuse(layers, "action_router.webhook.secret", NO_SIGNING_SECRET, "correct it");
    }
    // Also while the router is off: a flag may switch it on at any time.
    if router.names(RouterAction::Webhook) && router.webhook.url.is_none() {
        let problem = "is empty, and `action_router` names the action `webhook`";
        refuse(layers, "action_router.webhook.url", problem, "name its receiver, or take the action out");
    }
    let IpBlock { ttl_seconds, max_offenses, .. } = router.ip_block;
    for (path, count) in [(TTL, ttl_seconds), (OFFENSES, max_offenses.into())] {
        if router.enabled && count == 0 {
            refuse(layers, path, "got 0 while `action_router.enabled` is true", "set it to 1 or more, or leave it out");
        }
    }
    warn(settings, layers);
    let acts = settings.action_router.may(RouterAction::Flag) || settings.action_router.may(RouterAction::Block);
    settings.enforcement.router = acts.then(|| settings.action_router.clone().into());
}

/// What will do nothing says so.
fn warn(settings: &Settings, layers: &mut Layers) {
    let router = &settings.action_router;
    if router.may(RouterAction::Alert) && (!settings.alerts.enabled || settings.alerts.effective().is_empty()) {
        let said = "action_router: the action `alert` sends nothing: `alerts.enabled` is false, or there is no channel";
        layers.warnings.push(said.to_owned());
    }
    if router.may(RouterAction::JudgeRoute) && !settings.judge.enabled {
        let said = "action_router: the action `judge_route` does nothing while `judge.enabled` is false";
        layers.warnings.push(said.to_owned());
    }
    if settings.enforcement.mode == EnforcementMode::Log {
        for action in [RouterAction::Flag, RouterAction::Block].into_iter().filter(|action| router.may(*action)) {
            layers.warnings.push(format!(
                "action_router: the action `{}` is never taken while `enforcement.mode` is log; it is recorded only",
                action.as_str()
            ));
        }
    }
}

fn refuse(layers: &mut Layers, path: &'static str, problem: &str, advice: &str) {
    let written = layers.written.get(path).or_else(|| layers.written.get("action_router.enabled"));
    layers.violations.push(Violation {
        place: written.map_or(Place::Variable(path), |written| written.place.clone()),
        path: Some(path.to_owned()),
        problem: problem.to_owned(),
        accepted: None,
        advice: advice.to_owned(),
    });
}
