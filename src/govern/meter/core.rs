//! The meter of one core thread: what the hot path writes.
//!
//! Invariant: only the owning thread writes these cells, and no cell shares a cache line with another core's; a warm
//! label set costs neither an allocation nor a locked instruction. New series announce themselves to the registry
//! through a lock-free queue. Knows nothing of sums, limits across cores or exposition.

use std::cell::RefCell;
use std::sync::Arc;

use crossbeam_queue::SegQueue;
use weir_config::vocab::{Severity, TenantId, Unread, UnreadSet};

use super::cell::{Counter, Gauge, Histogram};
use super::cost::{CoreCosts, CostSeries};
use super::defence::{CoreDefence, DefenceCells, DefenceError, DefenceSeries, DefenceSkip};
use super::label::{Admitted, FINDING_TYPES_MAX, MODELS_MAX, NO_MODEL, OTHER, is_legal};
use super::table::Table;

/// Microseconds; 1 ms to 300 s.
pub(super) static DURATION_BOUNDS_US: [u64; 17] = [
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    120_000_000,
    300_000_000,
];
/// Microseconds; what the gateway adds lies between tens and thousands.
pub(super) static OVERHEAD_BOUNDS_US: [u64; 18] =
    [5, 10, 15, 20, 25, 30, 40, 50, 75, 100, 150, 250, 500, 1_000, 2_500, 10_000, 50_000, 250_000];
/// Bytes of an answer that waited for a look at once, up to the bound on them.
pub(super) static HELD_BOUNDS: [u64; 8] = [256, 1_024, 2_048, 4_096, 16_384, 65_536, 262_144, 1_048_576];
/// Microseconds; from a rule set over a short text to a remote model.
pub(super) static DETECTOR_BOUNDS_US: [u64; 15] =
    [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 5_000, 25_000, 100_000, 500_000, 2_500_000];

/// Statuses kept apart per provider and model; further ones count as `other`.
const STATUSES_MAX: usize = 40;
/// Stands for a status beyond [`STATUSES_MAX`].
pub(super) const STATUS_OTHER: u16 = u16::MAX;
/// Separate detectors, or queue and reason pairs, per core; both are named by our own code.
const STATIC_SERIES_MAX: usize = 64;

/// What one provider and model did on one core.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct RequestSeries {
    pub(super) provider: &'static str,
    pub(super) model: Box<str>,
    /// Who brought the model.
    pub(super) tenant: TenantId,
    pub(super) duration_us: Histogram<17>,
    pub(super) prompt_tokens: Counter,
    pub(super) completion_tokens: Counter,
    pub(super) unpriced: Counter,
}

/// Requests of one provider and model that ended with one status; 0 when no head was sent.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct StatusSeries {
    pub(super) of: Arc<RequestSeries>,
    pub(super) status: u16,
    pub(super) count: Counter,
}

/// Findings of one severity and type on one core.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct FindingSeries {
    pub(super) severity: Severity,
    pub(super) finding_type: Box<str>,
    pub(super) count: Counter,
}

/// Latencies of one detector on one core.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct DetectorSeries {
    pub(super) detector: &'static str,
    pub(super) latency_us: Histogram<15>,
}

/// Items lost at one queue for one reason on one core.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct DropSeries {
    pub(super) queue: &'static str,
    pub(super) reason: &'static str,
    pub(super) count: Counter,
}

/// The cells every core has from the start.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct CoreCells {
    pub(super) connections: Gauge,
    pub(super) client_events: [Counter; ClientEvent::ALL.len()],
    pub(super) upstream_active: Gauge,
    pub(super) upstream_idle: Gauge,
    pub(super) panics: Counter,
    pub(super) folded_models: Counter,
    pub(super) folded_finding_types: Counter,
    pub(super) folded_statuses: Counter,
    pub(super) overhead_us: Histogram<18>,
    /// By direction and reason.
    pub(super) unread: [[Counter; Unread::ALL.len()]; Direction::ALL.len()],
    pub(super) stopped: [Counter; AnswerStop::ALL.len()],
    pub(super) held: Histogram<8>,
    pub(super) defence: DefenceCells,
}

