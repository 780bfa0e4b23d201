//! A plan from its first round to its results. In each round every target takes its turn with every workload, and another target begins,
//! so that what disturbs the machine disturbs all of them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::corpus::Corpus;
use super::error::SetupError;
use super::hosts;
use super::own::OwnProvider;
use super::plan::{DIRECT, RAMP_HALVINGS, Ramp, Target, TestPlan, Workload};
use super::process::{Sample, Subjects};
use super::progress::Progress;
use super::report::Measured;
use super::results::{self, Buckets, Cell, FORMAT, Machine, RampAsked, RampCurve, RampPoint, Results, Round, Summary};
use super::run::{self, Told};
use super::runtime;
use super::settings::{Arrivals, Mode, Settings};
use super::tally::Tally;

/// Runs a plan.
pub(super) fn perform(mut plan: TestPlan, quiet: bool) -> Result<Results, SetupError> {
    let length = plan.length();
    let progress = Rc::new(Progress::new(quiet, length));
    progress.note(&announced(&plan, length));
    let load_before = std::fs::read_to_string("/proc/loadavg").ok();
    let load_before = load_before.and_then(|text| text.split_whitespace().next()?.parse().ok());
    let mut own = None;
    if plan.starts_provider() {
        let provider = OwnProvider::start(&plan.provider, length)?;
        progress.note(&match plan.targets.is_empty() {
            true => format!(
                "no target was named: this measures the fake provider at {}, the least that any gateway in front of it can do; \
                 add --provider 127.0.0.1:9000, --target NAME=URL and a gateway in between",
                provider.url
            ),
            false => format!("the fake provider is at {}", provider.url),
        });
        let place = hosts::place(DIRECT, &provider.url, &[])?;
        let subjects = Subjects::pids(&[provider.pid()]);
        plan.targets.insert(0, Target { name: DIRECT.to_owned(), url: provider.url.clone(), place, subjects });
        own = Some(provider);
    }
    let is_there = |name: &str| plan.targets.iter().any(|target| target.name == name);
    let baseline = plan.baseline.clone().or_else(|| Some(DIRECT.to_owned()).filter(|name| is_there(name)));
    let runner = Runner { plan: &plan, progress: &progress, corpora: RefCell::default() };
    let mut results = Results {
        format: FORMAT.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        plan: plan.name.clone(),
        made_at: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        machine: Machine { load_before, ..machine() },
        rounds: plan.rounds,
        duration_s: plan.duration.as_secs_f64(),
        seed: plan.seed,
        ramp: plan.ramp.map(|ramp| RampAsked {
            from_per_s: ramp.from,
            to_per_s: ramp.to,
            steps: ramp.steps,
            p99_max_us: ramp.p99_max.as_secs_f64() * 1e6,
        }),
        command: plan.command.clone(),
        plan_text: plan.text.clone(),
        warmup_s: plan.warmup.as_secs_f64(),
        provider: own.as_ref().map_or(String::new(), |_| plan.provider.in_words()),
        notes: plan.notes.clone(),
        baseline,
        cells: Vec::new(),
        ramps: Vec::new(),
    };
    runner.ask_everybody()?;
    match plan.ramp {
        Some(ramp) => results.ramps = runner.ramps(&ramp)?,
        None => results.cells = runner.rounds()?,
    }
    progress.finish();
    drop(own);
    results.summarise();
    Ok(results)
}

/// What is sent to one target, shared with the measurement under way.
type Shared = Rc<RefCell<Corpus>>;

/// A run of a plan.
struct Runner<'a> {
    plan: &'a TestPlan,
    progress: &'a Rc<Progress>,
    /// What is sent, by workload and target: it goes on from round to round, so that no text is sent twice.
    corpora: RefCell<HashMap<(usize, usize), Shared>>,
}

/// A measurement, and the settings it was made with.
struct Step {
    settings: Rc<Settings>,
    tally: Tally,
    measured: Measured,
}

