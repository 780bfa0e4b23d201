//! The document of a run: its cells, their rounds, and what all rounds come to.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::buckets::{Buckets, Grid, Quantiles};
use super::interval::{Interval, interval};

/// What the file is, and which form of it.
pub(crate) const FORMAT: &str = "weir-loadtest results 1";

/// A whole run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) format: String,
    pub(crate) version: String,
    pub(crate) plan: String,
    /// Seconds since 1970.
    pub(crate) made_at: u64,
    pub(crate) machine: Machine,
    pub(crate) rounds: u32,
    pub(crate) duration_s: f64,
    pub(crate) seed: u64,
    /// Where rates were tried: which.
    #[serde(default)]
    pub(crate) ramp: Option<RampAsked>,
    /// How it was called, without the values of `--header`.
    #[serde(default)]
    pub(crate) command: String,
    /// The plan as it was written, without the values of `headers`.
    #[serde(default)]
    pub(crate) plan_text: String,
    #[serde(default)]
    pub(crate) warmup_s: f64,
    /// The fake provider in words, where the run started it.
    #[serde(default)]
    pub(crate) provider: String,
    /// What the caller has to say of the run.
    #[serde(default)]
    pub(crate) notes: Vec<String>,
    /// The target that others are compared with.
    pub(crate) baseline: Option<String>,
    pub(crate) cells: Vec<Cell>,
    pub(crate) ramps: Vec<RampCurve>,
}

/// Where the run was.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) cpu: String,
    pub(crate) kernel: String,
    /// How many threads wanted a core in the minute before the run, on average.
    #[serde(default)]
    pub(crate) load_before: Option<f64>,
}

/// What a ramp was asked for.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct RampAsked {
    pub(crate) from_per_s: f64,
    pub(crate) to_per_s: f64,
    pub(crate) steps: u32,
    pub(crate) p99_max_us: f64,
}

/// One workload on one target.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Cell {
    pub(crate) workload: String,
    pub(crate) target: String,
    pub(crate) url: String,
    /// The load in words.
    pub(crate) load: String,
    /// What is sent, in words.
    #[serde(default)]
    pub(crate) sends: String,
    pub(crate) summary: Summary,
    pub(crate) rounds: Vec<Round>,
}

/// What all rounds of a cell come to.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) ok: u64,
    pub(crate) failed: u64,
    pub(crate) errors: BTreeMap<String, u64>,
    /// What failed in the warm-ups, which no other count holds.
    #[serde(default)]
    pub(crate) warmup_errors: BTreeMap<String, u64>,
    /// The first answer with an unexpected status, in a line.
    #[serde(default)]
    pub(crate) refused: Option<String>,
    /// Why some rounds have no figures of the processes.
    #[serde(default)]
    pub(crate) gone: Option<String>,
    pub(crate) ok_per_s: f64,
    /// Answers whose bytes were compared with those that the provider sent, and were the same.
    pub(crate) checked: u64,
    pub(crate) latency: Option<Quantiles>,
    pub(crate) first_byte: Option<Quantiles>,
    pub(crate) first_token: Option<Quantiles>,
    pub(crate) frame_gap: Option<Quantiles>,
    /// How late the load tester itself sent, open loop.
    pub(crate) send_lag: Option<Quantiles>,
    /// By the kinds of a mix.
    pub(crate) kinds: BTreeMap<String, Quantiles>,
    /// What the target adds to the baseline, in microseconds.
    pub(crate) added_p50_us: Option<Interval>,
    pub(crate) added_p99_us: Option<Interval>,
    /// The same for the first token of streams.
    pub(crate) added_token_p50_us: Option<Interval>,
    pub(crate) cpu_us_per_request: Option<f64>,
    pub(crate) rss_kib_first: Option<u64>,
    pub(crate) rss_kib_last: Option<u64>,
    pub(crate) rss_kib_most: Option<u64>,
    /// The load tester's own CPU time.
    pub(crate) tester_cpu_us_per_request: Option<f64>,
}

