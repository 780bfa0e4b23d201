//! How long list queries take on a full database: `cargo run --release -p weir-storage --example lists -- [spans] [folder]`.
//!
//! Fills a file with spans of one tenant, and with reported actions, reports, audit lines, keys and tenants (a tenth as many
//! of each as spans, at least 1,000), and times every filter of every list, first and deep pages, 40 times each with a page of 100.
//! Says how far the process grew meanwhile.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use uuid::Uuid;
use weir_config::vocab::{Finding, Severity, TenantId, Timestamp, TraceId};
use weir_storage::audit::AuditEvent;
use weir_storage::query::{Facets, Page, SpanFilter, TraceFilter};
use weir_storage::record::{AgentAction, SpanRecord};
use weir_storage::usage::{SeriesQuery, SessionFilter, Split};
use weir_storage::{AuditLog as _, Registry as _, ReportBook as _, SpanLog as _};
use weir_storage::{Backend, ReadError, Store, StoreOptions};

#[path = "corpus/mod.rs"]
mod corpus;

const TENANT: TenantId = TenantId::DEFAULT;
const ROUNDS: usize = 40;

/// Different spans in one respect each, so that every filter has something to select, much or very little.
fn vary(at: usize, span: SpanRecord) -> SpanRecord {
    let common = ["gpt-4o-mini", "gpt-4o", "claude-sonnet", "llama-3"][at % 4];
    let model = Some(if at.is_multiple_of(50_000) { "rare" } else { common }.to_owned());
    let security_score = Some(if at.is_multiple_of(50) { 60 } else { 0 });
    let operation_name = if at.is_multiple_of(7) { "messages" } else { "chat_completion" }.into();
    let provider = if at.is_multiple_of(7) { "anthropic" } else { "openai" }.into();
    let (status, error) = match (at.is_multiple_of(97), at.is_multiple_of(101)) {
        (true, _) => (429, Some("rate_limit_exceeded")),
        (_, true) => (502, Some("upstream_connect_failed")),
        _ => (200, None),
    };
    let mut span = SpanRecord { model, security_score, operation_name, provider, ..span };
    if at.is_multiple_of(50) {
        span.security_findings.push(Finding::new("jailbreak", Severity::Medium, 0.8, "rules", "asks for a role"));
    }
    SpanRecord {
        session_id: (!at.is_multiple_of(3)).then(|| format!("session-{}", at / 20)),
        agent_id: Some(format!("agent-{}", at % 100)),
        client: Some(["claude-cli", "codex", "curl"][at % 3].to_owned()),
        streaming: at.is_multiple_of(2),
        status_code: Some(status),
        error_type: error.map(str::to_owned),
        estimated_cost_usd: Some((at % 1_000) as f64 / 1e4),
        tags: [("upstream".into(), if at.is_multiple_of(500) { "vllm-b" } else { "openai" }.to_owned())].into(),
        ..span
    }
}

