//! Reported agent actions: a table of their own, joined to the spans they belong to when those are read.
//!
//! An action never changes its span's row, with one exception: findings raise the span's score, so that the lists of
//! findings and the filters by score see it.

use rusqlite::{Connection, OptionalExtension};
use weir_config::vocab::{Finding, SpanId, TenantId, TraceId, score};

use super::action_sums;
use super::erase::with_actions;
use super::intern::find_tenant;
use super::lone;
use super::read::{self, Filter};
use super::readers::Stop;
use super::reads::Reads;
use super::tallies::{Key, Weight};
use super::tx::Tx;
use crate::actions::ActionsSummary;
use crate::change::ReportedAction;
use crate::encode;
use crate::error::ReadError;
use crate::error::WriteError;
use crate::query::SpanFilter;
use crate::queue::{weigh_action, weigh_finding};
use crate::record::{SpanRecord, remove_quote};

/// Actions a span takes: they are shown with it, so their number bounds what reading one span costs.
const SPAN_ACTIONS_MAX: i64 = 1_000;

/// What a reported action takes besides its body and name: its row, an index and its part of the sums. Like the next ones part
/// of what the migration `names_gone` has added up.
const OVERHEAD_BYTES: i64 = 512;
/// A name of more bytes does not fit beside others in the sums.
const LONG_NAME_BYTES: i64 = 1_000;
/// What it takes there.
const LONG_NAME_PAGE: i64 = 8_192;

/// What a row of the table takes in all, from `length(body)` and `octet_length(name)`.
pub(super) fn weight_bytes(body: i64, name: i64) -> i64 {
    body + 2 * name + if name > LONG_NAME_BYTES { LONG_NAME_PAGE } else { 0 } + OVERHEAD_BYTES
}

/// The span an action, or a finding made later, belongs to.
pub(super) struct Owner {
    pub(super) row: i64,
    pub(super) span_id: SpanId,
    pub(super) start_us: i64,
    pub(super) key: Key,
    pub(super) is_first: bool,
}

