//! The store's handle: opens an engine, starts the storage thread. What it is asked for stands in `roles`.
//!
//! Everything here may block and is called off the core threads, except [`Store::sink`]'s pushes. Both profiles answer
//! alike; which one is behind a store shows only in what survives the process.

mod local;
mod roles;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::error::{OpenError, ReadError};
use crate::leases::{Leased, Wish};
use crate::observer::StoreObserver;
use crate::production::{self, Imported, Migrated, Production, StoreReports, StoreState, Stores};
use crate::queue::{Queue, SpanSink};
use crate::retention::{Erase, Policy, Retention, Space};
use crate::roles::SpanLog as _;
use crate::spend::Ledger;
use crate::sqlite::{self, Auditor, CopyFirst, Home, MigrationReport, Pending, Readers, SqliteEngine};
use crate::writer::{Tally, Writer};

/// What a store that is dropped without [`Store::close`] waits for its writer.
const DROP_WAIT: Duration = Duration::from_secs(5);

/// Where records are kept.
#[derive(Debug, Clone)]
pub enum Backend {
    /// One database file.
    Sqlite {
        /// The file; created when absent.
        path: PathBuf,
        /// Apply pending migrations instead of refusing to open.
        auto_migrate: bool,
        /// Whether a file that is migrated is copied before, beside itself (`<path>.schema-<version>`).
        migration_copy: bool,
    },
    /// Stores that several gateways share, and one file on the way there.
    Production {
        /// The journal; created when absent.
        path: PathBuf,
        /// The stores.
        stores: Box<Stores>,
    },
    /// In this process; the oldest arrivals are forgotten beyond the bound.
    Memory {
        /// Bound in bytes of records.
        max_bytes: usize,
    },
}

/// How to open a store.
pub struct StoreOptions {
    /// Where records are kept.
    pub backend: Backend,
    /// How thoroughly what is deleted is overwritten in a file.
    pub erase: Erase,
    /// How long a batch that cannot be written is replayed (`trace_storage_timeout_ms`).
    pub batch_timeout: Duration,
    /// Spans the queue holds at most.
    pub queue_items: usize,
    /// Bytes of spans that are queued or being written at most.
    pub queue_bytes: usize,
    /// Called once on the thread that writes, before all else.
    pub on_writer_start: fn(),
    /// Called often on a thread that reads or writes, after pieces of a few dozen microseconds: a place where it may let others go
    /// first. The writer leaves it out while spans pile up.
    pub pause: fn(),
    /// Told of every batch and read.
    pub observer: Arc<dyn StoreObserver>,
}

/// The store's counters at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CountersSnapshot {
    /// Spans committed.
    pub written: u64,
    /// Spans refused because the queue was full.
    pub dropped_queue_full: u64,
    /// Spans taken without their texts, for which there was no room.
    pub without_texts: u64,
    /// Spans refused because the store was closed.
    pub dropped_closed: u64,
    /// Spans given up with their batch.
    pub dropped_failed: u64,
    /// Spans that no store could take, found and dropped alone.
    pub dropped_poison: u64,
    /// Spans whose tenant was deleted after they began.
    pub dropped_tenant_deleted: u64,
    /// Batches committed.
    pub batches_committed: u64,
    /// Batches given up, in whole or in part.
    pub batches_failed: u64,
    /// Spans waiting in the queue.
    pub queue_items: usize,
    /// Bytes of spans waiting or being written.
    pub queue_bytes: usize,
}

/// A handle to the store. Cheap to clone; the last one to go closes it.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    queue: Arc<Queue>,
    tally: Arc<Tally>,
    observer: Arc<dyn StoreObserver>,
    readers: Readers,
    give_up_at: Arc<Mutex<Option<Instant>>>,
    /// Spans lost until the first `close` was called.
    lost_before_close: AtomicU64,
    policy: Arc<Policy>,
    auditor: Auditor,
    /// What the file holds of what was spent.
    ledger: Mutex<Ledger>,
    /// The database; `None` for one in memory.
    file: Option<PathBuf>,
    /// What several gateways share, where they do.
    production: OnceLock<Arc<Production>>,
}