/// A series some core has just begun, on its way to the registry.
#[derive(Debug)]
pub(super) enum Fresh {
    Core(Arc<CoreCells>),
    Request(Arc<RequestSeries>),
    Status(Arc<StatusSeries>),
    Finding(Arc<FindingSeries>),
    Detector(Arc<DetectorSeries>),
    Drop(Arc<DropSeries>),
    Cost(Arc<CostSeries>),
    Defence(Arc<DefenceSeries>),
}

/// What an upstream connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpstreamState {
    /// Carrying an exchange.
    Active,
    /// Waiting in the pool.
    Idle,
}

/// Which half of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the provider.
    Request,
    /// Back.
    Response,
}

impl Direction {
    /// Both, in the order of their counters.
    pub(super) const ALL: [Self; 2] = [Self::Request, Self::Response];

    /// The value of the label `direction`.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
        }
    }
}

/// What the client of an answer that was withheld got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerStop {
    /// A legal end of the stream.
    Ended,
    /// An error instead.
    Replaced,
    /// A part that does not look whole.
    Cut,
}

impl AnswerStop {
    /// All of them, in the order of their counters.
    pub(super) const ALL: [Self; 3] = [Self::Ended, Self::Replaced, Self::Cut];

    /// The value of the label `how`, and of the span's tag `response_stopped`.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Replaced => "replaced",
            Self::Cut => "cut",
        }
    }
}

/// What became of a client connection before a request was read from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientEvent {
    /// It was taken.
    Accepted,
    /// It was idle and had to make room for a new one.
    Evicted,
    /// Refused: the process has as many as it may, and none is idle.
    RefusedLimit,
    /// Refused: this client has as many as it may, and none is idle.
    RefusedAddress,
    /// Refused: the process has no descriptor left.
    RefusedDescriptors,
    /// It did not complete its TLS handshake.
    HandshakeFailed,
}

impl ClientEvent {
    /// All of them, in the order of their counters.
    pub(super) const ALL: [Self; 6] = [
        Self::Accepted,
        Self::Evicted,
        Self::RefusedLimit,
        Self::RefusedAddress,
        Self::RefusedDescriptors,
        Self::HandshakeFailed,
    ];

    /// The value of the label `event`.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Evicted => "evicted",
            Self::RefusedLimit => "refused_limit",
            Self::RefusedAddress => "refused_address",
            Self::RefusedDescriptors => "refused_descriptors",
            Self::HandshakeFailed => "handshake_failed",
        }
    }
}

/// The model a call named, and whether it may become a label.
#[derive(Debug, Clone, Copy)]
pub struct Model<'a> {
    /// The name; `None` when the call named none.
    pub name: Option<&'a str>,
    /// Who named it.
    pub tenant: TenantId,
    /// It has a price or has answered. Any other name counts as `other` unless it is shown already: strangers to every
    /// provider would otherwise use up the labels.
    pub vouched: bool,
}

impl<'a> From<Option<&'a str>> for Model<'a> {
    /// A name that needs nobody's word, or none.
    fn from(name: Option<&'a str>) -> Self {
        Self { name, tenant: TenantId::DEFAULT, vouched: true }
    }
}

/// A finished exchange as it is counted.
#[derive(Debug, Clone, Copy)]
pub struct Counted<'a> {
    /// `Provider::label()`.
    pub provider_label: &'static str,
    /// What it was asked of.
    pub model: Model<'a>,
    /// What the client was sent, 0 when it was sent no head.
    pub status: u16,
    /// How long it took, in microseconds.
    pub duration_us: u64,
    /// How much of that was the gateway's own.
    pub overhead_us: u64,
    /// `None` when nobody knows.
    pub prompt_tokens: Option<u64>,
    /// As above.
    pub completion_tokens: Option<u64>,
}

