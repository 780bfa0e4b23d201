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
use super::walk::{Walk, Walked};
use super::{action_sums, actions, facets, late, lone, texts};
use crate::encode::{self, Columns};
use crate::error::ReadError;
use crate::error::WriteError;
pub(crate) use crate::query::ANSWER_BYTES_MAX;
use crate::query::{Facets, Page, Paged, Place, SpanFilter, TraceFilter};
use crate::queue::weigh;
use crate::record::{RECORD_DAMAGED, SpanRecord, TraceRecord};
use crate::reports::SpanPlace;

/// Bytes of one record that is read for a report, of which one is built at a time.
const REPORTED_BYTES_MAX: usize = 4 * ANSWER_BYTES_MAX;

/// Ids that are looked through before others may go first.
const IDS_TOGETHER: u32 = 4_096;

/// The columns [`Reading::span`] expects, of the row `s`.
pub(super) const SPAN: &str =
    "s.id, s.trace_id, s.span_id, s.start_us, p.text, m.text, o.text, s.score, s.body, n.name, c.text";
pub(super) const NAMES: &str = "LEFT JOIN names p ON p.id = s.provider LEFT JOIN names m ON m.id = s.model \
    LEFT JOIN names o ON o.id = s.operation LEFT JOIN sessions n ON n.id = s.session LEFT JOIN names c ON c.id = s.client";

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
            & self.and_name(conn, "provider = ?", asked.provider.as_ref())?
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
    /// Some span has findings that were made after it was stored.
    has_late: bool,
    /// The tenant's integer, where rows of all tenants are read.
    of: Option<i64>,
    pub(super) bytes: usize,
    bytes_max: usize,
    /// Whether the texts are wanted, too.
    pub(super) texts: bool,
}

impl<'a> Reading<'a> {
    pub(super) fn of(conn: &'a Snapshot<'_>, tenant: TenantId, tenant_int: i64) -> rusqlite::Result<Self> {
        let (has_actions, has_late) = (action_sums::any(conn, tenant_int)?, late::any(conn)?);
        let (of, bytes_max) = (Some(tenant_int), ANSWER_BYTES_MAX);
        Ok(Self { conn, tenant, has_actions, has_late, of, bytes: 0, bytes_max, texts: true })
    }

    /// For rows of any tenant, each weighed alone; see [`Reading::of_tenant`].
    pub(super) fn of_all(conn: &'a Snapshot<'_>) -> Self {
        let (bytes_max, texts) = (REPORTED_BYTES_MAX, true);
        let (has_actions, has_late) = (false, false);
        Self { conn, tenant: TenantId::DEFAULT, has_actions, has_late, of: None, bytes: 0, bytes_max, texts }
    }

    /// The next row is this tenant's.
    pub(super) fn of_tenant(&mut self, tenant: TenantId, tenant_int: i64) -> rusqlite::Result<()> {
        self.bytes = 0;
        if self.of != Some(tenant_int) {
            self.has_actions = action_sums::any(self.conn, tenant_int)?;
            self.has_late = late::any(self.conn)?;
            (self.tenant, self.of) = (tenant, Some(tenant_int));
        }
        Ok(())
    }

