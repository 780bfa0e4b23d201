//! The writer over an engine that fails on command.

use std::collections::VecDeque;

use weir_config::vocab::SpanId;

use super::*;
use crate::audit::AuditEvent;
use crate::change::{Answer, Change};
use crate::encode::sample_span;
use crate::order::Receipt;
use crate::queue::weigh;
use crate::record::SpanRecord;

/// What the double saw and what it shall do next.
#[derive(Default)]
struct Script {
    committed: Vec<SpanId>,
    /// Lines of the audit log.
    lines: u64,
    /// Orders that were made together.
    groups: Vec<usize>,
    attempts: Vec<usize>,
    poison: Vec<SpanId>,
    panics: Vec<SpanId>,
    failures: VecDeque<&'static str>,
    always_failing: bool,
    recoveries: usize,
    closed: bool,
}

struct Double(Arc<Mutex<Script>>);

impl Engine for Double {
    fn write(&mut self, rows: &[Queued]) -> Result<usize, WriteError> {
        rows.iter().for_each(|_| pause::here());
        let mut script = self.0.lock();
        script.attempts.push(rows.len());
        if script.always_failing {
            return Err(WriteError::Store("still full".to_owned()));
        }
        if let Some(failure) = script.failures.pop_front() {
            return Err(WriteError::Store(failure.to_owned()));
        }
        let ids: Vec<SpanId> = rows.iter().map(|row| row.span.span_id).collect();
        if ids.iter().any(|id| script.panics.contains(id)) {
            drop(script);
            panic!("the double was told to");
        }
        if ids.iter().any(|id| script.poison.contains(id)) {
            return Err(WriteError::Row("poison".to_owned()));
        }
        script.committed.extend(ids);
        Ok(0)
    }

    fn carry_out(&mut self, orders: &mut [Order], _stamp: i32) -> Result<(), WriteError> {
        let mut script = self.0.lock();
        if let Some(failure) = script.failures.pop_front() {
            return Err(WriteError::Store(failure.to_owned()));
        }
        script.groups.push(orders.len());
        for order in orders {
            let answer = match order.change() {
                Change::InsertSpans { spans, .. } => {
                    script.committed.extend(spans.iter().map(|span| span.span_id));
                    Ok(Answer::Fates(vec![Fate::Stored; spans.len()]))
                }
                Change::Audit(event) if event.action == "panic" => panic!("the double was told to"),
                Change::Audit(event) if event.action == "poison" => Err(WriteError::Row("poison".to_owned())),
                Change::Audit(_) => {
                    script.lines += 1;
                    Ok(Answer::Line(script.lines))
                }
                _ => Err(WriteError::Row("the double does not know it".to_owned())),
            };
            if !matches!(order.made(answer), Ok(()) | Err(WriteError::Row(_))) {
                return Err(WriteError::Store("the double fails otherwise".to_owned()));
            }
        }
        Ok(())
    }

    fn recover(&mut self) -> Result<(), WriteError> {
        self.0.lock().recoveries += 1;
        Ok(())
    }

    fn tend(&mut self, _idle: bool) {}

    fn keep(&mut self) -> bool {
        false
    }

    fn close(&mut self) {
        self.0.lock().closed = true;
    }
}

/// The batches that ended, and the spans that were given up.
#[derive(Default)]
struct Seen(Mutex<Vec<(usize, BatchOutcome)>>, Mutex<Vec<SpanId>>);

impl StoreObserver for Seen {
    fn batch(&self, rows: usize, _took: Duration, outcome: BatchOutcome) {
        self.0.lock().push((rows, outcome));
    }

    fn given_up(&self, span: &SpanRecord) {
        self.1.lock().push(span.span_id);
    }

    fn read(&self, _operation: &'static str, _took: Duration, _ok: bool) {}
}

struct World {
    queue: Arc<Queue>,
    tally: Arc<Tally>,
    script: Arc<Mutex<Script>>,
    seen: Arc<Seen>,
    stop: Arc<Mutex<Option<Instant>>>,
    thread: Option<std::thread::JoinHandle<()>>,
    writer: Option<Writer>,
}

impl World {
    fn new(batch_timeout: Duration) -> Self {
        let queue = Arc::new(Queue::new(4096, usize::MAX));
        let tally = Arc::new(Tally::default());
        let script = Arc::new(Mutex::new(Script::default()));
        let seen = Arc::new(Seen::default());
        let stop = Arc::new(Mutex::new(None));
        let writer = Writer {
            queue: Arc::clone(&queue),
            tally: Arc::clone(&tally),
            engine: Box::new(Double(Arc::clone(&script))),
            observer: Arc::clone(&seen) as Arc<dyn StoreObserver>,
            batch_timeout,
            give_up_at: Arc::clone(&stop),
            kept: false,
            pause: || {},
        };
        Self { queue, tally, script, seen, stop, thread: None, writer: Some(writer) }
    }

