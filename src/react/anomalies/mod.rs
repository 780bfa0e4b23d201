//! Calls far above what a tenant's calls are like: what they cost, how many tokens they take, how long they take, and how many
//! there are (`anomaly_detection`).
//!
//! Every call that went through the gateway is held against the latest ones of its tenant when it is recorded. One that is too far
//! above them gets a finding of the type `anomaly_…`: it has no share in the security score, and acts on nothing that has
//! already been forwarded; alerts and the action router hear of the first one of an episode.
//!
//! Invariants: a core never waits here (where another core is just looking at a call of the same tenant, a call is passed over and
//! counted); memory is bounded by [`BYTES_MAX`], whatever tenants come; what is known lies in memory and begins anew after a
//! restart. Knows neither HTTP nor the store.

mod norm;
mod velocity;
mod window;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use smallvec::SmallVec;
use weir_config::settings::AnomalyDetection;
use weir_config::vocab::{Finding, Severity, TenantId};

use crate::meter::{Exposition, Source, names};
use crate::per_tenant::PerTenant;
use norm::Kind;
use velocity::Velocity;
use window::{Above, Rule, Window};

/// The name of the detector in findings.
pub const DETECTOR: &str = "anomalies";
/// Key in the metadata of a finding that goes on with an episode others have been told of.
pub const CONTINUES: &str = "continues";

/// What all tenants' windows may take together.
const BYTES_MAX: usize = 64 << 20;
/// Tenants watched at a time, where the windows leave room for them.
const TENANTS_MAX: usize = 10_000;
/// A tenant without a call for so long makes room for another one.
const IDLE_US: i64 = 3_600_000_000;
/// Places that are looked at together for what can be freed.
const SWEEP: usize = 64;
/// Ordinary calls after which the next one too far above them begins an episode of its own.
const QUIET_CALLS: u32 = 10;
/// The same for slots that are too full: by time.
const QUIET_US: i64 = 6 * velocity::SLOT_US;
/// Times the threshold from which on an anomaly is High, and Critical.
const HIGH: f64 = 5.0 / 3.0;
const CRITICAL: f64 = 10.0 / 3.0;

/// What is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// What a call costs.
    Cost,
    /// The tokens of a call.
    Tokens,
    /// How many calls there are.
    Velocity,
    /// How long the first byte of a stream, or a whole answer, takes.
    Latency,
}

impl Measure {
    /// All of them, in the order of the settings.
    pub const ALL: [Self; 4] = [Self::Cost, Self::Tokens, Self::Velocity, Self::Latency];

    /// As the label `anomaly_type` has it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Cost => "cost",
            Self::Tokens => "tokens",
            Self::Velocity => "velocity",
            Self::Latency => "latency",
        }
    }

    const fn finding_type(self) -> &'static str {
        match self {
            Self::Cost => "anomaly_cost",
            Self::Tokens => "anomaly_tokens",
            Self::Velocity => "anomaly_velocity",
            Self::Latency => "anomaly_latency",
        }
    }

    const fn about(self) -> &'static str {
        match self {
            Self::Cost => "It cost far more than the tenant's latest calls",
            Self::Tokens => "It took far more tokens than the tenant's latest calls",
            Self::Velocity => "Far more calls in ten seconds than the tenant has made lately",
            Self::Latency => "The provider took far longer than for the tenant's latest calls",
        }
    }

    /// What the value is in, and how many of the units it is judged in make one of those.
    const fn unit(self) -> (&'static str, f64) {
        match self {
            Self::Cost => ("USD", 1e6),
            Self::Tokens => ("tokens", 1.0),
            Self::Velocity => ("calls in 10 s", 1.0),
            Self::Latency => ("ms", 1.0),
        }
    }
}

/// A call, as far as it is watched. What is `None` is not known, or says nothing of the tenant.
#[derive(Debug, Clone, Copy, Default)]
pub struct Call {
    /// When it ended, in microseconds since the epoch.
    pub at_us: i64,
    /// What it cost, in nanodollars.
    pub nano_usd: Option<u64>,
    /// Its tokens, in and out.
    pub tokens: Option<u64>,
    /// Milliseconds the provider took to begin (a stream) or to end its answer.
    pub latency_ms: Option<f64>,
}

