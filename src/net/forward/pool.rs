//! A core's connections to the provider: last in, first out, bounded, never reused once a byte has arrived unasked.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::BytesMut;

use super::permits::{BEHIND_MS, NEVER_MS};
use super::{Dialer, Holder, Permits, UpstreamConn};
use crate::rt::{self, CallOff};

/// Idle connections are given up before providers close them (commonly after 15 s).
const IDLE_MS_MAX: u64 = 8_000;
/// A read buffer up to this size stays with an idle connection.
const BUF_BYTES_KEPT: usize = 16 * 1024;

struct Idle {
    conn: UpstreamConn,
    /// Its empty read buffer, kept so that the next answer needs no new one.
    buf: BytesMut,
    since_ms: u64,
}

/// The connections of one core to one peer.
pub struct ConnPool {
    dialer: Dialer,
    permits: Arc<Permits>,
    core: usize,
    idle: RefCell<Vec<Idle>>,
    /// Connections that exist: leased and idle.
    open: Cell<u32>,
    queue: RefCell<VecDeque<Waiter>>,
    next_place: Cell<u64>,
}

/// A request that waits for a connection.
struct Waiter {
    place: u64,
    holder: Holder,
    since_ms: u64,
    called: bool,
    waker: Option<Waker>,
}

/// Why there is no connection.
#[derive(Debug)]
pub enum AcquireError {
    /// All connections stayed busy until the time ran out.
    Exhausted,
    /// Nothing was sent: every address refused, timed out or failed its TLS handshake.
    Connect(String),
    /// The request that wanted it has ended.
    CalledOff,
}

impl ConnPool {
    /// This core's pool; `permits` bounds the connections of all cores together.
    pub fn new(dialer: Dialer, permits: Arc<Permits>) -> Rc<Self> {
        Rc::new(Self {
            dialer,
            core: permits.join(),
            permits,
            idle: RefCell::default(),
            open: Cell::new(0),
            queue: RefCell::default(),
            next_place: Cell::new(0),
        })
    }

    /// Connections that exist right now, and how many of them are idle.
    pub fn gauge(&self) -> (u32, u32) {
        let idle = u32::try_from(self.idle.borrow().len()).unwrap_or(u32::MAX);
        (self.open.get(), idle)
    }

    /// What stands for `tenant` here.
    pub fn holder(&self, tenant: u128) -> Holder {
        self.permits.shares.holder(tenant)
    }

    /// Whether half of the places are on loan, on all cores, or somebody waits for one.
    pub fn is_scarce(&self) -> bool {
        self.permits.waiting() > 0 || self.permits.shares.half_is_on_loan()
    }

    /// Whether somebody waits for a place, on any core.
    pub fn is_waited_for(&self) -> bool {
        self.permits.waiting() > 0
    }

    /// The kept connection that was used last, if it is still good and nobody waits for it.
    pub fn at_hand(self: &Rc<Self>, holder: Holder) -> Option<Lease> {
        if !self.queue.borrow().is_empty() {
            return None;
        }
        if self.permits.shares.may_have_half(self.core, holder) && !self.may_have_more(holder) {
            return None;
        }
        self.take_idle().map(|idle| self.lease(idle, holder))
    }

