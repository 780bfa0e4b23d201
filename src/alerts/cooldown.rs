//! Who has been told what, and how much they have not been told since.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use uuid::Uuid;
use weir_config::vocab::TenantId;

/// Tenants and types that may be quiet at a time, for each channel.
const KEYS_MAX: usize = 32_768;

/// What a cooldown is about.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) tenant: TenantId,
    pub(super) finding_type: String,
}

/// Whether a channel knows of something.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It has to be told.
    Never,
    /// It was told within the cooldown; true if of this very finding.
    Of(bool),
    /// It was not, and could not be kept from hearing all of it.
    NoRoom,
}

struct Quiet {
    told: Uuid,
    suppressed: u64,
}

/// The cooldowns of one channel.
pub(super) struct Cooldowns {
    length: Duration,
    quiet: Mutex<HashMap<Key, Quiet>>,
}

impl Cooldowns {
    pub(super) fn new(length: Duration) -> Self {
        Self { length, quiet: Mutex::new(HashMap::new()) }
    }

    pub(super) fn length(&self) -> Duration {
        self.length
    }

    pub(super) fn are_off(&self) -> bool {
        self.length.is_zero()
    }

    /// Whether the channel has heard of `key`, whose finding `id` comes first now.
    pub(super) fn heard(&self, key: &Key, id: Uuid) -> Heard {
        let quiet = self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
        match quiet.get(key) {
            Some(known) => Heard::Of(known.told == id),
            None if quiet.len() >= KEYS_MAX => Heard::NoRoom,
            None => Heard::Never,
        }
    }

    /// Begins a cooldown: the channel has accepted finding `id`. False when there are none.
    pub(super) fn begin(&self, key: Key, id: Uuid) -> bool {
        if self.are_off() {
            return false;
        }
        let mut quiet = self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
        quiet.insert(key, Quiet { told: id, suppressed: 0 }).is_none()
    }

    /// Notes `count` findings that were not told. False where nothing keeps them from being told.
    pub(super) fn suppress(&self, key: &Key, count: u64) -> bool {
        let mut quiet = self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
        quiet.get_mut(key).map(|known| known.suppressed += count).is_some()
    }

    /// The end of a cooldown: how many were suppressed, and the next one begins; none were, and the key is forgotten.
    pub(super) fn end(&self, key: &Key) -> Option<u64> {
        let mut quiet = self.quiet.lock().unwrap_or_else(PoisonError::into_inner);
        let suppressed = quiet.get_mut(key).map(|known| std::mem::take(&mut known.suppressed)).unwrap_or_default();
        if suppressed == 0 {
            quiet.remove(key);
            return None;
        }
        Some(suppressed)
    }
}
