//! The result of a run in numbers, as it is written to JSON. Field names end in their unit.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::process::{CpuTime, Sample};
use super::settings::{Arrivals, Mode, Settings};
use super::tally::{Tally, Times};

/// What the run measured around the tally.
pub(super) struct Measured {
    pub(super) elapsed: Duration,
    /// How long requests were sent: in an open loop up to the last one, at least as long as planned.
    pub(super) sending: Duration,
    pub(super) own_cpu: CpuTime,
    pub(super) before: Sample,
    pub(super) after: Sample,
    pub(super) settled_in: Duration,
    pub(super) warmup_failed: u64,
    /// What failed in the warm-up, by kind.
    pub(super) warmup_errors: BTreeMap<String, u64>,
    /// Whether no process is accounted.
    pub(super) is_unaccounted: bool,
    /// Why there are no figures of the processes, where one has ended.
    pub(super) gone: Option<String>,
}

/// A distribution of times in microseconds.
#[derive(Debug, Clone, Serialize)]
#[allow(missing_docs, reason = "the names say it all")]
pub struct Percentiles {
    pub count: u64,
    pub min_us: f64,
    pub mean_us: f64,
    pub p50_us: f64,
    pub p90_us: f64,
    pub p99_us: f64,
    pub p99_9_us: f64,
    pub max_us: f64,
}

/// CPU time and memory of the accounted processes.
#[derive(Debug, Clone, Serialize)]
pub struct ProcessReport {
    /// The processes.
    pub pids: Vec<u32>,
    /// CPU time of all threads from before the measured phase until quiet after it, in milliseconds.
    pub cpu_ms: f64,
    /// The same per answered request, in microseconds.
    pub cpu_us_per_request: Option<f64>,
    /// The same per frame of a stream, in microseconds.
    pub cpu_us_per_frame: Option<f64>,
    /// `schedstat` (nanoseconds) or `stat` (ticks of 10 ms, when a thread ended meanwhile).
    pub cpu_source: &'static str,
    /// How long after the last answer the processes became quiet, in milliseconds.
    pub settle_ms: u64,
    /// Resident memory before the measured phase in KiB.
    pub rss_kib_before: u64,
    /// Resident memory after it in KiB.
    pub rss_kib_after: u64,
}

/// The result of a run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The target as given.
    pub target: String,
    /// `closed` or `open`.
    pub mode: &'static str,
    /// Open mode: `constant` or `poisson`.
    pub arrivals: Option<&'static str>,
    /// Open mode: requests due per second.
    pub rate_per_s: Option<f64>,
    /// `chat`, `messages`, `responses`, `gemini` or `local`.
    pub dialect: &'static str,
    /// Whether answers were streams.
    pub stream: bool,
    /// Connections held.
    pub connections: usize,
    /// Length of a request body.
    pub body_bytes: usize,
    /// From the first request of the measured phase to its last answer, in seconds.
    pub elapsed_s: f64,
    /// Answers with an expected status.
    pub ok: u64,
    /// Everything else, warm-up included: unexpected statuses, failures, unsent requests.
    pub failed: u64,
    /// How many of those fell into the warm-up.
    pub warmup_failed: u64,
    /// Answers by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Requests without a whole answer, by kind.
    pub failures: BTreeMap<&'static str, u64>,
    /// Open mode: requests due but never sent, because no connection became free.
    pub unsent: u64,
    /// The first answer with an unexpected status: that status, and how its body begins.
    pub refused: Option<String>,
    /// Answers with an expected status per second in which requests were sent.
    pub ok_per_s: f64,
    /// Bytes of requests.
    pub sent_bytes: u64,
    /// Bytes of answers' bodies.
    pub received_bytes: u64,
    /// Expected answers: from sending (closed) or due time (open) to the last byte.
    pub latency: Option<Percentiles>,
    /// The same for unexpected statuses.
    pub other_latency: Option<Percentiles>,
    /// Open mode: how late the generator itself sent.
    pub send_lag: Option<Percentiles>,
    /// Until the first body byte.
    pub first_byte: Option<Percentiles>,
    /// Streams: until the first frame that brings the model's text.
    pub first_token: Option<Percentiles>,
    /// Answers whose bytes were compared with the digest that the fake provider put into their heads.
    pub checked: u64,
    /// Streams: frames received.
    pub frames: u64,
    /// Streams: frames that arrived in one read with the frame before them.
    pub frames_joined: u64,
    /// Streams: frames that arrived in more than one read.
    pub frames_split: u64,
    /// Streams: how many whole ones had how many frames.
    pub streams_by_frames: BTreeMap<u64, u64>,
    /// Streams: between two frames.
    pub frame_gap: Option<Percentiles>,
    /// Streams of a stamping provider: from its sending to the frame's arrival.
    pub frame_delay: Option<Percentiles>,
    /// The accounted processes.
    pub process: Option<ProcessReport>,
    /// The generator's own CPU time per answered request in microseconds.
    pub generator_cpu_us_per_request: Option<f64>,
}

