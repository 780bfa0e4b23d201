//! One receiver of spans: how it is addressed, what became of what it was sent, and since when it takes nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue};
use parking_lot::Mutex;
use weir_config::settings::{OtelCompression, OtelExport, OtelReceiver};
use weir_config::vocab::{SpanId, TenantId, Timestamp};
use weir_storage::record::SpanRecord;

use super::span::How;
use super::wire::{Message, Value, field_len};
use crate::meter::{Exposition, Source, names};
use crate::outbound::{Answer, Call, Client, Limits, OutboundError, packed};

/// For one request where nobody says so: as long as SDKs wait.
const USUAL_TIMEOUT: Duration = Duration::from_secs(10);
/// Of an answer only what was not taken is asked.
const ANSWER_BYTES: usize = 64 * 1024;
/// A receiver that takes nothing for so long is told of: restarts and deployments take less.
const FAILING_AFTER: Duration = Duration::from_secs(60);
/// Bits of a trace's id that decide whether it is among the sample: those that are random in the ids of all kinds.
const SAMPLED_BITS: u32 = 56;
/// The tag of a span that was reported by others.
const REPORTED: &str = "reported";

/// A number that rises.
#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
}

/// What became of spans, and of requests.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) sent: Count,
    pub(super) rejected: Count,
    pub(super) refused: Count,
    pub(super) not_wanted: Count,
    pub(super) not_sampled: Count,
    pub(super) cut: Count,
    pub(super) requests: Count,
    pub(super) failed: Count,
}

/// What became of requests with metrics.
#[derive(Default)]
pub(super) struct MetricsTally {
    pub(super) sent: Count,
    pub(super) failed: Count,
}

/// Since when nothing was taken, and why.
struct Failing {
    since: Instant,
    reason: String,
}

/// A receiver and the way to it.
pub(super) struct Receiver {
    pub(super) label: String,
    settings: OtelReceiver,
    url: String,
    client: Client,
    /// `Resource`, which is the same for all spans.
    resource: Message,
    pub(super) tally: Tally,
    /// Where metrics are sent, if it wants them.
    metrics_url: Option<String>,
    pub(super) metrics: MetricsTally,
    failing: Mutex<Option<Failing>>,
    /// When the oldest span that is being sent ended, in microseconds; 0 while none is.
    oldest: AtomicI64,
}

/// Whose span it is, and which.
pub(super) type Key = (TenantId, SpanId);

/// A span that is ready to be sent, and whose it is.
pub(super) struct Encoded {
    pub(super) key: Key,
    pub(super) span: Message,
    /// Its children: tries at upstreams.
    pub(super) tries: Vec<Message>,
    pub(super) is_cut: bool,
}

impl Receiver {
    pub(super) fn new(place: usize, settings: &OtelReceiver, export: &OtelExport, client: Client) -> Option<Self> {
        Some(Self {
            label: settings.label(place),
            url: settings.url()?,
            settings: settings.clone(),
            client,
            resource: resource(export),
            tally: Tally::default(),
            metrics_url: settings.metrics_url(),
            metrics: MetricsTally::default(),
            failing: Mutex::new(None),
            oldest: AtomicI64::new(0),
        })
    }

    pub(super) fn how(&self) -> How {
        How { content: self.settings.content, semconv: self.settings.semconv, tries: self.settings.tries }
    }

    /// Whether calls without findings concern it.
    pub(super) fn wants_clean(&self) -> bool {
        self.settings.clean_sample_rate > 0.0
    }

    /// For one request.
    pub(super) fn timeout(&self) -> Duration {
        self.settings.timeout_ms.map_or(USUAL_TIMEOUT, Duration::from_millis)
    }

    /// Whether a span is for it; counted where not.
    pub(super) fn wants(&self, span: &SpanRecord) -> bool {
        let OtelReceiver { tenants, reported, clean_sample_rate, .. } = &self.settings;
        let is_own = tenants.is_empty() || tenants.contains(&span.tenant_id);
        if !is_own || (!reported && span.tags.contains_key(REPORTED)) {
            self.tally.not_wanted.add(1);
            return false;
        }
        let is_sampled = !span.security_findings.is_empty() || is_sampled(span, *clean_sample_rate);
        if !is_sampled {
            self.tally.not_sampled.add(1);
        }
        is_sampled
    }

