//! Reports built over real stores: in the background, on both profiles, across restarts and while others ask for more.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tempfile::TempDir;
use uuid::Uuid;
use weir_config::vocab::{Finding, Operation, Provider, Severity, SpanId, TenantId, Timestamp, TraceId};
use weir_storage::audit::AuditEvent;
use weir_storage::query::{Page, Paged};
use weir_storage::record::SpanRecord;
use weir_storage::reports::{EventsOfPeriod, ReportRecord, ReportStatus, ReportType, SpanPlace};
use weir_storage::{
    AuditLog as _, Backend, BatchOutcome, NotWritten, ReadError, ReportBook, SpanLog as _, Store, StoreObserver,
    StoreOptions,
};

use super::ReportBuilder;
use crate::record::{CallIds, blank};

const PATIENCE: Duration = Duration::from_secs(30);

struct Unobserved;

impl StoreObserver for Unobserved {
    fn batch(&self, _rows: usize, _took: Duration, _outcome: BatchOutcome) {}
    fn read(&self, _operation: &'static str, _took: Duration, _ok: bool) {}
}

fn options(backend: Backend) -> StoreOptions {
    StoreOptions {
        erase: weir_storage::Erase::Rows,
        backend,
        on_writer_start: || {},
        pause: || {},
        batch_timeout: Duration::from_secs(10),
        queue_items: 100_000,
        queue_bytes: 1 << 26,
        observer: Arc::new(Unobserved),
    }
}

fn file(path: &Path) -> Backend {
    Backend::Sqlite { path: path.to_owned(), auto_migrate: true, migration_copy: false }
}

fn memory() -> Store {
    Store::open(options(Backend::Memory { max_bytes: 1 << 28 })).unwrap()
}

/// A span that holds as little as a span can.
pub(super) fn sample_span() -> SpanRecord {
    *blank(&CallIds {
        tenant_id: TenantId::DEFAULT,
        trace_id: TraceId::fresh(),
        span_id: SpanId::fresh(),
        parent_span_id: None,
        agent_id: None,
        session_id: None,
        client: None,
        provider: Provider::OPENAI,
        priced_as: None,
        operation: Operation::ChatCompletion,
        path_model: None,
        start_time: Timestamp::from_micros(1_000_000),
    })
}

fn span(start_us: i64) -> SpanRecord {
    SpanRecord { start_time: at(start_us), security_score: Some(0), ..sample_span() }
}

fn tenant(number: u8) -> TenantId {
    TenantId::from_bytes([number; 16])
}

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn event(action: &str, tenant: Option<TenantId>) -> AuditEvent {
    let (actor, action) = ("bootstrap".to_owned(), action.to_owned());
    AuditEvent { tenant, actor, action, target: Some("k1".to_owned()), detail: BTreeMap::new() }
}

fn put(store: &Store, spans: impl IntoIterator<Item = SpanRecord>) {
    spans.into_iter().for_each(|span| store.append(Box::new(span)).unwrap());
    assert!(store.flush(PATIENCE));
}

fn on_both(test: impl Fn(&Store, &Arc<ReportBuilder>)) {
    let folder = TempDir::new().unwrap();
    let store = Store::open(options(file(&folder.path().join("service.db")))).unwrap();
    for store in [store, memory()] {
        test(&store, &ReportBuilder::new(Arc::new(store.clone()), || {}));
        assert!(store.close(PATIENCE));
    }
}

fn wait_for(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "{what} did not come about");
        std::thread::yield_now();
    }
}

fn ask(
    store: &Store,
    builder: &Arc<ReportBuilder>,
    whose: TenantId,
    report_type: ReportType,
    start: Timestamp,
    end: Timestamp,
) -> ReportRecord {
    let report = store.ask_report(true, whose, report_type, start, end).unwrap().unwrap();
    builder.wake();
    report
}

fn content(report: &ReportRecord) -> serde_json::Value {
    serde_json::from_str(report.content.as_ref().unwrap().as_str()).unwrap()
}

fn built(store: &Store, tenant: TenantId, id: Uuid) -> ReportRecord {
    wait_for("the report", || store.report(tenant, id).unwrap().unwrap().status != ReportStatus::Pending);
    store.report(tenant, id).unwrap().unwrap()
}

fn with_attack(tenant_id: TenantId, start: i64) -> SpanRecord {
    let finding = Finding {
        location: "request.messages[0].content".to_owned(),
        ..Finding::new("prompt_injection", Severity::High, 0.9, "rules", "made up")
    };
    SpanRecord { tenant_id, security_score: Some(80), security_findings: vec![finding], ..span(start) }
}

