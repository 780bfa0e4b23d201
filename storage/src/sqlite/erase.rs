//! Taking rows out again, some at a time: the oldest ones, or all of a deleted tenant.
//!
//! Invariant: after every batch the running sums, the first spans of traces and the actions agree with what is left. A
//! deleted tenant disappears at once, because its UUID is made unfindable; its rows follow in the writer's idle time,
//! also after a restart.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, ToSql};
use weir_config::vocab::{TenantId, Timestamp, TraceId};

use super::action_sums::{self, Removed};
use super::actions;
use super::alerts;
use super::intern::find_tenant;
use super::late;
use super::lone;
use super::read;
use super::tallies::{Key, Use, Weight, hour_of};
use super::texts;
use super::tx::Tx;
use crate::audit::AuditEvent;
use crate::error::WriteError;

/// Spans taken out in one transaction.
pub(super) const BATCH_ROWS: i64 = 256;
/// Actions taken out in one transaction; a span goes when its last action has gone.
const BATCH_ACTIONS: usize = 1_000;
/// Bytes of bodies taken out in one transaction, after which nothing further is begun.
const BATCH_BYTES: i64 = 8 * 1024 * 1024;
/// Sums of slices of time, or of actions, taken out in one transaction.
const BATCH_SLICES: i64 = 1_024;

/// Names taken out in one transaction.
const BATCH_NAMES: i64 = 256;

const OLDEST_OF_TENANT: &str = "SELECT id FROM spans INDEXED BY spans_by_start WHERE tenant = ?1 AND start_us < ?2 \
    ORDER BY start_us, id LIMIT ?3";

/// What a transaction may still take out.
struct Room {
    actions: usize,
    bytes: i64,
}

impl Room {
    const fn of_a_piece() -> Self {
        Self::of(BATCH_BYTES)
    }

    const fn of(bytes: i64) -> Self {
        Self { actions: BATCH_ACTIONS, bytes }
    }
}

/// What a piece of removing took out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Erased {
    /// Spans looked at; 0 when there was none.
    pub(super) looked: usize,
    /// Spans taken out.
    pub(super) spans: u64,
    /// Bytes of the bodies of spans and actions.
    pub(super) bytes: i64,
}

/// Actions of a span that were taken out.
struct Taken {
    weight: Weight,
    by_name: Removed,
    /// None is left.
    all: bool,
}

/// Takes out a span's actions, as far as there is room, and with the last of them what was found about it later.
fn take_actions(conn: &Connection, span: i64, room: &mut Room) -> rusqlite::Result<Taken> {
    let mut taken = Taken { weight: Weight::default(), by_name: Removed::new(), all: true };
    let mut ids: Vec<i64> = Vec::new();
    let sql = "SELECT id, kind, name, success, findings, length(body), octet_length(name) FROM actions WHERE span = ?1 ORDER BY id";
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query([span])?;
    while let Some(row) = rows.next()? {
        if room.actions == 0 || room.bytes <= 0 {
            taken.all = false;
            break;
        }
        let bytes = actions::weight_bytes(row.get(5)?, row.get(6)?);
        ids.push(row.get(0)?);
        taken.weight.findings += row.get::<_, i64>(4)?;
        taken.weight.bytes += bytes;
        let (count, failures) = taken.by_name.entry((row.get(1)?, row.get(2)?)).or_default();
        *count += 1;
        *failures += i64::from(!row.get::<_, bool>(3)?);
        room.actions -= 1;
        room.bytes -= bytes;
    }
    drop(rows);
    let mut delete = conn.prepare_cached("DELETE FROM actions WHERE id = ?1")?;
    for id in ids {
        delete.execute([id])?;
    }
    if taken.all {
        let late = late::take(conn, span)?;
        taken.weight.findings += late.findings;
        taken.weight.bytes += late.bytes;
        room.bytes -= late.bytes;
    }
    Ok(taken)
}

