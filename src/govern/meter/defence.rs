//! What rewrites did to requests: the boundary defence, per provider, and why it did nothing; the advisory and redaction.
//!
//! Invariant: a provider's label is one of a few names of our own, so the series are few.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use crossbeam_queue::SegQueue;

use super::cell::{Counter, Histogram, HistogramSum};
use super::core::Fresh;
use super::expose::Exposition;
use super::names;

/// Messages of one request.
static WRAPPED_BOUNDS: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// Bytes added to one request.
static BYTES_BOUNDS: [u64; 10] = [64, 128, 256, 512, 1_024, 2_048, 4_096, 16_384, 65_536, 262_144];
/// Providers counted apart on one core.
const PROVIDERS_MAX: usize = 32;

/// Why the defence left a request alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefenceSkip {
    /// It is switched off.
    Disabled,
    /// No message has a role that is wrapped.
    NoToolMessages,
    /// It does not know the dialect.
    UnsupportedProvider,
}

impl DefenceSkip {
    /// All, in the order of their counters.
    pub(super) const ALL: [Self; 3] = [Self::Disabled, Self::NoToolMessages, Self::UnsupportedProvider];

    const fn label(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::NoToolMessages => "no_tool_messages",
            Self::UnsupportedProvider => "unsupported_provider",
        }
    }
}

/// Why the defence could not do what it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefenceError {
    /// The body could not be read.
    Parse,
    /// There was no memory for the changed body, or no place for the reminder.
    Serialize,
}

impl DefenceError {
    /// Both, in the order of their counters.
    pub(super) const ALL: [Self; 2] = [Self::Parse, Self::Serialize];

    const fn label(self) -> &'static str {
        match self {
            Self::Parse => "parse_failed",
            Self::Serialize => "serialize_failed",
        }
    }
}

/// What one core has to say of it that names no provider.
#[derive(Debug, Default)]
pub(super) struct DefenceCells {
    skipped: [Counter; DefenceSkip::ALL.len()],
    failed: [Counter; DefenceError::ALL.len()],
    /// Active and in shadow.
    advised: [Counter; 2],
    redacted: [Counter; 2],
}

impl DefenceCells {
    pub(super) fn skip(&self, reason: DefenceSkip) {
        if let Some(count) = self.skipped.get(reason as usize) {
            count.add(1);
        }
    }

    pub(super) fn advise(&self, shadow: bool) {
        if let Some(count) = self.advised.get(usize::from(shadow)) {
            count.add(1);
        }
    }

    pub(super) fn redact(&self, shadow: bool, pieces: usize) {
        if let Some(count) = self.redacted.get(usize::from(shadow)) {
            count.add(pieces as u64);
        }
    }

    pub(super) fn fail(&self, error: DefenceError) {
        if let Some(count) = self.failed.get(error as usize) {
            count.add(1);
        }
    }
}

/// What was done to one provider's requests on one core; active and in shadow.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct DefenceSeries {
    provider: &'static str,
    applied: [Counter; 2],
    wrapped: Histogram<8>,
    bytes: Histogram<10>,
    reminders: Counter,
    marked: [Counter; 2],
    marks: [Counter; 2],
}

/// One core's cells for the providers it met.
pub(super) struct CoreDefence {
    fresh: Arc<SegQueue<Fresh>>,
    series: RefCell<Vec<Arc<DefenceSeries>>>,
}

impl CoreDefence {
    pub(super) fn new(fresh: Arc<SegQueue<Fresh>>) -> Self {
        Self { fresh, series: RefCell::default() }
    }

    fn with(&self, provider: &'static str, count: impl FnOnce(&DefenceSeries)) {
        let mut known = self.series.borrow_mut();
        if let Some(series) = known.iter().find(|series| series.provider == provider) {
            return count(series);
        }
        if known.len() >= PROVIDERS_MAX {
            return;
        }
        let series = Arc::new(DefenceSeries {
            provider,
            applied: Default::default(),
            wrapped: Histogram::new(&WRAPPED_BOUNDS),
            bytes: Histogram::new(&BYTES_BOUNDS),
            reminders: Counter::default(),
            marked: Default::default(),
            marks: Default::default(),
        });
        count(&series);
        self.fresh.push(Fresh::Defence(Arc::clone(&series)));
        known.push(series);
    }

