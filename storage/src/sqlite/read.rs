//! The queries behind the lists. Every one takes the tenant first and names it in every condition.
//!
//! A list is read in one snapshot: the total from the running sums, the row numbers of the page from an index that covers
//! all filters (see `paging`), then the rows of the page alone.

use std::time::{Duration, Instant};

use rusqlite::{Connection, Row, ToSql, params_from_iter};
use weir_config::vocab::{SpanId, TenantId, Timestamp, TraceId};

use super::intern::{find_name, find_tenant};
use super::paging::List;
use super::readers::Stop;
use super::reads::{Reads, Snapshot};
use super::tallies::Weight;
use super::{action_sums, actions, texts};
use crate::encode::{self, Columns};
use crate::error::ReadError;
use crate::query::{Page, Paged, SpanFilter, TraceFilter};
use crate::queue::weigh;
use crate::record::{SpanRecord, TraceRecord};
use crate::reports::SpanPlace;
use crate::writer::WriteError;

/// Bytes of records one answer may hold. As many answers as there are readers are made at a time.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Bytes of one record that is read for a report, of which one is built at a time.
const REPORTED_BYTES_MAX: usize = 4 * ANSWER_BYTES_MAX;

/// The columns [`Reading::span`] expects, of the row `s`.
pub(super) const SPAN: &str = "s.id, s.trace_id, s.span_id, s.start_us, p.text, m.text, o.text, s.score, s.body";
pub(super) const NAMES: &str = "LEFT JOIN names p ON p.id = s.provider LEFT JOIN names m ON m.id = s.model \
    LEFT JOIN names o ON o.id = s.operation";

/// Conditions over the columns that `spans`, its indexes and `tallies` share, with their values.
pub(super) struct Filter {
    tenant: i64,
    pub(super) sql: String,
    pub(super) values: Vec<i64>,
}

impl Filter {
    pub(super) fn of(tenant: i64) -> Self {
        Self { tenant, sql: "tenant = ?".to_owned(), values: vec![tenant] }
    }

    pub(super) fn and(&mut self, condition: &str, value: i64) {
        self.sql.push_str(" AND ");
        self.sql.push_str(condition);
        self.values.push(value);
    }

    /// Adds an exact name; false when no row can have it.
    fn and_name(&mut self, conn: &Connection, condition: &str, name: Option<&String>) -> rusqlite::Result<bool> {
        let Some(name) = name else { return Ok(true) };
        let id = find_name(conn, name)?;
        // 0 is no name's integer, and -1 nobody's.
        self.and(condition, id.unwrap_or(-1));
        Ok(id.is_some())
    }

    /// Adds the filters of the span list; false when no row can match.
    pub(super) fn and_span(&mut self, conn: &Connection, asked: &SpanFilter) -> rusqlite::Result<bool> {
        if asked.security_score_min.is_some() || asked.security_score_max.is_some() {
            let min = asked.security_score_min.unwrap_or(0);
            self.and("score >= ?", i64::from(min));
            self.and("score <= ?", i64::from(asked.security_score_max.unwrap_or(u8::MAX)));
            if min > 0 {
                // Lets SQLite see that the partial index has all matching rows.
                self.sql.push_str(" AND score > 0");
            }
        }
        Ok(self.and_name(conn, "operation = ?", asked.operation_name.as_ref())?
            & self.and_name(conn, "model = ?", asked.model.as_ref())?)
    }

    pub(super) fn sum(&self, conn: &Connection, column: &str) -> rusqlite::Result<u64> {
        let sql = format!("SELECT ifnull(sum({column}), 0) FROM tallies WHERE {}", self.sql);
        conn.prepare_cached(&sql)?.query_row(params_from_iter(&self.values), count)
    }
}

/// Rows being turned into records, within the bound of an answer.
pub(super) struct Reading<'a> {
    conn: &'a Snapshot<'a>,
    tenant: TenantId,
    /// The tenant has reported actions to be joined.
    has_actions: bool,
    /// The tenant's integer, where rows of all tenants are read.
    of: Option<i64>,
    pub(super) bytes: usize,
    bytes_max: usize,
    /// Whether the texts are wanted, too.
    pub(super) texts: bool,
}

