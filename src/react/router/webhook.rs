//! The action `webhook`: a message for each call whose findings ask for one, signed as Standard Webhooks says. Several are under way
//! at once, and tenants take turns: who has many waits for its own.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use weir_config::settings::{ActionRouter, RouterAction};
use weir_config::vocab::{Finding, SpanId, TenantId, Timestamp};
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
/// Messages under way at once.
const AT_ONCE: usize = 16;
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
        let asks = batch.spans.iter().copied().filter_map(|span| {
            let to = follow(span, &self.settings);
            let asks = to.asked.has(RouterAction::Webhook) && !self.accepted.contains(&span.span_id);
            asks.then_some((span.tenant_id, (span, to)))
        });
        let mut left = in_turns(asks).into_iter();
        let (mut accepted, mut later) = (Vec::new(), None);
        let mut under_way = FuturesUnordered::new();
        loop {
            let room = AT_ONCE.saturating_sub(under_way.len());
            left.by_ref().take(room).for_each(|(span, to)| under_way.push(self.tell_one(span, to)));
            match under_way.next().await {
                Some((span, Ok(()))) => accepted.push(span),
                Some((_, Err(failure))) => {
                    later = Some(failure);
                    break;
                }
                None => break,
            }
        }
        drop(under_way);
        if let Some(failure) = later {
            self.accepted.extend(accepted);
            return Err(failure);
        }
        self.accepted.clear();
        Ok(())
    }
}

/// One of each tenant after the other, each tenant's own in their order.
fn in_turns<T>(all: impl Iterator<Item = (TenantId, T)>) -> Vec<T> {
    let mut lines: BTreeMap<TenantId, VecDeque<T>> = BTreeMap::new();
    all.for_each(|(tenant, one)| lines.entry(tenant).or_default().push_back(one));
    let mut turns = Vec::new();
    while !lines.is_empty() {
        turns.extend(lines.values_mut().filter_map(VecDeque::pop_front));
        lines.retain(|_, line| !line.is_empty());
    }
    turns
}

impl Webhook {
    async fn tell_one(&self, span: &SpanRecord, to: Follow) -> (SpanId, Result<(), Failure>) {
        (span.span_id, self.tell(span, to).await)
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_take_turns() {
        let [a, b, c] = [b"a", b"b", b"c"].map(|name| TenantId::from_credential(name));
        let all = [(a, 0), (a, 1), (a, 2), (b, 10), (c, 20), (b, 11)];
        let turns = in_turns(all.into_iter());
        assert_eq!(turns.len(), 6);
        let place = |number: i32| turns.iter().position(|one| *one == number).unwrap();
        assert!(place(10) < 3 && place(20) < 3 && place(0) < 3, "{turns:?}");
        assert!(place(0) < place(1) && place(1) < place(2) && place(10) < place(11));
    }
}
