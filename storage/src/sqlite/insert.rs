//! The writing engine: one connection, one transaction per batch.
//!
//! The common span is the first of its trace and costs one INSERT. Only when a unique index objects does the row take
//! the long way: it is either a replay (nothing to do) or a further span of a known trace.

use std::path::{Path, PathBuf};

use rusqlite::{CachedStatement, Connection, ErrorCode, OptionalExtension, ffi};

use super::intern::Interner;
use super::tallies::{Key, Tallies};
use super::{migrate, open};
use crate::encode::{Encoder, TooLarge};
use crate::error::OpenError;
use crate::queue::Queued;
use crate::record::SpanRecord;
use crate::writer::{Engine, WriteError};

/// The log is copied into the file when it holds more than this: the copy holds up the writer, so it is done often and
/// in small pieces. 64 MiB costs the same CPU per span (`examples/rate`) and stops four times as long.
const LOG_BYTES_MAX: i64 = 16 * 1024 * 1024;
/// Batches between looks at the log's size.
const LOOK_EVERY: u32 = 16;

const INSERT: &str = "INSERT INTO spans (tenant, trace_id, span_id, start_us, ord, provider, model, operation, score, \
    body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";

pub(crate) struct SqliteEngine {
    path: PathBuf,
    /// `None` between a failure and the next attempt.
    conn: Option<Connection>,
    encoder: Encoder,
    interner: Interner,
    tallies: Tallies,
    page_bytes: i64,
    batches: u32,
    /// The last failure was an I/O error: the file is checked before it is trusted again.
    suspect: bool,
}

/// A row's part of a failed transaction, or the store's.
enum Fault {
    Sql(rusqlite::Error),
    TooLarge(TooLarge),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl SqliteEngine {
    pub(crate) fn open(path: &Path, auto_migrate: bool) -> Result<Self, OpenError> {
        let mut conn = open::writer(path)?;
        let report = migrate::apply(&mut conn, path, auto_migrate)?;
        if !report.applied.is_empty() {
            tracing::info!(path = %path.display(), from = report.from, to = report.to, "the database was migrated");
        }
        let page_bytes = conn
            .query_row("SELECT page_size FROM pragma_page_size", [], |row| row.get(0))
            .map_err(|error| open::explain(path, "reading the page size", error))?;
        Ok(Self {
            path: path.to_owned(),
            conn: Some(conn),
            encoder: Encoder::default(),
            interner: Interner::default(),
            tallies: Tallies::default(),
            page_bytes,
            batches: 0,
            suspect: false,
        })
    }

    fn transact(&mut self, rows: &[Queued]) -> Result<(), Fault> {
        let Self { conn: Some(conn), encoder, interner, tallies, .. } = self else {
            return Err(rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CANTOPEN), None).into());
        };
        conn.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        let mut insert = conn.prepare_cached(INSERT)?;
        for row in rows {
            let span = &row.span;
            let key = Key {
                tenant: interner.tenant(conn, span.tenant_id)?,
                provider: interner.name(conn, &span.provider)?,
                model: span.model.as_deref().map_or(Ok(0), |model| interner.name(conn, model))?,
                operation: interner.name(conn, &span.operation_name)?,
                score: span.security_score.map_or(-1, i64::from),
            };
            let body = encoder.encode(span).map_err(Fault::TooLarge)?;
            match put(&mut insert, span, key, 0, body) {
                Ok(()) => {
                    tallies.add(key, span);
                    tallies.add_trace(key, 1);
                }
                Err(error) if is_duplicate(&error) => put_further(conn, &mut insert, tallies, span, key, body)?,
                Err(error) => return Err(error.into()),
            }
        }
        tallies.store(conn)?;
        conn.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }

    /// Bytes in the log, without copying anything.
    fn log_bytes(&self) -> Option<i64> {
        let conn = self.conn.as_ref()?;
        let frames: i64 =
            conn.prepare_cached("PRAGMA wal_checkpoint(NOOP)").ok()?.query_row([], |row| row.get(1)).ok()?;
        Some(frames * self.page_bytes)
    }

    fn checkpoint(&self, mode: &'static str) {
        let Some(conn) = self.conn.as_ref() else { return };
        let result = conn.prepare_cached(mode).and_then(|mut statement| statement.query_row([], |_| Ok(())));
        if let Err(error) = result {
            // Nothing is lost: the log keeps everything, and the next commit or checkpoint will meet the cause.
            tracing::warn!(%error, "copying the log into the database failed");
        }
    }
}

