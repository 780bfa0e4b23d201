//! What has come to a trace since it was last read, at the price of what is new: a trace that comes in a hundred reports is not read
//! a hundred times.

use rusqlite::{OptionalExtension, Row};
use weir_config::vocab::{SpanId, TenantId, TraceId};

use super::intern::find_tenant;
use super::read::{NAMES, Reading, SPAN};
use super::readers::Stop;
use super::reads::{Reads, Snapshot};
use crate::cursor::{TracePlace, TraceRest};
use crate::error::ReadError;
use crate::record::SpanRecord;

/// Rows of one trace that one answer looks at.
const ROWS_MAX: usize = 1_000;
/// Bytes of records after which an answer ends.
const BYTES_ENOUGH: usize = 4 * 1024 * 1024;

impl Reads<'_> {
    /// What each of these traces has behind its place, without texts and without the spans that are known.
    pub(crate) fn traces_after(
        &self,
        tenant: TenantId,
        asked: &[(TraceId, TracePlace)],
        known: &dyn Fn(TraceId, SpanId) -> bool,
    ) -> Result<Vec<TraceRest>, ReadError> {
        self.ask("read_trace", |snapshot| {
            let Some(tenant_int) = find_tenant(snapshot, tenant)? else {
                return Ok(vec![TraceRest::default(); asked.len()]);
            };
            let mut reading = Reading::of(snapshot, tenant, tenant_int)?;
            reading.texts = false;
            let mut all = Vec::with_capacity(asked.len());
            for (trace, after) in asked {
                let rest = Trace { snapshot, tenant: tenant_int, id: *trace };
                all.push(rest.after(*after, &mut reading, &|span| known(*trace, span))?);
            }
            Ok(all)
        })
    }
}

/// One trace of a tenant.
struct Trace<'a> {
    snapshot: &'a Snapshot<'a>,
    tenant: i64,
    id: TraceId,
}

impl Trace<'_> {
    fn after(
        &self,
        place: TracePlace,
        reading: &mut Reading<'_>,
        known: &dyn Fn(SpanId) -> bool,
    ) -> Result<TraceRest, Stop> {
        // Rows keep their places but for the first of a trace, which goes behind the last when an earlier one comes. So a place that
        // is somebody else's by now is one of a trace that was deleted.
        let anew = place.row != 0 && self.at(place.ord)?.map(|(row, _)| row) != Some(place.row);
        let from = if anew || place.row == 0 { TracePlace { row: 0, ord: -1 } } else { place };
        let mut rest = TraceRest { next: from, anew, ..TraceRest::default() };
        // The first of a trace may be new whenever it is looked at: an earlier one takes the place of the former.
        let first = if from.ord >= 0 { self.at(0)? } else { None };
        if let Some((id, _)) = first.filter(|(_, span)| !known(*span)) {
            rest.spans.extend(record(self.snapshot, reading, id)?);
        }
        let sql = "SELECT id, span_id, ord FROM spans WHERE tenant = ?1 AND trace_id = ?2 AND trace_id <> x'' AND ord > ?3 \
            UNION ALL SELECT id, span_id, ord FROM spans WHERE tenant = ?1 AND span_id = ?2 AND trace_id = x'' AND ord > ?3 \
            ORDER BY ord LIMIT ?4";
        let mut statement = self.snapshot.prepare_cached(sql)?;
        let mut rows = statement.query((self.tenant, self.id.as_bytes().as_slice(), from.ord, ROWS_MAX as i64))?;
        while let Some(row) = rows.next()? {
            let (id, span): (i64, [u8; 16]) = (row.get(0)?, row.get(1)?);
            if !known(SpanId::from_bytes(span)) {
                rest.spans.extend(record(self.snapshot, reading, id)?);
            }
            rest.next = TracePlace { row: id, ord: row.get(2)? };
            rest.rows += 1;
            rest.more = rest.rows == ROWS_MAX || reading.bytes > BYTES_ENOUGH;
            if rest.more {
                break;
            }
        }
        reading.bytes = 0;
        Ok(rest)
    }

    /// The row at a place of the trace, and its span.
    fn at(&self, ord: i64) -> rusqlite::Result<Option<(i64, SpanId)>> {
        let sql = "SELECT id, span_id FROM spans WHERE tenant = ?1 AND trace_id = ?2 AND trace_id <> x'' AND ord = ?3 \
            UNION ALL SELECT id, span_id FROM spans WHERE tenant = ?1 AND span_id = ?2 AND trace_id = x'' AND ord = ?3";
        let mut statement = self.snapshot.prepare_cached(sql)?;
        let row = |row: &Row<'_>| Ok((row.get(0)?, SpanId::from_bytes(row.get(1)?)));
        statement.query_row((self.tenant, self.id.as_bytes().as_slice(), ord), row).optional()
    }
}

fn record(snapshot: &Snapshot<'_>, reading: &mut Reading<'_>, id: i64) -> Result<Option<SpanRecord>, Stop> {
    let mut statement = snapshot.prepare_cached(&format!("SELECT {SPAN} FROM spans s {NAMES} WHERE s.id = ?1"))?;
    let mut rows = statement.query([id])?;
    rows.next()?.map(|row| reading.span(row).map(|(_, span)| span)).transpose()
}