    /// The record and its row number.
    pub(super) fn span(&mut self, row: &Row<'_>) -> Result<(i64, SpanRecord), Stop> {
        let id: i64 = row.get(0)?;
        let damaged = || Stop::Refused(ReadError::Damaged { row: id });
        let span_id = SpanId::from_bytes(row.get(2)?);
        let columns = || -> Result<Columns, Stop> {
            Ok(Columns {
                trace_id: lone::trace_of(row.get_ref(1)?, span_id)?,
                span_id,
                tenant_id: self.tenant,
                start_time: Timestamp::from_micros(row.get(3)?),
                provider: row.get::<_, Option<String>>(4)?.ok_or_else(damaged)?,
                model: row.get(5)?,
                operation: row.get::<_, Option<String>>(6)?.ok_or_else(damaged)?,
                score: row.get(7)?,
                session: row.get(9)?,
                client: row.get(10)?,
            })
        };
        let body = row.get_ref(8)?.as_blob().map_err(|_| damaged())?;
        // One record that cannot be read must not take the others of its list with it.
        let Ok((mut span, layout)) = encode::decode(columns()?, body) else {
            self.conn.damage.note(id);
            tracing::error!(
                row = id,
                "a record is damaged and shown without what cannot be read; `weir db check` names all of them"
            );
            return Ok((id, encode::unreadable(columns()?)));
        };
        self.charge(weigh(&span))?;
        if self.texts {
            match texts::fill(self.conn, id, layout, &mut span, &mut |bytes| self.charge(bytes)) {
                Err(Stop::Refused(ReadError::Damaged { row })) => {
                    self.conn.damage.note(row);
                    tracing::error!(
                        row,
                        "texts of a record are damaged and left out; `weir db check` names all of them"
                    );
                    span.remove_texts();
                    span.tags.insert(RECORD_DAMAGED.0.into(), RECORD_DAMAGED.1.to_owned());
                }
                filled => filled?,
            }
        } else {
            // Rows of a version before have them in the body.
            (span.prompt, span.response) = (None, None);
        }
        if self.has_actions {
            actions::join(self.conn, id, &mut span, |bytes| self.charge(bytes))?;
        }
        if self.has_late {
            late::join(self.conn, id, &mut span, |bytes| self.charge(bytes))?;
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
    fn page(&mut self, ids: &[(i64, i64)], page: &mut Page) -> Result<Vec<SpanRecord>, Stop> {
        let mut statement = self.conn.prepare_cached(&format!("SELECT {SPAN} FROM spans s {NAMES} WHERE s.id = ?1"))?;
        let mut spans = Vec::with_capacity(ids.len());
        for (id, _) in ids {
            if self.bytes >= page.enough_bytes {
                break;
            }
            let mut rows = statement.query([id])?;
            if let Some(row) = rows.next()? {
                let Some((_, span)) = unless_full(self.span(row), spans.len(), page)? else { break };
                spans.push(span);
            }
        }
        Ok(spans)
    }

    /// The traces whose first spans are these rows, in this order.
    fn traces(&mut self, ids: &[(i64, i64)], page: &mut Page) -> Result<Vec<TraceRecord>, Stop> {
        let sql = format!(
            "SELECT {SPAN} FROM spans h CROSS JOIN spans s INDEXED BY spans_by_trace \
             ON s.tenant = h.tenant AND s.trace_id = h.trace_id AND s.trace_id <> x'' {NAMES} WHERE h.id = ?1 \
             UNION ALL SELECT {SPAN} FROM spans s {NAMES} WHERE s.id = ?1 AND s.trace_id = x''"
        );
        let mut statement = self.conn.prepare_cached(&sql)?;
        let mut traces = Vec::with_capacity(ids.len());
        for (id, _) in ids {
            if self.bytes >= page.enough_bytes {
                break;
            }
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

/// What a body says of a span that began at `start`, without its columns and texts; `None` when it is damaged.
pub(super) fn record_of(start: Timestamp, body: &[u8]) -> Option<SpanRecord> {
    let columns = Columns { start_time: start, ..Columns::unknown() };
    encode::decode(columns, body).ok().map(|(span, _)| span)
}

/// A number of rows, which SQLite keeps signed.
fn count(row: &Row<'_>) -> rusqlite::Result<u64> {
    row.get::<_, i64>(0).map(|count| count.max(0).cast_unsigned())
}

fn empty<T>(page: Page) -> Paged<T> {
    Paged::new(Vec::new(), 0, page)
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
                *place = SpanPlace { start_us: span.start_time.micros(), row: id, span: None };
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
            let scored = asked.security_score_min > Some(0);
            let range = range(asked.start_time, asked.end_time);
            let question = Question { tenant, filter: &filter, facets: &asked.facets, scored, range, traces: false };
            question.spans(snapshot, page)
        })
    }

    pub(crate) fn list_findings(&self, tenant: TenantId, page: Page) -> Result<Paged<SpanRecord>, ReadError> {
        self.ask("read_findings", |snapshot| {
            let Some(tenant_int) = find_tenant(snapshot, tenant)? else { return Ok(empty(page)) };
            let mut filter = Filter::of(tenant_int);
            filter.sql.push_str(" AND score > 0");
            let (facets, range) = (&Facets::default(), range(None, None));
            let question = Question { tenant, filter: &filter, facets, scored: true, range, traces: false };
            question.spans(snapshot, page)
        })
    }

    pub(crate) fn span(&self, tenant: TenantId, span_id: SpanId) -> Result<Option<SpanRecord>, ReadError> {
        let found = self.rows("read_span", tenant, "s.tenant = ?1 AND s.span_id = ?2", span_id.as_bytes(), 0)?;
        Ok(found.into_iter().next())
    }

    pub(crate) fn span_by_w3c(&self, tenant: TenantId, id: [u8; 8]) -> Result<Option<SpanRecord>, ReadError> {
        self.id_by_w3c(tenant, id)?.map_or(Ok(None), |id| self.span(tenant, id))
    }

    /// The id of the tenant's newest span that other systems know by these 8 bytes. There is no index of them: the ids are looked
    /// through, for as long as a read may take.
    pub(crate) fn id_by_w3c(&self, tenant: TenantId, id: [u8; 8]) -> Result<Option<SpanId>, ReadError> {
        self.ask("read_span_ids", |snapshot| {
            let Some(tenant_int) = find_tenant(snapshot, tenant)? else { return Ok(None) };
            let own = SpanId::from_w3c(id);
            let sql = "SELECT 1 FROM spans INDEXED BY spans_by_span WHERE tenant = ?1 AND span_id = ?2";
            if snapshot.prepare_cached(sql)?.exists((tenant_int, own.as_bytes().as_slice()))? {
                return Ok(Some(own));
            }
            // Our own ids grow with time.
            let sql = "SELECT span_id FROM spans INDEXED BY spans_by_span WHERE tenant = ?1 ORDER BY span_id DESC";
            let mut statement = snapshot.prepare_cached(sql)?;
            let mut rows = statement.query([tenant_int])?;
            let mut looked_at = 0_u32;
            while let Some(row) = rows.next()? {
                let found = SpanId::from_bytes(row.get(0)?);
                if found.to_w3c() == id {
                    return Ok(Some(found));
                }
                looked_at = looked_at.wrapping_add(1);
                if looked_at.is_multiple_of(IDS_TOGETHER) {
                    snapshot.pause();
                }
            }
            Ok(None)
        })
    }

    pub(crate) fn trace(&self, tenant: TenantId, trace_id: TraceId) -> Result<Option<TraceRecord>, ReadError> {
        Ok(TraceRecord::of(self.rows(
            "read_trace",
            tenant,
            &format!("s.id IN ({})", lone::OF_TRACE),
            trace_id.as_bytes(),
            0,
        )?))
    }

    /// A span that lies behind the row `floor`.
    pub(crate) fn span_behind(
        &self,
        tenant: TenantId,
        id: SpanId,
        floor: i64,
    ) -> Result<Option<SpanRecord>, ReadError> {
        let found = self.rows("read_span", tenant, "s.tenant = ?1 AND s.span_id = ?2", id.as_bytes(), floor)?;
        Ok(found.into_iter().next())
    }

    /// Those of a trace's spans that lie behind the row `floor`, in order of arrival.
    pub(crate) fn trace_behind(&self, tenant: TenantId, id: TraceId, floor: i64) -> Result<Vec<SpanRecord>, ReadError> {
        self.rows("read_trace", tenant, &format!("s.id IN ({})", lone::OF_TRACE), id.as_bytes(), floor)
    }

    /// The tenant's rows with this id that lie behind the row `floor`, in order of arrival.
    fn rows(
        &self,
        operation: &'static str,
        tenant: TenantId,
        condition: &str,
        id: &[u8; 16],
        floor: i64,
    ) -> Result<Vec<SpanRecord>, ReadError> {
        self.ask(operation, |snapshot| {
            let Some(tenant_int) = find_tenant(snapshot, tenant)? else { return Ok(Vec::new()) };
            let sql = format!("SELECT {SPAN} FROM spans s {NAMES} WHERE {condition}");
            let mut statement = snapshot.prepare_cached(&sql)?;
            let id: &dyn ToSql = &id.as_slice();
            let mut rows = statement.query([&tenant_int as &dyn ToSql, id])?;
            let mut reading = Reading::of(snapshot, tenant, tenant_int)?;
            let mut spans = Vec::new();
            while let Some(row) = rows.next()? {
                spans.push(reading.span(row)?);
            }
            spans.retain(|(id, _)| *id > floor);
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
            let range = range(asked.start_time, asked.end_time);
            let question =
                Question { tenant, filter: &filter, facets: &asked.facets, scored: false, range, traces: true };
            question.traces(snapshot, &mut page)
        })
    }
}

/// Microseconds from and to, half open.
fn range(start: Option<Timestamp>, end: Option<Timestamp>) -> (i64, i64) {
    (start.map_or(i64::MIN, Timestamp::micros), end.map_or(i64::MAX, |end| end.micros().saturating_add(1)))
}

/// A list that is asked for.
struct Question<'a> {
    tenant: TenantId,
    filter: &'a Filter,
    facets: &'a Facets,
    /// The filter demands a score above 0.
    scored: bool,
    /// Half open.
    range: (i64, i64),
    traces: bool,
}

/// The rows of a page by number and start, and how what comes behind them is found.
enum Rows {
    /// From the sums: how many there are in all.
    Summed(Vec<(i64, i64)>, u64),
    Walked(Walked),
}

impl Rows {
    fn rows(&self) -> &[(i64, i64)] {
        match self {
            Self::Summed(rows, _) => rows,
            Self::Walked(walked) => &walked.rows,
        }
    }

