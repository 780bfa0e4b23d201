//! What was found of a span then and what is found now, and what that comes to.
//!
//! Compared are the types of findings of one span, with their worst severity, and what `enforcement` makes of those of the request.
//! What other parts of the gateway found (budgets, models, the judge) is left out on both sides. What cannot be found again because
//! of what a record or a replay lacks (what was masked, what tools said before) counts as found again.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;
use weir_config::Settings;
use weir_config::settings::{Enforcement, ToolChanges};
use weir_config::vocab::{Finding, Severity};
use weir_inference::{ANOTHER_TOOL, CHANGE_SIGNS, CLASSIFIER, SECOND_STAGE, TOOL_CHANGED};
use weir_storage::record::SpanRecord;

use crate::enforce::{self, Decision};

/// Detectors that look again, beside the embedded classifier.
const REPLAYED: [&str; 7] = ["rules", "jailbreak", "pii", "secrets", "operator_rules", "actions", SECOND_STAGE];
/// Types that say how an analysis went, and not what it found.
const ABOUT_ANALYSIS: [&str; 3] = ["analysis_timeout", "analysis_truncated", "unreadable_body"];

/// What a record lacks for a faithful look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Lack {
    /// Its texts are gone, or were never kept.
    NoTexts,
    /// Credentials or personal data were masked: what was found of them counts as found again.
    Masked,
    /// What its tools said before is not known here: what was found of a change counts as found again.
    Changes,
    /// Only a part of a text was kept, or looked at.
    Cut,
    /// Something of it was never read.
    Unread,
    /// It says nothing of whose words stand where.
    NoParts,
    /// It was not analysed then.
    NotAnalysed,
    /// Time was up.
    Timeout,
    /// A detector failed.
    Failed,
    /// Models are not asked again.
    Models,
    /// The second stage left some of it to the words then.
    SecondStage,
}

impl Lack {
    pub(crate) const fn in_words(self) -> &'static str {
        match self {
            Self::NoTexts => "no texts are kept of it: not compared",
            Self::Masked => "credentials or personal data are masked: what was found of them counts as found again",
            Self::Changes => {
                "what its tools said before is not known here: what was found of a change counts as found again"
            }
            Self::Cut => "only a part of a text is kept, or was looked at",
            Self::Unread => "something of it was never read",
            Self::NoParts => "whose words stand where is not kept: all count as the user's and the model's",
            Self::NotAnalysed => "it was not analysed when it was sent: not compared",
            Self::Timeout => "`security_analysis_timeout_ms` was over before all of it had been looked at",
            Self::Failed => "a detector failed on it: not compared",
            Self::Models => "models are not asked again",
            Self::SecondStage => "the second stage had no time for some of it when it was sent, and has it now",
        }
    }
}

/// What `span` lacks, of which so many bytes of text can be looked at.
pub(crate) fn lacks(span: &SpanRecord, text_bytes: usize) -> Vec<Lack> {
    let tagged = |tags: &[&str]| tags.iter().any(|tag| span.tags.contains_key(*tag));
    let texts = [&span.prompt, &span.response];
    let masked = texts.into_iter().flatten().any(|text| is_masked(text));
    let known = [
        (text_bytes == 0, Lack::NoTexts),
        (masked, Lack::Masked),
        (span.security_findings.iter().any(is_of_change), Lack::Changes),
        (tagged(&["prompt_truncated", "response_truncated", "response_incomplete"]), Lack::Cut),
        (tagged(&["unscanned", "unscanned_response"]), Lack::Unread),
        (span.parts.is_empty() && text_bytes > 0, Lack::NoParts),
        (span.security_score.is_none(), Lack::NotAnalysed),
        (tagged(&["second_stage_skipped"]), Lack::SecondStage),
    ];
    known.into_iter().filter(|(lacks, _)| *lacks).map(|(_, lack)| lack).collect()
}

fn is_masked(text: &str) -> bool {
    text.contains("[SECRET:") || text.contains("[PII:")
}

/// What a look found, and what it lacked.
pub(crate) struct Look {
    pub(crate) findings: Vec<Finding>,
    pub(crate) lacks: Vec<Lack>,
}

/// One type of finding of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Seen {
    pub(crate) before: Option<Severity>,
    pub(crate) after: Option<Severity>,
}

/// What would be different of one span.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Change {
    /// The types that differ.
    pub(crate) findings: BTreeMap<String, Seen>,
    pub(crate) decision_before: String,
    pub(crate) decision_after: &'static str,
}

/// A type of finding over all spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub(crate) struct TypeTally {
    /// Calls in which it is found before.
    pub(crate) spans_before: u64,
    /// And after.
    pub(crate) spans_after: u64,
    /// Calls in which it is found after and not before.
    pub(crate) new: u64,
    /// The other way round.
    pub(crate) gone: u64,
    /// Calls in which it is found with another severity.
    pub(crate) severity_changed: u64,
}

