//! The writing engine: one connection, one transaction per batch.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ffi};
use weir_config::vocab::Timestamp;

use super::eviction::Eviction;
use super::file_id::{self, FileId};
use super::home::Home;
use super::intern::Interner;
use super::migrate::{CopyFirst, MigrationReport, Pending};
use super::reserve::Reserve;
use super::tallies::Tallies;
use super::texts::Texts;
use super::tx::Tx;
use super::{migrate, open, rows};
use crate::cursor::Fate;
use crate::encode::Encoder;
use crate::engine::Engine;
use crate::error::OpenError;
use crate::error::WriteError;
use crate::order::Order;
use crate::queue::Queued;
use crate::retention::Policy;

/// The log is copied into the file when it holds more than this: the copy holds up the writer, so it is done often and
/// in small pieces. 64 MiB costs the same CPU per span (`examples/rate`) and stops four times as long.
const LOG_BYTES_MAX: i64 = 16 * 1024 * 1024;
/// Batches between looks at the log's size.
const LOOK_EVERY: u32 = 16;
/// The log is copied before it holds more than this part of the free room: copying makes the file grow, and one more
/// transaction makes the log grow. A log that has taken all the room can do neither, and nobody but us could free it.
const LOG_PART: i64 = 4;
/// Overlapping readers keep a log from ever being restarted, whatever was copied. From this many times its bound on, the
/// writer waits for those that read now; one that comes meanwhile reads beside the log.
const LOG_OVERGROWN: i64 = 4;
/// How long it waits for them, and how long it then leaves them alone, or until the log has grown by its bound once more: spans queue
/// meanwhile.
const READERS_WAIT: Duration = Duration::from_millis(200);
const READERS_REST: Duration = Duration::from_secs(3);
/// A log of this size is left alone however little room there is.
const LOG_BYTES_MIN: i64 = 256 * 1024;
/// With less free room than this every batch looks at the log's size.
const ROOM_SCARCE: i64 = 4 * LOG_PART * LOG_BYTES_MAX;

fn say_migrated(path: &Path, report: &MigrationReport) {
    let (path, from, to) = (path.display(), report.from, report.to);
    match (&report.copy, from) {
        (_, 0) => tracing::info!(%path, schema = to, "the database was created"),
        _ if report.applied.is_empty() => {}
        (Some(copy), _) => {
            tracing::info!(%path, from, to, copy = %copy.display(), "the database was migrated; the copy is what it was before");
        }
        (None, _) => tracing::info!(%path, from, to, "the database was migrated"),
    }
}

pub(crate) struct SqliteEngine {
    /// How long a write waits for another process that writes: no longer than a batch may take, or a batch that is to be given up
    /// sooner would hold up the breaker's word of it.
    busy: Duration,
    pub(super) home: Home,
    /// `None` between a failure and the next attempt.
    pub(super) conn: Option<Connection>,
    encoder: Encoder,
    interner: Interner,
    tallies: Tallies,
    texts: Texts,
    pub(super) page_bytes: i64,
    batches: u32,
    /// The file `conn` was opened on.
    file: Option<FileId>,
    /// The last failure was an I/O error: the file is checked before it is trusted again.
    suspect: bool,
    /// The disk was full: as soon as there is room, the log is emptied, because a log that fills the disk can neither
    /// grow nor be copied.
    was_full: bool,
    /// The log could not be copied the last time; said once.
    log_stuck: bool,
    /// When the readers were waited for in vain, the last time, and how many bytes the log then held.
    waited: Option<(Instant, i64)>,
    pub(super) policy: Arc<Policy>,
    pub(super) reserve: Reserve,
    /// When rows past their age were last looked for, and none was found.
    pub(super) aged_looked: Option<Instant>,
    /// The same for texts past theirs.
    pub(super) texts_looked: Option<Instant>,
    /// Bytes that may still be written before the bound is looked at again; nothing when other things than spans were written.
    pub(super) headroom: i64,
    /// Bytes of spans written since the log's size was last looked at.
    written_since_look: i64,
    /// It was said that the database is over its bound with what is not removed for it.
    pub(super) beyond_told: bool,
    /// Whose spans are evicted while there is too little room.
    pub(super) eviction: Option<Eviction>,
    /// When a tenant to evict from was last looked for, and each held no more than it keeps in any case.
    pub(super) eviction_looked: Option<Instant>,
    /// When tenants over their bound were last looked for, and none was found.
    pub(super) shares_looked: Option<Instant>,
    /// Something was erased since the log was last emptied that is not to stay in it.
    pub(super) purge_due: bool,
    /// When emptying it was last tried.
    pub(super) purged: Option<Instant>,
}