impl Counted<'_> {
    /// One that never reached a provider.
    pub fn refused(provider_label: &'static str, status: u16, duration_us: u64) -> Self {
        let (overhead_us, prompt_tokens, completion_tokens) = (0, None, None);
        Self { provider_label, model: None.into(), status, duration_us, overhead_us, prompt_tokens, completion_tokens }
    }
}

/// A core's entry for one provider and model.
struct Requests {
    series: Arc<RequestSeries>,
    statuses: Vec<Arc<StatusSeries>>,
}

/// The writer of one core thread. It can be sent to its thread but not shared between threads.
pub struct CoreMeter {
    fresh: Arc<SegQueue<Fresh>>,
    cells: Arc<CoreCells>,
    requests: RefCell<Table<Requests>>,
    models: RefCell<Admitted>,
    findings: RefCell<Table<Arc<FindingSeries>>>,
    detectors: RefCell<Vec<Arc<DetectorSeries>>>,
    drops: RefCell<Vec<Arc<DropSeries>>>,
    costs: CoreCosts,
    defence: CoreDefence,
}

impl CoreMeter {
    pub(super) fn new(fresh: Arc<SegQueue<Fresh>>) -> Self {
        let cells = Arc::new(CoreCells {
            connections: Gauge::default(),
            client_events: Default::default(),
            upstream_active: Gauge::default(),
            upstream_idle: Gauge::default(),
            panics: Counter::default(),
            folded_models: Counter::default(),
            folded_finding_types: Counter::default(),
            folded_statuses: Counter::default(),
            overhead_us: Histogram::new(&OVERHEAD_BOUNDS_US),
            unread: Default::default(),
            stopped: Default::default(),
            held: Histogram::new(&HELD_BOUNDS),
            defence: DefenceCells::default(),
        });
        fresh.push(Fresh::Core(cells.clone()));
        Self {
            costs: CoreCosts::new(fresh.clone()),
            defence: CoreDefence::new(fresh.clone()),
            fresh,
            cells,
            requests: RefCell::new(Table::new()),
            models: RefCell::new(Admitted::new(MODELS_MAX)),
            findings: RefCell::new(Table::new()),
            detectors: RefCell::default(),
            drops: RefCell::default(),
        }
    }

    /// Counts one finished exchange.
    pub fn request(&self, call: &Counted<'_>) {
        let Counted { provider_label, model, status, duration_us, overhead_us, prompt_tokens, completion_tokens } =
            *call;
        self.cells.overhead_us.observe(overhead_us);
        let mut table = self.requests.borrow_mut();
        let at = self.locate(&mut table, provider_label, model.name.unwrap_or(NO_MODEL), &model);
        let Some(entry) = table.get_mut(at) else { return };
        entry.series.duration_us.observe(duration_us);
        if let Some(tokens) = prompt_tokens {
            entry.series.prompt_tokens.add(tokens);
        }
        if let Some(tokens) = completion_tokens {
            entry.series.completion_tokens.add(tokens);
        }
        self.count_status(entry, status);
    }

    /// Counts what one call cost.
    pub fn cost(&self, tenant: TenantId, model: Option<&str>, nano_usd: u64) {
        self.costs.add(tenant, model, nano_usd);
    }

    /// Counts one call whose model has no known price.
    pub fn unpriced(&self, provider_label: &'static str, model: Model<'_>) {
        let mut table = self.requests.borrow_mut();
        let at = self.locate(&mut table, provider_label, model.name.unwrap_or(NO_MODEL), &model);
        if let Some(entry) = table.get_mut(at) {
            entry.series.unpriced.add(1);
        }
    }

    /// Counts a request that the boundary defence left alone.
    pub fn defence_skipped(&self, reason: DefenceSkip) {
        self.cells.defence.skip(reason);
    }

