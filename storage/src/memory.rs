//! The `memory` profile: the same answers as the file, bounded in bytes, gone with the process.
//!
//! When the bound is passed the spans that arrived first are forgotten. Orders are kept sorted as rows arrive, so a
//! page is a walk and not a sort. Nothing here is shared with SQLite but the definitions of a trace and of a span's size.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::RwLock;
use weir_config::vocab::{SpanId, TenantId, Timestamp, TraceId};

use crate::query::{Page, Paged, SpanFilter, TraceFilter};
use crate::queue::{Queued, weigh};
use crate::record::{SpanRecord, TraceRecord};
use crate::traces::assemble;
use crate::writer::{Engine, WriteError};

/// Start, then order of arrival: the key of every ordered list.
type Place = (Timestamp, u64);

/// Bookkeeping per span besides its own size: entries in the maps, roughly.
const ENTRY_BYTES: usize = 256;

/// All tenants' spans.
pub(crate) struct Shelves {
    tenants: HashMap<TenantId, Shelf>,
    /// In order of arrival, for forgetting.
    arrivals: VecDeque<(TenantId, Place, usize)>,
    bytes: usize,
    bytes_max: usize,
    next: u64,
}

/// One tenant's spans.
#[derive(Default)]
struct Shelf {
    spans: BTreeMap<Place, Box<SpanRecord>>,
    by_span: HashMap<SpanId, Place>,
    by_trace: HashMap<TraceId, BTreeSet<Place>>,
    /// The earliest span of each trace.
    firsts: BTreeSet<Place>,
}

impl Shelf {
    fn put(&mut self, place: Place, span: &SpanRecord) {
        self.by_span.insert(span.span_id, place);
        let trace = self.by_trace.entry(span.trace_id).or_default();
        if let Some(first) = trace.first() {
            self.firsts.remove(first);
        }
        trace.insert(place);
        self.firsts.extend(trace.first());
        self.spans.insert(place, Box::new(span.clone()));
    }

    fn forget(&mut self, place: Place) {
        let Some(span) = self.spans.remove(&place) else { return };
        self.by_span.remove(&span.span_id);
        self.firsts.remove(&place);
        if let Some(trace) = self.by_trace.get_mut(&span.trace_id) {
            trace.remove(&place);
            self.firsts.extend(trace.first());
            if trace.is_empty() {
                self.by_trace.remove(&span.trace_id);
            }
        }
    }

    fn trace_of(&self, id: TraceId) -> Option<TraceRecord> {
        let mut places: Vec<Place> = self.by_trace.get(&id)?.iter().copied().collect();
        places.sort_by_key(|place| place.1);
        assemble(places.iter().filter_map(|place| self.spans.get(place)).map(|span| (**span).clone()).collect())
    }
}

impl Shelves {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { tenants: HashMap::new(), arrivals: VecDeque::new(), bytes: 0, bytes_max, next: 0 }
    }

    fn put(&mut self, span: &SpanRecord) {
        let shelf = self.tenants.entry(span.tenant_id).or_default();
        if shelf.by_span.contains_key(&span.span_id) {
            return;
        }
        let place = (span.start_time, self.next);
        self.next += 1;
        shelf.put(place, span);
        let bytes = weigh(span) + ENTRY_BYTES;
        self.bytes += bytes;
        self.arrivals.push_back((span.tenant_id, place, bytes));
        while self.bytes > self.bytes_max {
            let Some((tenant, place, bytes)) = self.arrivals.pop_front() else { break };
            self.bytes -= bytes;
            if let Some(shelf) = self.tenants.get_mut(&tenant) {
                shelf.forget(place);
                if shelf.spans.is_empty() {
                    self.tenants.remove(&tenant);
                }
            }
        }
    }

    pub(crate) fn span(&self, tenant: TenantId, id: SpanId) -> Option<SpanRecord> {
        let shelf = self.tenants.get(&tenant)?;
        shelf.spans.get(shelf.by_span.get(&id)?).map(|span| (**span).clone())
    }

    pub(crate) fn trace(&self, tenant: TenantId, id: TraceId) -> Option<TraceRecord> {
        self.tenants.get(&tenant)?.trace_of(id)
    }

    pub(crate) fn list_spans(&self, tenant: TenantId, filter: &SpanFilter, page: Page) -> Paged<SpanRecord> {
        self.page(tenant, page, |span| {
            let scored = match (filter.security_score_min, filter.security_score_max) {
                (None, None) => true,
                (min, max) => span
                    .security_score
                    .is_some_and(|score| score >= min.unwrap_or(0) && score <= max.unwrap_or(u8::MAX)),
            };
            scored
                && filter.operation_name.as_ref().is_none_or(|name| span.operation_name == *name)
                && filter.model.as_ref().is_none_or(|model| span.model.as_ref() == Some(model))
        })
    }

    pub(crate) fn list_findings(&self, tenant: TenantId, page: Page) -> Paged<SpanRecord> {
        self.page(tenant, page, |span| span.security_score.is_some_and(|score| score > 0))
    }

    fn page(&self, tenant: TenantId, page: Page, wanted: impl Fn(&SpanRecord) -> bool) -> Paged<SpanRecord> {
        let spans = self.tenants.get(&tenant).into_iter().flat_map(|shelf| shelf.spans.values().rev());
        window(spans.filter(|span| wanted(span)), page, |span| Some((**span).clone()))
    }

    pub(crate) fn list_traces(&self, tenant: TenantId, filter: &TraceFilter, page: Page) -> Paged<TraceRecord> {
        let from = filter.start_time.unwrap_or(Timestamp::from_micros(0));
        let to = filter.end_time.unwrap_or(Timestamp::from_micros(i64::MAX));
        let Some(shelf) = self.tenants.get(&tenant).filter(|_| from <= to) else {
            return window(std::iter::empty::<()>(), page, |()| None);
        };
        let firsts = shelf.firsts.range((from, 0)..=(to, u64::MAX)).rev().filter_map(|place| shelf.spans.get(place));
        let wanted = firsts.filter(|span| {
            filter.provider.as_ref().is_none_or(|provider| span.provider == *provider)
                && filter.model.as_ref().is_none_or(|model| span.model.as_ref() == Some(model))
        });
        window(wanted, page, |span| shelf.trace_of(span.trace_id))
    }
}

/// Counts everything, builds only the page.
fn window<T, R>(items: impl Iterator<Item = T>, page: Page, build: impl Fn(T) -> Option<R>) -> Paged<R> {
    let mut answer = Paged { data: Vec::new(), total: 0, limit: page.limit, offset: page.offset };
    for item in items {
        if answer.total >= page.offset && answer.data.len() < page.limit as usize {
            answer.data.extend(build(item));
        }
        answer.total += 1;
    }
    answer
}

/// The writing side.
pub(crate) struct MemoryEngine(pub(crate) Arc<RwLock<Shelves>>);

impl Engine for MemoryEngine {
    fn write(&mut self, rows: &[Queued]) -> Result<(), WriteError> {
        let mut shelves = self.0.write();
        for row in rows {
            shelves.put(&row.span);
        }
        Ok(())
    }

    fn recover(&mut self) -> Result<(), WriteError> {
        Ok(())
    }

    fn tend(&mut self, _idle: bool) {}

    fn close(&mut self) {}
}