impl SqliteEngine {
    pub(crate) fn open(home: &Home, due: Pending, policy: Arc<Policy>) -> Result<Self, OpenError> {
        let path = home.path();
        let mut conn = open::writer(home)?;
        let report = migrate::apply(&mut conn, path, due)?;
        conn.busy_timeout(open::BUSY_TIMEOUT)
            .and_then(|()| open::keep_changes(&conn))
            .map_err(|error| open::explain(path, "opening the database", error))?;
        if home.is_file() {
            say_migrated(path, &report);
        }
        let page_bytes = conn
            .query_row("SELECT page_size FROM pragma_page_size", [], |row| row.get(0))
            .map_err(|error| open::explain(path, "reading the page size", error))?;
        Ok(Self {
            home: home.clone(),
            conn: Some(conn),
            busy: open::BUSY_TIMEOUT,
            encoder: Encoder::default(),
            interner: Interner::default(),
            tallies: Tallies::default(),
            texts: Texts::default(),
            page_bytes,
            batches: 0,
            file: file_id::now(home),
            suspect: false,
            was_full: false,
            log_stuck: false,
            waited: None,
            policy,
            reserve: Reserve::beside(path),
            aged_looked: None,
            texts_looked: None,
            headroom: 0,
            written_since_look: 0,
            beyond_told: false,
            eviction: None,
            eviction_looked: None,
            shares_looked: None,
            purge_due: true,
            purged: None,
        })
    }

    /// From now on a write waits no longer than this for another process that writes, and never longer than it did.
    pub(crate) fn wait_at_most(&mut self, limit: Duration) -> rusqlite::Result<()> {
        self.busy = open::BUSY_TIMEOUT.min(limit);
        self.conn.as_ref().map_or(Ok(()), |conn| conn.busy_timeout(self.busy))
    }

