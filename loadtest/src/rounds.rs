//! A plan from its first round to its results. In each round every target takes its turn with every workload, and another target begins,
//! so that what disturbs the machine disturbs all of them.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::corpus::Corpus;
use super::error::SetupError;
use super::hosts;
use super::own::OwnProvider;
use super::plan::{DIRECT, Ramp, Target, TestPlan, Workload};
use super::process::Subjects;
use super::progress::Progress;
use super::report::Measured;
use super::results::{Buckets, Cell, FORMAT, Machine, RampCurve, RampPoint, Results, Round, Summary};
use super::run::{self, Told};
use super::runtime;
use super::settings::{Arrivals, Mode, Settings};
use super::tally::Tally;

/// Times that a ramp looks between the last rate that was kept up and the first that was not.
const HALVINGS: u32 = 2;

/// Runs a plan.
pub(super) fn perform(mut plan: TestPlan, quiet: bool) -> Result<Results, SetupError> {
    let length = plan.length();
    let progress = Rc::new(Progress::new(quiet, length));
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
        machine: machine(),
        rounds: plan.rounds,
        duration_s: plan.duration.as_secs_f64(),
        seed: plan.seed,
        baseline,
        cells: Vec::new(),
        ramps: Vec::new(),
    };
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
                        // What could not be reached at first is a mistake; what went away is a result.
                        Err(error) if round == 0 => return Err(error),
                        Err(error) => {
                            self.progress.note(&error.0);
                            Round { failed: 1, errors: [("connect".to_owned(), 1)].into(), ..Round::default() }
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
        let told: Told = Rc::new(move |tally, elapsed| progress.tell(tally, elapsed));
        let performed = run::perform(&settings, &corpus, &target.subjects, Some(told));
        let (tally, measured) = runtime::block_on(performed)??;
        self.progress.end(&tally, measured.elapsed);
        Ok(Step { settings, tally, measured })
    }

    fn ramps(&self, ramp: &Ramp) -> Result<Vec<RampCurve>, SetupError> {
        let mut curves = Vec::new();
        let (targets, workloads) = (&self.plan.targets, &self.plan.workloads);
        self.progress.expect(workloads.len() * targets.len() * (ramp.steps + HALVINGS + 2) as usize);
        for (at_workload, workload) in workloads.iter().enumerate() {
            let mut climbs: Vec<Climb> = targets.iter().map(|_| Climb::new(ramp)).collect();
            while climbs.iter().any(|climb| climb.next_rate().is_some()) {
                for (at_target, (target, climb)) in targets.iter().zip(&mut climbs).enumerate() {
                    let Some(rate) = climb.next_rate() else { continue };
                    self.progress.begin(format!("{}, {}, {rate:.0}/s", workload.name, target.name));
                    let step = self.step((at_workload, workload), (at_target, target), (climb.tried, Some(rate)));
                    climb.add(match step {
                        Ok(step) => point_of(&step, rate, ramp.p99_max),
                        Err(error) if climb.tried == 0 => return Err(error),
                        Err(error) => {
                            self.progress.note(&error.0);
                            RampPoint { rate_per_s: rate, failed: 1, ..RampPoint::default() }
                        }
                    });
                }
            }
            for (target, climb) in targets.iter().zip(climbs) {
                curves.push(RampCurve {
                    workload: workload.name.clone(),
                    target: target.name.clone(),
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
}

impl Climb {
    fn new(ramp: &Ramp) -> Self {
        let between = f64::from(ramp.steps.saturating_sub(1).max(1));
        let rate = |step: u32| ramp.from * (ramp.to / ramp.from).powf(f64::from(step) / between);
        let rates = (0..ramp.steps).map(rate).collect();
        Self { rates, points: Vec::new(), doubted: None, halvings_left: HALVINGS, tried: 0 }
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
    let (elapsed, planned) = (step.measured.elapsed, step.settings.duration);
    // Answers to the last requests may take as long as any.
    let in_time = elapsed <= planned.mul_f64(1.05) + p99_max;
    let p99_us = latency.map(|times| times.p99_us);
    RampPoint {
        rate_per_s: rate,
        ok_per_s: ok as f64 / elapsed.as_secs_f64().max(1e-9),
        failed,
        kept_up: failed == 0 && in_time && p99_us.is_some_and(|us| us <= p99_max.as_secs_f64() * 1e6),
        p50_us: latency.map(|times| times.p50_us),
        p99_us,
        cpu_us_per_request: cpu_us(step).filter(|_| ok > 0).map(|us| us / ok as f64),
    }
}

fn cpu_us(step: &Step) -> Option<f64> {
    let spent = step.measured.after.since(&step.measured.before).total_ns as f64 / 1000.0;
    (!step.measured.is_unaccounted).then_some(spent)
}

fn round_of(step: &Step, workload: &Workload) -> Round {
    let (tally, measured) = (&step.tally, &step.measured);
    let expected = |status: u16| step.settings.expects(status);
    let statuses = tally.statuses.iter().filter(|(status, _)| !expected(**status));
    let mut errors: BTreeMap<String, u64> =
        statuses.map(|(status, count)| (format!("status {status}"), *count)).collect();
    errors.extend(tally.failures.iter().map(|(failure, count)| (failure.name().to_owned(), *count)));
    for (name, count) in [("unsent", tally.unsent), ("in warm-up", measured.warmup_failed)] {
        if count > 0 {
            errors.insert(name.to_owned(), count);
        }
    }
    let names = workload.kinds.iter().map(|(_, kind)| kind.name.clone());
    let kinds = names.zip(&tally.latency_by_kind).map(|(name, times)| (name, Buckets::of(times)));
    let accounted = !measured.is_unaccounted;
    Round {
        elapsed_s: measured.elapsed.as_secs_f64(),
        ok: tally.ok(&step.settings),
        failed: tally.failed(&step.settings) + measured.warmup_failed,
        errors,
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
            let (p50_us, p99_us) = (None, None);
            climb.add(RampPoint {
                rate_per_s: rate,
                ok_per_s: rate,
                failed: 0,
                kept_up,
                p50_us,
                p99_us,
                cpu_us_per_request: None,
            });
        }
        assert_eq!(tried, [100, 200, 400, 800, 800, 566, 566, 476]);
        assert_eq!(climb.knee().map(f64::round), Some(476.0));
        assert_eq!(climb.points.len(), 6, "each rate has one point");
    }
}