    /// One request with these spans.
    pub(super) async fn send(&self, spans: &[Encoded]) -> Result<Answer, OutboundError> {
        let body = request(&self.resource, super::names::of(self.settings.semconv).schema_url, spans);
        self.tally.requests.add(1);
        self.post(&self.url, body).await
    }

    /// Whether metrics are sent to it, too.
    pub(super) fn wants_metrics(&self) -> bool {
        self.metrics_url.is_some()
    }

    /// The request with these metrics.
    pub(super) fn metrics_request(&self, metrics: &[Message]) -> Vec<u8> {
        super::points::request(&self.resource, metrics)
    }

    /// Sends one.
    pub(super) async fn send_metrics(&self, body: Vec<u8>) -> Result<Answer, OutboundError> {
        self.post(self.metrics_url.as_deref().unwrap_or_default(), body).await
    }

    async fn post(&self, url: &str, body: Vec<u8>) -> Result<Answer, OutboundError> {
        let is_packed = self.settings.compression == Some(OtelCompression::Gzip);
        let body = if is_packed {
            // It takes milliseconds, and others work on this thread.
            tokio::task::spawn_blocking(move || packed(&body)).await.unwrap_or_default()
        } else {
            body
        };
        let mut call = Call::post(url, "application/x-protobuf", body)?;
        if is_packed {
            call = call.field(http::header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        for (name, value) in self.settings.fields() {
            // Their form was checked with the settings.
            if let (Ok(name), Ok(mut value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
                value.set_sensitive(true);
                call = call.field(name, value);
            }
        }
        self.client.send(call, Limits { total: self.timeout(), answer_bytes: ANSWER_BYTES, cut: true }).await
    }

    /// Spans of which the first ended then are about to be sent.
    pub(super) fn begins(&self, oldest: Timestamp) {
        self.oldest.store(oldest.micros(), Ordering::Relaxed);
    }

    /// They are dealt with.
    pub(super) fn ends(&self) {
        self.oldest.store(0, Ordering::Relaxed);
    }

    pub(super) fn took(&self) {
        *self.failing.lock() = None;
    }

    pub(super) fn failed(&self, reason: &str) {
        self.tally.failed.add(1);
        let mut failing = self.failing.lock();
        let since = failing.as_ref().map_or_else(Instant::now, |failing| failing.since);
        *failing = Some(Failing { since, reason: reason.to_owned() });
    }

    /// What is to be said of a receiver that has taken nothing for long.
    pub(super) fn complaint(&self) -> Option<String> {
        let failing = self.failing.lock();
        let Failing { since, reason } = failing.as_ref()?;
        let passed = since.elapsed();
        (passed >= FAILING_AFTER).then(|| {
            let label = &self.label;
            format!("the receiver {label} of `otel_export` has taken no spans for {} s: {reason}", passed.as_secs())
        })
    }
}

/// Whether a trace is among so large a share of all: the same traces for every receiver, and for samplers that go by the same bits.
fn is_sampled(span: &SpanRecord, share: f64) -> bool {
    let (_, low) = span.trace_id.uuid().as_u64_pair();
    let all = (1_u64 << SAMPLED_BITS) as f64;
    (low & ((1 << SAMPLED_BITS) - 1)) as f64 >= (1.0 - share) * all
}

fn resource(export: &OtelExport) -> Message {
    let mut resource = Message::default();
    resource.attribute(1, "service.name", Value::Text(&export.service_name));
    resource.attribute(1, "service.version", Value::Text(env!("CARGO_PKG_VERSION")));
    let instance = uuid::Uuid::new_v4().to_string();
    resource.attribute(1, "service.instance.id", Value::Text(&instance));
    let pairs = export.resource_attributes.iter().filter_map(|pair| pair.split_once('='));
    for (name, value) in pairs.map(|(name, value)| (name.trim(), value.trim())) {
        resource.attribute(1, name, Value::Text(value));
    }
    resource
}

/// `ExportTraceServiceRequest`, written once: lengths are known before what they are of.
fn request(resource: &Message, schema_url: &str, spans: &[Encoded]) -> Vec<u8> {
    let mut scope = Message::default();
    scope.bytes(1, b"weir");
    scope.bytes(2, env!("CARGO_PKG_VERSION").as_bytes());
    let schema_len = if schema_url.is_empty() { 0 } else { field_len(3, schema_url.len()) };
    let all = || spans.iter().flat_map(|encoded| std::iter::once(&encoded.span).chain(&encoded.tries));
    let spans_len: usize = all().map(|span| field_len(2, span.len())).sum();
    let scope_spans_len = field_len(1, scope.len()) + spans_len + schema_len;
    let resource_spans_len = field_len(1, resource.len()) + field_len(2, scope_spans_len);
    let mut request = Message::with_capacity(field_len(1, resource_spans_len));
    request.begin(1, resource_spans_len);
    request.message(1, resource);
    request.begin(2, scope_spans_len);
    request.message(1, &scope);
    all().for_each(|span| request.message(2, span));
    if !schema_url.is_empty() {
        request.bytes(3, schema_url.as_bytes());
    }
    request.into_bytes()
}

/// All receivers' counters.
pub(super) struct Tallies(pub(super) Vec<Arc<Receiver>>);

impl Source for Tallies {
    fn collect(&self, out: &mut Exposition) {
        for receiver in &self.0 {
            let Tally { sent, rejected, refused, not_wanted, not_sampled, cut, requests, failed } = &receiver.tally;
            let label = ("receiver", receiver.label.as_str());
            let outcomes = [
                ("cut", cut),
                ("not_sampled", not_sampled),
                ("not_wanted", not_wanted),
                ("refused", refused),
                ("rejected", rejected),
                ("sent", sent),
            ];
            for (outcome, Count(count)) in outcomes {
                out.counter(names::OTEL_SPANS, &[label, ("outcome", outcome)], count.load(Ordering::Relaxed));
            }
            out.counter(names::OTEL_REQUESTS, &[label], requests.0.load(Ordering::Relaxed));
            out.counter(names::OTEL_FAILURES, &[label], failed.0.load(Ordering::Relaxed));
            if receiver.wants_metrics() {
                for (outcome, Count(count)) in [("failed", &receiver.metrics.failed), ("sent", &receiver.metrics.sent)]
                {
                    let labels = [label, ("outcome", outcome)];
                    out.counter(names::OTEL_METRICS, &labels, count.load(Ordering::Relaxed));
                }
            }
            let oldest = receiver.oldest.load(Ordering::Relaxed);
            let lag = if oldest == 0 { 0 } else { Timestamp::now().micros().saturating_sub(oldest).max(0) };
            out.gauge(names::OTEL_LAG, &[label], lag as f64 / 1e6);
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_config::egress::Egress;
    use weir_config::vocab::{SharedSecret, TraceId};

    use super::*;

    fn receiver() -> Receiver {
        let settings = OtelReceiver { endpoint: Some(SharedSecret::new("http://h:4318")), ..OtelReceiver::default() };
        let client = Client::new(&Egress::default(), None, Duration::from_secs(1)).unwrap();
        Receiver::new(0, &settings, &OtelExport::default(), client).unwrap()
    }

    #[test]
    fn a_receiver_that_takes_nothing_for_a_minute_is_told_of_until_it_does() {
        let receiver = receiver();
        receiver.failed("the receiver answered 503");
        assert_eq!(receiver.complaint(), None, "a restart takes less");
        receiver.failing.lock().as_mut().unwrap().since = Instant::now().checked_sub(FAILING_AFTER).unwrap();
        receiver.failed("the receiver answered 401");
        let said = receiver.complaint().unwrap();
        assert!(
            said.contains("receiver 1 of `otel_export`") && said.contains("60 s: the receiver answered 401"),
            "{said}"
        );
        receiver.took();
        assert_eq!(receiver.complaint(), None);
    }

    #[test]
    fn samples_have_the_share_that_is_asked_for_and_the_smaller_is_part_of_the_larger() {
        let mut span = crate::feed::testing::blank_call();
        let mut counts = [0; 4];
        for _ in 0..4_000 {
            span.trace_id = TraceId::fresh();
            let among = [0.0, 0.1, 0.5, 1.0].map(|share| is_sampled(&span, share));
            assert!(among.is_sorted(), "{among:?}");
            counts.iter_mut().zip(among).for_each(|(count, is_among)| *count += u32::from(is_among));
        }
        assert!(counts[0] == 0 && (280..520).contains(&counts[1]) && (1_800..2_200).contains(&counts[2]), "{counts:?}");
        assert_eq!(counts[3], 4_000);
    }
}
