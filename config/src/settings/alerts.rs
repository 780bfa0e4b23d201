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
    /// `escalation.escalate_after_seconds`: when an alert that nobody has acknowledged goes to the next channel; `None` is never.
    pub escalate_after_seconds: Option<u64>,
    /// `console_url` (ours): origin of the console that messages link to.
    pub console_url: Option<String>,
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
    /// Mail.
    Email,
}

impl AlertKind {
    /// As the settings spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Slack => "slack",
            Self::PagerDuty => "pagerduty",
            Self::Email => "email",
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
            escalate_after_seconds: None,
            console_url: None,
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

    /// Which of `channels` hears of what nobody has acknowledged at the one of this place: the one with the next higher
    /// `min_severity`, the first of several.
    pub fn next_higher(channels: &[AlertChannel], place: usize) -> Option<usize> {
        let least = channels.get(place)?.min_severity;
        let higher = channels.iter().enumerate().filter(|(_, channel)| channel.min_severity > least);
        higher.min_by_key(|(place, channel)| (channel.min_severity, *place)).map(|(place, _)| place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_channel_is_the_one_with_the_next_higher_severity() {
        let channels =
            [Severity::Low, Severity::Critical, Severity::High, Severity::High].map(|min_severity| AlertChannel {
                kind: AlertKind::Webhook,
                url: None,
                routing_key: None,
                secret: None,
                min_severity,
                min_security_score: 0,
            });
        let next = |place| Alerts::next_higher(&channels, place);
        assert_eq!([next(0), next(1), next(2), next(3), next(4)], [Some(2), None, Some(1), Some(1), None]);
    }
}
