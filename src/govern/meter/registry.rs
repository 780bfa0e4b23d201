//! Where the cores' cells are summed at a scrape.
//!
//! Invariant: a scrape never makes a writer wait (cells are read where they lie, new series arrive over a lock-free
//! queue), sums never fall while the process lives, and label values are bounded over all cores. The lock here is taken
//! by scrapes only. Knows no HTTP.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use crossbeam_queue::SegQueue;
use parking_lot::Mutex;
use weir_config::vocab::Unread;

use super::cell::{Counter, HistogramSum};
use super::core::{
    AnswerStop, ClientEvent, CoreCells, CoreMeter, DETECTOR_BOUNDS_US, DURATION_BOUNDS_US, DetectorSeries, Direction,
    DropSeries, FindingSeries, Fresh, HELD_BOUNDS, OVERHEAD_BOUNDS_US, RequestSeries, STATUS_OTHER, StatusSeries,
};
use super::cost::KnownCosts;
use super::defence::{self, DefenceSeries};
use super::expose::Exposition;
use super::label::{Admitted, FINDING_TYPES_MAX, MODELS_MAX, OTHER};
use super::names;
use super::shared::Shared;

/// Shown as seconds, counted as microseconds.
const MICROS_PER_SECOND: f64 = 1e6;

/// Something outside the meter that has samples to add at each scrape, e.g. the circuit breakers.
pub trait Source: Send + Sync {
    /// Adds the samples as of now. Called on the scraping thread; must not block.
    fn collect(&self, out: &mut Exposition);
}

/// A bounded queue whose depth is shown in `/metrics` and `/health`.
pub struct QueueGauge {
    /// Label value and JSON key.
    pub name: &'static str,
    /// Items it holds at most.
    pub capacity: u64,
    /// Items waiting now.
    pub depth: Box<dyn Fn() -> u64 + Send + Sync>,
}

/// A queue as of one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueDepth {
    /// Which queue.
    pub name: &'static str,
    /// Items waiting.
    pub depth: u64,
    /// Items it holds at most.
    pub capacity: u64,
}

/// A series with the label value it is shown under.
#[derive(Debug)]
struct Labelled<T> {
    cells: Arc<T>,
    label: Arc<str>,
    folded: bool,
}

/// What scrapes know of the cores.
struct Known {
    models: Admitted,
    finding_types: Admitted,
    cores: Vec<Arc<CoreCells>>,
    requests: Vec<Labelled<RequestSeries>>,
    statuses: Vec<Labelled<StatusSeries>>,
    findings: Vec<Labelled<FindingSeries>>,
    detectors: Vec<Arc<DetectorSeries>>,
    drops: Vec<Arc<DropSeries>>,
    costs: KnownCosts,
    defence: Vec<Arc<DefenceSeries>>,
    sources: Vec<Box<dyn Source>>,
}