/// An agent over all its spans; the empty name is that of calls that name none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
pub(crate) struct AgentTally {
    pub(crate) spans: u64,
    pub(crate) changed: u64,
    pub(crate) blocked_before: u64,
    pub(crate) blocked_after: u64,
    pub(crate) flagged_before: u64,
    pub(crate) flagged_after: u64,
}

/// Something that the settings would ask of a call and a replay does not: so that nobody takes its silence for an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Unasked {
    /// What findings and metrics call it.
    pub(crate) name: &'static str,
    /// What is therefore not said.
    pub(crate) what: &'static str,
}

/// All of it.
#[derive(Debug, Clone, Default, Serialize, JsonSchema)]
pub(crate) struct Tally {
    /// Spans that were looked at.
    pub(crate) spans: u64,
    /// Spans that were compared.
    pub(crate) compared: u64,
    /// Spans of which something would be different.
    pub(crate) changed: u64,
    /// By type of finding.
    pub(crate) by_type: BTreeMap<String, TypeTally>,
    /// By agent; the empty name is that of calls that name none.
    pub(crate) by_agent: BTreeMap<String, AgentTally>,
    /// Spans by what they lack.
    pub(crate) lacks: BTreeMap<Lack, u64>,
    /// Findings that no detector here makes again, by who made them.
    pub(crate) not_replayed: BTreeMap<String, u64>,
    /// What the settings would ask and nobody asks here.
    pub(crate) not_asked: Vec<Unasked>,
    /// Most names of agents that are counted by themselves; 0 for all there are.
    #[serde(skip)]
    pub(crate) agents_max: usize,
}

/// What calls of further agents count as.
const OTHER_AGENTS: &str = "(other agents)";

/// What is made of what is found.
#[derive(Clone, Copy)]
pub(crate) struct Terms<'a> {
    pub(crate) enforcement: &'a Enforcement,
    pub(crate) changes: ToolChanges,
}

impl<'a> Terms<'a> {
    pub(crate) fn of(settings: &'a Settings) -> Self {
        Self { enforcement: &settings.enforcement, changes: settings.security_analysis.tool_changes }
    }
}

