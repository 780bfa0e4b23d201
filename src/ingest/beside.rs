//! What a reported span says beside its messages (attributes, its name, events, actions, what went wrong), without what is not kept:
//! personal data where it is redacted (`pii.action`), and credentials (`storage.mask_secrets`), which become findings.
//!
//! Invariants: each text is looked at once, together with its name, which may say what it is; what many spans of a request share is
//! looked at once for all of them. The work is linear in what was sent. The names records are found by (agent, session, client,
//! model) stay.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use weir_config::Settings;
use weir_config::settings::PiiAction;
use weir_config::vocab::part::PartKind;
use weir_config::vocab::{Finding, Severity};
use weir_inference::{Taker, Taking};
use weir_storage::record::{AgentAction, SpanEvent};

use super::span::ReportedSpan;

/// Findings in one span; what is masked is not bounded by it.
const FINDINGS_MAX: usize = 32;
/// No shorter text is a credential or personal data.
const BYTES_MIN: usize = 6;
/// How tags of credentials begin.
const SECRET_TAG: &str = "[SECRET:";

type Pairs = Vec<(String, Value)>;

/// Looks at what stands beside messages; keeps its memory from span to span.
pub(super) struct Beside {
    masked: Taking,
    taker: Option<Taker>,
    line: String,
    findings: Vec<Finding>,
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
        let masked =
            Taking { personal: settings.pii_action != PiiAction::AlertOnly, secrets: settings.storage.mask_secrets };
        let looked_for =
            Taking { personal: masked.personal, secrets: masked.secrets || settings.enable_security_analysis };
        let taker = (looked_for != Taking::default()).then(|| Taker::new(looked_for));
        Self { masked, taker, line: String::new(), findings: Vec::new(), shared: [None, None] }
    }

    /// Takes it out of a span, and says which credentials stood there.
    pub(super) fn clean(&mut self, span: &mut ReportedSpan) -> Vec<Finding> {
        if self.taker.is_none() {
            return Vec::new();
        }
        for (at, shared) in span.shared.iter_mut().enumerate().filter(|(_, shared)| !shared.is_empty()) {
            self.clean_shared(at, shared);
        }
        self.pairs("attributes", &mut span.attributes);
        if let Some(user) = &mut span.user_id {
            self.text("attributes", "user.id", user);
        }
        if let Some(message) = &mut span.error_message {
            self.text("error_message", "", message);
        }
        for (at, event) in span.events.iter_mut().enumerate() {
            self.event(&format!("events[{at}]"), event);
        }
        for (at, action) in span.agent_actions.iter_mut().enumerate() {
            self.action(&format!("agent_actions[{at}]"), action);
        }
        std::mem::take(&mut self.findings)
    }

    fn clean_shared(&mut self, at: usize, shared: &mut Arc<Pairs>) {
        let known = self.shared[at].take().filter(|known| Arc::ptr_eq(&known.came, shared));
        let known = known.unwrap_or_else(|| {
            let before = std::mem::take(&mut self.findings);
            let mut pairs = Pairs::clone(shared);
            self.pairs("attributes", &mut pairs);
            let found = std::mem::replace(&mut self.findings, before);
            Shared { came: Arc::clone(shared), clean: Arc::new(pairs), found }
        });
        self.findings.extend(known.found.iter().map(again));
        *shared = Arc::clone(&known.clean);
        self.shared[at] = Some(known);
    }

    fn event(&mut self, place: &str, event: &mut SpanEvent) {
        if let std::borrow::Cow::Owned(name) = &mut event.event_type {
            self.text(place, "", name);
        }
        self.text(place, "", &mut event.description);
        self.texts(place, &mut event.data);
    }

    fn action(&mut self, place: &str, action: &mut AgentAction) {
        self.text(place, "", &mut action.name);
        let texts = [&mut action.arguments, &mut action.result, &mut action.http_method, &mut action.file_operation];
        texts.into_iter().flatten().for_each(|text| self.text(place, "", text));
        self.texts(place, &mut action.metadata);
    }

    fn texts(&mut self, place: &str, texts: &mut BTreeMap<String, String>) {
        let changed = std::mem::take(texts).into_iter().map(|(mut name, mut text)| {
            self.text(place, &name, &mut text);
            self.name(place, &mut name);
            (name, text)
        });
        *texts = changed.collect();
    }

    fn pairs(&mut self, place: &str, pairs: &mut Pairs) {
        for (name, value) in pairs {
            self.value(place, name, value);
            self.name(place, name);
        }
    }

    /// The texts in a value; those in an object stand under their own names.
    fn value(&mut self, place: &str, name: &str, value: &mut Value) {
        match value {
            Value::String(text) => self.text(place, name, text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(place, name, item)),
            Value::Object(fields) => {
                let changed = std::mem::take(fields).into_iter().map(|(mut name, mut field)| {
                    self.value(place, &name, &mut field);
                    self.name(place, &mut name);
                    (name, field)
                });
                *fields = changed.collect();
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// Names are words of programs; those with a digit or an address in them may be more.
    fn name(&mut self, place: &str, name: &mut String) {
        if name.bytes().any(|byte| byte.is_ascii_digit() || byte == b'@') {
            self.text(place, "", name);
        }
    }

    fn text(&mut self, place: &str, name: &str, text: &mut String) {
        let Some(taker) = self.taker.as_mut().filter(|_| text.len() >= BYTES_MIN) else { return };
        self.line.clear();
        if !name.is_empty() {
            self.line.extend([name, "="]);
        }
        let before = self.line.len();
        self.line.push_str(text);
        let found = taker.pieces(&self.line, PartKind::User);
        let found = found.into_iter().filter(|piece| piece.range.end > before);
        let (mut out, mut done) = (String::new(), before);
        for piece in found {
            let secret = piece.tag.strip_prefix(SECRET_TAG);
            if let Some(kind) = secret.filter(|_| self.findings.len() < FINDINGS_MAX) {
                self.findings.push(finding(kind.trim_end_matches(']'), place, name));
            }
            let is_masked = if secret.is_some() { self.masked.secrets } else { self.masked.personal };
            if is_masked {
                out.push_str(self.line.get(done..piece.range.start).unwrap_or_default());
                out.push_str(&piece.tag);
                done = piece.range.end;
            }
        }
        if done > before {
            out.push_str(self.line.get(done..).unwrap_or_default());
            *text = out;
        }
    }
}

fn finding(kind: &str, place: &str, name: &str) -> Finding {
    let said = "A credential stands beside the messages of a reported span";
    let mut finding = Finding::new("secret_leakage", Severity::High, 0.9, "secrets", said);
    // No evidence: it would be the credential. A name that holds one is not the place's to tell.
    finding.location = if name.is_empty() || name.bytes().any(|byte| byte.is_ascii_digit() || byte == b'@') {
        place.to_owned()
    } else {
        format!("{place}.{name}")
    };
    finding.metadata.insert("secret_type".to_owned(), kind.to_ascii_lowercase());
    finding
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