    /// Runs `change` as one transaction; what it leaves undone is rolled back.
    pub(super) fn transact(
        &mut self,
        change: impl FnOnce(&mut Tx<'_>) -> Result<(), WriteError>,
    ) -> Result<(), WriteError> {
        if self.conn.is_some() && file_id::now(&self.home) != self.file {
            // What went into the former file since its removal is lost with it; nothing more must.
            self.conn = None;
            self.suspect = true;
            return Err(WriteError::Store("the database file was removed or replaced".to_owned()));
        }
        let Self { home, conn, encoder, interner, tallies, texts, policy, .. } = self;
        let _alone = home.alone();
        let Some(open) = conn.as_ref() else {
            return Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CANTOPEN), None).into());
        };
        let texts_from_us = policy.texts_from_us(Timestamp::now().micros());
        let mut tx = Tx { conn: open, encoder, interner, tallies, texts, texts_from_us };
        let result = begin(open).and_then(|()| tx.catch_up()).and_then(|()| change(&mut tx)).and_then(|()| {
            tx.tallies.store(open)?;
            Ok(open.prepare_cached("COMMIT")?.execute([]).map(|_| ())?)
        });
        self.tallies.forget();
        let Err(error) = result else { return Ok(()) };
        // A name may have been added by the transaction that is now undone.
        self.interner.forget();
        self.texts.forget();
        if let Some(open) = conn.as_ref()
            && !open.is_autocommit()
            && open.execute_batch("ROLLBACK").is_err()
        {
            *conn = None;
        }
        self.suspect |= matches!(error, WriteError::Damage(_));
        if matches!(error, WriteError::Full(_)) {
            self.was_full = true;
            self.reserve.release();
        }
        Err(error)
    }

    /// Bytes in the log, without copying anything.
    fn log_bytes(&self) -> Option<i64> {
        let conn = self.conn.as_ref()?;
        let frames: i64 =
            conn.prepare_cached("PRAGMA wal_checkpoint(NOOP)").ok()?.query_row([], |row| row.get(1)).ok()?;
        Some(frames * self.page_bytes)
    }

    /// Copies the log when it has become large, or large beside the free room; after a full disk, empties it.
    fn bound_log(&mut self, idle: bool) {
        if !self.home.is_file() {
            return;
        }
        if self.was_full {
            self.was_full = !self.checkpoint("PRAGMA wal_checkpoint(TRUNCATE)");
            return;
        }
        let room = i64::try_from(self.reserve.room()).unwrap_or(i64::MAX);
        let bound = (room / LOG_PART).clamp(LOG_BYTES_MIN, LOG_BYTES_MAX);
        // Sixteen batches may be few bytes, and one may be many.
        let look = idle
            || room < ROOM_SCARCE
            || self.batches.is_multiple_of(LOOK_EVERY)
            || self.written_since_look > LOG_BYTES_MAX / 4;
        let bytes = if look { self.log_bytes().unwrap_or(0) } else { 0 };
        if look {
            self.written_since_look = 0;
        }
        let rested = |(at, then): &(Instant, i64)| at.elapsed() > READERS_REST || bytes > then + bound;
        if bytes > LOG_OVERGROWN * bound && self.waited.as_ref().is_none_or(rested) {
            let began = self.begin_log_anew();
            self.waited = (!began).then(|| (Instant::now(), bytes));
        } else if idle || bytes > bound {
            self.checkpoint("PRAGMA wal_checkpoint(PASSIVE)");
        }
    }

    /// Copies the whole log and has the next commit write over it; false when readers were in the way for too long.
    fn begin_log_anew(&self) -> bool {
        let Some(conn) = self.conn.as_ref() else { return false };
        let attempt = || -> rusqlite::Result<bool> {
            // What can be copied without anybody waiting is copied first.
            conn.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?.query_row([], |_| Ok(()))?;
            conn.busy_timeout(READERS_WAIT)?;
            conn.prepare_cached("PRAGMA wal_checkpoint(RESTART)")?.query_row([], |row| Ok(row.get::<_, i64>(0)? == 0))
        };
        let began = attempt();
        let restored = conn.busy_timeout(self.busy);
        // An error here meets the next commit or copy, too, and is said there.
        restored.is_ok() && began.unwrap_or(false)
    }

    /// Copies the whole log and cuts it to nothing, so that no former content stays in it; false when readers were in the way.
    pub(super) fn truncate_log(&self) -> bool {
        let Some(conn) = self.conn.as_ref() else { return false };
        let attempt = || -> rusqlite::Result<bool> {
            conn.prepare_cached("PRAGMA wal_checkpoint(PASSIVE)")?.query_row([], |_| Ok(()))?;
            conn.busy_timeout(READERS_WAIT)?;
            conn.prepare_cached("PRAGMA wal_checkpoint(TRUNCATE)")?.query_row([], |row| Ok(row.get::<_, i64>(0)? == 0))
        };
        let emptied = attempt();
        conn.busy_timeout(self.busy).is_ok() && emptied.unwrap_or(false)
    }

    /// Proves with a harmless row that the file takes writes.
    fn prove(&self) -> Result<(), WriteError> {
        if let Some(conn) = &self.conn {
            conn.execute("UPDATE migrations SET applied_at = applied_at WHERE version = 1", [])?;
        }
        Ok(())
    }

    /// Copies the log into the file; false when that failed.
    fn checkpoint(&mut self, mode: &'static str) -> bool {
        let Some(conn) = self.conn.as_ref() else { return false };
        let result = conn.prepare_cached(mode).and_then(|mut statement| statement.query_row([], |_| Ok(())));
        let stuck = std::mem::replace(&mut self.log_stuck, result.is_err());
        if let (Err(error), false) = (&result, stuck) {
            // Nothing is lost: the log keeps everything, and the next commit or checkpoint will meet the cause.
            tracing::warn!(%error, "copying the log into the database failed");
        }
        result.is_ok()
    }
}

fn begin(conn: &Connection) -> Result<(), WriteError> {
    Ok(conn.prepare_cached("BEGIN IMMEDIATE")?.execute([]).map(|_| ())?)
}

impl Engine for SqliteEngine {
    fn write(&mut self, rows: &[Queued]) -> Result<usize, WriteError> {
        if !self.has_room() {
            self.was_full = true;
            self.reserve.release();
            return Err(WriteError::Full(
                "the disk is nearly full; what is left is kept for keys and the audit log".into(),
            ));
        }
        let mut left_out = 0;
        let bytes = rows.iter().map(|row| row.bytes).sum();
        self.take_headroom(rows.len(), bytes);
        self.written_since_look += bytes as i64;
        self.transact(|tx| {
            let fates = rows::put_all(tx, rows.iter().map(|row| &*row.span))?;
            left_out = fates.iter().filter(|fate| **fate == Fate::TenantDeleted).count();
            Ok(())
        })?;
        // A database in memory has its bound kept after every batch.
        while !self.home.is_file() && self.erase_excess()? {}
        Ok(left_out)
    }

    fn has_room(&self) -> bool {
        // A log that grew while there was room keeps its size until it is cut.
        !self.home.is_file() || !self.reserve.is_scarce() || self.truncate_log() && !self.reserve.is_scarce()
    }

