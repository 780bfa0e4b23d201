//! One channel: what it wants, how it is addressed, what became of its alerts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore};
use weir_config::settings::{ActionRouter, AlertChannel, AlertKind, MailUrl, RouterAction};
use weir_config::vocab::{Finding, Severity, Timestamp};
use weir_storage::record::SpanRecord;

use super::book::Book;
use super::cooldown::Cooldowns;
use super::mail;
use super::message::Notice;
use super::seen;
use crate::feed::Failure;
use crate::meter::{Exposition, Source, names};
use crate::outbound::{Call, Client, Limits, OutboundError, signature};

const PAGERDUTY: &[u8] = b"https://events.pagerduty.com/v2/enqueue";
/// For one message; of the answer only the status is asked.
const LIMITS: Limits = Limits { total: Duration::from_secs(10), answer_bytes: 4_096, cut: true };
/// Messages of other channels' that may be on their way to it at a time, because nobody has acknowledged them.
const ESCALATIONS_MAX: usize = 16;

/// A number that rises.
#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
}

/// What became of findings that met the channel's thresholds, and of messages about them.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) sent: Count,
    pub(super) summary: Count,
    pub(super) escalated: Count,
    pub(super) resolved: Count,
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
            let Tally { sent, summary, escalated, resolved, suppressed, failed, refused, expired, no_room } =
                &channel.tally;
            let outcomes = [
                ("escalated", escalated),
                ("expired", expired),
                ("failed", failed),
                ("no_room", no_room),
                ("refused", refused),
                ("resolved", resolved),
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

/// What all channels have in common.
#[derive(Clone)]
pub(super) struct With {
    pub(super) client: Client,
    pub(super) book: Arc<Book>,
    pub(super) console: Option<String>,
}

/// A channel and the way to it.
pub(super) struct Channel {
    settings: AlertChannel,
    /// Where its rules alert.
    router: Option<Arc<ActionRouter>>,
    client: Client,
    /// Which knows what tenants are called.
    book: Arc<Book>,
    /// Origin of the console.
    console: Option<String>,
    /// Of the type that sends mail.
    mail: Option<MailUrl>,
    /// Its type and its place in the settings, from 1: what it is called in metrics, in the record and in the log.
    pub(super) label: String,
    pub(super) tally: Tally,
    /// What the store does not keep.
    pub(super) unkept: Cooldowns,
    /// The record of its alerts has changed.
    pub(super) news: Notify,
    pub(super) escalations: Arc<Semaphore>,
}

impl Channel {
    pub(super) fn new(index: usize, settings: AlertChannel, router: Option<Arc<ActionRouter>>, with: With) -> Self {
        let With { client, book, console } = with;
        let label = format!("{}_{}", settings.kind.as_str(), index + 1);
        // Its form was checked with the settings.
        let mail = settings.url.as_ref().filter(|_| settings.kind == AlertKind::Email);
        let mail = mail.and_then(|url| MailUrl::parse(url.expose()).ok());
        Self {
            settings,
            router,
            client,
            book,
            console,
            mail,
            label,
            tally: Tally::default(),
            unkept: Cooldowns::default(),
            news: Notify::new(),
            escalations: Arc::new(Semaphore::new(ESCALATIONS_MAX)),
        }
    }

    /// Whether the finding meets both thresholds, or a rule of the router says so, or it is no detector's and has no share in the
    /// score.
    pub(super) fn wants(&self, span: &SpanRecord, finding: &Finding) -> bool {
        if seen::is_soft_cap(finding) {
            return true;
        }
        let score = span.security_score.unwrap_or_default();
        let routed = || self.router.as_ref().is_some_and(|router| router.actions(finding).has(RouterAction::Alert));
        let serious = score >= self.settings.min_security_score || seen::is_anomaly(finding);
        self.is_for(finding.severity) && serious || routed()
    }

    /// Whether its receiver keeps an incident open until it is told that it is over.
    pub(super) fn keeps_incidents(&self) -> bool {
        self.settings.kind == AlertKind::PagerDuty
    }

    /// Whether something of this severity is for it.
    pub(super) fn is_for(&self, severity: Severity) -> bool {
        severity >= self.settings.min_severity
    }

    /// Connects to the receiver and tells it nothing; its host and port.
    pub(super) async fn reach(&self) -> Result<String, String> {
        let Some(MailUrl { host, port, is_tls, .. }) = &self.mail else {
            return self.client.reach(&self.url()).await.map_err(|error| error.to_string());
        };
        let target = format!("{host}:{port}");
        let opened = self.client.open(host, *port, *is_tls).await;
        opened.map(drop).map_err(|error| format!("{target} cannot be connected to: {error}"))?;
        Ok(target)
    }

    /// Sends `notice`; done when the receiver has accepted it.
    pub(super) async fn send(&self, notice: &Notice) -> Result<(), Failure> {
        let name = self.book.name_of(notice.tenant()).await;
        let notice = &notice.addressed(name, self.console.as_deref());
        if let Some(to) = &self.mail {
            let late = |_| Err(Failure::Later { reason: format!("{} takes too long", to.host), after: None });
            return tokio::time::timeout(LIMITS.total, mail::send(&self.client, to, notice)).await.unwrap_or_else(late);
        }
        self.post(self.body(notice), notice.id()).await?;
        if notice.is_test() && self.settings.kind == AlertKind::PagerDuty {
            // Nobody is to be called by a test.
            self.post(notice.closes(&self.routing_key()).to_string(), notice.id()).await?;
        }
        Ok(())
    }

    async fn post(&self, body: String, id: &str) -> Result<(), Failure> {
        let answer = self.client.send(self.call(body, id)?, LIMITS).await?;
        Failure::unless_accepted(&answer)
    }

    fn url(&self) -> String {
        let url = self.settings.url.as_ref().map_or(PAGERDUTY, |url| url.expose());
        String::from_utf8_lossy(url).into_owned()
    }

    fn routing_key(&self) -> String {
        let key = self.settings.routing_key.as_ref().map_or(&b""[..], |key| key.expose());
        String::from_utf8_lossy(key).into_owned()
    }

    fn body(&self, notice: &Notice) -> String {
        let body = match self.settings.kind {
            AlertKind::Webhook | AlertKind::Email => notice.webhook(),
            AlertKind::Slack => notice.slack(),
            AlertKind::PagerDuty => notice.pagerduty(&self.routing_key()),
        };
        body.to_string()
    }

    fn call(&self, body: String, id: &str) -> Result<Call, OutboundError> {
        let mut fields = Vec::new();
        if self.settings.kind == AlertKind::Webhook {
            let secret = self.settings.secret.as_ref().map(|secret| secret.expose());
            fields = signature(secret, id, Timestamp::now().micros() / 1_000_000, &body);
        }
        let call = Call::post(&self.url(), "application/json", body)?;
        Ok(fields.into_iter().fold(call, |call, (name, value)| call.field(name, value)))
    }
}