/// One measurement of a cell.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Round {
    pub(crate) elapsed_s: f64,
    /// How long requests were sent: in an open loop up to the last one, at least as long as planned.
    #[serde(default)]
    pub(crate) sending_s: Option<f64>,
    pub(crate) ok: u64,
    pub(crate) failed: u64,
    /// Answers with whatever status; the target's CPU time is theirs.
    #[serde(default)]
    pub(crate) answers: Option<u64>,
    pub(crate) errors: BTreeMap<String, u64>,
    #[serde(default)]
    pub(crate) warmup_errors: BTreeMap<String, u64>,
    #[serde(default)]
    pub(crate) refused: Option<String>,
    #[serde(default)]
    pub(crate) gone: Option<String>,
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
    pub(crate) checked: u64,
    pub(crate) frames: u64,
    pub(crate) latency: Buckets,
    pub(crate) first_byte: Buckets,
    pub(crate) first_token: Buckets,
    pub(crate) frame_gap: Buckets,
    pub(crate) send_lag: Buckets,
    pub(crate) kinds: BTreeMap<String, Buckets>,
    pub(crate) cpu_us: Option<f64>,
    pub(crate) rss_kib_before: Option<u64>,
    pub(crate) rss_kib_after: Option<u64>,
    pub(crate) tester_cpu_us: f64,
}

/// Rates that were tried on one target.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RampCurve {
    pub(crate) workload: String,
    pub(crate) target: String,
    #[serde(default)]
    pub(crate) url: String,
    /// The highest rate at which it kept up.
    pub(crate) knee_per_s: Option<f64>,
    pub(crate) points: Vec<RampPoint>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct RampPoint {
    pub(crate) rate_per_s: f64,
    pub(crate) ok_per_s: f64,
    pub(crate) failed: u64,
    pub(crate) kept_up: bool,
    pub(crate) p50_us: Option<f64>,
    pub(crate) p99_us: Option<f64>,
    /// Until the model's first text: of streams the first token. The ramp's limit is on this one.
    #[serde(default)]
    pub(crate) text_p99_us: Option<f64>,
    pub(crate) cpu_us_per_request: Option<f64>,
    #[serde(default)]
    pub(crate) rss_kib: Option<u64>,
    #[serde(default)]
    pub(crate) errors: BTreeMap<String, u64>,
    /// Why it was not kept up with.
    #[serde(default)]
    pub(crate) why: Option<String>,
    #[serde(default)]
    pub(crate) refused: Option<String>,
}

impl RampPoint {
    /// The figure that is held against the ramp's limit.
    pub(crate) fn judged_us(&self) -> Option<f64> {
        self.text_p99_us.or(self.p99_us)
    }
}

impl Results {
    /// Computes every cell's summary.
    pub(crate) fn summarise(&mut self) {
        let bases: Vec<(String, Vec<Round>)> = self
            .cells
            .iter()
            .filter(|cell| Some(&cell.target) == self.baseline.as_ref())
            .map(|cell| (cell.workload.clone(), cell.rounds.clone()))
            .collect();
        for cell in &mut self.cells {
            cell.summary = Summary::of(&cell.rounds);
            let base = bases.iter().find(|(workload, _)| *workload == cell.workload);
            if let Some((_, base)) = base.filter(|_| Some(&cell.target) != self.baseline.as_ref()) {
                cell.summary.added_p50_us = added(&cell.rounds, base, |round| &round.latency, 0.5);
                cell.summary.added_p99_us = added(&cell.rounds, base, |round| &round.latency, 0.99);
                cell.summary.added_token_p50_us = added(&cell.rounds, base, |round| &round.first_token, 0.5);
            }
        }
    }

    /// The workloads in their order.
    pub(crate) fn workloads(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for cell in &self.cells {
            if !names.contains(&cell.workload.as_str()) {
                names.push(&cell.workload);
            }
        }
        names
    }

    /// Whether something came that should not have. A ramp is there to find what is too much, so it fails where no rate was kept up with.
    pub(crate) fn has_failures(&self) -> bool {
        let failed =
            |cell: &Cell| cell.summary.failed > 0 || cell.summary.ok == 0 || !cell.summary.warmup_errors.is_empty();
        self.cells.iter().any(failed) || self.ramps.iter().any(|curve| curve.knee_per_s.is_none())
    }

