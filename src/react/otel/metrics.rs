//! Metrics by OTLP/HTTP: what `/metrics` shows, from the same counters, and the client metrics of the conventions for generative AI. All of
//! it is cumulative since the process began, so a request that fails costs nothing but time: the next one says all again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use weir_config::vocab::Timestamp;

use super::answer::{Verdict, judge};
use super::client_metrics::ClientMetrics;
use super::points::Points;
use super::receiver::Receiver;
use crate::meter::Registry;

/// What is sent, and to whom.
#[derive(Clone)]
pub(super) struct Sender {
    pub(super) to: Arc<Receiver>,
    pub(super) registry: Arc<Registry>,
    pub(super) client: Arc<ClientMetrics>,
    /// Since when everything is counted.
    pub(super) began: Timestamp,
}

impl Sender {
    /// Sends all metrics once; what the receiver has against them, and how long it wants none.
    pub(super) async fn send(&self) -> Option<(String, Duration)> {
        let Self { to, registry, client, began } = self.clone();
        let encoded = tokio::task::spawn_blocking(move || {
            let points = Points { began, now: Timestamp::now() };
            let mut metrics = points.of_registry(&registry);
            metrics.extend(client.encode(points, to.how().semconv));
            to.metrics_request(&metrics)
        });
        let body = match encoded.await {
            Ok(body) => body,
            Err(error) => return Some((error.to_string(), Duration::ZERO)),
        };
        let verdict = match self.to.send_metrics(body).await {
            Ok(answer) => judge(&answer),
            Err(error) => Verdict::Later { reason: error.to_string(), after: None, is_doubtful: false },
        };
        let complaint = complaint(verdict);
        let counter = if complaint.is_none() { &self.to.metrics.sent } else { &self.to.metrics.failed };
        counter.add(1);
        complaint
    }

    /// Sends them every `interval`, until the process ends.
    pub(super) fn start(self, runtime: &Handle, interval: Duration) {
        runtime.spawn(async move {
            let mut rest_until = Instant::now();
            let mut ticks = tokio::time::interval(interval);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            let mut failing = false;
            loop {
                ticks.tick().await;
                if Instant::now() < rest_until {
                    continue;
                }
                let Some((reason, after)) = self.send().await else {
                    failing = false;
                    continue;
                };
                rest_until = Instant::now() + after;
                if !std::mem::replace(&mut failing, true) {
                    let receiver = &self.to.label;
                    tracing::warn!(
                        receiver,
                        reason,
                        "the receiver did not take all metrics; the next request says all again"
                    );
                }
            }
        });
    }
}

/// What a receiver has against metrics, and how long it wants none.
fn complaint(verdict: Verdict) -> Option<(String, Duration)> {
    match verdict {
        Verdict::Accepted { rejected: 0, .. } => None,
        Verdict::Accepted { rejected, words } => {
            Some((format!("{rejected} points were not kept: {}", words.unwrap_or_default()), Duration::ZERO))
        }
        Verdict::Later { reason, after, .. } => Some((reason, after.unwrap_or_default())),
        Verdict::TooLarge { reason } | Verdict::Refused { reason } => Some((reason, Duration::ZERO)),
    }
}
