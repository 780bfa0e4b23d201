//! Questions for the analytics store. Every one names its tenant, and leaves out what was deleted or is past its age.
//!
//! Lists and sums look in the narrow table; whole spans are read from the wide one, for the page that is shown.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use uuid::Uuid;
use weir_config::vocab::{SpanId, TenantId, Timestamp, TraceId};

use super::analytics::{Analytics, Params};
use super::wide::{self, Mark, Wide};
use crate::actions::{ActionsSummary, TOP_ACTIONS_MAX, TopAction};
use crate::error::ReadError;
use crate::query::{Facets, Page, Paged, Place, SpanFilter, TraceFilter};
use crate::record::{SpanRecord, TraceRecord};
use crate::reports::SpanPlace;
use crate::stats::Stats;
use crate::usage::{CacheMiss, PromptSums, Series, SeriesPoint, SeriesQuery, SessionFilter, SessionRecord, Split};

/// Spans of one trace that are read.
const TRACE_SPANS_MAX: u32 = 10_000;
/// Spans that one question for whole ones names: a statement has a length, too.
const KEYS_MAX: usize = 1_000;
const NANO: f64 = 1e9;
const HOUR_US: i64 = 3_600_000_000;

/// Conditions with their values.
pub(super) struct Asked {
    conditions: String,
    params: Params,
}

/// Whose records, and from which start on they are shown.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scope {
    pub(super) tenant: TenantId,
    pub(super) from_us: i64,
}

fn uuid(id: &[u8; 16]) -> Uuid {
    Uuid::from_bytes(*id)
}

impl Asked {
    fn of(scope: Scope) -> Self {
        let mut params = Params::default().with("tenant", uuid(scope.tenant.as_bytes()));
        let mut conditions = "tenant_id = {tenant:UUID}".to_owned();
        if scope.from_us > i64::MIN {
            params.put("from", &scope.from_us.to_string());
            conditions.push_str(" AND start_us >= {from:Int64}");
        }
        Self { conditions, params }
    }

    /// A condition with its value, which stands in it as `{name:Type}`.
    fn and(&mut self, condition: &str, name: &str, value: Option<impl ToString>) {
        let Some(value) = value else { return };
        self.params.put(name, &value.to_string());
        self.conditions.push_str(" AND ");
        self.conditions.push_str(condition);
    }

    fn times(&mut self, start: Option<Timestamp>, end: Option<Timestamp>) {
        self.and("start_us >= {start:Int64}", "start", start.map(Timestamp::micros));
        self.and("start_us <= {end:Int64}", "end", end.map(Timestamp::micros));
    }

    fn facets(&mut self, asked: &Facets) {
        let (status_min, status_max) = asked.status.unzip();
        self.and("status >= {status_min:UInt16}", "status_min", status_min);
        self.and("status <= {status_max:UInt16}", "status_max", status_max);
        self.and("error_type = {error_type:String}", "error_type", asked.error_type.as_ref());
        self.and("agent_id = {agent:String}", "agent", asked.agent_id.as_ref());
        self.and("session_id = {session:String}", "session", asked.session_id.as_ref());
        self.and("client = {client:String}", "client", asked.client.as_ref());
        self.and("upstream = {upstream:String}", "upstream", asked.upstream.as_ref());
        self.and("has(finding_types, {finding:String})", "finding", asked.finding_type.as_ref());
        self.and("cost_nano_usd >= {cost_min:Int64}", "cost_min", asked.cost_min_nano_usd);
        self.and("cost_nano_usd <= {cost_max:Int64}", "cost_max", asked.cost_max_nano_usd);
        self.and("duration_us >= {duration_min:Int64}", "duration_min", asked.duration_min_us);
        self.and("duration_us <= {duration_max:Int64}", "duration_max", asked.duration_max_us);
        self.and("streaming = {streaming:UInt8}", "streaming", asked.streaming.map(u8::from));
    }

