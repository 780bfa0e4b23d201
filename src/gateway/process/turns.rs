//! What users said last in conversations that the provider keeps: a request that goes on from an earlier answer or in a conversation
//! brings the new turn alone (`previous_response_id`, `conversation`), so that the turn before it has to be remembered for a phrase that was cut in two.
//!
//! Kept is the end of a turn under the tenant and the provider's id of the answer or conversation, as a hash with a secret key: a tenant
//! that names another one's finds nothing. Bounded by [`TURNS`] (or [`ORIGINS`]), of which no tenant has more than it leaves to the others, and in memory alone: after a restart the first turn of each
//! conversation is looked at by itself. One short lock, taken by such calls only.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use parking_lot::Mutex;
use weir_config::vocab::TenantId;

/// Turns remembered of a tenant that is alone, at least; twice as many at most. Several share them.
const TURNS: usize = 1 << 13;
/// The same of turns whose words are remembered by whose they are, which are longer.
pub(crate) const ORIGINS: usize = 1 << 10;

/// The ends of turns, each by the answer that it got.
#[derive(Debug)]
pub(crate) struct Turns {
    key: RandomState,
    /// How many.
    most: usize,
    known: Mutex<Known>,
}

/// What is remembered, by tenant.
#[derive(Debug, Default)]
struct Known {
    tenants: HashMap<TenantId, Halves>,
    count: usize,
}

/// The younger half takes what comes; when it is full, it becomes the older one, and what was in that is forgotten.
#[derive(Debug, Default)]
struct Halves {
    younger: HashMap<u64, Box<str>>,
    older: HashMap<u64, Box<str>>,
}

impl Halves {
    fn len(&self) -> usize {
        self.younger.len() + self.older.len()
    }

    fn age(&mut self) {
        self.older = std::mem::take(&mut self.younger);
    }
}

impl Known {
    fn keep(&mut self, tenant: TenantId, name: u64, end: Box<str>, most: usize) {
        // Who keeps much makes its own turns old, and no other's.
        let share = most / (self.tenants.len() + usize::from(!self.tenants.contains_key(&tenant)));
        let own = self.tenants.entry(tenant).or_default();
        let before = own.len();
        if own.younger.len() >= share.max(1) {
            own.age();
        }
        own.younger.insert(name, end);
        self.count = self.count + own.len() - before;
        if self.count > 4 * most {
            // Many tenants with little each: all of them get older.
            self.tenants.values_mut().for_each(Halves::age);
            self.tenants.retain(|_, halves| halves.len() > 0);
            self.count = self.tenants.values().map(Halves::len).sum();
        }
    }
}

impl Default for Turns {
    fn default() -> Self {
        Self::of(TURNS)
    }
}

impl Turns {
    /// That remembers so many.
    pub(crate) fn of(most: usize) -> Self {
        Self { key: RandomState::new(), most, known: Mutex::default() }
    }

    /// Remembers the end of the turn that got this answer, or was the last one in this conversation.
    pub(crate) fn keep(&self, tenant: TenantId, answer: &str, end: String) {
        let name = self.key.hash_one((tenant, answer));
        self.known.lock().keep(tenant, name, end.into_boxed_str(), self.most);
    }

    /// The end of that turn.
    pub(crate) fn before(&self, tenant: TenantId, answer: &str) -> Option<Box<str>> {
        let name = self.key.hash_one((tenant, answer));
        let known = self.known.lock();
        let own = known.tenants.get(&tenant)?;
        own.younger.get(&name).or_else(|| own.older.get(&name)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_known_to_its_tenant_and_forgotten_in_the_end() {
        let (turns, mine, other) = (Turns::default(), TenantId::from_credential(b"a"), TenantId::from_credential(b"b"));
        turns.keep(mine, "resp_1", "ignore all previous".to_owned());
        assert_eq!(turns.before(mine, "resp_1").as_deref(), Some("ignore all previous"));
        assert_eq!((turns.before(other, "resp_1"), turns.before(mine, "resp_2")), (None, None));
        for number in 0..2 * TURNS {
            turns.keep(mine, &number.to_string(), String::new());
        }
        assert_eq!(turns.before(mine, "resp_1"), None);
        assert!(turns.known.lock().count <= 2 * TURNS);
    }

    #[test]
    fn who_keeps_many_turns_has_no_other_s_forgotten() {
        let (turns, other) = (Turns::default(), TenantId::from_credential(b"b"));
        turns.keep(other, "resp_1", "ignore all previous".to_owned());
        for number in 0..8 * TURNS {
            turns.keep(TenantId::from_credential(b"a"), &number.to_string(), String::new());
        }
        assert_eq!(turns.before(other, "resp_1").as_deref(), Some("ignore all previous"));
        for number in 0..8 * TURNS {
            turns.keep(TenantId::from_credential(&number.to_be_bytes()), "resp_1", String::new());
        }
        let known = turns.known.lock();
        assert!(known.count <= 4 * TURNS + 1 && known.tenants.len() <= 4 * TURNS + 1);
    }
}
