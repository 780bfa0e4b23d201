//! The body of one core thread: accept, serve, and at the end drain.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_channel::oneshot;

use super::takeover::HandOver;
use crate::client::{Admission, evict, make_room, say_no_room, turn_away};
use crate::flow::serve;
use crate::limits::DRAIN_LIMIT;
use crate::meter::ClientEvent;
use crate::process::{Core, Process};
use crate::rt::{self, Accepted, Conn, Listener, Spare, TlsAcceptor};

/// What a core is told at the end: how long what is in flight may still take.
pub(super) type DrainOrder = Duration;

/// How long cut connections get to end their exchange in the records.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// How long a core waits after a failed accept before it tries again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often a core says that it cannot accept connections.
const SAY_AGAIN_MS: u64 = 60_000;

/// Out of descriptors: how many idle connections are ended, and how many queued ones are told, before each pause.
const RELIEF: usize = 16;

/// How often a core does its housekeeping.
const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// How often it looks meanwhile for credentials that have been taken away: what another process revokes is known here after a quarter of
/// a second, and what is under way with it is to end within the second.
const REVOKED_LOOKS: u32 = 3;

/// What a core begins with.
pub(super) struct CoreSetup {
    pub(super) process: Arc<Process>,
    /// Which core it is; the first is 0.
    pub(super) index: usize,
    /// At least one.
    pub(super) listeners: Vec<std::net::TcpListener>,
    /// Set where the listener speaks TLS.
    pub(super) tls: Option<Arc<TlsAcceptor>>,
    /// Whether the sockets go to another process at the end.
    pub(super) hand_over: Arc<HandOver>,
    /// Comes at the end.
    pub(super) order: oneshot::Receiver<DrainOrder>,
    /// Told when connections are accepted.
    pub(super) listening: std::sync::mpsc::SyncSender<()>,
}

/// Accepts connections for one core.
struct Acceptor {
    core: Rc<Core>,
    listener: Listener,
    tls: Option<Arc<TlsAcceptor>>,
    /// The accepting task runs.
    open: Cell<bool>,
}

/// Runs one core until it has been drained.
pub(super) async fn run(setup: CoreSetup) {
    let CoreSetup { process, index, listeners, tls, hand_over, order, listening } = setup;
    let listeners = match listeners.into_iter().map(Listener::from_std).collect::<Result<Vec<_>, _>>() {
        Ok(listeners) => listeners,
        Err(error) => {
            tracing::error!(%error, "a core could not take over its listener");
            return;
        }
    };
    let core = Core::new(process, index);
    spawn(&core, housekeeping(Rc::clone(&core)));
    spawn(&core, make_room(Rc::clone(&core)));
    let acceptor =
        |listener| Rc::new(Acceptor { core: Rc::clone(&core), listener, tls: tls.clone(), open: Cell::new(true) });
    let acceptors: Vec<_> = listeners.into_iter().map(acceptor).collect();
    for acceptor in &acceptors {
        spawn(&core, Rc::clone(acceptor).accept());
    }
    // Nobody may be waiting for the news; the core serves all the same.
    let _unheard = listening.send(()).is_err();
    let limit = order.await.unwrap_or(Duration::ZERO);
    for acceptor in acceptors {
        acceptor.close(&hand_over).await;
    }
    hand_over.core_stopped();
    drain(&core, limit).await;
}

/// Waits until every connection has ended, at most `limit`. Idle ones are closed after [`DRAIN_LIMIT`]: a request may be on its
/// way; busy ones get `Connection: close` with their answer. What is left then is cut, and given a moment to be recorded.
async fn drain(core: &Rc<Core>, limit: Duration) {
    let listened = DRAIN_LIMIT.min(limit);
    if ended_within(core, listened).await {
        return;
    }
    core.end_idle();
    if ended_within(core, limit.saturating_sub(listened)).await {
        return;
    }
    let left: Vec<_> = core.open_connections.borrow().open().collect();
    core.process.count_cut(left.len());
    tracing::warn!(connections = left.len(), "connections were cut at the end of shutdown.timeout_seconds");
    for fd in left {
        // An end in order could make an answer that only an end frames look whole.
        rt::reset(fd);
    }
    ended_within(core, LAST_MOMENT).await;
}

