//! Results as a table, for a terminal and as Markdown.

use std::collections::BTreeMap;

use super::buckets::Quantiles;
use super::document::{Cell, RampAsked, RampCurve, RampPoint, Results, Summary};
use super::interval::Interval;

/// A column: its title, and what stands in it, if anything.
type Column = (&'static str, fn(&Summary) -> Option<String>);

// What went wrong stands first: it decides whether the other figures mean anything, and no narrow screen cuts it off.
const COLUMNS: [Column; 14] = [
    ("ok", |cell| Some(cell.ok.to_string())),
    ("failed", |cell| Some(cell.failed.to_string())),
    ("answers/s", |cell| Some(format!("{:.0}", cell.ok_per_s))),
    ("p50", |cell| cell.latency.map(|times| time(times.p50_us))),
    ("p99", |cell| cell.latency.map(|times| time(times.p99_us))),
    ("p99.9", |cell| thousands(cell.latency).map(|times| time(times.p99_9_us))),
    ("added p50", |cell| cell.added_p50_us.map(difference)),
    ("added p99", |cell| cell.added_p99_us.map(difference)),
    ("first token", |cell| cell.first_token.map(|times| time(times.p50_us))),
    ("added token", |cell| cell.added_token_p50_us.map(difference)),
    ("gap p99", |cell| cell.frame_gap.map(|times| time(times.p99_us))),
    ("CPU/request", |cell| cell.cpu_us_per_request.map(time)),
    ("memory", |cell| cell.rss_kib_last.map(mebibytes)),
    ("checked", |cell| (cell.checked > 0).then(|| cell.checked.to_string())),
];

/// The 99th percentile of fewer answers than this is its slowest one.
const HUNDREDS: u64 = 100;
/// Less CPU time for an answer than this, in microseconds, is none: no program answers a request in it.
const CPU_US_LEAST: f64 = 1.0;

/// The 99.9th percentile of fewer answers than this is its slowest one.
const THOUSANDS: u64 = 1000;

fn thousands(times: Option<Quantiles>) -> Option<Quantiles> {
    times.filter(|times| times.count >= THOUSANDS)
}

/// A time in the unit that suits it.
pub(crate) fn time(us: f64) -> String {
    match us.abs() {
        size if size >= 10_000_000.0 => format!("{:.1} s", us / 1e6),
        size if size >= 100_000.0 => format!("{:.0} ms", us / 1000.0),
        size if size >= 1000.0 => format!("{:.2} ms", us / 1000.0),
        size if size >= 100.0 => format!("{us:.0} us"),
        _ => format!("{us:.1} us"),
    }
}

/// A difference with its interval; one round has none.
fn difference(added: Interval) -> String {
    if added.low == added.high {
        return signed(added.value);
    }
    format!("{} ({} to {})", signed(added.value), signed(added.low), signed(added.high))
}

fn signed(us: f64) -> String {
    format!("{}{}", if us >= 0.0 { "+" } else { "" }, time(us))
}

/// The table of one workload: the titles, and a row for each target.
pub(crate) fn table(results: &Results, workload: &str) -> Vec<Vec<String>> {
    let cells: Vec<&Cell> = results.cells.iter().filter(|cell| cell.workload == workload).collect();
    let columns: Vec<&Column> =
        COLUMNS.iter().filter(|(_, pick)| cells.iter().any(|cell| pick(&cell.summary).is_some())).collect();
    let titles = std::iter::once("target".to_owned()).chain(columns.iter().map(|(title, _)| (*title).to_owned()));
    let row = |cell: &&Cell| {
        let values = columns.iter().map(|(_, pick)| pick(&cell.summary).unwrap_or_else(|| "-".to_owned()));
        std::iter::once(cell.target.clone()).chain(values).collect()
    };
    std::iter::once(titles.collect()).chain(cells.iter().map(row)).collect()
}

/// Counts by name, in a line.
pub(crate) fn counted(errors: &BTreeMap<String, u64>) -> String {
    errors.iter().map(|(name, count)| format!("{name}: {count}")).collect::<Vec<_>>().join(", ")
}

/// The kinds of a mix: the titles, and a row for each target and kind. Empty where a workload is no mix.
pub(crate) fn kinds(results: &Results, workload: &str) -> Vec<Vec<String>> {
    let mut rows = vec![["target", "kind", "answers", "p50", "p90", "p99"].map(str::to_owned).to_vec()];
    for cell in results.cells.iter().filter(|cell| cell.workload == workload) {
        for (name, times) in &cell.summary.kinds {
            let [p50, p90, p99] = [times.p50_us, times.p90_us, times.p99_us].map(time);
            rows.push(vec![cell.target.clone(), name.clone(), times.count.to_string(), p50, p90, p99]);
        }
    }
    if rows.len() > 1 { rows } else { Vec::new() }
}

/// What a reader has to know of a workload's figures, by target.
pub(crate) fn remarks(results: &Results, workload: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let cells = || results.cells.iter().filter(|cell| cell.workload == workload);
    let some_are_checked = cells().any(|cell| cell.summary.checked > 0);
    for Cell { target, summary, load, .. } in cells() {
        if !summary.errors.is_empty() {
            lines.push(format!("{target} failed: {}", counted(&summary.errors)));
        }
        if !summary.warmup_errors.is_empty() {
            lines.push(format!(
                "{target} failed: in the warm-up, which no other figure holds, {}",
                counted(&summary.warmup_errors)
            ));
        }
        if let Some(refused) = &summary.refused {
            lines.push(format!("{target}, the first refusal: {refused}{}", advice(refused)));
        }
        if summary.errors.contains_key("unsent") {
            lines.push(format!(
                "{target}: unsent requests were due while all connections were busy ({load}); raise --connections, or lower --rate"
            ));
        }
        if some_are_checked && summary.checked < summary.ok {
            lines.push(match summary.checked {
                0 => format!(
                    "answers of {target} were not checked: no digest came through, so it writes them anew or its provider is another one"
                ),
                _ => format!(
                    "{} answers of {target} were not checked: no digest came through with them",
                    summary.ok - summary.checked
                ),
            });
        }
        if let Some(gone) = &summary.gone {
            lines.push(format!("{target}: process {gone}; rounds without it have no CPU time and memory"));
        }
        if summary.ok > 0 && summary.cpu_us_per_request.is_some_and(|us| us < CPU_US_LEAST) {
            lines.push(format!("{target}: its process used no CPU while it answered; is --process the right one?"));
        }
        let late = summary.send_lag.zip(summary.latency);
        if let Some((lag, _)) = late.filter(|(lag, latency)| lag.p50_us > latency.p50_us / 2.0 && lag.p50_us > 1000.0) {
            let lag = time(lag.p50_us);
            lines.push(format!(
                "{target}: half of the requests were sent {lag} late or more, since no connection was free or the tester had no CPU; the latency counts that wait"
            ));
        }
    }
    // Said once, as it holds for all targets of a short run.
    let few = cells().filter(|cell| cell.summary.latency.is_some_and(|times| times.count < HUNDREDS));
    let few: Vec<&str> = few.map(|cell| cell.target.as_str()).collect();
    if !few.is_empty() {
        lines.push(format!("{}: fewer than {HUNDREDS} answers, so p99 is the slowest of them", few.join(", ")));
    }
    lines
}

/// What is usually wrong where an answer has this status.
pub(crate) fn advice(refused: &str) -> &'static str {
    let is = |statuses: &[&str]| statuses.iter().any(|status| refused.starts_with(&format!("status {status}")));
    match () {
        () if is(&["401", "403"]) => " (a key goes along with --header 'Authorization: Bearer KEY')",
        () if is(&["429"]) => " (a limit of the target: raise it to measure the target itself)",
        () if is(&["502", "503", "504"]) => {
            " (it may not reach its provider: is one running where it looks for it? --provider ADDRESS:PORT starts one)"
        }
        () => "",
    }
}