    /// The envelope of a page that shows the first `shown` of them.
    fn answer<T>(&self, data: Vec<T>, shown: usize, page: Page) -> Paged<T> {
        let mut answer = Paged::new(data, 0, page);
        match self {
            Self::Walked(walked) => (answer.total, answer.total_is_exact, answer.next) = walked.ends(&page, shown),
            Self::Summed(rows, total) => {
                answer.total = *total;
                let passed = page.offset + shown as u64;
                let last = rows.get(shown.wrapping_sub(1)).filter(|_| passed < *total);
                let place = |(row, start_us): &(i64, i64)| Place {
                    span: None,
                    start_us: *start_us,
                    row: *row,
                    passed,
                    skip: 0,
                    total: *total,
                    total_is_exact: true,
                };
                answer.next = last.map(place);
            }
        }
        // What a page before has passed is behind this one.
        answer.offset = page.after.map_or(page.offset, |after| after.passed + after.skip);
        answer
    }
}

impl Question<'_> {
    fn rows(&self, conn: &Snapshot<'_>, page: Page) -> Result<Rows, Stop> {
        let ((from_us, to_us), traces) = (self.range, self.traces);
        let rows_only = if traces { " AND ord = 0" } else { "" };
        if page.after.is_some() || *self.facets != Facets::default() {
            let found = facets::conditions(conn, self.filter.tenant, self.facets, self.scored)?;
            let Some((lead, conditions)) = &found else { return Ok(Rows::Summed(Vec::new(), 0)) };
            let walk = Walk { conn, filter: self.filter, lead: *lead, conditions, rows_only, from_us, to_us };
            return Ok(Rows::Walked(walk.page(&page)?));
        }
        let index = if self.scored { "spans_scored" } else { "spans_by_start" };
        let counted = if traces { "traces" } else { "spans" };
        let list = List { conn, filter: self.filter, counted, index, rows_only };
        let timed = self.range != (i64::MIN, i64::MAX);
        let total = if timed { list.count(from_us, to_us)? } else { self.filter.sum(conn, counted)? };
        Ok(Rows::Summed(list.page(from_us, to_us, page, total)?, total))
    }

    fn reading<'a>(&self, conn: &'a Snapshot<'_>, page: &Page) -> Result<Reading<'a>, Stop> {
        let mut reading = Reading::of(conn, self.tenant, self.filter.tenant)?;
        reading.texts = page.texts;
        Ok(reading)
    }

    fn spans(&self, conn: &Snapshot<'_>, mut page: Page) -> Result<Paged<SpanRecord>, Stop> {
        let rows = self.rows(conn, page)?;
        let mut data = self.reading(conn, &page)?.page(rows.rows(), &mut page)?;
        let shown = data.len();
        if facets::is_loose(self.facets) {
            data.retain(|span| facets::fits(self.facets, span));
        }
        Ok(rows.answer(data, shown, page))
    }

    fn traces(&self, conn: &Snapshot<'_>, page: &mut Page) -> Result<Paged<TraceRecord>, Stop> {
        let rows = self.rows(conn, *page)?;
        let mut data = self.reading(conn, page)?.traces(rows.rows(), page)?;
        let shown = data.len();
        if facets::is_loose(self.facets) {
            data.retain(|trace| trace.spans.first().is_some_and(|span| facets::fits(self.facets, span)));
        }
        Ok(rows.answer(data, shown, *page))
    }
}