impl<'a> Reading<'a> {
    fn of(conn: &'a Snapshot<'_>, tenant: TenantId, tenant_int: i64) -> rusqlite::Result<Self> {
        let has_actions = action_sums::any(conn, tenant_int)?;
        Ok(Self { conn, tenant, has_actions, of: Some(tenant_int), bytes: 0, bytes_max: ANSWER_BYTES_MAX, texts: true })
    }

    /// For rows of any tenant, each weighed alone; see [`Reading::of_tenant`].
    pub(super) fn of_all(conn: &'a Snapshot<'_>) -> Self {
        let (bytes_max, texts) = (REPORTED_BYTES_MAX, true);
        Self { conn, tenant: TenantId::DEFAULT, has_actions: false, of: None, bytes: 0, bytes_max, texts }
    }

    /// The next row is this tenant's.
    pub(super) fn of_tenant(&mut self, tenant: TenantId, tenant_int: i64) -> rusqlite::Result<()> {
        self.bytes = 0;
        if self.of != Some(tenant_int) {
            self.has_actions = action_sums::any(self.conn, tenant_int)?;
            (self.tenant, self.of) = (tenant, Some(tenant_int));
        }
        Ok(())
    }

    /// The record and its row number.
    pub(super) fn span(&mut self, row: &Row<'_>) -> Result<(i64, SpanRecord), Stop> {
        let id: i64 = row.get(0)?;
        let damaged = || Stop::Refused(ReadError::Damaged { row: id });
        let columns = Columns {
            trace_id: TraceId::from_bytes(row.get(1)?),
            span_id: SpanId::from_bytes(row.get(2)?),
            tenant_id: self.tenant,
            start_time: Timestamp::from_micros(row.get(3)?),
            provider: row.get::<_, Option<String>>(4)?.ok_or_else(damaged)?,
            model: row.get(5)?,
            operation: row.get::<_, Option<String>>(6)?.ok_or_else(damaged)?,
            score: row.get(7)?,
        };
        let body = row.get_ref(8)?.as_blob().map_err(|_| damaged())?;
        let (mut span, layout) = encode::decode(columns, body).map_err(|_| damaged())?;
        self.charge(weigh(&span))?;
        if self.texts {
            texts::fill(self.conn, id, layout, &mut span, &mut |bytes| self.charge(bytes))?;
        }
        if self.has_actions {
            actions::join(self.conn, id, &mut span, |bytes| self.charge(bytes))?;
        }
        Ok((id, span))
    }

    /// Counts what was read; refuses what the answer has no room for.
    fn charge(&mut self, bytes: usize) -> Result<(), Stop> {
        self.conn.pause();
        self.bytes += bytes;
        if self.bytes > self.bytes_max {
            return Err(Stop::Refused(ReadError::RecordTooLarge { limit_bytes: self.bytes_max }));
        }
        Ok(())
    }

    /// The records of these rows, in this order.
    fn page(&mut self, ids: &[i64], page: &mut Page) -> Result<Vec<SpanRecord>, Stop> {
        let mut statement = self.conn.prepare_cached(&format!("SELECT {SPAN} FROM spans s {NAMES} WHERE s.id = ?1"))?;
        let mut spans = Vec::with_capacity(ids.len());
        for id in ids {
            let mut rows = statement.query([id])?;
            if let Some(row) = rows.next()? {
                let Some((_, span)) = unless_full(self.span(row), spans.len(), page)? else { break };
                spans.push(span);
            }
        }
        Ok(spans)
    }

    /// The traces whose first spans are these rows, in this order.
    fn traces(&mut self, ids: &[i64], page: &mut Page) -> Result<Vec<TraceRecord>, Stop> {
        let sql = format!(
            "SELECT {SPAN} FROM spans h CROSS JOIN spans s INDEXED BY spans_by_trace \
             ON s.tenant = h.tenant AND s.trace_id = h.trace_id {NAMES} WHERE h.id = ?1"
        );
        let mut statement = self.conn.prepare_cached(&sql)?;
        let mut traces = Vec::with_capacity(ids.len());
        for id in ids {
            let mut rows = statement.query([id])?;
            let mut all = || {
                let mut spans = Vec::new();
                while let Some(row) = rows.next()? {
                    spans.push(self.span(row)?);
                }
                Ok(spans)
            };
            let Some(mut spans) = unless_full(all(), traces.len(), page)? else { break };
            spans.sort_by_key(|(id, _)| *id);
            traces.extend(TraceRecord::of(spans.into_iter().map(|(_, span)| span).collect()));
        }
        Ok(traces)
    }
}

