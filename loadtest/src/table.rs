//! The report for people.

use super::report::{Percentiles, Report};

/// The report as text.
pub(super) fn render(report: &Report) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: String| out.push_str(&format!("{name:<14} {value}\n"));
    line("target", report.target.clone());
    let pace = match (report.arrivals, report.rate_per_s) {
        (Some(arrivals), Some(rate)) => format!("{arrivals} arrivals, {rate}/s"),
        _ => "closed loop".to_owned(),
    };
    let stream = if report.stream { ", streamed" } else { "" };
    line(
        "load",
        format!(
            "{pace}, {} connections, {} bodies of {} bytes{stream}, {:.2} s",
            report.connections, report.dialect, report.body_bytes, report.elapsed_s
        ),
    );
    line("answers", format!("{} as expected, {:.1}/s", report.ok, report.ok_per_s));
    let in_warmup = match report.warmup_failed {
        0 => String::new(),
        count => format!(", and {count} in the warm-up"),
    };
    line("failed", format!("{}{in_warmup}", report.failed - report.warmup_failed));
    if report.failed > 0 || report.statuses.len() > 1 {
        let counted = |(name, count): (String, &u64)| format!("{name}: {count}");
        let statuses = report.statuses.iter().map(|(status, count)| counted((status.to_string(), count)));
        let failures = report.failures.iter().map(|(name, count)| counted(((*name).to_owned(), count)));
        let rest = (report.unsent > 0).then(|| counted(("unsent".to_owned(), &report.unsent)));
        line("  of these", statuses.chain(failures).chain(rest).collect::<Vec<_>>().join(", "));
    }
    if let Some(refused) = &report.refused {
        line("first refused", refused.clone());
    }
    if report.unsent > 0 {
        line("unsent", crate::tally::unsent(report.unsent, report.connections));
    }
    line("microseconds", "      p50       p90       p99     p99.9       max      mean".to_owned());
    let distributions = [
        ("latency", &report.latency),
        ("unexpected", &report.other_latency),
        ("send lag", &report.send_lag),
        ("first byte", &report.first_byte),
        ("first token", &report.first_token),
        ("frame gap", &report.frame_gap),
        ("frame delay", &report.frame_delay),
    ];
    for (name, percentiles) in distributions {
        if let Some(percentiles) = percentiles {
            line(&format!("  {name}"), row(percentiles));
        }
    }
    if report.stream {
        line("frames", format!("{}, {:.1}/s", report.frames, report.frames as f64 / report.elapsed_s.max(1e-9)));
    }
    if let Some(process) = &report.process {
        let per = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
        let frames = match report.stream {
            true => format!(", {} us/frame", per(process.cpu_us_per_frame)),
            false => String::new(),
        };
        line(
            "process cpu",
            format!(
                "{} us/request{frames}, {:.1} ms in all ({}), quiet after {} ms",
                per(process.cpu_us_per_request),
                process.cpu_ms,
                process.cpu_source,
                process.settle_ms
            ),
        );
        line("process rss", format!("{} KiB before, {} KiB after", process.rss_kib_before, process.rss_kib_after));
    }
    if let Some(own) = report.generator_cpu_us_per_request {
        line("generator cpu", format!("{own:.2} us/request"));
    }
    out
}

fn row(times: &Percentiles) -> String {
    [times.p50_us, times.p90_us, times.p99_us, times.p99_9_us, times.max_us, times.mean_us]
        .map(|value| format!("{value:>9.1}"))
        .join(" ")
}
