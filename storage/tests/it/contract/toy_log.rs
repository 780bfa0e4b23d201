//! A span log that is a list in memory: it shows what another implementation of the role takes.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;
use weir_config::vocab::{Finding, SpanId, TenantId, Timestamp, TraceId, score};
use weir_storage::actions::ActionsSummary;
use weir_storage::audit::AuditEvent;
use weir_storage::query::{Facets, Page, Paged, SpanFilter, TraceFilter};
use weir_storage::record::{AgentAction, SpanRecord, TraceRecord};
use weir_storage::stats::Stats;
use weir_storage::usage::{PromptSums, Series, SeriesPoint, SeriesQuery, SessionFilter, SessionRecord, Split};
use weir_storage::{Cursor, Fate, Inserted, NotTaken, NotWritten, ReadError, SpanBatch, SpanLog};

#[derive(Default)]
pub(crate) struct ToyLog(Mutex<Rows>);

#[derive(Default)]
struct Rows {
    /// In the order of their commits; `None` where a tenant was deleted.
    spans: Vec<Option<SpanRecord>>,
    cursors: HashMap<String, Cursor>,
    deleted: HashMap<TenantId, Timestamp>,
}

impl Rows {
    fn put(&mut self, span: SpanRecord) -> Fate {
        if self.deleted.get(&span.tenant_id).is_some_and(|at| span.start_time <= *at) {
            return Fate::TenantDeleted;
        }
        if self.of(span.tenant_id).any(|known| known.span_id == span.span_id) {
            return Fate::Known;
        }
        self.spans.push(Some(span));
        Fate::Stored
    }

    fn of(&self, tenant: TenantId) -> impl Iterator<Item = &SpanRecord> {
        self.spans.iter().flatten().filter(move |span| span.tenant_id == tenant)
    }

    /// Newest first.
    fn that(&self, tenant: TenantId, matches: impl Fn(&SpanRecord) -> bool) -> Vec<SpanRecord> {
        let mut found: Vec<_> = self.of(tenant).filter(|span| matches(span)).cloned().collect();
        found.reverse();
        found.sort_by_key(|span| std::cmp::Reverse(span.start_time));
        found
    }

    fn traces(&self, tenant: TenantId) -> Vec<TraceRecord> {
        let mut seen = HashSet::new();
        let first = self.of(tenant).filter(|span| seen.insert(span.trace_id));
        let mut traces: Vec<_> = first.filter_map(|span| self.trace(tenant, span.trace_id)).collect();
        traces.sort_by_key(|trace| std::cmp::Reverse(trace.created_at));
        traces
    }

    fn trace(&self, tenant: TenantId, id: TraceId) -> Option<TraceRecord> {
        TraceRecord::of(self.of(tenant).filter(|span| span.trace_id == id).cloned().collect())
    }
}

fn paged<T>(all: Vec<T>, page: Page) -> Paged<T> {
    let total = all.len() as u64;
    let data = all.into_iter().skip(page.offset as usize).take(page.limit as usize).collect();
    Paged::new(data, total, page)
}

fn failed(span: &SpanRecord) -> bool {
    span.status_code >= Some(400) || span.error_type.is_some()
}

fn has(asked: &Facets, span: &SpanRecord) -> bool {
    let named = |asked: &Option<String>, name: &Option<String>| asked.is_none() || asked == name;
    let cost = span.estimated_cost_usd.map(|usd| (usd * 1e9).round() as i64);
    let duration = (span.duration_ms * 1e3).round() as i64;
    asked.status.is_none_or(|(min, max)| span.status_code.is_some_and(|status| (min..=max).contains(&status)))
        && named(&asked.error_type, &span.error_type)
        && named(&asked.agent_id, &span.agent_id)
        && named(&asked.session_id, &span.session_id)
        && named(&asked.client, &span.client)
        && asked
            .finding_type
            .as_ref()
            .is_none_or(|kind| span.security_findings.iter().any(|it| it.finding_type == **kind))
        && asked.cost_min_nano_usd.is_none_or(|min| cost.is_some_and(|cost| cost >= min))
        && asked.cost_max_nano_usd.is_none_or(|max| cost.is_some_and(|cost| cost <= max))
        && asked.duration_min_us.is_none_or(|min| duration >= min)
        && asked.duration_max_us.is_none_or(|max| duration <= max)
        && asked.streaming.is_none_or(|streaming| span.streaming == streaming)
}

