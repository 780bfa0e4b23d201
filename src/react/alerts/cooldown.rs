//! What a channel was told that the store could not keep, and what it has refused: in memory, for as long as it counts. What came
//! within such a cooldown is summed up here, too, so that its end is told while the store is still away.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use uuid::Uuid;
use weir_config::vocab::{Severity, Timestamp};
use weir_storage::alerts::{AlertKey, Sighting};

/// Tenants and types that may be quiet at a time, for each channel.
pub(super) const KEYS_MAX: usize = 32_768;

/// Why a channel hears nothing of something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quiet {
    /// It was told within the cooldown.
    Told,
    /// It has refused to hear of it.
    Refused,
    /// Too much is quiet already for anything further to be kept from being told again and again.
    NoRoom,
}

/// Findings that a channel was not told of, because it had been told of one like them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Missed {
    /// Of the message that began the cooldown: what a summary of it is known by.
    pub(super) id: Uuid,
    /// When the channel accepted that message.
    pub(super) since: Timestamp,
    /// How many there are.
    pub(super) count: u64,
    /// The worst of them and of the one that was told.
    pub(super) severity: Severity,
    /// The same.
    pub(super) security_score: u8,
    /// The last finding that is counted: a batch that comes again is not counted again.
    counted: Uuid,
}

impl Missed {
    /// None yet, after a message about `sighting` that told of `told` of its findings.
    pub(super) fn after(sighting: &Sighting, told: u64) -> Self {
        Self {
            id: Uuid::new_v4(),
            since: Timestamp::now(),
            count: (sighting.findings.len() as u64).saturating_sub(told),
            severity: sighting.severity,
            security_score: sighting.security_score,
            counted: sighting.findings.last().copied().unwrap_or_default(),
        }
    }

    /// How many of `sighting` are counted now.
    fn add(&mut self, sighting: &Sighting) -> u64 {
        let known = sighting.findings.iter().rposition(|id| *id == self.counted).map_or(0, |at| at + 1);
        let fresh = sighting.findings.get(known..).unwrap_or_default();
        self.counted = fresh.last().copied().unwrap_or(self.counted);
        self.count += fresh.len() as u64;
        self.severity = self.severity.max(sighting.severity);
        self.security_score = self.security_score.max(sighting.security_score);
        fresh.len() as u64
    }
}

#[derive(Debug)]
struct Silence {
    until: Instant,
    why: Quiet,
    missed: Option<Missed>,
}

impl Silence {
    /// A summary that is outstanding keeps it up.
    fn is_over(&self, now: Instant) -> bool {
        self.until <= now && self.missed.as_ref().is_none_or(|missed| missed.count == 0)
    }

    fn owes(&self) -> Option<&Missed> {
        self.missed.as_ref().filter(|missed| missed.count > 0)
    }
}

/// The cooldowns of one channel that are not in the store.
#[derive(Default)]
pub(super) struct Cooldowns {
    silences: Mutex<HashMap<AlertKey, Silence>>,
    /// There is something further to sum up.
    pub(super) news: Notify,
}

impl Cooldowns {
    /// Whether the channel is not to hear of `sighting` now, and how many of its findings that leaves out. There has to be room
    /// for what would follow if it were told.
    pub(super) fn before_telling(&self, sighting: &Sighting, now: Instant) -> Option<(Quiet, u64)> {
        let many = sighting.findings.len() as u64;
        let mut silences = self.lock();
        if silences.len() >= KEYS_MAX {
            silences.retain(|_, silence| !silence.is_over(now));
        }
        match silences.get_mut(&sighting.key) {
            Some(silence) if !silence.is_over(now) => {
                let count = silence.missed.as_mut().map_or(many, |missed| missed.add(sighting));
                self.news.notify_one();
                return Some((silence.why, count));
            }
            Some(_) => drop(silences.remove(&sighting.key)),
            None => {}
        }
        (silences.len() >= KEYS_MAX).then_some((Quiet::NoRoom, many))
    }

    /// Begins one after a message that the store could not keep.
    pub(super) fn begin(&self, key: AlertKey, missed: Missed, now: Instant, length: Duration) {
        self.put(key, Silence { until: now + length, why: Quiet::Told, missed: Some(missed) }, length);
        self.news.notify_one();
    }

    /// Begins one after a message that was refused.
    pub(super) fn refuse(&self, key: AlertKey, now: Instant, length: Duration) {
        self.put(key, Silence { until: now + length, why: Quiet::Refused, missed: None }, length);
    }

    fn put(&self, key: AlertKey, silence: Silence, length: Duration) {
        let mut silences = self.lock();
        if !length.is_zero() && (silences.len() < KEYS_MAX || silences.contains_key(&key)) {
            silences.insert(key, silence);
        }
    }

    /// When the next summary is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.lock().values().filter(|silence| silence.owes().is_some()).map(|silence| silence.until).min()
    }

    /// A summary that is due.
    pub(super) fn due(&self, now: Instant) -> Option<(AlertKey, Missed)> {
        let silences = self.lock();
        let is_due = |(_, silence): &(&AlertKey, &Silence)| silence.until <= now && silence.owes().is_some();
        let (key, silence) = silences.iter().filter(is_due).min_by_key(|(_, silence)| silence.until)?;
        Some((key.clone(), silence.owes()?.clone()))
    }

    /// `told` has been summed up, or never will be: another cooldown of `length` begins.
    pub(super) fn summed_up(&self, key: &AlertKey, told: &Missed, now: Instant, length: Duration) {
        let mut silences = self.lock();
        let Some(silence) = silences.get_mut(key) else { return };
        silence.until = now + length;
        if let Some(missed) = &mut silence.missed {
            missed.count = missed.count.saturating_sub(told.count);
            missed.since = Timestamp::now();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<AlertKey, Silence>> {
        self.silences.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