/// The filters that no running sum knows, each on the first page, deep by offset, and behind the first page by cursor; sessions,
/// and series.
fn ask_by_facets(store: &Store) -> Result<(), ReadError> {
    let named = |name: &str| Some(name.to_owned());
    let any = Facets::default;
    let asked = [
        ("none", any()),
        ("status 5xx", Facets { status: Some((500, 599)), ..any() }),
        ("error type", Facets { error_type: named("rate_limit_exceeded"), ..any() }),
        ("agent", Facets { agent_id: named("agent-7"), ..any() }),
        ("session", Facets { session_id: named("session-100"), ..any() }),
        ("client", Facets { client: named("codex"), ..any() }),
        ("finding", Facets { finding_type: named("jailbreak"), ..any() }),
        ("cost", Facets { cost_min_nano_usd: Some(99_800_000), ..any() }),
        ("duration", Facets { duration_min_us: Some(3_390_000), ..any() }),
        ("streaming", Facets { streaming: Some(true), ..any() }),
        ("upstream", Facets { upstream: named("vllm-b"), ..any() }),
        ("upstream, agent", Facets { upstream: named("openai"), agent_id: named("agent-7"), ..any() }),
        (
            "agent, client, 4xx",
            Facets { agent_id: named("agent-7"), client: named("codex"), status: Some((400, 499)), ..any() },
        ),
        (
            "nothing has it",
            Facets { agent_id: named("agent-7"), client: named("claude-cli"), streaming: Some(true), ..any() },
        ),
    ];
    for (name, facets) in asked {
        let filter = SpanFilter { facets: facets.clone(), ..SpanFilter::default() };
        let page = |page: Page| store.list_spans(TENANT, &filter, page);
        let first = Page { limit: 50, texts: false, ..Page::default() };
        time(&format!("spans without texts, {name}"), || page(first).map(|listed| listed.total))?;
        let deep = Page { offset: 20_000, ..first };
        time(&format!("spans, {name}, behind 20,000"), || page(deep).map(|listed| listed.total))?;
        for (place, from) in [("first", first), ("deep", deep)] {
            let Some(next) = page(from)?.next else { continue };
            let behind = Page { after: Some(next), limit: 50, ..Page::default() };
            time(&format!("spans, {name}, by cursor, {place}"), || page(behind).map(|listed| listed.total))?;
        }
        let filter = TraceFilter { facets, ..TraceFilter::default() };
        let first = Page { limit: 50, ..Page::default() };
        time(&format!("traces, {name}"), || store.list_traces(TENANT, &filter, first).map(|listed| listed.total))?;
    }
    for (name, filter) in [
        ("all", SessionFilter::default()),
        ("agent", SessionFilter { agent_id: named("agent-7"), ..SessionFilter::default() }),
        ("client", SessionFilter { client: named("codex"), ..SessionFilter::default() }),
    ] {
        let page = Page { limit: 50, ..Page::default() };
        time(&format!("sessions, {name}"), || store.list_sessions(TENANT, &filter, page).map(|listed| listed.total))?;
        let deep = Page { offset: 20_000, ..page };
        time(&format!("sessions, {name}, deep"), || {
            store.list_sessions(TENANT, &filter, deep).map(|listed| listed.total)
        })?;
    }
    let all = store.list_spans(TENANT, &SpanFilter::default(), Page { limit: 1, ..Page::default() })?.data;
    let end = all.first().map_or(0, |span| span.start_time.micros()) + 1;
    for split in [Split::Tenant, Split::Agent, Split::Model, Split::Session, Split::Client] {
        let start = Timestamp::from_micros(end - 30 * 86_400_000_000);
        let query = SeriesQuery {
            start,
            end: Timestamp::from_micros(end),
            bucket_hours: 24,
            split,
            agent_id: None,
            session_id: None,
            model: None,
            points_max: 10_000,
        };
        time(&format!("series by {split:?}"), || {
            store.series(TENANT, &query).map(|series| series.points.len() as u64)
        })?;
    }
    Ok(())
}

/// Every documented filter, alone and combined, on the first page, page 1,000 and the last ones.
fn ask_everything(store: &Store, count: usize) -> Result<(), ReadError> {
    let named = |name: &str| Some(name.to_owned());
    let any = SpanFilter::default;
    let span_filters = [
        ("all", any()),
        ("model", SpanFilter { model: named("claude-sonnet"), ..any() }),
        ("rare model", SpanFilter { model: named("rare"), ..any() }),
        ("operation", SpanFilter { operation_name: named("messages"), ..any() }),
        ("score >= 50", SpanFilter { security_score_min: Some(50), ..any() }),
        ("score <= 10", SpanFilter { security_score_max: Some(10), ..any() }),
        (
            "score, operation, model",
            SpanFilter {
                security_score_min: Some(50),
                security_score_max: Some(70),
                operation_name: named("messages"),
                model: named("gpt-4o-mini"),
                ..any()
            },
        ),
    ];
    let listed = |filter: &SpanFilter, offset: u64| {
        store
            .list_spans(TENANT, filter, Page { limit: 100, offset, or_fewer: false, ..Page::default() })
            .map(|listed| listed.total)
    };
    for (name, filter) in &span_filters {
        let total = listed(filter, 0)?;
        for (place, offset) in places(total) {
            time(&format!("spans, {name}, {place}"), || listed(filter, offset))?;
        }
    }
    let newest =
        store.list_spans(TENANT, &any(), Page { limit: 1, offset: 0, or_fewer: false, ..Page::default() })?.data;
    let end = newest.first().map_or(0, |span| span.start_time.micros());
    let before_end = |share: i64| Some(Timestamp::from_micros(end - count as i64 * 131 * share / 100));
    let any = TraceFilter::default;
    let trace_filters = [
        ("all", any()),
        ("provider", TraceFilter { provider: named("anthropic"), ..any() }),
        ("model", TraceFilter { model: named("gpt-4o"), ..any() }),
        ("rare model", TraceFilter { model: named("rare"), ..any() }),
        ("all time by time", TraceFilter { start_time: Some(Timestamp::from_micros(0)), ..any() }),
        ("last tenth", TraceFilter { start_time: before_end(10), ..any() }),
        ("middle half", TraceFilter { start_time: before_end(75), end_time: before_end(25), ..any() }),
        (
            "half, provider, model",
            TraceFilter {
                start_time: before_end(75),
                end_time: before_end(25),
                provider: named("openai"),
                model: named("gpt-4o"),
                ..any()
            },
        ),
    ];
    let listed = |filter: &TraceFilter, offset: u64| {
        store
            .list_traces(TENANT, filter, Page { limit: 100, offset, or_fewer: false, ..Page::default() })
            .map(|listed| listed.total)
    };
    for (name, filter) in &trace_filters {
        let total = listed(filter, 0)?;
        for (place, offset) in places(total) {
            time(&format!("traces, {name}, {place}"), || listed(filter, offset))?;
        }
    }
    let listed = |offset| {
        store
            .list_findings(TENANT, Page { limit: 100, offset, or_fewer: false, ..Page::default() })
            .map(|listed| listed.total)
    };
    for (place, offset) in places(listed(0)?) {
        time(&format!("findings, {place}"), || listed(offset))?;
    }
    time("statistics", || store.stats(TENANT).map(|stats| stats.total_spans))
}

