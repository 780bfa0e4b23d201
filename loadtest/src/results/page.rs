//! Results as one HTML page that needs nothing else: no script, no font, no picture from anywhere. Light or dark as the reader's
//! system is.

use super::buckets::Buckets;
use super::document::{Cell, RampCurve, RampPoint, Results, Round};
use super::plot::{Axis, Limit, Line, escaped, plot, time_marks};
use super::text::{kinds, knee, rates, reasons, remarks, shape, table, time};

const STYLE: &str = "
:root{color-scheme:light dark;--bg:#fff;--fg:#1c1f24;--dim:#5b6470;--line:#d9dde3;--card:#f5f6f8;
--c0:#5b6470;--c1:#0b63ce;--c2:#c2410c;--c3:#15803d;--c4:#8b3fc7;--c5:#b8860b;--c6:#be185d;--c7:#0e7490}
@media(prefers-color-scheme:dark){:root{--bg:#14171b;--fg:#e6e8eb;--dim:#9aa4b0;--line:#333a42;--card:#1d2127;
--c0:#9aa4b0;--c1:#6cb0ff;--c2:#ff9f6b;--c3:#6fd08c;--c4:#c99bf0;--c5:#e3c04d;--c6:#f58bb5;--c7:#5cc8dd}}
*{box-sizing:border-box}body{margin:0 auto;max-width:80rem;padding:1.5rem 1rem 4rem;background:var(--bg);color:var(--fg);
font:16px/1.5 system-ui,sans-serif}h1{font-size:1.6rem;margin:0}h2{font-size:1.25rem;margin:2.5rem 0 .25rem;border-top:1px solid var(--line);
padding-top:1rem}h3{font-size:1rem;margin:1.25rem 0 .25rem}p{margin:.4rem 0}.dim{color:var(--dim)}
.wide{overflow-x:auto}table{border-collapse:collapse;margin:.5rem 0;font-size:.875rem;font-variant-numeric:tabular-nums}
small{color:var(--dim);font-size:.75rem}th,td{padding:.3rem .42rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left;font-weight:600}th{color:var(--dim);font-weight:500}
td:first-child,th:first-child{position:sticky;left:0;background:var(--bg);min-width:9rem;max-width:12rem;
overflow-wrap:anywhere;white-space:normal}
.plot{display:block;width:100%;max-width:64rem;height:auto;background:var(--card);border-radius:6px}.small{display:none}
.plot text{font:12px system-ui,sans-serif;fill:var(--dim)}
.plot .end{text-anchor:end}.plot .middle{text-anchor:middle}.plot .grid{stroke:var(--line)}
.plot line.limit{stroke:var(--fg);stroke-dasharray:2 4}.plot text.limit{fill:var(--fg)}
polyline,.key line,.cross{fill:none;stroke-width:2;stroke-linejoin:round}
.names{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;margin:.25rem 0 .5rem;padding:0;list-style:none;font-size:.875rem}
.names li{overflow-wrap:anywhere}.key{width:34px;height:10px;margin-right:.4rem;vertical-align:middle}
.c0{stroke:var(--c0)}.c1{stroke:var(--c1)}.c2{stroke:var(--c2)}.c3{stroke:var(--c3)}
.c4{stroke:var(--c4)}.c5{stroke:var(--c5)}.c6{stroke:var(--c6)}.c7{stroke:var(--c7)}
circle.c0{fill:var(--c0)}circle.c1{fill:var(--c1)}circle.c2{fill:var(--c2)}circle.c3{fill:var(--c3)}
circle.c4{fill:var(--c4)}circle.c5{fill:var(--c5)}circle.c6{fill:var(--c6)}circle.c7{fill:var(--c7)}
.d1{stroke-dasharray:7 4}.d2{stroke-dasharray:2 3}.d3{stroke-dasharray:10 3 2 3}
pre{overflow-x:auto;background:var(--card);padding:.75rem;border-radius:6px;font-size:.8125rem}
@media(max-width:40rem){.plot{display:none}.small{display:block;max-width:30rem}th,td{padding:.3rem .4rem}}
.bad{color:var(--c2);font-weight:600}@media print{body{max-width:none}}";

const COLOURS: usize = 8;
const DASHES: usize = 4;

/// The page.
pub(crate) fn page(results: &Results) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';style-src 'unsafe-inline'\">\
         <title>Load: {0}</title><style>{STYLE}</style></head><body>\n<h1>Load: {0}</h1>\n",
        escaped(&results.plan)
    );
    out.push_str(&about(results));
    let targets = targets(results);
    for workload in results.workloads() {
        out.push_str(&section(results, workload, &targets));
    }
    if !results.ramps.is_empty() {
        out.push_str(&ramps(results, &targets));
    }
    out.push_str(&method(results));
    out.push_str(&what_was_run(results));
    out.push_str("</body></html>\n");
    out
}

/// How to read what stands on this page, and nothing else.
fn method(results: &Results) -> String {
    let mut out = "<h2>How to read this</h2>\n".to_owned();
    if !results.cells.is_empty() {
        out.push_str(ROUNDS);
    }
    if !results.ramps.is_empty() {
        out.push_str(RAMPS);
    }
    out.push_str(FIGURES);
    out
}

const ROUNDS: &str = "<p>The targets took turns in every round, so that what disturbs the machine disturbs all of them. In an open loop \
requests are due at a rate, whatever the answers do, and a latency counts from the moment the request was due: what waits because the \
target stands still is counted. In a closed loop every connection sends again when it has its answer; the wait of those who would have \
come meanwhile is not seen.</p>\n\
<p><em>Added</em> is the difference to the baseline's percentile, with the range in which it lies with 95 % confidence (bootstrap over \
rounds); without a baseline there is none. <em>Checked</em> answers were compared with what the provider sent, byte for byte. What failed \
in the warm-up is in no figure and is named below its table.</p>\n";

const RAMPS: &str = "<p>Rates grow in equal ratios until one is too much twice in a row: something failed, requests were sent late, or the \
p99 was above the limit (of streams the p99 until the first token, since a stream lasts as long as the model speaks). Then two rates between \
are tried. A dot is a rate that was kept up with, a cross one that was not. A rate limit of the target ends a ramp like any other failure; \
the reason stands below the table.</p>\n";

const FIGURES: &str = "<p><em>CPU/request</em> is the CPU time of the target's processes over all answers, refusals too. <em>Memory</em> is \
what they held at the end. A dash stands where nothing was measured. Percentiles are exact to two parts in a thousand; a p99 of fewer than \
100 answers is the slowest one. Axes of times are logarithmic.</p>\n";

/// The targets, the command and the plan.
fn what_was_run(results: &Results) -> String {
    let mut out = "<h2>What was run</h2>\n".to_owned();
    for (name, url) in results.addresses() {
        out.push_str(&format!("<p>{}: {}</p>\n", escaped(name), escaped(url)));
    }
    if !results.provider.is_empty() {
        out.push_str(&format!("<p class=\"dim\">The fake provider: {}.</p>\n", escaped(&results.provider)));
    }
    for text in [&results.command, &results.plan_text] {
        if !text.is_empty() {
            out.push_str(&format!("<pre>{}</pre>\n", escaped(text.trim_end())));
        }
    }
    out
}

fn about(results: &Results) -> String {
    let failed: u64 = results.cells.iter().map(|cell| cell.summary.failed).sum();
    let in_warmup: u64 = results.cells.iter().flat_map(|cell| cell.summary.warmup_errors.values()).sum();
    let unchecked: u64 = results.cells.iter().map(|cell| cell.summary.ok.saturating_sub(cell.summary.checked)).sum();
    let checked: u64 = results.cells.iter().map(|cell| cell.summary.checked).sum();
    let mut verdict = match (failed, in_warmup) {
        // What a ramp's last rates make fail is their purpose.
        _ if results.cells.is_empty() => String::new(),
        (0, 0) if unchecked == 0 => "<p>Every answer was as expected, byte for byte.</p>\n".to_owned(),
        (0, 0) if checked > 0 => format!(
            "<p class=\"bad\">Every answer had the expected status, but {unchecked} of them were not checked; see below whose.</p>\n"
        ),
        (0, 0) => "<p>Every answer had the expected status. No answer's bytes were checked.</p>\n".to_owned(),
        (_, 0) => format!("<p class=\"bad\">{failed} requests failed; see below which ones.</p>\n"),
        _ => format!(
            "<p class=\"bad\">{failed} requests failed, and {in_warmup} in the warm-up; see below which ones.</p>\n"
        ),
    };
    for note in &results.notes {
        verdict.push_str(&format!("<p class=\"bad\">{}</p>\n", escaped(note)));
    }
    let load = results.machine.load_before.map_or(String::new(), |load| format!(", load {load} before the run"));
    format!(
        "<p class=\"dim\">{}, {}, seed {}. {} cores, {}, Linux {}{load}. weir-loadtest {}.</p>\n{verdict}",
        date(results.made_at),
        shape(results),
        results.seed,
        results.machine.cores,
        escaped(&results.machine.cpu),
        escaped(&results.machine.kernel),
        escaped(&results.version)
    )
}

/// The targets in the order in which they have their colours; the baseline is the quiet one.
fn targets(results: &Results) -> Vec<String> {
    let mut names: Vec<String> = results.baseline.iter().cloned().collect();
    // The first colour is the baseline's, whether there is one or not.
    if names.is_empty() {
        names.push(String::new());
    }
    let all = results.cells.iter().map(|cell| &cell.target).chain(results.ramps.iter().map(|curve| &curve.target));
    for name in all {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// The colour and the dashes of a target; the first colour is the baseline's alone.
fn look(targets: &[String], name: &str) -> (usize, usize) {
    match targets.iter().position(|target| target == name).unwrap_or(0) {
        0 => (0, 0),
        at => (1 + (at - 1) % (COLOURS - 1), (at - 1) / (COLOURS - 1) % DASHES),
    }
}

/// A line of the page's look.
fn line(targets: &[String], name: &str, points: Vec<(f64, f64)>) -> Line {
    let (colour, dash) = look(targets, name);
    Line { name: name.to_owned(), colour, dash, points, dots: Vec::new() }
}

/// Rows as a table of the page.
fn tabled(rows: &[Vec<String>]) -> String {
    let mut out = "<div class=\"wide\"><table>".to_owned();
    for (at, row) in rows.iter().enumerate() {
        let tag = if at == 0 { "th" } else { "td" };
        // Whatever failed shows at the first glance.
        let failed = rows.first().and_then(|titles| titles.iter().position(|title| title == "failed"));
        let cell = |(column, cell): (usize, &String)| {
            let class = if at > 0 && Some(column) == failed && cell != "0" { " class=\"bad\"" } else { "" };
            format!("<{tag}{class}>{}</{tag}>", shown(cell))
        };
        let cells: String = row.iter().enumerate().map(cell).collect();
        out.push_str(&format!("<tr>{cells}</tr>\n"));
    }
    out.push_str("</table></div>\n");
    out
}

/// Which of a round's distributions.
type Times = fn(&Round) -> &Buckets;

fn section(results: &Results, workload: &str, targets: &[String]) -> String {
    let cells: Vec<&Cell> = results.cells.iter().filter(|cell| cell.workload == workload).collect();
    let load = cells.first().map_or("", |cell| cell.load.as_str());
    let mut out = format!("<h2>{}</h2>\n<p class=\"dim\">{}</p>\n", escaped(workload), escaped(load));
    out.push_str(&tabled(&table(results, workload)));
    if let rows @ [_, ..] = kinds(results, workload).as_slice() {
        out.push_str(&tabled(rows));
    }
    for line in remarks(results, workload) {
        let is_bad = [" failed: ", " were not checked"].iter().any(|words| line.contains(words));
        let class = if is_bad { " class=\"bad\"" } else { "" };
        out.push_str(&format!("<p{class}>{}</p>\n", escaped(&line)));
    }
    let curves: [(&str, Times); 3] = [
        ("Latency", |round| &round.latency),
        ("Time to the first token", |round| &round.first_token),
        ("Gap between frames", |round| &round.frame_gap),
    ];
    for (title, pick) in curves {
        let curve = |cell: &&Cell| {
            line(targets, &cell.target, percentile_points(&Buckets::merged(cell.rounds.iter().map(pick))))
        };
        let lines: Vec<Line> = cells.iter().map(curve).collect();
        let drawn = percentiles(title, &lines);
        if !drawn.is_empty() {
            out.push_str(&format!("<h3>{title}</h3>\n{drawn}"));
        }
    }
    out
}

/// A cell of the table; an interval stands below its figure.
fn shown(cell: &str) -> String {
    match cell.strip_suffix(')').and_then(|cell| cell.split_once(" (")) {
        Some((figure, interval)) => format!("{}<br><small>{}</small>", escaped(figure), escaped(interval)),
        None => escaped(cell),
    }
}

/// A curve over percentiles: each nine is as wide as the one before it. A time stands at the share of answers that it is the slowest
/// of, as in the table; the slowest of all lies behind that of every other one.
fn percentile_points(times: &Buckets) -> Vec<(f64, f64)> {
    let total = times.count() as f64;
    let mut within = 0;
    let mut points: Vec<(f64, f64)> = times.0.first().map(|(us, _)| (0.0, us.log10())).into_iter().collect();
    for (us, count) in &times.0 {
        within += count;
        let share = (within as f64 / total).min(1.0 - 0.5 / total);
        let x = -(1.0 - share).log10();
        let is_near = points.last().is_some_and(|(last, _)| x - last < 0.01);
        if !is_near || within as f64 >= total {
            points.push((x, us.log10()));
        }
    }
    points
}

fn percentiles(title: &str, lines: &[Line]) -> String {
    let all = || lines.iter().flat_map(|line| line.points.iter());
    let (low, high) =
        (all().map(|point| point.1).fold(f64::MAX, f64::min), all().map(|point| point.1).fold(f64::MIN, f64::max));
    if low > high {
        return String::new();
    }
    let most = all().map(|point| point.0).fold(0.0, f64::max);
    let nines = [(0.0, "0"), (0.301, "50"), (1.0, "90"), (2.0, "99"), (3.0, "99.9"), (4.0, "99.99"), (5.0, "99.999")];
    let x = Axis {
        title: "percentile".to_owned(),
        marks: nines.iter().filter(|(at, _)| *at <= most).map(|(at, name)| (*at, (*name).to_owned())).collect(),
    };
    let marks = time_marks(10f64.powf(low), 10f64.powf(high), mark);
    let y = Axis { title: format!("{}, logarithmic", title.to_lowercase()), marks };
    plot(&format!("{title} by percentile"), &x, &y, lines, None)
}

/// A time as a mark of an axis: short.
fn mark(us: f64) -> String {
    let short = |value: f64, unit: &str| match value.fract() < 1e-9 || value >= 100.0 {
        true => format!("{value:.0} {unit}"),
        false => format!("{value:.1} {unit}"),
    };
    match us {
        _ if us >= 1e6 => short(us / 1e6, "s"),
        _ if us >= 1000.0 => short(us / 1000.0, "ms"),
        _ => short(us, "us"),
    }
}

fn ramps(results: &Results, targets: &[String]) -> String {
    let mut out = "<h2>How much each target takes</h2>\n".to_owned();
    let mut workloads: Vec<&str> = results.ramps.iter().map(|curve| curve.workload.as_str()).collect();
    workloads.dedup();
    let limit = results
        .ramp
        .map(|ramp| Limit { at: ramp.p99_max_us.log10(), name: format!("limit, {}", time(ramp.p99_max_us)) });
    for workload in workloads {
        let own: Vec<&RampCurve> = results.ramps.iter().filter(|curve| curve.workload == workload).collect();
        let has_text = own.iter().flat_map(|curve| &curve.points).any(|point| point.text_p99_us.is_some());
        let what = if has_text { "p99 until the first token" } else { "p99" };
        out.push_str(&format!("<h3>{}: {what} by rate</h3>\n", escaped(workload)));
        let curve = |curve: &&RampCurve| {
            let mut points: Vec<((f64, f64), bool)> = curve
                .points
                .iter()
                .filter_map(|point| Some(((point.rate_per_s.log10(), point.judged_us()?.log10()), point.kept_up)))
                .collect();
            points.sort_by(|(one, _), (other, _)| one.0.total_cmp(&other.0));
            let (points, dots) = points.into_iter().unzip();
            Line { dots, ..line(targets, &curve.target, points) }
        };
        let lines: Vec<Line> = own.iter().map(curve).collect();
        let all = || lines.iter().flat_map(|line| line.points.iter());
        let bound = |pick: fn(&(f64, f64)) -> f64, more: Option<f64>| {
            let values = || all().map(pick).chain(more);
            (values().fold(f64::MAX, f64::min), values().fold(f64::MIN, f64::max))
        };
        let ((x_low, x_high), (y_low, y_high)) =
            (bound(|point| point.0, None), bound(|point| point.1, limit.as_ref().map(|limit| limit.at)));
        if x_low <= x_high {
            let rates = time_marks(10f64.powf(x_low), 10f64.powf(x_high), |rate| format!("{rate:.0}"));
            let x = Axis { title: "requests per second".to_owned(), marks: rates };
            let marks = time_marks(10f64.powf(y_low), 10f64.powf(y_high), mark);
            let y = Axis { title: format!("{what}, logarithmic"), marks };
            out.push_str(&plot(&format!("{what} by rate"), &x, &y, &lines, limit.as_ref()));
        }
        for curve in own {
            let last = curve.points.iter().find(|point| Some(point.rate_per_s) == curve.knee_per_s);
            let at_knee =
                last.and_then(RampPoint::judged_us).map_or(String::new(), |us| format!(", {what} {} there", time(us)));
            out.push_str(&format!("<p><b>{}</b> {}{at_knee}.</p>\n", escaped(&curve.target), knee(curve.knee_per_s)));
            out.push_str(&tabled(&rates(curve)));
            for reason in reasons(curve) {
                out.push_str(&format!("<p class=\"dim\">{}</p>\n", escaped(&reason)));
            }
        }
    }
    out
}

/// A moment as a date and time of the day, UTC.
fn date(seconds: u64) -> String {
    // The civil calendar from days since 1970, in eras of 400 years (Howard Hinnant's algorithm).
    let (days, rest) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", rest / 3600, rest % 3600 / 60)
}

#[cfg(test)]
mod tests {
    use super::super::document::RampAsked;
    use super::super::document::tests::{around, results};
    use super::*;

    #[test]
    fn the_page_stands_by_itself_and_shows_each_target() {
        let mut found = results(&[("direct", around(100.0)), ("<b>gateway", around(300.0))]);
        let point = |rate: f64, kept_up| RampPoint {
            rate_per_s: rate,
            kept_up,
            p99_us: Some(rate * 2.0),
            why: (!kept_up).then(|| "285 failed (status 429: 285)".to_owned()),
            ..RampPoint::default()
        };
        found.ramp = Some(RampAsked { from_per_s: 100.0, to_per_s: 400.0, steps: 3, p99_max_us: 500.0 });
        found.ramps.push(RampCurve {
            workload: "small".to_owned(),
            target: "direct".to_owned(),
            url: String::new(),
            knee_per_s: Some(200.0),
            points: vec![point(100.0, true), point(200.0, true), point(400.0, false)],
        });
        let page = page(&found);
        assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("href="));
        assert!(!page.contains("<b>gateway") && page.contains("&lt;b&gt;gateway"));
        assert_eq!(
            page.matches("<polyline").count(),
            2 * 3,
            "two latency curves and a ramp, for wide and narrow pages"
        );
        assert_eq!(page.matches("class=\"cross").count(), 2, "the rate that was too much");
        assert!(page.contains("400/s: 285 failed (status 429: 285)") && page.contains("limit, 500 us"));
        assert!(page.contains("<td>100</td><td>yes</td>"), "the rates have a table");
        assert!(page.contains("gateway</td>") || page.contains("http://&lt;b&gt;gateway"), "{page}");
        assert!(page.contains("keeps up to 200/s") && page.contains("prefers-color-scheme:dark"));
        assert!(page.contains("2023-11-14 22:13 UTC"));
    }

    #[test]
    fn the_curve_says_the_percentiles_of_the_table() {
        let times = Buckets((1..=100).map(|us| (f64::from(us), 1)).collect());
        let points = percentile_points(&times);
        let (_, at_99) = points.iter().find(|(x, _)| (x - 2.0).abs() < 1e-9).copied().unwrap();
        assert!((10f64.powf(at_99) - times.at(0.99).unwrap()).abs() < 1e-9);
        let (last, slowest) = points.last().copied().unwrap();
        assert!(last > 2.0 && (10f64.powf(slowest) - 100.0).abs() < 1e-9, "the slowest lies behind: {last}");
    }

    #[test]
    fn more_targets_than_colours_have_dashes() {
        let names: Vec<String> = (0..29).map(|number| format!("t{number}")).collect();
        let looks: std::collections::BTreeSet<(usize, usize)> = names.iter().map(|name| look(&names, name)).collect();
        assert_eq!(looks.len(), names.len());
    }

    #[test]
    fn what_was_not_checked_is_not_called_as_expected() {
        let mut found = results(&[("direct", around(100.0)), ("nginx", around(300.0))]);
        found.cells[0].rounds.iter_mut().for_each(|round| round.checked = round.ok);
        found.summarise();
        let page = page(&found);
        assert!(!page.contains("Every answer was as expected"), "{page}");
        assert!(
            page.contains("but 1000 of them were not checked") && page.contains("answers of nginx were not checked")
        );
    }

    #[test]
    fn failures_stand_beside_the_targets_name() {
        let found = results(&[("direct", around(100.0))]);
        assert!(page(&found).contains("<th>target</th><th>ok</th><th>failed</th>"));
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_827_696), "2000-02-29 12:34 UTC");
    }
}
