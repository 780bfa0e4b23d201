//! Results of batches that have been charged: once, over restarts and by all gateways on one store.
//!
//! What a process has charged itself it remembers; what it does not know is asked of the store, and charged in one transaction with the spend
//! that it adds to ([`SpendBook::charge_batch`]). That waits for the store, so a thread of its own does it, which begins with the first results
//! that are fetched. Where the store does not take it, memory decides, and the charge is written down later ([`ResultCharges::catch_up`]).
//!
//! Bounded: results in memory, calls that wait, charges that are still to be written.

use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use ring::digest::{SHA256, digest};
use weir_config::vocab::{TenantId, Timestamp};
use weir_storage::{BATCH_ID_BYTES_MAX, BatchCharge, BatchId, Booked, NotWritten, SpendBook, SpendRow};

use crate::money::{KeptSpend, Reservation, Spend};

/// Results of batches that memory knows to be charged.
const CHARGED_MAX: usize = 16_384;
/// Calls that wait for the store.
const WAITING_MAX: usize = 1_024;
/// Charges that are still to be written; the oldest give way.
const UNWRITTEN_MAX: usize = 4_096;
/// How often a charge is tried again because another gateway has charged the same results meanwhile.
const TRIES: usize = 8;
const MICROS_PER_SECOND: i64 = 1_000_000;

type Job = Box<dyn FnOnce() + Send>;

/// The results of batches that have been charged.
#[derive(Default)]
pub(crate) struct ResultCharges {
    known: Mutex<Known>,
    thread: OnceLock<Option<SyncSender<Job>>>,
    waiting: Mutex<usize>,
    done: Condvar,
    unwritten: Mutex<VecDeque<BatchCharge>>,
}

/// Where money is kept.
#[derive(Clone, Copy)]
pub(crate) struct Books<'a> {
    pub(crate) book: &'a dyn SpendBook,
    pub(crate) spend: &'a Spend,
}

/// What has been charged already, in nanodollars: bounded, the oldest is forgotten first.
#[derive(Default)]
struct Known {
    nano_usd: HashMap<BatchId, u64>,
    order: VecDeque<BatchId>,
}

/// The results that a call has fetched, by what their provider calls them.
pub(crate) fn results_id(tenant: TenantId, provider: &str, batch: &str) -> BatchId {
    let short = |name: &str| {
        if name.len() <= BATCH_ID_BYTES_MAX {
            return name.to_owned();
        }
        let mut print = String::from("sha256:");
        for byte in digest(&SHA256, name.as_bytes()).as_ref() {
            // A String takes all.
            let _full = write!(print, "{byte:02x}").is_err();
        }
        print
    };
    BatchId { tenant, provider: short(provider), batch: short(batch) }
}

impl ResultCharges {
    /// Whether memory alone says that results which cost so much have been charged.
    pub(crate) fn is_charged(&self, id: &BatchId, nano_usd: u64) -> bool {
        lock(&self.known).nano_usd.get(id).is_some_and(|before| *before >= nano_usd)
    }

    /// Has this done where the store may be waited for; gives it back where there is no room.
    pub(crate) fn submit(self: &std::sync::Arc<Self>, job: Job) -> Result<(), Job> {
        let start = || {
            let (sender, jobs) = sync_channel(WAITING_MAX);
            let charges = std::sync::Arc::downgrade(self);
            let work = move || work(&jobs, &charges);
            let started = std::thread::Builder::new().name("weir-charges".to_owned()).spawn(work);
            started.inspect_err(|error| tracing::error!(%error, "no thread for charging batches")).ok().map(|_| sender)
        };
        let Some(sender) = self.thread.get_or_init(start) else { return Err(job) };
        *lock(&self.waiting) += 1;
        sender.try_send(job).map_err(|refused| {
            self.ended();
            match refused {
                TrySendError::Full(job) | TrySendError::Disconnected(job) => job,
            }
        })
    }

    fn ended(&self) {
        *lock(&self.waiting) -= 1;
        self.done.notify_all();
    }

    /// Waits until all that was submitted has been done; false where it is not within this time.
    pub(crate) fn flush(&self, within: Duration) -> bool {
        let waiting = lock(&self.waiting);
        let ended = self.done.wait_timeout_while(waiting, within, |waiting| *waiting > 0);
        *ended.unwrap_or_else(PoisonError::into_inner).0 == 0
    }