    fn span(&mut self, asked: &SpanFilter) {
        self.times(asked.start_time, asked.end_time);
        self.and("provider = {provider:String}", "provider", asked.provider.as_ref());
        self.and("model = {model:String}", "model", asked.model.as_ref());
        self.and("operation = {operation:String}", "operation", asked.operation_name.as_ref());
        self.and("score >= {score_min:UInt8}", "score_min", asked.security_score_min);
        self.and("score <= {score_max:UInt8}", "score_max", asked.security_score_max);
        self.facets(&asked.facets);
    }
}

#[derive(Deserialize)]
struct Id {
    id: Uuid,
    start_us: i64,
    seq: u64,
}

impl Id {
    fn key(&self) -> Key {
        Key { start_us: self.start_us, id: self.id }
    }
}

/// A trace by its first span.
#[derive(Deserialize)]
struct Head {
    id: Uuid,
    start_us: i64,
    seq: u64,
    first: Uuid,
}

/// Whether a piece goes on with a list whose length nobody asks for again.
fn goes_on(page: Page) -> bool {
    page.whole && page.after.is_some()
}

/// Whether there may be more behind a page of so many. Of a list that is taken to its end, a full piece says it and no sum: what is
/// deleted meanwhile must not end it early.
fn may_go_on(page: Page, shown: usize, is_behind: bool) -> bool {
    if page.whole { shown >= page.limit as usize } else { is_behind && shown > 0 }
}

/// Rows further back than a place: by start, number and span. Two gateways may have given two spans of one microsecond the same number,
/// so a place without the span, as cursors of an earlier version have it, may pass over one of them.
fn before(place: Place, [start, number, span]: [&str; 3], params: &mut Params) -> String {
    params.put("after_us", &place.start_us.to_string());
    params.put("after_seq", &place.row.cast_unsigned().to_string());
    match place.span {
        None => format!("({start}, {number}) < ({{after_us:Int64}}, {{after_seq:UInt64}})"),
        Some(id) => {
            params.put("after_span", &uuid(id.as_bytes()).to_string());
            format!("({start}, {number}, {span}) < ({{after_us:Int64}}, {{after_seq:UInt64}}, {{after_span:UUID}})")
        }
    }
}

/// Where a span lies.
#[derive(Deserialize)]
struct Key {
    start_us: i64,
    id: Uuid,
}

#[derive(Deserialize)]
struct Total {
    total: u64,
}

/// How many points each bucket of so many shows so that all together fit: the highest level at which what sticks out is cut, and the
/// last of the earlier buckets that have one more each.
fn shared_out(buckets: &[u64], room: u64) -> (u64, Option<usize>) {
    let total = |level: u64| buckets.iter().map(|points| (*points).min(level)).sum::<u64>();
    if total(u64::MAX) <= room {
        return (buckets.iter().copied().max().unwrap_or(0), None);
    }
    let (mut fits, mut exceeds) = (0, room.saturating_add(1));
    while exceeds - fits > 1 {
        let middle = fits.midpoint(exceeds);
        *(if total(middle) <= room { &mut fits } else { &mut exceeds }) = middle;
    }
    let spare = usize::try_from(room - total(fits)).unwrap_or(usize::MAX);
    let longer = buckets.iter().enumerate().filter(|(_, points)| **points > fits).map(|(at, _)| at);
    (fits, longer.take(spare).last())
}

/// Spans with the order in which they came.
pub(super) type Marked = (SpanRecord, Mark);

impl Analytics {
    fn total(&self, from: &str, asked: &Asked) -> Result<u64, ReadError> {
        let rows: Vec<Total> = self.ask(&format!("SELECT count() AS total FROM {from}"), &asked.params)?;
        Ok(rows.first().map_or(0, |row| row.total))
    }

    /// Where the spans of a condition lie that no version of a span changes the answer to. The narrow table says it, by the indexes that
    /// it has of traces and spans; what it does not have yet is in the journal.
    fn keys(&self, scope: Scope, condition: &str, params: &Params) -> Result<Vec<Key>, ReadError> {
        let asked = Asked::of(scope);
        let mut all = params.clone();
        all.append(&asked.params);
        let question = format!(
            "SELECT DISTINCT start_us, span_id AS id FROM weir_calls WHERE {} AND {condition} ORDER BY start_us LIMIT {TRACE_SPANS_MAX}",
            asked.conditions
        );
        self.ask(&question, &all)
    }

