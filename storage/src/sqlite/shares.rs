//! Who gives when there is too little room: each tenant's share of the database.
//!
//! The tenant that holds most gives first, its oldest spans first, down to what the next one holds. So whoever fills the
//! database takes from itself. What is no trace (the audit log, tenants, keys) is never removed for room.

use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension};

use super::engine::SqliteEngine;
use super::erase::Erased;
use super::home::Home;
use crate::retention::Bound;
use crate::writer::WriteError;

/// What a span takes besides its body: its row, five indexes and its part of the sums, in pages that are half full.
const SPAN_OVERHEAD_BYTES: i64 = 1_024;
/// The same for a reported action.
const ACTION_OVERHEAD_BYTES: i64 = 512;
/// Between looks for a tenant over its bound, when the last found none.
const SHARES_EVERY: Duration = Duration::from_millis(250);
/// Pieces removed after one batch: more than one batch can bring.
const PIECES_MAX: u32 = 8;
/// A piece is at most this part of the free room, because removing writes to the log first.
const ROOM_PART: i64 = 4;
/// A piece is never smaller than this.
const PIECE_BYTES_MIN: i64 = 64 * 1024;

/// A tenant that gives, and how much before the shares are looked at again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Giver {
    tenant: i64,
    bytes: i64,
}

