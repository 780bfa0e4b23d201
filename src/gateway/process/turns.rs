//! What users said last in conversations that the provider keeps: a request that goes on from an earlier answer or in a conversation
//! brings the new turn alone (`previous_response_id`, `conversation`), so that the turn before it has to be remembered for a phrase that was cut in two.
//!
//! Kept is the end of a turn under the tenant and the provider's id of the answer or conversation, as a hash with a secret key: a tenant
//! that names another one's finds nothing. Bounded by [`TURNS`] and in memory alone: after a restart the first turn of each
//! conversation is looked at by itself. One short lock, taken by such calls only.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};

use parking_lot::Mutex;
use weir_config::vocab::TenantId;

/// Turns remembered at least; twice as many at most.
const TURNS: usize = 1 << 13;

/// The ends of turns, each by the answer that it got.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    key: RandomState,
    known: Mutex<Known>,
}

/// The younger half takes what comes; when it is full, it becomes the older one, and what was in that is forgotten.
#[derive(Debug, Default)]
struct Known {
    younger: HashMap<u64, Box<str>>,
    older: HashMap<u64, Box<str>>,
}

impl Turns {
    /// Remembers the end of the turn that got this answer, or was the last one in this conversation.
    pub(crate) fn keep(&self, tenant: TenantId, answer: &str, end: String) {
        let name = self.key.hash_one((tenant, answer));
        let mut known = self.known.lock();
        if known.younger.len() >= TURNS {
            known.older = std::mem::take(&mut known.younger);
        }
        known.younger.insert(name, end.into_boxed_str());
    }

    /// The end of that turn.
    pub(crate) fn before(&self, tenant: TenantId, answer: &str) -> Option<Box<str>> {
        let name = self.key.hash_one((tenant, answer));
        let known = self.known.lock();
        known.younger.get(&name).or_else(|| known.older.get(&name)).cloned()
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
        let known = turns.known.lock();
        assert!(known.younger.len() + known.older.len() <= 2 * TURNS);
    }
}
