//! Who says that what a channel was told of goes on: a gateway's breaker, say. Several processes may, and each of them may end without
//! another word, so what they say holds for a time; the alert is over with the last of them.

use uuid::Uuid;
use weir_config::vocab::Timestamp;

use super::intern::find_tenant;
use super::tx::Tx;
use crate::alerts::{AlertKey, Claimant};
use crate::error::WriteError;

impl Tx<'_> {
    /// Notes that it goes on as far as `by` knows.
    pub(super) fn sustain_alert(&mut self, key: &AlertKey, by: &Claimant) -> Result<bool, WriteError> {
        let Some(tenant) = self.tenant_of_alert(key.tenant)? else { return Ok(false) };
        let sql = "INSERT OR REPLACE INTO alert_holders (tenant, channel, finding_type, owner, until_us) VALUES (?1, ?2, ?3, ?4, ?5)";
        let owner = by.owner.as_bytes().as_slice();
        let values = (tenant, &key.channel, &key.finding_type, owner, by.until.micros());
        self.conn.prepare_cached(sql)?.execute(values)?;
        self.ends_with_its_holders(tenant, key, by.now)
    }

    /// Notes that it is over as far as `owner` knows; whether somebody else says that it goes on.
    pub(super) fn release_alert(&self, key: &AlertKey, owner: Uuid, at: Timestamp) -> Result<bool, WriteError> {
        let Some(tenant) = find_tenant(self.conn, key.tenant)? else { return Ok(false) };
        let whose = "tenant = ?1 AND channel = ?2 AND finding_type = ?3";
        let sql = format!("DELETE FROM alert_holders WHERE {whose} AND owner = ?4");
        let owner = owner.as_bytes().as_slice();
        self.conn.prepare_cached(&sql)?.execute((tenant, &key.channel, &key.finding_type, owner))?;
        self.ends_with_its_holders(tenant, key, at)?;
        let sql = format!("SELECT EXISTS (SELECT 1 FROM alert_holders WHERE {whose})");
        Ok(self.conn.prepare_cached(&sql)?.query_row((tenant, &key.channel, &key.finding_type), |row| row.get(0))?)
    }

    /// Sets the time at which the alert resolves: when its last holder ends, or now if it has none. False where no open alert
    /// has this key.
    fn ends_with_its_holders(&self, tenant: i64, key: &AlertKey, now: Timestamp) -> Result<bool, WriteError> {
        self.conn.prepare_cached("DELETE FROM alert_holders WHERE until_us <= ?1")?.execute([now.micros()])?;
        let sql = "UPDATE alerts SET last_us = max(last_us, ?4), resolve_us = ifnull((SELECT max(h.until_us) FROM alert_holders h \
            WHERE h.tenant = ?1 AND h.channel = ?2 AND h.finding_type = ?3), ?4) \
            WHERE tenant = ?1 AND channel = ?2 AND finding_type = ?3 AND state <> 'resolved'";
        let values = (tenant, &key.channel, &key.finding_type, now.micros());
        Ok(self.conn.prepare_cached(sql)?.execute(values)? > 0)
    }
}