/// How the run went on, in a line: rounds, or rates.
pub(crate) fn shape(results: &Results) -> String {
    let each = results.duration_s;
    match results.ramp {
        Some(RampAsked { from_per_s, to_per_s, steps, p99_max_us }) => format!(
            "ramp from {from_per_s} to {to_per_s}/s in {steps} rates, {each:.1} s each, p99 up to {}",
            time(p99_max_us)
        ),
        None => format!("{} rounds of {each:.1} s", results.rounds),
    }
}

/// The rates that were tried: the titles, and a row for each rate.
pub(crate) fn rates(curve: &RampCurve) -> Vec<Vec<String>> {
    let has_text = curve.points.iter().any(|point| point.text_p99_us.is_some());
    let has_cpu = curve.points.iter().any(|point| point.cpu_us_per_request.is_some());
    let shown = |is_shown: bool, text: String| is_shown.then_some(text);
    let titles = [
        shown(true, "rate/s".to_owned()),
        shown(true, "kept up".to_owned()),
        shown(true, "failed".to_owned()),
        shown(true, "answers/s".to_owned()),
        shown(true, "p50".to_owned()),
        shown(true, "p99".to_owned()),
        shown(has_text, "first token p99".to_owned()),
        shown(has_cpu, "CPU/request".to_owned()),
        shown(has_cpu, "memory".to_owned()),
    ];
    let or_dash = |us: Option<f64>| us.map_or("-".to_owned(), time);
    let row = |point: &RampPoint| -> Vec<String> {
        let memory = point.rss_kib.map_or("-".to_owned(), mebibytes);
        let cells = [
            shown(true, format!("{:.0}", point.rate_per_s)),
            shown(true, if point.kept_up { "yes" } else { "no" }.to_owned()),
            shown(true, point.failed.to_string()),
            shown(true, format!("{:.0}", point.ok_per_s)),
            shown(true, or_dash(point.p50_us)),
            shown(true, or_dash(point.p99_us)),
            shown(has_text, or_dash(point.text_p99_us)),
            shown(has_cpu, or_dash(point.cpu_us_per_request)),
            shown(has_cpu, memory),
        ];
        cells.into_iter().flatten().collect()
    };
    std::iter::once(titles.into_iter().flatten().collect()).chain(in_order(curve).into_iter().map(row)).collect()
}

