//! Allow rules: words that an operator knows to be harmless, of whom, and which findings in them are meant.
//!
//! An allowed finding stays in the record, as what it is now: of its own type and without weight, with the name of the rule
//! that allows it. Invariants: only a finding whose words lie inside the phrase is allowed, so that an order around it is
//! still found; matching is linear.

use regex_automata::meta::Regex;
use regex_automata::util::syntax;
use serde::Deserialize;
use weir_config::vocab::{FINDING_ALLOWED, Finding, Severity, TenantId};

/// Shortest phrase, in bytes: shorter ones would allow too much.
const PHRASE_MIN: usize = 8;
/// Longest phrase, in bytes.
const PHRASE_MAX: usize = 512;
/// Longest name of a rule, in bytes.
const ID_BYTES_MAX: usize = 64;
/// Most phrases, and most names in each of the other lists, of one rule.
const LIST_MAX: usize = 32;

/// As it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAllow {
    pub(super) id: String,
    about: String,
    phrases: Vec<String>,
    /// Finding types; none = all.
    #[serde(default)]
    types: Vec<String>,
    /// Rules; none = all.
    #[serde(default)]
    rules: Vec<String>,
    /// Agents; none = all.
    #[serde(default)]
    agents: Vec<String>,
    /// Tenants; none = all.
    #[serde(default)]
    tenants: Vec<TenantId>,
}

/// One allow rule.
#[derive(Debug)]
pub(crate) struct Allow {
    id: String,
    about: String,
    phrases: Regex,
    types: Vec<String>,
    rules: Vec<String>,
    agents: Vec<String>,
    tenants: Vec<TenantId>,
}

impl Allow {
    pub(super) fn new(raw: RawAllow) -> Result<Self, String> {
        check_id(&raw.id)?;
        for (field, count) in [
            ("phrases", raw.phrases.len()),
            ("types", raw.types.len()),
            ("rules", raw.rules.len()),
            ("agents", raw.agents.len()),
            ("tenants", raw.tenants.len()),
        ] {
            if count > LIST_MAX || (field == "phrases" && count == 0) {
                return Err(format!("`{field}` holds {count}; 1 to {LIST_MAX} are accepted; make two rules of it"));
            }
        }
        if let Some(phrase) =
            raw.phrases.iter().find(|phrase| !(PHRASE_MIN..=PHRASE_MAX).contains(&phrase.trim().len()))
        {
            return Err(format!(
                "`phrases`: `{phrase}` has {} bytes; {PHRASE_MIN} to {PHRASE_MAX} are accepted; give the whole words of the \
                 harmless text",
                phrase.trim().len()
            ));
        }
        let phrases: Vec<String> = raw.phrases.iter().map(|phrase| pattern(phrase)).collect();
        let phrases = Regex::builder()
            .syntax(syntax::Config::new().unicode(false).utf8(false).case_insensitive(true))
            .build(&phrases.join("|"))
            .map_err(|error| format!("`phrases` are too long together: {error}; make two rules of them"))?;
        let RawAllow { id, about, types, rules, agents, tenants, .. } = raw;
        Ok(Self { id, about, phrases, types, rules, agents, tenants })
    }

    /// Whether it is about what this tenant's agent sends.
    pub(crate) fn is_for(&self, tenant: TenantId, agent: Option<&str>) -> bool {
        let named =
            |names: &[String]| names.is_empty() || agent.is_some_and(|agent| names.iter().any(|name| name == agent));
        named(&self.agents) && (self.tenants.is_empty() || self.tenants.contains(&tenant))
    }

    /// Makes an allowed finding of one about words of `text` that lie inside one of the phrases.
    pub(crate) fn apply(&self, text: &str, finding: &mut Finding) {
        let Some(span) = finding.span else { return };
        let rule = finding.metadata.get("rule");
        let is_meant = (self.types.is_empty() || self.types.iter().any(|meant| *meant == finding.finding_type))
            && (self.rules.is_empty() || self.rules.iter().any(|meant| Some(meant) == rule))
            && finding.finding_type != FINDING_ALLOWED;
        let lies_inside =
            || self.phrases.find_iter(text).any(|phrase| phrase.start() <= span.start && span.end <= phrase.end());
        if !is_meant || !lies_inside() {
            return;
        }
        let was = std::mem::replace(&mut finding.finding_type, FINDING_ALLOWED.into());
        let severity = std::mem::replace(&mut finding.severity, Severity::Info);
        finding.requires_alert = false;
        finding.description = format!("{}; the allow rule says: {}", finding.description, self.about).into();
        finding.metadata.insert("allowed_by".to_owned(), self.id.clone());
        finding.metadata.insert("allowed_type".to_owned(), was.into_owned());
        finding.metadata.insert("allowed_severity".to_owned(), severity.to_string());
    }
}

/// The pattern of a phrase: its words with any white space between them.
fn pattern(phrase: &str) -> String {
    phrase.split_whitespace().map(regex_syntax::escape).collect::<Vec<_>>().join(r"\s+")
}

/// Checks a rule's name: it stands in findings, in labels and on command lines.
pub(super) fn check_id(id: &str) -> Result<(), String> {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    if (1..=ID_BYTES_MAX).contains(&id.len()) && id.bytes().all(fits) {
        return Ok(());
    }
    Err(format!("`id`: use 1 to {ID_BYTES_MAX} of a-z, 0-9, `-` and `_`"))
}