fn fits(asked: &SpanFilter, span: &SpanRecord) -> bool {
    let named = |asked: &Option<String>, name: Option<&str>| asked.as_deref().is_none_or(|asked| name == Some(asked));
    let bounded = |bound: Option<u8>, holds: fn(u8, u8) -> bool| {
        bound.is_none_or(|bound| span.security_score.is_some_and(|score| holds(score, bound)))
    };
    named(&asked.model, span.model.as_deref())
        && named(&asked.provider, Some(&span.provider))
        && asked.start_time.is_none_or(|start| span.start_time >= start)
        && asked.end_time.is_none_or(|end| span.start_time <= end)
        && has(&asked.facets, span)
        && named(&asked.operation_name, Some(&span.operation_name))
        && bounded(asked.security_score_min, |score, min| score >= min)
        && bounded(asked.security_score_max, |score, max| score <= max)
}

impl SpanLog for ToyLog {
    fn append(&self, span: Box<SpanRecord>) -> Result<(), NotTaken> {
        self.0.lock().put(*span);
        Ok(())
    }

    fn flush(&self, _within: Duration) -> bool {
        true
    }

    fn insert(&self, spans: Vec<SpanRecord>) -> Result<Inserted, NotWritten> {
        let mut rows = self.0.lock();
        Ok(Inserted { fates: spans.into_iter().map(|span| rows.put(span)).collect() })
    }

    fn read_after(&self, after: Cursor, limit: u32, bytes_max: usize) -> Result<SpanBatch, ReadError> {
        let rows = self.0.lock();
        let mut batch = SpanBatch { spans: Vec::new(), next: after, lost: 0, clean: 0, more: false };
        let mut bytes = 0;
        for (at, row) in rows.spans.iter().enumerate().skip(after.place() as usize).take(limit as usize) {
            match row {
                Some(span) => {
                    bytes += span.prompt.as_ref().map_or(0, String::len) + 1;
                    if !batch.spans.is_empty() && bytes > bytes_max {
                        break;
                    }
                    batch.spans.push(span.clone());
                }
                None => batch.lost += 1,
            }
            batch.next = Cursor::new(1, at as i64 + 1);
        }
        batch.more = (batch.next.place() as usize) < rows.spans.len();
        Ok(batch)
    }

    fn end(&self) -> Result<Cursor, ReadError> {
        Ok(Cursor::new(1, self.0.lock().spans.len() as i64))
    }

    fn cursor(&self, consumer: &str) -> Result<Option<Cursor>, ReadError> {
        Ok(self.0.lock().cursors.get(consumer).copied())
    }

    fn save_cursor(&self, consumer: &str, at: Cursor) -> Result<(), NotWritten> {
        let mut rows = self.0.lock();
        let saved = rows.cursors.entry(consumer.to_owned()).or_insert(at);
        if at.place() > saved.place() {
            *saved = at;
        }
        Ok(())
    }

    fn list_traces(&self, tenant: TenantId, asked: &TraceFilter, page: Page) -> Result<Paged<TraceRecord>, ReadError> {
        let mut traces = self.0.lock().traces(tenant);
        traces.retain(|trace| {
            asked.start_time.is_none_or(|start| trace.created_at >= start)
                && asked.end_time.is_none_or(|end| trace.created_at <= end)
                && asked.provider.as_ref().is_none_or(|provider| *provider == trace.provider)
                && asked.model.as_ref().is_none_or(|model| Some(model) == trace.model.as_ref())
                && trace.spans.first().is_some_and(|span| has(&asked.facets, span))
        });
        Ok(paged(traces, page))
    }

    fn trace(&self, tenant: TenantId, id: TraceId) -> Result<Option<TraceRecord>, ReadError> {
        Ok(self.0.lock().trace(tenant, id))
    }