/// Waits until no connection is open, at most `limit`.
async fn ended_within(core: &Core, limit: Duration) -> bool {
    let give_up = rt::now_ms().saturating_add(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
    while !core.open_connections.borrow().is_empty() {
        if rt::now_ms() >= give_up {
            return false;
        }
        rt::sleep(Duration::from_millis(2)).await;
    }
    true
}

impl Acceptor {
    /// Accepts no more. What is queued is served, unless another process does that, now or when it is started.
    async fn close(self: Rc<Self>, hand_over: &HandOver) {
        self.listener.stop();
        while self.open.get() {
            rt::sleep(Duration::from_millis(1)).await;
        }
        if !hand_over.stay_open() {
            for (conn, peer) in self.listener.accept_queued(self.core.process.parts.edge.mode) {
                self.take(conn, peer);
            }
            self.listener.refuse();
        }
    }

    async fn accept(self: Rc<Self>) {
        let mut spare = Spare::new();
        let mut said_ms: Option<u64> = None;
        loop {
            match self.listener.accept().await {
                Ok(Accepted::Connection(conn, peer)) => self.take(conn, peer),
                Ok(Accepted::Stopped) => break,
                Err(error) => {
                    let now = rt::now_ms();
                    if said_ms.is_none_or(|said| now - said >= SAY_AGAIN_MS) {
                        said_ms = Some(now);
                        tracing::warn!(%error, "connections cannot be accepted; will retry");
                    }
                    if rt::is_out_of_descriptors(&error) {
                        self.relieve(&mut spare);
                    }
                    // Others have to end first, and spinning would not help them.
                    rt::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        self.open.set(false);
    }

    /// Serves a new connection, or tells it that there is no room.
    fn take(&self, conn: Conn, peer: std::net::SocketAddr) {
        let core = &self.core;
        match Admission::let_in(core, conn.fd(), peer.ip()) {
            Ok(admission) => {
                let (serving, tls) = (Rc::clone(core), self.tls.clone());
                spawn(core, async move { serve(serving, conn, admission, tls.as_deref()).await });
            }
            Err(why) => {
                if let Some(telling) = turn_away(core, conn, why, self.tls.is_none()) {
                    spawn(core, telling);
                }
            }
        }
    }

    /// No descriptor is left: some idle connections go, and who is queued is told.
    fn relieve(&self, spare: &mut Spare) {
        for _ in 0..RELIEF {
            if !evict(&self.core, None) {
                break;
            }
        }
        let answer = if self.tls.is_none() { say_no_room() } else { bytes::Bytes::new() };
        for _ in 0..spare.turn_away(&self.listener, self.core.process.parts.edge.mode, &answer, RELIEF) {
            self.core.meter.client(ClientEvent::RefusedDescriptors);
        }
    }
}

/// Spawns a task whose panic is counted and logged.
#[track_caller]
fn spawn(core: &Rc<Core>, task: impl Future<Output = ()> + 'static) {
    let counted = Rc::clone(core);
    rt::spawn(task, move |message| {
        counted.meter.panic();
        tracing::error!(message, "a task panicked; only its connection is lost");
    });
}

async fn housekeeping(core: Rc<Core>) {
    let (mut shown, mut generation) = ((0, 0), 0);
    loop {
        let settings = core.settings();
        let (mut open, mut idle) = (0, 0);
        for pool in settings.local_upstreams.pools() {
            pool.close_stale();
            let (pool_open, pool_idle) = pool.gauge();
            (open, idle) = (open + pool_open, idle + pool_idle);
        }
        drop(settings);
        let active = open.saturating_sub(idle);
        core.meter.upstream_connections_add(crate::meter::UpstreamState::Active, i64::from(active) - shown.0);
        core.meter.upstream_connections_add(crate::meter::UpstreamState::Idle, i64::from(idle) - shown.1);
        shown = (i64::from(active), i64::from(idle));
        if core.index == 0 {
            core.process.parts.edge.exchanges.sum_up(core.process.now_s());
        }
        for _ in 0..REVOKED_LOOKS {
            core.end_revoked(&mut generation);
            rt::sleep(HOUSEKEEPING / REVOKED_LOOKS).await;
        }
    }
}
