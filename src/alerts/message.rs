//! What a channel is told, in the form of each receiver. Evidence, and names of models and agents, are strangers' text: they
//! are cut to the receiver's limits, and where the receiver reads marks in text, they are written so that they hold none.

use serde_json::{Value, json};
use uuid::Uuid;
use weir_config::vocab::{Finding, Severity};
use weir_storage::record::SpanRecord;

/// Characters of one name or one piece of evidence.
const NAME_CHARACTERS: usize = 120;
const EVIDENCE_CHARACTERS: usize = 400;

/// What is told of findings of one type in one tenant.
#[derive(Debug, Clone)]
pub(super) struct Notice {
    /// Findings it stands for.
    pub(super) count: u64,
    is_summary: bool,
    first: Uuid,
    finding_type: String,
    severity: Severity,
    score: u8,
    tenant: String,
    trace: String,
    span: String,
    timestamp: String,
    provider: String,
    model: Option<String>,
    agent: Option<String>,
    description: String,
    evidence: String,
    findings: Vec<Finding>,
}

impl Notice {
    pub(super) fn of(span: &SpanRecord, finding: &Finding) -> Self {
        let mut told = finding.clone();
        told.evidence = cut(&finding.evidence, EVIDENCE_CHARACTERS);
        told.description = cut(&finding.description, EVIDENCE_CHARACTERS).into();
        Self {
            count: 1,
            is_summary: false,
            first: finding.id,
            finding_type: cut(&finding.finding_type, NAME_CHARACTERS),
            severity: finding.severity,
            score: span.security_score.unwrap_or_default(),
            tenant: span.tenant_id.to_string(),
            trace: span.trace_id.to_string(),
            span: span.span_id.to_string(),
            timestamp: span.end_time.to_string(),
            provider: cut(&span.provider, NAME_CHARACTERS),
            model: span.model.as_deref().map(|model| cut(model, NAME_CHARACTERS)),
            agent: span.agent_id.as_deref().map(|agent| cut(agent, NAME_CHARACTERS)),
            description: cut(&finding.description, EVIDENCE_CHARACTERS),
            evidence: told.evidence.clone(),
            findings: vec![told],
        }
    }

    /// The same without what was found, to be kept for the summary.
    pub(super) fn without_findings(mut self) -> Self {
        (self.findings, self.evidence) = (Vec::new(), String::new());
        self
    }

    /// That there were `count` more since.
    pub(super) fn summary(&self, count: u64) -> Self {
        Self { count, is_summary: true, first: Uuid::new_v4(), ..self.clone() }
    }

    /// The same for each attempt, so that a receiver can tell what it has.
    pub(super) fn id(&self) -> String {
        format!("msg_{}", self.first.simple())
    }

    fn headline(&self) -> String {
        let Self { severity, finding_type, tenant, count, .. } = self;
        match (self.is_summary, count) {
            (true, count) => format!("{severity}: {count} more {finding_type} in tenant {tenant}"),
            (false, 1) => format!("{severity}: {finding_type} in tenant {tenant}"),
            (false, count) => format!("{severity}: {count} times {finding_type} in tenant {tenant}"),
        }
    }

    /// Our own JSON.
    pub(super) fn webhook(&self) -> Value {
        json!({
            "version": 1,
            "alert_type": self.finding_type,
            "severity": self.severity,
            "security_score": self.score,
            "summary": self.is_summary,
            "count": self.count,
            "trace_id": self.trace,
            "span_id": self.span,
            "tenant_id": self.tenant,
            "timestamp": self.timestamp,
            "provider": self.provider,
            "model": self.model,
            "agent_id": self.agent,
            "findings": self.findings,
        })
    }

    /// Slack's incoming webhook: <https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks>.
    pub(super) fn slack(&self) -> Value {
        let headline = cut(&visible(&self.headline()), 150);
        let mut lines = vec![format!("Score {}, trace `{}`", self.score, code(&self.trace))];
        let names =
            [("Provider", Some(&self.provider)), ("Model", self.model.as_ref()), ("Agent", self.agent.as_ref())];
        let named = names.into_iter().filter_map(|(what, name)| name.map(|name| format!("{what} `{}`", code(name))));
        lines.extend(named);
        if !self.is_summary {
            lines.push(format!("`{}`", code(&self.description)));
        }
        if !self.evidence.is_empty() {
            lines.push(format!("Evidence `{}`", code(&self.evidence)));
        }
        // Cut by characters of the escaped text, at a line's end: no escape is broken.
        let mut section = String::new();
        for line in lines {
            if section.chars().count() + line.chars().count() < 2_900 {
                section.push_str(&line);
                section.push('\n');
            }
        }
        json!({
            "text": code(&headline),
            "blocks": [
                {"type": "header", "text": {"type": "plain_text", "text": headline, "emoji": false}},
                {"type": "section", "text": {"type": "mrkdwn", "text": section, "verbatim": true}},
            ],
        })
    }

    /// PagerDuty's Events API v2: <https://developer.pagerduty.com/docs/events-api-v2/trigger-events/>.
    pub(super) fn pagerduty(&self, routing_key: &str) -> Value {
        let severity = match self.severity {
            Severity::Critical => "critical",
            Severity::High => "error",
            Severity::Medium => "warning",
            Severity::Low | Severity::Info => "info",
        };
        json!({
            "routing_key": routing_key,
            "event_action": "trigger",
            "dedup_key": format!("weir/{}/{}", self.tenant, cut(&self.finding_type, 100)),
            "client": "Weir",
            "payload": {
                "summary": cut(&visible(&self.headline()), 1_024),
                "source": "weir",
                "severity": severity,
                "timestamp": self.timestamp,
                "component": self.provider,
                "group": self.tenant,
                "class": self.finding_type,
                "custom_details": {
                    "trace_id": self.trace,
                    "span_id": self.span,
                    "security_score": self.score,
                    "count": self.count,
                    "model": self.model,
                    "agent_id": self.agent,
                    "description": self.description,
                    "evidence": visible(&self.evidence),
                },
            },
        })
    }
}

/// The first `characters` of `text`.
pub(super) fn cut(text: &str, characters: usize) -> String {
    text.chars().take(characters).collect()
}

/// Without control characters and without marks that turn the direction of writing.
fn visible(text: &str) -> String {
    let hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}')
    };
    text.chars().map(|c| if hidden(c) { ' ' } else { c }).collect()
}

/// For the inside of a code span in Slack's marks: `&`, `<` and `>` escaped, so that no mention and no link begins, and no
/// backtick, which would end it. The result has at most 2,000 characters for 400.
fn code(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in visible(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '`' => out.push('\''),
            c => out.push(c),
        }
    }
    out
}