impl SqliteEngine {
    /// After a batch: keeps the bounds before the next one comes, so that no pace of writing outruns the removing.
    pub(super) fn keep_bounds(&mut self) {
        for _ in 0..PIECES_MAX {
            match self.is_over().and_then(|over| Ok(over && (self.erase_deleted()? || self.erase_excess()?))) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    tracing::debug!(error = error.reason(), "removing for room failed; it is tried again");
                    break;
                }
            }
        }
    }

    fn bound(&self) -> Option<i64> {
        match &self.home {
            Home::Memory(shared) => i64::try_from(shared.bytes_max).ok(),
            Home::File(_) => self.policy.max_bytes(),
        }
    }

    fn used(&self) -> i64 {
        (self.pages("PRAGMA page_count") - self.pages("PRAGMA freelist_count")) * self.page_bytes
    }

    fn is_over(&self) -> Result<bool, WriteError> {
        Ok(self.conn.is_some() && self.bound().is_some_and(|bound| self.used() > bound))
    }

    /// Removes the oldest spans of who holds most while more pages are in use than may be. Where all spans would not be
    /// enough, the oldest reports go, and then nothing: what is left is not the store's to remove.
    pub(super) fn erase_excess(&mut self) -> Result<bool, WriteError> {
        let Some(bound) = self.bound() else { return Ok(false) };
        let used = self.used();
        if used <= bound {
            self.beyond_told = false;
            self.giver = None;
            return Ok(false);
        }
        if used.saturating_sub(self.span_bytes()?) <= bound {
            let erased = self.take_from_heaviest()?;
            if erased.looked > 0 {
                self.policy.removed(Bound::Database, erased.spans, erased.bytes);
                return Ok(true);
            }
        }
        let mut reports = 0;
        self.transact(|tx| {
            reports = tx.erase_oldest_reports()?;
            Ok(())
        })?;
        if reports == 0 && !std::mem::replace(&mut self.beyond_told, true) {
            tracing::warn!(
                used,
                bound,
                "the database is over its bound with what is not removed for it (audit log, tenants, keys); raise \
                 storage.max_bytes"
            );
        }
        Ok(reports > 0)
    }

    fn take_from_heaviest(&mut self) -> Result<Erased, WriteError> {
        let giver = match self.giver.filter(|giver| giver.bytes > 0) {
            Some(giver) => Some(giver),
            None => self.conn.as_ref().map(heaviest).transpose()?.flatten(),
        };
        let piece = self.piece_bytes();
        let mut erased = Erased::default();
        if let Some(Giver { tenant, bytes }) = giver {
            self.transact(|tx| {
                erased = tx.erase_oldest_of(tenant, piece)?;
                Ok(())
            })?;
            let took = erased.bytes + SPAN_OVERHEAD_BYTES * erased.spans.cast_signed();
            self.giver = (erased.looked > 0).then_some(Giver { tenant, bytes: bytes - took });
        }
        if erased.looked == 0 {
            // The sums name nobody who has anything.
            self.transact(|tx| {
                erased = tx.erase_oldest(piece)?;
                Ok(())
            })?;
        }
        Ok(erased)
    }

    /// Removes the oldest spans of a tenant whose records take more than a tenant's may.
    pub(super) fn erase_over_share(&mut self) -> Result<bool, WriteError> {
        let Some(bound) = self.policy.tenant_max_bytes() else { return Ok(false) };
        if self.shares_looked.is_some_and(|looked| looked.elapsed() < SHARES_EVERY) {
            return Ok(false);
        }
        let Some(conn) = self.conn.as_ref() else { return Ok(false) };
        let sql = "SELECT y.tenant FROM tallies y JOIN tenants t ON t.id = y.tenant WHERE length(t.uuid) = 16 \
            GROUP BY y.tenant HAVING sum(y.bytes) + ?1 * sum(y.spans) > ?2 LIMIT 1";
        let over: Option<i64> =
            conn.prepare_cached(sql)?.query_row([SPAN_OVERHEAD_BYTES, bound], |row| row.get(0)).optional()?;
        let piece = self.piece_bytes();
        let mut erased = Erased::default();
        if let Some(tenant) = over {
            self.transact(|tx| {
                erased = tx.erase_oldest_of(tenant, piece)?;
                Ok(())
            })?;
        }
        self.shares_looked = (erased.looked == 0).then(Instant::now);
        if erased.looked > 0 {
            self.policy.removed(Bound::Tenant, erased.spans, erased.bytes);
        }
        Ok(erased.looked > 0)
    }

    /// Bytes one piece removes at most.
    fn piece_bytes(&self) -> i64 {
        if !self.home.is_file() {
            return i64::MAX;
        }
        let room = i64::try_from(self.ballast.room()).unwrap_or(i64::MAX);
        (room / ROOM_PART).max(PIECE_BYTES_MIN)
    }

    /// What spans and their actions take, indexes included; rather too much than too little.
    fn span_bytes(&self) -> Result<i64, WriteError> {
        let Some(conn) = self.conn.as_ref() else { return Ok(0) };
        let spans = "SELECT ifnull(sum(bytes), 0) + ?1 * ifnull(sum(spans), 0) FROM tallies";
        let spans: i64 = conn.prepare_cached(spans)?.query_row([SPAN_OVERHEAD_BYTES], |row| row.get(0))?;
        // Numbers of rows that have gone lie between, so this is their number at most.
        let actions = "SELECT ifnull(max(id) - min(id) + 1, 0) * ?1 FROM actions";
        let actions: i64 = conn.prepare_cached(actions)?.query_row([ACTION_OVERHEAD_BYTES], |row| row.get(0))?;
        Ok(spans.saturating_add(actions))
    }
}

/// Who holds most, and how much more than the next one.
fn heaviest(conn: &Connection) -> Result<Option<Giver>, WriteError> {
    let sql = "SELECT y.tenant, sum(y.bytes) + ?1 * sum(y.spans) AS held FROM tallies y JOIN tenants t ON t.id = y.tenant \
        WHERE length(t.uuid) = 16 GROUP BY y.tenant ORDER BY held DESC LIMIT 2";
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query([SPAN_OVERHEAD_BYTES])?;
    let Some(first) = rows.next()? else { return Ok(None) };
    let (tenant, most): (i64, i64) = (first.get(0)?, first.get(1)?);
    let next: i64 = rows.next()?.map_or(Ok(0), |row| row.get(1))?;
    Ok(Some(Giver { tenant, bytes: (most - next).max(1) }))
}
