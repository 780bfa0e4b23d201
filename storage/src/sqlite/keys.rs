//! API keys: digests, never keys.
//!
//! Invariant: every creation and revocation is in the audit log by the same commit.

use std::collections::HashMap;

use rusqlite::{OptionalExtension, Row, params_from_iter};
use weir_config::vocab::{KeyId, Role, TenantId, Timestamp};

use super::audit::head;
use super::intern::find_tenant;
use super::paging::{first_place, next_place};
use super::readers::{Readers, Stop};
use super::reads::Reads;
use super::tx::Tx;
use crate::audit::AuditEvent;
use crate::error::ReadError;
use crate::error::WriteError;
use crate::query::{Page, Paged};
use crate::tenants::{ActiveKey, CredentialChanges, Credentials, KeyRecord};

pub(super) fn role(row: &Row<'_>, column: usize) -> rusqlite::Result<Role> {
    let text: String = row.get(column)?;
    text.parse().map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, Box::new(error))
    })
}

impl Tx<'_> {
    /// Puts a key in; false when there is no such tenant.
    pub(super) fn create_key(
        &mut self,
        key: &KeyRecord,
        sha256: &[u8; 32],
        by: &AuditEvent,
    ) -> Result<bool, WriteError> {
        let Some(tenant) = find_tenant(self.conn, key.tenant_id)? else { return Ok(false) };
        let sql = "INSERT INTO api_keys (key_id, tenant, name, key_prefix, sha256, role, created_us, nth) \
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, \
            1 + ifnull((SELECT max(nth) FROM api_keys WHERE tenant = ?2), 0))";
        self.conn.prepare_cached(sql)?.execute((
            key.id.as_bytes(),
            tenant,
            &key.name,
            &key.key_prefix,
            sha256,
            key.role.as_str(),
            key.created_at.micros(),
        ))?;
        self.audit(by)?;
        Ok(true)
    }

    /// Revokes a key; false when there is none of this id, or it is revoked already. `by` gets the key's tenant.
    pub(super) fn revoke_key(&mut self, id: KeyId, by: &AuditEvent) -> Result<bool, WriteError> {
        let sql = "SELECT tenants.uuid FROM api_keys JOIN tenants ON tenants.id = api_keys.tenant \
            WHERE key_id = ?1 AND revoked_us IS NULL";
        let tenant: Option<[u8; 16]> =
            self.conn.prepare_cached(sql)?.query_row([id.as_bytes()], |row| row.get(0)).optional()?;
        let Some(tenant) = tenant else { return Ok(false) };
        let sql = "UPDATE api_keys SET revoked_us = ?2 WHERE key_id = ?1";
        self.conn.prepare_cached(sql)?.execute((id.as_bytes(), Timestamp::now().micros()))?;
        self.audit(&AuditEvent { tenant: Some(TenantId::from_bytes(tenant)), ..by.clone() })?;
        Ok(true)
    }

    pub(super) fn touch_keys(&self, used: &[(KeyId, Timestamp)]) -> Result<(), WriteError> {
        let sql = "UPDATE api_keys SET last_used_us = max(ifnull(last_used_us, 0), ?2) WHERE key_id = ?1";
        let mut statement = self.conn.prepare_cached(sql)?;
        for (id, at) in used {
            statement.execute((id.as_bytes(), at.micros()))?;
        }
        Ok(())
    }

    pub(super) fn note_token_key(&self, sha256: &[u8; 32]) -> Result<(), WriteError> {
        let sql = "INSERT OR REPLACE INTO token_key (id, sha256) VALUES (1, ?1)";
        self.conn.prepare_cached(sql)?.execute([&sha256[..]])?;
        Ok(())
    }
}