    /// Whole spans by where they lie, in order of start and arrival. What bounds them goes before the choice of the latest version and
    /// before the texts are read.
    fn whole(&self, scope: Scope, keys: &[Key], texts: bool) -> Result<Vec<Marked>, ReadError> {
        let asked = Asked::of(scope);
        let columns = if texts { wide::COLUMNS } else { wide::COLUMNS_BARE };
        let mut spans: Vec<Marked> = Vec::with_capacity(keys.len());
        for keys in keys.chunks(KEYS_MAX) {
            // Numbers and ids that are our own: they may stand in the statement, which is longer than an address may be.
            let starts = keys.iter().map(|key| key.start_us.to_string()).collect::<Vec<_>>().join(",");
            let ids = keys.iter().map(|key| format!("'{}'", key.id)).collect::<Vec<_>>().join(",");
            let question = format!(
                "SELECT {columns} FROM weir_spans FINAL PREWHERE {} AND start_us IN ({starts}) AND span_id IN ({ids}) \
                 SETTINGS do_not_merge_across_partitions_select_final = 1",
                asked.conditions
            );
            for row in self.ask::<Wide>(&question, &asked.params)? {
                spans.push(row.span().ok_or(ReadError::Damaged { row: 0 })?);
            }
        }
        spans.sort_by_key(|(span, mark)| (span.start_time, mark.seq));
        Ok(spans)
    }

    pub(super) fn span(&self, scope: Scope, id: SpanId) -> Result<Option<Marked>, ReadError> {
        let params = Params::default().with("id", uuid(id.as_bytes()));
        let keys = self.keys(scope, "span_id = {id:UUID}", &params)?;
        Ok(self.whole(scope, &keys, true)?.into_iter().next())
    }

    /// The newest span that other systems know by these 8 bytes.
    pub(super) fn span_by_w3c(&self, scope: Scope, id: [u8; 8]) -> Result<Option<Marked>, ReadError> {
        // As a UUID is written: its low half is its last two groups.
        let text = SpanId::from_w3c(id).to_string();
        let params = Params::default().with("low", text.get(19..).unwrap_or_default());
        let keys = self.keys(scope, "endsWith(toString(span_id), {low:String})", &params)?;
        Ok(self.whole(scope, keys.last().map_or(&[], std::slice::from_ref), true)?.pop())
    }

    /// The spans of a trace, in order of start and arrival.
    pub(super) fn spans_of_trace(&self, scope: Scope, id: TraceId) -> Result<Vec<Marked>, ReadError> {
        let params = Params::default().with("id", uuid(id.as_bytes()));
        let keys = self.keys(scope, "trace_id = {id:UUID}", &params)?;
        self.whole(scope, &keys, true)
    }

    fn page_of(&self, scope: Scope, asked: &Asked, page: Page) -> Result<Paged<SpanRecord>, ReadError> {
        let total = match goes_on(page) {
            false => self.total(&format!("weir_calls FINAL WHERE {}", asked.conditions), asked)?,
            true => 0,
        };
        let mut params = asked.params.clone();
        let mut conditions = asked.conditions.clone();
        let passed = page.after.map_or(page.offset, |after| after.passed);
        if let Some(after) = page.after {
            conditions.push_str(" AND ");
            conditions.push_str(&before(after, ["start_us", "seq", "span_id"], &mut params));
        }
        let offset = page.after.map_or(page.offset, |after| after.skip);
        let question = format!(
            "SELECT span_id AS id, start_us, seq FROM weir_calls FINAL WHERE {conditions} ORDER BY start_us DESC, seq DESC, span_id DESC \
             LIMIT {} OFFSET {offset} SETTINGS do_not_merge_across_partitions_select_final = 1",
            page.limit
        );
        let ids: Vec<Id> = self.ask(&question, &params)?;
        let Some(oldest) = ids.last() else {
            return Ok(Paged { offset: passed, ..Paged::new(Vec::new(), total, page) });
        };
        let mut found: HashMap<Uuid, SpanRecord> = self
            .whole(scope, &ids.iter().map(Id::key).collect::<Vec<_>>(), page.texts)?
            .into_iter()
            .map(|(span, _)| (uuid(span.span_id.as_bytes()), span))
            .collect();
        let data: Vec<SpanRecord> = ids.iter().filter_map(|id| found.remove(&id.id)).collect();
        let passed_now = passed + ids.len() as u64;
        let next = may_go_on(page, ids.len(), passed_now < total).then(|| Place {
            start_us: oldest.start_us,
            row: oldest.seq.cast_signed(),
            span: Some(SpanId::from_uuid(oldest.id)),
            passed: passed_now,
            skip: 0,
            total,
            total_is_exact: true,
        });
        Ok(Paged { next, offset: passed, ..Paged::new(data, total, page) })
    }

