//! Reading spans in the order of their commits.
//!
//! The integer of a row is that order: every writer, of whichever process, takes the next one under the file's write lock.
//! Invariant: an integer is never given again, also where the newest rows were taken out (`span_order.gone`), so that a gap
//! is a row that was there and has gone.

use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension};
use weir_config::vocab::{TenantId, Timestamp};

use super::intern::find_tenant;
use super::read::{NAMES, Reading, SPAN};
use super::readers::Stop;
use super::reads::{Reads, Snapshot};
use super::tx::Tx;
use crate::cursor::{Cursor, SpanBatch};
use crate::error::ReadError;
use crate::error::WriteError;

/// How long one batch is read; what was read by then is given.
const BATCH_TIME: Duration = Duration::from_millis(500);

/// Rows that one batch passes at most where only those with findings are read and the others have to be counted.
const PASSED_MAX: i64 = 8_192;

/// The integers of the file's rows.
struct Order {
    file: i64,
    /// The highest one that was ever given.
    last: i64,
    /// The highest one whose row has gone.
    gone: i64,
}

impl Order {
    fn of(conn: &Connection) -> rusqlite::Result<Self> {
        let sql = "SELECT file, max(gone, ifnull((SELECT max(id) FROM spans), 0)), gone FROM span_order WHERE id = 1";
        let one = |row: &rusqlite::Row<'_>| Ok(Self { file: row.get(0)?, last: row.get(1)?, gone: row.get(2)? });
        conn.prepare_cached(sql)?.query_row([], one)
    }

    /// Before the first row there is.
    fn before_first(&self, conn: &Connection) -> rusqlite::Result<i64> {
        let first: Option<i64> = conn.prepare_cached("SELECT min(id) FROM spans")?.query_row([], |row| row.get(0))?;
        Ok(first.map_or(self.last, |id| id - 1))
    }
}

/// Whether prompts and answers are read with their records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Texts {
    Read,
    LeftOut,
}

/// A batch being read.
struct Reader {
    texts: Texts,
    spans: Vec<crate::record::SpanRecord>,
    /// Everything up to here is in the batch, was passed over, or is counted as lost.
    place: i64,
    /// Rows that are there and cannot be read.
    lost: u64,
    /// Rows that have gone, or were passed over.
    gaps: u64,
    /// Whether missing rows count as lost: not before the first row that exists.
    counting: bool,
}

impl Reader {
    /// The row at `place` is the next one there is.
    fn pass(&mut self, place: i64) {
        if self.counting {
            self.gaps += (place - self.place - 1).max(0).unsigned_abs();
        }
        self.counting = true;
        self.place = place;
    }
}

