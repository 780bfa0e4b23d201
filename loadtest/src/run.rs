//! A run from the first connection to the report: open, warm up, settle, measure, settle.
//!
//! Invariant: the accounted CPU time lies between two moments at which the target was quiet, so it belongs to exactly
//! the requests of the measured phase, work after their answers included.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt as _};

use super::arrivals::Schedule;
use super::connection::Connection;
use super::corpus::Corpus;
use super::process::{self, Sample, Subjects};
use super::report::{Measured, Report};
use super::settings::{Mode, Settings};
use super::tally::{Failure, Tally};
use crate::error::SetupError;
use crate::runtime;

/// How long after the end of an open phase overdue requests are still sent.
const OVERDUE_SENT_FOR: Duration = Duration::from_secs(1);
/// The longest time in which the prepared histories are sent for the first time.
const FIRST_SIGHT: Duration = Duration::from_secs(120);
/// Pause before a broken connection is opened again.
const REOPEN_PAUSE: Duration = Duration::from_millis(10);

/// What is told of a phase while it is under way.
pub(super) type Told = Rc<dyn Fn(&Tally, Duration)>;

/// How often that is.
const TELL_EVERY: Duration = Duration::from_millis(250);

/// Performs a run.
///
/// # Errors
/// The run could not start: the backend does not, a process to account is unknown, or the target refuses connections.
pub fn run(settings: Settings) -> Result<Report, SetupError> {
    let settings = Rc::new(settings);
    let corpus = Rc::new(RefCell::new(Corpus::new(&settings)));
    let subjects = Subjects::pids(&settings.pids);
    Sample::take(&subjects).map_err(|error| SetupError(format!("--pid {error}")))?;
    let (tally, measured) = runtime::block_on(perform(&settings, &corpus, &subjects, None))??;
    if let Some(gone) = &measured.gone {
        return Err(SetupError(format!("--pid {gone}")));
    }
    Ok(Report::new(&settings, &tally, &measured))
}

/// One measurement: opens connections, warms up, settles, measures, settles.
pub(super) async fn perform(
    settings: &Rc<Settings>,
    corpus: &Rc<RefCell<Corpus>>,
    subjects: &Subjects,
    told: Option<Told>,
) -> Result<(Tally, Measured), SetupError> {
    let mut slots = Vec::with_capacity(settings.connections);
    for number in 1..=settings.connections {
        let opened = Connection::open(settings).await;
        let explain = |error| {
            let says = in_words(&error);
            SetupError(format!("--target {}: connection {number} failed: {says}", settings.target))
        };
        slots.push(Some(opened.map_err(explain)?));
    }
    let mut warmup_errors: BTreeMap<String, u64> = BTreeMap::new();
    let mut note_warmup = |phase: &Phase| {
        for (name, count) in phase.tally.borrow().errors(settings) {
            *warmup_errors.entry(name).or_default() += count;
        }
    };
    if settings.sends_first && !settings.warmup.is_zero() && !corpus.borrow().all_sent() {
        // What counts as seen before is sent once before anything is measured: how long that takes depends on the target.
        let closed = Rc::new(Settings { mode: Mode::Closed, ..(**settings).clone() });
        let phase = Phase::new(&closed, corpus, FIRST_SIGHT, 0);
        phase.until_all_sent.set(true);
        corpus.borrow_mut().set_in_order(true);
        slots = phase.perform(slots, None).await;
        corpus.borrow_mut().set_in_order(false);
        note_warmup(&phase);
    }
    if !settings.warmup.is_zero() {
        let phase = Phase::new(settings, corpus, settings.warmup, 1);
        slots = phase.perform(slots, None).await;
        note_warmup(&phase);
    }
    // A process that ends during the run takes its figures with it, not those of the load.
    let mut gone = None;
    let mut at_rest = |settled: Result<(Sample, Duration), SetupError>| {
        settled.unwrap_or_else(|error| {
            gone = Some(error.0);
            (Sample::default(), Duration::ZERO)
        })
    };
    let (before, _) = at_rest(process::settle(subjects).await);
    let own = Subjects::pids(&[std::process::id()]);
    let own_before = Sample::take(&own)?;
    let phase = Phase::new(settings, corpus, settings.duration, 2);
    let slots = phase.perform(slots, told).await;
    let elapsed = phase.start.elapsed();
    // In an open loop the last answers come after the last request was due; the rate is that of the requests.
    let sending = match settings.mode {
        Mode::Open => settings.duration.max(phase.last_sent.get()).min(elapsed),
        Mode::Closed => elapsed,
    };
    let own_cpu = Sample::take(&own)?.since(&own_before);
    let (after, settled_in) = at_rest(process::settle(subjects).await);
    drop(slots);
    let is_unaccounted = subjects.is_empty() || gone.is_some();
    let counts = |name: &str| !(settings.allow_non_2xx && name.starts_with("status "));
    warmup_errors.retain(|name, _| counts(name));
    let warmup_failed = warmup_errors.values().sum();
    let measured = Measured {
        elapsed,
        sending,
        own_cpu,
        before,
        after,
        settled_in,
        warmup_failed,
        warmup_errors,
        is_unaccounted,
        gone,
    };
    let tally = phase.tally.replace(Tally::new(0));
    Ok((tally, measured))
}

/// Asks whether a target answers at all: one connection, its hands shaken where it has TLS.
pub(super) async fn knock(settings: &Settings) -> Result<(), String> {
    Connection::open(settings).await.map(drop).map_err(|error| in_words(&error))
}

/// Why a connection could not be opened, and what to do where that is known.
fn in_words(error: &std::io::Error) -> String {
    let says = error.to_string();
    match says.contains("InvalidContentType") || says.contains("corrupt message") {
        true => format!("it does not speak TLS on this port ({says}); use http:// in its URL"),
        false => says,
    }
}