fn in_order(curve: &RampCurve) -> Vec<&RampPoint> {
    let mut points: Vec<&RampPoint> = curve.points.iter().collect();
    points.sort_by(|one, other| one.rate_per_s.total_cmp(&other.rate_per_s));
    points
}

/// Why rates were too much, and the first refusal.
pub(crate) fn reasons(curve: &RampCurve) -> Vec<String> {
    let points = in_order(curve);
    let reason = |point: &&RampPoint| Some(format!("{:.0}/s: {}", point.rate_per_s, point.why.as_ref()?));
    let mut lines: Vec<String> = points.iter().filter_map(reason).collect();
    if let Some(refused) = points.iter().find_map(|point| point.refused.as_ref()) {
        lines.push(format!("the first refusal: {refused}{}", advice(refused)));
    }
    lines
}

fn mebibytes(kib: u64) -> String {
    format!("{:.1} MiB", kib as f64 / 1024.0)
}

/// Results for a terminal.
pub(crate) fn render(results: &Results) -> String {
    let load = results.machine.load_before.map_or(String::new(), |load| format!(", load {load} before the run"));
    let (plan, cores, cpu) = (&results.plan, results.machine.cores, &results.machine.cpu);
    let mut out = format!("plan {plan}, {}, seed {}; {cores} cores, {cpu}{load}\n", shape(results), results.seed);
    for (name, url) in results.addresses() {
        out.push_str(&format!("  {name} is {url}\n"));
    }
    for note in &results.notes {
        out.push_str(&format!("  {note}\n"));
    }
    for workload in results.workloads() {
        let load = results.cells.iter().find(|cell| cell.workload == workload).map_or("", |cell| cell.load.as_str());
        out.push_str(&format!("\n{workload}: {load}\n"));
        out.push_str(&aligned(&table(results, workload)));
        if let rows @ [_, ..] = kinds(results, workload).as_slice() {
            out.push_str(&format!("\n{}", aligned(rows)));
        }
        for line in remarks(results, workload) {
            out.push_str(&format!("  {line}\n"));
        }
    }
    for curve in &results.ramps {
        out.push_str(&format!("\n{} on {}: {}\n", curve.workload, curve.target, knee(curve.knee_per_s)));
        out.push_str(&aligned(&rates(curve)));
        for line in reasons(curve) {
            out.push_str(&format!("  {line}\n"));
        }
    }
    out
}

