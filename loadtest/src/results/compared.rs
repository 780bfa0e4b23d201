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
    /// The interval is so wide that it holds more than one of the others.
    NotShown,
    Worse,
}

/// What is compared, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    /// How much worse is still the same, as a share.
    pub(crate) threshold: f64,
    /// Whether cells of the first run may be missing in the second.
    pub(crate) allow_missing: bool,
}

/// The comparison as text, and whether nothing is worse and nothing is missing.
pub(crate) fn compare(old: &Results, new: &Results, terms: Terms) -> Result<(String, bool), SetupError> {
    let is_pair = |one: &Cell, other: &Cell| other.workload == one.workload && other.target == one.target;
    let pairs: Vec<(&Cell, &Cell)> = old
        .cells
        .iter()
        .filter_map(|cell| Some((cell, new.cells.iter().find(|other| is_pair(cell, other))?)))
        .collect();
    if pairs.is_empty() {
        return Err(SetupError(format!(
            "the two runs have no workload and target in common: the first has {}, the second {}",
            named(&old.cells.iter().collect::<Vec<_>>()),
            named(&new.cells.iter().collect::<Vec<_>>())
        )));
    }
    refuse_other_loads(old, new, &pairs)?;
    let least = pairs.iter().map(|(one, other)| one.rounds.len().min(other.rounds.len())).min().unwrap_or(0);
    if least < ROUNDS_MIN {
        return Err(SetupError(format!(
            "a cell has {least} rounds; accepted are {ROUNDS_MIN} or more, since an interval comes of how much rounds differ: run with --rounds 5"
        )));
    }
    let mut out = differences(old, new).concat();
    out.push_str(&format!(
        "{:<24} {:<12} {:<14} {:>10} {:>10} {:>24}  verdict\n",
        "workload", "target", "figure", "before", "now", "now / before (95 %)"
    ));
    let (mut all, mut verdicts, mut moved) = (0, Vec::new(), Vec::new());
    let mut note = |cell: &Cell, figure: &str, (before, now, ratio): (String, String, String), verdict: Verdict| {
        let (workload, target, verdict_in_words) = (&cell.workload, &cell.target, word(verdict));
        out.push_str(&format!(
            "{workload:<24} {target:<12} {figure:<14} {before:>10} {now:>10} {ratio:>24}  {verdict_in_words}\n"
        ));
        all += 1;
        verdicts.push(verdict);
        if Some(target) == new.baseline.as_ref() && matches!(verdict, Verdict::Worse | Verdict::Better) {
            moved.push(format!("{workload} {figure}"));
        }
    };
    for (one, other) in &pairs {
        for figure in &FIGURES {
            let Some((before, now, ratio)) = (figure.ratio)(&one.rounds, &other.rounds) else { continue };
            let verdict = judge(ratio, terms.threshold);
            let ratio = format!("{:>8.3} ({:.3} to {:.3})", ratio.value, ratio.low, ratio.high);
            note(one, figure.name, ((figure.shown)(before), (figure.shown)(now), ratio), verdict);
        }
        let share = |cell: &Cell| cell.summary.failed as f64 / (cell.summary.ok + cell.summary.failed).max(1) as f64;
        let verdict = if share(other) > share(one) + 0.001 { Verdict::Worse } else { Verdict::Same };
        if other.summary.failed + one.summary.failed > 0 {
            let counts = (one.summary.failed.to_string(), other.summary.failed.to_string(), String::new());
            note(one, "failed", counts, verdict);
        }
    }
    if !moved.is_empty() {
        out.push_str(&format!(
            "the baseline itself changed ({}), which no gateway's change explains: the machine or the provider was another\n",
            moved.join(", ")
        ));
    }
    let without = |cells: &'_ [Cell], others: &[Cell]| -> Vec<Cell> {
        cells.iter().filter(|cell| !others.iter().any(|other| is_pair(cell, other))).cloned().collect()
    };
    let (gone, fresh) = (without(&old.cells, &new.cells), without(&new.cells, &old.cells));
    let accepted = if terms.allow_missing { "" } else { "; where that is meant, say --allow-missing" };
    for (cells, said, accepted) in
        [(&gone, "missing in the second run", accepted), (&fresh, "in the second run only", "")]
    {
        if !cells.is_empty() {
            out.push_str(&format!("{said}: {}{accepted}\n", named(&cells.iter().collect::<Vec<_>>())));
        }
    }
    let count = |wanted: Verdict| verdicts.iter().filter(|verdict| **verdict == wanted).count();
    out.push_str(&format!(
        "{} of {all} figures worse, {} better, {} the same, {} not shown either way\n",
        count(Verdict::Worse),
        count(Verdict::Better),
        count(Verdict::Same),
        count(Verdict::NotShown)
    ));
    Ok((out, count(Verdict::Worse) == 0 && (gone.is_empty() || terms.allow_missing)))
}