    pub(super) fn list_spans(
        &self,
        scope: Scope,
        asked: &SpanFilter,
        page: Page,
    ) -> Result<Paged<SpanRecord>, ReadError> {
        let mut conditions = Asked::of(scope);
        conditions.span(asked);
        self.page_of(scope, &conditions, page)
    }

    pub(super) fn list_findings(&self, scope: Scope, page: Page) -> Result<Paged<SpanRecord>, ReadError> {
        let mut conditions = Asked::of(scope);
        conditions.conditions.push_str(" AND score > 0");
        self.page_of(scope, &conditions, page)
    }

    pub(super) fn list_traces(
        &self,
        scope: Scope,
        asked: &TraceFilter,
        page: Page,
    ) -> Result<Paged<TraceRecord>, ReadError> {
        // A trace is what its first span is, so that one has to fit: all of a trace's spans are looked at, and of each the first.
        let mut first = Asked { conditions: "1".to_owned(), params: Asked::of(scope).params };
        first.times(asked.start_time, asked.end_time);
        first.and("provider = {provider:String}", "provider", asked.provider.as_ref());
        first.and("model = {model:String}", "model", asked.model.as_ref());
        first.facets(&asked.facets);
        let fits = match first.conditions.as_str() {
            "1" => String::new(),
            conditions => format!(" HAVING argMin(toUInt8(ifNull({conditions}, 0)), (start_us, seq, span_id)) = 1"),
        };
        let heads = format!(
            "(SELECT trace_id AS id, min((start_us, seq, span_id)) AS head FROM weir_calls FINAL WHERE {} GROUP BY trace_id{fits})",
            Asked::of(scope).conditions
        );
        let total = if goes_on(page) { 0 } else { self.total(&heads, &first)? };
        let mut params = first.params.clone();
        let passed = page.after.map_or(page.offset, |after| after.passed);
        let after =
            page.after.map(|place| format!(" WHERE {}", before(place, ["head.1", "head.2", "head.3"], &mut params)));
        let after = after.unwrap_or_default();
        let offset = page.after.map_or(page.offset, |after| after.skip);
        let question = format!(
            "SELECT id, head.1 AS start_us, head.2 AS seq, head.3 AS first FROM {heads}{after} ORDER BY head DESC LIMIT {} OFFSET {offset}",
            page.limit
        );
        let ids: Vec<Head> = self.ask(&question, &params)?;
        let list = ids.iter().map(|id| format!("'{}'", id.id)).collect::<Vec<_>>().join(",");
        let mut spans: HashMap<Uuid, Vec<SpanRecord>> = HashMap::new();
        if !ids.is_empty() {
            let keys = self.keys(scope, &format!("trace_id IN ({list})"), &Params::default())?;
            for (span, _) in self.whole(scope, &keys, page.texts)? {
                spans.entry(uuid(span.trace_id.as_bytes())).or_default().push(span);
            }
        }
        let data: Vec<TraceRecord> =
            ids.iter().filter_map(|id| TraceRecord::of(spans.remove(&id.id).unwrap_or_default())).collect();
        let passed_now = passed + ids.len() as u64;
        let goes_on = may_go_on(page, ids.len(), passed_now < total);
        let next = ids.last().filter(|_| goes_on).map(|last| Place {
            start_us: last.start_us,
            row: last.seq.cast_signed(),
            span: Some(SpanId::from_uuid(last.first)),
            passed: passed_now,
            skip: 0,
            total,
            total_is_exact: true,
        });
        Ok(Paged { next, offset: passed, ..Paged::new(data, total, page) })
    }