    /// Queues fresh spans; before `start` they all meet in the same batches.
    fn push(&self, count: usize) -> Vec<SpanId> {
        let sink = crate::SpanSink::new(Arc::clone(&self.queue));
        (0..count)
            .map(|_| {
                let span_id = SpanId::fresh();
                sink.push(Box::new(SpanRecord { span_id, ..sample_span() })).unwrap();
                span_id
            })
            .collect()
    }

    fn start(&mut self) {
        let writer = self.writer.take().unwrap();
        self.thread = Some(std::thread::spawn(move || writer.run()));
    }

    /// Stops the writer once everything is dealt with.
    fn run_out(&mut self) {
        self.queue.close();
        self.thread.take().unwrap().join().unwrap();
    }

    fn run(&mut self) {
        self.start();
        self.run_out();
    }
}

#[test]
fn others_go_first_only_while_few_rows_wait() {
    static LET_GO: Mutex<usize> = Mutex::new(0);
    // Groups behind which as many wait as the bound says are written in haste; of the others each row is written and given back.
    for (rows, lets_go) in [(100, 200), (2 * ROWS_MAX + BEHIND_ROWS, 2 * BEHIND_ROWS)] {
        *LET_GO.lock() = 0;
        let mut world = World::new(Duration::from_secs(5));
        world.writer.as_mut().unwrap().pause = || *LET_GO.lock() += 1;
        world.push(rows);
        world.run();
        assert_eq!(world.script.lock().committed.len(), rows);
        assert_eq!(*LET_GO.lock(), lets_go, "{rows}");
    }
}

#[test]
fn groups_at_most_512_rows_in_order() {
    let mut world = World::new(Duration::from_secs(5));
    let ids = world.push(1200);
    world.run();
    let script = world.script.lock();
    assert_eq!(script.committed, ids);
    assert_eq!(script.attempts, [512, 512, 176]);
    assert!(script.closed);
    assert_eq!(world.seen.0.lock().as_slice(), [512, 512, 176].map(|rows| (rows, BatchOutcome::Committed)));
    assert_eq!((world.queue.items(), world.queue.bytes()), (0, 0));
}

#[test]
fn a_poison_row_is_dropped_alone() {
    let mut world = World::new(Duration::from_secs(5));
    let ids = world.push(100);
    world.script.lock().poison = vec![ids[37], ids[99]];
    world.run();
    let kept: Vec<SpanId> = ids.iter().copied().filter(|id| *id != ids[37] && *id != ids[99]).collect();
    assert_eq!(world.script.lock().committed, kept);
    assert_eq!(world.tally.poison.load(Ordering::Relaxed), 2);
    assert_eq!(world.tally.written.load(Ordering::Relaxed), 98);
    assert_eq!(world.seen.0.lock().as_slice(), [(98, BatchOutcome::Committed)], "content is no failure of the store");
    assert_eq!(*world.seen.1.lock(), [ids[37], ids[99]]);
}

#[test]
fn a_row_that_panics_the_engine_costs_itself_only() {
    let mut world = World::new(Duration::from_secs(5));
    let ids = world.push(8);
    world.script.lock().panics = vec![ids[5]];
    world.run();
    assert_eq!(world.script.lock().committed.len(), 7);
    assert_eq!(world.tally.poison.load(Ordering::Relaxed), 1);
}

#[test]
fn a_failed_batch_is_replayed_from_memory() {
    let mut world = World::new(Duration::from_secs(30));
    let ids = world.push(20);
    world.script.lock().failures = VecDeque::from(["disk full", "disk full", "I/O error"]);
    world.run();
    let script = world.script.lock();
    assert_eq!(script.committed, ids);
    assert_eq!((script.attempts.as_slice(), script.recoveries), ([20, 20, 20, 20].as_slice(), 3));
    assert_eq!(world.tally.failed.load(Ordering::Relaxed), 0);
    assert!(!world.tally.failing.load(Ordering::Relaxed), "the store counts as well again");
    assert_eq!(*world.tally.last_failure.lock(), "I/O error");
}

#[test]
fn a_batch_is_given_up_after_its_time_and_reported() {
    let mut world = World::new(Duration::from_millis(60));
    let ids = world.push(20);
    world.script.lock().always_failing = true;
    world.run();
    assert_eq!(*world.seen.1.lock(), ids);
    assert_eq!(world.tally.failed.load(Ordering::Relaxed), 20);
    assert_eq!(world.seen.0.lock().as_slice(), [(20, BatchOutcome::Failed)]);
    assert_eq!(world.queue.bytes(), 0, "what was given up is not held in memory");
    assert!(world.script.lock().attempts.len() >= 3, "it was replayed first");
}

#[test]
fn a_stop_ends_the_replay_early() {
    let mut world = World::new(Duration::from_secs(3600));
    world.push(5);
    world.script.lock().always_failing = true;
    *world.stop.lock() = Some(Instant::now() + Duration::from_millis(30));
    let started = Instant::now();
    world.run();
    assert!(started.elapsed() < Duration::from_secs(30));
    assert_eq!(world.tally.failed.load(Ordering::Relaxed), 5);
}

#[test]
fn a_flush_covers_everything_pushed_before_it() {
    let mut world = World::new(Duration::from_secs(5));
    world.start();
    for round in 1..=50 {
        let ids = world.push(round);
        assert!(world.queue.flush(Duration::from_secs(20)));
        let script = world.script.lock();
        assert_eq!(script.committed[script.committed.len() - round..], ids);
    }
    world.run_out();
}

#[test]
fn a_push_wakes_a_writer_that_sleeps() {
    let mut world = World::new(Duration::from_secs(5));
    world.start();
    // One that nobody wakes gets up when it has rested; on a busy machine one that is woken may be late, but not each time.
    let quick = (0..5).any(|before| {
        while !world.queue.is_asleep() {
            std::thread::yield_now();
        }
        let started = Instant::now();
        world.push(1);
        while world.tally.written.load(Ordering::Relaxed) == before {
            assert!(started.elapsed() < REST * 20, "it is written");
            std::thread::yield_now();
        }
        started.elapsed() < REST / 2
    });
    assert!(quick, "five times nobody woke it");
    world.run_out();
}

impl World {
    fn order(&self, change: Change) -> Receipt {
        let (order, receipt) = Order::new(change);
        self.queue.order(order).unwrap();
        receipt
    }

