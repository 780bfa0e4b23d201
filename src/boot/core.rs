//! The body of one core thread: accept, serve, and at the end drain.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_channel::oneshot;

use crate::flow::{Core, Process, serve_connection};
use crate::rt::{self, Accepted, Conn, Listener};

/// What a core is told at the end: how long what is in flight may still take.
pub(super) type DrainOrder = Duration;

/// How long cut connections get to end their exchange in the records.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// How often a core does its housekeeping.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// Runs one core until it has been drained.
pub(super) async fn run(
    process: Arc<Process>,
    listener: std::net::TcpListener,
    order: oneshot::Receiver<DrainOrder>,
    listening: std::sync::mpsc::SyncSender<()>,
) {
    let listener = match Listener::from_std(listener) {
        Ok(listener) => Rc::new(listener),
        Err(error) => {
            tracing::error!(%error, "a core could not take over its listener");
            return;
        }
    };
    let core = Core::new(process);
    spawn(&core, housekeeping(Rc::clone(&core)));
    spawn(&core, Rc::clone(&core.pool).lend());
    let accepting = Rc::new(std::cell::Cell::new(true));
    spawn(&core, accept(Rc::clone(&core), Rc::clone(&listener), Rc::clone(&accepting)));
    // Nobody may be waiting for the news; the core serves all the same.
    let _unheard = listening.send(()).is_err();
    let limit = order.await.unwrap_or(Duration::ZERO);
    listener.stop();
    while accepting.get() {
        rt::sleep(Duration::from_millis(1)).await;
    }
    for (conn, peer) in listener.accept_queued(core.process.parts.mode) {
        serve(&core, conn, peer);
    }
    listener.refuse();
    drop(listener);
    drain(&core, limit).await;
}

/// Waits until every connection has ended, at most `limit`. Idle ones are closed at once; busy ones get
/// `Connection: close` with their answer. What is left then is cut, and given a moment to be recorded.
async fn drain(core: &Rc<Core>, limit: Duration) {
    for fd in core.idle.borrow().iter() {
        rt::stop_reading(*fd);
    }
    if ended_within(core, limit).await {
        return;
    }
    let left: Vec<_> = core.open.borrow().iter().copied().collect();
    core.process.count_cut(left.len());
    tracing::warn!(connections = left.len(), "connections were cut at the end of shutdown.timeout_seconds");
    for fd in left {
        rt::stop(fd);
    }
    ended_within(core, LAST_MOMENT).await;
}

/// Waits until no connection is open, at most `limit`.
async fn ended_within(core: &Core, limit: Duration) -> bool {
    let give_up = rt::now_ms().saturating_add(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
    while !core.open.borrow().is_empty() {
        if rt::now_ms() >= give_up {
            return false;
        }
        rt::sleep(Duration::from_millis(2)).await;
    }
    true
}

async fn accept(core: Rc<Core>, listener: Rc<Listener>, accepting: Rc<std::cell::Cell<bool>>) {
    loop {
        match listener.accept().await {
            Ok(Accepted::Connection(conn, peer)) => serve(&core, conn, peer),
            Ok(Accepted::Stopped) => break,
            Err(error) => {
                // Out of descriptors or memory: others have to end first, and spinning would not help them.
                tracing::warn!(%error, "a connection could not be accepted");
                rt::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    accepting.set(false);
}

fn serve(core: &Rc<Core>, conn: Conn, peer: std::net::SocketAddr) {
    spawn(core, serve_connection(Rc::clone(core), conn, peer));
}

/// Spawns a task whose panic is counted and logged.
fn spawn(core: &Rc<Core>, task: impl Future<Output = ()> + 'static) {
    let counted = Rc::clone(core);
    rt::spawn(task, move |message| {
        counted.meter.panic();
        tracing::error!(message, "a task panicked; only its connection is lost");
    });
}

async fn housekeeping(core: Rc<Core>) {
    let mut shown = (0, 0);
    loop {
        core.pool.close_stale();
        let (open, idle) = core.pool.gauge();
        let active = open.saturating_sub(idle);
        core.meter.upstream_connections_add(crate::meter::UpstreamState::Active, i64::from(active) - shown.0);
        core.meter.upstream_connections_add(crate::meter::UpstreamState::Idle, i64::from(idle) - shown.1);
        shown = (i64::from(active), i64::from(idle));
        rt::sleep(HOUSEKEEPING).await;
    }
}
