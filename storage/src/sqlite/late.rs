//! What is found about a span after it was stored, and the verdicts of the judge: tables of their own, joined to spans when those
//! are read.
//!
//! Invariant: a late finding counts in the sums of its span's filter values, raises its score, and goes with it; verdicts go with
//! the last span of their trace.

use rusqlite::{Connection, OptionalExtension};
use weir_config::vocab::{Finding, SpanId, TenantId, TraceId, score};

use super::actions::Owner;
use super::intern::find_tenant;
use super::readers::Stop;
use super::reads::Reads;
use super::tallies::{Key, Weight};
use super::tx::Tx;
use crate::error::ReadError;
use crate::error::WriteError;
use crate::queue::weigh_finding;
use crate::record::{SpanRecord, remove_quote};
use crate::verdicts::{JudgeVerdict, LateFinding};

/// Late findings a span takes: they are shown with it, so their number bounds what reading one span costs.
const SPAN_FINDINGS_MAX: i64 = 100;
/// Verdicts one trace takes, and one question gives.
const TRACE_VERDICTS_MAX: i64 = 1_000;
/// What a late finding takes besides its body: its row and an index.
const OVERHEAD_BYTES: i64 = 128;

fn unfit(error: &serde_json::Error) -> WriteError {
    WriteError::Row(format!("it cannot be written as JSON: {error}"))
}

impl Tx<'_> {
    /// Adds to a span what was found about it; false when the tenant has no such span.
    pub(super) fn add_late(&mut self, late: &LateFinding) -> Result<bool, WriteError> {
        let Some((owner, trace)) = self.owner_of_span(late.tenant, late.span)? else { return Ok(false) };
        let texts = self.texts_from_us.is_none_or(|from_us| owner.start_us >= from_us);
        if let Some(finding) = &late.finding {
            let mut finding = finding.clone();
            if !texts {
                remove_quote(&mut finding);
            }
            self.add_late_finding(&owner, &finding)?;
        }
        if let Some(verdict) = &late.verdict {
            self.add_verdict(owner.key.tenant, &trace, verdict, texts)?;
        }
        Ok(true)
    }

    fn owner_of_span(&self, tenant: TenantId, span: SpanId) -> rusqlite::Result<Option<(Owner, Vec<u8>)>> {
        let Some(tenant) = find_tenant(self.conn, tenant)? else { return Ok(None) };
        let sql = "SELECT id, start_us, ord, provider, model, operation, ifnull(score, -1), \
            iif(trace_id = x'', span_id, trace_id) FROM spans WHERE tenant = ?1 AND span_id = ?2";
        let owner = |row: &rusqlite::Row<'_>| {
            let [provider, model, operation, score] = [row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?];
            let owner = Owner {
                row: row.get(0)?,
                span_id: span,
                start_us: row.get(1)?,
                is_first: row.get::<_, i64>(2)? == 0,
                key: Key { tenant, provider, model, operation, score },
            };
            Ok((owner, row.get(7)?))
        };
        self.conn.prepare_cached(sql)?.query_row((tenant, span.as_bytes().as_slice()), owner).optional()
    }

    fn add_late_finding(&mut self, owner: &Owner, finding: &Finding) -> Result<(), WriteError> {
        let count = "SELECT count(*) FROM span_findings WHERE span = ?1";
        let present: i64 = self.conn.prepare_cached(count)?.query_row([owner.row], |row| row.get(0))?;
        if present >= SPAN_FINDINGS_MAX {
            return Err(WriteError::Row(format!(
                "span {} has {present} findings that were made after it was stored, and takes no more",
                owner.span_id
            )));
        }
        let body = serde_json::to_string(finding).map_err(|error| unfit(&error))?;
        let put = "INSERT OR IGNORE INTO span_findings (span, finding_id, body) VALUES (?1, ?2, ?3)";
        let id = finding.id.as_bytes().as_slice();
        if self.conn.prepare_cached(put)?.execute((owner.row, id, &body))? == 0 {
            return Ok(());
        }
        let weight = Weight { findings: 1, bytes: body.len() as i64 + OVERHEAD_BYTES, ..Weight::default() };
        self.tallies.add_weight(owner.key, owner.start_us, &weight);
        let found = i64::from(score([finding]));
        if found > owner.key.score {
            self.raise(owner, found)?;
        }
        self.note_found(owner, std::slice::from_ref(finding), found)
    }

    fn add_verdict(&self, tenant: i64, trace: &[u8], verdict: &JudgeVerdict, texts: bool) -> Result<(), WriteError> {
        let count = "SELECT count(*) FROM judge_verdicts WHERE tenant = ?1 AND trace_id = ?2";
        let present: i64 = self.conn.prepare_cached(count)?.query_row((tenant, trace), |row| row.get(0))?;
        if present >= TRACE_VERDICTS_MAX {
            return Err(WriteError::Row(format!("its trace has {present} verdicts and takes no more")));
        }
        let bare = JudgeVerdict { reasoning: String::new(), ..verdict.clone() };
        let body = serde_json::to_string(&bare).map_err(|error| unfit(&error))?;
        let reasoning = if texts { verdict.reasoning.as_str() } else { "" };
        let put = "INSERT OR IGNORE INTO judge_verdicts (tenant, trace_id, verdict_id, reasoning, body) \
            VALUES (?1, ?2, ?3, ?4, ?5)";
        self.conn.prepare_cached(put)?.execute((tenant, trace, verdict.id.as_bytes().as_slice(), reasoning, body))?;
        Ok(())
    }

    /// Takes out what a span's late findings and verdicts say of its texts; how many bytes that were.
    pub(super) fn remove_late_texts(&self, span: i64) -> Result<i64, WriteError> {
        let sql = "SELECT id, body FROM span_findings WHERE span = ?1";
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let rows: Vec<(i64, String)> =
            self.conn.prepare_cached(sql)?.query_map([span], row)?.collect::<Result<_, _>>()?;
        let mut bytes = 0;
        for (id, body) in rows {
            let Ok(mut finding) = serde_json::from_str::<Finding>(&body) else { continue };
            remove_quote(&mut finding);
            let without = serde_json::to_string(&finding).map_err(|error| unfit(&error))?;
            bytes += body.len() as i64 - without.len() as i64;
            self.conn.prepare_cached("UPDATE span_findings SET body = ?2 WHERE id = ?1")?.execute((id, without))?;
        }
        let sql = "UPDATE judge_verdicts SET reasoning = '' WHERE (tenant, trace_id) = \
            (SELECT tenant, iif(trace_id = x'', span_id, trace_id) FROM spans WHERE id = ?1)";
        self.conn.prepare_cached(sql)?.execute([span])?;
        Ok(bytes)
    }
}

