//! Which tenant has made which object at a provider: what was made lately from memory, what is older from the store.
//!
//! Invariants: an object is whose it was first; a core waits for the store only where a request names an object that memory does not
//! know; what is noted holds at once and is stored soon after. Bounded: two generations of [`RECENT_MAX`] objects, and a queue.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use futures_channel::oneshot;
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use weir_config::vocab::TenantId;
use weir_storage::{MadeObject, OBJECT_ID_BYTES_MAX, ObjectBook};

/// Objects in one generation of those that memory knows.
const RECENT_MAX: usize = 32_768;
/// Notes and questions on their way to the thread that asks the store.
const QUEUE_MAX: usize = 4_096;
/// Notes that the store has not taken yet; the oldest give way.
const UNWRITTEN_MAX: usize = 65_536;
/// Notes in one order to the store.
const BATCH_MAX: usize = 256;
/// How long to wait before the store is asked again to take what it did not.
const RETRY: Duration = Duration::from_secs(1);
/// How long to wait for room in the queue.
const ROOM_PAUSE: Duration = Duration::from_millis(5);

type Digest = [u8; 16];

/// Who has made what.
pub struct MadeObjects {
    recent: Mutex<Recent>,
    orders: SyncSender<Order>,
}

#[derive(Default)]
struct Recent {
    young: HashMap<Digest, TenantId>,
    old: HashMap<Digest, TenantId>,
}

enum Order {
    Note(MadeObject),
    Ask(Question),
    /// Says whether all that was noted before has been stored.
    Flush(SyncSender<bool>),
}

struct Question {
    tenant: TenantId,
    upstreams: Vec<String>,
    objects: Vec<String>,
    tell: oneshot::Sender<Vec<bool>>,
}

impl MadeObjects {
    /// Starts the thread that asks `book`. It ends when this is dropped.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(book: Arc<dyn ObjectBook>) -> io::Result<Arc<Self>> {
        let (orders, received) = sync_channel(QUEUE_MAX);
        std::thread::Builder::new().name("weir-objects".to_owned()).spawn(move || work(&received, &*book))?;
        Ok(Arc::new(Self { recent: Mutex::default(), orders }))
    }

    /// Notes an object; false where there is no room to have it stored as well.
    pub fn note(&self, object: MadeObject) -> bool {
        if object.object.is_empty() || object.object.len() > OBJECT_ID_BYTES_MAX {
            return true;
        }
        let key = key(&object.upstream, &object.object);
        match self.recent.lock().put(key, object.tenant) {
            Put::Fresh => self.orders.try_send(Order::Note(object)).is_ok(),
            Put::There => true,
        }
    }

    /// Waits until what was noted has been stored; false where it is not within this time, or the store does not take it.
    pub fn flush(&self, within: Duration) -> bool {
        let (tell, told) = sync_channel(1);
        let until = Instant::now() + within;
        let mut order = Order::Flush(tell);
        // The thread makes room as soon as the store answers.
        while let Err(TrySendError::Full(again)) = self.orders.try_send(order) {
            if Instant::now() >= until {
                return false;
            }
            std::thread::sleep(ROOM_PAUSE);
            order = again;
        }
        told.recv_timeout(until.saturating_duration_since(Instant::now())).unwrap_or(false)
    }

    /// Whether a tenant has made an object, as far as memory knows.
    pub fn is_own(&self, tenant: TenantId, upstream: &str, object: &str) -> Option<bool> {
        self.recent.lock().get(&key(upstream, object)).map(|owner| owner == tenant)
    }

    /// Asks the store which of these objects a tenant has made, at any of these upstreams; `None` where too much is asked already.
    pub fn ask(
        &self,
        tenant: TenantId,
        upstreams: Vec<String>,
        objects: Vec<String>,
    ) -> Option<oneshot::Receiver<Vec<bool>>> {
        let (tell, told) = oneshot::channel();
        self.orders.try_send(Order::Ask(Question { tenant, upstreams, objects, tell })).ok()?;
        Some(told)
    }
}

enum Put {
    Fresh,
    There,
}

impl Recent {
    fn get(&self, key: &Digest) -> Option<TenantId> {
        self.young.get(key).or_else(|| self.old.get(key)).copied()
    }

    fn put(&mut self, key: Digest, tenant: TenantId) -> Put {
        if self.get(&key).is_some() {
            return Put::There;
        }
        if self.young.len() >= RECENT_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, tenant);
        Put::Fresh
    }
}

fn key(upstream: &str, object: &str) -> Digest {
    let whole = digest(&SHA256, &[upstream.as_bytes(), &[0], object.as_bytes()].concat());
    let mut key = Digest::default();
    key.iter_mut().zip(whole.as_ref()).for_each(|(to, from)| *to = *from);
    key
}

