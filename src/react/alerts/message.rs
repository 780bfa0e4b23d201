//! What a channel is told, in the form of each receiver. Evidence, and names of models and agents, are strangers' text: they
//! are cut to the receiver's limits, and where the receiver reads marks in text, they are written so that they hold none.

use serde_json::{Value, json};
use uuid::Uuid;
use weir_config::vocab::{Finding, Severity, TenantId, Timestamp};
use weir_storage::alerts::{AlertKey, AlertRecord, Step};
use weir_storage::record::SpanRecord;

use super::cooldown::Missed;
use super::text::{code, cut, visible};

/// Characters of one name or one piece of evidence.
const NAME_CHARACTERS: usize = 120;
const EVIDENCE_CHARACTERS: usize = 400;
/// Characters of a message's subject.
const SUBJECT_CHARACTERS: usize = 200;

/// Why a message is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// Something was found.
    Raised,
    /// There was more of it since that time.
    Summary(Timestamp),
    /// Nobody has acknowledged what this channel was told.
    Escalated(String),
    /// It is over.
    Resolved,
    /// Somebody tries the channel.
    Test,
}

/// What is told of findings of one type in one tenant.
#[derive(Debug, Clone)]
pub(super) struct Notice {
    kind: Kind,
    /// The same for each attempt, so that a receiver can tell what it has.
    id: String,
    /// By which it is acknowledged.
    pub(super) alert: Option<Uuid>,
    /// Findings it stands for.
    pub(super) count: u64,
    finding_type: String,
    severity: Severity,
    score: u8,
    tenant: TenantId,
    /// Where the finding stands among those of its call.
    nth: usize,
    /// What it is called, where somebody has named it.
    tenant_name: Option<String>,
    /// The call's page in the console.
    link: Option<String>,
    /// What was found in the same call besides: types and severities.
    also: Vec<(String, Severity)>,
    trace: Option<String>,
    span: Option<String>,
    timestamp: String,
    provider: Option<String>,
    model: Option<String>,
    agent: Option<String>,
    description: String,
    evidence: String,
    findings: Vec<Finding>,
}

impl Notice {
    /// That something was found in a call.
    pub(super) fn of(span: &SpanRecord, finding: &Finding) -> Self {
        let mut told = finding.clone();
        told.evidence = cut(&finding.evidence, EVIDENCE_CHARACTERS);
        told.description = cut(&finding.description, EVIDENCE_CHARACTERS).into();
        Self {
            score: span.security_score.unwrap_or_default(),
            trace: Some(span.trace_id.to_string()),
            span: Some(span.span_id.to_string()),
            timestamp: span.end_time.to_string(),
            provider: Some(cut(&span.provider, NAME_CHARACTERS)),
            model: span.model.as_deref().map(|model| cut(model, NAME_CHARACTERS)),
            agent: span.agent_id.as_deref().map(|agent| cut(agent, NAME_CHARACTERS)),
            description: cut(&finding.description, EVIDENCE_CHARACTERS),
            evidence: told.evidence.clone(),
            findings: vec![told],
            ..Self::plain(finding.id, span.tenant_id, &finding.finding_type, finding.severity)
        }
    }

    /// That something is the matter with the gateway itself.
    pub(super) fn of_condition(id: Uuid, finding_type: &str, severity: Severity, description: &str) -> Self {
        let description = cut(description, EVIDENCE_CHARACTERS);
        Self { description, ..Self::plain(id, TenantId::DEFAULT, finding_type, severity) }
    }

    /// The next message about an alert.
    pub(super) fn about(alert: &AlertRecord, step: Step) -> Self {
        let (kind, named, count) = match step {
            Step::Summary => (Kind::Summary(alert.notified_at), "summary", alert.suppressed),
            Step::Escalation => {
                let from = alert.escalated_to.as_ref().unwrap_or(&alert.channel);
                (Kind::Escalated(from.clone()), "escalation", alert.count)
            }
            Step::Resolution => (Kind::Resolved, "resolution", alert.count),
            Step::Closing => (Kind::Resolved, "closing", alert.count),
        };
        // A channel that was told before it may have the same receiver as the next one.
        let since = alert.escalated_at.filter(|_| step == Step::Escalation).unwrap_or(alert.notified_at);
        Self {
            kind,
            id: format!("msg_{}_{named}_{}", alert.id.simple(), since.micros()),
            alert: Some(alert.id),
            count,
            score: alert.security_score,
            trace: alert.trace_id.map(|trace| trace.to_string()),
            span: alert.span_id.map(|span| span.to_string()),
            timestamp: alert.last_at.to_string(),
            ..Self::plain(alert.id, alert.tenant_id, &alert.finding_type, alert.severity)
        }
    }

    /// How many more there were than the channel was told of, where the store keeps nothing of it.
    pub(super) fn of_missed(key: &AlertKey, missed: &Missed) -> Self {
        let Missed { id, since, count, severity, security_score, .. } = missed;
        Self {
            kind: Kind::Summary(*since),
            id: format!("msg_{}_summary_{}", id.simple(), since.micros()),
            count: *count,
            score: *security_score,
            ..Self::plain(*id, key.tenant, &key.finding_type, *severity)
        }
    }

