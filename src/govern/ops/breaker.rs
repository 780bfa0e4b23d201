//! The circuit breakers: after repeated failures of storage or analysis the gateway becomes a plain proxy for a while.
//!
//! ```text
//!            failures in a row > failure_threshold
//!   closed ------------------------------------------> open
//!     ^  ^                                             |  ^
//!     |  '------- any success -------------------------'  | any failure: fresh timer
//!     |                                                   |
//!     '--- any success --- half_open <--------------------'
//!                             |  ^      recovery_timeout_ms passed (seen lazily, no timer runs)
//!                             '--' its probes all vanished for recovery_timeout_ms: probes again
//! ```
//!
//! Invariant: the whole state is one atomic word, so no two observers disagree about a transition and no caller waits.
//! While closed and healthy nobody writes that word: cores share it without contention. A probe whose outcome nobody
//! reports (its client left, its text was empty) cannot hold the breaker half open for ever: probes are admitted again
//! after each recovery timeout. Knows neither storage nor analysis; callers never report failures that the request's own
//! content caused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weir_config::settings::{BreakerScope, CircuitBreaker};

use super::clock::Clock;
use crate::meter::{Exposition, Source, names};

/// State as shown by `/health` and the gauge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Everything runs.
    Closed,
    /// Probes may pass.
    HalfOpen,
    /// Nothing passes.
    Open,
}

impl State {
    /// All states.
    pub const ALL: [Self; 3] = [Self::Closed, Self::HalfOpen, Self::Open];

    /// The name the interface shows.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half_open",
            Self::Open => "open",
        }
    }
}

/// What a request may do with the guarded subsystem.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admit {
    /// Use it.
    Yes,
    /// Use it, as one of the few that find out whether it works again.
    Probe,
    /// Leave it alone.
    No,
}

/// Which parts a request may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// Its text may be analysed.
    pub analysis: bool,
    /// Its record may be stored.
    pub storage: bool,
}

/// One breaker.
#[derive(Debug)]
pub struct Breaker {
    settings: CircuitBreaker,
    clock: Clock,
    word: AtomicU64,
}

/// The automaton's state, packed into one word: 2 bits kind, then 62 bits failures, or 40 bits milliseconds (34 years)
/// and 22 bits probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Closed { failures: u64 },
    Open { since_ms: u64 },
    HalfOpen { since_ms: u64, probes: u64 },
}

const KIND_SHIFT: u32 = 62;
const SINCE_SHIFT: u32 = 22;
/// What fits beside the others into one word; counts stop there.
const FAILURES_MAX: u64 = (1 << KIND_SHIFT) - 1;
const SINCE_MAX: u64 = (1 << (KIND_SHIFT - SINCE_SHIFT)) - 1;
const PROBES_MAX: u64 = (1 << SINCE_SHIFT) - 1;

impl Word {
    const fn unpack(word: u64) -> Self {
        let since_ms = (word >> SINCE_SHIFT) & SINCE_MAX;
        match word >> KIND_SHIFT {
            0 => Self::Closed { failures: word & FAILURES_MAX },
            1 => Self::Open { since_ms },
            _ => Self::HalfOpen { since_ms, probes: word & PROBES_MAX },
        }
    }

    fn pack(self) -> u64 {
        match self {
            Self::Closed { failures } => failures.min(FAILURES_MAX),
            Self::Open { since_ms } => 1 << KIND_SHIFT | since_ms.min(SINCE_MAX) << SINCE_SHIFT,
            Self::HalfOpen { since_ms, probes } => {
                2 << KIND_SHIFT | since_ms.min(SINCE_MAX) << SINCE_SHIFT | probes.min(PROBES_MAX)
            }
        }
    }
}

impl Breaker {
    /// A closed breaker.
    pub fn new(settings: CircuitBreaker, clock: Clock) -> Self {
        Self { settings, clock, word: AtomicU64::new(Word::Closed { failures: 0 }.pack()) }
    }

    /// The state now; an open breaker whose recovery timeout has passed is half open.
    pub fn state(&self) -> State {
        match self.load() {
            Word::Closed { .. } => State::Closed,
            Word::Open { since_ms } if !self.has_recovered(since_ms) => State::Open,
            Word::Open { .. } | Word::HalfOpen { .. } => State::HalfOpen,
        }
    }

    /// Whether [`admit`](Self::admit) would say `No` now; takes no probe.
    pub fn refuses(&self) -> bool {
        match self.load() {
            Word::Closed { .. } => false,
            Word::Open { since_ms } => !self.has_recovered(since_ms),
            Word::HalfOpen { since_ms, probes } => probes >= self.probes_max() && !self.has_recovered(since_ms),
        }
    }

