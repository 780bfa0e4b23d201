//! How an upstream fares, judged by the calls that go there anyway (passive health), on all cores together.
//!
//! ```text
//!  healthy ──failures in a row──▶ passed by ──time is up──▶ due: one call tries it ──answered──▶ healthy
//!                                     ▲                             │
//!                                     └───────── failed: twice as long ┘
//! ```
//!
//! Invariant: no lock; a call that ends is one atomic operation while all is well.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use weir_config::settings::UpstreamHealth;

/// Doublings of the time an upstream is passed by.
const DOUBLINGS_MAX: u32 = 4;
/// No upstream is passed by for longer because of a `Retry-After`.
const RETRY_AFTER_MS_MAX: u64 = 60_000;

/// What has become of a call to an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It was answered.
    Answered,
    /// 429: the upstream is well and wants no more; after how many milliseconds, if it says so.
    Refused(Option<u64>),
    /// 5xx; after how many milliseconds to come again, if it says so.
    Failed(Option<u64>),
    /// There was no connection.
    NotConnected,
    /// There was no answer, or none that can be read.
    Unanswered,
    /// The client has waited long for an answer, and left.
    GivenUp,
}

impl Ended {
    /// All of them, in the order of their counters.
    pub(super) const LABELS: [&'static str; 6] =
        ["answered", "refused", "failed", "not_connected", "unanswered", "given_up"];

    const fn index(self) -> usize {
        match self {
            Self::Answered => 0,
            Self::Refused(_) => 1,
            Self::Failed(_) => 2,
            Self::NotConnected => 3,
            Self::Unanswered => 4,
            Self::GivenUp => 5,
        }
    }

    /// The value of the label `outcome`.
    pub const fn label(self) -> &'static str {
        Self::LABELS[self.index()]
    }
}

/// How one upstream fares.
#[derive(Debug, Default)]
pub struct Health {
    /// Failures in a row.
    failures: AtomicU32,
    /// Answers in a row that broke off behind their heads.
    cuts: AtomicU32,
    /// How often in a row it has been passed by.
    ejections: AtomicU32,
    /// Until when it is passed by; 0 while it is not.
    until_ms: AtomicU64,
    /// From when on another call may try it, once its time is up: a call that does so may take long.
    next_try_ms: AtomicU64,
    /// Calls by what became of them.
    counts: [AtomicU64; Ended::LABELS.len()],
    /// Times it was passed by.
    ejected: AtomicU64,
}

impl Health {
    /// Whether calls go there.
    pub fn is_healthy(&self) -> bool {
        self.until_ms.load(Ordering::Relaxed) == 0
    }

    /// Whether it was passed by, and its time is up: nobody knows how it fares until a call tries it.
    pub fn is_due(&self, now_ms: u64) -> bool {
        let until_ms = self.until_ms.load(Ordering::Relaxed);
        until_ms != 0 && now_ms >= until_ms
    }