/// What a span's late findings weigh.
pub(super) fn weight(conn: &Connection, span: i64) -> rusqlite::Result<Weight> {
    let sql = "SELECT count(*), ifnull(sum(octet_length(body)), 0) FROM span_findings WHERE span = ?1";
    conn.prepare_cached(sql)?.query_row([span], |row| {
        let findings: i64 = row.get(0)?;
        Ok(Weight { findings, bytes: row.get::<_, i64>(1)? + OVERHEAD_BYTES * findings, ..Weight::default() })
    })
}

/// Takes out a span's late findings; what they weighed.
pub(super) fn take(conn: &Connection, span: i64) -> rusqlite::Result<Weight> {
    let weight = weight(conn, span)?;
    if weight.findings > 0 {
        conn.prepare_cached("DELETE FROM span_findings WHERE span = ?1")?.execute([span])?;
    }
    Ok(weight)
}

/// Takes out the verdicts of a trace whose last span has gone.
pub(super) fn forget_trace(conn: &Connection, tenant: i64, trace: &[u8]) -> rusqlite::Result<()> {
    let sql = "DELETE FROM judge_verdicts WHERE tenant = ?1 AND trace_id = ?2";
    conn.prepare_cached(sql)?.execute((tenant, trace)).map(|_| ())
}

/// Whether any span has late findings.
pub(super) fn any(conn: &Connection) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT 1 FROM span_findings LIMIT 1")?.exists([])
}

/// Adds to a span what was found about it later, in order of arrival. Each finding is weighed as it is read, and `charge` may
/// end it.
pub(super) fn join(
    conn: &Connection,
    row: i64,
    span: &mut SpanRecord,
    mut charge: impl FnMut(usize) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let mut statement = conn.prepare_cached("SELECT body FROM span_findings WHERE span = ?1 ORDER BY id")?;
    let mut rows = statement.query([row])?;
    while let Some(found) = rows.next()? {
        let finding: Finding = serde_json::from_str(found.get_ref(0)?.as_str().unwrap_or_default())
            .map_err(|_| Stop::Refused(ReadError::Damaged { row }))?;
        charge(weigh_finding(&finding))?;
        span.security_findings.push(finding);
    }
    Ok(())
}

impl Reads<'_> {
    /// The verdicts about a trace, in order of arrival.
    pub(crate) fn list_verdicts(&self, tenant: TenantId, trace: TraceId) -> Result<Vec<JudgeVerdict>, ReadError> {
        self.ask("read_verdicts", |conn| {
            let Some(tenant) = find_tenant(conn, tenant)? else { return Ok(Vec::new()) };
            let sql = "SELECT id, reasoning, body FROM judge_verdicts WHERE tenant = ?1 AND trace_id = ?2 ORDER BY id";
            let mut statement = conn.prepare_cached(sql)?;
            let mut rows = statement.query((tenant, trace.as_bytes().as_slice()))?;
            let mut verdicts = Vec::new();
            while let Some(row) = rows.next()? {
                let body: JudgeVerdict = serde_json::from_str(row.get_ref(2)?.as_str().unwrap_or_default())
                    .map_err(|_| Stop::Refused(ReadError::Damaged { row: row.get(0).unwrap_or_default() }))?;
                verdicts.push(JudgeVerdict { reasoning: row.get(1)?, ..body });
                conn.pause();
            }
            Ok(verdicts)
        })
    }
}