/// Figures of different loads have no ratio worth looking at.
fn refuse_other_loads(old: &Results, new: &Results, pairs: &[(&Cell, &Cell)]) -> Result<(), SetupError> {
    let refuse = |what: &str, one: &str, other: &str| {
        Err(SetupError(format!(
            "the two runs cannot be compared: {what} was `{one}` before and is `{other}` now; measure both with the same plan and options"
        )))
    };
    // Results of versions that did not say it are taken at their word.
    let differ = |one: &str, other: &str| !one.is_empty() && !other.is_empty() && one != other;
    if differ(&old.provider, &new.provider) {
        return refuse("the fake provider", &old.provider, &new.provider);
    }
    for (one, other) in pairs {
        let Cell { workload, target, .. } = one;
        if differ(&one.load, &other.load) {
            return refuse(&format!("the load of `{workload}` on `{target}`"), &one.load, &other.load);
        }
        if differ(&one.sends, &other.sends) {
            return refuse(&format!("what `{workload}` sends to `{target}`"), &one.sends, &other.sends);
        }
    }
    Ok(())
}

/// What differs between the runs without making their figures another kind.
fn differences(old: &Results, new: &Results) -> Vec<String> {
    let fields = [
        ("rounds", old.rounds.to_string(), new.rounds.to_string()),
        ("duration", format!("{} s", old.duration_s), format!("{} s", new.duration_s)),
        ("seed", old.seed.to_string(), new.seed.to_string()),
        ("cores", old.machine.cores.to_string(), new.machine.cores.to_string()),
        ("CPU", old.machine.cpu.clone(), new.machine.cpu.clone()),
    ];
    let differs = fields.iter().filter(|(_, before, now)| before != now);
    differs.map(|(name, before, now)| format!("note: {name} was {before} before and is {now} now\n")).collect()
}

fn named(cells: &[&Cell]) -> String {
    cells.iter().map(|cell| format!("`{}` on `{}`", cell.workload, cell.target)).collect::<Vec<_>>().join(", ")
}

/// Worse is what is worse by more than the threshold at every point of the interval, the same what is within it at every point.
fn judge(ratio: Interval, threshold: f64) -> Verdict {
    match ratio {
        _ if ratio.low > 1.0 + threshold => Verdict::Worse,
        _ if ratio.high < 1.0 - threshold => Verdict::Better,
        _ if ratio.low >= 1.0 - threshold && ratio.high <= 1.0 + threshold => Verdict::Same,
        _ => Verdict::NotShown,
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Same => "same",
        Verdict::NotShown => "not shown",
        Verdict::Worse => "WORSE",
    }
}

fn time(us: f64) -> String {
    match us {
        _ if us >= 100_000.0 => format!("{:.0} ms", us / 1000.0),
        _ if us >= 1000.0 => format!("{:.2} ms", us / 1000.0),
        _ => format!("{us:.1} us"),
    }
}

fn memory(kib: f64) -> String {
    format!("{:.1} MiB", kib / 1024.0)
}

/// A figure of both runs, and the interval of its ratio.
type Ratio = fn(&[Round], &[Round]) -> Option<(f64, f64, Interval)>;

struct Figure {
    name: &'static str,
    ratio: Ratio,
    shown: fn(f64) -> String,
}