    pub(super) fn list_sessions(
        &self,
        scope: Scope,
        asked: &SessionFilter,
        page: Page,
    ) -> Result<Paged<SessionRecord>, ReadError> {
        #[derive(Deserialize)]
        struct Row {
            session_id: String,
            agent_id: Option<String>,
            client: Option<String>,
            model: Option<String>,
            first_us: i64,
            last_us: i64,
            calls: u64,
            failed: u64,
            tokens: u64,
            cost: i64,
            score: Option<u8>,
            broken: u64,
            unused: u64,
            lost: u64,
            lost_nano: i64,
            compared: u64,
            cached: u64,
        }
        let mut matching = Asked::of(scope);
        matching.times(asked.start_time, asked.end_time);
        matching.and("agent_id = {agent:String}", "agent", asked.agent_id.as_ref());
        matching.and("client = {client:String}", "client", asked.client.as_ref());
        let whole = Asked::of(scope);
        let named =
            format!("SELECT session_id FROM weir_calls FINAL WHERE {} AND session_id IS NOT NULL", matching.conditions);
        let fault = match asked.prompt_cache {
            None => "",
            Some(CacheMiss::Broken) => " HAVING sum(c.prompt_broken) > 0",
            Some(CacheMiss::Unused) => " HAVING sum(c.prompt_unused) > 0",
        };
        let sessions = format!(
            "(SELECT * FROM weir_calls FINAL WHERE {}) AS c WHERE c.session_id IN ({named}) GROUP BY c.session_id{fault}",
            whole.conditions
        );
        let total = self.total(&format!("(SELECT c.session_id FROM {sessions})"), &matching)?;
        let skipped = page.after.map_or(page.offset, |after| after.passed);
        let question = format!(
            "SELECT assumeNotNull(c.session_id) AS session_id, \
             tupleElement(argMax(tuple(c.agent_id), (c.start_us, c.seq)), 1) AS agent_id, tupleElement(argMax(tuple(c.client), (c.start_us, c.seq)), 1) AS client, \
             tupleElement(argMax(tuple(c.model), (c.start_us, c.seq)), 1) AS model, min(start_us) AS first_us, max(start_us) AS last_us, count() AS calls, \
             countIf(status >= 400 OR error_type IS NOT NULL) AS failed, sum(total_tokens) AS tokens, \
             toInt64(sum(ifNull(cost_nano_usd, 0))) AS cost, max(c.score) AS score, min(c.seq) AS arrived, \
             toUInt64(sum(c.prompt_broken)) AS broken, toUInt64(sum(c.prompt_unused)) AS unused, sum(c.lost_tokens) AS lost, \
             sum(c.lost_nano_usd) AS lost_nano, sum(c.compared_tokens) AS compared, sum(c.compared_cached_tokens) AS cached \
             FROM {sessions} ORDER BY first_us DESC, arrived DESC, session_id DESC LIMIT {} OFFSET {skipped}",
            page.limit
        );
        let rows: Vec<Row> = self.ask(&question, &matching.params)?;
        let data: Vec<SessionRecord> = rows
            .into_iter()
            .map(|row| SessionRecord {
                session_id: row.session_id,
                agent_id: row.agent_id,
                client: row.client,
                model: row.model,
                first_call_at: Some(Timestamp::from_micros(row.first_us)),
                last_call_at: Some(Timestamp::from_micros(row.last_us)),
                calls: row.calls,
                failed_calls: row.failed,
                total_tokens: row.tokens,
                total_cost_usd: row.cost as f64 / NANO,
                security_score: row.score,
                prompt_cache: PromptSums {
                    broken_calls: row.broken,
                    unused_calls: row.unused,
                    lost_tokens: row.lost,
                    lost_usd: row.lost_nano as f64 / NANO,
                    prompt_tokens: row.compared,
                    cached_tokens: row.cached,
                },
            })
            .collect();
        let passed = skipped + data.len() as u64;
        let next = (passed < total && !data.is_empty()).then_some(Place {
            start_us: 0,
            row: 0,
            span: None,
            passed,
            skip: 0,
            total,
            total_is_exact: true,
        });
        Ok(Paged { next, offset: skipped, ..Paged::new(data, total, page) })
    }

