//! What the action router's rules ask for a recorded call. The findings of request and answer count together, so each action is
//! taken once for a call. A pure function over the record and the settings.

use weir_config::settings::{ActionRouter, ActionSet, RouterAction};
use weir_config::vocab::Finding;
use weir_storage::record::SpanRecord;

use crate::anomalies::CONTINUES;
use crate::enforce::EARLIER_CALL;

/// What findings have in front of their place in a request.
const IN_REQUEST: &str = "request";

/// What is to be done about a call, and what could not be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Follow {
    /// What the rules ask.
    pub asked: ActionSet,
    /// `flag` and `block` that came too late: the findings were not there when the request was decided, or `enforcement.mode`
    /// is log.
    pub not_applied: ActionSet,
}

/// What the findings of `span` ask for.
pub fn follow(span: &SpanRecord, router: &ActionRouter) -> Follow {
    let (mut asked, mut applied) = (ActionSet::NONE, ActionSet::NONE);
    // What stood in an earlier call has had its actions then, and so has what goes on since one.
    let fresh = |finding: &&Finding| ![EARLIER_CALL, CONTINUES].iter().any(|key| finding.metadata.contains_key(*key));
    for finding in span.security_findings.iter().filter(fresh) {
        let of_finding = router.actions(finding);
        asked = asked.with(of_finding);
        let done = match &*span.enforcement {
            "flagged" => RouterAction::Flag,
            "blocked" => RouterAction::Block,
            _ => continue,
        };
        if of_finding.has(done) && finding.location.starts_with(IN_REQUEST) {
            applied = applied.with(done.into());
        }
    }
    if applied.has(RouterAction::Block) {
        // A refusal is more than a mark.
        applied = applied.with(RouterAction::Flag.into());
    }
    let acting: ActionSet = [RouterAction::Flag, RouterAction::Block].into_iter().collect();
    let others = ActionSet::from_iter(asked.iter().filter(|action| !acting.has(*action)));
    Follow { asked, not_applied: asked.without(others).without(applied) }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use weir_config::settings::ActionRule;
    use weir_config::vocab::Severity;

    use super::*;
    use crate::feed::testing::blank_call;

    fn span(enforcement: &'static str, places: &[&str]) -> Box<SpanRecord> {
        let mut span = blank_call();
        span.enforcement = Cow::Borrowed(enforcement);
        span.security_findings = places
            .iter()
            .map(|place| {
                let mut finding = Finding::new("jailbreak", Severity::High, 0.9, "rules", "");
                finding.location = (*place).to_owned();
                finding
            })
            .collect();
        span
    }

    #[test]
    fn what_came_too_late_is_told_from_what_was_done() {
        let both = [RouterAction::Alert, RouterAction::Flag, RouterAction::Block].into_iter().collect();
        let rule = ActionRule { finding_type: None, min_severity: Severity::Info, min_confidence: 0.0, actions: both };
        let router = ActionRouter { enabled: true, rules: vec![rule], ..ActionRouter::default() };
        let told = |enforcement, places: &[&str]| {
            let Follow { asked, not_applied } = follow(&span(enforcement, places), &router);
            format!("{asked} but {not_applied}")
        };
        assert_eq!(told("none", &[]), " but ");
        assert_eq!(told("none", &["request.messages[0].content"]), "alert,flag,block but flag,block");
        assert_eq!(told("blocked", &["request.messages[0].content"]), "alert,flag,block but ");
        assert_eq!(told("flagged", &["request.messages[0].content"]), "alert,flag,block but block");
        // Flagged for something else; what the rule matches was in the answer.
        assert_eq!(told("flagged", &["response.choices[0]"]), "alert,flag,block but flag,block");
    }
}