/// The lists that grow with administration and with what agents report.
fn ask_the_ledger(store: &Store) -> Result<(), ReadError> {
    let listed = |offset| {
        store
            .list_reports(TENANT, Page { limit: 100, offset, or_fewer: false, ..Page::default() })
            .map(|listed| listed.total)
    };
    for (place, offset) in places(listed(0)?) {
        time(&format!("reports, {place}"), || listed(offset))?;
    }
    let listed = |offset| {
        store
            .list_keys(TENANT, Page { limit: 100, offset, or_fewer: false, ..Page::default() })
            .map(|listed| listed.total)
    };
    for (place, offset) in places(listed(0)?) {
        time(&format!("keys, {place}"), || listed(offset))?;
    }
    let listed = |offset| {
        store.list_tenants(Page { limit: 100, offset, or_fewer: false, ..Page::default() }).map(|listed| listed.total)
    };
    for (place, offset) in places(listed(0)?) {
        time(&format!("tenants, {place}"), || listed(offset))?;
    }
    for (name, whose) in [("audit, all", None), ("audit, tenant", Some(TENANT))] {
        let listed = |offset| {
            store
                .list_audit(whose, Page { limit: 100, offset, or_fewer: false, ..Page::default() })
                .map(|listed| listed.total)
        };
        for (place, offset) in places(listed(0)?) {
            time(&format!("{name}, {place}"), || listed(offset))?;
        }
    }
    time("audit, every line checked", || store.check_audit().map(|check| check.entries))?;
    let newest = store.list_audit(None, Page { limit: 100, offset: 0, or_fewer: false, ..Page::default() })?.data;
    time("audit, checked since", || store.check_audit_since(&newest).map(|check| check.entries))?;
    let any = SpanFilter::default;
    let filters = [
        ("all", any()),
        ("model", SpanFilter { model: Some("gpt-4o".to_owned()), ..any() }),
        ("score >= 50", SpanFilter { security_score_min: Some(50), ..any() }),
    ];
    for (name, filter) in filters {
        let sum = || store.actions_summary(TENANT, &filter).map(|summary| summary.total_actions);
        time(&format!("actions summary, {name}"), sum)?;
    }
    Ok(())
}

/// Reported actions and audit lines, by as many threads as let the writer commit many at once.
fn fill_ledger(store: &Store, traces: &[TraceId], count: usize) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(trace) = traces.get(at % traces.len()).filter(|_| at < count) else { return };
                    let event = AuditEvent {
                        tenant: Some(TENANT),
                        actor: "bootstrap".to_owned(),
                        action: "key.create".to_owned(),
                        target: Some(format!("key {at}")),
                        detail: BTreeMap::from([("role".to_owned(), "viewer".to_owned())]),
                    };
                    let added = store.add_action(TENANT, *trace, None, action(at), Vec::new());
                    if store.audit(event).is_err() || !matches!(added, Ok(Some(_))) {
                        eprintln!("the store did not take number {at}: {added:?}");
                        return;
                    }
                }
            });
        }
    });
}