/// All metrics of the process.
pub struct Registry {
    fresh: Arc<SegQueue<Fresh>>,
    shared: Arc<Shared>,
    build: OnceLock<(&'static str, String)>,
    known: Mutex<Known>,
    /// Not among what is locked while a scrape is rendered: core threads look at the queues, too.
    queues: ArcSwap<Vec<Arc<QueueGauge>>>,
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    /// A registry without cores.
    pub fn new() -> Self {
        Self {
            fresh: Arc::default(),
            shared: Arc::new(Shared::new()),
            build: OnceLock::new(),
            queues: ArcSwap::default(),
            known: Mutex::new(Known {
                models: Admitted::new(MODELS_MAX),
                finding_types: Admitted::new(FINDING_TYPES_MAX),
                cores: Vec::new(),
                requests: Vec::new(),
                statuses: Vec::new(),
                findings: Vec::new(),
                detectors: Vec::new(),
                drops: Vec::new(),
                costs: KnownCosts::new(),
                defence: Vec::new(),
                sources: Vec::new(),
            }),
        }
    }

    /// The meter of one more core thread.
    pub fn core(&self) -> CoreMeter {
        CoreMeter::new(self.fresh.clone())
    }

    /// The cells of everybody else.
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Says what is running; the first call counts.
    pub fn set_build(&self, version: &'static str, io_driver: &str) {
        self.build.get_or_init(|| (version, io_driver.to_owned()));
    }

    /// Adds samples from outside the meter to every scrape.
    pub fn add_source(&self, source: Box<dyn Source>) {
        self.known.lock().sources.push(source);
    }

    /// Shows a bounded queue in `/metrics` and `/health`.
    pub fn watch_queue(&self, queue: QueueGauge) {
        let queue = Arc::new(queue);
        self.queues.rcu(|queues| {
            let mut queues = Vec::clone(queues);
            queues.push(Arc::clone(&queue));
            queues
        });
    }

    /// The watched queues as of now, in the order they were added. Waits for nobody.
    pub fn queues(&self) -> Vec<QueueDepth> {
        let now =
            |queue: &Arc<QueueGauge>| QueueDepth { name: queue.name, depth: (queue.depth)(), capacity: queue.capacity };
        self.queues.load().iter().map(now).collect()
    }

    /// Everything as Prometheus text 0.0.4. Costs about a microsecond a line, so not for a thread that must not wait.
    pub fn render(&self) -> prometheus::Result<String> {
        self.collect().render()
    }

    /// The same families as values, for those who are sent them in another form.
    pub fn families(&self) -> Vec<prometheus::proto::MetricFamily> {
        self.collect().into_families()
    }

    fn collect(&self) -> Exposition {
        let mut out = Exposition::default();
        let mut known = self.known.lock();
        known.take_in(&self.fresh);
        if let Some((version, io_driver)) = self.build.get() {
            out.gauge(names::BUILD_INFO, &[("version", version), ("io_driver", io_driver)], 1.0);
        }
        known.expose_requests(&mut out);
        known.costs.expose(&mut out);
        defence::expose(&known.defence, known.cores.iter().map(|core| &core.defence), &mut out);
        known.expose_analysis(&self.shared, &mut out);
        known.expose_cores(&self.shared, &mut out);
        for ((operation, ok), count) in self.shared.storage.iter() {
            let status = if *ok { "success" } else { "error" };
            out.counter(names::STORAGE_OPERATIONS, &[("operation", operation), ("status", status)], count.get());
        }
        for queue in self.queues.load().iter() {
            let labels = [("queue", queue.name)];
            out.gauge(names::QUEUE_DEPTH, &labels, (queue.depth)() as f64);
            out.gauge(names::QUEUE_CAPACITY, &labels, queue.capacity as f64);
        }
        for source in &known.sources {
            source.collect(&mut out);
        }
        out
    }
}

impl Known {
    /// Takes in the series begun since the last scrape and settles the names they are shown under.
    fn take_in(&mut self, fresh: &SegQueue<Fresh>) {
        while let Some(series) = fresh.pop() {
            match series {
                Fresh::Core(cells) => self.cores.push(cells),
                Fresh::Request(cells) => {
                    let (label, folded) = self.models.admit_from(cells.tenant, &cells.model);
                    self.requests.push(Labelled { cells, label, folded });
                }
                Fresh::Status(cells) => {
                    let (label, folded) = self.models.admit_from(cells.of.tenant, &cells.of.model);
                    self.statuses.push(Labelled { cells, label, folded });
                }
                Fresh::Finding(cells) => {
                    let (label, folded) = self.finding_types.admit(&cells.finding_type);
                    self.findings.push(Labelled { cells, label, folded });
                }
                Fresh::Detector(cells) => self.detectors.push(cells),
                Fresh::Drop(cells) => self.drops.push(cells),
                Fresh::Cost(cells) => self.costs.take_in(cells),
                Fresh::Defence(cells) => self.defence.push(cells),
            }
        }
    }

    fn expose_requests(&self, out: &mut Exposition) {
        let mut counts = BTreeMap::<(&str, &str, u16), u64>::new();
        for series in &self.statuses {
            let key = (series.cells.of.provider, &*series.label, series.cells.status);
            *counts.entry(key).or_default() += series.cells.count.get();
        }
        for ((provider, model, status), count) in counts {
            let status = match status {
                0 => "none".to_owned(),
                STATUS_OTHER => OTHER.to_owned(),
                code => code.to_string(),
            };
            out.counter(names::REQUESTS, &[("provider", provider), ("model", model), ("status_code", &status)], count);
        }

        let mut sums = BTreeMap::<(&str, &str), (HistogramSum, u64, u64, u64)>::new();
        for series in &self.requests {
            let key = (series.cells.provider, &*series.label);
            let (durations, prompt, completion, unpriced) =
                sums.entry(key).or_insert_with(|| (HistogramSum::empty(&DURATION_BOUNDS_US), 0, 0, 0));
            durations.add(&series.cells.duration_us);
            *prompt += series.cells.prompt_tokens.get();
            *completion += series.cells.completion_tokens.get();
            *unpriced += series.cells.unpriced.get();
        }
        for ((provider, model), (durations, ..)) in &sums {
            let labels = [("provider", *provider), ("model", *model)];
            out.histogram(names::REQUEST_DURATION, &labels, durations, MICROS_PER_SECOND);
        }
        for ((provider, model), (_, _, _, unpriced)) in sums.iter().filter(|(_, sums)| sums.3 > 0) {
            out.counter(names::UNPRICED, &[("provider", provider), ("model", model)], *unpriced);
        }
        for ((provider, model), (_, prompt, completion, _)) in &sums {
            for (direction, tokens) in [("prompt", *prompt), ("completion", *completion)] {
                let labels = [("direction", direction), ("provider", provider), ("model", model)];
                out.counter(names::TOKENS, &labels, tokens);
            }
        }
    }

