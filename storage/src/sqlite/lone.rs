//! Spans that are alone in a trace of their own: what the gateway records of a call that names no trace.
//!
//! Such a span has the id of its trace, and its row says so by an empty `trace_id`: it needs no entry in `spans_by_trace`, because
//! `spans_by_span` finds it. Either a trace has one such row, or rows that name it and are numbered: the row is *unfolded*, that is,
//! made one of the latter, before anything else of its trace is put in or taken out by it.

use std::collections::HashSet;

use rusqlite::Connection;
use rusqlite::types::ValueRef;
use weir_config::vocab::{SpanId, TraceId};

use crate::record::SpanRecord;

/// The rows of trace `?2` of tenant `?1`, by their integers.
pub(super) const OF_TRACE: &str = "SELECT id FROM spans INDEXED BY spans_by_trace \
    WHERE tenant = ?1 AND trace_id = ?2 AND trace_id <> x'' \
    UNION ALL SELECT id FROM spans INDEXED BY spans_by_span WHERE tenant = ?1 AND span_id = ?2 AND trace_id = x''";

/// Rows that one look takes.
const TOGETHER_MAX: i64 = 64;

/// The trace of a row, from its columns.
pub(super) fn trace_of(trace: ValueRef<'_>, span: SpanId) -> rusqlite::Result<TraceId> {
    match trace.as_blob()? {
        [] => Ok(TraceId::from_bytes(*span.as_bytes())),
        id => {
            Ok(TraceId::from_bytes(id.try_into().map_err(|_| rusqlite::types::FromSqlError::InvalidBlobSize {
                expected_size: 16,
                blob_size: id.len(),
            })?))
        }
    }
}

/// Whether the id may be that of a trace and of its only span: one of the gateway's own. Others are not looked for.
fn may_be_lone(trace: TraceId) -> bool {
    trace.uuid().get_version_num() == 7
}

/// Whether the span has its trace's id.
fn has_its_id(span: &SpanRecord) -> bool {
    span.trace_id.as_bytes() == span.span_id.as_bytes() && may_be_lone(span.trace_id)
}

/// Says of each of these spans, given with their tenants, whether its row is to be that of a lone one: it has the id of its trace, and
/// no other span of that is there or among these. Lone rows that the others belong to are unfolded.
pub(super) fn settle<'a>(
    conn: &Connection,
    spans: impl Iterator<Item = (i64, &'a SpanRecord)> + Clone,
) -> rusqlite::Result<Vec<bool>> {
    let (mut asked, mut named) = (Vec::new(), HashSet::new());
    let mut lone = Vec::with_capacity(spans.size_hint().0);
    for (tenant, span) in spans.clone() {
        lone.push(has_its_id(span));
        if has_its_id(span) {
            asked.push((tenant, span.trace_id));
        } else if may_be_lone(span.trace_id) && named.insert((tenant, span.trace_id)) {
            unfold(conn, tenant, span.trace_id)?;
        }
    }
    // What is made one after the other has ids that lie together: one look for all of them nearly always finds nothing between.
    asked.sort_unstable();
    for of_tenant in asked.chunk_by(|(one, _), (other, _)| one == other) {
        let ([(tenant, least), ..], [.., (_, most)]) = (of_tenant, of_tenant) else { continue };
        if named_between(conn, *tenant, (*least, *most), &mut named)? {
            continue;
        }
        for (tenant, trace) in of_tenant {
            named_between(conn, *tenant, (*trace, *trace), &mut named)?;
        }
    }
    if !named.is_empty() {
        for ((tenant, span), lone) in spans.zip(&mut lone) {
            *lone &= !named.contains(&(tenant, span.trace_id));
        }
    }
    Ok(lone)
}

/// Adds the traces that rows of the tenant name, between two; false when there are too many to be sure of all.
fn named_between(
    conn: &Connection,
    tenant: i64,
    (least, most): (TraceId, TraceId),
    named: &mut HashSet<(i64, TraceId)>,
) -> rusqlite::Result<bool> {
    let sql = "SELECT trace_id FROM spans INDEXED BY spans_by_trace WHERE tenant = ?1 AND trace_id >= ?2 AND trace_id <= ?3 \
        AND trace_id <> x'' LIMIT ?4";
    let mut statement = conn.prepare_cached(sql)?;
    let (least, most) = (least.as_bytes().as_slice(), most.as_bytes().as_slice());
    let mut rows = statement.query((tenant, least, most, TOGETHER_MAX))?;
    let mut found = 0;
    while let Some(row) = rows.next()? {
        named.insert((tenant, TraceId::from_bytes(row.get(0)?)));
        found += 1;
    }
    Ok(found < TOGETHER_MAX)
}

/// Has the row of a lone span name its trace, where there is one.
pub(super) fn unfold(conn: &Connection, tenant: i64, trace: TraceId) -> rusqlite::Result<()> {
    if !may_be_lone(trace) {
        return Ok(());
    }
    let sql = "UPDATE spans SET trace_id = span_id WHERE tenant = ?1 AND span_id = ?2 AND trace_id = x''";
    conn.prepare_cached(sql)?.execute((tenant, trace.as_bytes().as_slice())).map(|_| ())
}
