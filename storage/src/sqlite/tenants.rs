//! Tenants by name, and the numbers their tokens are derived from.
//!
//! Invariant: every change is in the audit log by the same commit. A deleted tenant's keys and texts go in that commit,
//! its spans are unfindable from then on and taken out afterwards (`erase`), and what was still on its way to the record
//! when it was deleted is dropped.

use rusqlite::{Connection, OptionalExtension, Row};
use serde_json::{Map, Value};
use weir_config::vocab::{TenantId, Timestamp};

use super::intern::find_tenant;
use super::read::{ANSWER_BYTES_MAX, unless_full};
use super::readers::Stop;
use super::reads::Reads;
use super::tx::Tx;
use crate::audit::AuditEvent;
use crate::change::TokenWanted;
use crate::error::ReadError;
use crate::error::WriteError;
use crate::query::{Page, Paged, Place};
use crate::tenants::{NewTenant, TenantChange, TenantRecord, TenantUpdate};

/// Integers that a row of `tenant_blocks` counts.
const BLOCK_BITS: u32 = 9;
/// How long it is not said again that somebody was shown a token: nothing takes lines of the audit log out again.
const TOLD_US: u64 = 3_600_000_000;
/// Lines that are looked through for when it was said last.
const TOLD_LINES: u32 = 256;
/// What a byte of a stored configuration takes in an answer: the text becomes a tree of values.
const TREE_BYTES: usize = 8;
const COLUMNS: &str = "uuid, name, plan, config, created_us, updated_us";

fn record(row: &Row<'_>) -> rusqlite::Result<TenantRecord> {
    let id = TenantId::from_bytes(row.get(0)?);
    let config: Option<String> = row.get(3)?;
    let config: Map<String, Value> = config.map_or(Ok(Map::new()), |text| {
        serde_json::from_str(&text)
            .map_err(|error| rusqlite::Error::FromSqlConversionFailure(3, rusqlite::types::Type::Text, Box::new(error)))
    })?;
    let created_us: i64 = row.get::<_, Option<i64>>(4)?.unwrap_or(0);
    let updated_us: i64 = row.get::<_, Option<i64>>(5)?.unwrap_or(created_us);
    Ok(TenantRecord {
        id,
        name: row.get::<_, Option<String>>(1)?.unwrap_or_else(|| seen_name(id)),
        plan: row.get(2)?,
        config,
        created_at: Timestamp::from_micros(created_us),
        updated_at: Timestamp::from_micros(updated_us),
    })
}

/// What a tenant is called that nobody has named. Made of its id, never of what its traffic carried.
fn seen_name(id: TenantId) -> String {
    format!("tenant {id}")
}

fn one(conn: &Connection, id: TenantId) -> rusqlite::Result<Option<TenantRecord>> {
    conn.prepare_cached(&format!("SELECT {COLUMNS} FROM tenants WHERE uuid = ?1"))?
        .query_row([id.as_bytes()], record)
        .optional()
}

/// How many tenants there are, and where the one after so many others stands, newest first: below this integer, after skipping
/// some.
fn place(conn: &Connection, offset: u64) -> rusqlite::Result<(u64, Option<(i64, i64)>)> {
    let (mut total, mut place) = (0, None);
    let mut statement = conn.prepare_cached("SELECT block, tenants FROM tenant_blocks ORDER BY block DESC")?;
    let mut blocks = statement.query([])?;
    while let Some(row) = blocks.next()? {
        let (block, tenants) = (row.get::<_, i64>(0)?, row.get::<_, i64>(1)?.unsigned_abs());
        if place.is_none() && offset < total + tenants {
            place = Some(((block + 1) << BLOCK_BITS, (offset - total).cast_signed()));
        }
        total += tenants;
    }
    Ok((total, place))
}