    /// Counts a request that the boundary defence could not rewrite, or not wholly.
    pub fn defence_failed(&self, error: DefenceError) {
        self.cells.defence.fail(error);
    }

    /// Counts a request with so many messages wrapped and so many bytes added, or that would have been in `shadow`.
    pub fn defence_applied(&self, provider_label: &'static str, shadow: bool, messages: usize, bytes: usize) {
        self.defence.applied(provider_label, shadow, messages, bytes);
    }

    /// Counts a reminder in front of a system prompt.
    pub fn defence_reminded(&self, provider_label: &'static str) {
        self.defence.reminded(provider_label);
    }

    /// Counts a request in whose data so much white space was marked, or would have been in `shadow`.
    pub fn datamarked(&self, provider_label: &'static str, shadow: bool, marks: usize) {
        self.defence.marked(provider_label, shadow, marks);
    }

    /// Counts an advisory that was put in front of a request, or would have been in `shadow`.
    pub fn advised(&self, shadow: bool) {
        self.cells.defence.advise(shadow);
    }

    /// Counts pieces of personal data taken out of a request, or that would have been in `shadow`.
    pub fn redacted(&self, shadow: bool, pieces: usize) {
        self.cells.defence.redact(shadow, pieces);
    }

    /// Counts one finding.
    pub fn finding(&self, severity: Severity, finding_type: &str) {
        let mut table = self.findings.borrow_mut();
        let mut finding_type = finding_type;
        let mut hash = table.hash(finding_type, severity as u64);
        let mut found = table.find(hash, |known| known.severity == severity && *known.finding_type == *finding_type);
        if found.is_none() && finding_type != OTHER {
            // Severities share the budget of types: at most five times that many series.
            let full = table.iter().filter(|known| known.severity == severity).count() >= FINDING_TYPES_MAX;
            if full || !is_legal(finding_type) {
                self.cells.folded_finding_types.add(1);
                finding_type = OTHER;
                hash = table.hash(finding_type, severity as u64);
                found = table.find(hash, |known| known.severity == severity && *known.finding_type == *finding_type);
            }
        }
        let at = found.unwrap_or_else(|| {
            let series =
                Arc::new(FindingSeries { severity, finding_type: finding_type.into(), count: Counter::default() });
            self.fresh.push(Fresh::Finding(series.clone()));
            table.insert(hash, series)
        });
        if let Some(series) = table.get_mut(at) {
            series.count.add(1);
        }
    }

    /// Moves the number of open client connections.
    pub fn connections_add(&self, delta: i64) {
        self.cells.connections.add(delta);
    }

    /// Counts what became of a client connection.
    pub fn client(&self, event: ClientEvent) {
        if let Some(count) = self.cells.client_events.get(event as usize) {
            count.add(1);
        }
    }

    /// Moves the number of upstream connections in `state`.
    pub fn upstream_connections_add(&self, state: UpstreamState, delta: i64) {
        match state {
            UpstreamState::Active => self.cells.upstream_active.add(delta),
            UpstreamState::Idle => self.cells.upstream_idle.add(delta),
        }
    }

    /// Counts an answer that was withheld.
    pub fn stopped(&self, how: AnswerStop) {
        if let Some(count) = self.cells.stopped.get(how as usize) {
            count.add(1);
        }
    }

    /// Counts an answer of which so many bytes waited at most.
    pub fn held_back(&self, bytes: usize) {
        self.cells.held.observe(bytes as u64);
    }

    /// Counts one caught panic.
    pub fn panic(&self) {
        self.cells.panics.add(1);
    }