#[test]
fn a_report_counts_the_records_of_its_period_and_tenant() {
    on_both(|store, builder| {
        let ours = tenant(1);
        put(store, (0..3_000).map(|start| SpanRecord { tenant_id: ours, ..span(start) }));
        put(store, [with_attack(ours, 1_500), with_attack(ours, 3_500), with_attack(tenant(2), 1_500)]);
        for whose in [Some(ours), Some(tenant(2)), None, Some(ours)] {
            store.audit(event("key.create", whose)).unwrap();
        }
        let end = Timestamp::from_micros(Timestamp::now().micros() + 1_000_000_000);
        let asked = ask(store, builder, ours, ReportType::Soc2, at(1_000), at(2_000));
        let report = built(store, ours, asked.id);
        assert_eq!((report.status, report.error.as_ref()), (ReportStatus::Complete, None));
        assert!(report.completed_at >= Some(report.created_at));
        let part = content(&report);
        assert_eq!(part["records"]["spans"], 1_001, "the start counts, the end does not");
        assert_eq!(part["records"]["findings_by_type"]["prompt_injection"], 1);
        assert_eq!(part["controls"][0]["audit_event_count"], 0, "the events came later than the period");

        let asked = ask(store, builder, ours, ReportType::Soc2, at(0), end);
        let whole = content(&built(store, ours, asked.id));
        assert_eq!(whole["records"]["spans"], 3_002);
        assert_eq!(whole["controls"][0]["audit_event_count"], 3, "another tenant's event is not ours");
        let events = whole["controls"][0]["audit_events"].as_array().unwrap();
        let places: Vec<Option<u64>> = events.iter().map(|event| event["place"].as_u64()).collect();
        assert_eq!(places, [Some(1), None, Some(2)], "how many lines others have does not show");
        assert_eq!(events[2].get("seq"), None);
        assert_eq!(whole["audit_log"]["intact"], true);
        assert_ne!(whole["controls"], part["controls"], "two histories, two reports");
    });
}

#[test]
fn a_report_that_was_pending_at_the_end_is_built_after_the_next_start() {
    let folder = TempDir::new().unwrap();
    let open = || Store::open(options(file(&folder.path().join("service.db")))).unwrap();
    let store = open();
    put(&store, [SpanRecord { tenant_id: tenant(1), ..span(5) }]);
    let asked = store.ask_report(true, tenant(1), ReportType::Gdpr, at(0), at(10)).unwrap().unwrap();
    drop(store);
    let store = open();
    let builder = ReportBuilder::new(Arc::new(store.clone()), || {});
    builder.resume();
    let report = built(&store, tenant(1), asked.id);
    assert_eq!(content(&report)["records"]["spans"], 1);
}

static STARTED: Mutex<Vec<Option<String>>> = Mutex::new(Vec::new());

#[test]
fn the_thread_that_builds_reports_is_told_how_to_give_way_before_it_begins() {
    let store = memory();
    let note = || STARTED.lock().push(std::thread::current().name().map(str::to_owned));
    let builder = ReportBuilder::new(Arc::new(store.clone()), note);
    builder.resume();
    assert_eq!(STARTED.lock().len(), 0, "there is none without a report");
    let asked = ask(&store, &builder, tenant(1), ReportType::Gdpr, at(0), at(10));
    built(&store, tenant(1), asked.id);
    assert_eq!(*STARTED.lock(), [Some("weir-reports".to_owned())]);
}

#[test]
fn several_reports_asked_for_at_once_are_all_built() {
    on_both(|store, builder| {
        let kinds = [ReportType::Soc2, ReportType::Gdpr, ReportType::Hipaa];
        let asked: Vec<_> = (0..12)
            .map(|number| ask(store, builder, tenant(number % 4), kinds[usize::from(number % 3)], at(0), at(9)))
            .collect();
        for report in asked {
            assert_eq!(built(store, report.tenant_id, report.id).status, ReportStatus::Complete);
        }
    });
}

type Deed = Box<dyn FnMut() + Send>;

/// Does something else on the builder's thread when it has read for the given operation.
struct Meanwhile {
    operation: &'static str,
    deed: Mutex<Option<Deed>>,
}

impl StoreObserver for Meanwhile {
    fn batch(&self, _rows: usize, _took: Duration, _outcome: BatchOutcome) {}

    fn read(&self, operation: &'static str, _took: Duration, _ok: bool) {
        if operation == self.operation && std::thread::current().name() == Some("weir-reports") {
            // Taken out while it is done: it may read, too.
            let deed = self.deed.lock().take();
            if let Some(mut deed) = deed {
                deed();
                *self.deed.lock() = Some(deed);
            }
        }
    }
}

