//! Texts that go before their spans (`storage.text_retention_days`), some rows at a time.
//!
//! How far each tenant's texts have gone is kept in `text_ages`, so that nothing is walked over twice; a span that comes in with an
//! older start never gets its texts in. Where the bound is moved back or lifted, the walk begins anew: a span whose texts
//! have gone says so.

use std::time::{Duration, Instant};

use rusqlite::OptionalExtension;
use weir_config::vocab::Timestamp;

use super::engine::SqliteEngine;
use super::tallies::{Key, Weight};
use super::tx::Tx;
use super::{actions, texts};
use crate::encode::{self, Columns, Laid};
use crate::error::WriteError;
use crate::record::remove_quote;

/// Rows walked over in one transaction.
const BATCH_ROWS: i64 = 128;
/// Bytes of bodies after which nothing further is begun.
const BATCH_BYTES: i64 = 8 * 1024 * 1024;
/// Between looks for texts past their age.
const LOOK_EVERY: Duration = Duration::from_secs(10);

impl SqliteEngine {
    /// Removes texts that are older than they may be, some of one tenant; false when there are none.
    pub(super) fn remove_aged_texts(&mut self) -> Result<bool, WriteError> {
        if self.texts_looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY) {
            return Ok(false);
        }
        let Some(conn) = self.conn.as_ref() else { return Ok(false) };
        let from_us = self.policy.texts_from_us(Timestamp::now().micros());
        // Walks that are further than they may be.
        let sql = "SELECT EXISTS (SELECT 1 FROM text_ages WHERE start_us >= ?1)";
        if conn.prepare_cached(sql)?.query_row([from_us.unwrap_or(i64::MIN)], |row| row.get(0))? {
            self.transact(|tx| {
                let sql = "DELETE FROM text_ages WHERE start_us >= ?1";
                tx.conn.prepare_cached(sql)?.execute([from_us.unwrap_or(i64::MIN)])?;
                Ok(())
            })?;
            return Ok(true);
        }
        let Some(from_us) = from_us else {
            self.texts_looked = Some(Instant::now());
            return Ok(false);
        };
        // One step into the index per tenant.
        let sql = "SELECT t.id FROM tenants t LEFT JOIN text_ages a ON a.tenant = t.id WHERE length(t.uuid) = 16 AND \
            EXISTS (SELECT 1 FROM spans INDEXED BY spans_by_start WHERE tenant = t.id AND start_us < ?1 \
            AND (start_us, id) > (ifnull(a.start_us, -9223372036854775808), ifnull(a.span, 0))) LIMIT 1";
        let tenant: Option<i64> = conn.prepare_cached(sql)?.query_row([from_us], |row| row.get(0)).optional()?;
        let Some(tenant) = tenant else {
            self.texts_looked = Some(Instant::now());
            return Ok(false);
        };
        self.transact(|tx| tx.remove_texts_before(tenant, from_us))?;
        // What was removed is to leave the log, too.
        self.purge_due = true;
        Ok(true)
    }
}

impl Tx<'_> {
    /// Goes on with a tenant's spans that began before this.
    fn remove_texts_before(&mut self, tenant: i64, from_us: i64) -> Result<(), WriteError> {
        let conn = self.conn;
        let sql = "SELECT start_us, span FROM text_ages WHERE tenant = ?1";
        let place = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let (start_us, span): (i64, i64) =
            conn.prepare_cached(sql)?.query_row([tenant], place).optional()?.unwrap_or((i64::MIN, 0));
        let sql = "SELECT start_us, id, provider, model, operation, ifnull(score, -1) FROM spans INDEXED BY spans_by_start \
            WHERE tenant = ?1 AND start_us < ?2 AND (start_us, id) > (?3, ?4) ORDER BY start_us, id LIMIT ?5";
        let rows: Vec<(i64, i64, Key)> = conn
            .prepare_cached(sql)?
            .query_map([tenant, from_us, start_us, span, BATCH_ROWS], |row| {
                let [provider, model, operation, score] = [row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?];
                Ok((row.get(0)?, row.get(1)?, Key { tenant, provider, model, operation, score }))
            })?
            .collect::<Result<_, _>>()?;
        let mut bytes = 0;
        for (start_us, id, key) in rows {
            bytes += self.remove_texts_of(id, start_us, key)?;
            let sql = "INSERT OR REPLACE INTO text_ages (tenant, start_us, span) VALUES (?1, ?2, ?3)";
            conn.prepare_cached(sql)?.execute((tenant, start_us, id))?;
            if bytes >= BATCH_BYTES {
                break;
            }
        }
        Ok(())
    }

    /// How many bytes its texts and those of its actions took.
    fn remove_texts_of(&mut self, id: i64, start_us: i64, key: Key) -> Result<i64, WriteError> {
        let conn = self.conn;
        let body: Vec<u8> =
            conn.prepare_cached("SELECT body FROM spans WHERE id = ?1")?.query_row([id], |row| row.get(0))?;
        let mut bytes = self.remove_texts_of_actions(id)? + self.remove_late_texts(id)?;
        // A damaged body has no texts that anybody could read.
        if let Ok((mut span, layout)) = encode::decode(Columns::unknown(), &body)
            && !span.has_lost_texts()
        {
            texts::release(conn, &layout.nodes())?;
            span.remove_texts();
            let model_within = span.model.is_some();
            let without = self.encoder.encode(&span, model_within, &Laid::default());
            let without =
                without.map_err(|_| WriteError::Row("what is left is more than a row can hold".to_owned()))?;
            conn.prepare_cached("UPDATE spans SET body = ?2 WHERE id = ?1")?.execute((id, without))?;
            bytes += body.len() as i64 - without.len() as i64;
        }
        self.tallies.take_weight(key, start_us, &Weight { bytes, ..Weight::default() });
        Ok(bytes + texts::sweep_all(self, BATCH_BYTES)?)
    }

    fn remove_texts_of_actions(&mut self, span: i64) -> Result<i64, WriteError> {
        let conn = self.conn;
        let sql = "SELECT id, octet_length(name), body FROM actions WHERE span = ?1";
        let row = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        let rows: Vec<(i64, i64, Vec<u8>)> =
            conn.prepare_cached(sql)?.query_map([span], row)?.collect::<Result<_, _>>()?;
        let mut bytes = 0;
        for (id, name, body) in rows {
            let Ok((mut action, mut findings)) = encode::decode_action(&body) else { continue };
            action.remove_texts();
            findings.iter_mut().for_each(remove_quote);
            let without = self.encoder.encode_action(&action, &findings);
            let without =
                without.map_err(|_| WriteError::Row("what is left is more than a row can hold".to_owned()))?;
            bytes += actions::weight_bytes(body.len() as i64, name) - actions::weight_bytes(without.len() as i64, name);
            conn.prepare_cached("UPDATE actions SET body = ?2 WHERE id = ?1")?.execute((id, without))?;
        }
        Ok(bytes)
    }
}
