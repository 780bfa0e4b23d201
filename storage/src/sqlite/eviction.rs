//! Eviction when the database is full: whose spans are removed, and each tenant's share.
//!
//! The tenant that holds most loses spans first, the oldest ones first, down to what the next tenant holds. So a tenant that
//! fills the database takes from itself. What is no trace (the audit log, tenants, keys) is never removed for room, but a tenant's lines of
//! the audit log count as held by it; and whatever takes the room, each tenant keeps half of its equal share.

use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension};

use super::engine::SqliteEngine;
use super::erase::Erased;
use super::home::Home;
use crate::error::WriteError;
use crate::retention::Bound;

/// What a span takes besides its body: its row, five indexes and its part of the sums, in pages that are half full.
const SPAN_OVERHEAD_BYTES: i64 = 1_024;
/// What a batch takes besides its spans: a page that is split in each table and index.
const BATCH_OVERHEAD_BYTES: i64 = 128 * 1024;
/// What a row of the sums takes, and the text of a model it may be the only one to name.
const SUM_BYTES: i64 = 640;
/// What a line of the audit log takes. It is not removed, so a tenant that causes many has less room for spans.
const LINE_BYTES: i64 = 512;
const OVERHEADS: [i64; 3] = [SPAN_OVERHEAD_BYTES, SUM_BYTES, LINE_BYTES];
/// What each tenant that has spans holds, given [`OVERHEADS`]. A tenant's last place in the audit log is how many lines it has.
const HELD: &str = "SELECT y.tenant, sum(y.bytes) + ?1 * sum(y.spans) + ?2 * count(*) \
    + ifnull((SELECT bytes FROM text_sums WHERE tenant = y.tenant), 0) \
    + ?3 * (SELECT ifnull(max(nth), 0) FROM audit WHERE tenant = t.uuid) AS held \
    FROM tallies y JOIN tenants t ON t.id = y.tenant WHERE length(t.uuid) = 16 GROUP BY y.tenant HAVING sum(y.spans) > 0";
/// Between looks for a tenant over its bound, when the last found none.
const SHARES_EVERY: Duration = Duration::from_millis(250);
/// Pieces removed after one batch: more than one batch can bring.
const PIECES_MAX: u32 = 8;
/// A piece is at most this part of the free room, because removing writes to the log first.
const ROOM_PART: i64 = 4;
/// In memory it is at most this part of the bound.
const MEMORY_PART: usize = 16;
/// How far below the bound removing goes, as a part of it: at the bound itself every batch would have to remove something.
const SLACK_PART: i64 = 64;
/// A piece is never smaller than this.
const PIECE_BYTES_MIN: i64 = 64 * 1024;

/// A tenant whose spans are evicted, and how many bytes before the shares are looked at again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Eviction {
    tenant: i64,
    bytes: i64,
}

