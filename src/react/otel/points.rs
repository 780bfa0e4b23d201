//! Families of metrics as messages of OTLP (`opentelemetry/proto/metrics/v1`).

use prometheus::proto::{Metric, MetricFamily, MetricType};
use weir_config::vocab::Timestamp;

use super::content::nanos;
use super::wire::{Message, Value, field_len};
use crate::meter::Registry;

/// Sums and histograms say all since the start.
const CUMULATIVE: u64 = 2;
/// Numbers of a metric's fields.
const GAUGE: u64 = 5;
const SUM: u64 = 7;
const HISTOGRAM: u64 = 9;
/// Attributes of a point of a sum or a gauge, and of one of a histogram.
const NUMBER_ATTRIBUTES: u64 = 7;
const HISTOGRAM_ATTRIBUTES: u64 = 9;

/// When points begin, and when they were read.
#[derive(Clone, Copy)]
pub(super) struct Points {
    pub(super) began: Timestamp,
    pub(super) now: Timestamp,
}

/// A call that stands for others of its series.
#[derive(Clone)]
pub(super) struct Exemplar {
    pub(super) trace: [u8; 16],
    pub(super) span: [u8; 8],
    pub(super) at: Timestamp,
    pub(super) value: f64,
}

/// One series of a histogram.
pub(super) struct Series<'a> {
    pub(super) bounds: &'a [f64],
    /// One more than bounds, each for itself.
    pub(super) counts: &'a [u64],
    pub(super) sum: f64,
    pub(super) exemplar: Option<&'a Exemplar>,
}

impl Points {
    /// All that a scraper sees now.
    pub(super) fn of_registry(self, registry: &Registry) -> Vec<Message> {
        registry.families().iter().map(|family| self.of_family(family)).collect()
    }

    fn of_family(self, family: &MetricFamily) -> Message {
        let mut data = Message::default();
        let (field, is_sum) = match family.get_field_type() {
            MetricType::HISTOGRAM => (HISTOGRAM, false),
            MetricType::COUNTER => (SUM, true),
            _ => (GAUGE, false),
        };
        for metric in family.get_metric() {
            let point = match field {
                HISTOGRAM => self.of_histogram(metric),
                SUM => self.number(metric, Some(metric.get_counter().get_value())),
                _ => self.number(metric, None),
            };
            data.message(1, &point);
        }
        if field != GAUGE {
            data.uint(2, CUMULATIVE);
        }
        if is_sum {
            data.uint(3, 1);
        }
        metric_of(family.name(), family.help(), unit_of(family.name()), field, &data)
    }

    /// A point of a sum, which counts whole things, or of a gauge.
    fn number(self, metric: &Metric, counted: Option<f64>) -> Message {
        let mut point = Message::default();
        if let Some(counted) = counted {
            point.fixed64(2, nanos(self.began));
            point.fixed64(3, nanos(self.now));
            point.fixed64(6, counted as u64);
        } else {
            point.fixed64(3, nanos(self.now));
            point.fixed64(4, metric.get_gauge().get_value().to_bits());
        }
        label(&mut point, NUMBER_ATTRIBUTES, metric);
        point
    }

    fn of_histogram(self, metric: &Metric) -> Message {
        let histogram = metric.get_histogram();
        let (mut bounds, mut counts, mut seen) = (Vec::new(), Vec::new(), 0);
        for bucket in histogram.get_bucket().iter().filter(|bucket| bucket.upper_bound().is_finite()) {
            bounds.push(bucket.upper_bound());
            counts.push(bucket.cumulative_count().saturating_sub(seen));
            seen = bucket.cumulative_count();
        }
        counts.push(histogram.get_sample_count().saturating_sub(seen));
        let series = Series { bounds: &bounds, counts: &counts, sum: histogram.get_sample_sum(), exemplar: None };
        let mut point = self.histogram(&series);
        label(&mut point, HISTOGRAM_ATTRIBUTES, metric);
        point
    }

    /// A point of a histogram, whose attributes follow.
    pub(super) fn histogram(self, series: &Series<'_>) -> Message {
        let mut point = Message::default();
        point.fixed64(2, nanos(self.began));
        point.fixed64(3, nanos(self.now));
        point.fixed64(4, series.counts.iter().sum());
        point.fixed64(5, series.sum.to_bits());
        let packed = |values: &mut dyn Iterator<Item = u64>| values.flat_map(u64::to_le_bytes).collect::<Vec<u8>>();
        point.bytes(6, &packed(&mut series.counts.iter().copied()));
        point.bytes(7, &packed(&mut series.bounds.iter().map(|bound| bound.to_bits())));
        if let Some(exemplar) = series.exemplar {
            let mut message = Message::default();
            message.fixed64(2, nanos(exemplar.at));
            message.fixed64(3, exemplar.value.to_bits());
            message.bytes(4, &exemplar.span);
            message.bytes(5, &exemplar.trace);
            point.message(8, &message);
        }
        point
    }
}

/// A histogram of these points.
pub(super) fn histogram(name: &str, help: &str, unit: &str, points: &[Message]) -> Message {
    let mut data = Message::default();
    points.iter().for_each(|point| data.message(1, point));
    data.uint(2, CUMULATIVE);
    metric_of(name, help, unit, HISTOGRAM, &data)
}

fn metric_of(name: &str, help: &str, unit: &str, field: u64, data: &Message) -> Message {
    let mut metric = Message::with_capacity(data.len() + 256);
    metric.bytes(1, name.as_bytes());
    metric.bytes(2, help.as_bytes());
    if !unit.is_empty() {
        metric.bytes(3, unit.as_bytes());
    }
    metric.message(field, data);
    metric
}

/// The unit that a name of Prometheus ends with, as UCUM spells it.
fn unit_of(name: &str) -> &'static str {
    let name = name.strip_suffix("_total").unwrap_or(name);
    if name.ends_with("_seconds") {
        "s"
    } else if name.ends_with("_bytes") {
        "By"
    } else {
        ""
    }
}

fn label(point: &mut Message, field: u64, metric: &Metric) {
    for label in metric.get_label() {
        point.attribute(field, label.name(), Value::Text(label.value()));
    }
}

/// `ExportMetricsServiceRequest`.
pub(super) fn request(resource: &Message, metrics: &[Message]) -> Vec<u8> {
    let mut scope = Message::default();
    scope.bytes(1, b"weir");
    scope.bytes(2, env!("CARGO_PKG_VERSION").as_bytes());
    let metrics_len: usize = metrics.iter().map(|metric| field_len(2, metric.len())).sum();
    let scope_metrics_len = field_len(1, scope.len()) + metrics_len;
    let resource_metrics_len = field_len(1, resource.len()) + field_len(2, scope_metrics_len);
    let mut request = Message::with_capacity(field_len(1, resource_metrics_len));
    request.begin(1, resource_metrics_len);
    request.message(1, resource);
    request.begin(2, scope_metrics_len);
    request.message(1, &scope);
    metrics.iter().for_each(|metric| request.message(2, metric));
    request.into_bytes()
}