    /// The message that says that this alert is resolved.
    pub(super) fn resolved(&self) -> Self {
        Self { kind: Kind::Resolved, id: format!("{}_resolution", self.id), ..self.clone() }
    }

    /// That somebody tries the channel.
    pub(super) fn test() -> Self {
        let description = "This is a test of the channel: nothing was found, and nothing is to be done.".to_owned();
        Self { kind: Kind::Test, description, ..Self::plain(Uuid::new_v4(), TenantId::DEFAULT, "test", Severity::Info) }
    }

    fn plain(id: Uuid, tenant: TenantId, finding_type: &str, severity: Severity) -> Self {
        Self {
            kind: Kind::Raised,
            id: format!("msg_{}", id.simple()),
            alert: None,
            count: 1,
            finding_type: cut(finding_type, NAME_CHARACTERS),
            severity,
            score: 0,
            tenant,
            nth: 0,
            tenant_name: None,
            link: None,
            also: Vec::new(),
            trace: None,
            span: None,
            timestamp: Timestamp::now().to_string(),
            provider: None,
            model: None,
            agent: None,
            description: String::new(),
            evidence: String::new(),
            findings: Vec::new(),
        }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// The same about the finding at this place of its call.
    pub(super) fn nth(mut self, place: usize) -> Self {
        self.nth = place;
        self
    }

    /// Where its finding stands among those of the call.
    pub(super) const fn place(&self) -> usize {
        self.nth
    }

    /// The same message, which tells of another one's findings, too.
    pub(super) fn with(mut self, other: &Self) -> Self {
        self.also.push((other.finding_type.clone(), other.severity));
        self.findings.extend(other.findings.iter().cloned());
        self
    }

    /// The same with the tenant's name, and a link into the console at `origin`.
    pub(super) fn addressed(&self, name: Option<String>, origin: Option<&str>) -> Self {
        let page = |origin: &str| Some(format!("{origin}/ui/trace?id={}", self.trace.as_ref()?));
        Self { tenant_name: name.map(|name| cut(&name, NAME_CHARACTERS)), link: origin.and_then(page), ..self.clone() }
    }

    /// The tenant, for people.
    fn whose(&self) -> String {
        match &self.tenant_name {
            Some(name) => format!("tenant {name}"),
            None if self.tenant == TenantId::DEFAULT => "the default tenant".to_owned(),
            None => format!("tenant {}", self.tenant),
        }
    }

    /// The types it tells of.
    fn types(&self) -> String {
        let also = self.also.iter().map(|(finding_type, _)| finding_type.as_str());
        std::iter::once(self.finding_type.as_str()).chain(also).collect::<Vec<_>>().join(", ")
    }

    /// Whether it opens something that has to be closed again.
    pub(super) fn is_test(&self) -> bool {
        self.kind == Kind::Test
    }

    fn headline(&self) -> String {
        let Self { severity, count, .. } = self;
        let (types, whose) = (self.types(), self.whose());
        match (&self.kind, count) {
            (Kind::Raised, 1) => format!("{severity}: {types} in {whose}"),
            (Kind::Raised, count) => format!("{severity}: {count} times {types} in {whose}"),
            (Kind::Summary(since), count) => {
                format!("{severity}: and {count} more {types} in {whose} since {}", minute(*since))
            }
            (Kind::Escalated(_), _) => format!("{severity}, not acknowledged: {types} in {whose}"),
            (Kind::Resolved, _) => format!("Resolved: {types} in {whose}"),
            (Kind::Test, _) => "Test of a channel of alerts: nothing was found".to_owned(),
        }
    }

    /// Names and values, each on a line of its own: what every form for people has.
    fn lines(&self) -> Vec<(&'static str, String)> {
        let also: Vec<String> = self.also.iter().map(|(name, severity)| format!("{name} ({severity})")).collect();
        let also = also.join(", ");
        let mut lines = Vec::new();
        let mut line = |name, value: Option<&str>| lines.extend(value.map(|value| (name, value.to_owned())));
        let filled = |text| Some(text).filter(|text: &&str| !text.is_empty());
        if let Kind::Escalated(channel) = &self.kind {
            line("Told before", Some(channel));
        }
        line("Score", (self.score > 0).then(|| self.score.to_string()).as_deref());
        line("Also found", filled(&also));
        line("Trace", self.trace.as_deref());
        line("Provider", self.provider.as_deref().and_then(filled));
        line("Model", self.model.as_deref());
        line("Agent", self.agent.as_deref());
        line("About", filled(&self.description));
        line("Evidence", filled(&self.evidence));
        line("Alert", self.alert.map(|id| id.to_string()).as_deref());
        line("Tenant", self.tenant_name.as_ref().map(|_| self.tenant.to_string()).as_deref());
        lines
    }

    /// Our own JSON.
    pub(super) fn webhook(&self) -> Value {
        let escalated_from = if let Kind::Escalated(channel) = &self.kind { Some(channel) } else { None };
        let alert_type = match self.kind {
            Kind::Resolved => "resolved",
            _ => &self.finding_type,
        };
        json!({
            "version": 1,
            "alert_type": alert_type,
            "finding_type": self.finding_type,
            "alert_id": self.alert,
            "severity": self.severity,
            "security_score": self.score,
            "summary": matches!(self.kind, Kind::Summary(_)),
            "escalated_from": escalated_from,
            "test": self.is_test(),
            "count": self.count,
            "trace_id": self.trace,
            "span_id": self.span,
            "tenant_id": self.tenant,
            "tenant_name": self.tenant_name,
            "also": self.also.iter().map(|(finding_type, _)| finding_type).collect::<Vec<_>>(),
            "link": self.link,
            "timestamp": self.timestamp,
            "provider": self.provider,
            "model": self.model,
            "agent_id": self.agent,
            "description": self.description,
            "findings": self.findings,
        })
    }

    /// Slack's incoming webhook: <https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks>.
    pub(super) fn slack(&self) -> Value {
        let headline = cut(&visible(&self.headline()), 150);
        // Cut by characters of the escaped text, at a line's end: no escape is broken.
        let mut section = String::new();
        for (name, value) in self.lines() {
            let line = format!("{name} `{}`", code(&value));
            if section.chars().count() + line.chars().count() < 2_900 {
                section.push_str(&line);
                section.push('\n');
            }
        }
        let mut blocks = vec![json!({
            "type": "header", "text": {"type": "plain_text", "text": headline, "emoji": false},
        })];
        if let Some(link) = &self.link {
            // Of the settings and an id: nothing in it is a stranger's.
            section.push_str(&format!("<{link}|Open the call in the console>\n"));
        }
        if !section.is_empty() {
            blocks.push(json!({
                "type": "section", "text": {"type": "mrkdwn", "text": section, "verbatim": true},
            }));
        }
        json!({"text": code(&headline), "blocks": blocks})
    }

    /// PagerDuty's Events API v2: <https://developer.pagerduty.com/docs/events-api-v2/trigger-events/>.
    pub(super) fn pagerduty(&self, routing_key: &str) -> Value {
        let dedup_key = if self.is_test() {
            format!("weir/test/{}", self.id)
        } else {
            format!("weir/{}/{}", self.tenant, cut(&self.finding_type, 100))
        };
        if self.kind == Kind::Resolved {
            return json!({"routing_key": routing_key, "event_action": "resolve", "dedup_key": dedup_key});
        }
        let links: Vec<Value> =
            self.link.iter().map(|link| json!({"href": link, "text": "The call in the console"})).collect();
        let severity = match self.severity {
            Severity::Critical => "critical",
            Severity::High => "error",
            Severity::Medium => "warning",
            Severity::Low | Severity::Info => "info",
        };
        json!({
            "routing_key": routing_key,
            "event_action": "trigger",
            "dedup_key": dedup_key,
            "client": "Weir",
            "links": links,
            "payload": {
                "summary": cut(&visible(&self.headline()), 1_024),
                "source": "weir",
                "severity": severity,
                "timestamp": self.timestamp,
                "component": self.provider.as_deref().unwrap_or("weir"),
                "group": self.tenant,
                "class": self.finding_type,
                "custom_details": {
                    "alert_id": self.alert,
                    "also": self.also.iter().map(|(finding_type, _)| finding_type).collect::<Vec<_>>(),
                    "tenant_name": self.tenant_name,
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

    /// The event that closes what a test has opened at PagerDuty.
    pub(super) fn closes(&self, routing_key: &str) -> Value {
        json!({
            "routing_key": routing_key,
            "event_action": "resolve",
            "dedup_key": format!("weir/test/{}", self.id),
        })
    }

    /// A mail's subject and text.
    pub(super) fn mail(&self) -> (String, String) {
        let subject = format!("[Weir] {}", visible(&self.headline()));
        let mut text = format!("{}\r\n\r\n", visible(&self.headline()));
        for (name, value) in self.lines() {
            text.push_str(&format!("{name}: {}\r\n", visible(&value)));
        }
        text.push_str(&format!("Time: {}\r\n", self.timestamp));
        if let Some(link) = &self.link {
            text.push_str(&format!("In the console: {link}\r\n"));
        }
        if let Some(alert) = self.alert.filter(|_| self.kind != Kind::Resolved) {
            text.push_str(&format!("\r\nAcknowledge it with POST /api/v1/alerts/{alert}/ack\r\n"));
        }
        (cut(&subject, SUBJECT_CHARACTERS), text)
    }
}

/// The minute of a moment, in UTC.
fn minute(at: Timestamp) -> String {
    let text = at.to_string();
    text.get(11..16).map_or_else(|| text.clone(), |minute| format!("{minute} UTC"))
}
