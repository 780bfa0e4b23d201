//! Credentials for providers that tenants bring themselves, encrypted by whoever hands them in.
//!
//! Invariant: every change is in the audit log by the same commit.

use weir_config::vocab::{TenantId, Timestamp};

use super::intern::find_tenant;
use super::readers::Stop;
use super::reads::Reads;
use super::tx::Tx;
use crate::audit::AuditEvent;
use crate::error::ReadError;
use crate::error::WriteError;
use crate::tenants::SealedKey;

impl Tx<'_> {
    /// Puts a key in, in the place of the tenant's former one for that upstream; false when there is no such tenant.
    pub(super) fn set_provider_key(&mut self, key: &SealedKey, by: &AuditEvent) -> Result<bool, WriteError> {
        let Some(tenant) = find_tenant(self.conn, key.tenant_id)? else { return Ok(false) };
        let sql = "INSERT INTO provider_keys (tenant, upstream, sealed, key_sha256, created_us, changed_us) \
            VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (tenant, upstream) DO UPDATE \
            SET sealed = excluded.sealed, key_sha256 = excluded.key_sha256, changed_us = excluded.changed_us";
        self.conn.prepare_cached(sql)?.execute((
            tenant,
            &key.upstream,
            &key.sealed,
            &key.key_sha256[..],
            key.created_at.micros(),
            key.changed_at.micros(),
        ))?;
        self.audit(by)?;
        Ok(true)
    }

    /// Takes a key out; false when there is none.
    pub(super) fn remove_provider_key(
        &mut self,
        id: TenantId,
        upstream: &str,
        by: &AuditEvent,
    ) -> Result<bool, WriteError> {
        let Some(tenant) = find_tenant(self.conn, id)? else { return Ok(false) };
        let sql = "DELETE FROM provider_keys WHERE tenant = ?1 AND upstream = ?2";
        let is_there = self.conn.prepare_cached(sql)?.execute((tenant, upstream))? > 0;
        if is_there {
            self.audit(by)?;
        }
        Ok(is_there)
    }
}

impl Reads<'_> {
    /// The keys of all tenants, or of one.
    pub(crate) fn provider_keys(&self, of: Option<TenantId>) -> Result<Vec<SealedKey>, ReadError> {
        self.ask("read_keys", |conn| {
            let only = if of.is_some() { " AND t.uuid = ?1" } else { "" };
            let sql = format!(
                "SELECT t.uuid, k.upstream, k.sealed, k.key_sha256, k.created_us, k.changed_us \
                 FROM provider_keys k JOIN tenants t ON t.id = k.tenant WHERE length(t.uuid) = 16{only}"
            );
            let mut statement = conn.prepare_cached(&sql)?;
            let tenant = of.as_ref().map(TenantId::as_bytes);
            let rows = statement.query_map(rusqlite::params_from_iter(tenant), |row| {
                Ok(SealedKey {
                    tenant_id: TenantId::from_bytes(row.get(0)?),
                    upstream: row.get(1)?,
                    sealed: row.get(2)?,
                    key_sha256: row.get(3)?,
                    created_at: Timestamp::from_micros(row.get(4)?),
                    changed_at: Timestamp::from_micros(row.get(5)?),
                })
            })?;
            Ok::<_, Stop>(rows.collect::<Result<_, _>>()?)
        })
    }
}