    /// The targets and their addresses, in order.
    pub(crate) fn addresses(&self) -> Vec<(&str, &str)> {
        let mut found: Vec<(&str, &str)> = Vec::new();
        let cells = self.cells.iter().map(|cell| (cell.target.as_str(), cell.url.as_str()));
        let curves = self.ramps.iter().map(|curve| (curve.target.as_str(), curve.url.as_str()));
        for (name, url) in cells.chain(curves) {
            if !url.is_empty() && !found.iter().any(|(known, _)| *known == name) {
                found.push((name, url));
            }
        }
        found
    }
}

impl Summary {
    fn of(rounds: &[Round]) -> Self {
        let all = |pick: fn(&Round) -> &Buckets| Buckets::merged(rounds.iter().map(pick)).quantiles();
        let sum = |pick: fn(&Round) -> u64| rounds.iter().map(pick).sum::<u64>();
        let counted = |pick: fn(&Round) -> &BTreeMap<String, u64>| {
            let mut errors: BTreeMap<String, u64> = BTreeMap::new();
            for (name, count) in rounds.iter().flat_map(pick) {
                *errors.entry(name.clone()).or_default() += count;
            }
            errors
        };
        let mut kinds: BTreeMap<String, Vec<&Buckets>> = BTreeMap::new();
        for (name, buckets) in rounds.iter().flat_map(|round| &round.kinds) {
            kinds.entry(name.clone()).or_default().push(buckets);
        }
        let kinds =
            kinds.into_iter().filter_map(|(name, all)| Some((name, Buckets::merged(all.into_iter()).quantiles()?)));
        let ok = sum(|round| round.ok);
        let sending_s: f64 = rounds.iter().map(|round| round.sending_s.unwrap_or(round.elapsed_s)).sum();
        let answers: u64 = rounds.iter().map(|round| round.answers.unwrap_or(round.ok)).sum();
        let every: Vec<usize> = (0..rounds.len()).collect();
        let rss = |round: &Round| round.rss_kib_before.into_iter().chain(round.rss_kib_after).max();
        let own_us: f64 = rounds.iter().map(|round| round.tester_cpu_us).sum();
        Self {
            ok,
            failed: sum(|round| round.failed),
            errors: counted(|round| &round.errors),
            warmup_errors: counted(|round| &round.warmup_errors),
            refused: rounds.iter().find_map(|round| round.refused.clone()),
            gone: rounds.iter().find_map(|round| round.gone.clone()),
            ok_per_s: if sending_s > 0.0 { ok as f64 / sending_s } else { 0.0 },
            checked: sum(|round| round.checked),
            latency: all(|round| &round.latency),
            first_byte: all(|round| &round.first_byte),
            first_token: all(|round| &round.first_token),
            frame_gap: all(|round| &round.frame_gap),
            send_lag: all(|round| &round.send_lag),
            kinds: kinds.collect(),
            added_p50_us: None,
            added_p99_us: None,
            added_token_p50_us: None,
            cpu_us_per_request: cpu_us_per_request(rounds, &every),
            rss_kib_first: rounds.first().and_then(|round| round.rss_kib_before),
            rss_kib_last: rounds.last().and_then(|round| round.rss_kib_after),
            rss_kib_most: rounds.iter().filter_map(rss).max(),
            tester_cpu_us_per_request: (answers > 0).then(|| own_us / answers as f64),
        }
    }
}

/// CPU time per answer of the chosen rounds, whatever its status: refusing is work, too.
pub(crate) fn cpu_us_per_request(rounds: &[Round], chosen: &[usize]) -> Option<f64> {
    let (mut cpu_us, mut answers) = (0.0, 0);
    for round in chosen.iter().filter_map(|round| rounds.get(*round)) {
        cpu_us += round.cpu_us?;
        answers += round.answers.unwrap_or(round.ok);
    }
    (answers > 0).then(|| cpu_us / answers as f64)
}

