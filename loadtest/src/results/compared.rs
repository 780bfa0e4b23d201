//! Two runs beside each other: which cells became worse, and how sure that is.

use super::buckets::{Buckets, Grid};
use super::document::{Cell, Results, Round, cpu_us_per_request};
use super::interval::{Interval, interval_of_two};
use crate::error::SetupError;

/// Fewer rounds say nothing about how much rounds differ.
const ROUNDS_MIN: usize = 3;

/// How a figure changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Better,
    Same,
    Worse,
}

/// The comparison as text, and its verdict over all.
pub(crate) fn compare(old: &Results, new: &Results, threshold: f64) -> Result<(String, Verdict), SetupError> {
    let pairs: Vec<(&Cell, &Cell)> = old
        .cells
        .iter()
        .filter_map(|cell| {
            let same = |other: &&Cell| other.workload == cell.workload && other.target == cell.target;
            Some((cell, new.cells.iter().find(same)?))
        })
        .collect();
    if pairs.is_empty() {
        return Err(SetupError(format!(
            "the two runs have no workload and target in common: the first has {}, the second {}",
            named(old),
            named(new)
        )));
    }
    let least = pairs.iter().map(|(one, other)| one.rounds.len().min(other.rounds.len())).min().unwrap_or(0);
    if least < ROUNDS_MIN {
        return Err(SetupError(format!(
            "a cell has {least} rounds; accepted are {ROUNDS_MIN} or more, since an interval comes of how much rounds differ: run with --rounds 5"
        )));
    }
    let mut out = format!(
        "{:<24} {:<12} {:<14} {:>10} {:>10} {:>24}  verdict\n",
        "workload", "target", "figure", "before", "now", "now / before (95 %)"
    );
    let mut worst = Verdict::Same;
    let mut note = |line: String, verdict: Verdict| {
        out.push_str(&line);
        if verdict == Verdict::Worse {
            worst = Verdict::Worse;
        }
    };
    for (one, other) in &pairs {
        for figure in &FIGURES {
            let Some((before, now, ratio)) = (figure.ratio)(&one.rounds, &other.rounds) else { continue };
            let verdict = judge(ratio, threshold);
            let line = format!(
                "{:<24} {:<12} {:<14} {:>10} {:>10} {:>8.3} ({:.3} to {:.3})  {}\n",
                one.workload,
                one.target,
                figure.name,
                shown(before),
                shown(now),
                ratio.value,
                ratio.low,
                ratio.high,
                word(verdict)
            );
            note(line, verdict);
        }
        let share = |cell: &Cell| cell.summary.failed as f64 / (cell.summary.ok + cell.summary.failed).max(1) as f64;
        let verdict = if share(other) > share(one) + 0.001 { Verdict::Worse } else { Verdict::Same };
        if other.summary.failed + one.summary.failed > 0 {
            let line = format!(
                "{:<24} {:<12} {:<14} {:>10} {:>10} {:>24}  {}\n",
                one.workload,
                one.target,
                "failed",
                one.summary.failed,
                other.summary.failed,
                "",
                word(verdict)
            );
            note(line, verdict);
        }
    }
    let missing = old.cells.len() + new.cells.len() - 2 * pairs.len();
    if missing > 0 {
        out.push_str(&format!("{missing} cells are in one of the runs only and were not compared\n"));
    }
    Ok((out, worst))
}

fn named(results: &Results) -> String {
    results.cells.iter().map(|cell| format!("`{}` on `{}`", cell.workload, cell.target)).collect::<Vec<_>>().join(", ")
}

/// Worse is what is worse by more than the threshold at every point of the interval.
fn judge(ratio: Interval, threshold: f64) -> Verdict {
    match ratio {
        _ if ratio.low > 1.0 + threshold => Verdict::Worse,
        _ if ratio.high < 1.0 - threshold => Verdict::Better,
        _ => Verdict::Same,
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Same => "same",
        Verdict::Worse => "WORSE",
    }
}

fn shown(us: f64) -> String {
    match us {
        _ if us >= 100_000.0 => format!("{:.0} ms", us / 1000.0),
        _ if us >= 1000.0 => format!("{:.2} ms", us / 1000.0),
        _ => format!("{us:.1} us"),
    }
}