    /// What is to be charged of results that cost `nano_usd` as far as they have come: all of it the first time, then what a longer fetch
    /// brings beyond those before; `None` where nothing is new. With it the reservation counts it, and the store has both. Waits for
    /// the store.
    pub(crate) fn charge(
        &self,
        books: Books<'_>,
        (id, nano_usd, at_us): (&BatchId, u64, i64),
        mut reservation: Option<&mut Reservation>,
    ) -> Option<u64> {
        let mut asked = books.book.charged(id).map_err(|error| error.to_string());
        for _ in 0..TRIES {
            let before = match &asked {
                Ok(before) => *before,
                Err(_) => break,
            };
            let more = match before {
                None => nano_usd,
                Some(before) => match nano_usd.checked_sub(before).filter(|more| *more > 0) {
                    Some(more) => more,
                    None => {
                        lock(&self.known).note(id, before);
                        return None;
                    }
                },
            };
            let charge = BatchCharge { id: id.clone(), before, nano_usd, at_us };
            let write = |rows: &[KeptSpend]| books.charge(rows, charge);
            match books.spend.keep_charge(reservation.as_deref_mut(), more, write) {
                Ok(Some(())) => {
                    lock(&self.known).note(id, nano_usd);
                    return Some(more);
                }
                // Another gateway was faster.
                Ok(None) => asked = books.book.charged(id).map_err(|error| error.to_string()),
                Err(error) => asked = Err(error.to_string()),
            }
        }
        let error = asked.err().unwrap_or_else(|| "other gateways charge the same results again and again".to_owned());
        tracing::warn!(
            error,
            batch = id.batch,
            "the store could not say whether the results of a batch have been charged; this process charges them as far as it \
             remembers, and writes it down later"
        );
        self.charge_by_memory(id, nano_usd, at_us)
    }

    /// The same where the store cannot be waited for, or does not answer.
    pub(crate) fn charge_by_memory(&self, id: &BatchId, nano_usd: u64, at_us: i64) -> Option<u64> {
        let more = lock(&self.known).beyond(id, nano_usd)?;
        let mut unwritten = lock(&self.unwritten);
        if unwritten.len() >= UNWRITTEN_MAX {
            unwritten.pop_front();
        }
        unwritten.push_back(BatchCharge { id: id.clone(), before: None, nano_usd, at_us });
        Some(more)
    }

    /// Writes down what memory alone has charged; what the store still does not take stays. True where nothing is left.
    pub(crate) fn catch_up(&self, book: &dyn SpendBook) -> bool {
        for _ in 0..UNWRITTEN_MAX {
            let Some(charge) = lock(&self.unwritten).pop_front() else { return true };
            let id = charge.id.clone();
            let noted = book.charged(&id).map_err(|_| ()).and_then(|before| {
                if before.is_some_and(|before| before >= charge.nano_usd) {
                    return Ok(());
                }
                match book.charge_batch(Vec::new(), BatchCharge { before, ..charge.clone() }) {
                    Ok(Booked::Kept(_)) => Ok(()),
                    Ok(Booked::Other(_)) | Err(_) => Err(()),
                }
            });
            if noted.is_err() {
                lock(&self.unwritten).push_front(charge);
                return false;
            }
        }
        lock(&self.unwritten).is_empty()
    }
}

impl Known {
    fn note(&mut self, id: &BatchId, nano_usd: u64) {
        if let Some(known) = self.nano_usd.get_mut(id) {
            *known = nano_usd.max(*known);
            return;
        }
        self.nano_usd.insert(id.clone(), nano_usd);
        self.order.push_back(id.clone());
        if self.order.len() > CHARGED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.nano_usd.remove(&oldest);
        }
    }

    fn beyond(&mut self, id: &BatchId, nano_usd: u64) -> Option<u64> {
        let more = match self.nano_usd.get(id) {
            None => nano_usd,
            Some(before) => nano_usd.checked_sub(*before).filter(|more| *more > 0)?,
        };
        self.note(id, nano_usd);
        Some(more)
    }
}

impl Books<'_> {
    /// Writes these rows down and hears which tenants another process has deleted.
    pub(crate) fn save(self, rows: &[KeptSpend]) -> Result<(), NotWritten> {
        let deleted = self.book.save_spend(rows.iter().map(row).collect())?;
        self.forget(deleted);
        Ok(())
    }

    /// The same with a charge; `None` where another gateway has charged the same results meanwhile.
    fn charge(self, rows: &[KeptSpend], charge: BatchCharge) -> Result<Option<()>, NotWritten> {
        match self.book.charge_batch(rows.iter().map(row).collect(), charge)? {
            Booked::Kept(deleted) => {
                self.forget(deleted);
                Ok(Some(()))
            }
            Booked::Other(_) => Ok(None),
        }
    }

    fn forget(self, deleted: Vec<(TenantId, i64)>) {
        let now_s = Timestamp::now().micros() / MICROS_PER_SECOND;
        deleted.into_iter().for_each(|(tenant, deleted_s)| self.spend.erase_until(tenant, deleted_s, now_s));
    }
}

fn row(kept: &KeptSpend) -> SpendRow {
    let KeptSpend { tenant, agent, window, period_start_s, since_s, spent_nano_usd } = kept.clone();
    SpendRow { tenant, agent, window, period_start_s, since_s, spent_nano_usd }
}

fn work(jobs: &Receiver<Job>, charges: &std::sync::Weak<ResultCharges>) {
    while let Ok(job) = jobs.recv() {
        // A panic costs one record.
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
        if ended.is_err() {
            tracing::error!("a bug in Weir ended the charging of a batch");
        }
        if let Some(charges) = charges.upgrade() {
            charges.ended();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