/// A refusal in a line: its status, and how its body begins.
fn refusal(status: u16, body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let words: Vec<&str> = text.split_whitespace().collect();
    let begins: String = words.join(" ").chars().filter(|letter| !letter.is_control()).take(200).collect();
    if begins.is_empty() { format!("status {status}, no body") } else { format!("status {status}, {begins}") }
}

/// One stretch of load.
struct Phase {
    settings: Rc<Settings>,
    corpus: Rc<RefCell<Corpus>>,
    tally: Rc<RefCell<Tally>>,
    schedule: RefCell<Schedule>,
    /// Requests due or sent whose fate is not known yet.
    in_flight: Cell<u64>,
    /// When the last request was sent, since the start.
    last_sent: Cell<Duration>,
    start: Instant,
    length: Duration,
    /// Ends once each prepared request has been sent.
    until_all_sent: Cell<bool>,
}

impl Phase {
    fn new(settings: &Rc<Settings>, corpus: &Rc<RefCell<Corpus>>, length: Duration, seed: u64) -> Rc<Self> {
        let schedule = Schedule::new(settings.rate_per_s, settings.arrivals, length, settings.seed ^ seed);
        Rc::new(Self {
            settings: Rc::clone(settings),
            corpus: Rc::clone(corpus),
            tally: Rc::new(RefCell::new(Tally::new(settings.mix.len()))),
            schedule: RefCell::new(schedule),
            in_flight: Cell::new(0),
            last_sent: Cell::new(Duration::ZERO),
            start: Instant::now(),
            length,
            until_all_sent: Cell::new(false),
        })
    }

    /// Runs the phase on these connections and gives back those that are still open.
    async fn perform(self: &Rc<Self>, slots: Vec<Option<Connection>>, told: Option<Told>) -> Vec<Option<Connection>> {
        let numbered = slots.into_iter().enumerate();
        let mut driven: FuturesUnordered<_> =
            numbered.map(|(connection, slot)| Rc::clone(self).drive(connection, slot)).collect();
        let patience = self.settings.timeout.max(Duration::from_secs(5));
        let deadline = self.start + self.length + patience;
        let mut left = Vec::with_capacity(driven.len());
        while !driven.is_empty() {
            let rest = deadline.saturating_duration_since(Instant::now());
            let look = if told.is_some() { rest.min(TELL_EVERY) } else { rest };
            match runtime::timeout(look, driven.next()).await {
                Some(slot) => left.extend(slot),
                None if look < rest => {}
                None => break,
            }
            if let Some(told) = &told {
                told(&self.tally.borrow(), self.start.elapsed());
            }
        }
        drop(driven);
        let mut tally = self.tally.borrow_mut();
        (0..self.in_flight.take()).for_each(|_| tally.fail(Failure::Unfinished));
        if self.settings.mode == Mode::Open {
            let mut schedule = self.schedule.borrow_mut();
            tally.unsent += std::iter::from_fn(|| schedule.next_due()).count() as u64;
        }
        left
    }

    /// Sends requests on one connection as long as there are any.
    async fn drive(self: Rc<Self>, connection: usize, mut slot: Option<Connection>) -> Option<Connection> {
        let mut request = Vec::new();
        while let Some(due) = self.next_due().await {
            self.in_flight.set(self.in_flight.get() + 1);
            let outcome = self.once(connection, &mut slot, &mut request, due).await;
            self.in_flight.set(self.in_flight.get() - 1);
            if let Err(failure) = outcome {
                slot = None;
                self.tally.borrow_mut().fail(failure);
                runtime::sleep(REOPEN_PAUSE).await;
            }
        }
        slot
    }

    /// Waits for the next request to become due. `None` when the phase is over.
    async fn next_due(&self) -> Option<Instant> {
        if self.settings.mode == Mode::Closed {
            let now = Instant::now();
            let over = self.until_all_sent.get() && self.corpus.borrow().all_sent();
            return (now < self.start + self.length && !over).then_some(now);
        }
        if self.start.elapsed() > self.length + OVERDUE_SENT_FOR {
            return None;
        }
        let due = self.start + self.schedule.borrow_mut().next_due()?;
        let early = due.saturating_duration_since(Instant::now());
        if !early.is_zero() {
            runtime::sleep(early).await;
        }
        Some(due)
    }

    async fn once(
        &self,
        number: usize,
        slot: &mut Option<Connection>,
        request: &mut Vec<u8>,
        due: Instant,
    ) -> Result<(), Failure> {
        let mut connection = match slot.take() {
            Some(connection) => connection,
            None => Connection::open(&self.settings).await.map_err(|_| Failure::Connect)?,
        };
        let shape = self.corpus.borrow_mut().next_into(number, request);
        if self.settings.mode == Mode::Open {
            self.tally.borrow_mut().send_lag.add(due.elapsed());
        }
        self.last_sent.set(self.start.elapsed());
        let answered = connection.exchange(request, shape, due, &self.tally).await?;
        let mut tally = self.tally.borrow_mut();
        *tally.statuses.entry(answered.status).or_default() += 1;
        match self.settings.expects(answered.status) {
            true => {
                let taken = due.elapsed();
                tally.latency.add(taken);
                tally.until_text.add(answered.first_token.unwrap_or(taken));
                tally.latency_by_kind.get_mut(shape.kind).into_iter().for_each(|times| times.add(taken));
            }
            false => {
                tally.other_latency.add(due.elapsed());
                if tally.refused.is_none() {
                    tally.refused = Some(refusal(answered.status, &answered.refusal));
                }
            }
        }
        *slot = Some(connection).filter(|_| answered.keep_alive && self.settings.keep_alive);
        Ok(())
    }
}