impl Report {
    pub(super) fn new(settings: &Settings, tally: &Tally, measured: &Measured) -> Self {
        let open = settings.mode == Mode::Open;
        let answered = tally.answered();
        let ok = tally.ok(settings);
        let elapsed_s = measured.elapsed.as_secs_f64();
        let per = |time_ns: u64, count: u64| (count > 0).then(|| time_ns as f64 / 1000.0 / count as f64);
        let process = (!settings.pids.is_empty()).then(|| {
            let cpu = measured.after.since(&measured.before);
            ProcessReport {
                pids: settings.pids.clone(),
                cpu_ms: cpu.total_ns as f64 / 1e6,
                cpu_us_per_request: per(cpu.total_ns, answered),
                cpu_us_per_frame: per(cpu.total_ns, tally.frames),
                cpu_source: cpu.source,
                settle_ms: u64::try_from(measured.settled_in.as_millis()).unwrap_or(u64::MAX),
                rss_kib_before: measured.before.rss_kib,
                rss_kib_after: measured.after.rss_kib,
            }
        });
        Self {
            target: settings.target.clone(),
            mode: if open { "open" } else { "closed" },
            arrivals: open.then_some(match settings.arrivals {
                Arrivals::Constant => "constant",
                Arrivals::Poisson => "poisson",
            }),
            rate_per_s: open.then_some(settings.rate_per_s),
            dialect: settings.dialect.name(),
            stream: settings.stream,
            connections: settings.connections,
            body_bytes: settings.body_bytes,
            elapsed_s,
            ok,
            failed: tally.failed(settings) + measured.warmup_failed,
            warmup_failed: measured.warmup_failed,
            statuses: tally.statuses.clone(),
            failures: tally.failures.iter().map(|(failure, count)| (failure.name(), *count)).collect(),
            unsent: tally.unsent,
            refused: tally.refused.clone(),
            ok_per_s: if measured.sending.is_zero() { 0.0 } else { ok as f64 / measured.sending.as_secs_f64() },
            sent_bytes: tally.sent_bytes,
            received_bytes: tally.received_bytes,
            latency: percentiles(&tally.latency),
            other_latency: percentiles(&tally.other_latency),
            send_lag: percentiles(&tally.send_lag),
            first_byte: percentiles(&tally.first_byte),
            first_token: percentiles(&tally.first_token),
            checked: tally.checked,
            frames: tally.frames,
            frames_joined: tally.frames_joined,
            frames_split: tally.frames_split,
            streams_by_frames: tally.streams_by_frames.clone(),
            frame_gap: percentiles(&tally.frame_gap),
            frame_delay: percentiles(&tally.frame_delay),
            process,
            generator_cpu_us_per_request: per(measured.own_cpu.total_ns, answered),
        }
    }
}

fn percentiles(times: &Times) -> Option<Percentiles> {
    let histogram = times.histogram()?;
    let at = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1000.0;
    Some(Percentiles {
        count: histogram.len(),
        min_us: histogram.min() as f64 / 1000.0,
        mean_us: histogram.mean() / 1000.0,
        p50_us: at(0.5),
        p90_us: at(0.9),
        p99_us: at(0.99),
        p99_9_us: at(0.999),
        max_us: histogram.max() as f64 / 1000.0,
    })
}