    /// As the other profiles answer: whole hours, the costliest of a bucket first, and the room shared out between the buckets.
    pub(super) fn series(&self, scope: Scope, asked: &SeriesQuery) -> Result<Series, ReadError> {
        #[derive(Deserialize)]
        struct Row {
            bucket: i64,
            name: Option<String>,
            is_shown: u8,
            calls: u64,
            failed: u64,
            tokens: u64,
            cost: i64,
        }
        #[derive(Deserialize)]
        struct Bucket {
            bucket: i64,
            points: u64,
        }
        let bucket_us = i64::from(asked.bucket_hours.max(1)) * HOUR_US;
        let start_us = asked.start.micros().div_euclid(bucket_us) * bucket_us;
        let last_us = asked.end.micros().saturating_sub(1).div_euclid(HOUR_US) * HOUR_US;
        let mut conditions = Asked::of(scope);
        conditions.and("start_us >= {start:Int64}", "start", Some(start_us));
        conditions.and("start_us < {end:Int64}", "end", Some(last_us.saturating_add(HOUR_US)));
        conditions.and("agent_id = {agent:String}", "agent", asked.agent_id.as_ref());
        conditions.and("session_id = {session:String}", "session", asked.session_id.as_ref());
        conditions.and("model = {model:String}", "model", asked.model.as_ref());
        let name = match asked.split {
            Split::Tenant => "CAST(NULL AS Nullable(String))",
            Split::Agent => "agent_id",
            Split::Model => "CAST(model AS Nullable(String))",
            Split::Session => "session_id",
            Split::Client => "CAST(client AS Nullable(String))",
        };
        let summed = format!(
            "SELECT start_us - positiveModulo(start_us, {bucket_us}) AS bucket, {name} AS name, count() AS calls, \
             countIf(status >= 400 OR error_type IS NOT NULL) AS failed, sum(total_tokens) AS tokens, \
             toInt64(sum(ifNull(cost_nano_usd, 0))) AS cost FROM weir_calls FINAL WHERE {} GROUP BY bucket, name",
            conditions.conditions
        );
        let question = format!("SELECT bucket, count() AS points FROM ({summed}) GROUP BY bucket ORDER BY bucket");
        let buckets: Vec<Bucket> = self.ask(&question, &conditions.params)?;
        let counts: Vec<u64> = buckets.iter().map(|bucket| bucket.points).collect();
        let (level, more) = shared_out(&counts, u64::from(asked.points_max));
        // Buckets up to this one hold one point more.
        let shown = match more.and_then(|at| buckets.get(at)) {
            Some(last) => format!("s.nth <= {level} + (s.bucket <= {})", last.bucket),
            None => format!("s.nth <= {level}"),
        };
        let question = format!(
            "SELECT s.bucket AS bucket, {shown} AS is_shown, if({shown}, any(s.name), NULL) AS name, \
             sum(s.calls) AS calls, sum(s.failed) AS failed, sum(s.tokens) AS tokens, sum(s.cost) AS cost FROM \
             (SELECT *, row_number() OVER (PARTITION BY bucket ORDER BY cost DESC, calls DESC, name) AS nth FROM ({summed})) AS s \
             GROUP BY s.bucket, {shown}, if({shown}, s.nth, 0) ORDER BY s.bucket, {shown} DESC, min(s.nth)"
        );
        let rows: Vec<Row> = self.ask(&question, &conditions.params)?;
        let mut series = Series::default();
        for row in rows {
            let into = if row.is_shown > 0 { &mut series.points } else { &mut series.others };
            into.push(SeriesPoint {
                start_time: Timestamp::from_micros(row.bucket),
                name: row.name,
                calls: row.calls,
                failed_calls: row.failed,
                total_tokens: row.tokens,
                total_cost_usd: row.cost as f64 / NANO,
            });
        }
        series.truncated = !series.others.is_empty();
        Ok(series)
    }

