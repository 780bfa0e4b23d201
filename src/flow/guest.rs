//! Who may stay: admission of a client connection, and making room for it by ending the one that has been idle longest.
//!
//! ```text
//! under both limits                          ─▶ in
//! at the limit of this client                ─▶ its own longest idle connection on this core goes, else 503
//! at the limit of the process                ─▶ this core's longest idle connection goes, else another core's, else 503
//! ```
//!
//! Invariant: a busy connection never makes room. Cores ask each other through one number and a wake; nobody waits for the
//! answer, so for a moment there may be as many connections above the limit as evictions are under way.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use futures_util::task::AtomicWaker;

use super::Core;
use super::roster::Seat;
use super::tenure::Tenure;
use crate::admit::connections::{ClientKey, ConnectionLimits, Crowded};
use crate::meter::ClientEvent;

/// One core's part of the board, alone on its cache lines.
#[repr(align(128))]
#[derive(Default)]
struct Desk {
    /// Connections that wait for a request.
    waiting: AtomicUsize,
    /// How many of them other cores ask to be ended.
    wanted: AtomicUsize,
    waker: AtomicWaker,
}

/// Where cores show how many idle connections they have, and ask each other to end some.
pub struct Board(Box<[Desk]>);

impl Board {
    /// A board for `cores` cores.
    pub fn new(cores: usize) -> Self {
        Self((0..cores).map(|_| Desk::default()).collect())
    }

    pub(super) fn show(&self, core: usize, waiting: usize) {
        if let Some(desk) = self.0.get(core) {
            desk.waiting.store(waiting, Ordering::Relaxed);
        }
    }

    /// Asks the core with the most idle connections, other than `asking`, to end one. False when there is none.
    fn ask(&self, asking: usize) -> bool {
        let spare =
            |desk: &Desk| desk.waiting.load(Ordering::Relaxed).saturating_sub(desk.wanted.load(Ordering::Relaxed));
        let others = self.0.iter().enumerate().filter(|(core, _)| *core != asking).map(|(_, desk)| desk);
        let Some(desk) = others.max_by_key(|desk| spare(desk)).filter(|desk| spare(desk) > 0) else { return false };
        desk.wanted.fetch_add(1, Ordering::Release);
        desk.waker.wake();
        true
    }

    /// Waits until other cores want idle connections of `core` ended; how many.
    async fn asked(&self, core: usize) -> usize {
        let Some(desk) = self.0.get(core) else { return std::future::pending().await };
        poll_fn(|context| {
            desk.waker.register(context.waker());
            match desk.wanted.swap(0, Ordering::Acquire) {
                0 => Poll::Pending,
                wanted => Poll::Ready(wanted),
            }
        })
        .await
    }
}

/// A client connection that has been let in: counted until it goes, however it goes.
pub struct Guest {
    core: Rc<Core>,
    seat: Seat,
    /// Where it comes from.
    pub(super) client: ClientKey,
    /// Whom it is let in as.
    pub(super) tenure: Rc<Tenure>,
}

impl Guest {
    /// Lets a new connection in, making room for it where that is needed and possible.
    ///
    /// # Errors
    /// The limit that stands in the way.
    pub fn let_in(core: &Rc<Core>, fd: std::os::fd::RawFd, client: ClientKey) -> Result<Self, ClientEvent> {
        let limits = ConnectionLimits::from(&core.settings().server);
        let refused = match core.process.clients.enter(client, limits) {
            Crowded::No => None,
            Crowded::Client => (!evict(core, Some(client))).then_some(ClientEvent::RefusedAddress),
            Crowded::Process => {
                let room = evict(core, None) || core.process.board.ask(core.index);
                (!room).then_some(ClientEvent::RefusedLimit)
            }
        };
        if let Some(reason) = refused {
            core.process.clients.leave(client);
            return Err(reason);
        }
        core.meter.client(ClientEvent::Accepted);
        core.meter.connections_add(1);
        let tenure = Rc::<Tenure>::default();
        let seat = core.roster.borrow_mut().enter(fd, client, Rc::clone(&tenure));
        Ok(Self { core: Rc::clone(core), seat, client, tenure })
    }

    /// Its handshake begins: until it is over the connection may make room for another, but a drain lets it be.
    pub(crate) fn greet(&self) {
        self.line_up(true);
    }

    /// It waits for a request from now on.
    pub(crate) fn wait(&self) {
        self.line_up(false);
    }

    fn line_up(&self, greeting: bool) {
        let mut roster = self.core.roster.borrow_mut();
        roster.wait(self.seat, greeting);
        self.core.process.board.show(self.core.index, roster.waiting());
    }

    /// It waits no longer. True when we had ended its reading meanwhile.
    pub(crate) fn work(&self) -> bool {
        let mut roster = self.core.roster.borrow_mut();
        let ended = roster.work(self.seat);
        self.core.process.board.show(self.core.index, roster.waiting());
        ended
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut roster = self.core.roster.borrow_mut();
        if let Some(client) = roster.leave(self.seat) {
            self.core.process.clients.leave(client);
        }
        self.core.meter.connections_add(-1);
        self.core.process.board.show(self.core.index, roster.waiting());
    }
}

/// Ends the connection of this core that has been idle longest, one of `client` if given. False when there is none.
pub fn evict(core: &Core, client: Option<ClientKey>) -> bool {
    let ended = core.end_longest_idle(client);
    if ended {
        core.meter.client(ClientEvent::Evicted);
    }
    ended
}

/// Ends idle connections of this core when other cores need the room; runs for the core's life.
pub async fn make_room(core: Rc<Core>) {
    loop {
        for _ in 0..core.process.board.asked(core.index).await {
            evict(&core, None);
        }
    }
}
