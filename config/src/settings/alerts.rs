//! `alerts.*`, checked.

use crate::vocab::{Severity, SharedSecret};

/// Most channels of one gateway.
pub const CHANNELS_MAX: usize = 16;

/// `alerts.*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alerts {
    /// `enabled`.
    pub enabled: bool,
    /// `webhook_url`: the receiver where `channels` is empty.
    pub webhook_url: Option<SharedSecret>,
    /// `min_severity`, of `webhook_url`.
    pub min_severity: Severity,
    /// `min_security_score`, of `webhook_url`.
    pub min_security_score: u8,
    /// `cooldown_seconds`: for how long a channel hears no more of a tenant's findings of one type.
    pub cooldown_seconds: u64,
    /// `channels[]`.
    pub channels: Vec<AlertChannel>,
}

/// One of `alerts.channels[]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlertChannel {
    /// `type`.
    pub kind: AlertKind,
    /// `url`; chat webhooks carry their credential in it.
    pub url: Option<SharedSecret>,
    /// `routing_key`, of PagerDuty.
    pub routing_key: Option<SharedSecret>,
    /// `secret` (ours): what a webhook is signed with.
    pub secret: Option<SharedSecret>,
    /// `min_severity`: least severity of a finding.
    pub min_severity: Severity,
    /// `min_security_score`: least score of the finding's span.
    pub min_security_score: u8,
}

/// `alerts.channels[].type` values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertKind {
    /// A JSON body of our own, signed.
    Webhook,
    /// A Slack incoming webhook.
    Slack,
    /// PagerDuty's Events API v2.
    PagerDuty,
}

impl AlertKind {
    /// As the settings spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Slack => "slack",
            Self::PagerDuty => "pagerduty",
        }
    }
}

impl Default for Alerts {
    fn default() -> Self {
        Self {
            enabled: false,
            webhook_url: None,
            min_severity: Severity::High,
            min_security_score: 70,
            cooldown_seconds: 300,
            channels: Vec::new(),
        }
    }
}

impl Alerts {
    /// The channels that are told: those of `channels`, else the one of `webhook_url`.
    pub fn effective(&self) -> Vec<AlertChannel> {
        let legacy = self.webhook_url.iter().map(|url| AlertChannel {
            kind: AlertKind::Webhook,
            url: Some(url.clone()),
            routing_key: None,
            secret: None,
            min_severity: self.min_severity,
            min_security_score: self.min_security_score,
        });
        if self.channels.is_empty() { legacy.collect() } else { self.channels.clone() }
    }
}