    fn expose_analysis(&self, shared: &Shared, out: &mut Exposition) {
        let mut counts = BTreeMap::<(&str, &str), u64>::new();
        for series in &self.findings {
            *counts.entry((series.cells.severity.as_str(), &series.label)).or_default() += series.cells.count.get();
        }
        for ((severity, finding_type), count) in counts {
            out.counter(names::FINDINGS, &[("severity", severity), ("finding_type", finding_type)], count);
        }

        let mut latencies = BTreeMap::<&str, HistogramSum>::new();
        let cores = self.detectors.iter().map(|series| (series.detector, &series.latency_us));
        let others = shared.detectors.iter().map(|(detector, latency_us)| (*detector, latency_us));
        for (detector, latency_us) in cores.chain(others) {
            latencies.entry(detector).or_insert_with(|| HistogramSum::empty(&DETECTOR_BOUNDS_US)).add(latency_us);
        }
        for (detector, latency) in &latencies {
            out.histogram(names::DETECTOR_LATENCY, &[("detector", detector)], latency, MICROS_PER_SECOND);
        }
    }

    fn expose_cores(&self, shared: &Shared, out: &mut Exposition) {
        let total = |read: fn(&CoreCells) -> &Counter| self.cores.iter().map(|core| read(core).get()).sum::<u64>();
        // Levels of different cores may be read at different instants; a sum below zero is such an artefact.
        let level = |read: fn(&CoreCells) -> i64| self.cores.iter().map(|core| read(core)).sum::<i64>().max(0) as f64;

        out.gauge(names::ACTIVE_CONNECTIONS, &[], level(|core| core.connections.get()));
        for event in ClientEvent::ALL {
            let counts = self.cores.iter().filter_map(|core| core.client_events.get(event as usize));
            out.counter(names::CLIENT_CONNECTIONS, &[("event", event.label())], counts.map(Counter::get).sum());
        }
        out.gauge(names::UPSTREAM_CONNECTIONS, &[("state", "active")], level(|core| core.upstream_active.get()));
        out.gauge(names::UPSTREAM_CONNECTIONS, &[("state", "idle")], level(|core| core.upstream_idle.get()));
        out.counter(names::PANICS, &[], total(|core| &core.panics) + shared.panics.get());

        for direction in Direction::ALL {
            for reason in Unread::ALL {
                let cell =
                    |core: &CoreCells| core.unread.get(direction as usize)?.get(reason as usize).map(Counter::get);
                let count = self.cores.iter().filter_map(|core| cell(core)).sum();
                let labels = [("direction", direction.label()), ("reason", reason.as_str())];
                out.counter(names::UNREAD, &labels, count);
            }
        }

        for how in AnswerStop::ALL {
            let counts = self.cores.iter().filter_map(|core| core.stopped.get(how as usize));
            out.counter(names::ANSWERS_STOPPED, &[("how", how.label())], counts.map(Counter::get).sum());
        }

        let mut held = HistogramSum::empty(&HELD_BOUNDS);
        self.cores.iter().for_each(|core| held.add(&core.held));
        out.histogram(names::ANSWER_HELD_BYTES, &[], &held, 1.0);

        let mut overhead = HistogramSum::empty(&OVERHEAD_BOUNDS_US);
        self.cores.iter().for_each(|core| overhead.add(&core.overhead_us));
        out.histogram(names::OVERHEAD, &[], &overhead, MICROS_PER_SECOND);

        let folded_here = self.statuses.iter().filter(|series| series.folded).map(|series| series.cells.count.get());
        let models = total(|core| &core.folded_models) + folded_here.sum::<u64>();
        let folded_here = self.findings.iter().filter(|series| series.folded).map(|series| series.cells.count.get());
        let finding_types = total(|core| &core.folded_finding_types) + folded_here.sum::<u64>();
        let statuses = total(|core| &core.folded_statuses);
        let tenants = self.costs.folded_tenants();
        let folds =
            [("model", models), ("finding_type", finding_types), ("status_code", statuses), ("tenant", tenants)];
        for (label, count) in folds {
            out.counter(names::LABEL_FOLDS, &[("label", label)], count);
        }

        for ((method, code), count) in shared.rpcs.iter() {
            out.counter(names::GRPC_CALLS, &[("method", method), ("code", code)], count.get());
        }

        let mut drops = BTreeMap::<(&str, &str), u64>::new();
        for series in &self.drops {
            *drops.entry((series.queue, series.reason)).or_default() += series.count.get();
        }
        for ((queue, reason), count) in shared.drops.iter() {
            *drops.entry((queue, reason)).or_default() += count.get();
        }
        for ((queue, reason), count) in drops {
            out.counter(names::DROPPED, &[("queue", queue), ("reason", reason)], count);
        }
    }
}
