//! How many client connections there are, in all and per client, and whether one more may come.
//!
//! Invariant: what was counted in is counted out by the same key; counting takes no lock and its memory is fixed. Clients are
//! counted in two rows of cells, each row hashed with a key of its own, and the smaller cell is believed: never too little,
//! and too much only for a client that shares a cell with a heavy one in both rows. Knows neither sockets nor cores.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use weir_config::settings::Server;

/// Cells of one row; a power of two.
const CELLS: usize = 16_384;

/// Whom a connection is counted for: an IPv4 address or an IPv6 /64, which is what one client gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClientKey(u64);

impl From<IpAddr> for ClientKey {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self(u64::from(v4.to_bits())),
            // The first bit of a global or local prefix keeps it apart from every IPv4 address.
            IpAddr::V6(v6) => Self((v6.to_bits() >> 64) as u64 | 1 << 63),
        }
    }
}

/// What stands in the way of one more connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crowded {
    /// Nothing.
    No,
    /// All clients together have as many as they may.
    Process,
    /// This client has as many as it may.
    Client,
}

/// The limits as configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Of the whole process.
    pub process: u32,
    /// Of one client.
    pub client: u32,
}

impl From<&Server> for ConnectionLimits {
    fn from(server: &Server) -> Self {
        let process = server.max_client_connections;
        Self { process, client: server.max_client_connections_per_address.unwrap_or(process.div_ceil(2)) }
    }
}

/// The count of all client connections.
pub struct Connections {
    open: AtomicU32,
    rows: [Box<[AtomicU32]>; 2],
    hashers: [RandomState; 2],
}

impl Connections {
    /// None so far.
    pub fn new() -> Self {
        let row = || (0..CELLS).map(|_| AtomicU32::new(0)).collect();
        Self { open: AtomicU32::new(0), rows: [row(), row()], hashers: [RandomState::new(), RandomState::new()] }
    }

    /// Counts a connection of `client` in, and says whether that is one too many. It is counted in any case: whoever turns it
    /// away counts it out again.
    pub fn enter(&self, client: ClientKey, limits: ConnectionLimits) -> Crowded {
        let open = self.open.fetch_add(1, Relaxed);
        let mut of_client = u32::MAX;
        for cell in self.cells(client) {
            of_client = of_client.min(cell.fetch_add(1, Relaxed));
        }
        if of_client >= limits.client {
            Crowded::Client
        } else if open >= limits.process {
            Crowded::Process
        } else {
            Crowded::No
        }
    }

    /// Counts a connection of `client` out.
    pub fn leave(&self, client: ClientKey) {
        self.open.fetch_sub(1, Relaxed);
        for cell in self.cells(client) {
            cell.fetch_sub(1, Relaxed);
        }
    }

    /// Connections counted in now.
    pub fn open(&self) -> u32 {
        self.open.load(Relaxed)
    }

    fn cells(&self, client: ClientKey) -> impl Iterator<Item = &AtomicU32> {
        self.rows.iter().zip(&self.hashers).filter_map(move |(row, hasher)| {
            let at = usize::try_from(hasher.hash_one(client) % CELLS as u64).unwrap_or_default();
            row.get(at)
        })
    }
}

impl Default for Connections {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> ClientKey {
        text.parse::<IpAddr>().unwrap().into()
    }

    #[test]
    fn each_limit_is_reached_by_the_connection_beyond_it() {
        let all = Connections::new();
        let limits = ConnectionLimits { process: 3, client: 2 };
        let (one, other, third) = (key("10.0.0.1"), key("10.0.0.2"), key("10.0.0.3"));
        assert_eq!([all.enter(one, limits), all.enter(one, limits)], [Crowded::No; 2]);
        assert_eq!(all.enter(one, limits), Crowded::Client);
        all.leave(one);
        assert_eq!(all.enter(other, limits), Crowded::No);
        assert_eq!(all.enter(third, limits), Crowded::Process);
        all.leave(third);
        all.leave(one);
        assert_eq!(all.enter(one, limits), Crowded::No, "a place that was left is free");
        assert_eq!(all.open(), 3);
    }

    #[test]
    fn a_client_is_an_ipv4_address_or_an_ipv6_network() {
        assert_eq!(key("10.0.0.1"), key("::ffff:10.0.0.1"));
        assert_ne!(key("10.0.0.1"), key("10.0.0.2"));
        assert_eq!(key("2001:db8::1"), key("2001:db8::ffff:2"));
        assert_ne!(key("2001:db8::1"), key("2001:db8:0:1::1"));
        assert_ne!(key("0.0.0.1"), key("::1"));
    }

    #[test]
    fn the_default_share_is_half() {
        let server = weir_config::Settings::default().server;
        assert_eq!(ConnectionLimits::from(&server), ConnectionLimits { process: 10_000, client: 5_000 });
    }
}