impl Runner<'_> {
    /// Whether every target answers and every process to account is there: what is missing is said before anything is measured.
    fn ask_everybody(&self) -> Result<(), SetupError> {
        for target in &self.plan.targets {
            let Target { name, url, subjects, .. } = target;
            Sample::take(subjects).map_err(|error| SetupError(format!("--process {name}={error}")))?;
            let Some(workload) = self.plan.workloads.first() else { continue };
            let settings = self.plan.settings(target, workload);
            runtime::block_on(run::knock(&settings))?.map_err(|says| {
                SetupError(format!(
                    "target {name} at {url} cannot be reached: {says}; start it first, or leave it out (nothing was measured yet)"
                ))
            })?;
        }
        Ok(())
    }

    fn rounds(&self) -> Result<Vec<Cell>, SetupError> {
        let (targets, workloads) = (&self.plan.targets, &self.plan.workloads);
        self.progress.expect(self.plan.rounds as usize * targets.len() * workloads.len());
        let mut rounds: HashMap<(usize, usize), Vec<Round>> = HashMap::new();
        for round in 0..self.plan.rounds as usize {
            for (at_workload, workload) in workloads.iter().enumerate() {
                for turn in 0..targets.len() {
                    let at_target = (turn + round) % targets.len();
                    let Some(target) = targets.get(at_target) else { continue };
                    self.progress.begin(format!("round {}, {}, {}", round + 1, workload.name, target.name));
                    let measured = match self.step((at_workload, workload), (at_target, target), (round as u64, None)) {
                        Ok(step) => round_of(&step, workload),
                        // Everybody answered before the first round; what went away since then is a result.
                        Err(error) => {
                            self.progress.note(&format!("{}: {}", target.name, error.0));
                            missed(self.plan.duration, workload)
                        }
                    };
                    rounds.entry((at_workload, at_target)).or_default().push(measured);
                }
            }
        }
        let mut cells = Vec::new();
        for (at_workload, workload) in workloads.iter().enumerate() {
            for (at_target, target) in targets.iter().enumerate() {
                cells.push(Cell {
                    workload: workload.name.clone(),
                    target: target.name.clone(),
                    url: target.url.clone(),
                    load: load_in_words(self.plan, workload),
                    sends: workload.in_words(),
                    summary: Summary::default(),
                    rounds: rounds.remove(&(at_workload, at_target)).unwrap_or_default(),
                });
            }
        }
        Ok(cells)
    }

    /// One measurement: of this turn, whose number shapes random arrivals, with `rate` in place of the workload's load.
    fn step(
        &self,
        (at_workload, workload): (usize, &Workload),
        (at_target, target): (usize, &Target),
        (turn, rate): (u64, Option<f64>),
    ) -> Result<Step, SetupError> {
        let mut settings = self.plan.settings(target, workload);
        settings.seed ^= turn << 32;
        if let Some(rate) = rate {
            (settings.mode, settings.rate_per_s) = (Mode::Open, rate);
        }
        let settings = Rc::new(settings);
        let corpus = Rc::clone(
            self.corpora
                .borrow_mut()
                .entry((at_workload, at_target))
                .or_insert_with(|| Rc::new(RefCell::new(Corpus::new(&settings)))),
        );
        let progress = Rc::clone(self.progress);
        let sent_with = Rc::clone(&settings);
        let told: Told = Rc::new(move |tally, elapsed| progress.tell(tally, elapsed, &sent_with));
        let performed = run::perform(&settings, &corpus, &target.subjects, Some(told));
        let (tally, measured) = runtime::block_on(performed)??;
        self.progress.end(&tally, measured.elapsed, &settings);
        if let Some(gone) = &measured.gone {
            self.progress.note(&format!("{}: {gone}; it has no CPU time and memory from here on", target.name));
        }
        Ok(Step { settings, tally, measured })
    }

    fn ramps(&self, ramp: &Ramp) -> Result<Vec<RampCurve>, SetupError> {
        let mut curves = Vec::new();
        let (targets, workloads) = (&self.plan.targets, &self.plan.workloads);
        for (at_workload, workload) in workloads.iter().enumerate() {
            let mut climbs: Vec<Climb> = targets.iter().map(|_| Climb::new(ramp)).collect();
            while climbs.iter().any(|climb| climb.next_rate().is_some()) {
                for (at_target, (target, climb)) in targets.iter().zip(&mut climbs).enumerate() {
                    let Some(rate) = climb.next_rate() else { continue };
                    self.progress.begin(format!("{}, {}, {rate:.0}/s", workload.name, target.name));
                    let step = self.step((at_workload, workload), (at_target, target), (climb.tried, Some(rate)));
                    climb.add(match step {
                        Ok(step) => point_of(&step, rate, ramp.p99_max),
                        Err(error) => {
                            self.progress.note(&format!("{}: {}", target.name, error.0));
                            let failed = (rate * self.plan.duration.as_secs_f64()).round() as u64;
                            let why = Some(format!("no connection could be opened: {}", error.0));
                            let errors = [("connect".to_owned(), failed)].into();
                            RampPoint { rate_per_s: rate, failed, errors, why, ..RampPoint::default() }
                        }
                    });
                    if let Some(why) = climb.last_refusal() {
                        self.progress.note(&format!("  {} did not keep up with {rate:.0}/s: {why}", target.name));
                    }
                }
            }
            for (target, climb) in targets.iter().zip(climbs) {
                curves.push(RampCurve {
                    workload: workload.name.clone(),
                    target: target.name.clone(),
                    url: target.url.clone(),
                    knee_per_s: climb.knee(),
                    points: climb.points,
                });
            }
        }
        Ok(curves)
    }
}