    /// Asks for one use of the subsystem. Report what came of it with [`success`](Self::success) or
    /// [`failure`](Self::failure).
    pub fn admit(&self) -> Admit {
        let mut seen = self.word.load(Ordering::Acquire);
        loop {
            let next = match Word::unpack(seen) {
                Word::Closed { .. } => return Admit::Yes,
                Word::HalfOpen { since_ms, probes } if !self.has_recovered(since_ms) => {
                    if probes >= self.probes_max() {
                        return Admit::No;
                    }
                    Word::HalfOpen { since_ms, probes: probes + 1 }
                }
                Word::Open { since_ms } if !self.has_recovered(since_ms) => return Admit::No,
                Word::Open { .. } | Word::HalfOpen { .. } => {
                    Word::HalfOpen { since_ms: self.clock.now_ms(), probes: 1 }
                }
            };
            match self.word.compare_exchange_weak(seen, next.pack(), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Admit::Probe,
                Err(newer) => seen = newer,
            }
        }
    }

    /// The subsystem worked.
    pub fn success(&self) {
        let healthy = Word::Closed { failures: 0 }.pack();
        // Reading first keeps the cache line shared among the cores as long as all is well.
        if self.word.load(Ordering::Relaxed) != healthy {
            self.word.store(healthy, Ordering::Release);
        }
    }

    /// The subsystem failed, and not because of what the request contained.
    pub fn failure(&self) {
        if !self.settings.enabled {
            return;
        }
        let mut seen = self.word.load(Ordering::Acquire);
        loop {
            let next = match Word::unpack(seen) {
                Word::Closed { failures } if failures < u64::from(self.settings.failure_threshold) => {
                    Word::Closed { failures: failures + 1 }
                }
                // A straggler from before the opening says nothing new.
                Word::Open { since_ms } if !self.has_recovered(since_ms) => return,
                Word::Closed { .. } | Word::Open { .. } | Word::HalfOpen { .. } => {
                    Word::Open { since_ms: self.clock.now_ms() }
                }
            };
            match self.word.compare_exchange_weak(seen, next.pack(), Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(newer) => seen = newer,
            }
        }
    }

    fn load(&self) -> Word {
        Word::unpack(self.word.load(Ordering::Acquire))
    }

    fn has_recovered(&self, since_ms: u64) -> bool {
        self.clock.now_ms().saturating_sub(since_ms) >= self.settings.recovery_timeout_ms
    }

    /// At least one: without a probe an open breaker could never close.
    fn probes_max(&self) -> u64 {
        u64::from(self.settings.half_open_max_calls).clamp(1, PROBES_MAX)
    }
}

/// The two breakers of the gateway. While either is open the whole gateway is a plain proxy; with
/// `circuit_breaker.scope: subsystem` each switches off its own part only.
#[derive(Debug)]
pub struct Breakers {
    scope: BreakerScope,
    /// Watches writes to the store.
    pub storage: Breaker,
    /// Watches the analysers.
    pub security: Breaker,
}

impl Breakers {
    /// Both closed.
    pub fn new(settings: CircuitBreaker, clock: &Clock) -> Self {
        let scope = settings.scope;
        Self { scope, storage: Breaker::new(settings, clock.clone()), security: Breaker::new(settings, clock.clone()) }
    }

    /// Decides for one request: `No` means pure pass-through, without analysis and without storage.
    pub fn admit(&self) -> Admit {
        // Looking before asking: a probe of one breaker is not spent on a request the other one refuses.
        if self.is_pass_through() {
            return Admit::No;
        }
        match (self.storage.admit(), self.security.admit()) {
            (Admit::Yes, Admit::Yes) => Admit::Yes,
            (Admit::No, _) | (_, Admit::No) => Admit::No,
            _ => Admit::Probe,
        }
    }

    /// Decides for one request which parts it may use; see [`admit`](Self::admit).
    pub fn grant(&self) -> Granted {
        match self.scope {
            BreakerScope::Service => {
                let all = self.admit() != Admit::No;
                Granted { analysis: all, storage: all }
            }
            BreakerScope::Subsystem => {
                Granted { analysis: self.security.admit() != Admit::No, storage: self.storage.admit() != Admit::No }
            }
        }
    }

    /// Whether a request arriving now would be passed through; takes no probe.
    pub fn is_pass_through(&self) -> bool {
        self.storage.refuses() || self.security.refuses()
    }

    /// The worse of the two states: open before half open before closed.
    pub fn worst(&self) -> State {
        self.storage.state().max(self.security.state())
    }

    /// The breakers by the name of their subsystem.
    pub fn by_subsystem(&self) -> [(&'static str, &Breaker); 2] {
        [("storage", &self.storage), ("security", &self.security)]
    }
}

/// Shows the breakers in `/metrics`.
#[derive(Debug)]
pub struct BreakerGauges(pub Arc<Breakers>);

impl Source for BreakerGauges {
    fn collect(&self, out: &mut Exposition) {
        for (subsystem, breaker) in self.0.by_subsystem() {
            let now = breaker.state();
            for state in State::ALL {
                let labels = [("subsystem", subsystem), ("state", state.as_str())];
                out.gauge(names::BREAKER_STATE, &labels, f64::from(u8::from(state == now)));
            }
        }
    }
}

#[cfg(test)]
mod tests;
