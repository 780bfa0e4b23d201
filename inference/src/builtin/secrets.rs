//! `secrets`: credentials with a known form, and bare words that can be nothing else.

use std::sync::Arc;

use super::compiled::Compiled;
use crate::candidate::Candidate;
use crate::detector::{CostClass, Detector, Found, Text};
use crate::rule_matcher::{Limits, Match};
use crate::rules::Group;
use crate::secret;
use crate::shared_look::SharedLook;
use crate::tuning::Tuning;

#[derive(Debug)]
pub(super) struct Secrets(pub(super) Arc<Compiled>);

impl Detector for Secrets {
    fn name(&self) -> &'static str {
        "secrets"
    }

    fn cost(&self) -> CostClass {
        CostClass::Core
    }

    fn look(&self, text: &Text<'_>, _tuning: &Tuning, found: &mut Found<'_>) {
        let Some(shared) = &mut found.shared else { return };
        self.look_into_codes(shared);
        let SharedLook { memory, runs, candidates, .. } = shared;
        for found in &memory.matches {
            let Some(rule) = self.0.matcher.rule(found.rule).filter(|rule| rule.group == Group::Secrets) else {
                continue;
            };
            let value = text.folded.get(found.start..found.end).unwrap_or_default();
            let is_login = matches!(rule.secret_type.as_deref(), Some("db_url_password" | "basic_auth_url"));
            let stands_in = is_login && secret::is_login_stand_in(text.folded, found.start, value);
            if !stands_in && secret::is_genuine(value, rule.entropy, rule.digit) {
                candidates.push(Candidate::rule(*found, rule));
            }
        }
        let bare = runs.iter().filter_map(|run| secret::bare(text.folded, run.start, run.end));
        candidates.extend(bare.map(Candidate::bare));
    }
}

impl Secrets {
    /// A secret of a cluster is written in base64, and a key in it is one all the same.
    fn look_into_codes(&self, shared: &mut SharedLook<'_>) {
        let SharedLook { decoded, inner, limits, candidates, .. } = shared;
        let limits = Limits { credentials: true, jailbreak: false, ..*limits };
        let codes =
            decoded.known().into_iter().flatten().filter(|(.., encoding)| matches!(*encoding, "base64" | "hex"));
        for (text, (start, end), _) in codes {
            self.0.matcher.scan(text, limits, inner);
            let found = inner.matches.iter().find(|found| {
                let rule = self.0.matcher.rule(found.rule).filter(|rule| rule.group == Group::Secrets);
                let value = text.get(found.start..found.end).unwrap_or_default();
                rule.is_some_and(|rule| secret::is_genuine(value, rule.entropy, rule.digit))
            });
            if let Some((found, rule)) = found.and_then(|found| Some((*found, self.0.matcher.rule(found.rule)?))) {
                candidates.push(Candidate::rule(Match { start, end, ..found }, rule));
            }
        }
    }
}