impl Tx<'_> {
    pub(super) fn create_tenant(
        &mut self,
        new: &NewTenant,
        by: &AuditEvent,
    ) -> Result<Option<TenantRecord>, WriteError> {
        let now_us = Timestamp::now().micros();
        let sql = "INSERT INTO tenants (uuid, name, plan, config, created_us, updated_us) \
            VALUES (?1, ?2, ?3, ?4, ?5, ?5)";
        let config = Value::Object(new.config.clone()).to_string();
        self.conn.prepare_cached(sql)?.execute((new.id.as_bytes(), &new.name, &new.plan, config, now_us))?;
        self.audit(by)?;
        Ok(one(self.conn, new.id)?)
    }

    /// Changes a tenant, unless its config is not the one that the change was made of.
    pub(super) fn update_tenant(
        &mut self,
        id: TenantId,
        change: &TenantChange,
        by: &AuditEvent,
    ) -> Result<TenantUpdate, WriteError> {
        let Some(former) = one(self.conn, id)? else { return Ok(TenantUpdate::Unknown) };
        if change.based_on.as_ref().is_some_and(|config| *config != former.config) {
            return Ok(TenantUpdate::Outdated);
        }
        let name = change.name.clone().unwrap_or(former.name);
        let plan = change.plan.clone().unwrap_or(former.plan);
        let config = Value::Object(change.config.clone().unwrap_or(former.config)).to_string();
        let sql = "UPDATE tenants SET name = ?2, plan = ?3, config = ?4, updated_us = ?5 WHERE uuid = ?1";
        let now_us = Timestamp::now().micros();
        self.conn.prepare_cached(sql)?.execute((id.as_bytes(), name, plan, config, now_us))?;
        self.audit(by)?;
        Ok(one(self.conn, id)?.map_or(TenantUpdate::Unknown, TenantUpdate::Made))
    }

    /// Deletes a tenant with everything it has; false when there is none of this id.
    pub(super) fn delete_tenant(&mut self, id: TenantId, by: &AuditEvent) -> Result<bool, WriteError> {
        let Some(tenant) = find_tenant(self.conn, id)? else { return Ok(false) };
        self.conn.prepare_cached("DELETE FROM api_keys WHERE tenant = ?1")?.execute([tenant])?;
        self.conn.prepare_cached("DELETE FROM provider_keys WHERE tenant = ?1")?.execute([tenant])?;
        let sql = "UPDATE tenants SET name = NULL, plan = NULL, config = NULL, token_nonce = NULL WHERE id = ?1";
        self.conn.prepare_cached(sql)?.execute([tenant])?;
        self.forget_tenant(id)?;
        self.audit(by)?;
        Ok(true)
    }

    /// The number a tenant's token is derived from, `fresh` if none has been issued before.
    pub(super) fn issue_token(&mut self, wanted: &TokenWanted) -> Result<Option<i64>, WriteError> {
        let TokenWanted { id, fresh, create, issued, shown } = wanted;
        if *create {
            self.interner.tenant(self.conn, *id)?;
        }
        let present = nonce(self.conn, *id)?;
        if let Some(None) = present {
            set_nonce(self, *id, *fresh)?;
            self.audit(issued)?;
            return Ok(Some(*fresh));
        }
        if let (Some(Some(_)), Some(shown)) = (present, shown)
            && !is_told(self.conn, *id, shown)?
        {
            self.audit(shown)?;
        }
        Ok(present.flatten())
    }

    /// From now on a tenant's token is derived from `fresh`; false when there is no such tenant.
    pub(super) fn reset_token(&mut self, id: TenantId, fresh: i64, by: &AuditEvent) -> Result<bool, WriteError> {
        if nonce(self.conn, id)?.is_none() {
            return Ok(false);
        }
        set_nonce(self, id, fresh)?;
        self.audit(by)?;
        Ok(true)
    }
}

