//! Admission of a client connection, and making room for it by evicting the one that has been idle longest.
//!
//! ```text
//! under both limits                          ─▶ in
//! at the limit of this client                ─▶ its own longest idle connection on this core goes, else 503
//! at the limit of the process                ─▶ this core's longest idle connection goes, else another core's, else 503
//! ```
//!
//! Invariant: a busy connection never makes room. Cores ask each other through one number and a wake; nobody waits for the
//! answer, so for a moment there may be as many connections above the limit as evictions are under way.

use std::net::IpAddr;
use std::rc::Rc;

use crate::admit::connection_caller::ConnectionCaller;
use crate::admit::connection_table::Slot;
use crate::admit::connections::{ClientKey, ConnectionLimits, Crowded};
use crate::meter::ClientEvent;
use crate::process::Core;

/// A client connection that has been let in: counted until it goes, however it goes.
pub struct Admission {
    core: Rc<Core>,
    slot: Slot,
    /// Where it comes from.
    pub(crate) address: IpAddr,
    pub(crate) client: ClientKey,
    /// Whom it is let in as.
    pub(crate) connection_caller: Rc<ConnectionCaller>,
}

impl Admission {
    /// Lets a new connection in, making room for it where that is needed and possible.
    ///
    /// # Errors
    /// The limit that stands in the way.
    pub fn let_in(core: &Rc<Core>, fd: std::os::fd::RawFd, address: IpAddr) -> Result<Self, ClientEvent> {
        let client = ClientKey::from(address);
        let limits = ConnectionLimits::from(&core.settings().server);
        let refused = match core.process.clients.enter(client, limits) {
            Crowded::No => None,
            Crowded::Client => (!evict(core, Some(client))).then_some(ClientEvent::RefusedAddress),
            Crowded::Process => {
                let room = evict(core, None) || core.process.evictions.ask(core.index);
                (!room).then_some(ClientEvent::RefusedLimit)
            }
        };
        if let Some(reason) = refused {
            core.process.clients.leave(client);
            return Err(reason);
        }
        core.meter.client(ClientEvent::Accepted);
        core.meter.connections_add(1);
        let connection_caller = Rc::<ConnectionCaller>::default();
        let slot = core.open_connections.borrow_mut().enter(fd, client, Rc::clone(&connection_caller));
        Ok(Self { core: Rc::clone(core), slot, address, client, connection_caller })
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
        let mut open_connections = self.core.open_connections.borrow_mut();
        open_connections.wait(self.slot, greeting);
        self.core.process.evictions.show(self.core.index, open_connections.waiting());
    }

    /// It waits no longer. True when we had ended its reading meanwhile.
    pub(crate) fn work(&self) -> bool {
        let mut open_connections = self.core.open_connections.borrow_mut();
        let ended = open_connections.work(self.slot);
        self.core.process.evictions.show(self.core.index, open_connections.waiting());
        ended
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut open_connections = self.core.open_connections.borrow_mut();
        if let Some(client) = open_connections.leave(self.slot) {
            self.core.process.clients.leave(client);
        }
        self.core.meter.connections_add(-1);
        self.core.process.evictions.show(self.core.index, open_connections.waiting());
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
        for _ in 0..core.process.evictions.asked(core.index).await {
            evict(&core, None);
        }
    }
}