impl Tx<'_> {
    /// Takes out some of the oldest arrivals, or of their actions, of about so many bytes.
    pub(super) fn erase_oldest(&mut self, bytes: i64) -> Result<Erased, WriteError> {
        self.erase("SELECT id FROM spans ORDER BY id LIMIT ?1", &[&BATCH_ROWS], Room::of(bytes.min(BATCH_BYTES)))
    }

    /// Takes out some of a tenant's oldest spans, or of their actions, of about so many bytes.
    pub(super) fn erase_oldest_of(&mut self, tenant: i64, bytes: i64) -> Result<Erased, WriteError> {
        self.erase(OLDEST_OF_TENANT, &[&tenant, &i64::MAX, &BATCH_ROWS], Room::of(bytes.min(BATCH_BYTES)))
    }

    /// Takes out some of a tenant's spans that started before `start_us`.
    pub(super) fn erase_before(&mut self, tenant: i64, start_us: i64) -> Result<Erased, WriteError> {
        self.erase(OLDEST_OF_TENANT, &[&tenant, &start_us, &BATCH_ROWS], Room::of_a_piece())
    }

    /// Takes out some spans up to this row, the oldest first: those that another store has.
    pub(super) fn erase_up_to(&mut self, row: i64) -> Result<Erased, WriteError> {
        self.erase("SELECT id FROM spans WHERE id <= ?1 ORDER BY id LIMIT ?2", &[&row, &BATCH_ROWS], Room::of_a_piece())
    }

    /// Takes out some spans of a trace; false when there was none. With `by` it begins: the deletion is written down, and that the
    /// trace is to go, so that [`Tx::erase_deleted_trace`] goes on with what nobody asks for any more.
    pub(super) fn erase_trace(
        &mut self,
        tenant: TenantId,
        trace: TraceId,
        by: Option<&AuditEvent>,
    ) -> Result<bool, WriteError> {
        let Some(tenant) = find_tenant(self.conn, tenant)? else { return Ok(false) };
        lone::unfold(self.conn, tenant, trace)?;
        let trace = trace.as_bytes().as_slice();
        if let Some(by) = by {
            let sql = "SELECT max(id) FROM spans INDEXED BY spans_by_trace \
                WHERE tenant = ?1 AND trace_id = ?2 AND trace_id <> x''";
            let until: Option<i64> = self.conn.prepare_cached(sql)?.query_row((tenant, trace), |row| row.get(0))?;
            let Some(until) = until else { return Ok(false) };
            let sql = "INSERT INTO trace_erasures (tenant, trace_id, until) VALUES (?1, ?2, ?3) \
                ON CONFLICT (tenant, trace_id) DO UPDATE SET until = excluded.until";
            self.conn.prepare_cached(sql)?.execute((tenant, trace, until))?;
            self.audit(by)?;
        }
        self.erase_spans_of_trace(tenant, trace)
    }

    /// Takes out some spans of a deleted trace; false when no trace is to go.
    pub(super) fn erase_deleted_trace(&mut self) -> Result<bool, WriteError> {
        let Some((tenant, trace)) = deleted_trace(self.conn)? else { return Ok(false) };
        self.erase_spans_of_trace(tenant, &trace)?;
        Ok(true)
    }

    /// Takes out some spans of a trace that is to go; false when the last one has gone.
    fn erase_spans_of_trace(&mut self, tenant: i64, trace: &[u8]) -> Result<bool, WriteError> {
        let sql = "SELECT until FROM trace_erasures WHERE tenant = ?1 AND trace_id = ?2";
        let until: Option<i64> =
            self.conn.prepare_cached(sql)?.query_row((tenant, trace), |row| row.get(0)).optional()?;
        let Some(until) = until else { return Ok(false) };
        let select = "SELECT id FROM spans INDEXED BY spans_by_trace \
            WHERE tenant = ?1 AND trace_id = ?2 AND trace_id <> x'' AND id <= ?3 LIMIT ?4";
        let values: [&dyn ToSql; 4] = [&tenant, &trace, &until, &BATCH_ROWS];
        let found = self.erase(select, &values, Room::of_a_piece())?.looked > 0;
        if !found {
            let sql = "DELETE FROM trace_erasures WHERE tenant = ?1 AND trace_id = ?2";
            self.conn.prepare_cached(sql)?.execute((tenant, trace))?;
        }
        Ok(found)
    }

    fn erase(&mut self, select: &str, values: &[&dyn ToSql], mut room: Room) -> Result<Erased, WriteError> {
        let bytes = room.bytes;
        let mut spans = 0;
        let conn = self.conn;
        let ids: Vec<i64> =
            conn.prepare_cached(select)?.query_map(values, |row| row.get(0))?.collect::<Result<_, _>>()?;
        let mut beheaded: BTreeSet<(i64, Vec<u8>)> = BTreeSet::new();
        let mut gone = None;
        for id in &ids {
            let sql = "SELECT tenant, iif(trace_id = x'', span_id, trace_id), start_us, ord, provider, model, operation, \
                ifnull(score, -1), session, agent, client, status >= 400 OR error <> 0 FROM spans WHERE id = ?1";
            let (key, trace_id, start_us, ord, used) = conn.prepare_cached(sql)?.query_row([id], |row| {
                let [tenant, provider, model, operation, score] =
                    [row.get(0)?, row.get(4)?, row.get(5)?, row.get(6)?, row.get(7)?];
                let key = Key { tenant, provider, model, operation, score };
                let start_us: i64 = row.get(2)?;
                let [session, agent] = [row.get(8)?, row.get(9)?];
                // Rows that have not been filled in are in no sum of usage.
                let client: Option<i64> = row.get(10)?;
                let failed: bool = row.get(11)?;
                let used =
                    client.map(|client| Use { tenant, hour: hour_of(start_us), session, agent, client, model, failed });
                Ok((key, row.get::<_, Vec<u8>>(1)?, start_us, row.get::<_, i64>(3)?, used))
            })?;
            let taken = take_actions(conn, *id, &mut room)?;
            action_sums::remove(conn, &key, &taken.by_name, taken.all)?;
            if !taken.all {
                self.tallies.take_weight(key, start_us, &taken.weight);
                break;
            }
            let (mut weight, nodes) = read::weight_of_row(conn, *id)?;
            texts::release(conn, &nodes)?;
            room.bytes -= weight.bytes;
            weight.findings += taken.weight.findings;
            weight.bytes += taken.weight.bytes;
            conn.prepare_cached("DELETE FROM spans WHERE id = ?1")?.execute([id])?;
            gone = gone.max(Some(*id));
            self.tallies.remove(key, start_us, i64::from(ord == 0), &weight);
            if let Some(used) = used {
                self.tallies.end_use(used, &weight);
            }
            spans += 1;
            // What it was the last one to name goes with it, so that a piece is as large as it is meant to be.
            room.bytes -= texts::sweep_all(self, room.bytes)?;
            if ord == 0 {
                beheaded.insert((key.tenant, trace_id));
            }
            if room.bytes <= 0 {
                break;
            }
        }
        self.note_gone(gone)?;
        for (tenant, trace_id) in beheaded {
            self.promote(tenant, &trace_id)?;
        }
        Ok(Erased { looked: ids.len(), spans, bytes: bytes - room.bytes })
    }

    /// The earliest span left is the first of its trace now.
    fn promote(&mut self, tenant: i64, trace_id: &[u8]) -> Result<(), WriteError> {
        // Named, because the order would tempt SQLite into walking the tenant's whole time index.
        let sql = "SELECT id, start_us, provider, model, operation, ifnull(score, -1) FROM spans \
            INDEXED BY spans_by_trace WHERE tenant = ?1 AND trace_id = ?2 AND trace_id <> x'' ORDER BY start_us, id LIMIT 1";
        let first = self
            .conn
            .prepare_cached(sql)?
            .query_row((tenant, trace_id), |row| {
                let [provider, model, operation, score] = [row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?];
                Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, Key { tenant, provider, model, operation, score }))
            })
            .optional()?;
        if let Some((id, start_us, key)) = first {
            self.conn.prepare_cached("UPDATE spans SET ord = 0 WHERE id = ?1")?.execute([id])?;
            self.tallies.add_traces(key, start_us, 1);
        } else {
            late::forget_trace(self.conn, tenant, trace_id)?;
            alerts::forget_trace(self.conn, tenant, trace_id)?;
        }
        Ok(())
    }

    /// Makes everything of a tenant unfindable and leaves it to be taken out. The integer is never given to another. What
    /// began before is not recorded any more, by whichever process.
    pub(super) fn forget_tenant(&mut self, tenant: TenantId) -> Result<(), WriteError> {
        let sql = "INSERT OR REPLACE INTO burials (id, tenant, at_us) \
            VALUES (1 + ifnull((SELECT max(id) FROM burials), 0), ?1, ?2)";
        self.conn.prepare_cached(sql)?.execute((tenant.as_bytes(), Timestamp::now().micros()))?;
        for table in ["spend", "batch_charges"] {
            let sql = format!("DELETE FROM {table} WHERE tenant = ?1");
            self.conn.prepare_cached(&sql)?.execute([tenant.as_bytes().as_slice()])?;
        }
        let found = find_tenant(self.conn, tenant)?;
        if let Some(found) = found {
            // No longer 16 bytes, so no tenant's; the number keeps it unique however often a tenant is deleted.
            let tombstone = [tenant.as_bytes().as_slice(), &found.to_be_bytes()].concat();
            self.conn
                .prepare_cached("UPDATE tenants SET uuid = ?2, text_key = NULL WHERE id = ?1")?
                .execute((found, tombstone))?;
            self.conn.prepare_cached("INSERT INTO erasures (tenant) VALUES (?1)")?.execute([found])?;
        }
        self.interner.forget();
        Ok(())
    }

    /// Takes out some spans of a deleted tenant, whose sums go as a whole afterwards; false when there was none.
    fn erase_spans_of(&mut self, tenant: i64) -> Result<bool, WriteError> {
        let conn = self.conn;
        let sql = "SELECT id FROM spans INDEXED BY spans_by_start WHERE tenant = ?1 ORDER BY start_us, id LIMIT ?2";
        let ids: Vec<i64> =
            conn.prepare_cached(sql)?.query_map((tenant, BATCH_ROWS), |row| row.get(0))?.collect::<Result<_, _>>()?;
        let mut room = Room::of_a_piece();
        let mut gone = None;
        for id in &ids {
            if room.bytes <= 0 || !take_actions(conn, *id, &mut room)?.all {
                break;
            }
            let (weight, nodes) = read::weight_of_row(conn, *id)?;
            texts::release(conn, &nodes)?;
            conn.prepare_cached("DELETE FROM spans WHERE id = ?1")?.execute([id])?;
            room.bytes -= weight.bytes;
            room.bytes -= texts::sweep_all(self, room.bytes)?;
            gone = gone.max(Some(*id));
        }
        self.note_gone(gone)?;
        Ok(!ids.is_empty())
    }

    /// Takes out some shared texts that nobody names; how many bytes they took.
    pub(super) fn erase_texts(&mut self) -> Result<i64, WriteError> {
        texts::sweep(self, BATCH_BYTES)
    }

    /// Takes out some names that nothing refers to; how many.
    pub(super) fn erase_names(&mut self) -> Result<usize, WriteError> {
        let sql = "DELETE FROM names WHERE id IN (SELECT id FROM names INDEXED BY names_idle WHERE refs <= 0 LIMIT ?1)";
        let gone = self.conn.prepare_cached(sql)?.execute([BATCH_NAMES])?;
        if gone > 0 {
            self.conn.prepare_cached("UPDATE name_sweeps SET sweeps = sweeps + 1 WHERE id = 1")?.execute([])?;
        }
        Ok(gone)
    }

    /// Takes out some rows of a deleted tenant; false when there is none left.
    pub(super) fn erase_deleted(&mut self) -> Result<bool, WriteError> {
        let conn = self.conn;
        let Some(tenant) = deleted(conn)? else { return Ok(false) };
        if self.erase_spans_of(tenant)? {
            return Ok(true);
        }
        let slices = conn
            .prepare_cached(
                "DELETE FROM slices WHERE (tenant, level, slice) IN \
                 (SELECT tenant, level, slice FROM slices WHERE tenant = ?1 LIMIT ?2)",
            )?
            .execute((tenant, BATCH_SLICES))?;
        if slices > 0 {
            return Ok(true);
        }
        let sums = conn
            .prepare_cached(
                "DELETE FROM action_sums WHERE (tenant, kind, name, provider, model, operation, score) IN \
                 (SELECT tenant, kind, name, provider, model, operation, score FROM action_sums WHERE tenant = ?1 LIMIT ?2)",
            )?
            .execute((tenant, BATCH_SLICES))?;
        if sums > 0 {
            return Ok(true);
        }
        let used = conn
            .prepare_cached(
                "DELETE FROM usage WHERE (tenant, hour, session, agent, client, model) IN \
                 (SELECT tenant, hour, session, agent, client, model FROM usage WHERE tenant = ?1 LIMIT ?2)",
            )?
            .execute((tenant, BATCH_SLICES))?;
        let sessions = conn
            .prepare_cached(
                "DELETE FROM sessions WHERE id IN \
                 (SELECT id FROM sessions INDEXED BY sessions_by_age WHERE tenant = ?1 LIMIT ?2)",
            )?
            .execute((tenant, BATCH_SLICES))?;
        let objects = conn
            .prepare_cached(
                "DELETE FROM made_objects WHERE id IN (SELECT id FROM made_objects WHERE tenant = ?1 LIMIT ?2)",
            )?
            .execute((tenant, BATCH_SLICES))?;
        if used + sessions + objects > 0 {
            return Ok(true);
        }
        if alerts::erase_some(conn, tenant, BATCH_SLICES)? > 0 {
            return Ok(true);
        }
        // Its actions went with the spans they belong to.
        for table in [
            "reports",
            "judge_verdicts",
            "alert_claims",
            "alert_holders",
            "tallies",
            "text_sums",
            "text_ages",
            "trace_erasures",
            "erasures",
        ] {
            conn.prepare_cached(&format!("DELETE FROM {table} WHERE tenant = ?1"))?.execute([tenant])?;
        }
        Ok(true)
    }
}