// No bar on p99.9: on cores that others use too it says more about them.
const FIGURES: [Figure; 6] = [
    Figure { name: "latency p50", ratio: |old, new| of_latency(old, new, 0.5), shown: time },
    Figure { name: "latency p99", ratio: |old, new| of_latency(old, new, 0.99), shown: time },
    Figure { name: "first token p50", ratio: of_first_token, shown: time },
    Figure { name: "frame gap p99", ratio: of_gap, shown: time },
    Figure { name: "CPU a request", ratio: of_cpu, shown: time },
    Figure { name: "memory", ratio: of_memory, shown: memory },
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

fn of_memory(old: &[Round], new: &[Round]) -> Option<(f64, f64, Interval)> {
    let mean = |rounds: &[Round], chosen: &[usize]| {
        let held = chosen.iter().map(|round| rounds.get(*round)?.rss_kib_after.map(|kib| kib as f64));
        Some(held.sum::<Option<f64>>()? / chosen.len() as f64)
    };
    of(old.len(), new.len(), |chosen| mean(old, chosen), |chosen| mean(new, chosen))
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

    const TERMS: Terms = Terms { threshold: 0.1, allow_missing: false };

    #[test]
    fn the_same_is_no_worse_a_slower_one_is_and_a_faster_one_is_better() {
        let at = |us: f64| results(&[("gateway", around(us))]);
        let verdict = |old: f64, new: f64| compare(&at(old), &at(new), TERMS).unwrap();
        assert!(verdict(100.0, 100.0).1);
        assert!(verdict(100.0, 104.0).1, "within the threshold");
        let (text, is_well) = verdict(100.0, 150.0);
        assert!(!is_well && text.contains("WORSE") && text.contains("1.5"), "{text}");
        assert!(text.ends_with("2 of 3 figures worse, 0 better, 1 the same, 0 not shown either way\n"), "{text}");
        let (text, is_well) = verdict(150.0, 100.0);
        assert!(is_well && text.contains("better"), "{text}");
    }

    #[test]
    fn what_an_interval_leaves_open_is_not_called_the_same() {
        let at = |low, high| Interval { value: 0.535, low, high };
        assert_eq!(judge(at(0.227, 1.042), 0.1), Verdict::NotShown);
        assert_eq!(judge(at(0.95, 1.05), 0.1), Verdict::Same);
        assert_eq!(judge(at(0.95, 1.3), 0.1), Verdict::NotShown);
        assert_eq!((judge(at(1.2, 1.3), 0.1), judge(at(0.5, 0.8), 0.1)), (Verdict::Worse, Verdict::Better));
    }

    #[test]
    fn more_failures_are_worse_whatever_the_latency_is() {
        let old = results(&[("gateway", around(100.0))]);
        let mut new = results(&[("gateway", around(50.0))]);
        new.cells[0].rounds[0].failed = 40;
        new.summarise();
        assert!(!compare(&old, &new, TERMS).unwrap().1);
    }

    #[test]
    fn more_memory_is_worse() {
        let with = |kib: u64| {
            let mut found = results(&[("gateway", around(100.0))]);
            found.cells[0].rounds.iter_mut().for_each(|round| round.rss_kib_after = Some(kib));
            found
        };
        let (text, is_well) = compare(&with(10_240), &with(20_480), TERMS).unwrap();
        assert!(!is_well && text.contains("10.0 MiB") && text.contains("1 of 4 figures worse"), "{text}");
    }

    #[test]
    fn runs_that_cannot_be_compared_are_refused_with_the_reason() {
        let (one, other) = (results(&[("a", around(1.0))]), results(&[("b", around(1.0))]));
        assert!(compare(&one, &other, TERMS).unwrap_err().0.contains("`small` on `a`, the second `small` on `b`"));
        let short = results(&[("a", around(1.0).into_iter().take(2).collect())]);
        assert!(compare(&one, &short, TERMS).unwrap_err().0.contains("run with --rounds 5"));
    }

    #[test]
    fn runs_of_other_loads_are_refused_and_other_differences_are_told() {
        let run = || {
            let mut found = results(&[("a", around(1.0))]);
            (found.cells[0].sends, found.provider) = ("1024 bytes, chat".to_owned(), "20 frames".to_owned());
            found
        };
        let refused = |change: fn(&mut Results)| {
            let mut other = run();
            change(&mut other);
            compare(&run(), &other, TERMS).unwrap_err().0
        };
        assert!(
            refused(|run| run.cells[0].load = "9/s".to_owned()).contains("load of `small` on `a` was `100/s` before")
        );
        assert!(refused(|run| run.cells[0].sends = "300 bytes".to_owned()).contains("what `small` sends to `a` was"));
        assert!(refused(|run| run.provider = "5 frames".to_owned()).contains("the fake provider was `20 frames`"));
        let mut former = run();
        (former.cells[0].sends, former.provider) = (String::new(), String::new());
        former.duration_s = 9.0;
        let (text, _) = compare(&former, &run(), TERMS).unwrap();
        assert!(text.contains("note: duration was 9 s before and is 1 s now"), "{text}");
    }

    #[test]
    fn cells_that_are_missing_are_named_and_fail_unless_that_is_allowed() {
        let (both, one) = (results(&[("a", around(1.0)), ("b", around(1.0))]), results(&[("a", around(1.0))]));
        let (text, is_well) = compare(&both, &one, TERMS).unwrap();
        assert!(!is_well && text.contains("missing in the second run: `small` on `b`; "), "{text}");
        assert!(compare(&both, &one, Terms { allow_missing: true, ..TERMS }).unwrap().1);
        let (text, is_well) = compare(&one, &both, TERMS).unwrap();
        assert!(is_well && text.contains("in the second run only: `small` on `b`"), "{text}");
    }

    #[test]
    fn a_baseline_that_changed_is_told() {
        let at = |us: f64| results(&[("direct", around(us)), ("gateway", around(us))]);
        let (text, _) = compare(&at(100.0), &at(150.0), TERMS).unwrap();
        assert!(text.contains("the baseline itself changed (small latency p50, small latency p99)"), "{text}");
        assert!(!compare(&at(100.0), &at(100.0), TERMS).unwrap().0.contains("itself changed"));
    }
}
