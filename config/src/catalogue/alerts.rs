//! Rows of alerts. What a single channel needs beside its type is checked behind all layers (`load::alerts`).

use serde_json::Value;

use super::value::{flag, int, one_of, optional_secret, optional_text, parsed, text};
use super::{Field, Kind, Literal, Setting, Unfit, set};
use crate::settings::{AlertChannel, AlertKind};
use crate::vocab::{Severity, SharedSecret};

const KINDS: [(&str, AlertKind); 4] = [
    ("webhook", AlertKind::Webhook),
    ("slack", AlertKind::Slack),
    ("pagerduty", AlertKind::PagerDuty),
    ("email", AlertKind::Email),
];
const CHANNEL: &[Field] = &[
    Field::required("type", Kind::Choice(&["webhook", "slack", "pagerduty", "email"])),
    Field::optional("url", Kind::Name).alias("webhook_url"),
    Field::optional("routing_key", Kind::Name),
    Field::optional("secret", Kind::Name),
    Field::optional("min_severity", Kind::SEVERITY),
    Field::optional("min_security_score", Kind::SCORE),
];
const ESCALATION: &[Field] = &[Field::optional("escalate_after_seconds", Kind::Int { min: 1, max: 31_536_000 })];
const ESCALATE_AFTER_SECONDS: u64 = 600;

pub(super) static SETTINGS: &[Setting] = &[
    Setting::built(
        "alerts.enabled",
        Kind::Bool,
        Literal::Bool(false),
        "Tell the channels below of findings.",
        set!(alerts.enabled, flag),
    ),
    Setting::built(
        "alerts.webhook_url",
        Kind::Text,
        Literal::Text(""),
        "Receiver of alerts as JSON, where `alerts.channels` is empty.",
        set!(alerts.webhook_url, filled_secret),
    )
    .secret(),
    Setting::built(
        "alerts.min_severity",
        Kind::SEVERITY,
        Literal::Text("High"),
        "Least severity of the findings that `alerts.webhook_url` is told of.",
        set!(alerts.min_severity, parsed),
    ),
    Setting::built(
        "alerts.min_security_score",
        Kind::SCORE,
        Literal::Int(70),
        "Least security score of the calls that `alerts.webhook_url` is told of.",
        set!(alerts.min_security_score, int),
    ),
    Setting::built(
        "alerts.cooldown_seconds",
        Kind::Int { min: 0, max: 31_536_000 },
        Literal::Int(300),
        "For how long a channel that has taken an alert hears no more of the same finding type of the same tenant; then it \
         is told how many there were meanwhile. 0 tells of all.",
        set!(alerts.cooldown_seconds, int),
    ),
    Setting::built(
        "alerts.channels",
        Kind::Records(CHANNEL),
        Literal::EmptyList,
        "Who is told, at most 16; wins over `alerts.webhook_url`. type is webhook, slack, pagerduty or email; url (of \
         pagerduty only for another region; of email \
         smtps://user:password@host:465?from=address&to=address,address); routing_key for pagerduty; secret (`whsec_` and base64, ours) signs a webhook as Standard \
         Webhooks does; min_severity (High) of a finding and min_security_score (70) of its call.",
        set!(alerts.channels, channels),
    )
    .secret(),
    Setting::built(
        "alerts.escalation",
        Kind::Record(ESCALATION),
        Literal::Null,
        "Send an alert that nobody has acknowledged (POST /api/v1/alerts/{id}/ack) within escalate_after_seconds (600) to the \
         channel with the next higher min_severity, once.",
        set!(alerts.escalate_after_seconds, escalation),
    ),
    Setting::built(
        "alerts.console_url",
        Kind::Origin,
        Literal::Null,
        "Where people reach this gateway with a browser: messages link to the call in the console there (`server.ui`). Ours.",
        set!(alerts.console_url, optional_text),
    ),
];

fn filled_secret(value: &Value) -> Result<Option<SharedSecret>, Unfit> {
    text(value).map(|text| (!text.is_empty()).then(|| SharedSecret::new(text)))
}

fn escalation(value: &Value) -> Result<Option<u64>, Unfit> {
    if value.is_null() {
        return Ok(None);
    }
    let seconds = value.as_object().ok_or(Unfit)?.get("escalate_after_seconds").filter(|seconds| !seconds.is_null());
    seconds.map_or(Ok(ESCALATE_AFTER_SECONDS), int).map(Some)
}

fn channels(value: &Value) -> Result<Vec<AlertChannel>, Unfit> {
    value.as_array().ok_or(Unfit)?.iter().map(channel).collect()
}

fn channel(entry: &Value) -> Result<AlertChannel, Unfit> {
    let field = |name: &str| entry.get(name).filter(|value| !value.is_null());
    let secret = |name: &str| field(name).map_or(Ok(None), optional_secret);
    Ok(AlertChannel {
        kind: one_of(entry.get("type").ok_or(Unfit)?, &KINDS)?,
        url: secret("url")?,
        routing_key: secret("routing_key")?,
        secret: secret("secret")?,
        min_severity: field("min_severity").map_or(Ok(Severity::High), parsed)?,
        min_security_score: field("min_security_score").map_or(Ok(70), int)?,
    })
}