    /// A new connection for `holder`; when all places are taken, waits at most `wait` for one, or for a connection that is given
    /// back. The request that has waited longest comes first, on this core strictly, between cores nearly so; but a tenant that
    /// has half of the places comes behind all others. `off` ends the wait, and the dialling, at once.
    ///
    /// # Errors
    /// [`AcquireError`]; in both cases no byte of the request has been sent.
    pub async fn acquire(
        self: &Rc<Self>,
        holder: Holder,
        wait: Duration,
        off: &CallOff,
    ) -> Result<Lease, AcquireError> {
        let is_modest = || !self.permits.shares.may_have_half(self.core, holder) || self.may_have_more(holder);
        if self.permits.waiting() == 0 && is_modest() && self.permits.take() {
            return self.dial(holder, off).await;
        }
        let began_ms = rt::now_ms();
        let give_up_ms = began_ms.saturating_add(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        let place = Place::at_the_end(self, holder, began_ms);
        let mut asked_others = false;
        loop {
            let first = self.first().filter(|first| first.place == place.number);
            if let Some(first) = first {
                self.permits.show_oldest(self.core, Some(first.since_ms));
                let is_behind = self.permits.is_others_turn(self.core, Some(first.since_ms));
                if first.since_ms == NEVER_MS || (first.since_ms >= BEHIND_MS && is_behind) {
                    if is_behind {
                        self.close_spare();
                        self.permits.call_oldest();
                    }
                } else if let Some(idle) = self.take_idle() {
                    drop(place);
                    return Ok(self.lease(idle, holder));
                } else if self.permits.free() > 0 && is_behind {
                    self.permits.call_oldest();
                } else if self.permits.take() {
                    drop(place);
                    return self.dial(holder, off).await;
                } else if !std::mem::replace(&mut asked_others, true) {
                    self.permits.call_others(self.core);
                }
            }
            let left = Duration::from_millis(give_up_ms.saturating_sub(rt::now_ms()));
            let called = off.or(rt::within(left, place.called())).await.ok_or(AcquireError::CalledOff)?;
            called.ok_or(AcquireError::Exhausted)?;
        }
    }

    /// Answers calls from other cores for the core's life: wakes the requests that wait here, and closes idle connections that
    /// another core needs.
    /// Ends with the pool.
    pub async fn lend(pool: Weak<Self>) {
        let Some((permits, core)) = pool.upgrade().map(|pool| (Arc::clone(&pool.permits), pool.core)) else { return };
        loop {
            permits.called(core).await;
            let Some(pool) = pool.upgrade() else { return };
            if pool.queue.borrow().is_empty() {
                pool.close_spare();
            } else {
                pool.wake_first();
            }
        }
    }

    /// Closes as many idle connections as others wait for.
    fn close_spare(&self) {
        let wanted = self.permits.waiting().saturating_sub(self.permits.free());
        for _ in 0..wanted {
            let idle = self.idle.borrow_mut();
            let Some(oldest) = take_first(idle) else { break };
            self.close(oldest.conn);
        }
    }

    /// Whether a tenant that has half of the places may have one more: others come first.
    fn may_have_more(&self, holder: Holder) -> bool {
        self.permits.waiting() == 0 && self.permits.shares.may_have_more(holder, rt::now_ms())
    }

    /// Closes idle connections that are too old. Called by the core now and then.
    pub fn close_stale(&self) {
        let now = rt::now_ms();
        let stale: Vec<Idle> = {
            let mut idle = self.idle.borrow_mut();
            let keep_from = idle.iter().position(|entry| now.saturating_sub(entry.since_ms) < IDLE_MS_MAX);
            let count = keep_from.unwrap_or(idle.len());
            idle.drain(..count).collect()
        };
        for idle in stale {
            self.close(idle.conn);
        }
        // Nothing else wakes a request that waits for other tenants to be quiet.
        self.wake_first();
    }

    fn lease(self: &Rc<Self>, idle: Idle, holder: Holder) -> Lease {
        self.permits.shares.lent(self.core, holder, rt::now_ms());
        Lease { pool: Rc::clone(self), holder, conn: Some(idle.conn), buf: idle.buf, reused: true, owns_place: true }
    }

    fn take_idle(&self) -> Option<Idle> {
        let now = rt::now_ms();
        loop {
            let entry = self.idle.borrow_mut().pop()?;
            let age = now.saturating_sub(entry.since_ms);
            if age < IDLE_MS_MAX && entry.conn.is_quiet() {
                return Some(entry);
            }
            self.close(entry.conn);
        }
    }

    /// Dials with a permit in hand. The lease gives the permit back, also when connecting fails or is dropped.
    async fn dial(self: &Rc<Self>, holder: Holder, off: &CallOff) -> Result<Lease, AcquireError> {
        self.open.set(self.open.get() + 1);
        self.permits.shares.lent(self.core, holder, rt::now_ms());
        let pool = Rc::clone(self);
        let mut lease = Lease { pool, holder, conn: None, buf: BytesMut::new(), reused: false, owns_place: true };
        lease.conn = Some(self.dialer.dial(off).await?);
        Ok(lease)
    }

    /// Ends a connection and frees its permit. It is shut down first: a ring closes descriptors later, and by then another
    /// connection may have been made with the permit.
    fn close(&self, conn: UpstreamConn) {
        conn.tcp().abort();
        drop(conn);
        self.closed_one();
    }

    /// A connection has gone; its permit is free.
    fn closed_one(&self) {
        self.open.set(self.open.get().saturating_sub(1));
        self.permits.put_back();
    }

    /// The request that comes first on this core: the one that has waited longest; a tenant that has half of the places comes
    /// behind all others.
    fn first(&self) -> Option<First> {
        let queue = self.queue.borrow();
        let shares = &self.permits.shares;
        let turn = |waiter: &Waiter| {
            let since_ms = if !shares.has_half(waiter.holder) {
                waiter.since_ms
            } else if shares.may_have_more(waiter.holder, rt::now_ms()) {
                waiter.since_ms + BEHIND_MS
            } else {
                NEVER_MS
            };
            First { place: waiter.place, since_ms }
        };
        queue.iter().map(turn).min_by_key(|first| first.since_ms)
    }

    fn wake_first(&self) {
        let Some(first) = self.first() else { return };
        let waker = self.queue.borrow_mut().iter_mut().find(|waiter| waiter.place == first.place).and_then(|waiter| {
            waiter.called = true;
            waiter.waker.take()
        });
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Shows the other cores which request comes first on this one.
    fn show_oldest(&self) {
        self.permits.show_oldest(self.core, self.first().map(|first| first.since_ms));
    }
}

impl Drop for ConnPool {
    fn drop(&mut self) {
        for idle in self.idle.take() {
            self.close(idle.conn);
        }
        self.permits.end(self.core);
    }
}

/// The request that comes first in a queue.
#[derive(Clone, Copy)]
struct First {
    place: u64,
    /// Since when it waits; see [`BEHIND_MS`]. [`NEVER_MS`] when what is free is left for others.
    since_ms: u64,
}

fn take_first(mut idle: std::cell::RefMut<'_, Vec<Idle>>) -> Option<Idle> {
    if idle.is_empty() { None } else { Some(idle.remove(0)) }
}

/// A place in the queue; leaving it lets the next one try.
struct Place<'a> {
    pool: &'a ConnPool,
    number: u64,
}

impl<'a> Place<'a> {
    fn at_the_end(pool: &'a ConnPool, holder: Holder, since_ms: u64) -> Self {
        let number = pool.next_place.get();
        pool.next_place.set(number + 1);
        pool.permits.count_waiting(true);
        pool.queue.borrow_mut().push_back(Waiter { place: number, holder, since_ms, called: false, waker: None });
        pool.show_oldest();
        Self { pool, number }
    }