    /// Whether this call is the one that tries it again: its time is up, and no other call has had that thought.
    pub fn may_try(&self, now_ms: u64, rules: &UpstreamHealth) -> bool {
        let next_ms = self.next_try_ms.load(Ordering::Relaxed);
        let later_ms = now_ms.saturating_add(rules.eject_ms).max(1);
        self.is_due(now_ms)
            && now_ms >= next_ms
            && self.next_try_ms.compare_exchange(next_ms, later_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Takes in what became of a call.
    pub fn ended(&self, ended: Ended, now_ms: u64, rules: &UpstreamHealth) {
        if let Some(count) = self.counts.get(ended.index()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        match ended {
            Ended::Answered | Ended::Refused(None) => self.recovered(),
            Ended::Refused(Some(after_ms)) => self.pass_by(now_ms, after_ms.min(RETRY_AFTER_MS_MAX)),
            Ended::Failed(after_ms) => self.failed(now_ms, after_ms, rules),
            Ended::NotConnected | Ended::Unanswered | Ended::GivenUp => self.failed(now_ms, None, rules),
        }
    }

    /// An answer came to its end.
    pub fn completed(&self) {
        if self.cuts.load(Ordering::Relaxed) != 0 {
            self.cuts.store(0, Ordering::Relaxed);
        }
    }

    /// An answer broke off behind its head. Heads alone do not make up for it: a member that resets each of its answers has begun
    /// them all.
    pub fn broke_off(&self, now_ms: u64, rules: &UpstreamHealth) {
        let cuts = self.cuts.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if cuts >= rules.eject_after {
            self.eject(now_ms, None, rules);
        }
    }

    fn recovered(&self) {
        // Nearly always so already, and then nothing is written that other cores read.
        if self.failures.load(Ordering::Relaxed) != 0 || self.until_ms.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
            self.ejections.store(0, Ordering::Relaxed);
            self.until_ms.store(0, Ordering::Relaxed);
        }
    }

    fn failed(&self, now_ms: u64, after_ms: Option<u64>, rules: &UpstreamHealth) {
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if failures >= rules.eject_after || !self.is_healthy() {
            self.eject(now_ms, after_ms, rules);
        }
    }

    fn eject(&self, now_ms: u64, after_ms: Option<u64>, rules: &UpstreamHealth) {
        let before = self.ejections.fetch_add(1, Ordering::Relaxed);
        let own_ms = rules.eject_ms.saturating_mul(1 << before.min(DOUBLINGS_MAX));
        self.pass_by(now_ms, after_ms.map_or(own_ms, |after_ms| own_ms.max(after_ms.min(RETRY_AFTER_MS_MAX))));
    }

    fn pass_by(&self, now_ms: u64, for_ms: u64) {
        let former_ms = self.until_ms.swap(now_ms.saturating_add(for_ms).max(1), Ordering::Relaxed);
        self.next_try_ms.store(0, Ordering::Relaxed);
        if former_ms == 0 {
            self.ejected.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Calls so far by the label `outcome`.
    pub(super) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Ended::LABELS.into_iter().zip(self.counts.iter().map(|count| count.load(Ordering::Relaxed)))
    }

    /// How often it was passed by.
    pub(super) fn ejected(&self) -> u64 {
        self.ejected.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: UpstreamHealth =
        UpstreamHealth { eject_after: 3, eject_ms: 1_000, panic_percent: 50, left_after_ms: 0 };

    #[test]
    fn failures_in_a_row_eject_and_one_call_tries_again() {
        let health = Health::default();
        for now_ms in 1..=2 {
            health.ended(Ended::NotConnected, now_ms, &RULES);
        }
        health.ended(Ended::Answered, 3, &RULES);
        for now_ms in 4..=5 {
            health.ended(Ended::Failed(None), now_ms, &RULES);
        }
        assert!(health.is_healthy(), "an answer between them: they are not in a row");
        health.ended(Ended::Unanswered, 6, &RULES);
        assert!(!health.is_healthy() && !health.may_try(1_005, &RULES));
        assert!(health.may_try(1_006, &RULES));
        assert!(!health.may_try(1_006, &RULES), "one call tries");
        assert!(health.is_due(1_006), "its time is up all the same");
        assert!(!health.may_try(2_005, &RULES) && health.may_try(2_006, &RULES), "another one if that call takes long");
        health.ended(Ended::Unanswered, 2_010, &RULES);
        assert!(!health.is_due(4_009) && !health.may_try(4_009, &RULES), "twice as long");
        assert!(health.may_try(4_010, &RULES));
        health.ended(Ended::Answered, 4_020, &RULES);
        assert!(health.is_healthy());
        assert_eq!(health.ejected(), 1);
        assert_eq!(health.counts().map(|(_, count)| count).collect::<Vec<_>>(), [2, 0, 2, 2, 2, 0]);
    }

    #[test]
    fn answers_that_break_off_eject_though_their_heads_came() {
        let health = Health::default();
        for now_ms in 1..=2 {
            health.ended(Ended::Answered, now_ms, &RULES);
            health.broke_off(now_ms, &RULES);
        }
        health.completed();
        for now_ms in 3..=4 {
            health.ended(Ended::Answered, now_ms, &RULES);
            health.broke_off(now_ms, &RULES);
        }
        assert!(health.is_healthy(), "one came to its end between them");
        health.ended(Ended::Answered, 5, &RULES);
        health.broke_off(5, &RULES);
        assert!(!health.is_healthy() && health.may_try(1_005, &RULES));
        // The call that tries it is answered and breaks off as well.
        health.ended(Ended::Answered, 1_006, &RULES);
        assert!(health.is_healthy());
        health.broke_off(1_007, &RULES);
        assert!(!health.is_healthy());
    }

    #[test]
    fn a_retry_after_is_kept_and_bounded() {
        let health = Health::default();
        health.ended(Ended::Refused(None), 1, &RULES);
        assert!(health.is_healthy(), "it does not say for how long");
        health.ended(Ended::Refused(Some(5_000)), 1, &RULES);
        assert!(!health.may_try(5_000, &RULES) && health.may_try(5_001, &RULES));
        health.ended(Ended::Refused(Some(u64::MAX)), 10_000, &RULES);
        assert!(health.may_try(10_000 + RETRY_AFTER_MS_MAX, &RULES));
    }
}