    /// Counts one run of `detector` that took `micros` microseconds.
    pub fn detector(&self, detector: &'static str, micros: u64) {
        let mut known = self.detectors.borrow_mut();
        // There are few names, each written down once, so that nearly always their addresses tell.
        let same = |series: &&Arc<DetectorSeries>| std::ptr::eq(series.detector, detector);
        let equal = |series: &&Arc<DetectorSeries>| series.detector == detector;
        if let Some(series) = known.iter().find(same).or_else(|| known.iter().find(equal)) {
            return series.latency_us.observe(micros);
        }
        if known.len() < STATIC_SERIES_MAX {
            let series = Arc::new(DetectorSeries { detector, latency_us: Histogram::new(&DETECTOR_BOUNDS_US) });
            series.latency_us.observe(micros);
            self.fresh.push(Fresh::Detector(series.clone()));
            known.push(series);
        }
    }

    /// Counts one item that `queue` turned away for `reason`.
    pub fn dropped(&self, queue: &'static str, reason: &'static str) {
        let mut known = self.drops.borrow_mut();
        if let Some(series) = known.iter().find(|series| series.queue == queue && series.reason == reason) {
            return series.count.add(1);
        }
        if known.len() < STATIC_SERIES_MAX {
            let series = Arc::new(DropSeries { queue, reason, count: Counter::default() });
            series.count.add(1);
            self.fresh.push(Fresh::Drop(series.clone()));
            known.push(series);
        }
    }

    /// Counts a request or an answer that was not read whole, once for each reason.
    pub fn unread(&self, direction: Direction, reasons: UnreadSet) {
        if reasons.is_empty() {
            return;
        }
        for reason in reasons.iter() {
            if let Some(count) = self.cells.unread.get(direction as usize).and_then(|row| row.get(reason as usize)) {
                count.add(1);
            }
        }
    }

    /// The position of the entry for a provider and model, begun if need be; folds models that are malformed or too many.
    #[inline]
    fn locate(&self, table: &mut Table<Requests>, provider: &'static str, name: &str, model: &Model<'_>) -> usize {
        let hash = table.hash(name, provider.as_ptr() as u64);
        match table.find(hash, |known| same(&known.series, provider, name)) {
            Some(at) => at,
            None => self.begin(table, provider, name, model, hash),
        }
    }

    #[cold]
    fn begin(
        &self,
        table: &mut Table<Requests>,
        provider: &'static str,
        name: &str,
        model: &Model<'_>,
        hash: u64,
    ) -> usize {
        let mut models = self.models.borrow_mut();
        let fits = is_legal(name) && (models.knows(name) || model.vouched && !models.admit_from(model.tenant, name).1);
        drop(models);
        if name != OTHER && !fits {
            self.cells.folded_models.add(1);
            return self.locate(table, provider, OTHER, model);
        }
        let series = Arc::new(RequestSeries {
            provider,
            model: name.into(),
            tenant: model.tenant,
            duration_us: Histogram::new(&DURATION_BOUNDS_US),
            prompt_tokens: Counter::default(),
            completion_tokens: Counter::default(),
            unpriced: Counter::default(),
        });
        self.fresh.push(Fresh::Request(series.clone()));
        table.insert(hash, Requests { series, statuses: Vec::new() })
    }

    #[inline]
    fn count_status(&self, entry: &mut Requests, status: u16) {
        if let Some(series) = entry.statuses.iter().find(|series| series.status == status) {
            return series.count.add(1);
        }
        if entry.statuses.len() >= STATUSES_MAX && status != STATUS_OTHER {
            self.cells.folded_statuses.add(1);
            return self.count_status(entry, STATUS_OTHER);
        }
        let series = Arc::new(StatusSeries { of: entry.series.clone(), status, count: Counter::default() });
        series.count.add(1);
        self.fresh.push(Fresh::Status(series.clone()));
        entry.statuses.push(series);
    }
}

impl Drop for CoreMeter {
    /// Counters outlive their core, levels do not: a restarted core begins with no connections.
    fn drop(&mut self) {
        self.cells.connections.clear();
        self.cells.upstream_active.clear();
        self.cells.upstream_idle.clear();
    }
}

fn same(series: &RequestSeries, provider: &'static str, model: &str) -> bool {
    std::ptr::eq(series.provider, provider) && *series.model == *model
}