    /// The stamp is kept in the header's `user_version`, which takes part in the transaction.
    fn carry_out(&mut self, orders: &mut [Order], stamp: i32) -> Result<(), WriteError> {
        self.headroom = 0;
        // What a deletion removes is to leave the log, too.
        self.purge_due |= orders.iter().any(|order| order.change().removes_secrets());
        self.transact(|tx| {
            let last: i32 = tx.conn.prepare_cached("PRAGMA user_version")?.query_row([], |row| row.get(0))?;
            if last == stamp {
                // The commit that was reported as failed is in the file, with the results the orders still hold.
                return Ok(());
            }
            tx.conn.pragma_update(None, "user_version", stamp)?;
            for order in orders {
                tx.conn.prepare_cached("SAVEPOINT change")?.execute([])?;
                let answer =
                    tx.make(order.change()).and_then(|answer| Ok(tx.tallies.store(tx.conn).map(|()| answer)?));
                match order.made(answer) {
                    Ok(()) => {}
                    Err(WriteError::Row(_)) => {
                        tx.conn.prepare_cached("ROLLBACK TO change")?.execute([])?;
                        tx.interner.forget();
                        tx.texts.forget();
                    }
                    Err(error) => return Err(error),
                }
                tx.tallies.forget();
                tx.conn.prepare_cached("RELEASE change")?.execute([])?;
            }
            Ok(())
        })?;
        while !self.home.is_file() && self.erase_excess()? {}
        Ok(())
    }

    /// Opens the file afresh, checks it after an I/O error, and proves that it takes writes. Where the log has no room
    /// to grow, it is emptied first.
    fn recover(&mut self) -> Result<(), WriteError> {
        let home = self.home.clone();
        let _alone = home.alone();
        self.conn = None;
        self.headroom = 0;
        self.interner.forget();
        self.texts.forget();
        self.tallies.forget();
        let failed = |error: OpenError| WriteError::Store(error.to_string());
        let moved = file_id::now(&self.home) != self.file;
        if moved {
            open::touch(self.home.path()).map_err(failed)?;
        }
        let mut conn = open::connect(&self.home, self.busy)?;
        if self.suspect {
            open::check(&mut conn, self.home.path()).map_err(failed)?;
        }
        if moved {
            let due = Pending { apply: true, copy: CopyFirst::Never };
            migrate::apply(&mut conn, self.home.path(), due).map_err(failed)?;
            self.file = file_id::now(&self.home);
            let path = self.home.path().display();
            tracing::warn!(%path, "the database file was removed or replaced; continuing with the file that is there now");
        }
        open::keep_changes(&conn)?;
        self.conn = Some(conn);
        let mut proof = self.prove();
        if matches!(proof, Err(WriteError::Full(_))) {
            self.was_full = true;
            self.reserve.release();
            if self.checkpoint("PRAGMA wal_checkpoint(TRUNCATE)") {
                self.was_full = false;
                proof = self.prove();
            }
        }
        if proof.is_err() {
            self.conn = None;
        }
        self.suspect &= proof.is_err();
        proof
    }

    fn keep(&mut self) -> bool {
        let more = self.housekeep().unwrap_or_else(|error| {
            // Nothing is lost: the rows are taken out later.
            tracing::warn!(reason = error.reason(), "housekeeping of the store failed; will retry");
            false
        });
        if more || self.was_full {
            // Removing writes to the log like anything else, and there may be many pieces before the next batch.
            self.batches += 1;
            self.bound_log(false);
        }
        more
    }

    fn tend(&mut self, idle: bool) {
        self.batches += 1;
        if self.home.is_file() {
            self.keep_bounds();
        }
        self.bound_log(idle);
    }

    /// Leaves an empty log behind, which is how the next start knows that the stop was clean.
    fn close(&mut self) {
        if self.home.is_file() {
            self.checkpoint("PRAGMA wal_checkpoint(TRUNCATE)");
        }
        self.conn = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_waits_for_others_no_longer_than_a_batch_may_take() {
        let folder = tempfile::TempDir::new().unwrap();
        let home = Home::file(folder.path().join("weir.db"));
        let mut engine =
            SqliteEngine::open(&home, Pending { apply: true, copy: CopyFirst::Never }, Arc::default()).unwrap();
        let waits = |engine: &SqliteEngine| -> i64 {
            engine.conn.as_ref().unwrap().query_row("PRAGMA busy_timeout", [], |row| row.get(0)).unwrap()
        };
        for (limit_ms, waited_ms) in [(300, 300), (10_000, 1_000)] {
            engine.wait_at_most(Duration::from_millis(limit_ms)).unwrap();
            assert_eq!(waits(&engine), waited_ms);
            engine.recover().unwrap();
            assert_eq!(waits(&engine), waited_ms, "on the next connection, too");
            engine.truncate_log();
            assert_eq!(waits(&engine), waited_ms);
        }
    }
}
