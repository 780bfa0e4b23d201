//! What waits to be judged: tenants take turns, and none has more waiting, or under way, than it leaves to the others.
//!
//! Invariants: handing in never waits but for moments (one short lock); a tenant that has nothing waiting is let in even where
//! others have taken all the room, up to a quarter more, and has a place within one turn; a tenant that has been alone for a while has
//! all of it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use weir_config::vocab::TenantId;

/// Bounded, and fair to tenants.
#[derive(Debug)]
pub(super) struct FairLine<T> {
    room: usize,
    /// How many are under way at once.
    places: usize,
    held: Mutex<Held<T>>,
    more: Notify,
}

#[derive(Debug)]
struct Held<T> {
    tenants: HashMap<TenantId, VecDeque<T>>,
    /// Tenants with something waiting; the first has the turn.
    ring: VecDeque<TenantId>,
    count: usize,
    /// Of each tenant, how many are under way.
    running: HashMap<TenantId, usize>,
    /// The tenant that came last, and the last other one before it.
    latest: [Option<(TenantId, Instant)>; 2],
    closed: bool,
}

/// For so long after a tenant has come some places are left to it.
const LEFT_FOR: Duration = Duration::from_secs(60);

/// A place among those under way, until it is dropped.
#[derive(Debug)]
pub(super) struct Share<T> {
    line: Arc<FairLine<T>>,
    tenant: TenantId,
}

impl<T> Drop for Share<T> {
    fn drop(&mut self) {
        let mut held = self.line.held.lock();
        if let Some(running) = held.running.get_mut(&self.tenant) {
            *running -= 1;
            if *running == 0 {
                held.running.remove(&self.tenant);
            }
        }
        drop(held);
        self.line.more.notify_one();
    }
}

/// Why something was turned away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// There is no room.
    Full,
    /// The line has been closed.
    Closed,
}

impl<T> FairLine<T> {
    /// A line for so many, at least one, of which so many are under way at once.
    pub(super) fn new(room: usize, places: usize) -> Self {
        let held = Held {
            tenants: HashMap::new(),
            ring: VecDeque::new(),
            count: 0,
            running: HashMap::new(),
            latest: [None; 2],
            closed: false,
        };
        Self { room: room.max(1), places: places.max(1), held: Mutex::new(held), more: Notify::new() }
    }

    /// Takes one in for its tenant.
    pub(super) fn put(&self, tenant: TenantId, one: T) -> Result<(), Refused> {
        let mut held = self.held.lock();
        if held.closed {
            return Err(Refused::Closed);
        }
        held.came(tenant);
        let own = held.tenants.get(&tenant).map_or(0, VecDeque::len);
        let is_alone = held.ring.iter().all(|other| *other == tenant);
        let fits = match own {
            0 if !is_alone => held.count < self.room + self.room.div_ceil(4),
            _ if is_alone => held.count < self.room,
            _ => own < self.room.saturating_sub(held.count),
        };
        if !fits {
            return Err(Refused::Full);
        }
        if own == 0 {
            held.ring.push_back(tenant);
        }
        held.tenants.entry(tenant).or_default().push_back(one);
        held.count += 1;
        drop(held);
        self.more.notify_one();
        Ok(())
    }

    /// The next one that may be under way, when there is one; for one caller. What was put in before the end of a wait that is given up
    /// stays.
    pub(super) async fn next(self: &Arc<Self>) -> (T, Share<T>) {
        loop {
            if let Some((tenant, one)) = self.held.lock().begin(self.places) {
                return (one, Share { line: Arc::clone(self), tenant });
            }
            self.more.notified().await;
        }
    }

    /// Takes no more in; gives back what waits.
    pub(super) fn close(&self) -> Vec<T> {
        let mut held = self.held.lock();
        held.closed = true;
        std::iter::from_fn(|| held.pop(0)).collect()
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.held.lock().count
    }
}

impl<T> Held<T> {
    /// Remembers who comes.
    fn came(&mut self, tenant: TenantId) {
        let now = Some((tenant, Instant::now()));
        if let [Some((last, _)), _] = self.latest
            && last != tenant
        {
            self.latest[1] = self.latest[0];
        }
        self.latest[0] = now;
    }