/// The rates tried on one target. A rate that was too much is tried once more: something else may have had the machine.
struct Climb {
    rates: Vec<f64>,
    points: Vec<RampPoint>,
    /// The rate that was too much at the first attempt.
    doubted: Option<f64>,
    halvings_left: u32,
    tried: u64,
    /// Why the rate tried last was too much, if it was.
    last_refusal: Option<String>,
}

impl Climb {
    fn new(ramp: &Ramp) -> Self {
        let between = f64::from(ramp.steps.saturating_sub(1).max(1));
        let rate = |step: u32| ramp.from * (ramp.to / ramp.from).powf(f64::from(step) / between);
        let rates = (0..ramp.steps).map(rate).collect();
        Self { rates, points: Vec::new(), doubted: None, halvings_left: RAMP_HALVINGS, tried: 0, last_refusal: None }
    }

    fn last_refusal(&self) -> Option<&str> {
        self.last_refusal.as_deref()
    }

    fn knee(&self) -> Option<f64> {
        self.points.iter().filter(|point| point.kept_up).map(|point| point.rate_per_s).reduce(f64::max)
    }

    /// The lowest rate that was too much.
    fn too_much(&self) -> Option<f64> {
        self.points.iter().filter(|point| !point.kept_up).map(|point| point.rate_per_s).reduce(f64::min)
    }

    /// The next rate: the ramp's until one is too much, then between that one and the last that was not.
    fn next_rate(&self) -> Option<f64> {
        match (self.doubted, self.knee(), self.too_much()) {
            (Some(doubted), ..) => Some(doubted),
            (_, _, None) => self.rates.get(self.points.len()).copied(),
            (_, Some(kept_up), Some(too_much)) if self.halvings_left > 0 => Some((kept_up * too_much).sqrt()),
            _ => None,
        }
    }

    fn add(&mut self, point: RampPoint) {
        self.tried += 1;
        self.last_refusal.clone_from(&point.why);
        if !point.kept_up && self.doubted.replace(point.rate_per_s).is_none() {
            return;
        }
        self.doubted = None;
        if self.too_much().is_some() {
            self.halvings_left -= 1;
        }
        self.points.push(point);
    }
}

fn point_of(step: &Step, rate: f64, p99_max: Duration) -> RampPoint {
    let latency = Buckets::of(&step.tally.latency).quantiles();
    let failed = step.tally.failed(&step.settings);
    let ok = step.tally.ok(&step.settings);
    let errors = step.tally.errors(&step.settings);
    // A stream takes as long as the model speaks, whatever the gateway does: what counts is when its text begins.
    let text_p99_us = Buckets::of(&step.tally.until_text).quantiles().map(|times| times.p99_us);
    let text_p99_us = text_p99_us.filter(|_| step.tally.first_token.histogram().is_some());
    let p99_us = latency.map(|times| times.p99_us);
    // Requests that were sent after the end were late by as much.
    let late = step.measured.sending.saturating_sub(step.settings.duration.mul_f64(1.05));
    let max_us = p99_max.as_secs_f64() * 1e6;
    let what = if text_p99_us.is_some() { "p99 until the first token" } else { "p99" };
    let why = match text_p99_us.or(p99_us) {
        _ if failed > 0 => Some(format!("{failed} failed ({})", results::counted(&errors))),
        None => Some("nothing was answered".to_owned()),
        Some(us) if us > max_us => Some(format!("{what} {} is above {}", results::time(us), results::time(max_us))),
        Some(_) if !late.is_zero() => Some(format!("it was {} ms late at the end", late.as_millis())),
        Some(_) => None,
    };
    let answers = step.tally.answered();
    RampPoint {
        rate_per_s: rate,
        ok_per_s: ok as f64 / step.measured.sending.as_secs_f64().max(1e-9),
        failed,
        kept_up: why.is_none(),
        p50_us: latency.map(|times| times.p50_us),
        p99_us,
        text_p99_us,
        cpu_us_per_request: cpu_us(step).filter(|_| answers > 0).map(|us| us / answers as f64),
        rss_kib: (!step.measured.is_unaccounted).then_some(step.measured.after.rss_kib),
        errors,
        why,
        refused: step.tally.refused.clone(),
    }
}

/// The round of a target that has gone: every request that would have been sent failed.
fn missed(duration: Duration, workload: &Workload) -> Round {
    let failed = match workload.load.mode {
        Mode::Open => (workload.load.rate_per_s * duration.as_secs_f64()).round().max(1.0) as u64,
        // A closed loop's next requests are not known; each connection would have sent one at least.
        Mode::Closed => workload.load.connections as u64,
    };
    Round { failed, errors: [("connect".to_owned(), failed)].into(), ..Round::default() }
}