impl Store {
    /// Opens the store and starts its thread.
    ///
    /// # Errors
    /// See [`OpenError`]; each message says what to do.
    pub fn open(options: StoreOptions) -> Result<Self, OpenError> {
        let mut shared = None;
        let at_once = Pending { apply: true, copy: CopyFirst::Never };
        let (home, due) = match options.backend {
            Backend::Production { path, stores } => {
                let due = Pending { apply: stores.auto_migrate, copy: CopyFirst::WhereThereIsRoom };
                shared = Some(stores);
                (Home::File(path, options.erase), due)
            }
            Backend::Sqlite { path, auto_migrate, migration_copy } => {
                let copy = if migration_copy { CopyFirst::WhereThereIsRoom } else { CopyFirst::Never };
                (Home::File(path, options.erase), Pending { apply: auto_migrate, copy })
            }
            Backend::Memory { max_bytes } => (Home::memory(max_bytes), at_once),
        };
        let policy = Arc::new(Policy::default());
        let mut engine = Box::new(SqliteEngine::open(&home, due, Arc::clone(&policy))?);
        engine
            .wait_at_most(options.batch_timeout)
            .map_err(|error| OpenError::Unwritable { path: home.path().to_owned(), reason: error.to_string() })?;
        let file = if let Home::File(path, _) = &home { Some(path.clone()) } else { None };
        let readers = Readers::new(home, options.pause);
        let queue = Arc::new(Queue::new(options.queue_items, options.queue_bytes));
        let tally = Arc::new(Tally::default());
        let give_up_at = Arc::new(Mutex::new(None));
        let writer = Writer {
            queue: Arc::clone(&queue),
            tally: Arc::clone(&tally),
            engine,
            observer: Arc::clone(&options.observer),
            batch_timeout: options.batch_timeout,
            give_up_at: Arc::clone(&give_up_at),
            kept: false,
            pause: options.pause,
        };
        std::thread::Builder::new()
            .name("weir-store".to_owned())
            .spawn(move || {
                (options.on_writer_start)();
                writer.run();
            })
            .map_err(|error| OpenError::Thread { reason: error.to_string() })?;
        let lost_before_close = AtomicU64::new(u64::MAX);
        let inner = Inner {
            queue,
            tally,
            observer: options.observer,
            readers,
            give_up_at,
            lost_before_close,
            auditor: Auditor::default(),
            ledger: Mutex::default(),
            policy,
            file,
            production: OnceLock::new(),
        };
        let store = Self { inner: Arc::new(inner) };
        if let Some(stores) = shared {
            store.open_stores(&stores)?;
        }
        Ok(store)
    }

    fn open_stores(&self, stores: &Stores) -> Result<(), OpenError> {
        let production = Arc::new(Production::open(stores, &self.local_reads())?);
        let weak = Arc::downgrade(&self.inner);
        let _first = self.inner.production.set(Arc::clone(&production)).is_ok();
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(run);
            spawned.map(|_| ()).map_err(|error| OpenError::Thread { reason: error.to_string() })
        };
        let open =
            |weak: Weak<Inner>| move || weak.upgrade().filter(|inner| !inner.is_closing()).map(|inner| Self { inner });
        let (shipping, gone) = (Arc::clone(&production), weak.clone());
        spawn("weir-ship", Box::new(move || shipping.run_shipper(open(gone))))?;
        spawn("weir-follow", Box::new(move || production.follow(open(weak))))
    }

    /// How the stores of the `production` profile are; none of another profile.
    pub fn store_states(&self) -> Vec<StoreState> {
        self.production().map(|production| production.states()).unwrap_or_default()
    }

    /// Spans that lie in the journal only; 0 of another profile.
    pub fn backlog(&self) -> u64 {
        self.production().map_or(0, |production| production.backlog(self))
    }

    /// Applies pending migrations to the stores of the `production` profile.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn migrate_stores(stores: &Stores) -> Result<Migrated, OpenError> {
        production::migrate_stores(stores)
    }

    /// Copies the record of a database file, which nobody may use meanwhile, into the stores of the `production` profile; called again, it
    /// goes on where it stopped. `tell` is told how many of how many rows of spans are passed.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn import(stores: &Stores, path: &Path, mut tell: impl FnMut(u64, u64)) -> Result<Imported, OpenError> {
        production::import(stores, path, &mut tell)
    }

    /// What each of these stores says of itself: its name, and how it is or what is wrong.
    ///
    /// # Errors
    /// They cannot even be asked.
    pub fn examine_stores(stores: &Stores) -> Result<StoreReports, OpenError> {
        production::examine_stores(stores)
    }

    /// A secret that all gateways on the same stores have: the one that is kept, or `own`, which is kept from then on. `own` itself
    /// where nothing is shared.
    ///
    /// # Errors
    /// [`NotWritten`](crate::NotWritten).
    pub fn share_secret(&self, name: &str, own: Option<&[u8]>) -> Result<Option<Vec<u8>>, crate::NotWritten> {
        match self.production() {
            Some(production) => production.share_secret(name, own),
            None => Ok(own.map(<[u8]>::to_vec)),
        }
    }

    /// How much more other gateways on the same stores or the same file have spent since this was last asked, by agent and window.
    /// Reads all that was spent in running periods.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn spent_elsewhere(&self, now_s: i64) -> Result<Vec<crate::SpendRow>, ReadError> {
        if let Some(production) = self.production() {
            return production.spent_elsewhere(now_s);
        }
        let mut ledger = self.inner.ledger.lock();
        Ok(ledger.count_in(self.local_reads().load_spend(now_s)?))
    }

    /// Takes slices of shared rate limits, or gives them back: once for each `number`, however often it is called with it and the same
    /// wishes. Blocks.
    ///
    /// # Errors
    /// See [`ReadError`]; whether it was done is not known, and the same `number` finds out.
    pub fn lease(&self, number: u64, wishes: &[Wish]) -> Result<Leased, ReadError> {
        match self.production() {
            Some(production) => production.lease(number, wishes),
            None => Ok(Leased { gateways: 1, granted: wishes.iter().map(|wish| wish.tokens).collect() }),
        }
    }

    /// How many gateways share limits, as far as is known; `None` where nothing is shared.
    pub fn gateways(&self) -> Option<u32> {
        self.production().map(|production| production.gateways())
    }

    /// Applies pending migrations to a database file and closes it again; before that the file is copied, where that is asked for.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn migrate(path: &Path, copies: bool) -> Result<MigrationReport, OpenError> {
        sqlite::migrate(path, copies)
    }

    /// Takes the last migration of a database file back, which nobody may use meanwhile.
    ///
    /// # Errors
    /// See [`OpenError`]; the file is as it was.
    pub fn migrate_down(path: &Path) -> Result<MigrationReport, OpenError> {
        sqlite::down(path)
    }

    /// Whether a start would take this existing database file, which stays as it is: how many migrations it would apply.
    ///
    /// # Errors
    /// See [`OpenError`]; with `auto_migrate` false pending migrations are one.
    pub fn examine(path: &Path, auto_migrate: bool) -> Result<usize, OpenError> {
        sqlite::examine(path, auto_migrate)
    }

    /// Bounds what is kept, from now on. Without a call everything is kept.
    pub fn set_retention(&self, retention: Retention) {
        match self.production() {
            // Ages are those of the shared record. What the journal holds goes once it is shipped.
            Some(production) => {
                self.inner.policy.set(Retention { max_age: None, text_max_age: None, ..retention });
                production.set_retention(retention);
            }
            None => self.inner.policy.set(retention),
        }
    }

    /// Whether what is stored lies in a file, which other processes may have, too.
    pub fn is_a_file(&self) -> bool {
        self.inner.file.is_some()
    }

    /// The bounds in bytes, and what was removed for them.
    pub fn space(&self) -> Space {
        self.inner.policy.space()
    }

    /// How many damaged records reads have met since the start, up to a thousand.
    pub fn damaged_records(&self) -> usize {
        self.inner.readers.damage.rows()
    }

    /// Where spans go in.
    pub fn sink(&self) -> SpanSink {
        SpanSink::new(Arc::clone(&self.inner.queue))
    }

    /// Whether the store can be read and, as far as the last write tells, written.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn probe(&self) -> Result<(), ReadError> {
        if self.inner.tally.failing.load(Ordering::Relaxed) {
            return Err(ReadError::NotWritable { reason: self.inner.tally.last_failure.lock().clone() });
        }
        self.inner.readers.probe()
    }

    /// The counters now.
    pub fn counters(&self) -> CountersSnapshot {
        self.inner.counters()
    }

    /// Takes no more spans, commits those it has, empties the log and ends the thread. Calling it again waits again.
    /// False when that takes longer than `within`, or spans were lost meanwhile.
    pub fn close(&self, within: Duration) -> bool {
        let begun = Instant::now();
        if let Some(production) = self.inner.production.get() {
            // What is in the journal alone would be in nobody's answers until the next start.
            let shipped = self.flush(within / 2) && production.ship_rest(self, within / 4);
            if !shipped {
                tracing::info!("spans are left in the journal; they are shipped at the next start");
            }
        }
        self.inner.close(within.saturating_sub(begun.elapsed()))
    }
}

