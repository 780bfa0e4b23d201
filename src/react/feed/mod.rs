//! The feed of finished spans: what reads them after the answer (alerts, a router, export, shipping) is a [`Consumer`].
//!
//! ```text
//!  settle ──▶ store ──commit──▶ wake ┐
//!    │ not stored: storage off,      ├─▶ one task per consumer ─▶ take(batch) ─▶ cursor kept
//!    │ breaker open, queue full,     │      (network runtime)       │ retried with backoff
//!    │ batch given up                │                              ▼
//!    └──▶ a bounded queue each ──────┘                       given up: counted
//! ```
//!
//! Invariants: each span that is stored and concerns a consumer reaches it at least once, over crashes and restarts: its cursor
//! lies in the store and moves only behind what was taken. What is not stored waits in a bounded queue in memory; every span
//! a consumer does not get is counted under its name with the reason. Some are concerned by every span, some
//! by those with findings only: these read past all others. Where several processes have one store, those that would act twice
//! are read for by one of them, and by another when that is gone. A consumer that is slow or fails delays nobody else, and no core.
//! Without a consumer there is no thread, no queue and no work. Knows neither what consumers do nor HTTP.

mod consumer;
mod delivery;
mod progress;
mod queue;
mod tally;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use tokio::runtime::Handle;
use tokio::sync::watch;
use weir_storage::record::SpanRecord;
use weir_storage::{BatchOutcome, SpanLog, StoreObserver};

use crate::meter::{Exposition, Registry, Source, names};
use crate::outbound::Client;
pub use consumer::{Batch, Consumer, Failure, Limits, Texts};
pub use delivery::jittered;
use delivery::{Delivery, Orders};
pub use progress::Progress;
use queue::Waiting;

/// How long consumers that are given up may take to count what is lost with them.
const ABORT_LIMIT: Duration = Duration::from_secs(1);

/// Starts the task of one consumer.
type Begin = Box<dyn FnOnce(Arc<dyn SpanLog>, watch::Receiver<Orders>) -> BoxFuture<'static, ()> + Send>;

/// The consumers of a gateway that is being built.
pub struct Feed {
    client: Client,
    waiting: Vec<Arc<Waiting>>,
    begin: Vec<Begin>,
}

impl Feed {
    /// A feed without consumers; those that call out do so with `client`.
    pub fn new(client: Client) -> Self {
        Self { client, waiting: Vec::new(), begin: Vec::new() }
    }

    /// The client for calls out.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Adds a consumer. One that is new to the store begins with the spans that are stored from now on.
    pub fn add(&mut self, consumer: impl Consumer) {
        let waiting = Arc::new(Waiting::new(consumer.name(), consumer.heeds_clean_calls()));
        // They would share one cursor, and the slower one would miss what only the other had.
        assert!(
            self.waiting.iter().all(|other| other.name != waiting.name),
            "two consumers are called {}",
            waiting.name
        );
        self.waiting.push(Arc::clone(&waiting));
        self.begin.push(Box::new(move |store, orders| {
            // Found out now, before the first span can be stored: from here on nothing is skipped.
            Box::pin(Delivery::new(consumer, waiting, store, orders).run())
        }));
    }

    /// Where spans go in.
    pub fn inlet(&self) -> Arc<Inlet> {
        Arc::new(Inlet { consumers: self.waiting.clone() })
    }

    /// Starts the consumers on `runtime`, each with its counters in `registry`. What is stored waits for [`Running::go`].
    pub fn start(self, store: &Arc<dyn SpanLog>, runtime: Handle, registry: &Registry) -> Running {
        registry.add_source(Box::new(Tallies(self.waiting)));
        let (orders, given) = watch::channel(Orders { held: true, ..Orders::default() });
        let begin = |begin: Begin| runtime.spawn(begin(Arc::clone(store), given.clone()));
        let tasks = self.begin.into_iter().map(begin).collect();
        Running { tasks, orders: Arc::new(orders), runtime }
    }
}

/// The running consumers.
pub struct Running {
    tasks: Vec<tokio::task::JoinHandle<()>>,
    orders: Arc<watch::Sender<Orders>>,
    runtime: Handle,
}

