//! Rows of spans: putting them in, keeping `ord` 0 on the earliest of each trace.
//!
//! The common span is the first of its trace and is put in together with its neighbours by one statement, whose cursors
//! stay where the last row went. Only when a unique index objects does a row take the long way: it is either a replay
//! (nothing to do) or a further span of a known trace.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;

use rusqlite::{CachedStatement, Connection, OptionalExtension, ffi};
use weir_config::vocab::TraceId;
use weir_config::vocab::part::PartSide;

use super::facets;
use super::intern::Label;
use super::lone;
use super::tallies::{Key, New, Tallies, Use, Weight};
use super::texts;
use super::tx::Tx;
use crate::cursor::Fate;
use crate::encode::{divide, stretches};
use crate::error::WriteError;
use crate::pause;
use crate::record::SpanRecord;

/// Rows that one statement puts in, most first.
const TOGETHER: [usize; 3] = [32, 8, 1];
/// The statements, in the order of [`TOGETHER`]. A row that is refused ends a statement and leaves those before it in place,
/// so that nothing has to be noted for an undo.
static INSERTS: LazyLock<Inserts> = LazyLock::new(|| {
    let these = "INSERT OR FAIL INTO spans (trace_id, tenant, span_id, start_us, ord, provider, model, operation, score, \
        status, streaming, cost_nano_usd, duration_us, body, client, upstream";
    let all = |columns: &str, values: &str| {
        TOGETHER.map(|rows| format!("{these}{columns}) VALUES {}", [values].repeat(rows).join(", ")))
    };
    Inserts {
        // The columns that are left out are 0 by themselves.
        plain: all("", "(x'', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0)"),
        any: all(", error, agent, session, found", "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"),
    }
});

/// The statements for lone spans of which nothing is known but what all have, and for any: the former take fewer values.
struct Inserts {
    plain: [String; TOGETHER.len()],
    any: [String; TOGETHER.len()],
}

/// Values of a plain row, and of any.
const PLAIN_VALUES: usize = 13;
const VALUES: usize = 20;

/// The statement for so many rows.
struct Insert<'c> {
    statement: CachedStatement<'c>,
    is_plain: bool,
}

/// The number of a trace's next span.
const NEXT: &str = "SELECT ord + 1 FROM spans WHERE tenant = ?1 AND trace_id = ?2 AND trace_id <> x'' \
    ORDER BY ord DESC LIMIT 1";

/// A row on its way.
struct Row<'a> {
    span: &'a SpanRecord,
    key: Key,
    facets: facets::Columns,
    /// Its columns keep its trace's id as its own; see [`lone`].
    is_lone: bool,
    /// The model is not in the key but in the body.
    model_within: bool,
    /// Where its body lies among the bodies of its group.
    body: Range<usize>,
    /// The shared texts it names.
    nodes: Vec<i64>,
    /// Its place among the spans that are put in.
    at: usize,
    /// The tenant has a span of its id.
    is_known: bool,
}

impl Row<'_> {
    /// Adds it to the sums; `traces` is 1 when it is the first of its trace.
    fn count(&self, tallies: &mut Tallies, traces: i64) {
        let (start_us, weight) = (self.span.start_time.micros(), Weight::of(self.span, self.body.len()));
        tallies.add(self.key, start_us, traces, &weight);
        let (of, new) =
            (Use::of(self.key.tenant, start_us, self.key.model, &self.facets), New::of(self.span, self.key.score));
        tallies.begin_use(of, &weight, new);
    }
}

/// Puts spans in; the sums are kept in `tx` until the caller stores them. Gives what became of each.
pub(super) fn put_all<'a>(
    tx: &mut Tx<'_>,
    spans: impl Iterator<Item = &'a SpanRecord>,
) -> Result<Vec<Fate>, WriteError> {
    let fates = tx.in_order(|tx| put_in_turn(tx, spans))?;
    tx.texts.store_sums(tx.conn)?;
    Ok(fates)
}

