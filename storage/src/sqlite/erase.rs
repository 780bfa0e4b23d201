//! Taking rows out again, some at a time: the oldest ones, or all of a deleted tenant.
//!
//! Invariant: after every batch the running sums, the first spans of traces and the actions agree with what is left. A
//! deleted tenant disappears at once, because its UUID is made unfindable; its rows follow in the writer's idle time,
//! also after a restart.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, params_from_iter};
use weir_config::vocab::TenantId;

use super::action_sums;
use super::intern::find_tenant;
use super::read;
use super::tallies::{Key, Weight};
use super::tx::Tx;
use crate::error::NotWritten;
use crate::store::Store;
use crate::writer::WriteError;

/// Spans taken out in one transaction.
pub(super) const BATCH_ROWS: i64 = 256;
/// Sums of slices of time, or of actions, taken out in one transaction.
const BATCH_SLICES: i64 = 1_024;

impl Tx<'_> {
    /// Takes out the oldest arrivals; gives how many there were.
    pub(super) fn erase_oldest(&mut self) -> Result<usize, WriteError> {
        self.erase("SELECT id FROM spans ORDER BY id LIMIT ?1", &[BATCH_ROWS])
    }

    /// Takes out some of a tenant's spans that started before `start_us`.
    pub(super) fn erase_before(&mut self, tenant: i64, start_us: i64) -> Result<usize, WriteError> {
        let sql = "SELECT id FROM spans INDEXED BY spans_by_start WHERE tenant = ?1 AND start_us < ?2 \
            ORDER BY start_us, id LIMIT ?3";
        self.erase(sql, &[tenant, start_us, BATCH_ROWS])
    }

    fn erase(&mut self, select: &str, values: &[i64]) -> Result<usize, WriteError> {
        let conn = self.conn;
        let ids: Vec<i64> = conn
            .prepare_cached(select)?
            .query_map(params_from_iter(values), |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        let mut beheaded: BTreeSet<(i64, Vec<u8>)> = BTreeSet::new();
        for id in &ids {
            let sql = "SELECT tenant, trace_id, start_us, ord, provider, model, operation, ifnull(score, -1) \
                FROM spans WHERE id = ?1";
            let (key, trace_id, start_us, ord) = conn.prepare_cached(sql)?.query_row([id], |row| {
                let [tenant, provider, model, operation, score] =
                    [row.get(0)?, row.get(4)?, row.get(5)?, row.get(6)?, row.get(7)?];
                let key = Key { tenant, provider, model, operation, score };
                Ok((key, row.get::<_, Vec<u8>>(1)?, row.get::<_, i64>(2)?, row.get::<_, i64>(3)?))
            })?;
            let weight = with_actions(conn, *id, read::weight_of_row(conn, *id)?)?;
            action_sums::remove_span(conn, &key, *id)?;
            conn.prepare_cached("DELETE FROM actions WHERE span = ?1")?.execute([id])?;
            conn.prepare_cached("DELETE FROM spans WHERE id = ?1")?.execute([id])?;
            self.tallies.remove(key, start_us, i64::from(ord == 0), &weight);
            if ord == 0 {
                beheaded.insert((key.tenant, trace_id));
            }
        }
        for (tenant, trace_id) in beheaded {
            self.promote(tenant, &trace_id)?;
        }
        Ok(ids.len())
    }

    /// The earliest span left is the first of its trace now.
    fn promote(&mut self, tenant: i64, trace_id: &[u8]) -> Result<(), WriteError> {
        // Named, because the order would tempt SQLite into walking the tenant's whole time index.
        let sql = "SELECT id, start_us, provider, model, operation, ifnull(score, -1) FROM spans \
            INDEXED BY spans_by_trace WHERE tenant = ?1 AND trace_id = ?2 ORDER BY start_us, id LIMIT 1";
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
        }
        Ok(())
    }

    /// Makes everything of a tenant unfindable and leaves it to be taken out. The integer is never given to another.
    pub(crate) fn forget_tenant(&mut self, tenant: TenantId) -> Result<(), WriteError> {
        self.conn.prepare_cached("DELETE FROM spend WHERE tenant = ?1")?.execute([tenant.as_bytes().as_slice()])?;
        let found = find_tenant(self.conn, tenant)?;
        if let Some(found) = found {
            // No longer 16 bytes, so no tenant's; the number keeps it unique however often a tenant is deleted.
            let tombstone = [tenant.as_bytes().as_slice(), &found.to_be_bytes()].concat();
            self.conn.prepare_cached("UPDATE tenants SET uuid = ?2 WHERE id = ?1")?.execute((found, tombstone))?;
            self.conn.prepare_cached("INSERT INTO erasures (tenant) VALUES (?1)")?.execute([found])?;
            self.interner.forget();
        }
        Ok(())
    }

    /// Takes out some rows of a deleted tenant; false when there is none left.
    pub(super) fn erase_deleted(&mut self) -> Result<bool, WriteError> {
        let conn = self.conn;
        let Some(tenant) = deleted(conn)? else { return Ok(false) };
        let condition = "span IN (SELECT id FROM spans WHERE tenant = ?1 ORDER BY id LIMIT ?2)";
        conn.prepare_cached(&format!("DELETE FROM actions WHERE {condition}"))?.execute((tenant, BATCH_ROWS))?;
        let spans = conn
            .prepare_cached(
                "DELETE FROM spans WHERE id IN (SELECT id FROM spans WHERE tenant = ?1 ORDER BY id LIMIT ?2)",
            )?
            .execute((tenant, BATCH_ROWS))?;
        if spans > 0 {
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
        // Its actions went with the spans they belong to.
        for table in ["reports", "tallies", "erasures"] {
            conn.prepare_cached(&format!("DELETE FROM {table} WHERE tenant = ?1"))?.execute([tenant])?;
        }
        Ok(true)
    }
}

/// A deleted tenant with rows left.
pub(super) fn deleted(conn: &Connection) -> rusqlite::Result<Option<i64>> {
    conn.prepare_cached("SELECT tenant FROM erasures LIMIT 1")?.query_row([], |row| row.get(0)).optional()
}

/// A span's weight with that of its actions.
pub(super) fn with_actions(conn: &Connection, span: i64, mut weight: Weight) -> rusqlite::Result<Weight> {
    let sql = "SELECT ifnull(sum(findings), 0), ifnull(sum(length(body)), 0) FROM actions WHERE span = ?1";
    let (findings, bytes): (i64, i64) =
        conn.prepare_cached(sql)?.query_row([span], |row| Ok((row.get(0)?, row.get(1)?)))?;
    weight.findings += findings;
    weight.bytes += bytes;
    Ok(weight)
}

impl Store {
    /// Deletes a tenant's traces, actions and reports. None of it can be found when this returns; the rows themselves
    /// are taken out of the file soon after. The audit log stays.
    ///
    /// # Errors
    /// [`NotWritten`].
    pub fn delete_tenant_data(&self, tenant: TenantId) -> Result<(), NotWritten> {
        self.write("delete_tenant", move |tx| tx.forget_tenant(tenant))
    }
}
