//! How long list queries take on a full database: `cargo run --release -p weir-storage --example lists -- [spans] [folder]`.
//!
//! Fills a file with spans of one tenant and times each query 40 times with a page of 100, deep pages included.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_config::vocab::{TenantId, Timestamp};
use weir_storage::query::{Page, SpanFilter, TraceFilter};
use weir_storage::record::SpanRecord;
use weir_storage::{Backend, ReadError, Store, StoreOptions};

#[path = "corpus/mod.rs"]
mod corpus;

const TENANT: TenantId = TenantId::DEFAULT;
const ROUNDS: usize = 40;

/// Different spans in one respect each, so that every filter has something to select.
fn vary(at: usize, span: SpanRecord) -> SpanRecord {
    let model = Some(["gpt-4o-mini", "gpt-4o", "claude-sonnet", "llama-3"][at % 4].to_owned());
    let security_score = Some(if at.is_multiple_of(50) { 60 } else { 0 });
    SpanRecord { model, security_score, ..span }
}

fn time(name: &str, query: impl Fn() -> Result<u64, ReadError>) -> Result<(), ReadError> {
    let mut took = Vec::with_capacity(ROUNDS);
    let mut total = 0;
    for _ in 0..ROUNDS {
        let started = Instant::now();
        total = query()?;
        took.push(started.elapsed().as_secs_f64() * 1e3);
    }
    took.sort_by(f64::total_cmp);
    let at = |share: usize| took.get(ROUNDS * share / 100).copied().unwrap_or(f64::NAN);
    println!("{name:>36}: p50 {:>7.2} ms, p99 {:>7.2} ms, total {total}", at(50), at(99));
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let count: usize = args.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let folder =
        args.next().map_or_else(std::env::temp_dir, PathBuf::from).join(format!("lists-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let store = Store::open(StoreOptions {
        backend: Backend::Sqlite { path: folder.join("service.db"), auto_migrate: true },
        batch_timeout: Duration::from_secs(10),
        queue_items: 65_536,
        queue_bytes: 64 * 1024 * 1024,
        observer: Arc::new(corpus::Unobserved),
    })?;
    let sink = store.sink();
    for (at, span) in corpus::spans(count).into_iter().enumerate() {
        while store.counters().queue_items > 16_384 {
            std::thread::sleep(Duration::from_millis(1));
        }
        sink.push(Box::new(vary(at, span)))?;
    }
    if !store.flush(Duration::from_secs(60)) {
        return Err("the store lost spans".into());
    }

    let page = |offset: usize| Page { limit: 100, offset: offset as u64 };
    let spans = |filter: SpanFilter, at: Page| store.list_spans(TENANT, &filter, at).map(|listed| listed.total);
    let traces = |filter: TraceFilter, at: Page| store.list_traces(TENANT, &filter, at).map(|listed| listed.total);
    let named = |name: &str| Some(name.to_owned());
    for (name, offset) in [("first page", 0), ("page 1,000", 100_000.min(count / 10)), ("middle page", count / 2)] {
        time(&format!("spans, {name}"), || spans(SpanFilter::default(), page(offset)))?;
        time(&format!("traces, {name}"), || traces(TraceFilter::default(), page(offset)))?;
    }
    let model = || SpanFilter { model: named("claude-sonnet"), ..SpanFilter::default() };
    time("spans of one model, first page", || spans(model(), page(0)))?;
    time("spans of one model, middle page", || spans(model(), page(count / 8)))?;
    let scored = || SpanFilter { security_score_min: Some(50), ..SpanFilter::default() };
    time("spans scored 50 and up, middle page", || spans(scored(), page(count / 100)))?;
    time("findings, first page", || store.list_findings(TENANT, page(0)).map(|listed| listed.total))?;
    let newest = store.list_spans(TENANT, &SpanFilter::default(), page(0))?.data;
    let end = newest.first().map_or(0, |span| span.start_time.micros());
    let start_time = Some(Timestamp::from_micros(end - count as i64 * 131 / 10));
    time("traces of the last tenth", || traces(TraceFilter { start_time, ..TraceFilter::default() }, page(0)))?;
    let start_time = Some(Timestamp::from_micros(0));
    time("traces of all time, by time", || traces(TraceFilter { start_time, ..TraceFilter::default() }, page(0)))?;
    drop(store);
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