impl Tally {
    /// Compares what was found of `span` with what is found `now`: what the record says was found or, where there is a look `before`,
    /// what that one found. `None` where nothing would be different.
    pub(crate) fn compare(
        &mut self,
        span: &SpanRecord,
        before: Option<(&Look, Terms<'_>)>,
        (now, terms): (&Look, Terms<'_>),
    ) -> Option<Change> {
        self.spans += 1;
        let lacks: BTreeSet<Lack> =
            now.lacks.iter().chain(before.iter().flat_map(|(look, _)| &look.lacks)).copied().collect();
        for lack in &lacks {
            *self.lacks.entry(*lack).or_default() += 1;
        }
        let agent = self.agent(span);
        let tally = self.by_agent.entry(agent.clone()).or_default();
        tally.spans += 1;
        if lacks.iter().any(|lack| matches!(lack, Lack::NoTexts | Lack::NotAnalysed | Lack::Failed)) {
            return None;
        }
        self.compared += 1;
        for finding in span.security_findings.iter().filter(|finding| !is_replayed(finding)) {
            *self.not_replayed.entry(finding.detector.to_string()).or_default() += 1;
        }
        let masked = lacks.contains(&Lack::Masked);
        let kept = |terms: &Terms<'_>| Kept { masked, changes: terms.changes };
        let mut types = seen(span, &now.findings, &kept(&terms));
        let after = decision_after(span, &now.findings, terms.enforcement, &kept(&terms));
        let before = match before {
            None => span.enforcement.to_string(),
            Some((look, terms)) => {
                let former = seen(span, &look.findings, &kept(&terms));
                types.values_mut().for_each(|seen| seen.before = None);
                for (name, of_former) in former {
                    let seen = types.entry(name).or_insert(Seen { before: None, after: None });
                    seen.before = of_former.after;
                }
                types.retain(|_, seen| seen.before.is_some() || seen.after.is_some());
                decision_after(span, &look.findings, terms.enforcement, &kept(&terms)).to_owned()
            }
        };
        let agent = self.by_agent.entry(agent).or_default();
        for (count, decision) in [(&mut agent.blocked_before, "blocked"), (&mut agent.flagged_before, "flagged")] {
            *count += u64::from(before == decision);
        }
        for (count, decision) in [(&mut agent.blocked_after, "blocked"), (&mut agent.flagged_after, "flagged")] {
            *count += u64::from(after == decision);
        }
        count_types(&mut self.by_type, &types);
        let findings: BTreeMap<String, Seen> =
            types.into_iter().filter(|(_, seen)| seen.before != seen.after).collect();
        if findings.is_empty() && before == after {
            return None;
        }
        self.changed += 1;
        agent.changed += 1;
        Some(Change { findings, decision_before: before, decision_after: after })
    }

    /// Under which name a call counts: agents' names are strangers' words, and no more of them are held than may be.
    fn agent(&self, span: &SpanRecord) -> String {
        let name = span.agent_id.clone().unwrap_or_default();
        let is_held =
            self.agents_max == 0 || self.by_agent.len() < self.agents_max || self.by_agent.contains_key(&name);
        if is_held { name } else { OTHER_AGENTS.to_owned() }
    }
}

/// Whether what a finding is about may be masked in the stored text.
fn is_maskable(finding: &Finding) -> bool {
    finding.metadata.contains_key("secret_type") || finding.finding_type == "pii_detected"
}

/// Whether a finding is about a definition of a tool beside those that came before.
fn is_of_change(finding: &Finding) -> bool {
    finding.finding_type == TOOL_CHANGED || finding.detector == "rules" && finding.metadata.contains_key(CHANGE_SIGNS)
}

/// What was found then and cannot be found again here.
struct Kept {
    masked: bool,
    /// What is done about changed definitions now.
    changes: ToolChanges,
}

impl Kept {
    /// How severe a finding would be that is taken for found again. `None` where it is not.
    fn severity(&self, finding: &Finding) -> Option<Severity> {
        if is_of_change(finding) {
            let is_change = finding.finding_type == TOOL_CHANGED && !finding.metadata.contains_key(ANOTHER_TOOL);
            return match self.changes {
                ToolChanges::Ignore => None,
                ToolChanges::Refuse if is_change => Some(Severity::High),
                ToolChanges::Record if is_change => Some(Severity::Low),
                ToolChanges::Refuse | ToolChanges::Record => Some(finding.severity),
            };
        }
        (self.masked && is_maskable(finding)).then_some(finding.severity)
    }
}

/// Whether a detector made it that looks again: of classifiers, the embedded one alone.
fn is_replayed(finding: &Finding) -> bool {
    let is_embedded = || finding.metadata.get("model").is_some_and(|model| model == "embedded");
    REPLAYED.contains(&&*finding.detector) || finding.detector == CLASSIFIER && is_embedded()
}

fn is_compared(finding: &Finding) -> bool {
    is_replayed(finding) && !is_reported(finding) && !ABOUT_ANALYSIS.contains(&&*finding.finding_type)
}

/// Whether it is about an action that an application reported: that is no part of the call, and is not looked at again.
fn is_reported(finding: &Finding) -> bool {
    finding.location.starts_with("action.")
}

fn seen(span: &SpanRecord, now: &[Finding], kept: &Kept) -> BTreeMap<String, Seen> {
    let mut types: BTreeMap<String, Seen> = BTreeMap::new();
    let nothing = Seen { before: None, after: None };
    for finding in span.security_findings.iter().filter(|finding| is_compared(finding)) {
        let seen = types.entry(finding.finding_type.to_string()).or_insert(nothing);
        seen.before = seen.before.max(Some(finding.severity));
        seen.after = seen.after.max(kept.severity(finding));
    }
    for finding in now.iter().filter(|finding| is_compared(finding)) {
        let seen = types.entry(finding.finding_type.to_string()).or_insert(nothing);
        seen.after = seen.after.max(Some(finding.severity));
    }
    types
}

/// What `rules` would make of the request.
fn decision_after(span: &SpanRecord, now: &[Finding], rules: &Enforcement, kept: &Kept) -> &'static str {
    let is_of_request = |finding: &&Finding| finding.location.starts_with("request");
    // How this look went says nothing of the request.
    let found = now.iter().filter(is_of_request).filter(|finding| is_compared(finding)).cloned();
    let stays = |finding: &Finding| {
        let severity = if is_compared(finding) { kept.severity(finding)? } else { finding.severity };
        Some(Finding { severity, ..finding.clone() })
    };
    let kept = span.security_findings.iter().filter(is_of_request).filter_map(stays);
    let all: Vec<Finding> = found.chain(kept).collect();
    let decision: Decision = enforce::decide(&all, rules);
    decision.as_str()
}

fn count_types(by_type: &mut BTreeMap<String, TypeTally>, types: &BTreeMap<String, Seen>) {
    for (finding_type, Seen { before, after }) in types {
        let tally = by_type.entry(finding_type.clone()).or_default();
        tally.spans_before += u64::from(before.is_some());
        tally.spans_after += u64::from(after.is_some());
        match (before, after) {
            (None, Some(_)) => tally.new += 1,
            (Some(_), None) => tally.gone += 1,
            (before, after) => tally.severity_changed += u64::from(before != after),
        }
    }
}