/// A deleted tenant with rows left.
pub(super) fn deleted(conn: &Connection) -> rusqlite::Result<Option<i64>> {
    conn.prepare_cached("SELECT tenant FROM erasures LIMIT 1")?.query_row([], |row| row.get(0)).optional()
}

/// A deleted trace with spans left, perhaps.
pub(super) fn deleted_trace(conn: &Connection) -> rusqlite::Result<Option<(i64, Vec<u8>)>> {
    let sql = "SELECT tenant, trace_id FROM trace_erasures LIMIT 1";
    conn.prepare_cached(sql)?.query_row([], |row| Ok((row.get(0)?, row.get(1)?))).optional()
}

/// Whether there are names that nothing refers to.
pub(super) fn idle_names(conn: &Connection) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT 1 FROM names INDEXED BY names_idle WHERE refs <= 0 LIMIT 1")?.exists([])
}

/// A span's weight with that of its actions and of what was found about it later.
pub(super) fn with_actions(conn: &Connection, span: i64, mut weight: Weight) -> rusqlite::Result<Weight> {
    let sql = "SELECT findings, length(body), octet_length(name) FROM actions WHERE span = ?1";
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query([span])?;
    while let Some(row) = rows.next()? {
        weight.findings += row.get::<_, i64>(0)?;
        weight.bytes += actions::weight_bytes(row.get(1)?, row.get(2)?);
    }
    let late = late::weight(conn, span)?;
    weight.findings += late.findings;
    weight.bytes += late.bytes;
    Ok(weight)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weir_config::vocab::SpanId;

    use super::super::engine::SqliteEngine;
    use super::super::migrate::{CopyFirst, Pending};
    use super::super::{Home, rows};
    use super::*;
    use crate::encode::sample_span;
    use crate::record::SpanRecord;

    fn engine(home: &Home) -> SqliteEngine {
        SqliteEngine::open(home, Pending { apply: true, copy: CopyFirst::Never }, Arc::default()).unwrap()
    }

    fn spans_of(engine: &mut SqliteEngine, trace: TraceId) -> i64 {
        let mut count = 0;
        let sql = "SELECT count(*) FROM spans WHERE trace_id = ?1";
        engine
            .transact(|tx| {
                count = tx.conn.query_row(sql, [trace.as_bytes().as_slice()], |row| row.get(0))?;
                Ok(())
            })
            .unwrap();
        count
    }

    #[test]
    fn a_deletion_that_was_cut_short_is_finished_by_the_next_process_and_what_came_later_stays() {
        let folder = tempfile::TempDir::new().unwrap();
        let home = Home::file(folder.path().join("service.db"));
        let (trace, sample) = (TraceId::from_bytes([7; 16]), sample_span());
        let tenant = sample.tenant_id;
        let spans = |numbers: std::ops::Range<u32>| -> Vec<SpanRecord> {
            let id = |number: u32| SpanId::from_bytes(std::array::from_fn(|at| number.to_be_bytes()[at % 4]));
            numbers.map(|number| SpanRecord { trace_id: trace, span_id: id(number), ..sample.clone() }).collect()
        };
        let rows = 2 * u32::try_from(BATCH_ROWS).unwrap() + 9;
        let by = AuditEvent {
            tenant: Some(tenant),
            actor: "admin".to_owned(),
            action: "trace.delete".to_owned(),
            target: None,
            detail: std::collections::BTreeMap::new(),
        };
        let mut first = engine(&home);
        first.transact(|tx| rows::put_all(tx, spans(0..rows).iter()).map(|_| ())).unwrap();
        let mut begun = false;
        first
            .transact(|tx| {
                begun = tx.erase_trace(tenant, trace, Some(&by))?;
                Ok(())
            })
            .unwrap();
        assert!(begun && spans_of(&mut first, trace) == i64::from(rows) - BATCH_ROWS);
        drop(first);

        let mut second = engine(&home);
        second.transact(|tx| rows::put_all(tx, spans(rows..rows + 1).iter()).map(|_| ())).unwrap();
        while second.housekeep().unwrap() {}
        assert_eq!(spans_of(&mut second, trace), 1);
        second
            .transact(|tx| {
                begun = tx.erase_trace(tenant, trace, None)?;
                Ok(())
            })
            .unwrap();
        assert!(!begun, "nothing is left to be gone on with");
    }
}
