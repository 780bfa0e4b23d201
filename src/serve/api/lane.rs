//! Workers for what the API is asked, and the order in which those who wait get one.
//!
//! Invariant: at most so many work at the same time, and at most so many work and wait; of both a tenant has no more than its
//! share ([`Shares`]), and a worker that gets free goes to the tenant that has the fewest, so that nobody waits behind
//! everything another tenant has asked for.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use weir_config::vocab::TenantId;

use super::error::ErrorAnswer;
use crate::control::Shares;

/// A lane.
pub(super) struct Lane(Arc<Shared>);

struct Shared {
    workers: usize,
    state: Mutex<State>,
}

struct State {
    /// The tenants that have a worker or wait for one.
    shares: Shares<TenantId>,
    /// The tenant each busy worker works for.
    running: Vec<TenantId>,
    /// In the order in which they came.
    waiting: Vec<Waiting>,
}

struct Waiting {
    tenant: TenantId,
    turn: oneshot::Sender<Worker>,
}

/// One who works or waits.
struct Entered {
    lane: Arc<Shared>,
    tenant: TenantId,
}

/// A busy worker.
struct Worker {
    lane: Arc<Shared>,
    tenant: TenantId,
}

/// A worker on loan; dropping it lets the next one have it.
pub(super) struct Place {
    // In this order: whoever is next may already count on the room.
    _entered: Entered,
    _worker: Worker,
}

impl Lane {
    /// With so many workers, and room for so many who work or wait.
    pub(super) fn new(workers: usize, places: usize) -> Self {
        let state = State { shares: Shares::new(places), running: Vec::new(), waiting: Vec::new() };
        Self(Arc::new(Shared { workers, state: Mutex::new(state) }))
    }

    /// A worker for `tenant`, as soon as one is free.
    pub(super) async fn enter(&self, tenant: TenantId) -> Result<Place, ErrorAnswer> {
        let lane = &self.0;
        let (entered, turn) = {
            let mut state = lane.state.lock();
            if !state.shares.enter(tenant) {
                let said =
                    "as many calls of this tenant are under way as may be while others ask; try again in a second";
                return Err(ErrorAnswer::saturated(said));
            }
            let entered = Entered { lane: Arc::clone(lane), tenant };
            if state.running.len() < lane.workers {
                state.running.push(tenant);
                return Ok(Place { _entered: entered, _worker: Worker { lane: Arc::clone(lane), tenant } });
            }
            let (turn, awaited) = oneshot::channel();
            // Those who left while they waited have given their share back already.
            state.waiting.retain(|waiting| !waiting.turn.is_closed());
            state.waiting.push(Waiting { tenant, turn });
            (entered, awaited)
        };
        let worker = turn.await.map_err(|_| ErrorAnswer::shutting_down())?;
        Ok(Place { _entered: entered, _worker: worker })
    }
}

impl State {
    /// The waiting tenant that has the fewest workers; of several, the one that came first.
    fn next(&mut self) -> Option<Waiting> {
        self.waiting.retain(|waiting| !waiting.turn.is_closed());
        let of = |tenant| self.running.iter().filter(|running| **running == tenant).count();
        let at = (0..self.waiting.len()).min_by_key(|at| self.waiting.get(*at).map(|waiting| of(waiting.tenant)))?;
        Some(self.waiting.remove(at))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.lane.state.lock().shares.leave(self.tenant);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let next = {
            let mut state = self.lane.state.lock();
            if let Some(at) = state.running.iter().position(|running| *running == self.tenant) {
                state.running.swap_remove(at);
            }
            let next = state.next();
            state.running.extend(next.as_ref().map(|next| next.tenant));
            next
        };
        if let Some(Waiting { tenant, turn }) = next {
            // One who has left this instant gives the worker back by dropping it.
            drop(turn.send(Self { lane: Arc::clone(&self.lane), tenant }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn tenant(number: u8) -> TenantId {
        TenantId::from_credential(&[number])
    }

    fn polled<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn granted(lane: &Lane, number: u8) -> Place {
        match polled(pin!(lane.enter(tenant(number)))) {
            Poll::Ready(Ok(place)) => place,
            _ => panic!("no worker is free"),
        }
    }

    #[test]
    fn a_free_worker_goes_to_whoever_has_the_fewest() {
        let lane = Lane::new(2, 16);
        let (first, second) = (granted(&lane, 1), granted(&lane, 1));
        let mut greedy: Vec<_> = (0..3).map(|_| Box::pin(lane.enter(tenant(1)))).collect();
        assert!(greedy.iter_mut().all(|waits| polled(waits.as_mut()).is_pending()));
        let mut late = pin!(lane.enter(tenant(2)));
        assert!(polled(late.as_mut()).is_pending());
        drop(first);
        let Poll::Ready(Ok(of_late)) = polled(late) else { panic!("the tenant that has none is next") };
        assert!(greedy.iter_mut().all(|waits| polled(waits.as_mut()).is_pending()));
        drop((of_late, second));
        let done = greedy.iter_mut().filter_map(|waits| match polled(waits.as_mut()) {
            Poll::Ready(place) => Some(place),
            Poll::Pending => None,
        });
        assert_eq!(done.collect::<Vec<_>>().len(), 2);
    }

    #[test]
    fn a_tenant_may_fill_half_and_another_still_gets_in() {
        let lane = Lane::new(2, 8);
        let working = [granted(&lane, 1), granted(&lane, 1)];
        let mut waiting: Vec<_> = (0..2).map(|_| Box::pin(lane.enter(tenant(1)))).collect();
        assert!(waiting.iter_mut().all(|waits| polled(waits.as_mut()).is_pending()));
        let Poll::Ready(Err(fault)) = polled(pin!(lane.enter(tenant(1)))) else { panic!("half is taken") };
        assert_eq!((fault.kind, fault.retry_after_s), ("api_saturated", Some(1)));
        let mut other = pin!(lane.enter(tenant(2)));
        assert!(polled(other.as_mut()).is_pending(), "it waits, and is not refused");
        drop(working);
        assert!(matches!(polled(other), Poll::Ready(Ok(_))));
    }

    #[test]
    fn who_leaves_while_waiting_keeps_neither_room_nor_worker() {
        let lane = Lane::new(1, 4);
        for _ in 0..10 {
            let working = granted(&lane, 1);
            let mut leaves = Box::pin(lane.enter(tenant(1)));
            assert!(polled(leaves.as_mut()).is_pending());
            drop(leaves);
            let mut leaves_late = Box::pin(lane.enter(tenant(1)));
            assert!(polled(leaves_late.as_mut()).is_pending());
            drop(working);
            // It has been given the worker and never looked.
            drop(leaves_late);
        }
        drop(granted(&lane, 2));
        let state = lane.0.state.lock();
        assert!(state.running.is_empty() && state.waiting.is_empty());
    }
}
