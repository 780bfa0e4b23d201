//! What a phase counted.
//!
//! Invariant: every due request ends in exactly one of these: an answer with a status, a failure of one kind, unsent.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::settings::Settings;

/// How a request came to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Failure {
    /// The connection could not be opened.
    Connect,
    /// The request could not be written.
    Write,
    /// The connection broke while an answer was due.
    Read,
    /// The connection was closed before the answer was whole.
    Closed,
    /// Nothing came for the whole timeout.
    Timeout,
    /// The answer was not HTTP/1.1.
    Protocol,
    /// The body is not what the provider sent.
    Altered,
    /// The run ended first.
    Unfinished,
}

impl Failure {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Write => "write",
            Self::Read => "read",
            Self::Closed => "closed",
            Self::Timeout => "timeout",
            Self::Protocol => "protocol",
            Self::Altered => "altered",
            Self::Unfinished => "unfinished",
        }
    }
}

/// Why requests were never sent, and what to do.
pub(super) fn unsent(count: u64, connections: usize) -> String {
    format!(
        "{count} requests were due and never sent: all {connections} connections were busy; raise --connections, or lower --rate"
    )
}

/// Times of one kind, in nanoseconds.
#[derive(Clone)]
pub(super) struct Times(Option<Histogram<u64>>);

impl Times {
    pub(super) fn new() -> Self {
        // 1 us to 10 minutes with three digits; these bounds are accepted, so there always is a histogram.
        Self(Histogram::new_with_bounds(1_000, 600_000_000_000, 3).ok())
    }

    pub(super) fn add(&mut self, time: Duration) {
        self.add_ns(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(super) fn add_ns(&mut self, time_ns: u64) {
        if let Some(histogram) = &mut self.0 {
            histogram.saturating_record(time_ns);
        }
    }

    pub(super) fn histogram(&self) -> Option<&Histogram<u64>> {
        self.0.as_ref().filter(|histogram| !histogram.is_empty())
    }
}

/// The counts and times of one phase.
pub(super) struct Tally {
    pub(super) statuses: BTreeMap<u16, u64>,
    pub(super) failures: BTreeMap<Failure, u64>,
    /// Due but never sent, because no connection was free before the phase had to end.
    pub(super) unsent: u64,
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
    /// From due time (open) or sending (closed) to the last byte.
    pub(super) latency: Times,
    /// The same for answers with an unexpected status.
    pub(super) other_latency: Times,
    /// How late requests were sent, open mode.
    pub(super) send_lag: Times,
    /// From due time or sending to the first body byte.
    pub(super) first_byte: Times,
    /// From due time or sending to the first frame that brings the model's text, streams.
    pub(super) first_token: Times,
    /// Between two frames of one stream.
    pub(super) frame_gap: Times,
    /// From the provider's sending of a frame to its arrival.
    pub(super) frame_delay: Times,
    pub(super) frames: u64,
    /// Frames that arrived in one read with the frame before them.
    pub(super) frames_joined: u64,
    /// Frames that arrived in more than one read.
    pub(super) frames_split: u64,
    /// Whole streams by the number of their frames.
    pub(super) streams_by_frames: BTreeMap<u64, u64>,
    /// Answers whose bytes were compared with what the provider said of them.
    pub(super) checked: u64,
    /// From due time or sending to the last byte, by the kind of the request; empty where there is one.
    pub(super) latency_by_kind: Vec<Times>,
    /// From due time or sending to the model's first text: of streams the first token, of other answers the last byte.
    pub(super) until_text: Times,
    /// The first answer with an unexpected status: that status, and how its body begins.
    pub(super) refused: Option<String>,
}

impl Tally {
    /// For so many kinds of requests.
    pub(super) fn new(kinds: usize) -> Self {
        Self {
            statuses: BTreeMap::new(),
            failures: BTreeMap::new(),
            unsent: 0,
            sent_bytes: 0,
            received_bytes: 0,
            latency: Times::new(),
            other_latency: Times::new(),
            send_lag: Times::new(),
            first_byte: Times::new(),
            first_token: Times::new(),
            frame_gap: Times::new(),
            frame_delay: Times::new(),
            frames: 0,
            frames_joined: 0,
            frames_split: 0,
            streams_by_frames: BTreeMap::new(),
            checked: 0,
            latency_by_kind: vec![Times::new(); kinds],
            until_text: Times::new(),
            refused: None,
        }
    }

    pub(super) fn fail(&mut self, failure: Failure) {
        *self.failures.entry(failure).or_default() += 1;
    }

    pub(super) fn answered(&self) -> u64 {
        self.statuses.values().sum()
    }

    /// Answers with an expected status.
    pub(super) fn ok(&self, settings: &Settings) -> u64 {
        self.statuses.iter().filter(|(status, _)| settings.expects(**status)).map(|(_, count)| count).sum()
    }

    /// What came to nothing, by kind: unexpected statuses, failures, what was never sent.
    pub(super) fn errors(&self, settings: &Settings) -> BTreeMap<String, u64> {
        let unexpected = self.statuses.iter().filter(|(status, _)| !settings.expects(**status));
        let mut errors: BTreeMap<String, u64> =
            unexpected.map(|(status, count)| (format!("status {status}"), *count)).collect();
        errors.extend(self.failures.iter().map(|(failure, count)| (failure.name().to_owned(), *count)));
        if self.unsent > 0 {
            errors.insert("unsent".to_owned(), self.unsent);
        }
        errors
    }

    /// Everything that makes a run fail.
    pub(super) fn failed(&self, settings: &Settings) -> u64 {
        let unexpected = if settings.allow_non_2xx { 0 } else { self.answered() - self.ok(settings) };
        unexpected + self.failures.values().sum::<u64>() + self.unsent
    }
}
