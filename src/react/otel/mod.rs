//! Export: finished calls as spans of OpenTelemetry, sent by OTLP/HTTP. Each receiver of `otel_export.receivers` is a consumer of finished
//! spans of its own, with its own durable cursor, so one that is away delays no other, and is sent what it missed when it is back.
//!
//! ```text
//!  finished spans ─▶ wanted? sampled? ─▶ span ─▶ requests of few MiB ─▶ receiver
//!      ▲                                                                   │
//!      └── cursor moves ◀── all were taken, or refused and counted ◀───────┘
//! ```
//!
//! Invariants: what a receiver has accepted is not sent again while the process lives; after a crash at most the batch that was under
//! way comes twice, with the same ids. What it refuses for good is counted and named in the log, everything else waits in the store. No
//! text of anybody leaves the gateway unless a receiver's `content` says so. Without receivers nothing here runs.

mod answer;
mod client_metrics;
mod content;
mod metrics;
mod names;
mod points;
mod receiver;
mod span;
mod wire;

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::runtime::Handle;
use weir_config::settings::{OtelContent, OtelExport};
use weir_config::vocab::Timestamp;
use weir_storage::record::SpanRecord;

use crate::feed::{Batch, Consumer, Failure, Feed, Limits, Progress, Texts};
use crate::meter::Registry;
use answer::{Verdict, judge};
use client_metrics::{ClientMetrics, Counter};
use receiver::{Encoded, Key, Receiver, Tallies};
use span::How;

/// Bytes of spans in one request: receivers take 4 MiB.
const REQUEST_BYTES: usize = 3 * 1024 * 1024 + 512 * 1024;
/// Spans that are made one after the other before others may work on the thread.
const AT_ONCE: usize = 16;
/// How long spans may wait to be brought together where many come.
const PATIENCE: Duration = Duration::from_secs(1);
/// For all attempts at a batch. There is always another one: the store keeps spans as long as it keeps them.
const FOR_EVER: Duration = Duration::from_secs(10 * 365 * 86_400);
/// Requests that one batch may take, each with the receiver's own time.
const REQUESTS_MAX: u32 = 32;

/// Takes personal data and credentials out of a record.
pub type Masker = Arc<dyn Fn(&mut SpanRecord) + Send + Sync>;

/// The receivers of a gateway.
#[derive(Clone)]
pub struct Receivers {
    receivers: Vec<Arc<Receiver>>,
    /// Where somebody is sent metrics.
    counts: Option<Arc<ClientMetrics>>,
    interval: Duration,
    began: Timestamp,
}

/// Adds a consumer for each receiver, and their counters; `masker` is for those whose `content` is `masked`.
pub fn add(feed: &mut Feed, settings: &OtelExport, masker: &Masker, registry: &Registry) -> Receivers {
    let made = settings.receivers.iter().enumerate();
    let receivers: Vec<Arc<Receiver>> = made
        .filter_map(|(place, receiver)| Receiver::new(place, receiver, settings, feed.client()))
        .map(Arc::new)
        .collect();
    for receiver in &receivers {
        // Few, and for as long as the process lives: names of consumers are keys of their cursors.
        let name: &'static str = Box::leak(format!("otel_export_{}", receiver.label).into_boxed_str());
        feed.add(Exporter {
            name,
            to: Arc::clone(receiver),
            masker: Arc::clone(masker),
            progress: Progress::default(),
        });
    }
    registry.add_source(Box::new(Tallies(receivers.clone())));
    let counts = receivers.iter().any(|receiver| receiver.wants_metrics()).then(ClientMetrics::new);
    if let Some(counts) = &counts {
        feed.add(Counter(Arc::clone(counts)));
    }
    let interval = Duration::from_secs(settings.metrics_interval_seconds);
    Receivers { receivers, counts, interval, began: Timestamp::now() }
}

impl Receivers {
    /// Starts what sends metrics, to those who want them.
    pub fn start(&self, runtime: &Handle, registry: &Arc<Registry>) {
        self.senders(registry).for_each(|sender| sender.start(runtime, self.interval));
    }

    /// Sends metrics a last time, when nothing is counted any more. What a receiver does not take is said in the log.
    pub async fn send_last_metrics(&self, registry: &Arc<Registry>) {
        let last = self.senders(registry).map(|sender| async move {
            if let Some((reason, _)) = sender.send().await {
                let receiver = &sender.to.label;
                tracing::warn!(receiver, reason, "the receiver did not take the last metrics");
            }
        });
        join_all(last).await;
    }

    fn senders(&self, registry: &Arc<Registry>) -> impl Iterator<Item = metrics::Sender> {
        let wanting = self.receivers.iter().filter(|receiver| receiver.wants_metrics());
        self.counts.iter().flat_map(move |client| {
            wanting.clone().map(move |to| metrics::Sender {
                to: Arc::clone(to),
                registry: Arc::clone(registry),
                client: Arc::clone(client),
                began: self.began,
            })
        })
    }

    /// What is to be said of receivers that have taken nothing for long.
    pub fn complaints(&self) -> Vec<String> {
        self.receivers.iter().filter_map(|receiver| receiver.complaint()).collect()
    }
}

/// One receiver's consumer.
struct Exporter {
    name: &'static str,
    to: Arc<Receiver>,
    masker: Masker,
    /// What was dealt with of the batch under way: when it comes again, that is not sent again.
    progress: Progress<Key>,
}

