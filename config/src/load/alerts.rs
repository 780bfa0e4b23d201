//! What the channels of alerts need beside their type: an address, a key, a secret that can be read.

use super::layers::Layers;
use super::secrets::{NO_SIGNING_SECRET, NO_URL, is_signing_secret, is_url};
use crate::error::Violation;
use crate::settings::{AlertChannel, AlertKind, Alerts, CHANNELS_MAX, MailUrl, Settings};

/// Refuses channels that could never be told anything; alerts without channels are a warning.
pub(super) fn settle(settings: &Settings, layers: &mut Layers) {
    let alerts = &settings.alerts;
    if alerts.enabled && alerts.effective().is_empty() {
        layers.warnings.push("alerts.enabled: there is no channel to send alerts to; set `alerts.channels`".to_owned());
    }
    if alerts.channels.len() > CHANNELS_MAX {
        let problem = format!("{} channels are more than {CHANNELS_MAX}", alerts.channels.len());
        refuse(layers, "alerts.channels", "alerts.channels".to_owned(), problem, "take some out");
    }
    if alerts.webhook_url.as_ref().is_some_and(|url| !is_url(url.expose())) {
        refuse(layers, "alerts.webhook_url", "alerts.webhook_url".to_owned(), NO_URL.to_owned(), "correct it");
    }
    if alerts.enabled && alerts.escalate_after_seconds.is_some() {
        layers.warnings.extend(dead_ends(alerts));
    }
    for (index, channel) in alerts.channels.iter().enumerate() {
        let path = |field: &str| format!("alerts.channels[{index}].{field}");
        if let Some((field, problem)) = fault(channel) {
            refuse(layers, "alerts.channels", path(field), problem.to_owned(), "correct it");
        }
    }
}

/// Channels whose alerts nobody else hears of, however long they wait.
fn dead_ends(alerts: &Alerts) -> Vec<String> {
    let channels = alerts.effective();
    let ends = (0..channels.len()).filter(|place| Alerts::next_higher(&channels, *place).is_none());
    let said = |place| {
        format!(
            "alerts.escalation: no channel has a higher `min_severity` than alerts.channels[{place}]: what no one acknowledges \
             there goes nowhere else"
        )
    };
    ends.map(said).collect()
}

/// The first thing that is wrong with a channel: the field and why. Never the value, which may be a credential.
fn fault(channel: &AlertChannel) -> Option<(&'static str, &'static str)> {
    let AlertChannel { kind, url, routing_key, secret, .. } = channel;
    let problem = url.as_ref().and_then(|url| match kind {
        AlertKind::Email => MailUrl::parse(url.expose()).err(),
        _ => (!is_url(url.expose())).then_some(NO_URL),
    });
    if let Some(problem) = problem {
        return Some(("url", problem));
    }
    if url.is_none() && *kind != AlertKind::PagerDuty {
        return Some(("url", "is needed by this type"));
    }
    let is_key = |key: &[u8]| key.len() == 32 && key.iter().all(u8::is_ascii_alphanumeric);
    match (kind, routing_key, secret) {
        (AlertKind::PagerDuty, None, _) => Some(("routing_key", "is needed by this type")),
        (AlertKind::PagerDuty, Some(key), _) if !is_key(key.expose()) => {
            Some(("routing_key", "has to be 32 letters and digits"))
        }
        (AlertKind::Webhook | AlertKind::Slack | AlertKind::Email, Some(_), _) => {
            Some(("routing_key", "is for the type pagerduty only"))
        }
        (AlertKind::Slack | AlertKind::PagerDuty | AlertKind::Email, _, Some(_)) => {
            Some(("secret", "is for the type webhook only"))
        }
        (AlertKind::Webhook, _, Some(secret)) if !is_signing_secret(secret.expose()) => {
            Some(("secret", NO_SIGNING_SECRET))
        }
        _ => None,
    }
}

fn refuse(layers: &mut Layers, setting: &'static str, path: String, problem: String, advice: &str) {
    let Some(written) = layers.written.get(setting) else { return };
    let place = written.place.clone();
    let advice = advice.to_owned();
    layers.violations.push(Violation { place, path: Some(path), problem, accepted: None, advice });
}
