//! Running sums of a batch, added to the `tallies` table in the batch's own transaction: the totals of lists are then
//! sums over a handful of rows, and always agree with what was committed.

use std::collections::HashMap;

use rusqlite::Connection;

use crate::record::SpanRecord;

/// The filter values of a span, as small integers; `score` is -1 when there is none.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) tenant: i64,
    pub(super) provider: i64,
    pub(super) model: i64,
    pub(super) operation: i64,
    pub(super) score: i64,
}

#[derive(Default)]
struct Sums {
    spans: i64,
    traces: i64,
    findings: i64,
    tokens: i64,
    cost_nano_usd: i64,
}

#[derive(Default)]
pub(super) struct Tallies {
    sums: HashMap<Key, Sums>,
}

const ADD: &str = "INSERT INTO tallies (tenant, provider, model, operation, score, spans, traces, findings, tokens, \
    cost_nano_usd) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT DO UPDATE SET \
    spans = spans + excluded.spans, traces = traces + excluded.traces, findings = findings + excluded.findings, \
    tokens = tokens + excluded.tokens, cost_nano_usd = cost_nano_usd + excluded.cost_nano_usd";

impl Tallies {
    pub(super) fn forget(&mut self) {
        self.sums.clear();
    }

    /// One more span.
    pub(super) fn add(&mut self, key: Key, span: &SpanRecord) {
        let sums = self.sums.entry(key).or_default();
        sums.spans += 1;
        sums.findings += span.security_findings.len() as i64;
        let tokens = span.total_tokens.unwrap_or(0).min(i64::MAX as u64);
        sums.tokens = sums.tokens.saturating_add(tokens.cast_signed());
        let nano_usd = (span.estimated_cost_usd.unwrap_or(0.0) * 1e9).round();
        sums.cost_nano_usd = sums.cost_nano_usd.saturating_add(nano_usd as i64);
    }

    /// A span of this key became (1) or ceased to be (-1) the first of its trace.
    pub(super) fn add_trace(&mut self, key: Key, change: i64) {
        self.sums.entry(key).or_default().traces += change;
    }

    /// Adds the sums to the table; they are forgotten once the caller has committed.
    pub(super) fn store(&self, conn: &Connection) -> rusqlite::Result<()> {
        let mut add = conn.prepare_cached(ADD)?;
        for (key, sums) in &self.sums {
            add.execute([
                key.tenant,
                key.provider,
                key.model,
                key.operation,
                key.score,
                sums.spans,
                sums.traces,
                sums.findings,
                sums.tokens,
                sums.cost_nano_usd,
            ])?;
        }
        Ok(())
    }
}
