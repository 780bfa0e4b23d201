//! What a subsystem is, and what it is started from.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use weir_config::Settings;
use weir_inference::WorkerPool;
use weir_storage::Store;

use crate::alerts::Channels;
use crate::boot::control::ControlThread;
use crate::boot::network::Consumers;
use crate::boot::parts::{CorePlacement, Exports};
use crate::boot::takeover::HandOver;
use crate::grpc;
use crate::identity::Identities;
use crate::ingest::Intake;
use crate::judging::Judging;
use crate::ops::health::Health;
use crate::ops::log::LogGuard;
use crate::process::Process;
use crate::replay::Replays;
use crate::reports::ReportBuilder;
use crate::router::Offenders;
use crate::rt::TlsAcceptor;

/// A part of the gateway that has an end of its own.
pub(in crate::app::boot) trait Subsystem: Send {
    /// Takes in nothing new from here on. Returns at once.
    fn drain(&mut self) {}

    /// Ends what is under way and writes down what waits. False when something was cut or lost, which the log then says.
    fn stop(self: Box<Self>, time: &TimeLeft) -> bool;
}

/// What of `shutdown.timeout_seconds` is left.
pub(in crate::app::boot) struct TimeLeft {
    started: Instant,
    limit: Duration,
}

impl TimeLeft {
    pub(in crate::app::boot) fn of(limit: Duration) -> Self {
        Self { started: Instant::now(), limit }
    }

    /// Never nothing: a record that can be written within half a second is.
    pub(in crate::app::boot) fn left(&self) -> Duration {
        self.limit.saturating_sub(self.started.elapsed()).max(Duration::from_millis(500))
    }
}

/// What subsystems are started from.
pub(in crate::app::boot) struct Context {
    pub(in crate::app::boot) settings: Arc<Settings>,
    pub(in crate::app::boot) process: Arc<Process>,
    pub(in crate::app::boot) health: Arc<Health>,
    pub(in crate::app::boot) store: Store,
    pub(in crate::app::boot) hand_over: Arc<HandOver>,
    pub(in crate::app::boot) tls: Option<Arc<TlsAcceptor>>,
    /// The control thread's runtime.
    pub(in crate::app::boot) control: Handle,
    /// The network runtime, where there are consumers of finished calls.
    pub(in crate::app::boot) network: Option<Handle>,
    /// How long calls under way may take at the end.
    pub(in crate::app::boot) shutdown_limit: Duration,
    pub(in crate::app::boot) made: Made,
}

/// What was made before, because the data path is made of it; each goes to its subsystem.
pub(in crate::app::boot) struct Made {
    pub(in crate::app::boot) access_log: Option<LogGuard>,
    pub(in crate::app::boot) control: Option<ControlThread>,
    pub(in crate::app::boot) metrics: Option<TcpListener>,
    pub(in crate::app::boot) consumers: Option<Consumers>,
    pub(in crate::app::boot) judging: Option<Judging>,
    pub(in crate::app::boot) offenders: Option<Arc<Offenders>>,
    pub(in crate::app::boot) exports: Exports,
    pub(in crate::app::boot) channels: Option<Channels>,
    pub(in crate::app::boot) reports: Arc<ReportBuilder>,
    pub(in crate::app::boot) replays: Arc<Replays>,
    pub(in crate::app::boot) identities: Arc<Identities>,
    pub(in crate::app::boot) inference: Option<WorkerPool>,
    pub(in crate::app::boot) grpc: Option<(TcpListener, Intake, grpc::Times)>,
    pub(in crate::app::boot) cores: Option<(Vec<Vec<TcpListener>>, CorePlacement)>,
}