impl Tx<'_> {
    /// The named span of the trace, or its latest one.
    fn owner(&self, tenant: TenantId, trace: TraceId, span: Option<SpanId>) -> rusqlite::Result<Option<Owner>> {
        let Some(tenant) = find_tenant(self.conn, tenant)? else { return Ok(None) };
        lone::unfold(self.conn, tenant, trace)?;
        // Named, because the order would tempt SQLite into walking the tenant's whole time index.
        let sql = "SELECT id, span_id, start_us, ord, provider, model, operation, ifnull(score, -1) FROM spans \
            INDEXED BY spans_by_trace WHERE tenant = ?1 AND trace_id = ?2 AND trace_id <> x'' AND (?3 IS NULL OR span_id = ?3) \
            ORDER BY start_us DESC, id DESC LIMIT 1";
        let span = span.as_ref().map(|span| span.as_bytes().as_slice());
        self.conn
            .prepare_cached(sql)?
            .query_row((tenant, trace.as_bytes().as_slice(), span), |row| {
                let [provider, model, operation, score] = [row.get(4)?, row.get(5)?, row.get(6)?, row.get(7)?];
                Ok(Owner {
                    row: row.get(0)?,
                    span_id: SpanId::from_bytes(row.get(1)?),
                    start_us: row.get(2)?,
                    is_first: row.get::<_, i64>(3)? == 0,
                    key: Key { tenant, provider, model, operation, score },
                })
            })
            .optional()
    }

    /// Puts an action in its span; `None` when the tenant has no such trace or span.
    pub(super) fn add_reported(&mut self, reported: &ReportedAction) -> Result<Option<SpanId>, WriteError> {
        let Some(owner) = self.owner(reported.tenant, reported.trace, reported.span)? else { return Ok(None) };
        self.add_action(&owner, reported)?;
        Ok(Some(owner.span_id))
    }

    fn add_action(&mut self, owner: &Owner, reported: &ReportedAction) -> Result<(), WriteError> {
        let ReportedAction { action, findings, .. } = reported;
        let (mut bare, mut unquoted);
        let (action, findings) = if self.texts_from_us.is_some_and(|from_us| owner.start_us < from_us) {
            (bare, unquoted) = (action.clone(), findings.clone());
            bare.remove_texts();
            unquoted.iter_mut().for_each(remove_quote);
            (&bare, &unquoted)
        } else {
            (action, findings)
        };
        let present: i64 = self
            .conn
            .prepare_cached("SELECT count(*) FROM actions WHERE span = ?1")?
            .query_row([owner.row], |row| row.get(0))?;
        if present >= SPAN_ACTIONS_MAX {
            return Err(WriteError::Row(format!(
                "{present} actions are reported for span {} and a span takes at most {SPAN_ACTIONS_MAX}; name another \
                 span of the trace with `span_id`",
                owner.span_id
            )));
        }
        let mut key = owner.key;
        let found = i64::from(score(findings));
        if !findings.is_empty() && found > key.score {
            self.raise(owner, found)?;
            key.score = found;
        }
        self.note_found(owner, findings, found)?;
        let kind = self.interner.name(self.conn, &action.action_type)?;
        let body = self
            .encoder
            .encode_action(action, findings)
            .map_err(|too_large| WriteError::Row(format!("its {} bytes are more than a row can hold", too_large.0)))?;
        let bytes = weight_bytes(body.len() as i64, action.name.len() as i64);
        let findings_count = findings.len() as i64;
        action_sums::add_action(self.conn, &key, owner.row, kind, &action.name, action.success)?;
        self.conn
            .prepare_cached(
                "INSERT INTO actions (tenant, span, action_id, kind, name, success, findings, body) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?
            .execute((
                owner.key.tenant,
                owner.row,
                action.id.as_bytes().as_slice(),
                kind,
                &action.name,
                action.success,
                findings_count,
                body,
            ))?;
        let weight = Weight { findings: findings_count, bytes, ..Weight::default() };
        self.tallies.add_weight(key, owner.start_us, &weight);
        Ok(())
    }

    /// The span can be found by these findings, too, and its session is as bad as they are.
    pub(super) fn note_found(&mut self, owner: &Owner, findings: &[Finding], score: i64) -> Result<(), WriteError> {
        if findings.is_empty() {
            return Ok(());
        }
        let mut bits = 0;
        for finding in findings {
            bits |= 1_i64 << self.interner.finding_bit(self.conn, &finding.finding_type)?;
        }
        let sql = "UPDATE spans SET found = found | ?2 WHERE id = ?1";
        self.conn.prepare_cached(sql)?.execute((owner.row, bits))?;
        let sql = "UPDATE sessions SET score = max(score, ?2) WHERE id = (SELECT session FROM spans WHERE id = ?1)";
        self.conn.prepare_cached(sql)?.execute((owner.row, score))?;
        Ok(())
    }

    /// The span counts under another score from now on.
    pub(super) fn raise(&mut self, owner: &Owner, score: i64) -> Result<(), WriteError> {
        let weight = with_actions(self.conn, owner.row, read::weight_of_row(self.conn, owner.row)?.0)?;
        let traces = i64::from(owner.is_first);
        self.conn.prepare_cached("UPDATE spans SET score = ?2 WHERE id = ?1")?.execute((owner.row, score))?;
        let raised = Key { score, ..owner.key };
        action_sums::move_span(self.conn, &owner.key, &raised, owner.row)?;
        self.tallies.remove(owner.key, owner.start_us, traces, &weight);
        self.tallies.add(raised, owner.start_us, traces, &weight);
        Ok(())
    }
}

impl Reads<'_> {
    /// Reported actions of the spans that match, in sum.
    pub(crate) fn actions_summary(&self, tenant: TenantId, asked: &SpanFilter) -> Result<ActionsSummary, ReadError> {
        self.ask("read_actions", |conn| {
            let mut summary = ActionsSummary {
                total_spans: 0,
                spans_with_actions: 0,
                total_actions: 0,
                success_rate: None,
                action_counts: std::collections::BTreeMap::new(),
                top_actions: Vec::new(),
            };
            let Some(tenant) = find_tenant(conn, tenant)? else { return Ok(summary) };
            let mut filter = Filter::of(tenant);
            if !filter.and_span(conn, asked)? {
                return Ok(summary);
            }
            summary.total_spans = filter.sum(conn, "spans")?;
            action_sums::sum_up(conn, &filter, &mut summary)?;
            Ok(summary)
        })
    }
}

/// Adds to a span what was reported about it, in order of arrival. Each action is weighed as it is read, and `charge` may
/// end it.
pub(super) fn join(
    conn: &Connection,
    row: i64,
    span: &mut SpanRecord,
    mut charge: impl FnMut(usize) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let mut statement = conn.prepare_cached("SELECT id, body FROM actions WHERE span = ?1 ORDER BY id")?;
    let mut rows = statement.query([row])?;
    while let Some(row) = rows.next()? {
        let damaged =
            |row: &rusqlite::Row<'_>| Stop::Refused(ReadError::Damaged { row: row.get(0).unwrap_or_default() });
        let body = row.get_ref(1)?.as_blob().map_err(|_| damaged(row))?;
        let (action, findings) = encode::decode_action(body).map_err(|_| damaged(row))?;
        charge(weigh_action(&action) + findings.iter().map(weigh_finding).sum::<usize>())?;
        span.agent_actions.push(action);
        span.security_findings.extend(findings);
    }
    Ok(())
}