impl SqliteEngine {
    /// After a batch: keeps the bounds before the next one comes, so that no pace of writing outruns the removing.
    ///
    /// Asking SQLite for the pages in use costs as much as a tenth of a small batch: while there is plenty of room, only
    /// housekeeping asks.
    pub(super) fn keep_bounds(&mut self) {
        if self.headroom > 0 {
            return;
        }
        for _ in 0..PIECES_MAX {
            if !self.is_over() {
                break;
            }
            match self.erase_deleted().and_then(|erased| Ok(erased || self.erase_texts()? || self.erase_excess()?)) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    tracing::debug!(error = error.reason(), "removing rows for lack of room failed; will retry");
                    break;
                }
            }
        }
    }

    fn bound(&self) -> Option<i64> {
        match &self.home {
            Home::Memory(shared) => i64::try_from(shared.bytes_max).ok(),
            Home::File(..) => self.policy.max_bytes(),
        }
    }

    fn used(&self) -> i64 {
        (self.pages("PRAGMA page_count") - self.pages("PRAGMA freelist_count")) * self.page_bytes
    }

    fn is_over(&mut self) -> bool {
        let Some(bound) = self.bound().filter(|_| self.conn.is_some()) else { return false };
        let left = bound - self.used();
        // Half of it: how much a row takes is an estimate.
        self.headroom = left / 2;
        left < 0
    }

    /// A batch of so many rows is written, with so many bytes in all.
    pub(super) fn take_headroom(&mut self, rows: usize, bytes: usize) {
        let takes = BATCH_OVERHEAD_BYTES + SPAN_OVERHEAD_BYTES * rows as i64 + bytes as i64;
        self.headroom = self.headroom.saturating_sub(takes);
    }

    /// Removes the oldest spans of the tenant that holds most while more pages are in use than may be. Where all spans would not be
    /// enough, the oldest reports go first. What a tenant keeps in any case (see [`Shares::kept`]) is not taken.
    pub(super) fn erase_excess(&mut self) -> Result<bool, WriteError> {
        let Some(bound) = self.bound() else { return Ok(false) };
        let used = self.used();
        if used <= bound {
            self.beyond_told = false;
            self.eviction = None;
            return Ok(false);
        }
        let helps = used.saturating_sub(self.span_bytes()?) <= bound;
        let excess = used - bound + bound / SLACK_PART;
        if helps && self.take_from_heaviest(bound, excess)? {
            return Ok(true);
        }
        let mut reports = 0;
        self.transact(|tx| {
            reports = tx.erase_oldest_reports()?;
            Ok(())
        })?;
        if reports > 0 || !helps && self.take_from_heaviest(bound, excess)? {
            return Ok(true);
        }
        if !std::mem::replace(&mut self.beyond_told, true) {
            tracing::warn!(
                used,
                bound,
                "the database is over its bound with what is not removed for it (audit log, tenants, keys, and half of each \
                 tenant's equal share); raise storage.max_bytes"
            );
        }
        Ok(false)
    }

    /// Takes a piece, and no more than about `excess` bytes: the bound is a promise of how much is kept, too.
    fn take_from_heaviest(&mut self, bound: i64, excess: i64) -> Result<bool, WriteError> {
        if self.home.is_file() && self.eviction_looked.is_some_and(|looked| looked.elapsed() < SHARES_EVERY) {
            return Ok(false);
        }
        let mut nobody = false;
        let eviction = match (self.eviction.filter(|eviction| eviction.bytes > 0), self.conn.as_ref()) {
            (None, Some(conn)) => {
                let shares = Shares::of(conn)?;
                nobody = shares.tenants == 0;
                shares.eviction(bound)
            }
            (eviction, _) => eviction,
        };
        self.eviction_looked = (eviction.is_none() && !nobody).then(Instant::now);
        let piece = self.piece_bytes().min(excess.max(PIECE_BYTES_MIN));
        let mut erased = Erased::default();
        if let Some(Eviction { tenant, bytes }) = eviction {
            self.transact(|tx| {
                erased = tx.erase_oldest_of(tenant, piece)?;
                Ok(())
            })?;
            let took = erased.bytes + SPAN_OVERHEAD_BYTES * erased.spans.cast_signed();
            self.eviction = (erased.looked > 0).then_some(Eviction { tenant, bytes: bytes - took });
        }
        if erased.looked == 0 && (nobody || eviction.is_some()) {
            // The sums name no tenant that has anything.
            self.transact(|tx| {
                erased = tx.erase_oldest(piece)?;
                Ok(())
            })?;
        }
        if erased.looked > 0 {
            self.policy.removed(Bound::Database, erased.spans, erased.bytes);
        }
        Ok(erased.looked > 0)
    }

    /// Removes the oldest spans of a tenant whose records take more than a tenant's may.
    pub(super) fn erase_over_share(&mut self) -> Result<bool, WriteError> {
        let Some(bound) = self.policy.tenant_max_bytes() else { return Ok(false) };
        if self.shares_looked.is_some_and(|looked| looked.elapsed() < SHARES_EVERY) {
            return Ok(false);
        }
        let Some(conn) = self.conn.as_ref() else { return Ok(false) };
        let sql = format!("SELECT tenant, held FROM ({HELD}) WHERE held > ?4 LIMIT 1");
        let [span, sum, line] = OVERHEADS;
        let over: Option<(i64, i64)> = conn
            .prepare_cached(&sql)?
            .query_row([span, sum, line, bound], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let piece = self.piece_bytes();
        let mut erased = Erased::default();
        if let Some((tenant, held)) = over {
            // No more than what is beyond it: a bound may be less than a piece.
            let piece = piece.min(held - bound);
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
        if let Home::Memory(shared) = &self.home {
            // A store that is small is not to lose all it has in one piece.
            return i64::try_from(shared.bytes_max / MEMORY_PART).unwrap_or(i64::MAX).max(PIECE_BYTES_MIN);
        }
        let room = i64::try_from(self.reserve.room()).unwrap_or(i64::MAX);
        (room / ROOM_PART).max(PIECE_BYTES_MIN)
    }

    /// What spans and their actions take, indexes included; rather too much than too little.
    fn span_bytes(&self) -> Result<i64, WriteError> {
        let Some(conn) = self.conn.as_ref() else { return Ok(0) };
        let sql = "SELECT ifnull(sum(bytes), 0) + ?1 * ifnull(sum(spans), 0) + ?2 * count(*) \
            + (SELECT ifnull(sum(bytes), 0) FROM text_sums) FROM tallies";
        Ok(conn.prepare_cached(sql)?.query_row([SPAN_OVERHEAD_BYTES, SUM_BYTES], |row| row.get(0))?)
    }
}

/// How much of the database each tenant holds.
#[derive(Default)]
struct Shares {
    /// The tenant that holds most, and how much.
    heaviest: (i64, i64),
    /// What the next one holds.
    next: i64,
    /// Tenants that have spans.
    tenants: i64,
}

impl Shares {
    fn of(conn: &Connection) -> Result<Self, WriteError> {
        let mut shares = Self::default();
        let mut statement = conn.prepare_cached(HELD)?;
        let mut rows = statement.query(OVERHEADS)?;
        while let Some(row) = rows.next()? {
            let (tenant, held): (i64, i64) = (row.get(0)?, row.get(1)?);
            shares.tenants += 1;
            if shares.tenants == 1 || held > shares.heaviest.1 {
                shares.next = shares.heaviest.1;
                shares.heaviest = (tenant, held);
            } else {
                shares.next = shares.next.max(held);
            }
        }
        Ok(shares)
    }

    /// What is never evicted: half of a tenant's equal share. The other half makes up for what is not removed for room,
    /// whichever tenant caused it, and for the estimate.
    fn kept(&self, bound: i64) -> i64 {
        bound / (2 * self.tenants.max(1))
    }

    /// The tenant to evict from, until it holds as much as the next one, or what it keeps.
    fn eviction(&self, bound: i64) -> Option<Eviction> {
        let (tenant, held) = self.heaviest;
        let beyond = held - self.kept(bound);
        (self.tenants > 0 && beyond > 0).then(|| Eviction { tenant, bytes: (held - self.next).clamp(1, beyond) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tenant_that_holds_most_is_evicted_down_to_the_next_one_and_keeps_half_of_its_equal_share() {
        let gives = |most, next, tenants| {
            let shares = Shares { heaviest: (7, most), next, tenants };
            shares.eviction(1_000).map(|eviction| (eviction.tenant, eviction.bytes))
        };
        assert_eq!(gives(600, 300, 2), Some((7, 300)));
        assert_eq!(gives(600, 100, 2), Some((7, 350)));
        assert_eq!(gives(600, 600, 2), Some((7, 1)));
        assert_eq!(gives(250, 100, 2), None);
        assert_eq!(gives(0, 0, 0), None);
    }
}