impl Running {
    /// What is stored is this process's to bring from now on, behind what a former one has brought.
    pub fn go(&self) {
        self.orders.send_modify(|orders| orders.held = false);
    }

    /// To be called when another process on the same store goes on with what is stored. What only waits in memory is still
    /// brought, and at the end what the other one has left.
    pub fn hand_over(&self) -> impl Fn() + Send + 'static {
        let orders = Arc::clone(&self.orders);
        move || orders.send_modify(|orders| orders.handed_over = true)
    }

    /// Lets the consumers deal with what there is, for no longer than `within`. What is stored and not dealt with comes after
    /// the next start; what only waits in memory is lost and counted. Blocks.
    pub fn stop(self, within: Duration) {
        let Self { tasks, orders, runtime } = self;
        orders.send_modify(|orders| orders.stopping = true);
        let stopping: Vec<_> = tasks.iter().map(tokio::task::JoinHandle::abort_handle).collect();
        let mut all = join_all(tasks);
        runtime.block_on(async {
            if tokio::time::timeout(within, &mut all).await.is_err() {
                tracing::warn!(
                    "not all consumers of finished spans ended in time; they continue where they stopped after the restart"
                );
                stopping.iter().for_each(tokio::task::AbortHandle::abort);
                // They count what they lose. One that blocks its thread cannot be ended.
                let _blocked = tokio::time::timeout(ABORT_LIMIT, &mut all).await.is_err();
            }
        });
    }
}

/// Where finished spans, and word of stored ones, go in. Any thread may call it; nothing here waits.
pub struct Inlet {
    consumers: Vec<Arc<Waiting>>,
}

impl std::fmt::Debug for Inlet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.consumers.iter().map(|waiting| waiting.name)).finish()
    }
}

impl Inlet {
    /// A span that the store will not have.
    pub fn offer(&self, span: Box<SpanRecord>) {
        let bytes = weir_storage::weigh(&span);
        let span: Arc<SpanRecord> = Arc::from(span);
        for waiting in &self.consumers {
            waiting.push(Arc::clone(&span), bytes);
        }
    }

    /// Spans of calls have been stored.
    pub fn committed(&self) {
        self.consumers.iter().filter(|waiting| waiting.heeds_clean_calls).for_each(|waiting| waiting.wake());
    }

    /// Spans in which something was found have been stored, or reported ones, of which nothing is known here.
    fn found(&self) {
        self.consumers.iter().for_each(|waiting| waiting.wake());
    }
}

/// The store's observer where there are consumers: the feed, and whoever else is told.
pub struct Told<O> {
    /// The feed.
    pub inlet: Arc<Inlet>,
    /// Who is told as well.
    pub also: O,
}

impl<O: StoreObserver> StoreObserver for Told<O> {
    fn batch(&self, rows: usize, took: Duration, outcome: BatchOutcome) {
        self.also.batch(rows, took, outcome);
        // One that failed may have been stored in part.
        self.inlet.committed();
    }

    fn found(&self) {
        self.also.found();
        self.inlet.found();
    }

    fn given_up(&self, span: &SpanRecord) {
        self.also.given_up(span);
        self.inlet.offer(Box::new(span.clone()));
    }

    fn read(&self, operation: &'static str, took: Duration, ok: bool) {
        self.also.read(operation, took, ok);
    }

    fn write(&self, operation: &'static str, took: Duration, ok: bool) {
        self.also.write(operation, took, ok);
        if ok && operation == "insert_trace" {
            self.inlet.found();
        }
    }
}

/// All consumers' counters.
struct Tallies(Vec<Arc<Waiting>>);

impl Source for Tallies {
    fn collect(&self, out: &mut Exposition) {
        for waiting in &self.0 {
            let (consumer, tally) = (("consumer", waiting.name), &waiting.tally);
            out.counter(names::CONSUMER_DELIVERED, &[consumer], tally.delivered.get());
            out.counter(names::CONSUMER_FAILURES, &[consumer], tally.failures.get());
            for (reason, lost) in tally.losses() {
                out.counter(names::CONSUMER_LOST, &[consumer, ("reason", reason)], lost.get());
            }
        }
    }
}
