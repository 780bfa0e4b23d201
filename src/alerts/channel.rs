//! One channel: what it wants, how it is addressed, what became of its alerts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weir_config::settings::{ActionRouter, AlertChannel, AlertKind, RouterAction};
use weir_config::vocab::{Finding, Timestamp};
use weir_storage::record::SpanRecord;

use super::message::Notice;
use crate::anomalies::{self, CONTINUES};
use crate::feed::Failure;
use crate::meter::{Exposition, Source, names};
use crate::outbound::{Call, Client, Limits, OutboundError, signature};

const PAGERDUTY: &[u8] = b"https://events.pagerduty.com/v2/enqueue";
/// For one message; of the answer only the status is asked.
const LIMITS: Limits = Limits { total: Duration::from_secs(10), answer_bytes: 4_096, cut: true };

/// A number that rises.
#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
}

/// What became of findings that met the channel's thresholds.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) sent: Count,
    pub(super) summary: Count,
    pub(super) suppressed: Count,
    pub(super) failed: Count,
    pub(super) refused: Count,
    pub(super) expired: Count,
    pub(super) no_room: Count,
}

/// All channels' counters.
pub(super) struct Tallies(pub(super) Vec<Arc<Channel>>);

impl Source for Tallies {
    fn collect(&self, out: &mut Exposition) {
        for channel in &self.0 {
            let Tally { sent, summary, suppressed, failed, refused, expired, no_room } = &channel.tally;
            let outcomes = [
                ("expired", expired),
                ("failed", failed),
                ("no_room", no_room),
                ("refused", refused),
                ("sent", sent),
                ("summary", summary),
                ("suppressed", suppressed),
            ];
            for (outcome, Count(count)) in outcomes {
                let labels = [("channel", channel.label.as_str()), ("outcome", outcome)];
                out.counter(names::ALERTS, &labels, count.load(Ordering::Relaxed));
            }
        }
    }
}

/// A channel and the way to it.
pub(super) struct Channel {
    settings: AlertChannel,
    /// Where its rules alert.
    router: Option<Arc<ActionRouter>>,
    client: Client,
    /// Its type and its place in the settings, from 1: what it is called in metrics and in the log.
    pub(super) label: String,
    pub(super) tally: Tally,
}

impl Channel {
    pub(super) fn new(index: usize, settings: AlertChannel, router: Option<Arc<ActionRouter>>, client: Client) -> Self {
        let label = format!("{}_{}", settings.kind.as_str(), index + 1);
        Self { settings, router, client, label, tally: Tally::default() }
    }

    /// Whether the finding meets both thresholds, or a rule of the router says so.
    pub(super) fn wants(&self, span: &SpanRecord, finding: &Finding) -> bool {
        if finding.metadata.contains_key(CONTINUES) {
            return false;
        }
        // An anomaly has no share in the score.
        let has_no_score = || finding.detector == anomalies::DETECTOR;
        let score = span.security_score.unwrap_or_default();
        let routed = || self.router.as_ref().is_some_and(|router| router.actions(finding).has(RouterAction::Alert));
        let serious = score >= self.settings.min_security_score || has_no_score();
        finding.severity >= self.settings.min_severity && serious || routed()
    }

    /// Sends `notice`; done when the receiver has accepted it.
    pub(super) async fn send(&self, notice: &Notice) -> Result<(), Failure> {
        let answer = self.client.send(self.call(notice)?, LIMITS).await?;
        Failure::unless_accepted(&answer)
    }

    fn call(&self, notice: &Notice) -> Result<Call, OutboundError> {
        let key = self.settings.routing_key.as_ref().map_or(&b""[..], |key| key.expose());
        let body = match self.settings.kind {
            AlertKind::Webhook => notice.webhook(),
            AlertKind::Slack => notice.slack(),
            AlertKind::PagerDuty => notice.pagerduty(&String::from_utf8_lossy(key)),
        };
        let body = body.to_string();
        let url = self.settings.url.as_ref().map_or(PAGERDUTY, |url| url.expose());
        let mut fields = Vec::new();
        if self.settings.kind == AlertKind::Webhook {
            let secret = self.settings.secret.as_ref().map(|secret| secret.expose());
            fields = signature(secret, &notice.id(), Timestamp::now().micros() / 1_000_000, &body);
        }
        let call = Call::post(&String::from_utf8_lossy(url), "application/json", body)?;
        Ok(fields.into_iter().fold(call, |call, (name, value)| call.field(name, value)))
    }
}
