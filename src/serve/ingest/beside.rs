//! What a reported span says beside its messages (attributes, its name, events, actions, what went wrong), without what is not kept:
//! personal data where it is redacted (`pii.action`), and credentials (`storage.mask_secrets`), which become findings.
//!
//! Invariants: each text is looked at once, together with its name, which may say what it is; what many spans of a request share is
//! looked at once for all of them. The work is linear in what was sent. The names records are found by (agent, session, client,
//! model) stay.

use std::sync::Arc;

use serde_json::Value;
use weir_config::Settings;
use weir_config::vocab::Finding;

use super::span::ReportedSpan;
use crate::redaction::Beside as Texts;

/// Findings in one span; what is masked is not bounded by it.
const FINDINGS_MAX: usize = 32;

type Pairs = Vec<(String, Value)>;

/// What a credential there is said to be.
const FOUND: &str = "A credential stands beside the messages of a reported span";

/// Looks at what stands beside messages; keeps its memory from span to span.
pub(super) struct Beside {
    texts: Texts,
    /// What was last shared, of resources and of reporters.
    shared: [Option<Shared>; 2],
}

/// What spans share: as it came, without what is not kept, and what was found in it.
struct Shared {
    came: Arc<Pairs>,
    clean: Arc<Pairs>,
    found: Vec<Finding>,
}

impl Beside {
    /// By these settings.
    pub(super) fn of(settings: &Settings) -> Self {
        Self { texts: Texts::of(settings, FOUND), shared: [None, None] }
    }

    /// Takes it out of a span, and says which credentials stood there.
    pub(super) fn clean(&mut self, span: &mut ReportedSpan) -> Vec<Finding> {
        if !self.texts.is_needed() {
            return Vec::new();
        }
        let mut findings = Vec::new();
        for (at, shared) in span.shared.iter_mut().enumerate().filter(|(_, shared)| !shared.is_empty()) {
            findings.extend(self.clean_shared(at, shared));
        }
        let texts = &mut self.texts;
        texts.pairs("attributes", &mut span.attributes);
        if let Some(user) = &mut span.user_id {
            texts.text("attributes", "user.id", user);
        }
        if let Some(message) = &mut span.error_message {
            texts.text("error_message", "", message);
        }
        for (at, event) in span.events.iter_mut().enumerate() {
            texts.event(&format!("events[{at}]"), event);
        }
        for (at, action) in span.agent_actions.iter_mut().enumerate() {
            texts.action(&format!("agent_actions[{at}]"), action);
        }
        findings.extend(texts.take_findings());
        findings.truncate(FINDINGS_MAX);
        findings
    }

    fn clean_shared(&mut self, at: usize, shared: &mut Arc<Pairs>) -> Vec<Finding> {
        let known = self.shared[at].take().filter(|known| Arc::ptr_eq(&known.came, shared));
        let known = known.unwrap_or_else(|| {
            let mut pairs = Pairs::clone(shared);
            self.texts.pairs("attributes", &mut pairs);
            Shared { came: Arc::clone(shared), clean: Arc::new(pairs), found: self.texts.take_findings() }
        });
        let findings = known.found.iter().map(again).collect();
        *shared = Arc::clone(&known.clean);
        self.shared[at] = Some(known);
        findings
    }
}

