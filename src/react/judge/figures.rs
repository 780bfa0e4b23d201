//! What is counted of the judge, for `/metrics`. What a core counts (what is turned away) takes no lock; the rest is
//! counted on the network runtime.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::case::Mode;
use super::gate::{Agreement, Held};
use super::verdict::Verdict;
use super::{Reply, Status};
use crate::meter::{Exposition, Family, HistogramSum, OTHER, Source, is_legal, names};

/// Upper bounds of the latencies, in milliseconds.
static LATENCY_BOUNDS_MS: [u64; 12] = [1, 5, 25, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000];

/// Why a case reaches no backend, or not whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// The judge is switched off.
    Disabled,
    /// The score is below `min_score_threshold`.
    BelowThreshold,
    /// The queue is full.
    ChannelFull,
    /// The worker is gone.
    ChannelClosed,
    /// Its verdict could not be kept.
    PersistFailure,
    /// The gateway stopped while it waited for a place.
    SemaphoreClosed,
    /// The gateway stopped before its turn.
    Shutdown,
    /// Its text was cut; the rest was sent.
    AnalysisTextTruncated,
}

impl Dropped {
    const ALL: [(Self, &'static str); 8] = [
        (Self::Disabled, "disabled"),
        (Self::BelowThreshold, "below_threshold"),
        (Self::ChannelFull, "channel_full"),
        (Self::ChannelClosed, "channel_closed"),
        (Self::PersistFailure, "persist_failure"),
        (Self::SemaphoreClosed, "semaphore_closed"),
        (Self::Shutdown, "shutdown"),
        (Self::AnalysisTextTruncated, "analysis_text_truncated"),
    ];
}

/// The counters.
pub(super) struct Figures {
    backend: &'static str,
    model: String,
    dropped: [AtomicU64; 8],
    sums: Mutex<Sums>,
}

#[derive(Default)]
struct Sums {
    requests: BTreeMap<(&'static str, &'static str), u64>,
    latency: BTreeMap<&'static str, HistogramSum>,
    /// By backend and model: tokens in, out, and nanodollars.
    used: BTreeMap<(&'static str, String), (u64, u64, u64)>,
    verdicts: BTreeMap<(&'static str, &'static str, bool), u64>,
    agreement: BTreeMap<&'static str, u64>,
    held: BTreeMap<&'static str, u64>,
    shadow: BTreeMap<(&'static str, &'static str), u64>,
    remembered: u64,
}

/// A name as a label may have it.
fn label(model: &str) -> String {
    let legal = |byte: u8| byte == b'+' || is_legal(std::str::from_utf8(&[byte]).unwrap_or_default());
    if model.len() <= 128 && model.bytes().all(legal) { model.to_owned() } else { OTHER.to_owned() }
}

impl Figures {
    pub(super) fn new(backend: &'static str, model: &str) -> Self {
        Self { backend, model: label(model), dropped: Default::default(), sums: Mutex::default() }
    }

    pub(super) fn dropped(&self, why: Dropped) {
        if let Some(count) = self.dropped.get(why as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A question that was put, and what came of it.
    pub(super) fn asked(&self, mode: Mode, status: Status, took: Duration, replies: &[Reply]) {
        let mut sums = self.sums();
        *sums.requests.entry((mode.as_str(), status.as_str())).or_default() += 1;
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let latency = sums.latency.entry(mode.as_str()).or_insert_with(|| HistogramSum::empty(&LATENCY_BOUNDS_MS));
        let class = LATENCY_BOUNDS_MS.partition_point(|bound| *bound < millis);
        latency.classes.iter_mut().skip(class).take(1).for_each(|count| *count += 1);
        latency.sum = latency.sum.saturating_add(millis);
        for reply in replies {
            let used = sums.used.entry((reply.backend, label(&reply.model))).or_default();
            used.0 = used.0.saturating_add(reply.tokens.input);
            used.1 = used.1.saturating_add(reply.tokens.output);
            used.2 = used.2.saturating_add(reply.cost_nano_usd.unwrap_or_default());
        }
    }

    pub(super) fn remembered(&self) {
        self.sums().remembered += 1;
    }

    pub(super) fn verdict(&self, verdict: &Verdict, agreement: Agreement) {
        let mut sums = self.sums();
        let key = (verdict.category.as_str(), verdict.recommended_action.as_str(), verdict.is_threat);
        *sums.verdicts.entry(key).or_default() += 1;
        *sums.agreement.entry(agreement.as_str()).or_default() += 1;
    }

    pub(super) fn held(&self, why: Held) {
        *self.sums().held.entry(why.as_str()).or_default() += 1;
    }

    pub(super) fn shadow(&self, verdict: &Verdict) {
        let key = (verdict.category.as_str(), verdict.recommended_action.as_str());
        *self.sums().shadow.entry(key).or_default() += 1;
    }

    fn sums(&self) -> std::sync::MutexGuard<'_, Sums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn expose_questions(&self, sums: &Sums, out: &mut Exposition) {
        let own = [("backend", self.backend), ("model", self.model.as_str())];
        for ((mode, status), count) in &sums.requests {
            out.counter(names::JUDGE_REQUESTS, &[own[0], own[1], ("mode", mode), ("status", status)], *count);
        }
        for (mode, latency) in &sums.latency {
            out.histogram(names::JUDGE_LATENCY, &[own[0], own[1], ("mode", mode)], latency, 1e3);
        }
        for ((backend, model), (input, output, nano_usd)) in &sums.used {
            let labels = [("backend", *backend), ("model", model.as_str())];
            for (direction, count) in [("prompt", input), ("completion", output)] {
                out.counter(names::JUDGE_TOKENS, &[("direction", direction), labels[0], labels[1]], *count);
            }
            out.counter(names::JUDGE_COST, &labels, nano_usd / 1_000);
        }
        out.counter(names::JUDGE_REMEMBERED, &[], sums.remembered);
    }

    fn expose_verdicts(&self, sums: &Sums, out: &mut Exposition) {
        for ((category, action, is_threat), count) in &sums.verdicts {
            let is_threat = if *is_threat { "true" } else { "false" };
            let labels = [
                ("category", *category),
                ("recommended_action", *action),
                ("is_threat", is_threat),
                ("model", self.model.as_str()),
            ];
            out.counter(names::JUDGE_VERDICTS, &labels, *count);
        }
        let mut one = |family: Family, name, counts: &BTreeMap<&'static str, u64>| {
            counts.iter().for_each(|(value, count)| out.counter(family, &[(name, value)], *count));
        };
        one(names::JUDGE_AGREEMENT, "agreement", &sums.agreement);
        one(names::JUDGE_HELD, "reason", &sums.held);
        for ((category, action), count) in &sums.shadow {
            let labels = [("category", *category), ("recommended_action", *action)];
            out.counter(names::JUDGE_SHADOW, &labels, *count);
        }
    }
}

impl Source for Figures {
    fn collect(&self, out: &mut Exposition) {
        for (why, name) in Dropped::ALL {
            let count = self.dropped.get(why as usize).map_or(0, |count| count.load(Ordering::Relaxed));
            out.counter(names::JUDGE_DROPPED, &[("reason", name)], count);
        }
        let sums = self.sums();
        self.expose_questions(&sums, out);
        self.expose_verdicts(&sums, out);
    }
}