impl Engine for SqliteEngine {
    fn write(&mut self, rows: &[Queued]) -> Result<(), WriteError> {
        let result = self.transact(rows);
        self.tallies.forget();
        let Err(fault) = result else { return Ok(()) };
        // A name may have been added by the transaction that is now undone.
        self.interner.forget();
        if let Some(conn) = self.conn.as_ref()
            && !conn.is_autocommit()
            && conn.execute_batch("ROLLBACK").is_err()
        {
            self.conn = None;
        }
        let error = match fault {
            Fault::TooLarge(TooLarge(bytes)) => {
                return Err(WriteError::Row(format!("its {bytes} bytes of text are more than a row can hold")));
            }
            Fault::Sql(error) => error,
        };
        Err(match error.sqlite_error_code() {
            Some(
                ErrorCode::ConstraintViolation
                | ErrorCode::TypeMismatch
                | ErrorCode::TooBig
                | ErrorCode::ParameterOutOfRange,
            ) => WriteError::Row(error.to_string()),
            code => {
                self.suspect |= matches!(code, Some(ErrorCode::SystemIoFailure | ErrorCode::DatabaseCorrupt));
                WriteError::Store(error.to_string())
            }
        })
    }

    /// Opens the file afresh, checks it after an I/O error, and proves with a harmless row that it takes writes.
    fn recover(&mut self) -> Result<(), WriteError> {
        self.conn = None;
        self.interner.forget();
        self.tallies.forget();
        let failed = |error: rusqlite::Error| WriteError::Store(error.to_string());
        let mut conn = open::connect(&self.path).map_err(failed)?;
        if self.suspect {
            open::check(&mut conn, &self.path).map_err(|error| WriteError::Store(error.to_string()))?;
        }
        conn.execute("UPDATE migrations SET applied_at = applied_at WHERE version = 1", []).map_err(failed)?;
        self.suspect = false;
        self.conn = Some(conn);
        Ok(())
    }

    fn tend(&mut self, idle: bool) {
        self.batches += 1;
        let full =
            self.batches.is_multiple_of(LOOK_EVERY) && self.log_bytes().is_some_and(|bytes| bytes > LOG_BYTES_MAX);
        if idle || full {
            self.checkpoint("PRAGMA wal_checkpoint(PASSIVE)");
        }
    }

    /// Leaves an empty log behind, which is how the next start knows that the stop was clean.
    fn close(&mut self) {
        self.checkpoint("PRAGMA wal_checkpoint(TRUNCATE)");
        self.conn = None;
    }
}

fn put(insert: &mut CachedStatement<'_>, span: &SpanRecord, key: Key, ord: i64, body: &[u8]) -> rusqlite::Result<()> {
    insert.raw_bind_parameter(1, key.tenant)?;
    insert.raw_bind_parameter(2, span.trace_id.as_bytes().as_slice())?;
    insert.raw_bind_parameter(3, span.span_id.as_bytes().as_slice())?;
    insert.raw_bind_parameter(4, span.start_time.micros())?;
    insert.raw_bind_parameter(5, ord)?;
    insert.raw_bind_parameter(6, key.provider)?;
    insert.raw_bind_parameter(7, key.model)?;
    insert.raw_bind_parameter(8, key.operation)?;
    insert.raw_bind_parameter(9, span.security_score)?;
    insert.raw_bind_parameter(10, body)?;
    insert.raw_execute().map(|_| ())
}

/// A row that a unique index refused: known already, or a further span of a known trace. `ord` 0 stays with the
/// earliest span; the others are numbered as they come.
fn put_further(
    conn: &Connection,
    insert: &mut CachedStatement<'_>,
    tallies: &mut Tallies,
    span: &SpanRecord,
    key: Key,
    body: &[u8],
) -> rusqlite::Result<()> {
    let known = conn
        .prepare_cached("SELECT 1 FROM spans WHERE tenant = ?1 AND span_id = ?2")?
        .exists((key.tenant, span.span_id.as_bytes().as_slice()))?;
    if known {
        return Ok(());
    }
    let trace = (key.tenant, span.trace_id.as_bytes().as_slice());
    let next: i64 = conn
        .prepare_cached("SELECT max(ord) + 1 FROM spans WHERE tenant = ?1 AND trace_id = ?2")?
        .query_row(trace, |row| row.get::<_, Option<i64>>(0))?
        .unwrap_or(0);
    let later = conn
        .prepare_cached(
            "SELECT id, provider, model, operation, ifnull(score, -1) FROM spans \
             WHERE tenant = ?1 AND trace_id = ?2 AND ord = 0 AND start_us > ?3",
        )?
        .query_row((trace.0, trace.1, span.start_time.micros()), |row| {
            let former = Key {
                tenant: key.tenant,
                provider: row.get(1)?,
                model: row.get(2)?,
                operation: row.get(3)?,
                score: row.get(4)?,
            };
            Ok((row.get::<_, i64>(0)?, former))
        })
        .optional()?;
    let mut ord = next;
    if let Some((id, former)) = later {
        conn.prepare_cached("UPDATE spans SET ord = ?2 WHERE id = ?1")?.execute((id, next))?;
        tallies.add_trace(former, -1);
        tallies.add_trace(key, 1);
        ord = 0;
    }
    put(insert, span, key, ord, body)?;
    tallies.add(key, span);
    Ok(())
}

fn is_duplicate(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == ffi::SQLITE_CONSTRAINT_UNIQUE)
}