fn put_in_turn<'a>(tx: &mut Tx<'_>, spans: impl Iterator<Item = &'a SpanRecord>) -> Result<Vec<Fate>, WriteError> {
    let mut fates = Vec::with_capacity(spans.size_hint().0);
    let mut rows: Vec<Row<'a>> = Vec::with_capacity(spans.size_hint().0);
    for span in spans {
        pause::here();
        match tx.interner.tenant_since(tx.conn, span.tenant_id, span.start_time)? {
            Some(tenant) => {
                let former = rows.last().filter(|row: &&Row<'_>| row.key.tenant == tenant);
                let (key, model_within) = key_of(tx, tenant, span, former)?;
                let facets = facets::Columns::of(tx, tenant, span, former.map(|former| (former.span, &former.facets)))?;
                let (body, nodes, at, is_known, is_lone) = (0..0, Vec::new(), fates.len(), false, false);
                rows.push(Row { span, key, facets, is_lone, model_within, body, nodes, at, is_known });
                fates.push(Fate::Stored);
            }
            None => fates.push(Fate::TenantDeleted),
        }
    }
    let lone = lone::settle(tx.conn, rows.iter().map(|row| (row.key.tenant, row.span)))?;
    rows.iter_mut().zip(lone).for_each(|(row, is_lone)| row.is_lone = is_lone);
    let mut bodies = Vec::new();
    let mut waiting = rows.as_mut_slice();
    let mut all_new = true;
    let mut trace: Option<Numbered> = None;
    while let Some(next) = waiting.first() {
        // Reports bring spans of one trace together: what is known of it need not be asked for with each of them.
        let known = trace.take().filter(|trace| trace.is_of(next));
        let further = waiting.windows(2).take(TOGETHER[0] - 1).take_while(|pair| !same_trace(pair));
        let alone = if known.is_some() { 1 } else { 1 + further.count() };
        // Where one span belongs to a known trace others will: no more groups are tried.
        let fits = |&at: &usize| TOGETHER[at] <= alone && (all_new || TOGETHER[at] == 1);
        let at = (0..TOGETHER.len()).find(fits).unwrap_or(TOGETHER.len() - 1);
        let (group, rest) = waiting.split_at_mut(TOGETHER[at]);
        waiting = rest;
        bodies.clear();
        for row in group.iter_mut() {
            pause::here();
            append_body(tx, row, &mut bodies)?;
        }
        trace = match (known, &mut *group) {
            (Some(known), [row]) => put_next(tx.conn, tx.tallies, row, &bodies, known)?,
            _ => {
                let (new, last) = put_group(tx.conn, tx.tallies, at, group, &bodies)?;
                all_new &= new;
                last
            }
        };
    }
    for row in rows.iter().filter(|row| row.is_known) {
        fates[row.at] = Fate::Known;
    }
    Ok(fates)
}

/// A trace by its newest span: what the next one of it needs to know.
struct Numbered {
    tenant: i64,
    trace: TraceId,
    /// The number of its next span.
    next: i64,
    /// When its first span began, or later: a span that does not begin before that is not the first.
    first_us: i64,
}

impl Numbered {
    fn of(row: &Row<'_>, next: i64) -> Self {
        let Row { span, key, .. } = row;
        Self { tenant: key.tenant, trace: span.trace_id, next, first_us: span.start_time.micros() }
    }

    fn is_of(&self, row: &Row<'_>) -> bool {
        self.tenant == row.key.tenant && self.trace == row.span.trace_id
    }
}

