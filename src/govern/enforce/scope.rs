//! `enforcement.scope: new`: what stood in an earlier call of the tenant is recorded and does not act again. An agent sends its
//! whole history with every turn; without this, one refused tool result refuses all that follow.
//!
//! The last text of a request always acts: a refused request that is sent again unchanged is refused again.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

use parking_lot::Mutex;
use weir_config::vocab::{Finding, TenantId};

/// Key in the metadata of a finding that does not act because its text stood in an earlier call.
pub const EARLIER_CALL: &str = "earlier_call";

/// Texts remembered at least; twice as many at most.
const TEXTS: usize = 1 << 15;

/// Texts of earlier calls in which something was found, as hashes with a secret key. Kept in memory: after a restart each of
/// them acts once more.
#[derive(Debug, Default)]
pub struct Earlier {
    key: RandomState,
    known: Mutex<Known>,
}

/// The younger half takes what comes; when it is full, it becomes the older one, and what was in that is forgotten.
#[derive(Debug, Default)]
struct Known {
    younger: HashSet<u64>,
    older: HashSet<u64>,
}

impl Earlier {
    /// Marks those findings of a request that act by themselves and stood in an earlier call of `tenant`, and remembers the texts
    /// of the others. `texts` are the request's, by the numbers in [`Finding::part`]; `last` is the last one's number.
    pub fn mark<'a>(
        &self,
        tenant: TenantId,
        findings: &mut [Finding],
        acts: impl Fn(&Finding) -> bool,
        texts: impl Fn(usize) -> Option<&'a str>,
        last: usize,
    ) {
        // Each text is asked for once: it is known from then on.
        let mut asked: Vec<(u32, bool)> = Vec::new();
        for finding in findings.iter_mut().filter(|finding| acts(finding)) {
            let Some(part) = finding.part else { continue };
            let stood = match asked.iter().find(|(other, _)| *other == part) {
                Some((_, stood)) => *stood,
                None => {
                    let text = usize::try_from(part).ok().and_then(&texts);
                    let stood = text.is_some_and(|text| self.was_there(tenant, text));
                    asked.push((part, stood));
                    stood
                }
            };
            if stood && usize::try_from(part) != Ok(last) {
                finding.metadata.insert(EARLIER_CALL.to_owned(), "true".to_owned());
            }
        }
    }

    /// Whether a text came before; from now on it did.
    fn was_there(&self, tenant: TenantId, text: &str) -> bool {
        let name = self.key.hash_one((tenant, text));
        let mut known = self.known.lock();
        if known.younger.contains(&name) {
            return true;
        }
        let stood = known.older.contains(&name);
        if known.younger.len() >= TEXTS {
            known.older = std::mem::take(&mut known.younger);
        }
        known.younger.insert(name);
        stood
    }
}

#[cfg(test)]
mod tests {
    use weir_config::Settings;
    use weir_config::settings::{Enforcement, EnforcementMode};
    use weir_config::vocab::Severity;

    use super::*;
    use crate::enforce::{Decision, acts, decide};

    fn rules() -> Enforcement {
        Enforcement { mode: EnforcementMode::Block, ..Settings::default().enforcement }
    }

    fn in_part(part: u32) -> Finding {
        let finding = Finding::new("prompt_injection", Severity::Critical, 1.0, "rules", "an order");
        Finding { part: Some(part), ..finding }
    }

    /// What is decided over a finding in each of `parts` of a request with these texts.
    fn decided(earlier: &Earlier, tenant: &[u8], texts: &[&str], parts: &[u32]) -> Decision {
        let mut findings: Vec<Finding> = parts.iter().map(|part| in_part(*part)).collect();
        let (rules, text) = (rules(), |part: usize| texts.get(part).copied());
        let tenant = TenantId::from_credential(tenant);
        earlier.mark(tenant, &mut findings, |finding| acts(finding, &rules), text, texts.len() - 1);
        decide(&findings, &rules)
    }

    #[test]
    fn what_stood_in_an_earlier_call_acts_once() {
        let earlier = Earlier::default();
        assert_eq!(decided(&earlier, b"a", &["order", "go on"], &[0, 0]), Decision::Block);
        assert_eq!(decided(&earlier, b"a", &["order", "go on"], &[0, 0]), Decision::Forward);
        // Another tenant's call is no earlier call, and what is new acts.
        assert_eq!(decided(&earlier, b"b", &["order", "go on"], &[0]), Decision::Block);
        assert_eq!(decided(&earlier, b"a", &["order", "another", "go on"], &[0, 1]), Decision::Block);
    }

    #[test]
    fn the_last_text_acts_however_often_it_comes() {
        let earlier = Earlier::default();
        for _ in 0..3 {
            assert_eq!(decided(&earlier, b"a", &["be kind", "order"], &[1]), Decision::Block);
        }
        assert_eq!(decided(&earlier, b"a", &["be kind", "order", "go on"], &[1]), Decision::Forward);
    }

    #[test]
    fn what_it_remembers_is_bounded() {
        let earlier = Earlier::default();
        let tenant = TenantId::from_credential(b"a");
        for text in 0..3 * TEXTS {
            assert!(!earlier.was_there(tenant, &text.to_string()));
        }
        let known = earlier.known.lock();
        assert!(known.younger.len() + known.older.len() <= 2 * TEXTS);
        drop(known);
        assert!(earlier.was_there(tenant, &(3 * TEXTS - 1).to_string()));
        assert!(!earlier.was_there(tenant, "0"));
    }
}
