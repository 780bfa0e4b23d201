//! What is told to others of finished calls, and of the gateway itself.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use weir_storage::{AuditLog, SpanLog, Store};

use super::context::{Context, Subsystem, TimeLeft};
use crate::boot::StartError;
use crate::boot::network::Consumers;
use crate::boot::parts::{conditions, start_metrics};
use crate::boot::takeover::HandOver;
use crate::judging::Judging;
use crate::meter::Registry;
use crate::otel::Receivers;

/// How long the last scrapers may take after a takeover; each has two seconds.
const SCRAPES_LIMIT: Duration = Duration::from_secs(3);
/// How long consumers of finished spans may take to deal with what there is at the end.
const CONSUMERS_LIMIT: Duration = Duration::from_secs(5);

struct Metrics {
    task: JoinHandle<()>,
    runtime: Handle,
    hand_over: Arc<HandOver>,
}

/// The separate listener for `/metrics`, where there is one.
pub(super) fn metrics(context: &mut Context) -> Result<Option<Box<dyn Subsystem>>, StartError> {
    let Some(listener) = context.made.metrics.take() else { return Ok(None) };
    let (runtime, hand_over) = (context.control.clone(), Arc::clone(&context.hand_over));
    let task = start_metrics(&runtime, listener, &context.process, &context.settings.web, &hand_over)?;
    Ok(Some(Box::new(Metrics { task, runtime, hand_over })))
}

impl Subsystem for Metrics {
    fn stop(self: Box<Self>, _time: &TimeLeft) -> bool {
        let Self { task, runtime, hand_over } = *self;
        if hand_over.is_given() {
            // Scrapers that were accepted here get no answer from the process that took over.
            let answered = async { tokio::time::timeout(SCRAPES_LIMIT, task).await };
            let _late = runtime.block_on(answered).is_err();
        }
        true
    }
}

/// How long receivers of metrics may take for the last ones.
const LAST_METRICS_LIMIT: Duration = Duration::from_secs(3);

struct Told {
    consumers: Consumers,
    /// Receivers of metrics, and what they are told.
    metrics: Option<(Receivers, Arc<Registry>)>,
    judging: Option<Judging>,
    store: Store,
}

/// Consumers of finished calls, and the judge, which works on their runtime.
pub(super) fn consumers(context: &mut Context) -> Result<Option<Box<dyn Subsystem>>, StartError> {
    let Some(consumers) = context.made.consumers.take() else { return Ok(None) };
    // The process that served the addresses before reads no more for them.
    consumers.go();
    let (judging, store) = (context.made.judging.take(), context.store.clone());
    let registry = Arc::clone(&context.process.parts.registry);
    let metrics = context.made.exports.spans.clone().map(|receivers| (receivers, registry));
    Ok(Some(Box::new(Told { consumers, metrics, judging, store })))
}

impl Subsystem for Told {
    fn stop(self: Box<Self>, time: &TimeLeft) -> bool {
        self.store.flush(time.left() / 2);
        if let Some(judging) = self.judging {
            self.consumers.runtime().block_on(judging.stop());
        }
        let metrics = self.metrics;
        self.consumers.stop(time.left().min(CONSUMERS_LIMIT), async move {
            if let Some((receivers, registry)) = metrics {
                let last = receivers.send_last_metrics(&registry);
                // Who does not answer is not waited for.
                let _late = tokio::time::timeout(LAST_METRICS_LIMIT, last).await.is_err();
            }
        });
        true
    }
}

/// Addresses that are turned away for what they did. They end with the network runtime, as all below do.
pub(super) fn offenders(context: &mut Context) -> Result<Option<Box<dyn Subsystem>>, StartError> {
    if let Some((network, offenders)) = context.network.as_ref().zip(context.made.offenders.take()) {
        network.spawn(offenders.keep_up());
    }
    Ok(None)
}

/// Receivers of spans, which are told the metrics, too.
pub(super) fn spans(context: &mut Context) -> Result<Option<Box<dyn Subsystem>>, StartError> {
    if let Some((network, spans)) = context.network.as_ref().zip(context.made.exports.spans.as_ref()) {
        spans.start(network, &context.process.parts.registry);
    }
    Ok(None)
}

/// Receivers of security events.
pub(super) fn events(context: &mut Context) -> Result<Option<Box<dyn Subsystem>>, StartError> {
    if let Some((network, events)) = context.network.as_ref().zip(context.made.exports.events.as_ref()) {
        let (audit, cursors): (Arc<dyn AuditLog>, Arc<dyn SpanLog>) =
            (Arc::new(context.store.clone()), Arc::new(context.store.clone()));
        events.start(network, &audit, &cursors);
    }
    Ok(None)
}

/// Signed checkpoints of the audit log, where calls get receipts.
pub(super) fn receipts(context: &mut Context) -> Result<Option<Box<dyn Subsystem>>, StartError> {
    if let Some((network, receipts)) = context.network.as_ref().zip(context.made.exports.receipts.as_ref()) {
        let audit: Arc<dyn AuditLog> = Arc::new(context.store.clone());
        receipts.start(network, &audit);
    }
    Ok(None)
}

/// Channels of alerts.
pub(super) fn alerts(context: &mut Context) -> Result<Option<Box<dyn Subsystem>>, StartError> {
    if let Some((network, channels)) = context.network.as_ref().zip(context.made.channels.take()) {
        channels.start(network, &conditions(&context.health, context.made.exports.clone(), context.store.clone()));
    }
    Ok(None)
}
