//! Consumers over a real store in memory.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::runtime::Runtime;
use weir_config::vocab::{Finding, Severity, SpanId, TenantId};
use weir_storage::audit::AuditEvent;
use weir_storage::{Backend, Store, StoreOptions};

use super::*;
use crate::feed::testing::blank_call as span;

const PATIENCE: Duration = Duration::from_secs(20);

/// What a consumer does with a batch.
const TAKE: u8 = 0;
const FAIL: u8 = 1;
const REFUSE: u8 = 2;
const PANIC: u8 = 3;
const HANG: u8 = 4;

/// A consumer that notes what it takes, and fails as it is told.
#[derive(Clone)]
struct Toy {
    name: &'static str,
    mood: Arc<AtomicU8>,
    attempts: Arc<AtomicUsize>,
    taken: Arc<Mutex<Vec<SpanId>>>,
    limits: Limits,
    heeds_clean_calls: bool,
}

impl Toy {
    fn new(name: &'static str, mood: u8) -> Self {
        let mood = Arc::new(AtomicU8::new(mood));
        let (attempts, taken, limits) = (Arc::default(), Arc::default(), Limits::default());
        Self { name, mood, attempts, taken, limits, heeds_clean_calls: true }
    }

    fn becomes(&self, mood: u8) {
        self.mood.store(mood, Ordering::SeqCst);
    }

    fn taken(&self) -> Vec<SpanId> {
        self.taken.lock().clone()
    }
}

impl Consumer for Toy {
    fn name(&self) -> &'static str {
        self.name
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn heeds_clean_calls(&self) -> bool {
        self.heeds_clean_calls
    }

    async fn take(&mut self, batch: Batch<'_>) -> Result<(), Failure> {
        self.attempts.fetch_add(1, Ordering::SeqCst);
        match self.mood.load(Ordering::SeqCst) {
            FAIL => return Err(Failure::Later { reason: "not now".to_owned(), after: None }),
            REFUSE => return Err(Failure::Never { reason: "never".to_owned() }),
            PANIC => panic!("a toy breaks"),
            HANG => std::future::pending().await,
            _ => {}
        }
        self.taken.lock().extend(batch.spans.iter().map(|span| span.span_id));
        Ok(())
    }
}

/// What the gateway puts together in `boot`.
struct World {
    runtime: Runtime,
    store: Store,
    registry: Registry,
    inlet: Arc<Inlet>,
    running: Option<Running>,
    looks: Looks,
}

/// How often the store was read for consumers.
#[derive(Clone, Default)]
struct Looks(Arc<AtomicUsize>);

impl StoreObserver for Looks {
    fn batch(&self, _: usize, _: Duration, _: BatchOutcome) {}

    fn read(&self, operation: &'static str, _: Duration, _: bool) {
        self.0.fetch_add(usize::from(operation == "read_feed"), Ordering::SeqCst);
    }
}

fn log(store: &Store) -> Arc<dyn SpanLog> {
    Arc::new(store.clone())
}

fn feed(toys: &[&Toy]) -> Feed {
    let client = Client::new(&weir_config::Settings::default().egress, None, Duration::from_secs(1)).unwrap();
    let mut feed = Feed::new(client);
    toys.iter().for_each(|toy| feed.add(Toy::clone(toy)));
    feed
}

impl World {
    fn new(toys: &[&Toy]) -> Self {
        let feed = feed(toys);
        let (inlet, looks) = (feed.inlet(), Looks::default());
        let store = Store::open(StoreOptions {
            erase: weir_storage::Erase::Rows,
            backend: Backend::Memory { max_bytes: 1 << 28 },
            batch_timeout: Duration::from_secs(10),
            queue_items: 65_536,
            queue_bytes: 1 << 26,
            observer: Arc::new(Told { inlet: Arc::clone(&inlet), also: looks.clone() }),
            on_writer_start: || {},
            pause: || {},
        })
        .unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let registry = Registry::new();
        let running = feed.start(&log(&store), runtime.handle().clone(), &registry);
        running.go();
        let running = Some(running);
        Self { runtime, store, registry, inlet, running, looks }
    }

    fn store(&self, count: usize) -> Vec<SpanId> {
        let sink = self.store.sink();
        let ids = (0..count).map(|_| {
            let span = span();
            let id = span.span_id;
            sink.push(span).unwrap();
            id
        });
        let ids = ids.collect();
        assert!(self.store.flush(PATIENCE));
        ids
    }

    fn counted(&self, metric: &str) -> u64 {
        let text = self.registry.render().unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {metric} in\n{text}")).parse().unwrap()
    }

    fn lost(&self, consumer: &str, reason: &str) -> u64 {
        self.counted(&format!("service_consumer_lost_total{{consumer=\"{consumer}\",reason=\"{reason}\"}}"))
    }

    fn stop(&mut self, within: Duration) {
        self.running.take().unwrap().stop(within);
    }
}