    fn list_spans(&self, tenant: TenantId, asked: &SpanFilter, page: Page) -> Result<Paged<SpanRecord>, ReadError> {
        Ok(paged(self.0.lock().that(tenant, |span| fits(asked, span)), page))
    }

    fn span(&self, tenant: TenantId, id: SpanId) -> Result<Option<SpanRecord>, ReadError> {
        Ok(self.0.lock().of(tenant).find(|span| span.span_id == id).cloned())
    }

    fn span_by_w3c(&self, tenant: TenantId, id: [u8; 8]) -> Result<Option<SpanRecord>, ReadError> {
        let known = |span: &&SpanRecord| span.span_id.to_w3c() == id;
        Ok(self.0.lock().of(tenant).filter(known).max_by_key(|span| span.span_id).cloned())
    }

    fn list_findings(&self, tenant: TenantId, page: Page) -> Result<Paged<SpanRecord>, ReadError> {
        Ok(paged(self.0.lock().that(tenant, |span| span.security_score > Some(0)), page))
    }

    fn list_sessions(
        &self,
        tenant: TenantId,
        asked: &SessionFilter,
        page: Page,
    ) -> Result<Paged<SessionRecord>, ReadError> {
        let rows = self.0.lock();
        let mut sessions: Vec<SessionRecord> = Vec::new();
        let mut matching = HashSet::new();
        for span in rows.of(tenant) {
            let Some(name) = &span.session_id else { continue };
            let at = sessions.iter().position(|known| known.session_id == *name).unwrap_or_else(|| {
                sessions.push(SessionRecord {
                    session_id: name.clone(),
                    agent_id: None,
                    client: None,
                    model: None,
                    first_call_at: None,
                    last_call_at: None,
                    calls: 0,
                    failed_calls: 0,
                    total_tokens: 0,
                    total_cost_usd: 0.0,
                    security_score: None,
                    prompt_cache: PromptSums::default(),
                });
                sessions.len() - 1
            });
            let session = &mut sessions[at];
            let start = Some(span.start_time);
            session.first_call_at = session.first_call_at.or(start).min(start);
            if session.last_call_at <= start {
                session.last_call_at = start;
                (session.agent_id, session.client) = (span.agent_id.clone(), span.client.clone());
                session.model = span.model.clone();
            }
            session.calls += 1;
            session.failed_calls += u64::from(failed(span));
            session.total_tokens += span.total_tokens.unwrap_or(0);
            session.total_cost_usd += span.estimated_cost_usd.unwrap_or(0.0);
            session.security_score = session.security_score.max(span.security_score);
            let named = |asked: &Option<String>, name: &Option<String>| asked.is_none() || asked == name;
            if asked.start_time.is_none_or(|start| span.start_time >= start)
                && asked.end_time.is_none_or(|end| span.start_time <= end)
                && named(&asked.agent_id, &span.agent_id)
                && named(&asked.client, &span.client)
            {
                matching.insert(name.clone());
            }
        }
        sessions.retain(|session| matching.contains(&session.session_id));
        sessions.reverse();
        Ok(paged(sessions, page))
    }

    fn series(&self, tenant: TenantId, asked: &SeriesQuery) -> Result<Series, ReadError> {
        let bucket_us = i64::from(asked.bucket_hours) * 3_600_000_000;
        let floor = |at: Timestamp| at.micros().div_euclid(bucket_us) * bucket_us;
        let mut points: BTreeMap<(i64, Option<String>), SeriesPoint> = BTreeMap::new();
        for span in self.0.lock().of(tenant) {
            let named = |asked: &Option<String>, name: &Option<String>| asked.is_none() || asked == name;
            let within = floor(span.start_time) >= floor(asked.start) && span.start_time < asked.end;
            let theirs = named(&asked.agent_id, &span.agent_id)
                && named(&asked.session_id, &span.session_id)
                && named(&asked.model, &span.model);
            if !within || !theirs {
                continue;
            }
            let name = match asked.split {
                Split::Tenant => None,
                Split::Agent => span.agent_id.clone(),
                Split::Model => span.model.clone(),
                Split::Session => span.session_id.clone(),
                Split::Client => span.client.clone(),
            };
            let start_time = Timestamp::from_micros(floor(span.start_time));
            let point = points.entry((start_time.micros(), name.clone())).or_insert(SeriesPoint {
                start_time,
                name,
                calls: 0,
                failed_calls: 0,
                total_tokens: 0,
                total_cost_usd: 0.0,
            });
            point.calls += 1;
            point.failed_calls += u64::from(failed(span));
            point.total_tokens += span.total_tokens.unwrap_or(0);
            point.total_cost_usd += span.estimated_cost_usd.unwrap_or(0.0);
        }
        let mut points: Vec<_> = points.into_values().collect();
        points.sort_by(|a, b| {
            a.start_time
                .cmp(&b.start_time)
                .then(b.total_cost_usd.total_cmp(&a.total_cost_usd))
                .then(b.calls.cmp(&a.calls))
        });
        let truncated = points.len() > asked.points_max as usize;
        points.truncate(asked.points_max as usize);
        Ok(Series { points, truncated, ..Series::default() })
    }

