//! Verdicts that are remembered: the same result of a tool comes back with every turn of an agent, and is not paid for twice.
//!
//! Invariant: what is remembered for a tenant is remembered for that tenant alone, for so long and no longer; the oldest
//! gives way at the bound. One short lock, on the network runtime only.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use weir_config::vocab::TenantId;

use super::candidate::Candidate;
use super::verdict::Verdict;

/// Verdicts that are remembered at most.
const MAX: usize = 4_096;
/// For how long.
const FOR: Duration = Duration::from_secs(600);

/// What a verdict is remembered under: SHA-256 of the tenant and the candidate. One judge has one memory, so who judges and
/// how it is told to need not be in it.
pub(super) type Key = [u8; 32];

/// The remembered verdicts.
#[derive(Default)]
pub(super) struct VerdictCache(Mutex<Known>);

#[derive(Default)]
struct Known {
    verdicts: HashMap<Key, (Instant, Verdict)>,
    order: VecDeque<(Instant, Key)>,
}

/// The key of a candidate of a tenant.
pub(super) fn key(tenant: TenantId, candidate: &Candidate) -> Key {
    let mut hash = Sha256::new();
    hash.update(tenant.to_string().as_bytes());
    hash.update([u8::from(candidate.truncated)]);
    for piece in &candidate.pieces {
        // Lengths keep two cuts of the same text apart.
        hash.update([piece.kind as u8]);
        hash.update(piece.text.len().to_le_bytes());
        hash.update(piece.text.as_bytes());
    }
    for (name, severity) in &candidate.prior {
        hash.update(name.as_bytes());
        hash.update(severity.as_str().as_bytes());
    }
    hash.finalize().into()
}

impl VerdictCache {
    /// The verdict under `key`, unless it is too old.
    pub(super) fn get(&self, key: &Key, now: Instant) -> Option<Verdict> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, verdict) = known.verdicts.get(key)?;
        (now.saturating_duration_since(*since) < FOR).then(|| verdict.clone())
    }

    /// Remembers a verdict.
    pub(super) fn put(&self, key: Key, verdict: Verdict, now: Instant) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.verdicts.insert(key, (now, verdict));
        known.order.push_back((now, key));
        while known.order.len() > MAX {
            let Some((since, key)) = known.order.pop_front() else { break };
            // One that was put anew stands further behind as well.
            if known.verdicts.get(&key).is_some_and(|(at, _)| *at == since) {
                known.verdicts.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use weir_config::vocab::part::PartKind;

    use super::super::verdict::{Category, Recommended};
    use super::*;

    fn verdict(security_score: u8) -> Verdict {
        Verdict {
            is_threat: true,
            category: Category::Jailbreak,
            confidence: 0.9,
            security_score,
            recommended_action: Recommended::Block,
            reasoning: String::new(),
        }
    }

    #[test]
    fn a_verdict_is_remembered_per_tenant_for_a_while() {
        let (memory, now) = (VerdictCache::default(), Instant::now());
        let candidate = |text| Candidate::choose(&[(PartKind::User, text)], &[], 100);
        let other = TenantId::from_bytes([7; 16]);
        let one = key(TenantId::DEFAULT, &candidate("Hello"));
        memory.put(one, verdict(80), now);
        assert_eq!(memory.get(&one, now + FOR / 2), Some(verdict(80)));
        assert_eq!(memory.get(&one, now + FOR), None);
        assert_eq!(memory.get(&key(other, &candidate("Hello")), now), None);
        assert_eq!(memory.get(&key(TenantId::DEFAULT, &candidate("Hello!")), now), None);
    }

    #[test]
    fn the_oldest_gives_way_and_what_was_put_anew_stays() {
        let (memory, now) = (VerdictCache::default(), Instant::now());
        let key = |number: usize| {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.to_le_bytes());
            key
        };
        let at = |number: usize| now + Duration::from_micros(number as u64);
        memory.put(key(0), verdict(0), at(0));
        memory.put(key(0), verdict(1), at(1));
        for number in 1..MAX {
            memory.put(key(number), verdict(2), at(number + 1));
        }
        assert_eq!(memory.get(&key(0), at(MAX)), Some(verdict(1)));
        memory.put(key(MAX), verdict(2), at(MAX + 1));
        assert_eq!((memory.get(&key(0), at(MAX)), memory.get(&key(1), at(MAX))), (None, Some(verdict(2))));
        assert!(memory.0.lock().unwrap().verdicts.len() <= MAX);
    }
}