    pub(super) fn applied(&self, provider: &'static str, shadow: bool, messages: usize, bytes: usize) {
        self.with(provider, |series| {
            if let Some(count) = series.applied.get(usize::from(shadow)) {
                count.add(1);
            }
            series.wrapped.observe(messages as u64);
            series.bytes.observe(bytes as u64);
        });
    }

    pub(super) fn reminded(&self, provider: &'static str) {
        self.with(provider, |series| series.reminders.add(1));
    }

    pub(super) fn marked(&self, provider: &'static str, shadow: bool, marks: usize) {
        self.with(provider, |series| {
            let at = usize::from(shadow);
            if let (Some(requests), Some(total)) = (series.marked.get(at), series.marks.get(at)) {
                requests.add(1);
                total.add(marks as u64);
            }
        });
    }
}

/// The sums over all cores of one provider's series.
struct Sum {
    applied: [u64; 2],
    wrapped: HistogramSum,
    bytes: HistogramSum,
    reminders: u64,
    marked: [u64; 2],
    marks: [u64; 2],
}

const MODES: [&str; 2] = ["active", "shadow"];

/// Adds the samples of all cores.
pub(super) fn expose<'a>(
    series: &[Arc<DefenceSeries>],
    cells: impl Iterator<Item = &'a DefenceCells> + Clone,
    out: &mut Exposition,
) {
    for reason in DefenceSkip::ALL {
        let count = cells.clone().filter_map(|cells| cells.skipped.get(reason as usize)).map(Counter::get).sum();
        out.counter(names::DEFENCE_SKIPPED, &[("reason", reason.label())], count);
    }
    for error in DefenceError::ALL {
        let count = cells.clone().filter_map(|cells| cells.failed.get(error as usize)).map(Counter::get).sum();
        out.counter(names::DEFENCE_ERRORS, &[("error_type", error.label())], count);
    }
    for (at, mode) in MODES.into_iter().enumerate() {
        let total = |of: fn(&DefenceCells) -> &[Counter; 2]| {
            cells.clone().filter_map(|cells| of(cells).get(at)).map(Counter::get).sum::<u64>()
        };
        out.counter(names::ADVISED, &[("mode", mode)], total(|cells| &cells.advised));
        out.counter(names::REDACTIONS, &[("mode", mode)], total(|cells| &cells.redacted));
    }
    for (provider, sum) in sums(series) {
        let provider = ("provider", provider);
        for (at, mode) in MODES.into_iter().enumerate() {
            let labels = [provider, ("mode", mode)];
            let of = |counts: &[u64; 2]| counts.get(at).copied().unwrap_or_default();
            out.counter(names::DEFENCE_APPLIED, &labels, of(&sum.applied));
            if of(&sum.marked) > 0 {
                out.counter(names::DATAMARKED, &labels, of(&sum.marked));
                out.counter(names::DATAMARKS, &labels, of(&sum.marks));
            }
        }
        out.histogram(names::DEFENCE_WRAPPED, &[provider], &sum.wrapped, 1.0);
        out.histogram(names::DEFENCE_BYTES, &[provider], &sum.bytes, 1.0);
        out.counter(names::DEFENCE_REMINDERS, &[provider], sum.reminders);
    }
}

fn sums(series: &[Arc<DefenceSeries>]) -> BTreeMap<&'static str, Sum> {
    let mut sums = BTreeMap::new();
    for series in series {
        let sum = sums.entry(series.provider).or_insert_with(|| Sum {
            applied: [0; 2],
            wrapped: HistogramSum::empty(&WRAPPED_BOUNDS),
            bytes: HistogramSum::empty(&BYTES_BOUNDS),
            reminders: 0,
            marked: [0; 2],
            marks: [0; 2],
        });
        let add = |to: &mut [u64; 2], from: &[Counter; 2]| {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from.get());
        };
        add(&mut sum.applied, &series.applied);
        add(&mut sum.marked, &series.marked);
        add(&mut sum.marks, &series.marks);
        sum.wrapped.add(&series.wrapped);
        sum.bytes.add(&series.bytes);
        sum.reminders += series.reminders.get();
    }
    sums
}