impl Reads<'_> {
    /// Tenants, newest first.
    pub(crate) fn list_tenants(&self, mut page: Page) -> Result<Paged<TenantRecord>, ReadError> {
        self.ask("read_tenants", |conn| {
            let (total, place) = place(conn, page.offset)?;
            let place = page.after.map_or(place, |after| Some((after.row, 0)));
            let (mut data, mut last) = (Vec::new(), None);
            if let Some((below, skip)) = place {
                let sql = format!(
                    "SELECT {COLUMNS}, id FROM tenants INDEXED BY tenants_there WHERE length(uuid) = 16 AND id < ?1 \
                     ORDER BY id DESC LIMIT ?2 OFFSET ?3"
                );
                let mut statement = conn.prepare_cached(&sql)?;
                let mut rows = statement.query((below, page.limit, skip))?;
                let mut bytes = 0;
                while let Some(row) = rows.next()? {
                    bytes += TREE_BYTES * row.get_ref(3)?.as_str_or_null().ok().flatten().map_or(0, str::len);
                    let read = if bytes > ANSWER_BYTES_MAX {
                        Err(Stop::Refused(ReadError::RecordTooLarge { limit_bytes: ANSWER_BYTES_MAX }))
                    } else {
                        record(row).map_err(Stop::Sql)
                    };
                    let Some(tenant) = unless_full(read, data.len(), &mut page)? else { break };
                    data.push(tenant);
                    last = Some(row.get::<_, i64>("id")?);
                    if bytes >= page.enough_bytes {
                        break;
                    }
                }
            }
            // Behind the last tenant comes an empty page.
            Ok(Paged { next: last.map(Place::of_row), ..Paged::new(data, total, page) })
        })
    }

    /// One tenant.
    pub(crate) fn tenant(&self, id: TenantId) -> Result<Option<TenantRecord>, ReadError> {
        self.ask("read_tenant", |conn| Ok(one(conn, id)?))
    }

    /// The name somebody has given it.
    pub(crate) fn tenant_name(&self, id: TenantId) -> Result<Option<String>, ReadError> {
        self.ask("read_tenant", |conn| {
            let mut statement = conn.prepare_cached("SELECT name FROM tenants WHERE uuid = ?1")?;
            Ok(statement.query_row([id.as_bytes()], |row| row.get::<_, Option<String>>(0)).optional()?.flatten())
        })
    }

    /// The number a tenant's token is derived from; `Some(None)` when none has been issued, `None` when there is no such
    /// tenant.
    pub(crate) fn token_nonce(&self, id: TenantId) -> Result<Option<Option<i64>>, ReadError> {
        self.ask("read_token", |conn| Ok(nonce(conn, id)?))
    }
}

/// Whether the log says already that this actor was shown the token, and lately.
fn is_told(conn: &Connection, tenant: TenantId, shown: &AuditEvent) -> rusqlite::Result<bool> {
    let sql = "SELECT action, actor, at_us FROM audit WHERE tenant = ?1 ORDER BY nth DESC LIMIT ?2";
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query((tenant.as_bytes().as_slice(), TOLD_LINES))?;
    let now_us = Timestamp::now().micros();
    while let Some(row) = rows.next()? {
        let (action, at_us) = (row.get_ref(0)?.as_str()?, row.get::<_, i64>(2)?);
        // A clock that was ahead says nothing about how long ago it was.
        if now_us.abs_diff(at_us) >= TOLD_US || matches!(action, "token.reset" | "token.issue") {
            return Ok(false);
        }
        if action == shown.action && row.get_ref(1)?.as_str()? == shown.actor {
            return Ok(true);
        }
    }
    Ok(false)
}

fn nonce(conn: &Connection, id: TenantId) -> rusqlite::Result<Option<Option<i64>>> {
    conn.prepare_cached("SELECT token_nonce FROM tenants WHERE uuid = ?1")?
        .query_row([id.as_bytes()], |row| row.get(0))
        .optional()
}

fn set_nonce(tx: &Tx<'_>, id: TenantId, nonce: i64) -> Result<(), WriteError> {
    tx.conn.prepare_cached("UPDATE tenants SET token_nonce = ?2 WHERE uuid = ?1")?.execute((id.as_bytes(), nonce))?;
    Ok(())
}