/// What was read as item number `at` of a page, from 0; `None` when the answer has no room for it and the page may end before
/// it, which `page` then says.
pub(super) fn unless_full<T>(read: Result<T, Stop>, at: usize, page: &mut Page) -> Result<Option<T>, Stop> {
    match read {
        Err(Stop::Refused(ReadError::RecordTooLarge { .. })) if page.or_fewer && at > 0 => {
            page.limit = u32::try_from(at).unwrap_or(page.limit);
            Ok(None)
        }
        Err(Stop::Refused(ReadError::RecordTooLarge { limit_bytes })) => {
            Err(Stop::Refused(ReadError::TooLarge { limit_bytes, fit: at }))
        }
        read => read.map(Some),
    }
}

/// What a row counts for in the running sums, its actions left out, and the shared texts it names.
pub(super) fn weight_of_row(conn: &Connection, id: i64) -> Result<(Weight, Vec<i64>), WriteError> {
    let mut statement = conn.prepare_cached("SELECT body FROM spans WHERE id = ?1")?;
    let mut rows = statement.query([id])?;
    let Some(row) = rows.next()? else { return Ok(Default::default()) };
    let body = row.get_ref(0)?.as_blob().unwrap_or_default();
    // A damaged body has no weight: what cannot be read must not stop it from being taken out.
    let Ok((span, layout)) = encode::decode(Columns::unknown(), body) else { return Ok(Default::default()) };
    Ok((Weight::of(&span, body.len()), layout.nodes()))
}

/// A number of rows, which SQLite keeps signed.
fn count(row: &Row<'_>) -> rusqlite::Result<u64> {
    row.get::<_, i64>(0).map(|count| count.max(0).cast_unsigned())
}

fn empty<T>(page: Page) -> Paged<T> {
    Paged { data: Vec::new(), total: 0, limit: page.limit, offset: page.offset }
}