    fn audit(&self, action: &str) -> Receipt {
        let action = action.to_owned();
        let event =
            AuditEvent { tenant: None, actor: "a test".to_owned(), action, target: None, detail: Default::default() };
        self.order(Change::Audit(event))
    }

    fn insert(&self, prompt_bytes: usize) -> (SpanId, Receipt) {
        let span = SpanRecord { span_id: SpanId::fresh(), prompt: Some("x".repeat(prompt_bytes)), ..sample_span() };
        let (id, room) = (span.span_id, self.queue.hold(weigh(&span)).unwrap());
        (id, self.order(Change::InsertSpans { spans: vec![span], room }))
    }
}

#[test]
fn changes_are_made_after_a_failure_and_one_that_cannot_be_fails_alone() {
    let mut world = World::new(Duration::from_secs(5));
    world.script.lock().failures = VecDeque::from(["disk full"]);
    let receipts = ["key.create", "poison", "key.create"].map(|action| world.audit(action));
    world.run();
    let answers = receipts.map(|receipt| receipt.wait(Duration::ZERO));
    let refused = Err(NotWritten::Refused { reason: "poison".to_owned() });
    assert_eq!(answers, [Ok(Answer::Line(1)), refused, Ok(Answer::Line(2))]);
    assert_eq!(world.script.lock().recoveries, 1);
}

#[test]
fn a_change_that_panics_costs_itself_only() {
    let mut world = World::new(Duration::from_secs(5));
    let receipts = ["key.create", "panic", "key.create"].map(|action| world.audit(action));
    world.run();
    let [first, panicked, last] = receipts.map(|receipt| receipt.wait(Duration::ZERO));
    assert!(matches!(panicked, Err(NotWritten::Refused { .. })), "{panicked:?}");
    assert!(first.is_ok() && last.is_ok());
}

#[test]
fn spans_that_are_waited_for_go_in_by_groups_and_give_their_room_back() {
    let mut world = World::new(Duration::from_secs(5));
    let (ids, receipts): (Vec<_>, Vec<_>) =
        [5_000_000, 5_000_000, 1_000, 20_000_000].map(|bytes| world.insert(bytes)).into_iter().unzip();
    assert!(world.queue.bytes() > 30_000_000);
    world.run();
    assert!(receipts.into_iter().all(|receipt| receipt.wait(Duration::ZERO) == Ok(Answer::Fates(vec![Fate::Stored]))));
    let script = world.script.lock();
    assert_eq!((script.committed.as_slice(), script.groups.as_slice()), (ids.as_slice(), [1, 2, 1].as_slice()));
    assert_eq!(world.queue.bytes(), 0);
}