    pub(super) fn stats(&self, scope: Scope) -> Result<Stats, ReadError> {
        #[derive(Deserialize)]
        struct Row {
            traces: u64,
            spans: u64,
            findings: u64,
            tokens: u64,
            cost: i64,
            bytes: u64,
            oldest: i64,
            newest: i64,
        }
        let asked = Asked::of(scope);
        let question = format!(
            "SELECT * FROM (SELECT count() AS spans, toUInt64(sum(c.findings)) AS findings, sum(c.total_tokens) AS tokens, \
             toInt64(sum(ifNull(c.cost_nano_usd, 0))) AS cost, sum(c.bytes) AS bytes, min(c.start_us) AS oldest \
             FROM weir_calls AS c FINAL WHERE {0}) AS sums, (SELECT count() AS traces, max(begins) AS newest FROM \
             (SELECT min(start_us) AS begins FROM weir_calls FINAL WHERE {0} GROUP BY trace_id)) AS heads",
            asked.conditions
        );
        let rows: Vec<Row> = self.ask(&question, &asked.params)?;
        let row = rows.first();
        let some = row.filter(|row| row.spans > 0);
        Ok(Stats {
            tenant_id: scope.tenant,
            total_traces: row.map_or(0, |row| row.traces),
            total_spans: row.map_or(0, |row| row.spans),
            total_findings: row.map_or(0, |row| row.findings),
            total_tokens: row.map_or(0, |row| row.tokens),
            total_cost_usd: row.map_or(0.0, |row| row.cost as f64 / NANO),
            storage_bytes: row.map_or(0, |row| row.bytes),
            oldest_trace: some.map(|row| Timestamp::from_micros(row.oldest)),
            newest_trace: some.map(|row| Timestamp::from_micros(row.newest)),
        })
    }

    pub(super) fn actions_summary(&self, scope: Scope, asked: &SpanFilter) -> Result<ActionsSummary, ReadError> {
        #[derive(Deserialize)]
        struct Sums {
            spans: u64,
            acting: u64,
            actions: u64,
            succeeded: u64,
        }
        #[derive(Deserialize)]
        struct Action {
            kind: String,
            name: String,
            many: u64,
            failures: u64,
        }
        let mut conditions = Asked::of(scope);
        conditions.span(asked);
        let question = format!(
            "SELECT count() AS spans, countIf(notEmpty(action_names)) AS acting, toUInt64(sum(length(action_names))) AS actions, \
             toUInt64(sum(arraySum(action_succeeded))) AS succeeded FROM weir_calls FINAL WHERE {}",
            conditions.conditions
        );
        let sums: Vec<Sums> = self.ask(&question, &conditions.params)?;
        let question = format!(
            "SELECT kind, name, count() AS many, countIf(succeeded = 0) AS failures FROM weir_calls FINAL ARRAY JOIN \
             action_types AS kind, action_names AS name, action_succeeded AS succeeded WHERE {} GROUP BY kind, name \
             ORDER BY many DESC, name, kind LIMIT 10000",
            conditions.conditions
        );
        let actions: Vec<Action> = self.ask(&question, &conditions.params)?;
        let sums = sums.first();
        let total = sums.map_or(0, |sums| sums.actions);
        let mut action_counts = BTreeMap::new();
        for action in &actions {
            *action_counts.entry(action.kind.clone()).or_insert(0) += action.many;
        }
        let top = actions.into_iter().take(TOP_ACTIONS_MAX).map(|action| TopAction {
            name: action.name,
            action_type: action.kind,
            count: action.many,
            failures: action.failures,
        });
        Ok(ActionsSummary {
            total_spans: sums.map_or(0, |sums| sums.spans),
            spans_with_actions: sums.map_or(0, |sums| sums.acting),
            total_actions: total,
            success_rate: sums.filter(|_| total > 0).map(|sums| sums.succeeded as f64 / total as f64),
            action_counts,
            top_actions: top.collect(),
        })
    }

