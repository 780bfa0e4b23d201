//! Tenants, keys, tokens and provider keys in the relational store. Every change is in the audit log by the same commit.

use std::collections::HashSet;

use postgres::Row;
use serde_json::{Map, Value};
use uuid::Uuid;
use weir_config::vocab::{KeyId, Role, TenantId, Timestamp};

use super::relational::{Fail, Relational, Tx, col, p, tenant_of};
use crate::audit::AuditEvent;
use crate::error::{NotWritten, ReadError};
use crate::query::{Page, Paged, Place};
use crate::tenants::{
    ActiveKey, CredentialChanges, Credentials, KeyRecord, NewTenant, Provenance, SealedKey, TenantChange, TenantRecord,
    TenantUpdate,
};

/// How long it is not said again that somebody was shown a token.
const TOLD_US: i64 = 3_600_000_000;
const TENANT: &str = "uuid, name, plan, config, created_us, updated_us, id";
const KEY: &str = "key_id, tenant, name, key_prefix, role, created_us, revoked_us, last_used_us, id";

fn tenant_record(row: &Row) -> Result<TenantRecord, Fail> {
    let id = tenant_of(row, 0)?;
    let config: Option<String> = col(row, 3)?;
    let config: Map<String, Value> =
        config.map_or(Ok(Map::new()), |text| serde_json::from_str(&text)).map_err(|_| Fail::Damaged)?;
    let created_us: i64 = col(row, 4)?;
    Ok(TenantRecord {
        id,
        // Made of its id, never of what its traffic carried.
        name: col::<Option<String>>(row, 1)?.unwrap_or_else(|| format!("tenant {id}")),
        plan: col(row, 2)?,
        config,
        created_at: Timestamp::from_micros(created_us),
        updated_at: Timestamp::from_micros(col::<Option<i64>>(row, 5)?.unwrap_or(created_us)),
    })
}

fn key_record(row: &Row) -> Result<KeyRecord, Fail> {
    Ok(KeyRecord {
        id: KeyId::from_bytes(*col::<Uuid>(row, 0)?.as_bytes()),
        tenant_id: tenant_of(row, 1)?,
        name: col(row, 2)?,
        key_prefix: col(row, 3)?,
        role: role(row, 4)?,
        created_at: Timestamp::from_micros(col(row, 5)?),
        revoked_at: col::<Option<i64>>(row, 6)?.map(Timestamp::from_micros),
        last_used_at: col::<Option<i64>>(row, 7)?.map(Timestamp::from_micros),
    })
}

fn role(row: &Row, column: usize) -> Result<Role, Fail> {
    col::<String>(row, column)?.parse().map_err(|_| Fail::Damaged)
}

/// Where a list by the numbers of its rows goes on, and what is skipped before.
pub(crate) fn window(page: Page) -> (i64, i64) {
    match page.after {
        Some(after) => (after.row, 0),
        None => (i64::MAX, i64::try_from(page.offset).unwrap_or(i64::MAX)),
    }
}

/// Where it goes on behind these rows, whose numbers stand in `column`.
pub(crate) fn next_of(rows: &[Row], column: usize, page: Page) -> Result<Option<Place>, Fail> {
    let last = rows.last().filter(|_| rows.len() == page.limit as usize);
    last.map(|row| col(row, column).map(Place::of_row)).transpose()
}