impl Reads<'_> {
    pub(crate) fn read_after(
        &self,
        after: Cursor,
        limit: u32,
        bytes_max: usize,
        texts: Texts,
    ) -> Result<SpanBatch, ReadError> {
        self.ask("read_feed", |snapshot| {
            let order = Order::of(snapshot)?;
            let known = after.file == order.file;
            // A file that was put in place of this one may be an older copy of it.
            let place = if known { after.place.min(order.last) } else { 0 };
            let mut reader = Reader { texts, spans: Vec::new(), place, lost: 0, gaps: 0, counting: known };
            let whole = reader.fill(snapshot, limit, bytes_max)?;
            if whole {
                reader.pass(order.last + 1);
                reader.place = order.last;
            }
            let Reader { spans, place, lost, gaps, .. } = reader;
            let next = Cursor { file: order.file, place };
            Ok(SpanBatch { spans, next, lost: lost + gaps, clean: 0, more: !whole })
        })
    }

    /// What lies between two places, as much as fits; where that ends.
    pub(crate) fn read_between(
        &self,
        after: Cursor,
        to: Cursor,
        limit: u32,
        bytes_max: usize,
    ) -> Result<SpanBatch, ReadError> {
        self.ask("read_feed", |snapshot| {
            let order = Order::of(snapshot)?;
            let place = if after.file == order.file { after.place } else { 0 };
            let mut reader = Reader { texts: Texts::Read, spans: Vec::new(), place, lost: 0, gaps: 0, counting: false };
            let whole = reader.take_rows(snapshot, ("", ""), to.place, limit, bytes_max)?;
            let place = if whole { to.place } else { reader.place };
            let next = Cursor { file: order.file, place };
            Ok(SpanBatch { spans: reader.spans, next, lost: reader.lost, clean: 0, more: !whole })
        })
    }

    /// See [`SpanLog::read_found_after`](crate::SpanLog::read_found_after). An index holds the rows in which something was found, so
    /// that the others cost nothing; it holds those of a version before, too, of which nothing is known until they are filled in.
    pub(crate) fn read_found_after(&self, after: Cursor, limit: u32, bytes_max: usize) -> Result<SpanBatch, ReadError> {
        self.ask("read_feed", |snapshot| {
            let order = Order::of(snapshot)?;
            let known = after.file == order.file;
            let from = if known { after.place.min(order.last) } else { order.before_first(snapshot)? };
            // No integer is left out: behind the highest row that has gone they tell how many rows there are.
            let counts = order.gone > from;
            let to = if counts { order.last.min(from + PASSED_MAX) } else { order.last };
            let mut reader =
                Reader { texts: Texts::Read, spans: Vec::new(), place: from, lost: 0, gaps: 0, counting: false };
            let whole = reader.fill_found(snapshot, to, limit, bytes_max)?;
            let place = if whole { to } else { reader.place };
            let there = if counts { count_rows(snapshot, from, place)? } else { place - from };
            let seen = reader.spans.len() as u64 + reader.lost;
            let (gone, clean) =
                ((place - from - there).max(0).unsigned_abs(), there.unsigned_abs().saturating_sub(seen));
            let Reader { spans, lost, .. } = reader;
            let next = Cursor { file: order.file, place };
            Ok(SpanBatch { spans, next, lost: lost + gone, clean, more: place < order.last })
        })
    }

    /// How many of a tenant's spans, or of all, lie behind the row `from`, up to the row `to`.
    pub(crate) fn count_between(&self, tenant: Option<TenantId>, from: i64, to: i64) -> Result<u64, ReadError> {
        self.ask("read_feed", |conn| {
            let Some(tenant) = tenant else { return Ok(count_rows(conn, from, to)?.unsigned_abs()) };
            let Some(tenant) = find_tenant(conn, tenant)? else { return Ok(0) };
            let sql = "SELECT count(*) FROM spans NOT INDEXED WHERE id > ?1 AND id <= ?2 AND tenant = ?3";
            let many: i64 = conn.prepare_cached(sql)?.query_row((from, to, tenant), |row| row.get(0))?;
            Ok(many.unsigned_abs())
        })
    }

    /// Behind everything that is committed now.
    pub(crate) fn end(&self) -> Result<Cursor, ReadError> {
        self.ask("read_feed", |conn| {
            let Order { file, last, .. } = Order::of(conn)?;
            Ok(Cursor { file, place: last })
        })
    }

    pub(crate) fn cursor(&self, consumer: &str) -> Result<Option<Cursor>, ReadError> {
        self.ask("read_cursor", |conn| {
            let sql = "SELECT file, place FROM consumers WHERE name = ?1";
            let saved = |row: &rusqlite::Row<'_>| Ok(Cursor { file: row.get(0)?, place: row.get(1)? });
            Ok(conn.prepare_cached(sql)?.query_row([consumer], saved).optional()?)
        })
    }
}

/// Rows behind `from`, up to `to`.
fn count_rows(conn: &Connection, from: i64, to: i64) -> rusqlite::Result<i64> {
    let sql = "SELECT count(*) FROM spans WHERE id > ?1 AND id <= ?2";
    conn.prepare_cached(sql)?.query_row((from, to), |row| row.get(0))
}

impl Reader {
    /// Reads rows behind `place`; true when there are no further ones.
    fn fill(&mut self, conn: &Snapshot<'_>, limit: u32, bytes_max: usize) -> Result<bool, Stop> {
        self.take_rows(conn, ("", ""), i64::MAX, limit, bytes_max)
    }

    /// Reads those with findings up to the row `to`; true when there are no further ones up to there.
    fn fill_found(&mut self, conn: &Snapshot<'_>, to: i64, limit: u32, bytes_max: usize) -> Result<bool, Stop> {
        let found = (" INDEXED BY spans_found", " AND (s.found <> 0 OR s.client IS NULL)");
        self.take_rows(conn, found, to, limit, bytes_max)
    }

