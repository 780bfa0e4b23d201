//! One channel: what it wants, how it is addressed, what became of its alerts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::RETRY_AFTER;
use http::{HeaderName, HeaderValue};
use ring::hmac;
use weir_config::settings::{AlertChannel, AlertKind};
use weir_config::vocab::{Finding, Timestamp};
use weir_storage::record::SpanRecord;

use super::message::Notice;
use crate::feed::Failure;
use crate::meter::{Exposition, Source, names};
use crate::outbound::{Answer, Call, Client, Limits, OutboundError};

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
    client: Client,
    /// Its type and its place in the settings, from 1: what it is called in metrics and in the log.
    pub(super) label: String,
    pub(super) tally: Tally,
}

impl Channel {
    pub(super) fn new(index: usize, settings: AlertChannel, client: Client) -> Self {
        let label = format!("{}_{}", settings.kind.as_str(), index + 1);
        Self { settings, client, label, tally: Tally::default() }
    }

    /// Whether the finding meets both thresholds.
    pub(super) fn wants(&self, span: &SpanRecord, finding: &Finding) -> bool {
        let score = span.security_score.unwrap_or_default();
        finding.severity >= self.settings.min_severity && score >= self.settings.min_security_score
    }

    /// Sends `notice`; done when the receiver has accepted it.
    pub(super) async fn send(&self, notice: &Notice) -> Result<(), Failure> {
        let answer = self.client.send(self.call(notice)?, LIMITS).await?;
        accepted(&answer)
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
        Ok(fields.into_iter().fold(call, |call, (name, value)| call.field(HeaderName::from_static(name), value)))
    }
}

/// The header fields of Standard Webhooks: <https://www.standardwebhooks.com>. Without a secret there is no signature.
pub(super) fn signature(secret: Option<&[u8]>, id: &str, seconds: i64, body: &str) -> Vec<(&'static str, HeaderValue)> {
    let mut fields = vec![("webhook-timestamp", HeaderValue::from(seconds))];
    fields.extend(HeaderValue::from_str(id).ok().map(|id| ("webhook-id", id)));
    let Some(secret) = secret else { return fields };
    // Its form was checked with the settings.
    let encoded = secret.strip_prefix(b"whsec_").unwrap_or(secret);
    let key = hmac::Key::new(hmac::HMAC_SHA256, &STANDARD.decode(encoded).unwrap_or_else(|_| encoded.to_vec()));
    let tag = hmac::sign(&key, format!("{id}.{seconds}.{body}").as_bytes());
    let signed = HeaderValue::from_str(&format!("v1,{}", STANDARD.encode(tag)));
    fields.extend(signed.ok().map(|signed| ("webhook-signature", signed)));
    fields
}

/// Errors that pass are told from those that stay by the status.
fn accepted(answer: &Answer) -> Result<(), Failure> {
    let reason = format!("the receiver answered {}", answer.status);
    match answer.status.as_u16() {
        200..300 => Ok(()),
        408 | 425 | 429 | 500.. => {
            let after = answer.fields.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            Err(Failure::Later { reason, after: after.map(Duration::from_secs) })
        }
        _ => Err(Failure::Never { reason }),
    }
}
