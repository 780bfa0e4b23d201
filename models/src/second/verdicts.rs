//! What the second stage said of texts, so that none is looked at twice: conversations are sent again with every turn.
//!
//! Invariants: bounded by count; a verdict is known to its tenant and role alone; what is asked for stays longer than what is not.

use std::collections::HashMap;
use std::ops::Range;

use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use weir_config::vocab::TenantId;

/// Most verdicts in each of the two generations; 1.3 MB together.
const HALF: usize = 8 << 10;

/// A text of a tenant in a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Name {
    tenant: TenantId,
    is_data: bool,
    digest: [u8; 32],
}

/// What was said of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Verdict {
    /// Of its worst window.
    pub(crate) logit: f32,
    start: u32,
    end: u32,
    /// In which encoding the worst window was written.
    pub(crate) encoding: Option<&'static str>,
    /// Not all of it was looked at, because it is long.
    pub(crate) is_part: bool,
}

/// The verdicts. Those that are asked for pass from the older generation to the younger; when that is full, the older is dropped.
#[derive(Debug, Default)]
pub(crate) struct Verdicts(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<Name, Verdict>,
    old: HashMap<Name, Verdict>,
}

// === impl Name ===

impl Name {
    pub(crate) fn of(tenant: TenantId, is_data: bool, text: &str) -> Self {
        Self { tenant, is_data, digest: Sha256::digest(text).into() }
    }
}

// === impl Verdict ===

impl Verdict {
    pub(crate) fn new(logit: f32, range: &Range<usize>, encoding: Option<&'static str>, is_part: bool) -> Self {
        let narrow = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Self { logit, start: narrow(range.start), end: narrow(range.end), encoding, is_part }
    }

    /// Where its worst window stands in the text.
    pub(crate) const fn range(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

// === impl Verdicts ===

impl Verdicts {
    pub(crate) fn get(&self, name: &Name) -> Option<Verdict> {
        let mut all = self.0.lock();
        if let Some(verdict) = all.young.get(name) {
            return Some(*verdict);
        }
        let verdict = all.old.remove(name)?;
        all.put(*name, verdict);
        Some(verdict)
    }

    pub(crate) fn put(&self, name: Name, verdict: Verdict) {
        self.0.lock().put(name, verdict);
    }
}

// === impl Generations ===

impl Generations {
    fn put(&mut self, name: Name, verdict: Verdict) {
        if self.young.len() >= HALF && !self.young.contains_key(&name) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(name, verdict);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(logit: f32) -> Verdict {
        Verdict::new(logit, &(3..8), None, false)
    }

    #[test]
    fn a_verdict_is_known_to_its_tenant_and_role_alone() {
        let verdicts = Verdicts::default();
        let other = TenantId::from_bytes([7; 16]);
        verdicts.put(Name::of(TenantId::DEFAULT, true, "a text"), verdict(1.5));
        assert_eq!(verdicts.get(&Name::of(TenantId::DEFAULT, true, "a text")), Some(verdict(1.5)));
        assert_eq!(verdicts.get(&Name::of(TenantId::DEFAULT, false, "a text")), None);
        assert_eq!(verdicts.get(&Name::of(other, true, "a text")), None);
        assert_eq!(verdicts.get(&Name::of(TenantId::DEFAULT, true, "a text.")), None);
        assert_eq!(verdict(0.0).range(), 3..8);
    }

    #[test]
    fn as_many_are_kept_as_there_is_room_and_those_asked_for_longest() {
        let verdicts = Verdicts::default();
        let name = |at: usize| Name::of(TenantId::DEFAULT, true, &at.to_string());
        for at in 0..5 * HALF {
            verdicts.put(name(at), verdict(at as f32));
            assert!(verdicts.get(&name(0)).is_some(), "asked for all the time; {at}");
        }
        let all = verdicts.0.lock();
        assert!(all.young.len() <= HALF && all.old.len() <= HALF);
        drop(all);
        assert!(verdicts.get(&name(5 * HALF - 1)).is_some());
        assert!(verdicts.get(&name(1)).is_none());
    }
}