#[test]
fn a_report_can_be_asked_for_at_the_last_looks_for_another_one_and_none_is_missed() {
    let folder = TempDir::new().unwrap();
    let observer = Arc::new(Meanwhile { operation: "read_reports", deed: Mutex::new(None) });
    let backend = file(&folder.path().join("service.db"));
    let store = Store::open(StoreOptions { observer: observer.clone(), ..options(backend) }).unwrap();
    let builder = ReportBuilder::new(Arc::new(store.clone()), || {});
    let is_complete = |store: &Store, whose, id| {
        store.report(whose, id).unwrap().is_some_and(|it| it.status == ReportStatus::Complete)
    };
    let ask = |store: &Store, builder: &Arc<ReportBuilder>, whose| {
        ask(store, builder, whose, ReportType::Soc2, at(0), at(10)).id
    };
    let asked: Arc<Mutex<Vec<Uuid>>> = Arc::new(Mutex::new(vec![ask(&store, &builder, tenant(1))]));
    wait_for("the first report", || is_complete(&store, tenant(1), asked.lock()[0]));
    let (others, their_store, mut was_idle) = (Arc::clone(&asked), store.clone(), false);
    let their_builder = Arc::clone(&builder);
    let deed = move || {
        let mut asked = others.lock();
        let idle = asked.iter().all(|id| is_complete(&their_store, tenant(1), *id));
        // When nothing was found, and at the look that makes sure.
        if (idle || was_idle) && asked.len() < 8 {
            asked.push(ask(&their_store, &their_builder, tenant(1)));
        }
        was_idle = idle;
    };
    *observer.deed.lock() = Some(Box::new(deed));
    let another = ask(&store, &builder, tenant(2));
    wait_for("the reports", || {
        let asked = asked.try_lock().map(|asked| asked.clone()).unwrap_or_default();
        asked.len() == 8 && asked.iter().all(|id| is_complete(&store, tenant(1), *id))
    });
    assert!(is_complete(&store, tenant(2), another));
    *observer.deed.lock() = None;
}

/// A store of which one tenant's spans cannot be read without a panic, and neither can the next report while `broken`.
struct Breaking {
    store: Store,
    tenant: TenantId,
    broken: AtomicBool,
}

impl ReportBook for Breaking {
    fn ask_report(
        &self,
        begin: bool,
        tenant: TenantId,
        report_type: ReportType,
        start: Timestamp,
        end: Timestamp,
    ) -> Result<Option<ReportRecord>, NotWritten> {
        self.store.ask_report(begin, tenant, report_type, start, end)
    }

    fn list_reports(&self, tenant: TenantId, page: Page) -> Result<Paged<ReportRecord>, ReadError> {
        self.store.list_reports(tenant, page)
    }

    fn report(&self, tenant: TenantId, id: Uuid) -> Result<Option<ReportRecord>, ReadError> {
        self.store.report(tenant, id)
    }

    fn pending_report(&self) -> Result<Option<(TenantId, Uuid)>, ReadError> {
        assert!(!self.broken.swap(false, Ordering::SeqCst), "the whole store breaks");
        self.store.pending_report()
    }

    fn complete_report(&self, tenant: TenantId, id: Uuid, built: Result<String, String>) -> Result<(), NotWritten> {
        self.store.complete_report(tenant, id, built)
    }

    fn read_period(
        &self,
        tenant: TenantId,
        place: &mut SpanPlace,
        end: Timestamp,
        slice: Duration,
        take: &mut dyn FnMut(SpanRecord),
    ) -> Result<bool, ReadError> {
        assert_ne!(tenant, self.tenant, "this tenant's spans break the reader");
        self.store.read_period(tenant, place, end, slice, take)
    }

    fn read_events(&self, events: &mut EventsOfPeriod, slice: Duration) -> Result<bool, ReadError> {
        self.store.read_events(events, slice)
    }
}

#[test]
fn a_panic_costs_the_report_it_is_about_and_no_other() {
    let store = memory();
    let broken = AtomicBool::new(false);
    let book = Arc::new(Breaking { store: store.clone(), tenant: tenant(1), broken });
    let builder = ReportBuilder::over(Arc::clone(&book) as Arc<dyn ReportBook>, Arc::new(store.clone()), || {});
    let ask = |whose| ask(&store, &builder, whose, ReportType::Soc2, at(0), at(10)).id;
    let failed = built(&store, tenant(1), ask(tenant(1)));
    assert_eq!(failed.status, ReportStatus::Failed);
    assert!(failed.error.unwrap().contains("a bug in Weir"), "it says so");
    assert_eq!(built(&store, tenant(2), ask(tenant(2))).status, ReportStatus::Complete);

    // A thread that ends so leaves its place to another one.
    wait_for("the thread's end", || !builder.is_running());
    book.broken.store(true, Ordering::SeqCst);
    let left = ask(tenant(2));
    wait_for("its thread's end", || !book.broken.load(Ordering::SeqCst) && !builder.is_running());
    assert_eq!(store.report(tenant(2), left).unwrap().unwrap().status, ReportStatus::Pending);
    let next = ask(tenant(2));
    for id in [left, next] {
        assert_eq!(built(&store, tenant(2), id).status, ReportStatus::Complete);
    }
}