    async fn called(&self) {
        poll_fn(|context| {
            let mut queue = self.pool.queue.borrow_mut();
            let Some(own) = queue.iter_mut().find(|waiter| waiter.place == self.number) else {
                return Poll::Ready(());
            };
            if std::mem::take(&mut own.called) {
                return Poll::Ready(());
            }
            own.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let pool = self.pool;
        pool.queue.borrow_mut().retain(|waiter| waiter.place != self.number);
        pool.permits.count_waiting(false);
        pool.show_oldest();
        let some_left = !pool.idle.borrow().is_empty() || pool.permits.free() > 0;
        if some_left && !pool.queue.borrow().is_empty() {
            pool.wake_first();
        } else if some_left {
            // Nobody here wants what was kept for this place: this core's lending passes it on.
            pool.permits.call(pool.core);
            pool.permits.call_oldest();
        }
    }
}

/// A connection on loan. Dropping it closes the connection; [`Lease::give_back`] keeps it.
pub struct Lease {
    pool: Rc<ConnPool>,
    /// The tenant whose share of the places it counts for.
    holder: Holder,
    conn: Option<UpstreamConn>,
    buf: BytesMut,
    reused: bool,
    /// Whether dropping this frees a place: an idle connection keeps its own.
    owns_place: bool,
}

impl Lease {
    /// Whether the connection has carried a request before.
    pub fn reused(&self) -> bool {
        self.reused
    }

    /// The connection and its read buffer; `None` only while connecting.
    pub fn parts(&mut self) -> Option<(&mut UpstreamConn, &mut BytesMut)> {
        self.conn.as_mut().map(|conn| (conn, &mut self.buf))
    }

    /// The connection; `None` only while connecting.
    pub fn conn(&mut self) -> Option<&mut UpstreamConn> {
        self.conn.as_mut()
    }

    /// Returns the connection for the next request, with its now empty read buffer. Only after a complete exchange with
    /// nothing left over.
    pub fn give_back(mut self, mut buf: BytesMut) {
        if let Some(conn) = self.conn.take() {
            let pool = &self.pool;
            // From here on it belongs to no request.
            pool.permits.shares.returned(pool.core, self.holder);
            self.owns_place = false;
            if pool.permits.waiting() > 0 {
                let first = pool.first().map(|first| first.since_ms);
                if pool.permits.is_others_turn(pool.core, first) {
                    pool.close(conn);
                    return;
                }
            }
            if buf.capacity() > BUF_BYTES_KEPT {
                buf = BytesMut::new();
            }
            pool.idle.borrow_mut().push(Idle { conn, buf, since_ms: rt::now_ms() });
            if !pool.queue.borrow().is_empty() {
                pool.wake_first();
            }
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.owns_place {
            return;
        }
        self.pool.permits.shares.returned(self.pool.core, self.holder);
        match self.conn.take() {
            Some(conn) => self.pool.close(conn),
            None => self.pool.closed_one(),
        }
    }
}
