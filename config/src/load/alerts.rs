//! What the channels of alerts need beside their type: an address, a key, a secret that can be read.

use super::error::Violation;
use super::layers::Layers;
use crate::settings::{AlertChannel, AlertKind, CHANNELS_MAX, Settings};

/// Refuses channels that could never be told anything; alerts without channels are a warning.
pub(super) fn settle(settings: &Settings, layers: &mut Layers) {
    let alerts = &settings.alerts;
    if alerts.enabled && alerts.effective().is_empty() {
        layers
            .warnings
            .push("alerts.enabled: there is no channel that could be told; set `alerts.channels`".to_owned());
    }
    if alerts.channels.len() > CHANNELS_MAX {
        let problem = format!("{} channels are more than {CHANNELS_MAX}", alerts.channels.len());
        refuse(layers, "alerts.channels", "alerts.channels".to_owned(), problem, "take some out");
    }
    if alerts.webhook_url.as_ref().is_some_and(|url| !is_url(url.expose())) {
        refuse(layers, "alerts.webhook_url", "alerts.webhook_url".to_owned(), NO_URL.to_owned(), "correct it");
    }
    for (index, channel) in alerts.channels.iter().enumerate() {
        let path = |field: &str| format!("alerts.channels[{index}].{field}");
        if let Some((field, problem)) = fault(channel) {
            refuse(layers, "alerts.channels", path(field), problem.to_owned(), "correct it");
        }
    }
}

const NO_URL: &str = "has to be a whole http:// or https:// URL";

/// The first thing that is wrong with a channel: the field and why. Never the value, which may be a credential.
fn fault(channel: &AlertChannel) -> Option<(&'static str, &'static str)> {
    let AlertChannel { kind, url, routing_key, secret, .. } = channel;
    if url.as_ref().is_some_and(|url| !is_url(url.expose())) {
        return Some(("url", NO_URL));
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
        (AlertKind::Webhook | AlertKind::Slack, Some(_), _) => Some(("routing_key", "is for the type pagerduty only")),
        (AlertKind::Slack | AlertKind::PagerDuty, _, Some(_)) => Some(("secret", "is for the type webhook only")),
        (AlertKind::Webhook, _, Some(secret)) if !is_signing_secret(secret.expose()) => {
            Some(("secret", "has to be `whsec_` and 24 to 64 bytes as base64"))
        }
        _ => None,
    }
}

fn is_url(url: &[u8]) -> bool {
    let rest = url.strip_prefix(b"https://").or_else(|| url.strip_prefix(b"http://"));
    rest.is_some_and(|rest| {
        rest.iter().all(u8::is_ascii_graphic) && rest.first().is_some_and(|byte| !b"/?#:".contains(byte))
    })
}

/// By its form: 32 to 88 characters of padded base64.
fn is_signing_secret(secret: &[u8]) -> bool {
    let Some(encoded) = secret.strip_prefix(b"whsec_") else { return false };
    let digits = encoded.iter().take_while(|byte| byte.is_ascii_alphanumeric() || b"+/".contains(byte)).count();
    let padding = encoded.get(digits..).unwrap_or_default();
    (32..=88).contains(&encoded.len())
        && encoded.len().is_multiple_of(4)
        && padding.len() <= 2
        && padding.iter().all(|byte| *byte == b'=')
}

fn refuse(layers: &mut Layers, setting: &'static str, path: String, problem: String, advice: &str) {
    let Some(written) = layers.written.get(setting) else { return };
    let place = written.place.clone();
    let advice = advice.to_owned();
    layers.violations.push(Violation { place, path: Some(path), problem, accepted: None, advice });
}