    /// Spans of a period in order of start and arrival, from behind a place on, which moves behind them; and whether there may be more.
    pub(super) fn period(
        &self,
        scope: Scope,
        place: &mut SpanPlace,
        end_us: i64,
        limit: u32,
    ) -> Result<(Vec<Marked>, bool), ReadError> {
        let asked = Asked::of(scope);
        let number = u64::try_from(place.row).unwrap_or(0);
        let last = place.span.map_or(Uuid::max(), |id| uuid(id.as_bytes()));
        let params = asked.params.clone().with("after_us", place.start_us).with("after_seq", number);
        let params = params.with("after_span", last).with("end", end_us);
        let question = format!(
            "SELECT start_us, seq, span_id AS id FROM weir_calls FINAL WHERE {} AND start_us >= {{after_us:Int64}} AND start_us < {{end:Int64}} \
             AND (start_us, seq, span_id) > ({{after_us:Int64}}, {{after_seq:UInt64}}, {{after_span:UUID}}) \
             ORDER BY start_us, seq, span_id LIMIT {limit} SETTINGS do_not_merge_across_partitions_select_final = 1",
            asked.conditions
        );
        let ids: Vec<Id> = self.ask(&question, &params)?;
        let keys: Vec<Key> = ids.iter().map(Id::key).collect();
        let spans = self.whole(scope, &keys, true)?;
        if let Some(Id { id, start_us, seq }) = ids.last() {
            let (row, span) = (seq.cast_signed(), Some(SpanId::from_uuid(*id)));
            *place = SpanPlace { start_us: *start_us, row, span };
        }
        Ok((spans, ids.len() >= limit as usize))
    }

    /// Takes a trace out, every version of every span.
    pub(super) fn delete_trace(&self, tenant: TenantId, trace: TraceId) -> Result<(), ReadError> {
        let params = Params::default().with("tenant", uuid(tenant.as_bytes())).with("trace", uuid(trace.as_bytes()));
        for table in ["weir_calls", "weir_spans"] {
            let statement =
                format!("DELETE FROM {table} WHERE tenant_id = {{tenant:UUID}} AND trace_id = {{trace:UUID}}");
            self.run_with(&statement, &params)?;
        }
        Ok(())
    }

    /// Takes out what a tenant had begun by then.
    pub(super) fn delete_tenant(&self, tenant: TenantId, until_us: i64) -> Result<(), ReadError> {
        let params = Params::default().with("tenant", uuid(tenant.as_bytes())).with("until", until_us);
        for table in ["weir_calls", "weir_spans"] {
            let statement =
                format!("DELETE FROM {table} WHERE tenant_id = {{tenant:UUID}} AND start_us <= {{until:Int64}}");
            self.run_with(&statement, &params)?;
        }
        Ok(())
    }

    /// Drops the partitions of which every span began before then.
    pub(super) fn drop_before(&self, before_us: i64) -> Result<u64, ReadError> {
        #[derive(Deserialize)]
        struct Part {
            table: String,
            partition: String,
        }
        let question = "SELECT DISTINCT table, partition FROM system.parts WHERE database = currentDatabase() AND active AND \
            table IN ('weir_calls', 'weir_spans') AND toDate(partition) + 7 <= toDate(fromUnixTimestamp64Micro({before:Int64}))";
        let parts: Vec<Part> = self.ask(question, &Params::default().with("before", before_us))?;
        for part in &parts {
            // A partition's name is a date; nothing else is put into the statement.
            if part.partition.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
                && part.table.starts_with("weir_")
            {
                self.run(&format!("ALTER TABLE {} DROP PARTITION '{}'", part.table, part.partition))?;
            }
        }
        Ok(parts.len() as u64)
    }
}