/// How much later a percentile is than the baseline's, round by round.
fn added(rounds: &[Round], base: &[Round], pick: fn(&Round) -> &Buckets, share: f64) -> Option<Interval> {
    let grid = |rounds: &[Round]| Grid::new(rounds.iter().map(pick).collect::<Vec<_>>().into_iter());
    let (own, other) = (grid(rounds), grid(base));
    interval(rounds.len().min(base.len()), |chosen| Some(own.at(chosen, share)? - other.at(chosen, share)?))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Results of one workload with one round per list, every time in microseconds.
    pub(crate) fn results(targets: &[(&str, Vec<Vec<f64>>)]) -> Results {
        let round = |times: &Vec<f64>| {
            let mut times = times.clone();
            times.sort_by(f64::total_cmp);
            let latency = Buckets::merged([Buckets(times.iter().map(|us| (*us, 1)).collect())].iter());
            let ok = times.len() as u64;
            Round { elapsed_s: 1.0, ok, latency, cpu_us: Some(ok as f64 * 40.0), ..Round::default() }
        };
        let cell = |(target, rounds): &(&str, Vec<Vec<f64>>)| Cell {
            workload: "small".to_owned(),
            target: (*target).to_owned(),
            url: format!("http://{target}"),
            load: "100/s".to_owned(),
            sends: String::new(),
            summary: Summary::default(),
            rounds: rounds.iter().map(round).collect(),
        };
        let mut results = Results {
            format: FORMAT.to_owned(),
            version: "0".to_owned(),
            plan: "quick".to_owned(),
            made_at: 1_700_000_000,
            machine: Machine::default(),
            rounds: 3,
            duration_s: 1.0,
            seed: 1,
            ramp: None,
            command: String::new(),
            plan_text: String::new(),
            warmup_s: 0.0,
            provider: String::new(),
            notes: Vec::new(),
            baseline: Some("direct".to_owned()),
            cells: targets.iter().map(cell).collect(),
            ramps: Vec::new(),
        };
        results.summarise();
        results
    }

    /// Rounds that differ a little from each other.
    pub(crate) fn around(us: f64) -> Vec<Vec<f64>> {
        let times = |round: usize| (0..200).map(|at| us * (1.0 + 0.01 * ((at * 7 + round * 3) % 11) as f64)).collect();
        (0..5).map(times).collect()
    }

    #[test]
    fn what_a_target_adds_is_the_difference_to_the_baseline_with_its_interval() {
        let found = results(&[("direct", around(100.0)), ("gateway", around(300.0))]);
        assert!(found.cells[0].summary.added_p50_us.is_none());
        let added = found.cells[1].summary.added_p50_us.unwrap();
        assert!(
            (added.value - 210.0).abs() < 5.0 && added.low <= added.value && added.high - added.low < 10.0,
            "{added:?}"
        );
        assert_eq!(found.cells[1].summary.cpu_us_per_request, Some(40.0));
    }

    #[test]
    fn cpu_is_shared_by_all_answers_and_not_by_the_good_ones_alone() {
        let mut found = results(&[("direct", around(100.0))]);
        for round in &mut found.cells[0].rounds {
            (round.answers, round.failed) = (Some(round.ok * 4), round.ok * 3);
        }
        found.summarise();
        assert_eq!(found.cells[0].summary.cpu_us_per_request, Some(10.0));
    }

    #[test]
    fn the_rate_of_answers_is_over_the_time_in_which_requests_were_sent() {
        let mut found = results(&[("direct", around(100.0))]);
        for round in &mut found.cells[0].rounds {
            (round.elapsed_s, round.sending_s) = (1.6, Some(1.0));
        }
        found.summarise();
        assert_eq!(found.cells[0].summary.ok_per_s, 200.0);
    }

    #[test]
    fn results_read_back_as_they_were_written() {
        let found = results(&[("direct", around(100.0)), ("gateway", around(300.0))]);
        let text = serde_json::to_string(&found).unwrap();
        let again: Results = serde_json::from_str(&text).unwrap();
        let latency =
            |results: &Results| results.cells.iter().map(|cell| cell.summary.latency.unwrap()).collect::<Vec<_>>();
        for (one, other) in latency(&found).iter().zip(latency(&again)) {
            assert!(one.count == other.count && (one.p99_us / other.p99_us - 1.0).abs() < 1e-9, "{one:?} {other:?}");
        }
        assert_eq!(again.cells[1].rounds.len(), found.cells[1].rounds.len());
    }
}
