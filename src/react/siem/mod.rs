//! Export to a SIEM: what was found, what the gateway refused, and what administrators did, by syslog over TCP or TLS or in batches by
//! HTTP. Each receiver of `siem_export.receivers` is a consumer of finished spans with a durable cursor; administrative events have
//! another one, in the audit log.
//!
//! Invariants: what an answer of HTTP said was taken is not sent again while the process lives; after a crash at most the batch that was
//! under way comes twice, with the same ids. Syslog has no receipts, so an event counts as sent when the receiver's machine has room for
//! it: what was on its way when a connection broke or the process was killed may be lost or come twice, and nothing else is. What
//! strangers wrote ends no field and no message. No text that a finding quotes goes out unless `evidence` says so.

mod audit;
mod batch;
mod cef;
mod event;
mod json;
mod receiver;
mod requests;
mod syslog;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use weir_config::settings::SiemExport;
use weir_storage::{AuditLog, SpanLog};

use crate::feed::{Batch, Consumer, Failure, Feed, Limits, Progress, Texts};
use crate::meter::Registry;
use event::{Event, Wanted, of_call};
use receiver::{Receiver, Tallies};

/// For one attempt at a batch: `max_per_second` may be small.
const ATTEMPT: Duration = Duration::from_secs(3_600);
/// How long calls may wait to be brought together where many come.
const PATIENCE: Duration = Duration::from_secs(1);
/// For all attempts: the store keeps events as long as it keeps their calls.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 86_400);

/// The receivers of a gateway.
#[derive(Clone)]
pub struct Receivers(Vec<Arc<Receiver>>);

/// Adds a consumer for each receiver, and their counters.
pub fn add(feed: &mut Feed, settings: &SiemExport, registry: &Registry) -> Receivers {
    let made = settings.receivers.iter().enumerate();
    let receivers: Vec<Arc<Receiver>> =
        made.filter_map(|(place, receiver)| Receiver::new(place, receiver, feed.client())).map(Arc::new).collect();
    for receiver in &receivers {
        // Few, and for as long as the process lives: names of consumers are keys of their cursors.
        let name: &'static str = Box::leak(format!("siem_export_{}", receiver.label).into_boxed_str());
        feed.add(Exporter { name, to: Arc::clone(receiver), progress: Progress::default() });
    }
    registry.add_source(Box::new(Tallies(receivers.clone())));
    Receivers(receivers)
}

impl Receivers {
    /// Starts what tells receivers of administrative events: those that are told of all tenants.
    pub fn start(&self, runtime: &Handle, audit: &Arc<dyn AuditLog>, cursors: &Arc<dyn SpanLog>) {
        for receiver in self.0.iter().filter(|receiver| receiver.settings.tenants.is_empty()) {
            runtime.spawn(audit::follow(Arc::clone(receiver), Arc::clone(audit), Arc::clone(cursors)));
        }
    }

    /// What is to be said of receivers that have taken nothing for long.
    pub fn complaints(&self) -> Vec<String> {
        self.0.iter().filter_map(|receiver| receiver.complaint()).collect()
    }
}

/// One receiver's consumer.
struct Exporter {
    name: &'static str,
    to: Arc<Receiver>,
    /// How far the batch under way has come: when it comes again, what was taken is not sent again.
    progress: Progress<String>,
}

impl Consumer for Exporter {
    fn name(&self) -> &'static str {
        self.name
    }

    fn reads_alone(&self) -> bool {
        true
    }

    fn heeds_clean_calls(&self) -> bool {
        // A refusal need not have a finding.
        self.to.settings.refusals
    }

    fn texts(&self) -> Texts {
        Texts::OfNone
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    fn limits(&self) -> Limits {
        Limits { attempt: ATTEMPT, batch: FOR_EVER }
    }

    async fn take(&mut self, batch: Batch<'_>) -> Result<(), Failure> {
        let settings = &self.to.settings;
        let wanted =
            Wanted { min_severity: settings.min_severity, refusals: settings.refusals, evidence: settings.evidence };
        let is_own = |tenant| settings.tenants.is_empty() || settings.tenants.contains(&tenant);
        let spans = batch.spans.iter().filter(|span| is_own(span.tenant_id));
        let events: Vec<Event> = spans.flat_map(|span| of_call(span, &wanted)).collect();
        let sent = self.to.send(&events, &mut self.progress).await;
        sent.map_err(|not| Failure::Later { reason: not.reason, after: not.after })
    }
}
