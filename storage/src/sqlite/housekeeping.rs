//! The engine's housekeeping: rows of deleted tenants, names nobody uses, rows past the retention, free pages, the reserve.
//!
//! Each call does one piece of a few milliseconds and says whether more is to be done, so that spans never wait long.

use std::time::{Duration, Instant};

use weir_config::vocab::Timestamp;

use super::engine::SqliteEngine;
use super::erase::{self, BATCH_ROWS};
use super::facets;
use super::texts;
use crate::error::WriteError;

/// Between looks for rows past their age.
const AGE_EVERY: Duration = Duration::from_secs(10);
/// Free pages that stay in the file for the next rows.
const FREE_PAGES_MAX: i64 = 1_024;
/// Between attempts to empty the log of what was erased.
const PURGE_EVERY: Duration = Duration::from_millis(500);
/// Pages given back to the file system in one piece.
const VACUUM_PAGES: i64 = 256;

impl SqliteEngine {
    /// Does the next piece of housekeeping; false when nothing is left for now.
    pub(super) fn housekeep(&mut self) -> Result<bool, WriteError> {
        if self.home.is_file() {
            self.reserve.restore();
        }
        Ok(self.erase_deleted()?
            || self.erase_deleted_trace()?
            || self.erase_texts()?
            || self.erase_names()?
            || self.purge_log()
            || self.erase_aged()?
            || self.erase_shipped()?
            || self.remove_aged_texts()?
            || self.erase_excess()?
            || self.erase_over_share()?
            || self.fill()?
            || self.give_back()?)
    }

    pub(super) fn erase_deleted(&mut self) -> Result<bool, WriteError> {
        let Some(conn) = self.conn.as_ref() else { return Ok(false) };
        if erase::deleted(conn)?.is_none() {
            return Ok(false);
        }
        let mut more = false;
        self.transact(|tx| {
            more = tx.erase_deleted()?;
            Ok(())
        })?;
        self.purge_due = true;
        Ok(more)
    }

    /// Goes on with a trace whose deletion was cut short.
    fn erase_deleted_trace(&mut self) -> Result<bool, WriteError> {
        let Some(conn) = self.conn.as_ref() else { return Ok(false) };
        if erase::deleted_trace(conn)?.is_none() {
            return Ok(false);
        }
        self.transact(|tx| tx.erase_deleted_trace().map(|_| ()))?;
        self.purge_due = true;
        Ok(true)
    }

    /// Takes out shared texts that nobody names any more.
    pub(super) fn erase_texts(&mut self) -> Result<bool, WriteError> {
        let Some(conn) = self.conn.as_ref() else { return Ok(false) };
        if !texts::any_idle(conn)? {
            return Ok(false);
        }
        self.transact(|tx| tx.erase_texts().map(|_| ()))?;
        Ok(true)
    }

    /// Takes out names that nothing refers to any more; their texts leave the log, too.
    fn erase_names(&mut self) -> Result<bool, WriteError> {
        let Some(conn) = self.conn.as_ref() else { return Ok(false) };
        if !erase::idle_names(conn)? {
            return Ok(false);
        }
        let mut gone = 0;
        self.transact(|tx| {
            gone = tx.erase_names()?;
            Ok(())
        })?;
        self.purge_due |= gone > 0;
        Ok(gone > 0)
    }

    /// After a tenant's rows have gone from the file, what the log still holds of them goes, too. Readers may be in the way:
    /// it is tried again until they are not. True when more is to be done.
    fn purge_log(&mut self) -> bool {
        if !self.purge_due || !self.home.is_file() || self.purged.is_some_and(|tried| tried.elapsed() < PURGE_EVERY) {
            return false;
        }
        self.purged = Some(Instant::now());
        self.purge_due = !self.truncate_log();
        false
    }

    /// Removes rows that are older than they may be, some of one tenant.
    fn erase_aged(&mut self) -> Result<bool, WriteError> {
        let Some(keep_from_us) = self.policy.keep_from_us(Timestamp::now().micros()) else { return Ok(false) };
        if self.aged_looked.is_some_and(|looked| looked.elapsed() < AGE_EVERY) {
            return Ok(false);
        }
        let Some(conn) = self.conn.as_ref() else { return Ok(false) };
        // One step into the index per tenant.
        let sql = "SELECT t.id FROM tenants t WHERE length(t.uuid) = 16 AND \
            (SELECT min(start_us) FROM spans INDEXED BY spans_by_start WHERE tenant = t.id) < ?1 LIMIT 1";
        let mut statement = conn.prepare_cached(sql)?;
        let mut rows = statement.query([keep_from_us])?;
        let tenant = rows.next()?.map(|row| row.get::<_, i64>(0)).transpose()?;
        drop(rows);
        drop(statement);
        let Some(tenant) = tenant else {
            let mut gone = 0;
            self.transact(|tx| {
                gone = tx.erase_reports_before(keep_from_us)? + tx.erase_alerts_before(keep_from_us)?;
                Ok(())
            })?;
            self.aged_looked = (gone == 0).then(Instant::now);
            self.purge_due |= gone > 0;
            return Ok(gone > 0);
        };
        self.transact(|tx| tx.erase_before(tenant, keep_from_us).map(|_| ()))?;
        self.purge_due = true;
        Ok(true)
    }

    /// Removes rows that the analytics store has.
    fn erase_shipped(&mut self) -> Result<bool, WriteError> {
        let Some(row) = self.policy.shipped_upto() else { return Ok(false) };
        let Some(conn) = self.conn.as_ref() else { return Ok(false) };
        if !conn.prepare_cached("SELECT 1 FROM spans WHERE id <= ?1 LIMIT 1")?.exists([row])? {
            return Ok(false);
        }
        self.transact(|tx| tx.erase_up_to(row).map(|_| ()))?;
        Ok(true)
    }

    /// Fills in what the columns of rows of a version before do not say.
    fn fill(&mut self) -> Result<bool, WriteError> {
        let Some(conn) = self.conn.as_ref() else { return Ok(false) };
        if !facets::unfilled(conn)? {
            return Ok(false);
        }
        let mut more = false;
        self.transact(|tx| {
            more = tx.fill()?;
            Ok(())
        })?;
        Ok(more)
    }

    /// Gives pages back to the file system when many are free. Files of the first version cannot; theirs are reused.
    fn give_back(&mut self) -> Result<bool, WriteError> {
        let free = self.pages("PRAGMA freelist_count");
        if !self.home.is_file() || free <= FREE_PAGES_MAX {
            return Ok(false);
        }
        let Some(conn) = self.conn.as_ref() else { return Ok(false) };
        let mut statement = conn.prepare_cached(&format!("PRAGMA incremental_vacuum({VACUUM_PAGES})"))?;
        let mut pages = statement.query([])?;
        // One page per step.
        while pages.next()?.is_some() {}
        drop(pages);
        drop(statement);
        Ok(self.pages("PRAGMA freelist_count") < free)
    }

    pub(super) fn pages(&self, pragma: &'static str) -> i64 {
        let count = |conn: &rusqlite::Connection| conn.prepare_cached(pragma)?.query_row([], |row| row.get(0));
        self.conn.as_ref().and_then(|conn| count(conn).ok()).unwrap_or(0)
    }
}

// A piece must stay small beside a batch of the writer.
const _: () = assert!(BATCH_ROWS <= 512);