/// One of 500 tools most of the time, else a command line of its own.
fn action(at: usize) -> AgentAction {
    let own = at.is_multiple_of(5);
    let name = if own { format!("cargo test --package number-{at}") } else { format!("tool_{}", at * 7 % 500) };
    AgentAction {
        id: Uuid::new_v4(),
        action_type: if own { "command_execution" } else { "tool_call" }.to_owned(),
        name,
        arguments: Some(format!(r#"{{"number":{at}}}"#)),
        result: None,
        duration_ms: Some(1.5),
        success: !at.is_multiple_of(9),
        exit_code: None,
        http_method: None,
        http_status: None,
        file_operation: None,
        metadata: BTreeMap::new(),
        timestamp: Timestamp::now(),
    }
}

/// Finished reports, keys and tenants, put in directly: one by one they would take longer than everything else here.
fn fill_directly(file: &Path, count: usize) -> rusqlite::Result<()> {
    let conn = Connection::open(file)?;
    conn.busy_timeout(Duration::from_secs(10))?;
    let sql = "WITH RECURSIVE n(at) AS (SELECT 1 UNION ALL SELECT at + 1 FROM n WHERE at < ?1) \
        INSERT INTO reports (tenant, report_id, report_type, status, period_start_us, period_end_us, created_us, \
        completed_us, content, nth) \
        SELECT (SELECT id FROM tenants WHERE uuid = ?2), randomblob(16), 'soc2', 'complete', 0, 1, at, at + 1, \
        '{\"controls\":[\"' || hex(randomblob(1000)) || '\"]}', at FROM n";
    conn.execute(sql, (count as i64, TENANT.as_bytes().as_slice()))?;
    let sql = "WITH RECURSIVE n(at) AS (SELECT 1 UNION ALL SELECT at + 1 FROM n WHERE at < ?1) \
        INSERT INTO api_keys (key_id, tenant, name, key_prefix, sha256, role, created_us, nth) \
        SELECT randomblob(16), (SELECT id FROM tenants WHERE uuid = ?2), 'key', 'svc_01234567', randomblob(32), \
        'viewer', at, at FROM n";
    conn.execute(sql, (count as i64, TENANT.as_bytes().as_slice()))?;
    let sql = "WITH RECURSIVE n(at) AS (SELECT 1 UNION ALL SELECT at + 1 FROM n WHERE at < ?1) \
        INSERT INTO tenants (uuid, name, created_us) SELECT randomblob(16), 'tenant', at FROM n";
    conn.execute(sql, [count as i64])?;
    Ok(())
}

/// Offsets of a page of 100 in a list of this length.
fn places(total: u64) -> Vec<(&'static str, u64)> {
    let places =
        [("first page", 0), ("page 1,000", 99_900), ("middle", total / 2), ("last page", total.saturating_sub(100))];
    places.into_iter().filter(|(_, offset)| *offset == 0 || *offset < total).collect()
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|text| text.split_whitespace().next()?.parse().ok()).unwrap_or(0)
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
    println!("{name:>44}: p50 {:>7.2} ms, p99 {:>7.2} ms, total {total}", at(50), at(99));
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let count: usize = args.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let folder =
        args.next().map_or_else(std::env::temp_dir, PathBuf::from).join(format!("lists-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let file = folder.join("service.db");
    let store = Store::open(StoreOptions {
        backend: Backend::Sqlite { path: file.clone(), auto_migrate: true },
        on_writer_start: || {},
        pause: || {},
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

    let ledger = (count / 10).max(1_000);
    let mut traces: Vec<TraceId> = Vec::new();
    for part in 0..20 {
        let page = Page { limit: 1000, offset: part * count as u64 / 20, or_fewer: false, ..Page::default() };
        traces
            .extend(store.list_traces(TENANT, &TraceFilter::default(), page)?.data.iter().map(|trace| trace.trace_id));
    }
    fill_ledger(&store, &traces, ledger);
    fill_directly(&file, ledger)?;

    let before = resident_kib();
    ask_the_ledger(&store)?;
    ask_everything(&store, count)?;
    ask_by_facets(&store)?;
    println!("resident memory: {before} KiB before, {} KiB after all queries", resident_kib());
    drop(store);
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
