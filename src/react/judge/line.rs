//! What waits to be judged: tenants take turns, and none has more waiting than it leaves to the others.
//!
//! Invariants: handing in never waits but for moments (one short lock); a tenant that has nothing waiting is let in even where
//! others have taken all the room, up to a quarter more; a tenant alone has all of it.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use tokio::sync::Notify;
use weir_config::vocab::TenantId;

/// Bounded, and fair to tenants.
#[derive(Debug)]
pub(super) struct FairLine<T> {
    room: usize,
    held: Mutex<Held<T>>,
    more: Notify,
}

#[derive(Debug)]
struct Held<T> {
    tenants: HashMap<TenantId, VecDeque<T>>,
    /// Tenants with something waiting; the first has the turn.
    ring: VecDeque<TenantId>,
    count: usize,
    closed: bool,
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
    /// A line for so many, at least one.
    pub(super) fn new(room: usize) -> Self {
        let held = Held { tenants: HashMap::new(), ring: VecDeque::new(), count: 0, closed: false };
        Self { room: room.max(1), held: Mutex::new(held), more: Notify::new() }
    }

    /// Takes one in for its tenant.
    pub(super) fn put(&self, tenant: TenantId, one: T) -> Result<(), Refused> {
        let mut held = self.held.lock();
        if held.closed {
            return Err(Refused::Closed);
        }
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

    /// The next one, when there is one; for one caller. What was put in before the end of a wait that is given up stays.
    pub(super) async fn next(&self) -> T {
        loop {
            if let Some(one) = self.held.lock().pop() {
                return one;
            }
            self.more.notified().await;
        }
    }

    /// Takes no more in; gives back what waits.
    pub(super) fn close(&self) -> Vec<T> {
        let mut held = self.held.lock();
        held.closed = true;
        std::iter::from_fn(|| held.pop()).collect()
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.held.lock().count
    }
}

impl<T> Held<T> {
    fn pop(&mut self) -> Option<T> {
        let tenant = self.ring.pop_front()?;
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
        let line = FairLine::new(100);
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
        let line = FairLine::new(8);
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
        let line = std::sync::Arc::new(FairLine::new(1));
        let waits = tokio::spawn({
            let line = std::sync::Arc::clone(&line);
            async move { line.next().await }
        });
        tokio::task::yield_now().await;
        line.put(tenant(0), 7).unwrap();
        assert_eq!(waits.await.unwrap(), 7);
    }
}