fn same_trace(pair: &[Row<'_>]) -> bool {
    matches!(pair, [one, other] if one.key.tenant == other.key.tenant && one.span.trace_id == other.span.trace_id)
}

/// Puts a further span of a trace in whose last span was put in just before.
fn put_next(
    conn: &Connection,
    tallies: &mut Tallies,
    row: &mut Row<'_>,
    bodies: &[u8],
    mut trace: Numbered,
) -> Result<Option<Numbered>, WriteError> {
    let body = &bodies[row.body.clone()];
    if row.span.start_time.micros() < trace.first_us {
        return Ok(put_further(conn, tallies, row, body)?);
    }
    let mut insert = Insert::of(conn, TOGETHER.len() - 1, std::slice::from_ref(row))?;
    insert.bind(0, row, trace.next, body)?;
    match insert.statement.raw_execute() {
        Ok(_) => {
            trace.next += 1;
            row.count(tallies, 0);
            Ok(Some(trace))
        }
        Err(error) if is_duplicate(&error) => {
            drop(insert);
            Ok(put_further(conn, tallies, row, body)?.or(Some(trace)))
        }
        Err(error) => Err(error.into()),
    }
}

/// The small integers of a span's filter values, and whether the model is to stand in the body, because its tenant has named
/// too many; the names of the tenant's span before it mostly serve.
fn key_of(tx: &mut Tx<'_>, tenant: i64, span: &SpanRecord, former: Option<&Row<'_>>) -> rusqlite::Result<(Key, bool)> {
    let score = span.security_score.map_or(-1, i64::from);
    if let Some(Row { span: like, key, model_within, .. }) = former
        && (&like.provider, &like.model, &like.operation_name) == (&span.provider, &span.model, &span.operation_name)
    {
        return Ok((Key { score, ..*key }, *model_within));
    }
    let (model, model_within) = span
        .model
        .as_deref()
        .map_or(Ok((0, false)), |model| tx.interner.label(tx.conn, tenant, Label::Model, model))?;
    let provider = tx.interner.name(tx.conn, &span.provider)?;
    // Those of the gateway are few, and are none of the names that senders choose.
    let operation = match &span.operation_name {
        Cow::Borrowed(name) => tx.interner.name(tx.conn, name)?,
        Cow::Owned(name) => tx.interner.label(tx.conn, tenant, Label::Operation, name)?.0,
    };
    Ok((Key { tenant, provider, model, operation, score }, model_within))
}

fn append_body(tx: &mut Tx<'_>, row: &mut Row<'_>, bodies: &mut Vec<u8>) -> Result<(), WriteError> {
    let bare;
    let span = if tx.texts_from_us.is_some_and(|from_us| row.span.start_time.micros() < from_us) {
        let mut without = row.span.clone();
        without.remove_texts();
        bare = without;
        &bare
    } else {
        row.span
    };
    let (request, response) = (divide(span, PartSide::Request), divide(span, PartSide::Response));
    let frame = span.frame.as_deref().map(stretches).unwrap_or_default();
    let laid = texts::lay(tx, row.key.tenant, &request, &response, &frame)?;
    row.nodes = laid.nodes();
    let body = tx.encoder.encode(span, row.model_within, &laid).map_err(|too_large| {
        WriteError::Row(format!("its {} bytes of text are more than a row can hold", too_large.0))
    })?;
    let from = bodies.len();
    bodies.extend_from_slice(body);
    row.body = from..bodies.len();
    Ok(())
}

/// Puts rows in by the statement for as many. False when not all of them were the first of their traces; the trace of the last one,
/// where it was new.
fn put_group(
    conn: &Connection,
    tallies: &mut Tallies,
    statement: usize,
    rows: &mut [Row<'_>],
    bodies: &[u8],
) -> Result<(bool, Option<Numbered>), WriteError> {
    let mut insert = Insert::of(conn, statement, rows)?;
    for (at, row) in rows.iter().enumerate() {
        insert.bind(at, row, 0, &bodies[row.body.clone()])?;
    }
    let put = match insert.statement.raw_execute() {
        Ok(put) => put,
        Err(error) if is_duplicate(&error) => usize::try_from(conn.changes()).unwrap_or(0),
        Err(error) => return Err(error.into()),
    };
    drop(insert);
    let (first, others) = rows.split_at_mut(put.min(rows.len()));
    for row in &*first {
        row.count(tallies, 1);
    }
    let Some((refused, others)) = others.split_first_mut() else {
        return Ok((true, first.last().map(|row| Numbered::of(row, 1))));
    };
    let mut last = put_further(conn, tallies, refused, &bodies[refused.body.clone()])?;
    for row in others {
        (_, last) = put_group(conn, tallies, TOGETHER.len() - 1, std::slice::from_mut(row), bodies)?;
    }
    Ok((false, last))
}

impl<'c> Insert<'c> {
    /// For these rows, by the statement for as many.
    fn of(conn: &'c Connection, statement: usize, rows: &[Row<'_>]) -> rusqlite::Result<Self> {
        let is_plain = rows.iter().all(|row| row.is_lone && row.facets.is_plain());
        let all = if is_plain { &INSERTS.plain } else { &INSERTS.any };
        Ok(Self { statement: conn.prepare_cached(&all[statement])?, is_plain })
    }

    fn bind(&mut self, at: usize, row: &Row<'_>, ord: i64, body: &[u8]) -> rusqlite::Result<()> {
        let Row { span, key, facets, .. } = row;
        let insert = &mut self.statement;
        let mut at = at * if self.is_plain { PLAIN_VALUES } else { VALUES };
        if !self.is_plain {
            at += 1;
            let trace = if row.is_lone { &[][..] } else { span.trace_id.as_bytes().as_slice() };
            insert.raw_bind_parameter(at, trace)?;
        }
        insert.raw_bind_parameter(at + 1, key.tenant)?;
        insert.raw_bind_parameter(at + 2, span.span_id.as_bytes().as_slice())?;
        insert.raw_bind_parameter(at + 3, span.start_time.micros())?;
        insert.raw_bind_parameter(at + 4, ord)?;
        insert.raw_bind_parameter(at + 5, key.provider)?;
        insert.raw_bind_parameter(at + 6, key.model)?;
        insert.raw_bind_parameter(at + 7, key.operation)?;
        insert.raw_bind_parameter(at + 8, span.security_score)?;
        insert.raw_bind_parameter(at + 9, facets.status)?;
        insert.raw_bind_parameter(at + 10, facets.streaming)?;
        insert.raw_bind_parameter(at + 11, facets.cost_nano_usd)?;
        insert.raw_bind_parameter(at + 12, facets.duration_us)?;
        insert.raw_bind_parameter(at + PLAIN_VALUES, body)?;
        if self.is_plain {
            return Ok(());
        }
        insert.raw_bind_parameter(at + 14, facets.client)?;
        insert.raw_bind_parameter(at + 15, facets.upstream)?;
        insert.raw_bind_parameter(at + 16, facets.error)?;
        insert.raw_bind_parameter(at + 17, facets.agent)?;
        insert.raw_bind_parameter(at + 18, facets.session)?;
        insert.raw_bind_parameter(at + 19, facets.found)
    }
}

/// A row that a unique index refused: known already, or a further span of a known trace. `ord` 0 stays with the
/// earliest span; the others are numbered as they come. Gives what is known of its trace then, if the row was new.
fn put_further(
    conn: &Connection,
    tallies: &mut Tallies,
    row: &mut Row<'_>,
    body: &[u8],
) -> rusqlite::Result<Option<Numbered>> {
    let (span, key) = (row.span, row.key);
    let known = conn
        .prepare_cached("SELECT 1 FROM spans WHERE tenant = ?1 AND span_id = ?2")?
        .exists((key.tenant, span.span_id.as_bytes().as_slice()))?;
    if known {
        row.is_known = true;
        texts::release(conn, &row.nodes)?;
        return Ok(None);
    }
    let trace = (key.tenant, span.trace_id.as_bytes().as_slice());
    let next: i64 = conn.prepare_cached(NEXT)?.query_row(trace, |row| row.get(0)).optional()?.unwrap_or(0);
    let later = conn
        .prepare_cached(
            "SELECT id, start_us, provider, model, operation, ifnull(score, -1) FROM spans \
             WHERE tenant = ?1 AND trace_id = ?2 AND trace_id <> x'' AND ord = 0 AND start_us > ?3",
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
    let mut insert = Insert::of(conn, TOGETHER.len() - 1, std::slice::from_ref(row))?;
    insert.bind(0, row, ord, body)?;
    insert.statement.raw_execute()?;
    row.count(tallies, i64::from(ord == 0));
    Ok(Some(Numbered::of(row, next + 1)))
}

fn is_duplicate(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == ffi::SQLITE_CONSTRAINT_UNIQUE)
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;

    use super::*;
    use crate::sqlite::open::keep_plans;

    /// How often a statement was prepared anew while it was asked about ten traces, with the plans kept or not.
    fn prepared_anew(sql: &str, kept: bool) -> i32 {
        let conn = Connection::open_in_memory().unwrap();
        if kept {
            keep_plans(&conn).unwrap();
        }
        for schema in [include_str!("../schema/0001_records.sql"), include_str!("../schema/0014_facets.sql")] {
            conn.execute_batch(schema).unwrap();
        }
        for trace in 0..10_u8 {
            // As the store does it: statements go back to a cache, which clears what is bound.
            let mut statement = conn.prepare_cached(sql).unwrap();
            let asked = statement.query_row((1, [trace; 16].as_slice()), |row| row.get::<_, i64>(0));
            assert_eq!(asked.optional().unwrap(), None);
        }
        conn.prepare_cached(sql).unwrap().get_status(StatementStatus::RePrepare)
    }

    #[test]
    fn a_cached_statement_is_prepared_once() {
        assert_eq!(prepared_anew(NEXT, true), 0);
        assert!(prepared_anew(NEXT, false) >= 9, "without it each use prepares it anew");
    }
}