    fn take_rows(
        &mut self,
        conn: &Snapshot<'_>,
        (index, also): (&str, &str),
        to: i64,
        limit: u32,
        bytes_max: usize,
    ) -> Result<bool, Stop> {
        let sql = format!(
            "SELECT {SPAN}, s.tenant, t.uuid FROM spans s{index} JOIN tenants t ON t.id = s.tenant {NAMES} \
             WHERE s.id > ?1 AND s.id <= ?3{also} ORDER BY s.id LIMIT ?2"
        );
        let until = Instant::now() + BATCH_TIME;
        let mut statement = conn.prepare_cached(&sql)?;
        let mut rows = statement.query((self.place, limit, to))?;
        let mut reading = Reading::of_all(conn);
        reading.texts = self.texts == Texts::Read;
        let (mut looked, mut bytes) = (0, 0);
        while let Some(row) = rows.next()? {
            looked += 1;
            let id: i64 = row.get(0)?;
            // The UUID of a deleted tenant is longer.
            let Ok(tenant) = row.get::<_, [u8; 16]>(12) else {
                self.pass(id);
                self.lost += 1;
                continue;
            };
            reading.of_tenant(TenantId::from_bytes(tenant), row.get(11)?)?;
            match reading.span(row) {
                Ok((_, span)) => {
                    bytes += reading.bytes;
                    if !self.spans.is_empty() && bytes > bytes_max {
                        return Ok(false);
                    }
                    self.pass(id);
                    self.spans.push(span);
                }
                Err(Stop::Refused(error)) => {
                    tracing::warn!(%error, "a stored span cannot be read and is skipped");
                    self.pass(id);
                    self.lost += 1;
                }
                // Not the database's fault but the row's: a value of another length or type.
                Err(Stop::Sql(error)) if error.sqlite_error_code().is_none() => {
                    tracing::warn!(%error, "a stored span cannot be read and is skipped");
                    self.pass(id);
                    self.lost += 1;
                }
                Err(error) => return Err(error),
            }
            if Instant::now() >= until {
                return Ok(false);
            }
        }
        Ok(looked < limit)
    }
}

impl Tx<'_> {
    /// A row has gone; its integer is not given again.
    pub(super) fn note_gone(&self, highest: Option<i64>) -> rusqlite::Result<()> {
        if let Some(id) = highest {
            self.conn.prepare_cached("UPDATE span_order SET gone = ?1 WHERE id = 1 AND gone < ?1")?.execute([id])?;
        }
        Ok(())
    }

    /// Has rows put in with integers above all that were ever given. SQLite gives the next one above the highest there is: where the
    /// highest have gone, a row of nobody's holds the place of the last one meanwhile.
    pub(super) fn in_order<T>(
        &mut self,
        put: impl FnOnce(&mut Self) -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        let sql = "SELECT gone FROM span_order WHERE id = 1 AND gone > ifnull((SELECT max(id) FROM spans), 0)";
        let gone: Option<i64> = self.conn.prepare_cached(sql)?.query_row([], |row| row.get(0)).optional()?;
        let Some(gone) = gone else { return put(self) };
        let sql = "INSERT INTO spans (id, tenant, trace_id, span_id, start_us, ord, provider, model, operation, body) \
            VALUES (?1, -1, x'', x'', 0, 0, 0, 0, 0, x'')";
        self.conn.prepare_cached(sql)?.execute([gone])?;
        let done = put(self)?;
        self.conn.prepare_cached("DELETE FROM spans WHERE id = ?1")?.execute([gone])?;
        Ok(done)
    }

    pub(super) fn save_cursor(&self, consumer: &str, at: Cursor) -> Result<(), WriteError> {
        let sql = "INSERT INTO consumers (name, file, place, saved_us) VALUES (?1, ?2, ?3, ?4) \
            ON CONFLICT DO UPDATE SET place = iif(file = excluded.file, max(place, excluded.place), excluded.place), \
            file = excluded.file, saved_us = excluded.saved_us";
        self.conn.prepare_cached(sql)?.execute((consumer, at.file, at.place, Timestamp::now().micros()))?;
        Ok(())
    }
}