/// One value of a call that is too far above the tenant's others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Anomaly {
    /// Which one.
    pub watched: Measure,
    value: f64,
    above: Above,
    /// Nothing of the kind was told of the calls before.
    pub is_new: bool,
}

/// What is too much about one call.
pub type Anomalous = SmallVec<[Anomaly; 4]>;

impl Anomaly {
    /// How bad it is: by its distance from what was to be expected, in thresholds.
    pub fn severity(&self) -> Severity {
        match self.above.times {
            times if times >= CRITICAL => Severity::Critical,
            times if times >= HIGH => Severity::High,
            _ => Severity::Medium,
        }
    }

    /// What the record says of it.
    pub fn finding(&self) -> Finding {
        let Self { watched, value, above, is_new } = *self;
        let value = above.lasting.unwrap_or(value);
        let (unit, size) = watched.unit();
        let confidence = 1.0 - 0.5 / above.times.max(1.0);
        let mut finding = Finding::new(watched.finding_type(), self.severity(), confidence, DETECTOR, watched.about());
        let whose = if above.lasting.is_some() { "the latest ten: " } else { "" };
        finding.evidence = format!(
            "{whose}{} {unit}; expected {}, far from {} on",
            shown(value / size),
            shown(above.expected / size),
            shown(above.limit / size)
        );
        finding.metadata.insert("value".to_owned(), shown(value / size));
        finding.metadata.insert("expected".to_owned(), shown(above.expected / size));
        finding.metadata.insert("limit".to_owned(), shown(above.limit / size));
        if !is_new {
            finding.metadata.insert(CONTINUES.to_owned(), "true".to_owned());
        }
        finding
    }
}

/// Three digits behind the point for what is small, none for what is large.
fn shown(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.6}"),
    }
}

/// The tenants' latest calls.
pub struct Anomalies {
    settings: AnomalyDetection,
    table: PerTenant<Place>,
    watched: AtomicUsize,
    watched_max: usize,
    hand: AtomicUsize,
    found: [AtomicU64; 4],
    busy: AtomicU64,
    no_room: AtomicU64,
}

#[derive(Default)]
struct Place {
    last_us: AtomicI64,
    state: Mutex<Option<Box<State>>>,
}

/// What is known of one tenant.
struct State {
    tenant: TenantId,
    cost: Series,
    tokens: Series,
    latency: Series,
    velocity: Velocity,
    full_at_us: Option<i64>,
}

/// One kind of value, and how many ordinary ones there were since the last that was too far.
struct Series {
    window: Window,
    quiet: u32,
}

impl Anomalies {
    /// `None` where nothing is watched.
    pub fn new(settings: AnomalyDetection) -> Option<Self> {
        let checks = settings.check_cost || settings.check_tokens || settings.check_velocity || settings.check_latency;
        (settings.enabled && checks).then(|| Self {
            settings,
            table: PerTenant::new(),
            watched: AtomicUsize::new(0),
            watched_max: (BYTES_MAX / State::bytes(settings)).clamp(1, TENANTS_MAX),
            hand: AtomicUsize::new(0),
            found: Default::default(),
            busy: AtomicU64::new(0),
            no_room: AtomicU64::new(0),
        })
    }

