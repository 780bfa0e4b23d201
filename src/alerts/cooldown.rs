//! What a channel was told that the store could not keep, and what it has refused: in memory, for as long as it counts.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use weir_storage::alerts::AlertKey;

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

/// The cooldowns of one channel that are not in the store.
#[derive(Default)]
pub(super) struct Cooldowns(Mutex<HashMap<AlertKey, (Instant, Quiet)>>);

impl Cooldowns {
    /// Whether the channel is not to hear of `key` now.
    pub(super) fn of(&self, key: &AlertKey, now: Instant) -> Option<Quiet> {
        let mut quiet = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match quiet.get(key) {
            Some((until, why)) if *until > now => return Some(*why),
            Some(_) => drop(quiet.remove(key)),
            None => {}
        }
        None
    }

    /// The same where it is to be told: there has to be room for what follows.
    pub(super) fn before_telling(&self, key: &AlertKey, now: Instant) -> Option<Quiet> {
        let known = self.of(key, now);
        let mut quiet = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if quiet.len() >= KEYS_MAX {
            quiet.retain(|_, (until, _)| *until > now);
        }
        known.or_else(|| (quiet.len() >= KEYS_MAX).then_some(Quiet::NoRoom))
    }

    /// Begins one.
    pub(super) fn begin(&self, key: AlertKey, why: Quiet, now: Instant, length: Duration) {
        if length.is_zero() {
            return;
        }
        let mut quiet = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if quiet.len() < KEYS_MAX || quiet.contains_key(&key) {
            quiet.insert(key, (now + length, why));
        }
    }
}