    /// Whether a tenant may have one more under way.
    fn may_begin(&self, tenant: TenantId, places: usize) -> bool {
        let own = self.running.get(&tenant).copied().unwrap_or_default();
        let free = places.saturating_sub(self.running.values().sum());
        let is_other = |other: &TenantId| *other != tenant;
        let comes = |seen: &(TenantId, Instant)| is_other(&seen.0) && seen.1.elapsed() < LEFT_FOR;
        let has_others = self.latest.iter().flatten().any(comes)
            || self.ring.iter().any(is_other)
            || self.running.keys().any(is_other);
        own == 0 || !has_others || own < free
    }

    /// The next one whose tenant may have one more under way.
    fn begin(&mut self, places: usize) -> Option<(TenantId, T)> {
        let at = self.ring.iter().position(|tenant| self.may_begin(*tenant, places))?;
        let tenant = *self.ring.get(at)?;
        let one = self.pop(at)?;
        *self.running.entry(tenant).or_default() += 1;
        Some((tenant, one))
    }

    fn pop(&mut self, at: usize) -> Option<T> {
        let tenant = self.ring.remove(at)?;
        let line = self.tenants.get_mut(&tenant)?;
        let one = line.pop_front()?;
        if line.is_empty() {
            self.tenants.remove(&tenant);
        } else {
            self.ring.push_back(tenant);
        }
        self.count -= 1;
        Some(one)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: u8) -> TenantId {
        TenantId::from_credential(&[name])
    }

    fn taken(line: &FairLine<(u8, usize)>) -> Vec<(u8, usize)> {
        line.close()
    }

    #[test]
    fn tenants_take_turns_and_each_keeps_its_order() {
        let line = FairLine::new(100, 4);
        for number in 0..4 {
            line.put(tenant(0), (0, number)).unwrap();
        }
        line.put(tenant(1), (1, 0)).unwrap();
        line.put(tenant(1), (1, 1)).unwrap();
        assert_eq!(taken(&line), [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (0, 3)]);
        assert_eq!(line.put(tenant(0), (0, 9)), Err(Refused::Closed));
    }

    #[test]
    fn who_has_taken_all_the_room_leaves_some_to_others() {
        let line = FairLine::new(8, 4);
        let put = |name, number| line.put(tenant(name), (name, number));
        assert_eq!((0..20).filter(|number| put(0, *number).is_ok()).count(), 8, "alone it has all of it");
        assert_eq!(put(1, 0), Ok(()));
        assert_eq!((put(0, 8), put(1, 1)), (Err(Refused::Full), Err(Refused::Full)));
        assert_eq!(line.len(), 9);
        assert_eq!((put(2, 0), put(3, 0)), (Ok(()), Err(Refused::Full)), "a quarter more");
        assert_eq!(taken(&line)[..3], [(0, 0), (1, 0), (2, 0)]);
    }

    #[tokio::test]
    async fn who_waits_is_woken() {
        let line = std::sync::Arc::new(FairLine::new(1, 1));
        let waits = tokio::spawn({
            let line = std::sync::Arc::clone(&line);
            async move { line.next().await }
        });
        tokio::task::yield_now().await;
        line.put(tenant(0), 7).unwrap();
        assert_eq!(waits.await.unwrap().0, 7);
    }

    #[tokio::test]
    async fn who_has_much_leaves_places_to_others() {
        let line = Arc::new(FairLine::new(100, 4));
        (0..8).for_each(|number| line.put(tenant(0), (0, number)).unwrap());
        let mut under_way = Vec::new();
        for _ in 0..4 {
            under_way.push(line.next().await);
        }
        assert!(under_way.iter().all(|((name, _), _)| *name == 0), "alone it has all of them");
        line.put(tenant(1), (1, 0)).unwrap();
        under_way.pop();
        assert_eq!(line.next().await.0, (1, 0), "the first place that is free is the other's");
        // From then on two are left to those who may come.
        under_way.truncate(1);
        under_way.push(line.next().await);
        let waits = tokio::time::timeout(Duration::from_millis(1), line.next()).await;
        assert!(waits.is_err(), "{:?}", waits.map(|(one, _)| one));
        line.put(tenant(2), (2, 0)).unwrap();
        assert_eq!(line.next().await.0, (2, 0));
    }
}