#[track_caller]
fn eventually(mut is: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is() {
        assert!(Instant::now() < end, "this did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn stored_spans_come_once_and_in_order_and_a_restart_goes_on_behind_them() {
    let toy = Toy::new("toy", TAKE);
    let mut world = World::new(&[&toy]);
    let mut all = world.store(700);
    eventually(|| toy.taken().len() == 700);
    assert_eq!(toy.taken(), all);
    world.stop(PATIENCE);
    all.extend(world.store(20));
    let again = feed(&[&toy]).start(&log(&world.store), world.runtime.handle().clone(), &Registry::new());
    again.go();
    eventually(|| toy.taken().len() >= 720);
    assert_eq!(toy.taken(), all);
    again.stop(PATIENCE);
    assert_eq!(world.counted("service_consumer_spans_total{consumer=\"toy\"}"), 700);
}

#[test]
fn a_consumer_that_fails_gets_the_same_again_and_delays_nobody() {
    let (steady, failing) = (Toy::new("steady", TAKE), Toy::new("failing", FAIL));
    let (hanging, broken) = (Toy::new("hanging", HANG), Toy::new("broken", PANIC));
    let world = World::new(&[&hanging, &failing, &broken, &steady]);
    let ids = world.store(10);
    eventually(|| steady.taken() == ids);
    eventually(|| failing.attempts.load(Ordering::SeqCst) >= 2 && broken.attempts.load(Ordering::SeqCst) >= 2);
    assert!(failing.taken().is_empty() && broken.taken().is_empty() && hanging.taken().is_empty());
    failing.becomes(TAKE);
    broken.becomes(TAKE);
    eventually(|| failing.taken().len() >= 10 && broken.taken().len() >= 10);
    assert_eq!((failing.taken(), broken.taken()), (ids.clone(), ids));
    assert!(world.counted("service_consumer_failures_total{consumer=\"failing\"}") >= 2);
}

#[test]
fn what_is_deleted_while_a_consumer_fails_is_not_brought_again() {
    let toy = Toy::new("toy", FAIL);
    let world = World::new(&[&toy]);
    let attempts = || toy.attempts.load(Ordering::SeqCst);
    let delete = |id| {
        let span = world.store.span(TenantId::DEFAULT, id).unwrap().unwrap();
        let by = AuditEvent {
            tenant: Some(TenantId::DEFAULT),
            actor: "local".to_owned(),
            action: "trace.delete".to_owned(),
            target: None,
            detail: BTreeMap::new(),
        };
        assert!(world.store.delete_trace(TenantId::DEFAULT, span.trace_id, by).unwrap());
    };
    let ids = world.store(3);
    eventually(|| attempts() >= 1);
    delete(ids[1]);
    // The first one may have been on its way to the consumer.
    let before = attempts();
    eventually(|| attempts() >= before + 2);
    toy.becomes(TAKE);
    eventually(|| toy.taken().len() >= 2);
    assert_eq!((toy.taken(), world.lost("toy", "removed")), (vec![ids[0], ids[2]], 1));
    toy.becomes(FAIL);
    let before = attempts();
    let alone = world.store(1);
    eventually(|| attempts() > before);
    delete(alone[0]);
    eventually(|| world.lost("toy", "removed") == 2);
    toy.becomes(TAKE);
    let next = world.store(1);
    eventually(|| toy.taken().len() >= 3);
    assert_eq!(toy.taken()[2..], next);
}

#[test]
fn what_is_refused_or_takes_too_long_is_counted_and_passed_over() {
    let (refusing, mut slow) = (Toy::new("refusing", REFUSE), Toy::new("slow", HANG));
    slow.limits = Limits { attempt: Duration::from_millis(50), batch: Duration::from_millis(100) };
    let world = World::new(&[&refusing, &slow]);
    world.store(3);
    eventually(|| world.lost("refusing", "refused") == 3 && world.lost("slow", "given_up") == 3);
    refusing.becomes(TAKE);
    slow.becomes(TAKE);
    let ids = world.store(2);
    eventually(|| refusing.taken() == ids && slow.taken() == ids);
}

#[test]
fn what_is_not_stored_waits_in_memory_and_every_loss_is_counted() {
    let (free, stuck) = (Toy::new("free", TAKE), Toy::new("stuck", FAIL));
    let mut world = World::new(&[&free, &stuck]);
    const ALL: usize = queue::SPANS_MAX + 2_000;
    for round in 0..ALL {
        world.inlet.offer(span());
        if round % 1_000 == 0 {
            // The free one keeps up with what is brought.
            eventually(|| free.taken().len() + 1_000 >= round);
        }
    }
    eventually(|| free.taken().len() == ALL);
    assert_eq!(world.lost("free", "queue_full"), 0);
    let lost = world.lost("stuck", "queue_full");
    assert!(lost >= (ALL - queue::SPANS_MAX - delivery::BATCH_SPANS) as u64, "{lost}");
    world.stop(PATIENCE);
    assert_eq!(world.lost("stuck", "shutdown") + lost, ALL as u64, "nothing is forgotten");
}

#[test]
fn a_stop_waits_for_what_is_there_and_leaves_the_rest_to_the_next_start() {
    let (ready, stuck) = (Toy::new("ready", TAKE), Toy::new("stuck", HANG));
    let mut world = World::new(&[&ready, &stuck]);
    let ids = world.store(600);
    let begun = Instant::now();
    world.stop(Duration::from_millis(500));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    stuck.becomes(TAKE);
    let again = feed(&[&ready, &stuck]).start(&log(&world.store), world.runtime.handle().clone(), &Registry::new());
    again.go();
    eventually(|| stuck.taken().len() >= 600 && ready.taken().len() >= 600);
    assert_eq!(stuck.taken(), ids, "it begins with what it never took");
    assert_eq!(ready.taken().into_iter().collect::<HashSet<_>>().len(), 600);
    again.stop(PATIENCE);
}

#[test]
fn what_is_lost_with_a_consumer_that_is_given_up_is_counted() {
    let stuck = Toy::new("stuck", HANG);
    let mut world = World::new(&[&stuck]);
    for _ in 0..300 {
        world.inlet.offer(span());
    }
    eventually(|| stuck.attempts.load(Ordering::SeqCst) == 1);
    world.stop(Duration::from_millis(50));
    assert_eq!(world.lost("stuck", "shutdown"), 300, "those of the batch under way, and those that wait");
}

/// Two processes over one store: each with a toy of its own under the same name.
#[test]
fn one_process_at_a_time_brings_what_is_stored() {
    let (former, latter) = (Toy::new("toy", TAKE), Toy::new("toy", TAKE));
    let mut world = World::new(&[&former]);
    let mut all = world.store(10);
    eventually(|| former.taken() == all);
    let successor = feed(&[&latter]);
    let inlet = successor.inlet();
    let successor = successor.start(&log(&world.store), world.runtime.handle().clone(), &Registry::new());
    // While it builds, the other one goes on.
    all.extend(world.store(10));
    eventually(|| former.taken() == all);
    world.running.as_ref().unwrap().hand_over()();
    successor.go();
    // The former one may be reading at that moment and take these as well: what matters is that nobody passes them over.
    let next = world.store(10);
    inlet.committed();
    eventually(|| next.iter().all(|id| former.taken().contains(id) || latter.taken().contains(id)));
    let last = world.store(10);
    inlet.committed();
    eventually(|| latter.taken().ends_with(&last));
    assert!(former.taken().starts_with(&all));
    // What waits in memory is nobody else's.
    let own = span();
    let id = own.span_id;
    world.inlet.offer(own);
    eventually(|| former.taken().contains(&id));
    assert!(!latter.taken().contains(&id));
    // At the end there is nothing left to do, although what is stored goes on.
    let storing = std::sync::atomic::AtomicBool::new(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while storing.load(Ordering::SeqCst) {
                world.store.sink().push(span()).unwrap();
                world.store.flush(PATIENCE);
                inlet.committed();
            }
        });
        let running = world.running.take().unwrap();
        let begun = Instant::now();
        running.stop(PATIENCE);
        let took = begun.elapsed();
        storing.store(false, Ordering::SeqCst);
        assert!(took < PATIENCE, "{took:?}");
    });
    successor.stop(PATIENCE);
    let twice = former.taken().into_iter().filter(|id| latter.taken().contains(id)).count();
    assert!(twice <= 2 * delivery::BATCH_SPANS, "{twice}");
}