impl Inner {
    fn counters(&self) -> CountersSnapshot {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CountersSnapshot {
            written: load(&self.tally.written),
            dropped_queue_full: load(&self.queue.dropped_full),
            without_texts: load(&self.queue.without_texts),
            dropped_closed: load(&self.queue.dropped_closed),
            dropped_failed: load(&self.tally.failed),
            dropped_poison: load(&self.tally.poison),
            dropped_tenant_deleted: load(&self.tally.left_out),
            batches_committed: load(&self.tally.batches_committed),
            batches_failed: load(&self.tally.batches_failed),
            queue_items: self.queue.items(),
            queue_bytes: self.queue.bytes(),
        }
    }

    /// Spans taken and then lost.
    fn lost(&self) -> u64 {
        self.tally.failed.load(Ordering::Relaxed) + self.tally.poison.load(Ordering::Relaxed)
    }

    fn is_closing(&self) -> bool {
        self.give_up_at.lock().is_some()
    }

    fn close(&self, within: Duration) -> bool {
        if let Some(production) = self.production.get() {
            production.stop();
        }
        let lost_now = self.lost();
        let before = self
            .lost_before_close
            .compare_exchange(u64::MAX, lost_now, Ordering::Relaxed, Ordering::Relaxed)
            .map_or_else(|first| first, |_| lost_now);
        let deadline = Instant::now() + within;
        // A shorter wait of a later call wins; replays end a little before, so that the log can still be emptied.
        let give_up = Instant::now() + within * 9 / 10;
        {
            let mut at = self.give_up_at.lock();
            *at = Some(at.map_or(give_up, |former| former.min(give_up)));
        }
        self.readers.close_idle();
        self.queue.close();
        self.queue.wait_gone(deadline) && self.lost() == before
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.queue.is_gone() && !self.close(DROP_WAIT) {
            tracing::warn!("the store was closed before everything could be written");
        }
    }
}