/// Where a ramp's knee is, in words.
pub(crate) fn knee(knee_per_s: Option<f64>) -> String {
    match knee_per_s {
        Some(rate) => format!("keeps up to {rate:.0}/s"),
        None => "keeps up with none of the rates".to_owned(),
    }
}

fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width =
        |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut out = String::new();
    for row in rows {
        let cell = |(at, text): (usize, &String)| {
            let width = widths.get(at).copied().unwrap_or(0);
            if at == 0 { format!("  {text:<width$}") } else { format!("  {text:>width$}") }
        };
        let line: String = row.iter().enumerate().map(cell).collect();
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Results as Markdown.
pub(crate) fn markdown(results: &Results) -> String {
    let mut out = String::new();
    for workload in results.workloads() {
        let load = results.cells.iter().find(|cell| cell.workload == workload).map_or("", |cell| cell.load.as_str());
        out.push_str(&format!("**{workload}** ({load}; {} rounds of {:.1} s)\n\n", results.rounds, results.duration_s));
        out.push_str(&piped(&table(results, workload)));
        out.push_str(&piped(&kinds(results, workload)));
        for line in remarks(results, workload) {
            out.push_str(&format!("- {line}\n"));
        }
        if !remarks(results, workload).is_empty() {
            out.push('\n');
        }
    }
    for curve in &results.ramps {
        out.push_str(&format!("**{} on {}**: {}\n\n", curve.workload, curve.target, knee(curve.knee_per_s)));
        out.push_str(&piped(&rates(curve)));
        for line in reasons(curve) {
            out.push_str(&format!("- {line}\n"));
        }
        out.push('\n');
    }
    for note in &results.notes {
        out.push_str(&format!("- {note}\n"));
    }
    out
}

/// Rows as a table of Markdown; nothing where there are none.
fn piped(rows: &[Vec<String>]) -> String {
    let mut out = String::new();
    for (at, row) in rows.iter().enumerate() {
        out.push_str(&format!("| {} |\n", row.join(" | ")));
        if at == 0 {
            out.push_str(&format!("|---|{}\n", "--:|".repeat(row.len().saturating_sub(1))));
        }
    }
    if !rows.is_empty() {
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::document::tests::{around, results};
    use super::*;

    #[test]
    fn a_table_has_the_columns_that_hold_something() {
        let found = results(&[("direct", around(100.0)), ("gateway", around(300.0))]);
        let text = render(&found);
        assert!(text.contains("added p50") && text.contains("CPU/request") && !text.contains("first token"), "{text}");
        assert!(text.contains("+21") && text.lines().any(|line| line.trim_start().starts_with("gateway")), "{text}");
        let table = markdown(&found);
        assert!(table.contains("| target | ok | failed | answers/s |") && table.contains("|---|--:|"), "{table}");
    }

    #[test]
    fn answers_without_a_digest_are_named_where_others_had_one() {
        let mut found = results(&[("direct", around(100.0)), ("gateway", around(300.0))]);
        assert!(!render(&found).contains("not checked"), "nobody sends digests");
        found.cells[0].rounds.iter_mut().for_each(|round| round.checked = round.ok);
        found.summarise();
        assert!(render(&found).contains("answers of gateway were not checked: no digest came through"));
        assert!(!render(&found).contains("answers of direct were not checked"));
        found.cells[1].rounds.iter_mut().for_each(|round| round.checked = round.ok - 1);
        found.summarise();
        assert!(render(&found).contains("5 answers of gateway were not checked"), "{}", render(&found));
    }

    #[test]
    fn figures_that_say_less_than_they_seem_to_have_a_remark() {
        let mut found = results(&[("gateway", vec![vec![100.0; 30]; 3])]);
        let round = &mut found.cells[0].rounds[0];
        round.warmup_errors.insert("status 429".to_owned(), 300);
        round.errors.insert("unsent".to_owned(), 8);
        round.refused = Some("status 502, no upstream".to_owned());
        round.gone = Some("7: no such process".to_owned());
        found.cells[0].rounds.iter_mut().for_each(|round| round.cpu_us = Some(3.0));
        found.summarise();
        assert_eq!(found.cells[0].summary.failed, 0, "what the warm-up met is counted apart");
        assert!(found.has_failures(), "and fails the run");
        let text = render(&found);
        // Ninety answers in all.
        for says in [
            "in the warm-up, which no other figure holds, status 429: 300",
            "gateway: fewer than 100 answers, so p99 is the slowest of them",
            "unsent requests were due while all connections were busy (100/s); raise --connections",
            "the first refusal: status 502, no upstream (it may not reach its provider",
            "its process used no CPU while it answered; is --process the right one?",
            "process 7: no such process",
        ] {
            assert!(text.contains(says), "{says}: {text}");
        }
    }

    #[test]
    fn a_ramp_says_why_rates_were_too_much() {
        let mut found = results(&[]);
        let point = |rate_per_s: f64, why: Option<&str>| RampPoint {
            rate_per_s,
            kept_up: why.is_none(),
            cpu_us_per_request: Some(50.0),
            why: why.map(str::to_owned),
            ..RampPoint::default()
        };
        found.ramp = Some(RampAsked { from_per_s: 50.0, to_per_s: 800.0, steps: 3, p99_max_us: 100_000.0 });
        let mut refused = point(200.0, Some("285 failed (status 429: 285)"));
        refused.refused = Some("status 429, slow down".to_owned());
        found.ramps.push(RampCurve {
            workload: "small".to_owned(),
            target: "weir".to_owned(),
            url: "http://127.0.0.1:9".to_owned(),
            knee_per_s: Some(100.0),
            points: vec![point(100.0, None), refused, point(150.0, Some("p99 115 ms is above 100 ms"))],
        });
        let text = render(&found);
        for says in [
            "ramp from 50 to 800/s in 3 rates, 1.0 s each, p99 up to 100 ms",
            "200/s: 285 failed (status 429: 285)",
            "150/s: p99 115 ms is above 100 ms",
            "the first refusal: status 429, slow down (a limit of the target",
            "CPU/request",
            "weir is http://127.0.0.1:9",
        ] {
            assert!(
                text.contains(says) && (says.contains("ramp from") || !text.contains("rounds of")),
                "{says}: {text}"
            );
        }
        assert!(!found.has_failures(), "one rate was kept up with");
        found.ramps[0].knee_per_s = None;
        assert!(found.has_failures());
    }

    #[test]
    fn a_difference_has_its_interval_where_rounds_differ() {
        assert_eq!(difference(Interval { value: 290.0, low: -10.0, high: 1_500.0 }), "+290 us (-10.0 us to +1.50 ms)");
        assert_eq!(difference(Interval { value: 7.0, low: 7.0, high: 7.0 }), "+7.0 us");
    }

    #[test]
    fn times_have_the_unit_that_suits_them() {
        let shown = [3.21, 456.7, 1_234.0, 234_567.0, 12_000_000.0].map(time);
        assert_eq!(shown, ["3.2 us", "457 us", "1.23 ms", "235 ms", "12.0 s"]);
    }
}
