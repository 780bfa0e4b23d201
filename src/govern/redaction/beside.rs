//! Texts that are no part of a conversation (attributes, an action's arguments, what went wrong, a judge's reasons), without what is
//! not kept: personal data where it is redacted (`pii.action`), and credentials (`storage.mask_secrets`).
//!
//! Invariants: each text is looked at once, together with its name, which may say what it is; the work is linear in the text.

use std::collections::BTreeMap;

use serde_json::Value;
use weir_config::Settings;
use weir_config::settings::PiiAction;
use weir_config::vocab::part::PartKind;
use weir_config::vocab::{Finding, Severity};
use weir_inference::{Taker, Taking};
use weir_storage::record::{AgentAction, SpanEvent};

use super::credentials::Credentials;

/// Findings in what is reported at once; what is masked is not bounded by it.
const FINDINGS_MAX: usize = 32;
/// No shorter text is a credential or personal data.
const BYTES_MIN: usize = 6;
/// How tags of credentials begin.
const SECRET_TAG: &str = "[SECRET:";

/// Masks such texts; keeps its memory from text to text.
pub struct Beside {
    masked: Taking,
    taker: Option<Taker>,
    /// What a finding says.
    said: &'static str,
    line: String,
    findings: Vec<Finding>,
    met: Credentials,
}

impl Beside {
    /// By these settings. A credential becomes a finding that says `said`.
    pub fn of(settings: &Settings, said: &'static str) -> Self {
        let masked =
            Taking { personal: settings.pii_action != PiiAction::AlertOnly, secrets: settings.storage.mask_secrets };
        let looked_for =
            Taking { personal: masked.personal, secrets: masked.secrets || settings.enable_security_analysis };
        Self::new(masked, looked_for, said)
    }

    /// Masks what `masked` names, and finds nothing.
    pub fn quiet(masked: Taking) -> Self {
        Self::new(masked, masked, "")
    }

    fn new(masked: Taking, looked_for: Taking, said: &'static str) -> Self {
        let taker = (looked_for != Taking::default()).then(|| Taker::new(looked_for));
        Self { masked, taker, said, line: String::new(), findings: Vec::new(), met: Credentials::default() }
    }

    /// Whether it does anything.
    pub fn is_needed(&self) -> bool {
        self.taker.is_some()
    }

    /// What was found of credentials since this was called last.
    pub fn take_findings(&mut self) -> Vec<Finding> {
        self.met = Credentials::default();
        std::mem::take(&mut self.findings)
    }

    /// Takes the credentials that were met since then out of a text that may repeat them.
    pub fn mask_again(&self, text: &mut String) {
        self.met.mask(text);
    }

    /// Masks an event.
    pub fn event(&mut self, place: &str, event: &mut SpanEvent) {
        if let std::borrow::Cow::Owned(name) = &mut event.event_type {
            self.text(place, "", name);
        }
        self.text(place, "", &mut event.description);
        self.texts(place, &mut event.data);
    }

    /// Masks a reported action.
    pub fn action(&mut self, place: &str, action: &mut AgentAction) {
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

    /// Masks attributes, and names that may be more than names.
    pub fn pairs(&mut self, place: &str, pairs: &mut [(String, Value)]) {
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

    /// Masks one text; `place` and `name` say where it stands.
    pub fn text(&mut self, place: &str, name: &str, text: &mut String) {
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
                self.findings.push(finding(self.said, kind.trim_end_matches(']'), place, name));
            }
            let is_masked = if secret.is_some() { self.masked.secrets } else { self.masked.personal };
            if is_masked {
                if let Some(kind) = secret {
                    let words = self.line.get(piece.range.clone()).unwrap_or_default();
                    self.met.add(&kind.trim_end_matches(']').to_ascii_lowercase(), words);
                }
                out.push_str(self.line.get(done..piece.range.start).unwrap_or_default());
                out.push_str(piece.tag);
                done = piece.range.end;
            }
        }
        if done > before {
            out.push_str(self.line.get(done..).unwrap_or_default());
            *text = out;
        }
    }
}

fn finding(said: &'static str, kind: &str, place: &str, name: &str) -> Finding {
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