/// A figure of both runs, and the interval of its ratio.
type Ratio = fn(&[Round], &[Round]) -> Option<(f64, f64, Interval)>;

struct Figure {
    name: &'static str,
    ratio: Ratio,
}

// No bar on p99.9: on cores that others use too it says more about them.
const FIGURES: [Figure; 5] = [
    Figure { name: "latency p50", ratio: |old, new| of_latency(old, new, 0.5) },
    Figure { name: "latency p99", ratio: |old, new| of_latency(old, new, 0.99) },
    Figure { name: "first token p50", ratio: of_first_token },
    Figure { name: "frame gap p99", ratio: of_gap },
    Figure { name: "CPU a request", ratio: of_cpu },
];

fn of_latency(old: &[Round], new: &[Round], share: f64) -> Option<(f64, f64, Interval)> {
    of_times(old, new, |round| &round.latency, share)
}

fn of_first_token(old: &[Round], new: &[Round]) -> Option<(f64, f64, Interval)> {
    of_times(old, new, |round| &round.first_token, 0.5)
}

fn of_gap(old: &[Round], new: &[Round]) -> Option<(f64, f64, Interval)> {
    of_times(old, new, |round| &round.frame_gap, 0.99)
}

fn of_cpu(old: &[Round], new: &[Round]) -> Option<(f64, f64, Interval)> {
    of(old.len(), new.len(), |chosen| cpu_us_per_request(old, chosen), |chosen| cpu_us_per_request(new, chosen))
}

fn of_times(old: &[Round], new: &[Round], pick: fn(&Round) -> &Buckets, share: f64) -> Option<(f64, f64, Interval)> {
    let grid = |rounds: &[Round]| Grid::new(rounds.iter().map(pick).collect::<Vec<_>>().into_iter());
    let (before, now) = (grid(old), grid(new));
    of(old.len(), new.len(), |chosen| before.at(chosen, share), |chosen| now.at(chosen, share))
}

fn of(
    old: usize,
    new: usize,
    before: impl Fn(&[usize]) -> Option<f64>,
    now: impl Fn(&[usize]) -> Option<f64>,
) -> Option<(f64, f64, Interval)> {
    let every = |count: usize| (0..count).collect::<Vec<usize>>();
    let ratio = interval_of_two(old, new, |one, other| {
        let before = before(one).filter(|us| *us > 0.0)?;
        Some(now(other)? / before)
    })?;
    Some((before(&every(old))?, now(&every(new))?, ratio))
}

#[cfg(test)]
mod tests {
    use super::super::document::tests::{around, results};
    use super::*;

    #[test]
    fn the_same_is_no_worse_a_slower_one_is_and_a_faster_one_is_better() {
        let at = |us: f64| results(&[("gateway", around(us))]);
        let verdict = |old: f64, new: f64| compare(&at(old), &at(new), 0.1).unwrap();
        assert_eq!(verdict(100.0, 100.0).1, Verdict::Same);
        assert_eq!(verdict(100.0, 104.0).1, Verdict::Same, "within the threshold");
        let (text, worse) = verdict(100.0, 150.0);
        assert!(worse == Verdict::Worse && text.contains("WORSE") && text.contains("1.5"), "{text}");
        let (text, better) = verdict(150.0, 100.0);
        assert!(better == Verdict::Same && text.contains("better"), "{text}");
    }

    #[test]
    fn more_failures_are_worse_whatever_the_latency_is() {
        let old = results(&[("gateway", around(100.0))]);
        let mut new = results(&[("gateway", around(50.0))]);
        new.cells[0].rounds[0].failed = 40;
        new.summarise();
        assert_eq!(compare(&old, &new, 0.1).unwrap().1, Verdict::Worse);
    }

    #[test]
    fn runs_that_cannot_be_compared_are_refused_with_the_reason() {
        let (one, other) = (results(&[("a", around(1.0))]), results(&[("b", around(1.0))]));
        assert!(compare(&one, &other, 0.1).unwrap_err().0.contains("`small` on `a`, the second `small` on `b`"));
        let short = results(&[("a", around(1.0).into_iter().take(2).collect())]);
        assert!(compare(&one, &short, 0.1).unwrap_err().0.contains("run with --rounds 5"));
    }
}
