//! Results as a table, for a terminal and as Markdown.

use super::buckets::Quantiles;
use super::document::{Cell, Results, Summary};
use super::interval::Interval;

/// A column: its title, and what stands in it, if anything.
type Column = (&'static str, fn(&Summary) -> Option<String>);

const COLUMNS: [Column; 14] = [
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
    ("memory", |cell| cell.rss_kib_last.map(|kib| format!("{:.1} MiB", kib as f64 / 1024.0))),
    ("checked", |cell| (cell.checked > 0).then(|| cell.checked.to_string())),
    ("ok", |cell| Some(cell.ok.to_string())),
    ("failed", |cell| Some(cell.failed.to_string())),
];

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

/// What failed in a workload, by target and kind; and the percentiles of the kinds of a mix.
pub(crate) fn remarks(results: &Results, workload: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for cell in results.cells.iter().filter(|cell| cell.workload == workload) {
        if !cell.summary.errors.is_empty() {
            let errors = cell.summary.errors.iter().map(|(name, count)| format!("{name}: {count}"));
            lines.push(format!("{} failed: {}", cell.target, errors.collect::<Vec<_>>().join(", ")));
        }
        for (name, times) in &cell.summary.kinds {
            let (p50, p99) = (time(times.p50_us), time(times.p99_us));
            lines.push(format!("{} of kind {name}: p50 {p50}, p99 {p99}, {} answers", cell.target, times.count));
        }
        let late = cell.summary.send_lag.zip(cell.summary.latency);
        if let Some((lag, _)) = late.filter(|(lag, latency)| lag.p50_us > latency.p50_us / 2.0 && lag.p50_us > 1000.0) {
            let lag = time(lag.p50_us);
            lines.push(format!(
                "{}: half of the requests were sent {lag} late or more, since no connection was free or the tester had no CPU; the latency counts that wait",
                cell.target
            ));
        }
    }
    lines
}

/// Results for a terminal.
pub(crate) fn render(results: &Results) -> String {
    let mut out = format!(
        "plan {}, {} rounds of {:.1} s, seed {}; {} cores, {}\n",
        results.plan, results.rounds, results.duration_s, results.seed, results.machine.cores, results.machine.cpu
    );
    for workload in results.workloads() {
        let load = results.cells.iter().find(|cell| cell.workload == workload).map_or("", |cell| cell.load.as_str());
        out.push_str(&format!("\n{workload}: {load}\n"));
        out.push_str(&aligned(&table(results, workload)));
        for line in remarks(results, workload) {
            out.push_str(&format!("  {line}\n"));
        }
    }
    for curve in &results.ramps {
        out.push_str(&format!("\n{} on {}: {}\n", curve.workload, curve.target, knee(curve.knee_per_s)));
        let mut rows = vec![["rate/s", "answers/s", "p50", "p99", "failed", "kept up"].map(str::to_owned).to_vec()];
        for point in &curve.points {
            rows.push(vec![
                format!("{:.0}", point.rate_per_s),
                format!("{:.0}", point.ok_per_s),
                point.p50_us.map_or("-".to_owned(), time),
                point.p99_us.map_or("-".to_owned(), time),
                point.failed.to_string(),
                if point.kept_up { "yes" } else { "no" }.to_owned(),
            ]);
        }
        out.push_str(&aligned(&rows));
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
        for (at, row) in table(results, workload).iter().enumerate() {
            out.push_str(&format!("| {} |\n", row.join(" | ")));
            if at == 0 {
                out.push_str(&format!("|---|{}\n", "--:|".repeat(row.len().saturating_sub(1))));
            }
        }
        out.push('\n');
        for line in remarks(results, workload) {
            out.push_str(&format!("- {line}\n"));
        }
        if !remarks(results, workload).is_empty() {
            out.push('\n');
        }
    }
    for curve in &results.ramps {
        out.push_str(&format!("- {} on {}: {}\n", curve.workload, curve.target, knee(curve.knee_per_s)));
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
        assert!(table.contains("| target | answers/s |") && table.contains("|---|--:|"), "{table}");
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
