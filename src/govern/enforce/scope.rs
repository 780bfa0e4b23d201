//! `enforcement.scope: new`: what stood in an earlier call of the tenant is recorded and does not act again. An agent sends its
//! whole history with every turn; without this, one refused tool result refuses all that follow.
//!
//! The last text of a request always acts, and only the texts of calls that were forwarded are remembered: what was refused is
//! refused again, whatever stands behind it when it is sent again.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

use parking_lot::Mutex;
use weir_config::vocab::{Finding, TenantId};

/// Key in the metadata of a finding that does not act because its text stood in an earlier call.
pub const EARLIER_CALL: &str = "earlier_call";

/// Texts remembered at least; twice as many at most.
const TEXTS: usize = 1 << 15;

/// Texts of earlier forwarded calls in which something was found, as hashes with a secret key. Kept in memory: after a restart
/// each of them acts once more.
#[derive(Debug, Default)]
pub struct Earlier {
    key: RandomState,
    known: Mutex<Known>,
}

/// The texts of one request in which something was found that acts.
#[derive(Debug, Default)]
pub struct ActingTexts(Vec<u64>);

impl ActingTexts {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The younger half takes what comes; when it is full, it becomes the older one, and what was in that is forgotten.
#[derive(Debug, Default)]
struct Known {
    younger: HashSet<u64>,
    older: HashSet<u64>,
}

impl Earlier {
    /// Marks those findings of a request that act by themselves and stood in an earlier call of `tenant`; gives back the texts of
    /// all that act, to be remembered when the request has been forwarded. `texts` are the request's, by the numbers in
    /// [`Finding::part`]; `last` is the last one's number.
    pub fn mark<'a>(
        &self,
        tenant: TenantId,
        findings: &mut [Finding],
        acts: impl Fn(&Finding) -> bool,
        texts: impl Fn(usize) -> Option<&'a str>,
        last: usize,
    ) -> ActingTexts {
        let mut asked: Vec<(u32, u64, bool)> = Vec::new();
        for finding in findings.iter_mut().filter(|finding| acts(finding)) {
            let Some(part) = finding.part else { continue };
            let stood = match asked.iter().find(|(other, ..)| *other == part) {
                Some((.., stood)) => *stood,
                None => {
                    let Some(text) = usize::try_from(part).ok().and_then(&texts) else { continue };
                    let name = self.key.hash_one((tenant, text));
                    let stood = self.is_known(name);
                    asked.push((part, name, stood));
                    stood
                }
            };
            if stood && usize::try_from(part) != Ok(last) {
                finding.metadata.insert(EARLIER_CALL.to_owned(), "true".to_owned());
            }
        }
        ActingTexts(asked.into_iter().map(|(_, name, _)| name).collect())
    }

    /// Remembers the texts of a request that was forwarded.
    pub fn remember(&self, texts: ActingTexts) {
        let mut known = self.known.lock();
        for name in texts.0 {
            if known.younger.contains(&name) {
                continue;
            }
            if known.younger.len() >= TEXTS {
                known.older = std::mem::take(&mut known.younger);
            }
            known.younger.insert(name);
        }
    }

    fn is_known(&self, name: u64) -> bool {
        let known = self.known.lock();
        known.younger.contains(&name) || known.older.contains(&name)
    }
}

#[cfg(test)]
mod tests {
    use weir_config::Settings;
    use weir_config::settings::{Enforcement, EnforcementMode};
    use weir_config::vocab::Severity;

    use super::*;
    use crate::enforce::{Decision, acts, decide};

    fn rules(mode: EnforcementMode) -> Enforcement {
        Enforcement { mode, ..Settings::default().enforcement }
    }

    fn in_part(part: u32) -> Finding {
        let finding = Finding::new("prompt_injection", Severity::Critical, 1.0, "rules", "an order");
        Finding { part: Some(part), ..finding }
    }

    /// What is decided over a finding in each of `parts` of a request with these texts, which is forwarded unless that says no.
    fn decided(earlier: &Earlier, mode: EnforcementMode, tenant: &[u8], texts: &[&str], parts: &[u32]) -> Decision {
        let mut findings: Vec<Finding> = parts.iter().map(|part| in_part(*part)).collect();
        let (rules, text) = (rules(mode), |part: usize| texts.get(part).copied());
        let tenant = TenantId::from_credential(tenant);
        let acting = earlier.mark(tenant, &mut findings, |finding| acts(finding, &rules), text, texts.len() - 1);
        let decision = decide(&findings, &rules);
        if decision != Decision::Block {
            earlier.remember(acting);
        }
        decision
    }

    #[test]
    fn what_stood_in_an_earlier_call_that_was_forwarded_acts_once() {
        let earlier = Earlier::default();
        let flagged = |tenant: &[u8], texts: &[&str], parts: &[u32]| {
            decided(&earlier, EnforcementMode::Flag, tenant, texts, parts)
        };
        assert_eq!(flagged(b"a", &["order", "go on"], &[0, 0]), Decision::Flag);
        assert_eq!(flagged(b"a", &["order", "go on"], &[0, 0]), Decision::Forward);
        // Another tenant's call is no earlier call, and what is new acts.
        assert_eq!(flagged(b"b", &["order", "go on"], &[0]), Decision::Flag);
        assert_eq!(flagged(b"a", &["order", "another", "go on"], &[0, 1]), Decision::Flag);
        assert_eq!(
            decided(&earlier, EnforcementMode::Block, b"a", &["order", "another", "go on"], &[0, 1]),
            Decision::Forward
        );
    }

    #[test]
    fn what_was_refused_is_refused_again() {
        let earlier = Earlier::default();
        for texts in [&["be kind", "order"][..], &["be kind", "order", "go on"], &["be kind", "order", "go on"]] {
            assert_eq!(decided(&earlier, EnforcementMode::Block, b"a", texts, &[1]), Decision::Block);
        }
    }

    #[test]
    fn the_last_text_acts_however_often_it_comes() {
        let earlier = Earlier::default();
        for _ in 0..3 {
            assert_eq!(decided(&earlier, EnforcementMode::Flag, b"a", &["be kind", "order"], &[1]), Decision::Flag);
        }
        let more = ["be kind", "order", "go on"];
        assert_eq!(decided(&earlier, EnforcementMode::Flag, b"a", &more, &[1]), Decision::Forward);
    }

    #[test]
    fn what_it_remembers_is_bounded() {
        let earlier = Earlier::default();
        for text in 0..3 * TEXTS as u64 {
            assert!(!earlier.is_known(text));
            earlier.remember(ActingTexts(vec![text]));
        }
        let known = earlier.known.lock();
        assert!(known.younger.len() + known.older.len() <= 2 * TEXTS);
        drop(known);
        assert!(earlier.is_known(3 * TEXTS as u64 - 1));
        assert!(!earlier.is_known(0));
    }
}