/// Asks the store until nobody is left who could want something.
fn work(orders: &Receiver<Order>, book: &dyn ObjectBook) {
    let (mut unwritten, mut flushed) = (VecDeque::new(), Vec::new());
    loop {
        let first = if unwritten.is_empty() {
            orders.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            orders.recv_timeout(RETRY)
        };
        let is_over = matches!(first, Err(RecvTimeoutError::Disconnected));
        let more = std::iter::from_fn(|| orders.try_recv().ok());
        // Somebody waits for what is asked; what is noted holds already.
        for order in first.into_iter().chain(more).take(BATCH_MAX) {
            match order {
                Order::Note(object) => unwritten.push_back(object),
                Order::Ask(question) => answer(book, question),
                Order::Flush(tell) => flushed.push(tell),
            }
        }
        if !unwritten.is_empty() {
            write(book, &mut unwritten);
        }
        // Whoever waits may have given up.
        for tell in flushed.drain(..) {
            let _heard = tell.try_send(unwritten.is_empty()).is_ok();
        }
        if is_over {
            return;
        }
    }
}

fn write(book: &dyn ObjectBook, unwritten: &mut VecDeque<MadeObject>) {
    while !unwritten.is_empty() {
        let batch: Vec<MadeObject> = unwritten.iter().take(BATCH_MAX).cloned().collect();
        let count = batch.len();
        if let Err(error) = book.note_objects(batch) {
            let lost = unwritten.len().saturating_sub(UNWRITTEN_MAX);
            unwritten.drain(..lost);
            tracing::warn!(
                %error,
                waiting = unwritten.len(),
                lost,
                "which tenant made which object at a provider could not be stored; it is tried again, and holds until this process ends"
            );
            return;
        }
        unwritten.drain(..count);
    }
}

fn answer(book: &dyn ObjectBook, question: Question) {
    let Question { tenant, upstreams, objects, tell } = question;
    let mut own = vec![false; objects.len()];
    for upstream in &upstreams {
        match book.own_objects(tenant, upstream, &objects) {
            Ok(found) => own.iter_mut().zip(found).for_each(|(own, found)| *own |= found),
            Err(error) => {
                tracing::warn!(%error, "the store could not say who made an object at a provider; the call that names it is refused");
                // Whoever waits sees that nobody answers.
                return;
            }
        }
    }
    // It may have given up.
    drop(tell.send(own));
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as StdMutex;

    use weir_storage::{NotWritten, ReadError};

    use super::*;

    #[derive(Default)]
    struct Book(StdMutex<Vec<MadeObject>>);

    impl ObjectBook for Book {
        fn note_objects(&self, objects: Vec<MadeObject>) -> Result<(), NotWritten> {
            self.0.lock().unwrap().extend(objects);
            Ok(())
        }

        fn own_objects(&self, tenant: TenantId, upstream: &str, objects: &[String]) -> Result<Vec<bool>, ReadError> {
            let kept = self.0.lock().unwrap();
            let is = |id: &String, it: &MadeObject| it.tenant == tenant && it.upstream == upstream && it.object == *id;
            Ok(objects.iter().map(|id| kept.iter().any(|it| is(id, it))).collect())
        }
    }

    fn made(tenant: TenantId, object: &str) -> MadeObject {
        MadeObject { tenant, upstream: "default".into(), object: object.into() }
    }

    #[test]
    fn memory_knows_what_was_noted_and_the_store_the_rest() {
        let (one, two) = (TenantId::from_bytes([1; 16]), TenantId::from_bytes([2; 16]));
        let book = Arc::new(Book::default());
        book.note_objects(vec![made(one, "file-0")]).unwrap();
        let objects = MadeObjects::start(Arc::clone(&book) as Arc<dyn ObjectBook>).unwrap();
        assert!(objects.note(made(one, "file-1")) && objects.note(made(two, "file-1")), "whose it was first");
        assert_eq!(objects.is_own(one, "default", "file-1"), Some(true));
        assert_eq!(objects.is_own(two, "default", "file-1"), Some(false));
        assert_eq!(objects.is_own(one, "other", "file-1"), None);
        assert_eq!(objects.is_own(one, "default", "file-0"), None);
        let ask = |tenant| {
            let named = ["file-0", "file-9"].map(str::to_owned).to_vec();
            let told = objects.ask(tenant, vec!["other".to_owned(), "default".to_owned()], named).unwrap();
            futures_executor(told)
        };
        assert_eq!((ask(one), ask(two)), (vec![true, false], vec![false, false]));
        assert!(objects.flush(Duration::from_secs(60)));
        assert_eq!(book.0.lock().unwrap()[1], made(one, "file-1"));
    }

    fn futures_executor(mut told: oneshot::Receiver<Vec<bool>>) -> Vec<bool> {
        loop {
            if let Some(own) = told.try_recv().unwrap() {
                return own;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn memory_is_bounded() {
        let mut recent = Recent::default();
        let key = |at: usize| {
            let mut key = Digest::default();
            key[..8].copy_from_slice(&at.to_le_bytes());
            key
        };
        for at in 0..RECENT_MAX * 3 {
            recent.put(key(at), TenantId::from_bytes([1; 16]));
        }
        assert!(recent.young.len() + recent.old.len() <= 2 * RECENT_MAX);
        assert!(recent.get(&key(RECENT_MAX * 3 - 1)).is_some() && recent.get(&key(0)).is_none());
    }
}
