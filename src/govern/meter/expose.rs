//! Samples to Prometheus text 0.0.4, through the `prometheus` crate's encoder.
//!
//! Invariant: a family appears once, with a type and help text; those of the interface appear also without a sample.
//! Knows no cells.

use prometheus::proto;

use super::cell::HistogramSum;
use super::interface::{announce_rest, bare_gauges};
use super::names::Family;

/// The `Content-Type` of what [`Exposition::render`] returns.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Label name and value pairs of one sample.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// The families of one scrape, filled by whoever has samples.
#[derive(Debug, Default)]
pub struct Exposition {
    families: Vec<proto::MetricFamily>,
}

impl Exposition {
    /// Adds one sample of a counter.
    pub fn counter(&mut self, family: Family, labels: Labels<'_>, value: u64) {
        let mut counter = proto::Counter::default();
        counter.set_value(value as f64);
        let mut metric = proto::Metric::from_label(pairs(labels));
        metric.set_counter(counter);
        self.push(family, proto::MetricType::COUNTER, metric);
    }

    /// Adds one sample of a gauge.
    pub fn gauge(&mut self, family: Family, labels: Labels<'_>, value: f64) {
        let mut gauge = proto::Gauge::default();
        gauge.set_value(value);
        let mut metric = proto::Metric::from_label(pairs(labels));
        metric.set_gauge(gauge);
        self.push(family, proto::MetricType::GAUGE, metric);
    }

    /// Adds one histogram; its values count `per_unit` to one unit of the metric (1e6 when microseconds are shown as
    /// seconds).
    pub fn histogram(&mut self, family: Family, labels: Labels<'_>, sum: &HistogramSum, per_unit: f64) {
        let mut seen = 0;
        let mut buckets = Vec::with_capacity(sum.bounds.len());
        for (bound, count) in sum.bounds.iter().zip(&sum.classes) {
            seen += count;
            let mut bucket = proto::Bucket::default();
            bucket.set_upper_bound(*bound as f64 / per_unit);
            bucket.set_cumulative_count(seen);
            buckets.push(bucket);
        }
        let mut histogram = proto::Histogram::default();
        histogram.set_bucket(buckets);
        // The same reads that fill the buckets make the count, so that they agree while writers go on.
        histogram.set_sample_count(sum.classes.iter().sum());
        histogram.set_sample_sum(sum.sum as f64 / per_unit);
        let mut metric = proto::Metric::from_label(pairs(labels));
        metric.set_histogram(histogram);
        self.push(family, proto::MetricType::HISTOGRAM, metric);
    }

    /// The text of all families, sorted by name; then the interface's families that have no sample yet.
    pub fn render(mut self) -> prometheus::Result<String> {
        self.families.sort_by(|a, b| a.name().cmp(b.name()));
        let mut text = prometheus::TextEncoder::new().encode_to_string(&self.families)?;
        announce_rest(&mut text);
        Ok(text)
    }

    /// The families, sorted by name, with the gauges of the interface that show 0 until somebody sets them.
    pub fn into_families(mut self) -> Vec<proto::MetricFamily> {
        let unset: Vec<Family> =
            bare_gauges().filter(|gauge| self.families.iter().all(|known| known.name() != gauge.name)).collect();
        unset.into_iter().for_each(|gauge| self.gauge(gauge, &[], 0.0));
        self.families.sort_by(|a, b| a.name().cmp(b.name()));
        self.families
    }

    fn push(&mut self, family: Family, kind: proto::MetricType, metric: proto::Metric) {
        // Samples of a family mostly come in a row: the last family is looked at first.
        if let Some(known) = self.families.iter_mut().rev().find(|known| known.name() == family.name) {
            return known.mut_metric().push(metric);
        }
        let mut fresh = proto::MetricFamily::default();
        fresh.set_name(family.name.to_owned());
        fresh.set_help(family.help.to_owned());
        fresh.set_field_type(kind);
        fresh.set_metric(vec![metric]);
        self.families.push(fresh);
    }
}

fn pairs(labels: Labels<'_>) -> Vec<proto::LabelPair> {
    let pair = |(name, value): &(&str, &str)| {
        let mut pair = proto::LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    };
    labels.iter().map(pair).collect()
}
