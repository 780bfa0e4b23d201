//! Where the listening sockets come from: bound by this process, passed by the service manager, or taken over from the
//! process that serves the address now.
//!
//! Invariant: every core gets at least one socket, and no two cores share one, except where fewer were passed than there are cores.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use weir_config::Settings;

use super::StartError;
use super::port::once_free;
use super::takeover::{self, Asked, Inherited, STOP_LIMIT};
use crate::rt::{self, DriverMode, Listener};

/// The address is ours, or will be.
pub(super) struct ListenSockets {
    pub(super) addr: SocketAddr,
    source: Source,
    /// What else has been handed over or passed: listeners for metrics and for gRPC.
    others: Vec<TcpListener>,
}

enum Source {
    Bound(Vec<TcpListener>),
    Passed(Vec<TcpListener>),
    Inherited(Inherited),
}

impl ListenSockets {
    /// Makes sure of `listen_addr`. With `take_over` the process that serves it is asked for its sockets; where there is none this is
    /// a start like any other.
    pub(super) fn acquire(
        settings: &Settings,
        cores: usize,
        mode: DriverMode,
        take_over: bool,
    ) -> Result<Self, StartError> {
        let addr = settings.listen_addr;
        if take_over {
            let fail = |source| StartError::TakeOver { addr, source };
            match takeover::ask(addr, takeover::folder(settings).as_deref()).map_err(fail)? {
                Asked::Inherited(mut inherited) => {
                    let (own, others) = apart(std::mem::take(&mut inherited.sockets), addr);
                    inherited.sockets = own;
                    return Ok(Self { addr, source: Source::Inherited(inherited), others });
                }
                Asked::Nobody => {
                    tracing::info!(listen = %addr, "no process serves this address, so there is nothing to take over; starting as usual")
                }
                Asked::Stopping => {
                    tracing::info!(listen = %addr, "the process that serves the address is stopping; starting as usual");
                    wait_for_the_end(addr);
                }
            }
        }
        let passed = rt::passed_sockets(|name| std::env::var_os(name)).map_err(StartError::Passed)?;
        if !passed.is_empty() {
            return Self::passed(addr, passed);
        }
        // SO_REUSEPORT lets any process of the same user join, so that an instance already running would silently share its
        // connections: a first bind without it finds that out.
        let fail = |source| StartError::Bind { addr, source };
        let addr = once_free(addr, || Listener::probe_free(addr)).map_err(fail)?;
        let bound = (0..cores).map(|_| Listener::bind(addr, mode)).collect::<io::Result<_>>().map_err(fail)?;
        Ok(Self { addr, source: Source::Bound(bound), others: Vec::new() })
    }

    fn passed(addr: SocketAddr, sockets: Vec<TcpListener>) -> Result<Self, StartError> {
        let bound: Vec<_> = sockets.iter().filter_map(|socket| Some(socket.local_addr().ok()?.to_string())).collect();
        let (own, others) = apart(sockets, addr);
        if own.is_empty() {
            return Err(StartError::NotPassed { addr, found: bound.join(", ") });
        }
        Ok(Self { addr, source: Source::Passed(own), others })
    }

    /// Whether the sockets stay with the service manager that has opened them.
    pub(super) fn is_lent(&self) -> bool {
        matches!(self.source, Source::Passed(_))
    }

    /// Whether another process serves the address and hands it over.
    pub(super) fn is_inherited(&self) -> bool {
        matches!(self.source, Source::Inherited(_))
    }

    /// The sockets this process has bound itself, on which nobody else answers meanwhile.
    pub(super) fn bound(&self) -> Vec<TcpListener> {
        match &self.source {
            Source::Bound(sockets) => sockets.iter().filter_map(|socket| socket.try_clone().ok()).collect(),
            Source::Passed(_) | Source::Inherited(_) => Vec::new(),
        }
    }

    /// The listener for metrics, and whether it is new: the one handed over or passed, where that is the address that is wanted,
    /// else a new one.
    pub(super) fn metrics(&mut self, addr: SocketAddr) -> Result<(TcpListener, bool), StartError> {
        self.other(addr).map_err(|source| StartError::BindMetrics { addr, source })
    }

    /// The listener for gRPC, found in the same way.
    pub(super) fn grpc(&mut self, addr: SocketAddr) -> Result<TcpListener, StartError> {
        self.other(addr).map(|(listener, _)| listener).map_err(|source| StartError::BindGrpc { addr, source })
    }

    fn other(&mut self, addr: SocketAddr) -> io::Result<(TcpListener, bool)> {
        let wanted =
            |socket: &TcpListener| Listener::is_open(socket) && socket.local_addr().is_ok_and(|bound| bound == addr);
        match self.others.iter().position(wanted) {
            Some(at) => Ok((self.others.swap_remove(at), false)),
            None => once_free(addr, || TcpListener::bind(addr)).map(|bound| (bound, true)),
        }
    }

    /// The sockets of each core; from now on connections are ours to accept.
    pub(super) fn open(self, cores: usize, mode: DriverMode) -> Result<Vec<Vec<TcpListener>>, StartError> {
        let addr = self.addr;
        let fail = |source| StartError::Bind { addr, source };
        let is_lent = self.is_lent();
        let sockets = match self.source {
            Source::Bound(sockets) => sockets,
            Source::Passed(sockets) => {
                for socket in &sockets {
                    Listener::suit(socket, mode).and_then(|()| Listener::share(socket)).map_err(fail)?;
                }
                sockets
            }
            Source::Inherited(inherited) => {
                if let Err(error) = inherited.begin() {
                    tracing::warn!(%error, "the process that served the port has exited; this one uses its sockets all the same");
                }
                // One that stopped on its own meanwhile may have ended them: they would never bring a connection.
                let open: Vec<_> = inherited.sockets.into_iter().filter(Listener::is_open).collect();
                for socket in &open {
                    Listener::suit(socket, mode).map_err(fail)?;
                }
                open
            }
        };
        let mut shares: Vec<Vec<TcpListener>> = (0..cores).map(|_| Vec::new()).collect();
        for (at, socket) in sockets.into_iter().enumerate() {
            if let Some(share) = shares.get_mut(at % cores) {
                share.push(socket);
            }
        }
        let (served, unserved): (Vec<_>, Vec<_>) = shares.iter_mut().partition(|share| !share.is_empty());
        for (at, share) in unserved.into_iter().enumerate() {
            let socket = match served.get(at % served.len().max(1)).and_then(|of| of.first()) {
                // Nobody else may bind the address: cores accept from what there is.
                Some(socket) if is_lent => socket.try_clone(),
                _ => Listener::bind(addr, mode),
            };
            share.push(socket.map_err(fail)?);
        }
        Ok(shares)
    }
}

/// Waits until nobody listens on `addr`, for as long as a process that is stopping may take for that.
fn wait_for_the_end(addr: SocketAddr) {
    let end = Instant::now() + STOP_LIMIT;
    while Listener::probe_free(addr).is_err() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The sockets that listen on `addr`, and the others.
fn apart(sockets: Vec<TcpListener>, addr: SocketAddr) -> (Vec<TcpListener>, Vec<TcpListener>) {
    sockets.into_iter().partition(|socket| socket.local_addr().is_ok_and(|bound| bound == addr))
}
