//! The action `webhook`: a message for each call whose findings ask for one, signed as Standard Webhooks says.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use weir_config::settings::{ActionRouter, RouterAction};
use weir_config::vocab::{Finding, SpanId, Timestamp};
use weir_storage::record::SpanRecord;

use super::SOURCE;
use super::follow::{Follow, follow};
use super::tally::{Tally, Unable};
use crate::feed::{Batch, Consumer, Failure};
use crate::outbound::{Call, Client, Limits, signature};

/// Findings in one message, and characters of the words one was found by.
const FINDINGS_MAX: usize = 100;
const EVIDENCE_CHARACTERS: usize = 400;
/// Nobody is told of what is older.
const TOO_OLD_US: i64 = 3_600_000_000;
/// Of the answer only the status is asked.
const ANSWER_BYTES: usize = 4_096;

/// The consumer that tells the receiver.
pub(super) struct Webhook {
    settings: Arc<ActionRouter>,
    client: Client,
    tally: Arc<Tally>,
    /// What was accepted of the batch under way: when it comes again, that is not sent again.
    accepted: HashSet<SpanId>,
}

impl Webhook {
    pub(super) fn new(settings: Arc<ActionRouter>, client: Client, tally: Arc<Tally>) -> Self {
        Self { settings, client, tally, accepted: HashSet::new() }
    }
}

impl Consumer for Webhook {
    fn name(&self) -> &'static str {
        "action_webhook"
    }

    fn reads_alone(&self) -> bool {
        true
    }

    fn heeds_clean_calls(&self) -> bool {
        false
    }

    async fn take(&mut self, batch: Batch<'_>) -> Result<(), Failure> {
        for span in batch.spans {
            let to = follow(span, &self.settings);
            if to.asked.has(RouterAction::Webhook) && !self.accepted.contains(&span.span_id) {
                self.tell(span, to).await?;
                self.accepted.insert(span.span_id);
            }
        }
        self.accepted.clear();
        Ok(())
    }
}

impl Webhook {
    /// An error only where the receiver may take it later.
    async fn tell(&self, span: &SpanRecord, to: Follow) -> Result<(), Failure> {
        if span.end_time.micros() < Timestamp::now().micros().saturating_sub(TOO_OLD_US) {
            self.tally.unable(RouterAction::Webhook, Unable::Expired);
            return Ok(());
        }
        match self.send(span, to).await {
            Ok(()) => self.tally.executed(RouterAction::Webhook),
            Err(Failure::Never { reason }) => {
                self.tally.unable(RouterAction::Webhook, Unable::Refused);
                tracing::warn!(reason, "an action webhook was refused and is not sent again");
            }
            Err(later) => return Err(later),
        }
        Ok(())
    }

    async fn send(&self, span: &SpanRecord, to: Follow) -> Result<(), Failure> {
        let webhook = &self.settings.webhook;
        let url = webhook.url.as_ref().map_or(&b""[..], |url| url.expose());
        let secret = webhook.secret.as_ref().map(|secret| secret.expose());
        let body = self.body(span, to).to_string();
        let id = format!("act_{}", span.span_id);
        let fields = signature(secret, &id, Timestamp::now().micros() / 1_000_000, &body);
        let call = Call::post(&String::from_utf8_lossy(url), "application/json", body)?;
        let call = fields.into_iter().fold(call, |call, (name, value)| call.field(name, value));
        let total = Duration::from_millis(webhook.timeout_ms);
        let answer = self.client.send(call, Limits { total, answer_bytes: ANSWER_BYTES, cut: true }).await?;
        Failure::unless_accepted(&answer)
    }

    fn body(&self, span: &SpanRecord, to: Follow) -> Value {
        let asks = |finding: &&Finding| self.settings.actions(finding).has(RouterAction::Webhook);
        let findings = span.security_findings.iter().filter(asks);
        json!({
            "version": 1,
            "trace_id": span.trace_id,
            "span_id": span.span_id,
            "tenant_id": span.tenant_id,
            "timestamp": span.end_time,
            "provider": span.provider,
            "model": span.model,
            "agent_id": span.agent_id,
            "source_ip": span.tags.get(SOURCE),
            "security_score": span.security_score,
            "actions": to.asked.iter().map(RouterAction::as_str).collect::<Vec<_>>(),
            "actions_not_applied": to.not_applied.iter().map(RouterAction::as_str).collect::<Vec<_>>(),
            "findings": findings.clone().take(FINDINGS_MAX).map(shortened).collect::<Vec<_>>(),
            "findings_total": findings.count(),
        })
    }
}

/// A finding whose words are few.
fn shortened(finding: &Finding) -> Finding {
    let mut finding = finding.clone();
    if finding.evidence.len() > EVIDENCE_CHARACTERS {
        finding.evidence = finding.evidence.chars().take(EVIDENCE_CHARACTERS).collect();
    }
    finding
}