impl Reads<'_> {
    /// Gives a tenant's spans to `take`, in order of start and arrival, from behind `place` to before `end`, for about so long.
    /// Whether there may be more.
    pub(crate) fn read_period(
        &self,
        tenant: TenantId,
        place: &mut SpanPlace,
        end: Timestamp,
        slice: Duration,
        take: &mut dyn FnMut(SpanRecord),
    ) -> Result<bool, ReadError> {
        self.ask("read_report_spans", |conn| {
            let until = Instant::now() + slice;
            let Some(tenant_int) = find_tenant(conn, tenant)? else { return Ok(false) };
            let sql = format!(
                "SELECT {SPAN} FROM spans s INDEXED BY spans_by_start {NAMES} \
                 WHERE s.tenant = ?1 AND s.start_us >= ?2 AND s.start_us < ?4 AND (s.start_us, s.id) > (?2, ?3) \
                 ORDER BY s.start_us, s.id"
            );
            let mut reading = Reading::of_all(conn);
            let mut statement = conn.prepare_cached(&sql)?;
            let mut rows = statement.query([tenant_int, place.start_us, place.row, end.micros()])?;
            while let Some(row) = rows.next()? {
                reading.of_tenant(tenant, tenant_int)?;
                let (id, span) = reading.span(row)?;
                *place = SpanPlace { start_us: span.start_time.micros(), row: id };
                take(span);
                if Instant::now() >= until {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }

    pub(crate) fn list_spans(
        &self,
        tenant: TenantId,
        asked: &SpanFilter,
        page: Page,
    ) -> Result<Paged<SpanRecord>, ReadError> {
        self.ask("read_spans", |snapshot| {
            let Some(tenant_int) = find_tenant(snapshot, tenant)? else { return Ok(empty(page)) };
            let mut filter = Filter::of(tenant_int);
            if !filter.and_span(snapshot, asked)? {
                return Ok(empty(page));
            }
            let index = if asked.security_score_min > Some(0) { "spans_scored" } else { "spans_by_start" };
            spans_page(snapshot, tenant, &filter, index, page)
        })
    }

    pub(crate) fn list_findings(&self, tenant: TenantId, page: Page) -> Result<Paged<SpanRecord>, ReadError> {
        self.ask("read_findings", |snapshot| {
            let Some(tenant_int) = find_tenant(snapshot, tenant)? else { return Ok(empty(page)) };
            let mut filter = Filter::of(tenant_int);
            filter.sql.push_str(" AND score > 0");
            spans_page(snapshot, tenant, &filter, "spans_scored", page)
        })
    }

    pub(crate) fn span(&self, tenant: TenantId, span_id: SpanId) -> Result<Option<SpanRecord>, ReadError> {
        let found = self.rows("read_span", tenant, "s.span_id = ?2", span_id.as_bytes())?;
        Ok(found.into_iter().next())
    }

    pub(crate) fn trace(&self, tenant: TenantId, trace_id: TraceId) -> Result<Option<TraceRecord>, ReadError> {
        Ok(TraceRecord::of(self.rows("read_trace", tenant, "s.trace_id = ?2", trace_id.as_bytes())?))
    }

    /// The tenant's rows with this id, in order of arrival.
    fn rows(
        &self,
        operation: &'static str,
        tenant: TenantId,
        condition: &str,
        id: &[u8; 16],
    ) -> Result<Vec<SpanRecord>, ReadError> {
        self.ask(operation, |snapshot| {
            let Some(tenant_int) = find_tenant(snapshot, tenant)? else { return Ok(Vec::new()) };
            let sql = format!("SELECT {SPAN} FROM spans s {NAMES} WHERE s.tenant = ?1 AND {condition}");
            let mut statement = snapshot.prepare_cached(&sql)?;
            let id: &dyn ToSql = &id.as_slice();
            let mut rows = statement.query([&tenant_int as &dyn ToSql, id])?;
            let mut reading = Reading::of(snapshot, tenant, tenant_int)?;
            let mut spans = Vec::new();
            while let Some(row) = rows.next()? {
                spans.push(reading.span(row)?);
            }
            spans.sort_by_key(|(id, _)| *id);
            Ok(spans.into_iter().map(|(_, span)| span).collect())
        })
    }

    pub(crate) fn list_traces(
        &self,
        tenant: TenantId,
        asked: &TraceFilter,
        mut page: Page,
    ) -> Result<Paged<TraceRecord>, ReadError> {
        self.ask("read_traces", |snapshot| {
            let Some(tenant_int) = find_tenant(snapshot, tenant)? else { return Ok(empty(page)) };
            let mut filter = Filter::of(tenant_int);
            let known = filter.and_name(snapshot, "provider = ?", asked.provider.as_ref())?
                & filter.and_name(snapshot, "model = ?", asked.model.as_ref())?;
            if !known {
                return Ok(empty(page));
            }
            let from_us = asked.start_time.map_or(i64::MIN, Timestamp::micros);
            let to_us = asked.end_time.map_or(i64::MAX, |end| end.micros().saturating_add(1));
            let list = List {
                conn: snapshot,
                filter: &filter,
                counted: "traces",
                index: "spans_by_start",
                rows_only: " AND ord = 0",
            };
            let timed = asked.start_time.is_some() || asked.end_time.is_some();
            let total = if timed { list.count(from_us, to_us)? } else { filter.sum(snapshot, "traces")? };
            let ids = list.page(from_us, to_us, page, total)?;
            let data = Reading::of(snapshot, tenant, tenant_int)?.traces(&ids, &mut page)?;
            Ok(Paged { data, total, ..empty(page) })
        })
    }
}

fn spans_page(
    conn: &Snapshot<'_>,
    tenant: TenantId,
    filter: &Filter,
    index: &'static str,
    mut page: Page,
) -> Result<Paged<SpanRecord>, Stop> {
    let total = filter.sum(conn, "spans")?;
    let list = List { conn, filter, counted: "spans", index, rows_only: "" };
    let ids = list.page(i64::MIN, i64::MAX, page, total)?;
    let data = Reading::of(conn, tenant, filter.tenant)?.page(&ids, &mut page)?;
    Ok(Paged { data, total, ..empty(page) })
}
