//! What was found of a span then and what is found now, and what that comes to.
//!
//! Compared are the types of findings of one span, with their worst severity, and what `enforcement` makes of those of the request.
//! What other parts of the gateway found (budgets, models, the judge) is left out on both sides. What cannot be found again because
//! of what a record or a replay lacks (what was masked, what tools said before) counts as found again.

use std::collections::BTreeMap;

use serde::Serialize;
use weir_config::settings::{Enforcement, ToolChanges};
use weir_config::vocab::{Finding, Severity};
use weir_inference::{ANOTHER_TOOL, CHANGE_SIGNS, CLASSIFIER, TOOL_CHANGED};
use weir_storage::record::SpanRecord;

use super::unasked::Unasked;
use crate::enforce::{self, Decision};

/// Detectors that look again, beside the embedded classifier.
const REPLAYED: [&str; 6] = ["rules", "jailbreak", "pii", "secrets", "operator_rules", "actions"];
/// Types that say how an analysis went, and not what it found.
const ABOUT_ANALYSIS: [&str; 3] = ["analysis_timeout", "analysis_truncated", "unreadable_body"];

/// What a record lacks for a faithful look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Lack {
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
}

impl Lack {
    pub(super) const fn in_words(self) -> &'static str {
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
        }
    }
}

/// What `span` lacks, of which so many bytes of text can be looked at.
pub(super) fn lacks(span: &SpanRecord, text_bytes: usize) -> Vec<Lack> {
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
    ];
    known.into_iter().filter(|(lacks, _)| *lacks).map(|(_, lack)| lack).collect()
}

fn is_masked(text: &str) -> bool {
    text.contains("[SECRET:") || text.contains("[PII:")
}

/// One type of finding of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct Seen {
    pub(super) before: Option<Severity>,
    pub(super) after: Option<Severity>,
}

/// What would be different of one span.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Change {
    /// The types that differ.
    pub(super) findings: BTreeMap<String, Seen>,
    pub(super) decision_before: String,
    pub(super) decision_after: &'static str,
}

/// A type of finding over all spans.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(super) struct TypeTally {
    pub(super) spans_before: u64,
    pub(super) spans_after: u64,
    pub(super) new: u64,
    pub(super) gone: u64,
    pub(super) severity_changed: u64,
}

/// An agent over all its spans; the empty name is that of calls that name none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(super) struct AgentTally {
    pub(super) spans: u64,
    pub(super) changed: u64,
    pub(super) blocked_before: u64,
    pub(super) blocked_after: u64,
    pub(super) flagged_before: u64,
    pub(super) flagged_after: u64,
}

/// All of it.
#[derive(Debug, Default, Serialize)]
pub(super) struct Tally {
    pub(super) spans: u64,
    /// Spans that were compared.
    pub(super) compared: u64,
    pub(super) changed: u64,
    pub(super) by_type: BTreeMap<String, TypeTally>,
    pub(super) by_agent: BTreeMap<String, AgentTally>,
    /// Spans by what they lack.
    pub(super) lacks: BTreeMap<Lack, u64>,
    /// Findings that no detector here makes again, by who made them.
    pub(super) not_replayed: BTreeMap<String, u64>,
    /// What the settings would ask and nobody asks here.
    pub(super) not_asked: Vec<Unasked>,
}

impl Tally {
    /// Counts a span that nobody could look at.
    pub(super) fn not_looked_at(&mut self, span: &SpanRecord, lack: Lack) {
        self.spans += 1;
        *self.lacks.entry(lack).or_default() += 1;
        self.by_agent.entry(agent(span)).or_default().spans += 1;
    }

    /// Compares what was found of `span` with what is found now. `None` where nothing would be different.
    pub(super) fn compare(
        &mut self,
        span: &SpanRecord,
        now: &[Finding],
        lacks: &[Lack],
        (rules, changes): (&Enforcement, ToolChanges),
    ) -> Option<Change> {
        self.spans += 1;
        for lack in lacks {
            *self.lacks.entry(*lack).or_default() += 1;
        }
        let agent = self.by_agent.entry(agent(span)).or_default();
        agent.spans += 1;
        if lacks.iter().any(|lack| matches!(lack, Lack::NoTexts | Lack::NotAnalysed | Lack::Failed)) {
            return None;
        }
        self.compared += 1;
        for finding in span.security_findings.iter().filter(|finding| !is_replayed(finding)) {
            *self.not_replayed.entry(finding.detector.to_string()).or_default() += 1;
        }
        let kept = Kept { masked: lacks.contains(&Lack::Masked), changes };
        let types = seen(span, now, &kept);
        let after = decision_after(span, now, rules, &kept);
        let before = &*span.enforcement;
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
        Some(Change { findings, decision_before: before.to_owned(), decision_after: after })
    }
}

fn agent(span: &SpanRecord) -> String {
    span.agent_id.clone().unwrap_or_default()
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
