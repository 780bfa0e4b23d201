//! Rows of spans: putting them in, keeping `ord` 0 on the earliest of each trace.
//!
//! The common span is the first of its trace and costs one INSERT. Only when a unique index objects does the row take
//! the long way: it is either a replay (nothing to do) or a further span of a known trace.

use rusqlite::{CachedStatement, Connection, OptionalExtension, ffi};

use super::tallies::{Key, Tallies, Weight};
use super::tx::Tx;
use crate::record::SpanRecord;
use crate::writer::WriteError;

const INSERT: &str = "INSERT INTO spans (tenant, trace_id, span_id, start_us, ord, provider, model, operation, score, \
    body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";

/// Puts spans in; the sums are kept in `tx` until the caller stores them. Gives how many were left out, because their tenant
/// was deleted after they began.
pub(super) fn put_all<'a>(tx: &mut Tx<'_>, spans: impl Iterator<Item = &'a SpanRecord>) -> Result<usize, WriteError> {
    let Tx { conn, encoder, interner, tallies } = tx;
    let mut insert = conn.prepare_cached(INSERT)?;
    let mut left_out = 0;
    for span in spans {
        let Some(tenant) = interner.tenant_since(conn, span.tenant_id, span.start_time)? else {
            left_out += 1;
            continue;
        };
        let key = Key {
            tenant,
            provider: interner.name(conn, &span.provider)?,
            model: span.model.as_deref().map_or(Ok(0), |model| interner.name(conn, model))?,
            operation: interner.name(conn, &span.operation_name)?,
            score: span.security_score.map_or(-1, i64::from),
        };
        let body = encoder.encode(span).map_err(|too_large| {
            WriteError::Row(format!("its {} bytes of text are more than a row can hold", too_large.0))
        })?;
        let weight = Weight::of(span, body.len());
        match put(&mut insert, span, key, 0, body) {
            Ok(()) => tallies.add(key, span.start_time.micros(), 1, &weight),
            Err(error) if is_duplicate(&error) => put_further(conn, &mut insert, tallies, span, key, body)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(left_out)
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
            "SELECT id, start_us, provider, model, operation, ifnull(score, -1) FROM spans \
             WHERE tenant = ?1 AND trace_id = ?2 AND ord = 0 AND start_us > ?3",
        )?
        .query_row((trace.0, trace.1, span.start_time.micros()), |row| {
            let former = Key {
                tenant: key.tenant,
                provider: row.get(2)?,
                model: row.get(3)?,
                operation: row.get(4)?,
                score: row.get(5)?,
            };
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, former))
        })
        .optional()?;
    let mut ord = next;
    if let Some((id, start_us, former)) = later {
        conn.prepare_cached("UPDATE spans SET ord = ?2 WHERE id = ?1")?.execute((id, next))?;
        tallies.add_traces(former, start_us, -1);
        ord = 0;
    }
    put(insert, span, key, ord, body)?;
    tallies.add(key, span.start_time.micros(), i64::from(ord == 0), &Weight::of(span, body.len()));
    Ok(())
}

fn is_duplicate(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == ffi::SQLITE_CONSTRAINT_UNIQUE)
}
