//! Small integers for tenants and names, remembered by the writer.
//!
//! What is remembered may be forgotten at any time (the tables are the truth), and must be when a transaction that may
//! have added a row is rolled back, or when a tenant was deleted, by this process or another one on the same file. The
//! memory is bounded because models are chosen by clients.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, ToSql};
use weir_config::vocab::{TenantId, Timestamp};

/// Remembered entries per kind.
const REMEMBERED_MAX: usize = 4096;
/// How far ahead a deletion may lie: clocks of a machine are set by less while it runs.
const AHEAD_MAX_US: i64 = 60_000_000;

#[derive(Default)]
pub(super) struct Interner {
    tenants: HashMap<TenantId, Known>,
    names: HashMap<String, i64>,
    /// The latest deletion of a tenant that `tenants` has taken in.
    deletion: i64,
}

/// A tenant that the tables have.
struct Known {
    id: i64,
    /// When a former tenant of this UUID was deleted; `i64::MIN` when none was.
    deleted_us: i64,
}

impl Interner {
    pub(super) fn forget(&mut self) {
        self.tenants.clear();
        self.names.clear();
    }

    /// To be called at the beginning of every transaction: a tenant may have been deleted by another process.
    pub(super) fn catch_up(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        let sql = "SELECT ifnull(max(id), 0) FROM burials";
        let last = conn.prepare_cached(sql)?.query_row([], |row| row.get(0))?;
        if std::mem::replace(&mut self.deletion, last) != last {
            self.tenants.clear();
        }
        Ok(())
    }

    /// The integer of the tenant of something that began at `start`; `None` when the tenant was deleted after that.
    pub(super) fn tenant_since(
        &mut self,
        conn: &Connection,
        tenant: TenantId,
        start: Timestamp,
    ) -> rusqlite::Result<Option<i64>> {
        let start_us = start.micros();
        if let Some(known) = self.tenants.get(&tenant) {
            if start_us > known.deleted_us {
                return Ok(Some(known.id));
            }
            if !is_ahead(known.deleted_us) {
                return Ok(None);
            }
            self.tenants.remove(&tenant);
        }
        let deleted_us = deleted_us(conn, tenant)?.unwrap_or(i64::MIN);
        if start_us > deleted_us { self.meet(conn, tenant, deleted_us).map(Some) } else { Ok(None) }
    }

    /// The tenant's integer; a tenant that is not there begins with it.
    pub(super) fn tenant(&mut self, conn: &Connection, tenant: TenantId) -> rusqlite::Result<i64> {
        if let Some(known) = self.tenants.get(&tenant) {
            return Ok(known.id);
        }
        let deleted_us = deleted_us(conn, tenant)?.unwrap_or(i64::MIN);
        self.meet(conn, tenant, deleted_us)
    }

    fn meet(&mut self, conn: &Connection, tenant: TenantId, deleted_us: i64) -> rusqlite::Result<i64> {
        let insert = "INSERT INTO tenants (uuid, created_us) \
            VALUES (?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) ON CONFLICT DO NOTHING";
        let id = intern(conn, insert, TENANT, tenant.as_bytes())?;
        if self.tenants.len() >= REMEMBERED_MAX {
            self.tenants.clear();
        }
        self.tenants.insert(tenant, Known { id, deleted_us });
        Ok(id)
    }

    pub(super) fn name(&mut self, conn: &Connection, name: &str) -> rusqlite::Result<i64> {
        if let Some(id) = self.names.get(name) {
            return Ok(*id);
        }
        let id = intern(conn, "INSERT INTO names (text) VALUES (?1) ON CONFLICT DO NOTHING", NAME, &name)?;
        if self.names.len() >= REMEMBERED_MAX {
            self.names.clear();
        }
        self.names.insert(name.to_owned(), id);
        Ok(id)
    }
}

const TENANT: &str = "SELECT id FROM tenants WHERE uuid = ?1";
const NAME: &str = "SELECT id FROM names WHERE text = ?1";

fn intern(conn: &Connection, insert: &str, select: &str, value: &dyn ToSql) -> rusqlite::Result<i64> {
    let find = || conn.prepare_cached(select)?.query_row([value], |row| row.get(0)).optional();
    if let Some(id) = find()? {
        return Ok(id);
    }
    conn.prepare_cached(insert)?.execute([value])?;
    find()?.ok_or(rusqlite::Error::QueryReturnedNoRows)
}

/// When the last tenant of this UUID was deleted; `None` when none was. For the writer: a deletion that was written while the
/// clock was ahead would keep out what begins until then, so it is taken as now, once.
pub(super) fn deleted_us(conn: &Connection, tenant: TenantId) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT at_us FROM burials WHERE tenant = ?1";
    let at_us: Option<i64> = conn.prepare_cached(sql)?.query_row([tenant.as_bytes()], |row| row.get(0)).optional()?;
    if at_us.is_some_and(is_ahead) {
        let now_us = Timestamp::now().micros();
        tracing::warn!(%tenant, "a tenant was deleted while the clock was ahead: its deletion is taken as made now");
        conn.prepare_cached("UPDATE burials SET at_us = ?2 WHERE tenant = ?1")?.execute((tenant.as_bytes(), now_us))?;
        return Ok(Some(now_us));
    }
    Ok(at_us)
}

/// Whether a deletion was written by a clock that was ahead of this one.
fn is_ahead(deleted_us: i64) -> bool {
    deleted_us > Timestamp::now().micros().saturating_add(AHEAD_MAX_US)
}

/// The integer of a tenant, for a reader; `None` when it has no rows.
pub(super) fn find_tenant(conn: &Connection, tenant: TenantId) -> rusqlite::Result<Option<i64>> {
    conn.prepare_cached(TENANT)?.query_row([tenant.as_bytes()], |row| row.get(0)).optional()
}

/// The integer of a name, for a reader; `None` when no row has it.
pub(super) fn find_name(conn: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    conn.prepare_cached(NAME)?.query_row([name], |row| row.get(0)).optional()
}
