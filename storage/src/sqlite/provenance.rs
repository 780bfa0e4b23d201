//! Who made, or was shown, the credentials that let somebody in now; read from the audit log.

use std::collections::HashSet;

use weir_config::vocab::{KeyId, TenantId, Timestamp};

use super::keys::role;
use super::reads::Reads;
use crate::error::ReadError;
use crate::tenants::{KeyRecord, Provenance};

impl Reads<'_> {
    /// The keys that still hold and were made by `actor`, and the tenants whose token has been shown to it and not been replaced
    /// by anybody else since. Reads the whole audit log.
    pub(crate) fn credentials_known_to(&self, actor: &str) -> Result<Provenance, ReadError> {
        self.ask("read_keys", |conn| {
            let (mut made, mut shown) = (HashSet::new(), HashSet::new());
            let sql = "SELECT actor, action, target FROM audit \
                WHERE action IN ('key.create', 'token.issue', 'token.show', 'token.reset') AND target IS NOT NULL ORDER BY seq";
            let mut statement = conn.prepare(sql)?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let (by, action): (String, String) = (row.get(0)?, row.get(1)?);
                let target: String = row.get(2)?;
                match (action.as_str(), by == actor) {
                    ("key.create", true) => drop(made.insert(target)),
                    ("key.create", false) => {}
                    (_, true) => drop(shown.insert(target)),
                    ("token.reset", false) => drop(shown.remove(&target)),
                    _ => {}
                }
            }
            let sql = "SELECT key_id, tenants.uuid, api_keys.name, key_prefix, role, api_keys.created_us, last_used_us \
                FROM api_keys JOIN tenants ON tenants.id = api_keys.tenant \
                WHERE revoked_us IS NULL AND length(tenants.uuid) = 16 ORDER BY api_keys.created_us";
            let mut statement = conn.prepare(sql)?;
            let keys = statement.query_map([], |row| {
                Ok(KeyRecord {
                    id: KeyId::from_bytes(row.get(0)?),
                    tenant_id: TenantId::from_bytes(row.get(1)?),
                    name: row.get(2)?,
                    key_prefix: row.get(3)?,
                    role: role(row, 4)?,
                    created_at: Timestamp::from_micros(row.get(5)?),
                    revoked_at: None,
                    last_used_at: row.get::<_, Option<i64>>(6)?.map(Timestamp::from_micros),
                })
            })?;
            let keys = keys.filter(|key| key.as_ref().map_or(true, |key| made.contains(&key.id.to_string())));
            let keys = keys.collect::<Result<_, _>>()?;
            let sql = "SELECT uuid FROM tenants WHERE token_nonce IS NOT NULL AND length(uuid) = 16 ORDER BY id";
            let mut statement = conn.prepare(sql)?;
            let tokens = statement.query_map([], |row| Ok(TenantId::from_bytes(row.get(0)?)))?;
            let tokens = tokens.filter(|id| id.as_ref().map_or(true, |id| shown.contains(&id.to_string())));
            let tokens = tokens.collect::<Result<_, _>>()?;
            Ok(Provenance { keys, tokens })
        })
    }
}
