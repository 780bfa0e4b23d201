//! Results as one HTML page that needs nothing else: no script, no font, no picture from anywhere. Light or dark as the reader's
//! system is.

use super::buckets::Buckets;
use super::document::{Cell, RampCurve, Results, Round};
use super::plot::{Axis, Line, escaped, plot, time_marks};
use super::text::{knee, remarks, table, time};

const STYLE: &str = "
:root{color-scheme:light dark;--bg:#fff;--fg:#1c1f24;--dim:#5b6470;--line:#d9dde3;--card:#f5f6f8;
--c0:#5b6470;--c1:#0b63ce;--c2:#c2410c;--c3:#15803d;--c4:#8b3fc7;--c5:#b8860b;--c6:#be185d;--c7:#0e7490}
@media(prefers-color-scheme:dark){:root{--bg:#14171b;--fg:#e6e8eb;--dim:#9aa4b0;--line:#333a42;--card:#1d2127;
--c0:#9aa4b0;--c1:#6cb0ff;--c2:#ff9f6b;--c3:#6fd08c;--c4:#c99bf0;--c5:#e3c04d;--c6:#f58bb5;--c7:#5cc8dd}}
*{box-sizing:border-box}body{margin:0 auto;max-width:72rem;padding:1.5rem 1rem 4rem;background:var(--bg);color:var(--fg);
font:16px/1.5 system-ui,sans-serif}h1{font-size:1.6rem;margin:0}h2{font-size:1.25rem;margin:2.5rem 0 .25rem;border-top:1px solid var(--line);
padding-top:1rem}h3{font-size:1rem;margin:1.25rem 0 .25rem}p{margin:.4rem 0}.dim{color:var(--dim)}
.wide{overflow-x:auto}table{border-collapse:collapse;margin:.5rem 0;font-size:.875rem;font-variant-numeric:tabular-nums}
small{color:var(--dim);font-size:.75rem}th,td{padding:.3rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left;font-weight:600}th{color:var(--dim);font-weight:500}
svg{width:100%;height:auto;background:var(--card);border-radius:6px}svg text{font:12px system-ui,sans-serif;fill:var(--dim)}
svg .end{text-anchor:end}svg .middle{text-anchor:middle}svg .grid{stroke:var(--line)}
polyline{fill:none;stroke-width:2;stroke-linejoin:round}svg text.name{font-weight:600}
polyline.c0{stroke:var(--c0)}polyline.c1{stroke:var(--c1)}polyline.c2{stroke:var(--c2)}polyline.c3{stroke:var(--c3)}
polyline.c4{stroke:var(--c4)}polyline.c5{stroke:var(--c5)}polyline.c6{stroke:var(--c6)}polyline.c7{stroke:var(--c7)}
svg text.c0,circle.c0{fill:var(--c0)}svg text.c1,circle.c1{fill:var(--c1)}svg text.c2,circle.c2{fill:var(--c2)}svg text.c3,circle.c3{fill:var(--c3)}
svg text.c4,circle.c4{fill:var(--c4)}svg text.c5,circle.c5{fill:var(--c5)}svg text.c6,circle.c6{fill:var(--c6)}svg text.c7,circle.c7{fill:var(--c7)}
.bad{color:var(--c2);font-weight:600}@media print{body{max-width:none}}";

const COLOURS: usize = 8;

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
        out.push_str(&ramps(&results.ramps, &targets));
    }
    out.push_str(METHOD);
    out.push_str("</body></html>\n");
    out
}

const METHOD: &str = "<h2>How to read this</h2>\n\
<p>The targets took turns in every round, so that what disturbs the machine disturbs all of them. In an open loop requests are due at \
a rate, whatever the answers do, and a latency counts from the moment the request was due: what waits because the target stands still is \
counted. In a closed loop every connection sends again when it has its answer; the wait of those who would have come meanwhile is not seen.</p>\n\
<p><em>Added</em> is the difference to the baseline's percentile, with the range in which it lies with 95 % confidence (bootstrap over \
rounds). <em>Checked</em> answers were compared with what the provider sent, byte for byte. <em>Memory</em> is what the \
target's processes held at the end. Percentiles are exact to two parts in a thousand.</p>\n";

fn about(results: &Results) -> String {
    let failed: u64 = results.cells.iter().map(|cell| cell.summary.failed).sum();
    let verdict = match failed {
        // What a ramp's last rates make fail is their purpose.
        _ if results.cells.is_empty() => String::new(),
        0 => "<p>Every answer was as expected.</p>\n".to_owned(),
        _ => format!("<p class=\"bad\">{failed} requests failed; see below which ones.</p>\n"),
    };
    format!(
        "<p class=\"dim\">{}, {} rounds of {:.1} s, seed {}. {} cores, {}, Linux {}. weir-loadtest {}.</p>\n{verdict}",
        date(results.made_at),
        results.rounds,
        results.duration_s,
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

fn colour(targets: &[String], name: &str) -> usize {
    let at = targets.iter().position(|target| target == name).unwrap_or(0);
    if at < COLOURS { at } else { 1 + (at - 1) % (COLOURS - 1) }
}

/// Which of a round's distributions.
type Times = fn(&Round) -> &Buckets;

fn section(results: &Results, workload: &str, targets: &[String]) -> String {
    let cells: Vec<&Cell> = results.cells.iter().filter(|cell| cell.workload == workload).collect();
    let load = cells.first().map_or("", |cell| cell.load.as_str());
    let mut out =
        format!("<h2>{}</h2>\n<p class=\"dim\">{}</p>\n<div class=\"wide\"><table>", escaped(workload), escaped(load));
    for (at, row) in table(results, workload).iter().enumerate() {
        let tag = if at == 0 { "th" } else { "td" };
        let cells: String = row.iter().map(|cell| format!("<{tag}>{}</{tag}>", shown(cell))).collect();
        out.push_str(&format!("<tr>{cells}</tr>\n"));
    }
    out.push_str("</table></div>\n");
    for line in remarks(results, workload) {
        let class = if line.contains(" failed: ") { " class=\"bad\"" } else { "" };
        out.push_str(&format!("<p{class}>{}</p>\n", escaped(&line)));
    }
    let curves: [(&str, Times); 3] = [
        ("Latency", |round| &round.latency),
        ("Time to the first token", |round| &round.first_token),
        ("Gap between frames", |round| &round.frame_gap),
    ];
    for (title, pick) in curves {
        let line = |cell: &&Cell| Line {
            name: cell.target.clone(),
            colour: colour(targets, &cell.target),
            points: percentile_points(&Buckets::merged(cell.rounds.iter().map(pick))),
        };
        let lines: Vec<Line> = cells.iter().map(line).collect();
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

/// A curve over percentiles: each nine is as wide as the one before it.
fn percentile_points(times: &Buckets) -> Vec<(f64, f64)> {
    let total = times.count() as f64;
    let mut below = 0;
    let mut points: Vec<(f64, f64)> = Vec::new();
    for (us, count) in &times.0 {
        let share: f64 = below as f64 / total;
        below += count;
        let x = -(1.0 - share).log10();
        let is_near = points.last().is_some_and(|(last, _)| x - last < 0.01);
        if !is_near {
            points.push((x, us.log10()));
        }
    }
    if let (Some((us, _)), true) = (times.0.last(), total > 1.0) {
        points.push((total.log10(), us.log10()));
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
        title: "percentile",
        marks: nines.iter().filter(|(at, _)| *at <= most).map(|(at, name)| (*at, (*name).to_owned())).collect(),
    };
    let y = Axis { title: "time", marks: time_marks(10f64.powf(low), 10f64.powf(high), mark) };
    plot(&format!("{title} by percentile"), &x, &y, lines)
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

fn ramps(curves: &[RampCurve], targets: &[String]) -> String {
    let mut out = "<h2>How much each target takes</h2>\n".to_owned();
    let mut workloads: Vec<&str> = curves.iter().map(|curve| curve.workload.as_str()).collect();
    workloads.dedup();
    for workload in workloads {
        let own: Vec<&RampCurve> = curves.iter().filter(|curve| curve.workload == workload).collect();
        out.push_str(&format!("<h3>{}: p99 by rate</h3>\n", escaped(workload)));
        let line = |curve: &&RampCurve| {
            let mut points: Vec<(f64, f64)> = curve
                .points
                .iter()
                .filter_map(|point| Some((point.rate_per_s.log10(), point.p99_us?.log10())))
                .collect();
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            Line { name: curve.target.clone(), colour: colour(targets, &curve.target), points }
        };
        let lines: Vec<Line> = own.iter().map(line).collect();
        let all = || lines.iter().flat_map(|line| line.points.iter());
        let bound = |pick: fn(&(f64, f64)) -> f64| {
            (all().map(pick).fold(f64::MAX, f64::min), all().map(pick).fold(f64::MIN, f64::max))
        };
        let ((x_low, x_high), (y_low, y_high)) = (bound(|point| point.0), bound(|point| point.1));
        if x_low <= x_high {
            let x = Axis {
                title: "requests per second",
                marks: time_marks(10f64.powf(x_low), 10f64.powf(x_high), |rate| format!("{rate:.0}")),
            };
            let y = Axis { title: "p99", marks: time_marks(10f64.powf(y_low), 10f64.powf(y_high), mark) };
            out.push_str(&plot("p99 by rate", &x, &y, &lines));
        }
        for curve in own {
            let last = curve.points.iter().find(|point| Some(point.rate_per_s) == curve.knee_per_s);
            let p99 =
                last.and_then(|point| point.p99_us).map_or(String::new(), |us| format!(", p99 {} there", time(us)));
            out.push_str(&format!("<p>{} {}{p99}.</p>\n", escaped(&curve.target), knee(curve.knee_per_s)));
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
    use super::super::document::RampPoint;
    use super::super::document::tests::{around, results};
    use super::*;

    #[test]
    fn the_page_stands_by_itself_and_shows_each_target() {
        let mut found = results(&[("direct", around(100.0)), ("<b>gateway", around(300.0))]);
        let point = |rate: f64, kept_up| RampPoint {
            rate_per_s: rate,
            ok_per_s: rate,
            failed: 0,
            kept_up,
            p50_us: Some(rate),
            p99_us: Some(rate * 2.0),
            cpu_us_per_request: None,
        };
        found.ramps.push(RampCurve {
            workload: "small".to_owned(),
            target: "direct".to_owned(),
            knee_per_s: Some(200.0),
            points: vec![point(100.0, true), point(200.0, true), point(400.0, false)],
        });
        let page = page(&found);
        assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("href="));
        assert!(!page.contains("<b>gateway") && page.contains("&lt;b&gt;gateway"));
        assert_eq!(page.matches("<polyline").count(), 3, "two latency curves and a ramp");
        assert!(page.contains("keeps up to 200/s") && page.contains("prefers-color-scheme:dark"));
        assert!(page.contains("2023-11-14 22:13 UTC"));
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00 UTC");
        assert_eq!(date(951_827_696), "2000-02-29 12:34 UTC");
    }
}