    /// Holds a call against the tenant's latest ones, and remembers it.
    pub fn look(&self, tenant: TenantId, call: &Call) -> Anomalous {
        let is_idle = |place: &Place| place.last_us.load(Ordering::Relaxed).saturating_add(IDLE_US) < call.at_us;
        let place = self.table.of(tenant, is_idle);
        let Some(mut state) = place.state.try_lock() else {
            self.busy.fetch_add(1, Ordering::Relaxed);
            return Anomalous::new();
        };
        if !self.make_room(&mut state, tenant, is_idle(place)) {
            self.no_room.fetch_add(1, Ordering::Relaxed);
            drop(state);
            self.sweep(call.at_us);
            return Anomalous::new();
        }
        place.last_us.fetch_max(call.at_us, Ordering::Relaxed);
        let found = state.as_mut().map(|state| state.look(call, &self.settings)).unwrap_or_default();
        for anomaly in &found {
            if let Some(count) = self.found.get(anomaly.watched as usize) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
        found
    }

    /// Sees to it that `state` is this tenant's. False where there is no room for it.
    fn make_room(&self, state: &mut Option<Box<State>>, tenant: TenantId, is_idle: bool) -> bool {
        match state {
            Some(state) if state.tenant == tenant => true,
            Some(state) if is_idle => {
                state.begin(tenant);
                true
            }
            // Its neighbours are all at work: it shares a place, and a tenant's calls are never held against another's.
            Some(_) => false,
            None => {
                let fits = |watched| (watched < self.watched_max).then_some(watched + 1);
                let fits = self.watched.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
                if fits {
                    *state = Some(Box::new(State::new(tenant, self.settings)));
                }
                fits
            }
        }
    }

    /// Frees what idle tenants have in the next places. Called while there is no room: the places are gone through in turns.
    fn sweep(&self, now_us: i64) {
        let from = self.hand.fetch_add(SWEEP, Ordering::Relaxed);
        for place in self.table.places(from, SWEEP) {
            if place.last_us.load(Ordering::Relaxed).saturating_add(IDLE_US) >= now_us {
                continue;
            }
            if let Some(mut state) = place.state.try_lock()
                && state.take().is_some()
            {
                self.watched.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

/// What is counted, for `/metrics`.
pub struct Figures(pub Arc<Anomalies>);

impl Source for Figures {
    fn collect(&self, out: &mut Exposition) {
        let Anomalies { found, busy, no_room, .. } = &*self.0;
        for watched in Measure::ALL {
            let count = found.get(watched as usize).map_or(0, |count| count.load(Ordering::Relaxed));
            out.counter(names::ANOMALIES, &[("anomaly_type", watched.label())], count);
        }
        for (reason, count) in [("busy", busy), ("no_room", no_room)] {
            out.counter(names::DROPPED, &[("queue", DETECTOR), ("reason", reason)], count.load(Ordering::Relaxed));
        }
    }
}

impl State {
    fn new(tenant: TenantId, settings: AnomalyDetection) -> Self {
        let size = |on: bool| if on { settings.window_size as usize } else { 1 };
        let watch = |on| Series { window: Window::new(size(on)), quiet: QUIET_CALLS };
        Self {
            tenant,
            cost: watch(settings.check_cost),
            tokens: watch(settings.check_tokens),
            latency: watch(settings.check_latency),
            velocity: Velocity::new(size(settings.check_velocity)),
            full_at_us: None,
        }
    }

    /// What one takes, in bytes.
    const fn bytes(settings: AnomalyDetection) -> usize {
        let checks = settings.check_cost as usize
            + settings.check_tokens as usize
            + settings.check_velocity as usize
            + settings.check_latency as usize;
        size_of::<Self>() + checks * settings.window_size as usize * size_of::<f32>()
    }

    /// Another tenant takes the place.
    fn begin(&mut self, tenant: TenantId) {
        self.tenant = tenant;
        for watch in [&mut self.cost, &mut self.tokens, &mut self.latency] {
            watch.window.clear();
            watch.quiet = QUIET_CALLS;
        }
        self.velocity.clear();
        self.full_at_us = None;
    }

    fn look(&mut self, call: &Call, settings: &AnomalyDetection) -> Anomalous {
        let rule = Rule { method: settings.method, threshold: settings.sigma_threshold, kind: Kind::Amount };
        let mut found = Anomalous::new();
        if settings.check_velocity
            && let Some((value, above)) = self.velocity.look(call.at_us, rule)
        {
            let is_new = self.full_at_us.is_none_or(|full| full.saturating_add(QUIET_US) < call.at_us);
            self.full_at_us = Some(call.at_us);
            found.push(Anomaly { watched: Measure::Velocity, value, above, is_new });
        }
        let values = [
            (Measure::Cost, settings.check_cost, call.nano_usd.map(|nano| nano as f64 / 1e3), &mut self.cost),
            (Measure::Tokens, settings.check_tokens, call.tokens.map(|tokens| tokens as f64), &mut self.tokens),
            (Measure::Latency, settings.check_latency, call.latency_ms, &mut self.latency),
        ];
        for (watched, on, value, watch) in values {
            let Some(value) = value.filter(|value| on && value.is_finite()) else { continue };
            match watch.window.look(value.max(0.0), rule) {
                Some(above) => {
                    let is_new = watch.quiet >= QUIET_CALLS;
                    watch.quiet = 0;
                    found.push(Anomaly { watched, value, above, is_new });
                }
                None => watch.quiet = watch.quiet.saturating_add(1),
            }
        }
        found
    }
}