    fn stats(&self, tenant_id: TenantId) -> Result<Stats, ReadError> {
        let rows = self.0.lock();
        let sum = |of: fn(&SpanRecord) -> u64| rows.of(tenant_id).map(of).sum();
        let traces = rows.traces(tenant_id);
        Ok(Stats {
            tenant_id,
            total_traces: traces.len() as u64,
            total_spans: sum(|_| 1),
            total_findings: sum(|span| span.security_findings.len() as u64),
            total_tokens: sum(|span| span.total_tokens.unwrap_or(0)),
            total_cost_usd: rows.of(tenant_id).filter_map(|span| span.estimated_cost_usd).sum(),
            storage_bytes: 0,
            oldest_trace: traces.last().map(|trace| trace.created_at),
            newest_trace: traces.first().map(|trace| trace.created_at),
        })
    }

    fn add_action(
        &self,
        tenant: TenantId,
        trace: TraceId,
        span: Option<SpanId>,
        action: AgentAction,
        findings: Vec<Finding>,
    ) -> Result<Option<SpanId>, NotWritten> {
        let mut rows = self.0.lock();
        let theirs = rows.spans.iter_mut().flatten().filter(|it| it.tenant_id == tenant && it.trace_id == trace);
        let owner = theirs.filter(|it| span.is_none_or(|span| it.span_id == span)).max_by_key(|it| it.start_time);
        Ok(owner.map(|owner| {
            owner.security_score = owner.security_score.max((!findings.is_empty()).then(|| score(&findings)));
            owner.security_findings.extend(findings);
            owner.agent_actions.push(action);
            owner.span_id
        }))
    }

    fn actions_summary(&self, tenant: TenantId, asked: &SpanFilter) -> Result<ActionsSummary, ReadError> {
        let spans = self.0.lock().that(tenant, |span| fits(asked, span));
        Ok(ActionsSummary {
            total_spans: spans.len() as u64,
            spans_with_actions: spans.iter().filter(|span| !span.agent_actions.is_empty()).count() as u64,
            total_actions: spans.iter().map(|span| span.agent_actions.len() as u64).sum(),
            success_rate: None,
            action_counts: BTreeMap::new(),
            top_actions: Vec::new(),
        })
    }

    fn delete_trace(&self, tenant: TenantId, trace: TraceId, _by: AuditEvent) -> Result<bool, NotWritten> {
        let mut rows = self.0.lock();
        let theirs = |row: &&mut Option<SpanRecord>| {
            row.as_ref().is_some_and(|span| span.tenant_id == tenant && span.trace_id == trace)
        };
        Ok(rows.spans.iter_mut().filter(theirs).map(|row| *row = None).count() > 0)
    }

    fn delete_tenant_data(&self, tenant: TenantId) -> Result<(), NotWritten> {
        let mut rows = self.0.lock();
        rows.deleted.insert(tenant, Timestamp::now());
        let theirs = rows.spans.iter_mut().filter(|row| row.as_ref().is_some_and(|span| span.tenant_id == tenant));
        theirs.for_each(|row| *row = None);
        Ok(())
    }
}