#[test]
fn calls_that_do_not_concern_a_consumer_bring_no_further_looks() {
    let toy = Toy { heeds_clean_calls: false, ..Toy::new("toy", TAKE) };
    let mut world = World::new(&[&toy]);
    world.store(1);
    // A look in the middle of such calls, of which there are more whenever it looks again.
    world.inlet.found();
    let (begun, mut stored) = (Instant::now(), 1);
    while begun.elapsed() < Duration::from_millis(600) {
        stored += world.store(1).len() as u64;
    }
    let looks = world.looks.0.load(Ordering::SeqCst);
    // Those of the start and the one that was asked for; every 50 ms would make twelve.
    assert!(looks <= 4, "{looks} looks while {stored} calls were stored");
    let mut found = span();
    found.security_findings = vec![Finding::new("jailbreak", Severity::High, 0.9, "rules", "")];
    let id = found.span_id;
    world.store.sink().push(found).unwrap();
    eventually(|| toy.taken() == [id]);
    world.stop(PATIENCE);
    assert_eq!(world.counted("service_consumer_spans_total{consumer=\"toy\"}"), stored + 1, "the others are counted");
    assert_eq!(world.lost("toy", "removed"), 0);
}

#[test]
fn batches_grow_while_many_calls_come_and_few_are_not_kept_waiting() {
    let second = Duration::from_secs(1);
    // 400 calls a second: what comes meanwhile is the next batch.
    let mut breath = Duration::from_millis(50);
    for _ in 0..20 {
        let spans = (breath.as_secs_f64() * 400.0) as usize;
        breath = super::delivery::next_breath(breath, spans, second);
    }
    assert_eq!(breath, second);
    assert_eq!(super::delivery::next_breath(breath, 8, second), Duration::from_millis(50));
    assert_eq!(super::delivery::next_breath(second, 200, Duration::ZERO), Duration::from_millis(50), "who has none");
}
