//! How long list queries take on a full database: `cargo run --release -p weir-storage --example lists -- [spans] [folder]`.
//!
//! Fills a file with spans of all kinds, most of them one tenant's, and with reported actions, reports, audit lines, keys and
//! tenants (a tenth as many of each as spans, at least 1,000), and times every filter of every list, first and deep pages, 40
//! times each with a page of 100.
//! Says how far the process grew meanwhile.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use uuid::Uuid;
use weir_config::vocab::part::{PartForm, PartKind, PartRecord, PartSide};
use weir_config::vocab::{Finding, Severity, TenantId, Timestamp, TraceId, score};
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

/// Numbers that have nothing to do with each other, of one number.
struct Roll(u64);

impl Roll {
    fn of(number: usize) -> Self {
        Self(number as u64)
    }

    /// One of the first `of` numbers (splitmix64).
    fn pick(&mut self, of: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % of
    }

    /// One of these; the earlier ones far more often.
    fn favour<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        let most = self.pick(all.len() as u64) + 1;
        all.get(self.pick(most) as usize).copied()
    }
}

/// Spans that belong to traces of one, three or six; one in twenty traces is another tenant's.
const TOGETHER: usize = 6;

/// A span like none beside it: its trace, tenant, model, session, client, outcome, findings, size, length and cost are drawn
/// independently, most of them unevenly.
fn vary(at: usize, span: SpanRecord, texts: &[String]) -> SpanRecord {
    let (mut roll, block) = (Roll::of(at), at / TOGETHER);
    let mut of_trace = Roll::of(block ^ 0x7777_0000);
    let mates = [1, 1, 3, TOGETHER][of_trace.pick(4) as usize];
    let mut trace = [0; 16];
    trace[..8].copy_from_slice(
        &((block * TOGETHER + at % TOGETHER / mates) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(),
    );
    let tenant_id = match of_trace.pick(20) {
        0 => TenantId::from_bytes([1 + of_trace.pick(40) as u8; 16]),
        _ => TENANT,
    };
    let models = [
        "gpt-4o-mini",
        "gpt-4o",
        "claude-sonnet",
        "llama-3",
        "gemini-pro",
        "mistral",
        "o3",
        "qwen",
        "command-r",
        "rare",
    ];
    let model = if roll.pick(5_000) == 0 { Some("rare") } else { roll.favour(&models[..9]) };
    let (provider, operation) =
        if roll.pick(7) == 0 { ("anthropic", "messages") } else { ("openai", "chat_completion") };
    let (status, error) = match roll.pick(100) {
        0 => (429, Some("rate_limit_exceeded")),
        1 => (502, Some("upstream_connect_failed")),
        2 => (400, Some("invalid_request_error")),
        3 => (504, Some("upstream_timeout")),
        4 => (403, Some("request_blocked")),
        _ => (200, None),
    };
    let start = Timestamp::from_micros(span.start_time.micros() + roll.pick(2_000_000).cast_signed());
    // From milliseconds to minutes.
    let longest = 1 << (10 + roll.pick(18));
    let duration_us = 5_000 + roll.pick(longest);
    let mut span = SpanRecord {
        trace_id: TraceId::from_bytes(trace),
        tenant_id,
        start_time: start,
        end_time: Timestamp::from_micros(start.micros() + duration_us.cast_signed()),
        duration_ms: duration_us as f64 / 1e3,
        model: model.map(str::to_owned),
        operation_name: operation.into(),
        provider: provider.into(),
        session_id: (roll.pick(3) > 0).then(|| format!("session-{}", at / 2_000 * 100 + roll.pick(100) as usize)),
        agent_id: (roll.pick(5) > 0).then(|| format!("agent-{}", roll.pick(300))),
        client: roll.favour(&["claude-cli", "codex", "curl", "openai-python", "ai-sdk", "cursor"]).map(str::to_owned),
        streaming: roll.pick(2) == 0,
        status_code: Some(status),
        error_type: error.map(str::to_owned),
        estimated_cost_usd: (roll.pick(10) > 0).then(|| roll.pick(1_000) as f64 / 1e4),
        tags: [("upstream".into(), if roll.pick(500) == 0 { "vllm-b" } else { "openai" }.to_owned())].into(),
        ..span
    };
    let types = [
        "jailbreak",
        "prompt_injection",
        "pii_detected",
        "secret_leakage",
        "is_urgent",
        "suspicious_url",
        "data_exfiltration",
    ];
    let severities = [Severity::Medium, Severity::Low, Severity::High, Severity::Info, Severity::Critical];
    for _ in 0..if roll.pick(20) == 0 { 1 + roll.pick(4) } else { 0 } {
        if let (Some(of), Some(severity)) = (roll.favour(&types), roll.favour(&severities)) {
            span.security_findings.push(Finding::new(of, severity, 0.8, "rules", "asks for a role"));
        }
    }
    span.security_score = (roll.pick(30) > 0).then(|| score(&span.security_findings));
    resize(&mut span, &mut roll, texts);
    span
}

/// From a few words to a conversation whose beginning many share.
fn resize(span: &mut SpanRecord, roll: &mut Roll, texts: &[String]) {
    let (Some(prompt), Some(shared)) = (&mut span.prompt, texts.get(roll.pick(texts.len() as u64) as usize)) else {
        return;
    };
    match roll.pick(100) {
        0..60 => prompt.truncate(10 + roll.pick(700) as usize),
        60..90 => {}
        90..99 => *prompt = format!("{shared}\n{prompt}"),
        _ => *prompt = format!("{shared}\n{}", prompt.repeat(20)),
    }
    let own = if prompt.starts_with(shared.as_str()) { shared.len() + 1 } else { 0 };
    let part = |kind, text: std::ops::Range<usize>| PartRecord {
        side: PartSide::Request,
        kind,
        form: PartForm::Text,
        role: None,
        message: (kind == PartKind::User).then_some(0),
        text: Some(text.start as u32..text.end as u32),
        raw: None,
        tool: None,
    };
    if own > 0 {
        span.parts.push(part(PartKind::System, 0..own - 1));
    }
    span.parts.push(part(PartKind::User, own..prompt.len()));
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

/// Milliseconds this thread, which reads, was on a CPU: what else runs on the machine is not in it.
fn busy_ms() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1e6
}

fn time(name: &str, query: impl Fn() -> Result<u64, ReadError>) -> Result<(), ReadError> {
    let (mut took, mut busy) = (Vec::with_capacity(ROUNDS), Vec::with_capacity(ROUNDS));
    let mut total = 0;
    for _ in 0..ROUNDS {
        let (started, was_busy) = (Instant::now(), busy_ms());
        total = query()?;
        took.push(started.elapsed().as_secs_f64() * 1e3);
        busy.push(busy_ms() - was_busy);
    }
    took.sort_by(f64::total_cmp);
    busy.sort_by(f64::total_cmp);
    let at = |of: &[f64], share: usize| of.get(ROUNDS * share / 100).copied().unwrap_or(f64::NAN);
    let [p50, p99, busy] = [at(&took, 50), at(&took, 99), at(&busy, 99)];
    println!("{name:>44}: p50 {p50:>7.2} ms, p99 {p99:>7.2} ms, on a CPU p99 {busy:>7.2} ms, total {total}");
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
        erase: weir_storage::Erase::Rows,
        backend: Backend::Sqlite { path: file.clone(), auto_migrate: true, migration_copy: false },
        on_writer_start: || {},
        pause: || {},
        batch_timeout: Duration::from_secs(10),
        queue_items: 65_536,
        queue_bytes: 64 * 1024 * 1024,
        observer: Arc::new(corpus::Unobserved),
    })?;
    let sink = store.sink();
    let mut text = corpus::texts();
    let shared: Vec<String> = (0..40).map(|at| text(1_500 + at * 200)).collect();
    for (at, span) in corpus::each_span(count).enumerate() {
        while store.counters().queue_items > 16_384 {
            std::thread::sleep(Duration::from_millis(1));
        }
        sink.push(Box::new(vary(at, span, &shared)))?;
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