/// How much is going to be measured, and how long that takes.
fn announced(plan: &TestPlan, length: Duration) -> String {
    let (targets, workloads) = (plan.targets.len() + usize::from(plan.starts_provider()), plan.workloads.len());
    let each = (plan.duration + plan.warmup).as_secs_f64();
    let many = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let (of, seconds) = (format!("{} and {}", many(targets, "target"), many(workloads, "workload")), length.as_secs());
    match plan.ramp {
        Some(_) => format!("ramp over {of}, {each:.1} s for each rate: about {seconds} s at most"),
        None => format!("{} of {of}, {each:.1} s each: about {seconds} s", many(plan.rounds as usize, "round")),
    }
}

fn cpu_us(step: &Step) -> Option<f64> {
    let spent = step.measured.after.since(&step.measured.before).total_ns as f64 / 1000.0;
    (!step.measured.is_unaccounted).then_some(spent)
}

fn round_of(step: &Step, workload: &Workload) -> Round {
    let (tally, measured) = (&step.tally, &step.measured);
    let names = workload.kinds.iter().map(|(_, kind)| kind.name.clone());
    let kinds = names.zip(&tally.latency_by_kind).map(|(name, times)| (name, Buckets::of(times)));
    let accounted = !measured.is_unaccounted;
    Round {
        elapsed_s: measured.elapsed.as_secs_f64(),
        sending_s: Some(measured.sending.as_secs_f64()),
        ok: tally.ok(&step.settings),
        failed: tally.failed(&step.settings),
        answers: Some(tally.answered()),
        errors: tally.errors(&step.settings),
        warmup_errors: measured.warmup_errors.clone(),
        refused: tally.refused.clone(),
        gone: measured.gone.clone(),
        sent_bytes: tally.sent_bytes,
        received_bytes: tally.received_bytes,
        checked: tally.checked,
        frames: tally.frames,
        latency: Buckets::of(&tally.latency),
        first_byte: Buckets::of(&tally.first_byte),
        first_token: Buckets::of(&tally.first_token),
        frame_gap: Buckets::of(&tally.frame_gap),
        send_lag: Buckets::of(&tally.send_lag),
        kinds: kinds.filter(|(_, buckets)| buckets.count() > 0).collect(),
        cpu_us: cpu_us(step),
        rss_kib_before: accounted.then_some(measured.before.rss_kib),
        rss_kib_after: accounted.then_some(measured.after.rss_kib),
        tester_cpu_us: measured.own_cpu.total_ns as f64 / 1000.0,
    }
}

fn load_in_words(plan: &TestPlan, workload: &Workload) -> String {
    let load = &workload.load;
    let pace = match (load.mode, load.arrivals) {
        (Mode::Closed, _) => "closed loop".to_owned(),
        (Mode::Open, Arrivals::Constant) => format!("open loop, {}/s evenly spaced", load.rate_per_s),
        (Mode::Open, Arrivals::Poisson) => format!("open loop, {}/s at random (Poisson)", load.rate_per_s),
    };
    let close = if plan.keep_alive { "" } else { ", each closed after one request" };
    let dialects: Vec<&str> = workload.kinds.iter().map(|(_, kind)| kind.dialect.name()).collect();
    let dialect = match dialects.as_slice() {
        [first, rest @ ..] if rest.iter().all(|other| other == first) => (*first).to_owned(),
        _ => "mixed dialects".to_owned(),
    };
    format!("{pace}, {} connections{close}, {dialect}", load.connections)
}

fn machine() -> Machine {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let named = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    Machine {
        // Of the machine, whichever of them this process may use.
        cores: cpu.lines().filter(|line| line.starts_with("processor")).count(),
        cpu: named.map_or("unknown CPU", |(_, name)| name.trim()).to_owned(),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        load_before: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_climb_stops_at_the_first_rate_that_is_too_much_and_looks_closer() {
        let ramp = Ramp { from: 100.0, to: 1600.0, steps: 5, p99_max: Duration::from_millis(100) };
        let mut climb = Climb::new(&ramp);
        let mut tried = Vec::new();
        while let Some(rate) = climb.next_rate() {
            tried.push(rate.round() as u64);
            let kept_up = rate < 500.0;
            climb.add(RampPoint { rate_per_s: rate, ok_per_s: rate, kept_up, ..RampPoint::default() });
        }
        assert_eq!(tried, [100, 200, 400, 800, 800, 566, 566, 476]);
        assert_eq!(climb.knee().map(f64::round), Some(476.0));
        assert_eq!(climb.points.len(), 6, "each rate has one point");
    }
}