/// The same finding in another span.
fn again(found: &Finding) -> Finding {
    let fresh = Finding::new(
        found.finding_type.clone(),
        found.severity,
        found.confidence,
        found.detector.clone(),
        found.description.clone(),
    );
    Finding { location: found.location.clone(), metadata: found.metadata.clone(), ..fresh }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use weir_config::vocab::{SpanId, Timestamp, TraceId};

    use super::*;

    /// Random; put together so that scanners of code hosts stay quiet.
    const TOKEN: [&str; 2] = ["ghp_", "6hIKgwt74CPInlfRDAagj6fvyEobZLVfjgvh"];

    fn span() -> ReportedSpan {
        let moment = Timestamp::now();
        ReportedSpan::new(TraceId::from_bytes([1; 16]), SpanId::from_bytes([2; 16]), moment, moment)
    }

    fn beside(change: impl FnOnce(&mut Settings)) -> Beside {
        let mut settings = Settings::default();
        change(&mut settings);
        Beside::of(&settings)
    }

    #[test]
    fn a_name_says_what_its_text_is_and_the_rest_of_the_text_stays() {
        let mut span = span();
        let value = json!({"db": [{"password": "Summer807#x"}, 7], "note": "push, please"});
        span.attributes = vec![("connection".to_owned(), value), (format!("of {}", TOKEN.concat()), json!(1))];
        let found = beside(|_| ()).clean(&mut span);
        let kept = serde_json::to_string(&span.attributes).unwrap();
        assert!(kept.contains(r#"{"db":[{"password":"[SECRET:"#) && kept.contains("push, please"), "{kept}");
        assert!(!kept.contains("Summer807") && kept.contains("of [SECRET:GITHUB_PAT]"), "{kept}");
        let places: Vec<&str> = found.iter().map(|finding| finding.location.as_str()).collect();
        assert_eq!(places, ["attributes.password", "attributes"]);
        assert!(found.iter().all(|finding| finding.evidence.is_empty()));
    }

    #[test]
    fn actions_are_masked_in_every_field() {
        let text = format!("use {} now", TOKEN.concat());
        let said = json!({
            "id": "6f1c2b1e-0d5a-4c6f-9e7b-0d9a4c3b2a10", "action_type": "command_execution", "name": text,
            "arguments": text, "result": text, "duration_ms": null, "success": true, "exit_code": null,
            "http_method": null, "http_status": null, "file_operation": text, "metadata": {"note": text},
            "timestamp": "2026-01-01T00:00:00Z",
        });
        let mut span = span();
        span.agent_actions = vec![serde_json::from_value(said).unwrap()];
        assert_eq!(beside(|_| ()).clean(&mut span).len(), 5);
        let kept = serde_json::to_string(&span.agent_actions).unwrap();
        assert!(!kept.contains(TOKEN[1]) && kept.matches("use [SECRET:GITHUB_PAT] now").count() == 5, "{kept}");
    }

    #[test]
    fn what_is_shared_is_looked_at_once_and_found_in_each_span() {
        let shared = Arc::new(vec![("deploy.key".to_owned(), json!(TOKEN.concat()))]);
        let mut beside = beside(|_| ());
        let mut clean = || {
            let mut span = ReportedSpan { shared: [Arc::clone(&shared), Arc::clone(&shared)], ..span() };
            (beside.clean(&mut span), span.shared)
        };
        let ((one, first), (other, second)) = (clean(), clean());
        for (first, second) in first.iter().zip(&second) {
            assert!(Arc::ptr_eq(first, second) && first[0].1 == json!("[SECRET:GITHUB_PAT]"), "{first:?}");
        }
        assert_eq!((one.len(), other.len()), (2, 2));
        assert_ne!(one[0].id, other[0].id);
    }

    #[test]
    fn what_is_only_looked_for_stays_and_without_either_nothing_is_looked_at() {
        for (analysed, findings) in [(true, 1), (false, 0)] {
            let mut span = ReportedSpan { error_message: Some(TOKEN.concat()), ..span() };
            let mut beside = beside(|settings| {
                settings.storage.mask_secrets = false;
                settings.enable_security_analysis = analysed;
            });
            assert_eq!(beside.clean(&mut span).len(), findings);
            assert_eq!(span.error_message, Some(TOKEN.concat()));
        }
    }

    #[test]
    fn findings_are_bounded_and_masks_are_not() {
        let mut span = ReportedSpan { error_message: Some(format!("{} ", TOKEN.concat()).repeat(100)), ..span() };
        assert_eq!(beside(|_| ()).clean(&mut span).len(), FINDINGS_MAX);
        assert_eq!(span.error_message, Some("[SECRET:GITHUB_PAT] ".repeat(100)));
    }
}
