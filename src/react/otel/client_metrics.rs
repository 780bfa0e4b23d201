//! The client metrics of the conventions for generative AI: how many tokens calls use, and how long they take, with the trace of the last
//! call of each series. A consumer of finished spans counts them, once for all receivers.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use weir_config::settings::OtelSemconv;
use weir_storage::record::SpanRecord;

use super::names;
use super::points::{Exemplar, Points, Series, histogram};
use super::span::{error_type, short};
use super::wire::{Message, Value};
use crate::feed::{Batch, Consumer, Failure, Texts};
use crate::meter::OTHER;

/// Series of one metric; what comes beyond them counts under the model `other`.
const SERIES_MAX: usize = 1_000;
/// Attributes of a point of a histogram.
const ATTRIBUTES: u64 = 9;
/// As the conventions advise.
const TOKEN_BOUNDS: [f64; 14] = [
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];
const SECOND_BOUNDS: [f64; 14] =
    [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];

/// What tells series apart: operation, provider, model, and the kind of token or of error.
type Key = (String, String, Option<String>, Option<String>);

/// Counts of one series.
struct Counts {
    counts: [u64; 15],
    sum: f64,
    last: Exemplar,
}

/// One metric.
struct Family {
    bounds: &'static [f64; 14],
    series: HashMap<Key, Counts>,
}

/// Both metrics.
pub(super) struct ClientMetrics(Mutex<[Family; 2]>);

impl ClientMetrics {
    pub(super) fn new() -> Arc<Self> {
        let family = |bounds| Family { bounds, series: HashMap::new() };
        Arc::new(Self(Mutex::new([family(&TOKEN_BOUNDS), family(&SECOND_BOUNDS)])))
    }

    fn count(&self, span: &SpanRecord) {
        let Some(operation) = names::operation(&span.operation_name) else { return };
        let key = |what: Option<&str>| {
            let provider = names::provider(&span.provider).to_owned();
            (operation.to_owned(), provider, span.model.clone(), what.map(str::to_owned))
        };
        let mut families = self.0.lock();
        let [tokens, seconds] = &mut *families;
        for (kind, count) in [("input", span.prompt_tokens), ("output", span.completion_tokens)] {
            if let Some(count) = count {
                tokens.add(key(Some(kind)), count as f64, span);
            }
        }
        seconds.add(key(error_type(span).as_deref()), span.duration_ms / 1_000.0, span);
    }

    /// Both as messages, where there is anything to say.
    pub(super) fn encode(&self, points: Points, semconv: OtelSemconv) -> Vec<Message> {
        let families = self.0.lock();
        let [tokens, seconds] = &*families;
        let all = [
            (tokens, "gen_ai.client.token.usage", "Tokens that calls use.", "{token}", "gen_ai.token.type"),
            (seconds, "gen_ai.client.operation.duration", "Time that calls take.", "s", names::ERROR_TYPE),
        ];
        let there = all.into_iter().filter(|(family, ..)| !family.series.is_empty());
        there
            .map(|(family, name, help, unit, what)| {
                histogram(name, help, unit, &family.points(points, names::of(semconv).provider, what))
            })
            .collect()
    }
}

impl Family {
    fn add(&mut self, mut key: Key, value: f64, span: &SpanRecord) {
        if self.series.len() >= SERIES_MAX && !self.series.contains_key(&key) {
            // Models and errors are strangers' words; kinds of tokens are not.
            let is_token = key.3.as_deref().is_some_and(|what| ["input", "output"].contains(&what));
            key.2 = Some(OTHER.to_owned());
            key.3 = if is_token { key.3 } else { key.3.map(|_| OTHER.to_owned()) };
        }
        let class = self.bounds.iter().position(|bound| value <= *bound).unwrap_or(self.bounds.len());
        let last = Exemplar { trace: *span.trace_id.as_bytes(), span: short(span.span_id), at: span.end_time, value };
        let counts = self.series.entry(key).or_insert_with(|| Counts { counts: [0; 15], sum: 0.0, last: last.clone() });
        if let Some(count) = counts.counts.get_mut(class) {
            *count += 1;
        }
        counts.sum += value;
        counts.last = last;
    }

    fn points(&self, points: Points, provider_name: &str, what_name: &str) -> Vec<Message> {
        let point = |(key, counts): (&Key, &Counts)| {
            let (operation, provider, model, what) = key;
            let series =
                Series { bounds: self.bounds, counts: &counts.counts, sum: counts.sum, exemplar: Some(&counts.last) };
            let mut point = points.histogram(&series);
            point.attribute(ATTRIBUTES, names::OPERATION, Value::Text(operation));
            point.attribute(ATTRIBUTES, provider_name, Value::Text(provider));
            for (name, value) in [(names::REQUEST_MODEL, model), (what_name, what)] {
                if let Some(value) = value {
                    point.attribute(ATTRIBUTES, name, Value::Text(value));
                }
            }
            point
        };
        self.series.iter().map(point).collect()
    }
}

/// The consumer that counts.
pub(super) struct Counter(pub(super) Arc<ClientMetrics>);

impl Consumer for Counter {
    fn name(&self) -> &'static str {
        "otel_metrics"
    }

    fn reads_alone(&self) -> bool {
        true
    }

    fn texts(&self) -> Texts {
        Texts::OfNone
    }

    async fn take(&mut self, batch: Batch<'_>) -> Result<(), Failure> {
        batch.spans.iter().for_each(|span| self.0.count(span));
        Ok(())
    }
}