impl Consumer for Exporter {
    fn name(&self) -> &'static str {
        self.name
    }

    fn reads_alone(&self) -> bool {
        true
    }

    fn heeds_clean_calls(&self) -> bool {
        self.to.wants_clean()
    }

    fn texts(&self) -> Texts {
        if self.to.how().content == OtelContent::None { Texts::OfNone } else { Texts::OfAll }
    }

    fn patience(&self) -> Duration {
        PATIENCE
    }

    fn limits(&self) -> Limits {
        Limits { attempt: self.to.timeout() * REQUESTS_MAX + Limits::default().attempt, batch: FOR_EVER }
    }

    async fn take(&mut self, batch: Batch<'_>) -> Result<(), Failure> {
        if let Some(first) = batch.spans.first() {
            self.to.begins(first.end_time);
        }
        let (mut ready, mut bytes) = (Vec::new(), 0);
        for (place, record) in batch.spans.iter().enumerate() {
            if place % AT_ONCE == AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
            let key = (record.tenant_id, record.span_id);
            if self.progress.is_done(&key) {
                continue;
            }
            if !self.to.wants(record) {
                self.progress.given_up(key);
                continue;
            }
            let (span, is_cut) = self.encode(record).await;
            if bytes + span.len() > REQUEST_BYTES && !ready.is_empty() {
                self.deliver(std::mem::take(&mut ready)).await?;
                bytes = 0;
            }
            bytes += span.len();
            let tries = if self.to.how().tries { span::tries(record) } else { Vec::new() };
            bytes += tries.iter().map(wire::Message::len).sum::<usize>();
            ready.push(Encoded { key, span, tries, is_cut });
        }
        if !ready.is_empty() {
            self.deliver(ready).await?;
        }
        self.progress.ends();
        self.to.ends();
        Ok(())
    }
}

impl Exporter {
    async fn encode(&self, record: &SpanRecord) -> (wire::Message, bool) {
        let how = self.to.how();
        if how.content != OtelContent::Masked {
            return span::encode(record, how);
        }
        let (bare, mut record, masker) = (record, record.clone(), Arc::clone(&self.masker));
        let masked = tokio::task::spawn_blocking(move || {
            masker(&mut record);
            span::encode(&record, how)
        });
        // Where masking has failed nothing that was to be masked is said.
        masked.await.unwrap_or_else(|_| span::encode(bare, How { content: OtelContent::None, ..how }))
    }

    /// Sends spans, in halves where the receiver finds them too many, or answers again and again with an error of its own, of which one of
    /// them may be the cause. That one does not keep the others from being sent.
    async fn deliver(&mut self, spans: Vec<Encoded>) -> Result<(), Failure> {
        let (mut parts, mut waiting, mut alone) = (vec![spans], None, 0);
        while let Some(mut spans) = parts.pop() {
            let verdict = match self.to.send(&spans).await {
                Ok(answer) => judge(&answer),
                Err(error) => Verdict::Later { reason: error.to_string(), after: None, is_doubtful: false },
            };
            let count = spans.len();
            match verdict {
                Verdict::Accepted { rejected, words } => self.taken(&spans, rejected, words),
                Verdict::Later { reason, after, is_doubtful: false } => {
                    self.to.failed(&reason);
                    return Err(Failure::Later { reason, after });
                }
                Verdict::Later { reason, after, .. } if count > 1 && !self.progress.is_to_part() => {
                    self.progress.doubt(Instant::now());
                    self.to.failed(&reason);
                    return Err(Failure::Later { reason, after });
                }
                Verdict::TooLarge { .. } | Verdict::Later { .. } if count > 1 => {
                    let back = spans.split_off(count / 2);
                    parts.extend(if self.progress.is_back_first() { [spans, back] } else { [back, spans] });
                }
                Verdict::TooLarge { reason } | Verdict::Refused { reason } => self.refused(&spans, &reason),
                Verdict::Later { reason, .. } if self.progress.is_hopeless(Instant::now()) => {
                    self.refused(&spans, &reason);
                }
                Verdict::Later { reason, after, .. } => {
                    (waiting, alone) = (Some((reason, after)), alone + 1);
                    if alone >= Progress::<Key>::ALONE {
                        break;
                    }
                }
            }
        }
        let Some((reason, after)) = waiting else { return Ok(()) };
        self.progress.doubt(Instant::now());
        self.to.failed(&reason);
        Err(Failure::Later { reason, after })
    }

    fn taken(&mut self, spans: &[Encoded], rejected: u64, words: Option<String>) {
        let count = spans.len() as u64;
        let rejected = rejected.min(count);
        self.to.tally.sent.add(count - rejected);
        self.to.tally.rejected.add(rejected);
        self.to.tally.cut.add(spans.iter().filter(|encoded| encoded.is_cut).count() as u64);
        if rejected > 0 || words.is_some() {
            let (receiver, words) = (&self.to.label, words.unwrap_or_default());
            tracing::warn!(receiver, spans = count, rejected, words, "the receiver did not keep all spans it was sent");
        }
        spans.iter().for_each(|encoded| self.progress.taken(encoded.key));
        self.to.took();
    }

    fn refused(&mut self, spans: &[Encoded], reason: &str) {
        self.to.tally.refused.add(spans.len() as u64);
        let (receiver, first) = (&self.to.label, spans.first().map(|encoded| encoded.key.1.to_string()));
        tracing::warn!(
            receiver,
            spans = spans.len(),
            first,
            reason,
            "the receiver refused spans; they are not sent to it again"
        );
        spans.iter().for_each(|encoded| self.progress.given_up(encoded.key));
        self.to.took();
    }
}