impl Reads<'_> {
    /// A tenant's keys, newest first, revoked ones among them.
    pub(crate) fn list_keys(&self, tenant_id: TenantId, page: Page) -> Result<Paged<KeyRecord>, ReadError> {
        self.ask("read_keys", |conn| {
            let mut answer = Paged::new(Vec::new(), 0, page);
            let Some(tenant) = find_tenant(conn, tenant_id)? else { return Ok(answer) };
            let total: i64 = conn
                .prepare_cached("SELECT ifnull(max(nth), 0) FROM api_keys WHERE tenant = ?1")?
                .query_row([tenant], |row| row.get(0))?;
            answer.total = total.unsigned_abs();
            let sql = "SELECT key_id, name, key_prefix, role, created_us, revoked_us, last_used_us FROM api_keys \
                WHERE tenant = ?1 AND nth <= ?2 ORDER BY nth DESC LIMIT ?3";
            let mut statement = conn.prepare_cached(sql)?;
            let first = first_place(total, page);
            let rows = statement.query_map((tenant, first, page.limit), |row| {
                Ok(KeyRecord {
                    id: KeyId::from_bytes(row.get(0)?),
                    tenant_id,
                    name: row.get(1)?,
                    key_prefix: row.get(2)?,
                    role: role(row, 3)?,
                    created_at: Timestamp::from_micros(row.get(4)?),
                    revoked_at: row.get::<_, Option<i64>>(5)?.map(Timestamp::from_micros),
                    last_used_at: row.get::<_, Option<i64>>(6)?.map(Timestamp::from_micros),
                })
            })?;
            answer.data = rows.collect::<Result<_, _>>()?;
            answer.next = next_place(first, answer.data.len(), 1);
            Ok(answer)
        })
    }

    /// Everything that lets somebody in: of all tenants, or of one.
    pub(crate) fn load_credentials(&self, of: Option<TenantId>) -> Result<Credentials, ReadError> {
        let mut loaded = Credentials::default();
        self.ask("read_keys", |conn| {
            let only = if of.is_some() { " AND uuid = ?1" } else { "" };
            let sql = format!("SELECT id, uuid, token_nonce FROM tenants WHERE length(uuid) = 16{only}");
            let mut statement = conn.prepare_cached(&sql)?;
            let mut tenants = HashMap::new();
            let mut rows = statement.query(params_from_iter(of.as_ref().map(TenantId::as_bytes)))?;
            while let Some(row) = rows.next()? {
                let tenant_id = TenantId::from_bytes(row.get(1)?);
                tenants.insert(row.get::<_, i64>(0)?, tenant_id);
                if let Some(nonce) = row.get(2)? {
                    loaded.tokens.push((tenant_id, nonce));
                }
            }
            let sha256: Option<[u8; 32]> = conn
                .prepare_cached("SELECT sha256 FROM token_key WHERE id = 1")?
                .query_row([], |row| row.get(0))
                .optional()?;
            loaded.token_key_sha256 = sha256;
            // One tenant's have an index.
            let one = of.and_then(|_| tenants.keys().next().copied());
            if of.is_some() && one.is_none() {
                return Ok(());
            }
            let only = if one.is_some() { " AND tenant = ?1" } else { "" };
            let sql = format!("SELECT tenant, key_id, role, sha256 FROM api_keys WHERE revoked_us IS NULL{only}");
            let mut statement = conn.prepare_cached(&sql)?;
            let mut rows = statement.query(params_from_iter(one))?;
            while let Some(row) = rows.next()? {
                if let Some(tenant_id) = tenants.get(&row.get::<_, i64>(0)?) {
                    loaded.keys.push(ActiveKey {
                        id: KeyId::from_bytes(row.get(1)?),
                        tenant_id: *tenant_id,
                        role: role(row, 2)?,
                        sha256: row.get(3)?,
                    });
                }
            }
            Ok::<_, Stop>(())
        })?;
        Ok(loaded)
    }
}

impl Readers {
    /// Whose identities changed behind a line of the audit log, where every such change stands by the same commit. Not told to the
    /// observer, and with a place of its own: it is asked several times a second, and what was revoked must not wait for pages.
    pub(crate) fn identity_changes(&self, after: u64) -> Result<CredentialChanges, ReadError> {
        self.with_kept_place(|conn| {
            let upto = head(conn)?.0.unsigned_abs();
            let mut changes = CredentialChanges { upto, ..CredentialChanges::default() };
            if upto <= after {
                return Ok(changes);
            }
            let sql = "SELECT DISTINCT tenant FROM audit WHERE seq > ?1 AND seq <= ?2 AND length(tenant) = 16 AND \
                (action GLOB 'tenant.*' OR action GLOB 'key.*' OR action GLOB 'token.*' OR action GLOB 'provider_key.*')";
            let mut statement = conn.prepare_cached(sql)?;
            let bounds = (after.cast_signed(), upto.cast_signed());
            let rows = statement.query_map(bounds, |row| Ok(TenantId::from_bytes(row.get(0)?)))?;
            changes.tenants = rows.collect::<Result<_, _>>()?;
            Ok(changes)
        })
    }
}