impl Tx<'_> {
    fn tenant(&mut self, id: TenantId) -> Result<Option<TenantRecord>, Fail> {
        let row = self.one(&format!("SELECT {TENANT} FROM tenants WHERE uuid = $1"), p![id])?;
        row.as_ref().map(tenant_record).transpose()
    }

    pub(crate) fn has_tenant(&mut self, id: TenantId) -> Result<bool, Fail> {
        Ok(self.one("SELECT 1 FROM tenants WHERE uuid = $1 FOR KEY SHARE", p![id])?.is_some())
    }

    /// A tenant that is only seen begins with what it is seen by.
    pub(crate) fn begin_tenant(&mut self, id: TenantId) -> Result<(), Fail> {
        let sql = "INSERT INTO tenants (uuid, created_us) VALUES ($1, $2) ON CONFLICT (uuid) DO NOTHING";
        self.run(sql, p![id, Timestamp::now().micros()]).map(|_| ())
    }

    /// Takes a tenant with all it has here out, and notes when.
    pub(crate) fn bury(&mut self, id: TenantId) -> Result<bool, Fail> {
        let sql = "INSERT INTO burials (tenant, at_us) VALUES ($1, $2) ON CONFLICT (tenant) DO UPDATE SET at_us = excluded.at_us";
        self.run(sql, p![id, Timestamp::now().micros()])?;
        self.run("DELETE FROM spend WHERE tenant = $1", p![id])?;
        self.run("DELETE FROM spend_ledger WHERE tenant = $1", p![id])?;
        self.run("DELETE FROM batch_charges WHERE tenant = $1", p![id])?;
        Ok(self.run("DELETE FROM tenants WHERE uuid = $1", p![id])? > 0)
    }

    fn nonce(&mut self, id: TenantId) -> Result<Option<Option<i64>>, Fail> {
        let row = self.one("SELECT token_nonce FROM tenants WHERE uuid = $1", p![id])?;
        row.map(|row| col(&row, 0)).transpose()
    }

    /// The same, and nobody else changes it before this change is made.
    fn nonce_to_change(&mut self, id: TenantId) -> Result<Option<Option<i64>>, Fail> {
        let row = self.one("SELECT token_nonce FROM tenants WHERE uuid = $1 FOR UPDATE", p![id])?;
        row.map(|row| col(&row, 0)).transpose()
    }

    /// Whether the log says already that this actor was shown the token, and lately.
    fn is_told(&mut self, id: TenantId, shown: &AuditEvent) -> Result<bool, Fail> {
        let sql = "SELECT action, actor, at_us FROM audit WHERE tenant = $1 ORDER BY nth DESC LIMIT 256";
        let now_us = Timestamp::now().micros();
        for row in self.rows(sql, p![id])? {
            let (action, actor, at_us): (String, String, i64) = (col(&row, 0)?, col(&row, 1)?, col(&row, 2)?);
            if now_us.abs_diff(at_us) >= TOLD_US.unsigned_abs()
                || matches!(action.as_str(), "token.reset" | "token.issue")
            {
                return Ok(false);
            }
            if action == shown.action && actor == shown.actor {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Relational {
    pub(crate) fn create_tenant(&self, new: &NewTenant, by: &AuditEvent) -> Result<TenantRecord, NotWritten> {
        let config = Value::Object(new.config.clone()).to_string();
        self.write(|tx| {
            let sql = "INSERT INTO tenants (uuid, name, plan, config, created_us, updated_us) VALUES ($1, $2, $3, $4, $5, $5)";
            tx.run(sql, p![new.id, &new.name, &new.plan, config.as_str(), Timestamp::now().micros()])?;
            tx.audit(by)?;
            tx.tenant(new.id)?.ok_or_else(|| Fail::Refused("the tenant vanished".to_owned()))
        })
    }

    pub(crate) fn list_tenants(&self, page: Page) -> Result<Paged<TenantRecord>, ReadError> {
        self.read(|tx| {
            let total: i64 = tx.value("SELECT count(*) FROM tenants", p![])?;
            let (below, skip) = window(page);
            let sql = format!("SELECT {TENANT} FROM tenants WHERE id < $1 ORDER BY id DESC LIMIT $2 OFFSET $3");
            let rows = tx.rows(&sql, p![below, i64::from(page.limit), skip])?;
            let data = rows.iter().map(tenant_record).collect::<Result<Vec<_>, _>>()?;
            Ok(Paged { next: next_of(&rows, 6, page)?, ..Paged::new(data, total.unsigned_abs(), page) })
        })
    }

    pub(crate) fn tenant(&self, id: TenantId) -> Result<Option<TenantRecord>, ReadError> {
        self.read(|tx| tx.tenant(id))
    }

    pub(crate) fn update_tenant(
        &self,
        id: TenantId,
        change: &TenantChange,
        by: &AuditEvent,
    ) -> Result<TenantUpdate, NotWritten> {
        self.write(|tx| {
            tx.rows("SELECT 1 FROM tenants WHERE uuid = $1 FOR UPDATE", p![id])?;
            let Some(former) = tx.tenant(id)? else { return Ok(TenantUpdate::Unknown) };
            if change.based_on.as_ref().is_some_and(|config| *config != former.config) {
                return Ok(TenantUpdate::Outdated);
            }
            let name = change.name.clone().unwrap_or(former.name);
            let plan = change.plan.clone().unwrap_or(former.plan);
            let config = Value::Object(change.config.clone().unwrap_or(former.config)).to_string();
            let sql = "UPDATE tenants SET name = $2, plan = $3, config = $4, updated_us = $5 WHERE uuid = $1";
            tx.run(sql, p![id, name, &plan, config, Timestamp::now().micros()])?;
            tx.audit(by)?;
            Ok(tx.tenant(id)?.map_or(TenantUpdate::Unknown, TenantUpdate::Made))
        })
    }

    pub(crate) fn delete_tenant(&self, id: TenantId, by: &AuditEvent) -> Result<bool, NotWritten> {
        self.write(|tx| {
            if !tx.has_tenant(id)? {
                return Ok(false);
            }
            tx.bury(id)?;
            tx.audit(by)?;
            Ok(true)
        })
    }

    pub(crate) fn issue_token(
        &self,
        id: TenantId,
        fresh: i64,
        create: bool,
        issued: &AuditEvent,
        shown: Option<&AuditEvent>,
    ) -> Result<Option<i64>, NotWritten> {
        self.write(|tx| {
            if create {
                tx.begin_tenant(id)?;
            }
            let present = tx.nonce_to_change(id)?;
            if let Some(None) = present {
                tx.run("UPDATE tenants SET token_nonce = $2 WHERE uuid = $1", p![id, fresh])?;
                tx.audit(issued)?;
                return Ok(Some(fresh));
            }
            if let (Some(Some(_)), Some(shown)) = (present, shown)
                && !tx.is_told(id, shown)?
            {
                tx.audit(shown)?;
            }
            Ok(present.flatten())
        })
    }

    pub(crate) fn token_nonce(&self, id: TenantId) -> Result<Option<Option<i64>>, ReadError> {
        self.read(|tx| tx.nonce(id))
    }

    pub(crate) fn reset_token(&self, id: TenantId, fresh: i64, by: &AuditEvent) -> Result<bool, NotWritten> {
        self.write(|tx| {
            if tx.run("UPDATE tenants SET token_nonce = $2 WHERE uuid = $1", p![id, fresh])? == 0 {
                return Ok(false);
            }
            tx.audit(by)?;
            Ok(true)
        })
    }

    pub(crate) fn note_token_key(&self, sha256: &[u8; 32]) -> Result<(), NotWritten> {
        let sql =
            "INSERT INTO token_key (id, sha256) VALUES (1, $1) ON CONFLICT (id) DO UPDATE SET sha256 = excluded.sha256";
        self.write(|tx| tx.run(sql, p![sha256.as_slice()]).map(|_| ()))
    }

    /// A secret that all gateways have: the one that is kept, or `own`, which is kept from then on.
    pub(crate) fn share_secret(&self, name: &str, own: Option<&[u8]>) -> Result<Option<Vec<u8>>, NotWritten> {
        self.write(|tx| {
            if let Some(own) = own {
                tx.run(
                    "INSERT INTO shared_secrets (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING",
                    p![name, own],
                )?;
            }
            let row = tx.one("SELECT value FROM shared_secrets WHERE name = $1", p![name])?;
            row.map(|row| col(&row, 0)).transpose()
        })
    }

    pub(crate) fn create_key(&self, key: &KeyRecord, sha256: &[u8; 32], by: &AuditEvent) -> Result<bool, NotWritten> {
        self.write(|tx| {
            if !tx.has_tenant(key.tenant_id)? {
                return Ok(false);
            }
            let sql = "INSERT INTO api_keys (key_id, tenant, name, key_prefix, sha256, role, created_us) \
                VALUES ($1, $2, $3, $4, $5, $6, $7)";
            let (role, at_us) = (key.role.as_str(), key.created_at.micros());
            tx.run(sql, p![key.id, key.tenant_id, &key.name, &key.key_prefix, sha256.as_slice(), role, at_us])?;
            tx.audit(by)?;
            Ok(true)
        })
    }

    pub(crate) fn list_keys(&self, tenant: TenantId, page: Page) -> Result<Paged<KeyRecord>, ReadError> {
        self.read(|tx| {
            let total: i64 = tx.value("SELECT count(*) FROM api_keys WHERE tenant = $1", p![tenant])?;
            let (below, skip) = window(page);
            let sql =
                format!("SELECT {KEY} FROM api_keys WHERE tenant = $1 AND id < $2 ORDER BY id DESC LIMIT $3 OFFSET $4");
            let rows = tx.rows(&sql, p![tenant, below, i64::from(page.limit), skip])?;
            let data = rows.iter().map(key_record).collect::<Result<Vec<_>, _>>()?;
            Ok(Paged { next: next_of(&rows, 8, page)?, ..Paged::new(data, total.unsigned_abs(), page) })
        })
    }

    pub(crate) fn revoke_key(&self, id: KeyId, by: &AuditEvent) -> Result<bool, NotWritten> {
        self.write(|tx| {
            let sql = "UPDATE api_keys SET revoked_us = $2 WHERE key_id = $1 AND revoked_us IS NULL RETURNING tenant";
            let Some(row) = tx.one(sql, p![id, Timestamp::now().micros()])? else { return Ok(false) };
            tx.audit(&AuditEvent { tenant: Some(tenant_of(&row, 0)?), ..by.clone() })?;
            Ok(true)
        })
    }

    pub(crate) fn set_provider_key(&self, key: &SealedKey, by: &AuditEvent) -> Result<bool, NotWritten> {
        self.write(|tx| {
            if !tx.has_tenant(key.tenant_id)? {
                return Ok(false);
            }
            let sql = "INSERT INTO provider_keys (tenant, upstream, sealed, key_sha256, created_us, changed_us) \
                VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (tenant, upstream) DO UPDATE \
                SET sealed = excluded.sealed, key_sha256 = excluded.key_sha256, changed_us = excluded.changed_us";
            let (sealed, digest) = (key.sealed.as_slice(), key.key_sha256.as_slice());
            let times = (key.created_at.micros(), key.changed_at.micros());
            tx.run(sql, p![key.tenant_id, &key.upstream, sealed, digest, times.0, times.1])?;
            tx.audit(by)?;
            Ok(true)
        })
    }

    pub(crate) fn remove_provider_key(
        &self,
        tenant: TenantId,
        upstream: &str,
        by: &AuditEvent,
    ) -> Result<bool, NotWritten> {
        self.write(|tx| {
            let is_there =
                tx.run("DELETE FROM provider_keys WHERE tenant = $1 AND upstream = $2", p![tenant, upstream])? > 0;
            if is_there {
                tx.audit(by)?;
            }
            Ok(is_there)
        })
    }

    pub(crate) fn provider_keys(&self, of: Option<TenantId>) -> Result<Vec<SealedKey>, ReadError> {
        self.read(|tx| {
            let sql = "SELECT tenant, upstream, sealed, key_sha256, created_us, changed_us FROM provider_keys \
                WHERE $1::uuid IS NULL OR tenant = $1";
            let of = of.map(|id| Uuid::from_bytes(*id.as_bytes()));
            let key = |row: &Row| {
                Ok(SealedKey {
                    tenant_id: tenant_of(row, 0)?,
                    upstream: col(row, 1)?,
                    sealed: col(row, 2)?,
                    key_sha256: col::<Vec<u8>>(row, 3)?.try_into().map_err(|_| Fail::Damaged)?,
                    created_at: Timestamp::from_micros(col(row, 4)?),
                    changed_at: Timestamp::from_micros(col(row, 5)?),
                })
            };
            tx.rows(sql, p![of])?.iter().map(key).collect()
        })
    }

    pub(crate) fn touch_keys(&self, used: &[(KeyId, Timestamp)]) -> Result<(), NotWritten> {
        // In one order, so that two gateways never wait for each other.
        let mut used = used.to_vec();
        used.sort_by_key(|(id, _)| *id.as_bytes());
        self.write(|tx| {
            let sql = "UPDATE api_keys SET last_used_us = greatest(coalesce(last_used_us, 0), $2) WHERE key_id = $1";
            used.iter().try_for_each(|(id, at)| tx.run(sql, p![*id, at.micros()]).map(|_| ()))
        })
    }

    pub(crate) fn load_credentials(&self, of: Option<TenantId>) -> Result<Credentials, ReadError> {
        let of = of.map(|id| Uuid::from_bytes(*id.as_bytes()));
        self.read(|tx| {
            let sql = "SELECT uuid, token_nonce FROM tenants WHERE token_nonce IS NOT NULL AND ($1::uuid IS NULL OR uuid = $1)";
            let token = |row: &Row| Ok((tenant_of(row, 0)?, col(row, 1)?));
            let tokens = tx.rows(sql, p![of])?.iter().map(token).collect::<Result<_, Fail>>()?;
            let digest = tx.one("SELECT sha256 FROM token_key WHERE id = 1", p![])?;
            let digest = digest.map(|row| col::<Vec<u8>>(&row, 0)).transpose()?;
            let sql = "SELECT key_id, tenant, role, sha256 FROM api_keys WHERE revoked_us IS NULL AND ($1::uuid IS NULL OR tenant = $1) \
                ORDER BY id";
            let key = |row: &Row| {
                Ok(ActiveKey {
                    id: KeyId::from_bytes(*col::<Uuid>(row, 0)?.as_bytes()),
                    tenant_id: tenant_of(row, 1)?,
                    role: role(row, 2)?,
                    sha256: col::<Vec<u8>>(row, 3)?.try_into().map_err(|_| Fail::Damaged)?,
                })
            };
            let keys = tx.rows(sql, p![of])?.iter().map(key).collect::<Result<_, Fail>>()?;
            let token_key_sha256 = digest.map(|digest| digest.try_into().map_err(|_| Fail::Damaged)).transpose()?;
            Ok(Credentials { keys, tokens, token_key_sha256 })
        })
    }

    pub(crate) fn identity_changes(&self, after: u64) -> Result<CredentialChanges, ReadError> {
        self.read(|tx| {
            let upto: i64 = tx.value("SELECT coalesce(max(seq), 0) FROM audit", p![])?;
            let mut changes = CredentialChanges { upto: upto.unsigned_abs(), ..CredentialChanges::default() };
            if changes.upto <= after {
                return Ok(changes);
            }
            let sql = "SELECT DISTINCT tenant FROM audit WHERE seq > $1 AND seq <= $2 AND tenant IS NOT NULL AND \
                (action LIKE 'tenant.%' OR action LIKE 'key.%' OR action LIKE 'token.%' OR action LIKE 'provider\\_key.%')";
            let rows = tx.rows(sql, p![after.cast_signed(), upto])?;
            changes.tenants = rows.iter().map(|row| tenant_of(row, 0)).collect::<Result<_, _>>()?;
            Ok(changes)
        })
    }

    pub(crate) fn credentials_known_to(&self, actor: &str) -> Result<Provenance, ReadError> {
        self.read(|tx| {
            let (mut made, mut shown) = (HashSet::new(), HashSet::new());
            let sql = "SELECT actor, action, target FROM audit \
                WHERE action IN ('key.create', 'token.issue', 'token.show', 'token.reset') AND target IS NOT NULL ORDER BY seq";
            for row in tx.rows(sql, p![])? {
                let (by, action, target): (String, String, String) = (col(&row, 0)?, col(&row, 1)?, col(&row, 2)?);
                match (action.as_str(), by == actor) {
                    ("key.create", true) => drop(made.insert(target)),
                    ("key.create", false) => {}
                    (_, true) => drop(shown.insert(target)),
                    ("token.reset", false) => drop(shown.remove(&target)),
                    _ => {}
                }
            }
            let sql = format!("SELECT {KEY} FROM api_keys WHERE revoked_us IS NULL ORDER BY created_us");
            let mut keys = tx.rows(&sql, p![])?.iter().map(key_record).collect::<Result<Vec<_>, _>>()?;
            keys.retain(|key| made.contains(&key.id.to_string()));
            let sql = "SELECT uuid FROM tenants WHERE token_nonce IS NOT NULL ORDER BY id";
            let tokens = tx.rows(sql, p![])?;
            let mut tokens = tokens.iter().map(|row| tenant_of(row, 0)).collect::<Result<Vec<_>, _>>()?;
            tokens.retain(|id| shown.contains(&id.to_string()));
            Ok(Provenance { keys, tokens })
        })
    }
}
