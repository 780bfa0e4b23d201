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

/// Sends a receiver the metrics every `interval`, until the process ends.
pub(super) fn start(
    runtime: &Handle,
    to: Arc<Receiver>,
    registry: Arc<Registry>,
    client: Arc<ClientMetrics>,
    interval: Duration,
) {
    let began = Timestamp::now();
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
            let (registry, client, encoder) = (Arc::clone(&registry), Arc::clone(&client), Arc::clone(&to));
            let encoded = tokio::task::spawn_blocking(move || {
                let points = Points { began, now: Timestamp::now() };
                let mut metrics = points.of_registry(&registry);
                metrics.extend(client.encode(points, encoder.how().semconv));
                encoder.metrics_request(&metrics)
            });
            let Ok(body) = encoded.await else { continue };
            let verdict = match to.send_metrics(body).await {
                Ok(answer) => judge(&answer),
                Err(error) => Verdict::Later { reason: error.to_string(), after: None, is_doubtful: false },
            };
            let Some((reason, after)) = complaint(verdict) else {
                to.metrics.sent.add(1);
                failing = false;
                continue;
            };
            to.metrics.failed.add(1);
            rest_until = Instant::now() + after;
            if !std::mem::replace(&mut failing, true) {
                let receiver = &to.label;
                tracing::warn!(
                    receiver,
                    reason,
                    "the receiver did not take all metrics; the next request says all again"
                );
            }
        }
    });
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
