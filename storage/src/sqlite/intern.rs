//! Small integers for tenants and names, remembered by the writer.
//!
//! What is remembered may be forgotten at any time (the tables are the truth), and must be when a transaction that may
//! have added a row is rolled back. The memory is bounded because models are chosen by clients.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, ToSql};
use weir_config::vocab::{TenantId, Timestamp};

/// Remembered entries per kind.
const REMEMBERED_MAX: usize = 4096;

#[derive(Default)]
pub(super) struct Interner {
    tenants: HashMap<TenantId, i64>,
    names: HashMap<String, i64>,
    /// Tenants deleted lately: what began before is not recorded any more.
    buried: HashMap<TenantId, Timestamp>,
    /// Those of the transaction under way: they count once it is committed.
    burials: Vec<(TenantId, Timestamp)>,
}

/// Deletions remembered. More are deleted while an exchange is in flight only by a script.
const BURIED_MAX: usize = 1024;

impl Interner {
    pub(super) fn forget(&mut self) {
        self.tenants.clear();
        self.names.clear();
    }

    /// Nothing is recorded that began before `at`, once the transaction is committed. Forgetting does not undo it: a commit
    /// that was reported as failed may be in the file.
    pub(super) fn bury(&mut self, tenant: TenantId, at: Timestamp) {
        self.burials.push((tenant, at));
    }

    /// Deletions of the transaction under way, so far.
    pub(super) fn burials(&self) -> usize {
        self.burials.len()
    }

    /// Takes back all deletions of the transaction but the first ones.
    pub(super) fn unbury(&mut self, but: usize) {
        self.burials.truncate(but);
    }

    /// The transaction is committed.
    pub(super) fn settle(&mut self) {
        for (tenant, at) in self.burials.drain(..) {
            if self.buried.len() >= BURIED_MAX {
                self.buried.clear();
            }
            self.buried.insert(tenant, at);
        }
    }

    /// Whether the tenant was deleted after `start`.
    pub(super) fn is_buried(&self, tenant: TenantId, start: Timestamp) -> bool {
        !self.buried.is_empty() && self.buried.get(&tenant).is_some_and(|at| start <= *at)
    }

    pub(super) fn tenant(&mut self, conn: &Connection, tenant: TenantId) -> rusqlite::Result<i64> {
        if let Some(id) = self.tenants.get(&tenant) {
            return Ok(*id);
        }
        let insert = "INSERT INTO tenants (uuid, created_us) \
            VALUES (?1, CAST(unixepoch('subsec') * 1000000 AS INTEGER)) ON CONFLICT DO NOTHING";
        let id = intern(conn, insert, TENANT, tenant.as_bytes())?;
        if self.tenants.len() >= REMEMBERED_MAX {
            self.tenants.clear();
        }
        self.tenants.insert(tenant, id);
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

/// The integer of a tenant, for a reader; `None` when it has no rows.
pub(super) fn find_tenant(conn: &Connection, tenant: TenantId) -> rusqlite::Result<Option<i64>> {
    conn.prepare_cached(TENANT)?.query_row([tenant.as_bytes()], |row| row.get(0)).optional()
}

/// The integer of a name, for a reader; `None` when no row has it.
pub(super) fn find_name(conn: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    conn.prepare_cached(NAME)?.query_row([name], |row| row.get(0)).optional()
}
