//! The gateway as a list of subsystems: each is started from what stands by then ([`Context`]), is told to take in nothing new
//! ([`Subsystem::drain`]) and ends ([`Subsystem::stop`]).
//!
//! They start in the order of [`SUBSYSTEMS`]. They drain, and then stop, in the reverse order: what stands higher in the list outlives
//! what is below it and uses it. A new one costs a file, with a function of type [`Build`], and a line in the list.

mod control;
mod data_path;
mod outward;
mod records;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use weir_config::Settings;
use weir_inference::WorkerPool;
use weir_storage::Store;

use super::StartError;
use super::control::ControlThread;
use super::network::Consumers;
use super::parts::{CorePlacement, Exports};
use super::takeover::HandOver;
use crate::alerts::Channels;
use crate::grpc;
use crate::identity::Identities;
use crate::ingest::Intake;
use crate::judging::Judging;
use crate::ops::health::Health;
use crate::ops::log::LogGuard;
use crate::process::Process;
use crate::receipts::Receipts;
use crate::reports::ReportBuilder;
use crate::router::Offenders;
use crate::rt::TlsAcceptor;

/// In the order in which they start.
const SUBSYSTEMS: [Build; 17] = [
    control::access_log,
    control::thread,
    outward::metrics,
    records::store,
    outward::consumers,
    outward::offenders,
    outward::spans,
    outward::events,
    outward::receipts,
    outward::alerts,
    records::reports,
    records::identities,
    records::spend,
    records::objects,
    data_path::inference,
    data_path::grpc,
    data_path::cores,
];

/// A part of the gateway that has an end of its own.
pub(super) trait Subsystem: Send {
    /// Takes in nothing new from here on. Returns at once.
    fn drain(&mut self) {}

    /// Ends what is under way and writes down what waits. False when something was cut or lost, which the log then says.
    fn stop(self: Box<Self>, time: &TimeLeft) -> bool;
}

/// Starts a subsystem; `None` where the settings ask for none, or it is only started and has nothing to end.
type Build = fn(&mut Context) -> Result<Option<Box<dyn Subsystem>>, StartError>;

/// What of `shutdown.timeout_seconds` is left.
pub(super) struct TimeLeft {
    started: Instant,
    limit: Duration,
}

impl TimeLeft {
    pub(super) fn of(limit: Duration) -> Self {
        Self { started: Instant::now(), limit }
    }

    /// Never nothing: a record that can be written within half a second is.
    pub(super) fn left(&self) -> Duration {
        self.limit.saturating_sub(self.started.elapsed()).max(Duration::from_millis(500))
    }
}

/// What subsystems are started from.
pub(super) struct Context {
    pub(super) settings: Arc<Settings>,
    pub(super) process: Arc<Process>,
    pub(super) health: Arc<Health>,
    pub(super) store: Store,
    pub(super) hand_over: Arc<HandOver>,
    pub(super) tls: Option<Arc<TlsAcceptor>>,
    /// The control thread's runtime.
    pub(super) control: Handle,
    /// The network runtime, where there are consumers of finished calls.
    pub(super) network: Option<Handle>,
    /// How long calls under way may take at the end.
    pub(super) shutdown_limit: Duration,
    pub(super) made: Made,
}

/// What was made before, because the data path is made of it; each goes to its subsystem.
pub(super) struct Made {
    pub(super) access_log: Option<LogGuard>,
    pub(super) control: Option<ControlThread>,
    pub(super) metrics: Option<TcpListener>,
    pub(super) consumers: Option<Consumers>,
    pub(super) judging: Option<Judging>,
    pub(super) offenders: Option<Arc<Offenders>>,
    pub(super) exports: Exports,
    pub(super) receipts: Option<Receipts>,
    pub(super) channels: Option<Channels>,
    pub(super) reports: Arc<ReportBuilder>,
    pub(super) identities: Arc<Identities>,
    pub(super) inference: Option<WorkerPool>,
    pub(super) grpc: Option<(TcpListener, Intake, grpc::Times)>,
    pub(super) cores: Option<(Vec<Vec<TcpListener>>, CorePlacement)>,
}

/// The subsystems that run.
pub(super) struct Running(Vec<Box<dyn Subsystem>>);

impl Running {
    /// Starts all of them.
    ///
    /// # Errors
    /// The first one that could not start; those that had are dropped, the last one first.
    pub(super) fn start(mut context: Context) -> Result<Self, StartError> {
        let mut running = Self(Vec::with_capacity(SUBSYSTEMS.len()));
        for build in SUBSYSTEMS {
            running.0.extend(build(&mut context)?);
        }
        Ok(running)
    }

    /// Drains all, then stops one after the other. True when nothing was cut and nothing lost.
    pub(super) fn stop(mut self, time: &TimeLeft) -> bool {
        self.0.iter_mut().rev().for_each(|subsystem| subsystem.drain());
        let mut clean = true;
        while let Some(subsystem) = self.0.pop() {
            clean &= subsystem.stop(time);
        }
        clean
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        while let Some(last) = self.0.pop() {
            drop(last);
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    type Log = Arc<Mutex<Vec<String>>>;

    struct Fake {
        name: &'static str,
        is_clean: bool,
        log: Log,
    }

    impl Subsystem for Fake {
        fn drain(&mut self) {
            self.log.lock().push(format!("{} drains", self.name));
        }

        fn stop(self: Box<Self>, _time: &TimeLeft) -> bool {
            self.log.lock().push(format!("{} stops", self.name));
            self.is_clean
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            self.log.lock().push(format!("{} is gone", self.name));
        }
    }

    fn running(log: &Log) -> Running {
        let all = [("store", true), ("consumers", false), ("cores", true)];
        let fake = |(name, is_clean)| Box::new(Fake { name, is_clean, log: Arc::clone(log) }) as Box<dyn Subsystem>;
        Running(all.into_iter().map(fake).collect())
    }

    #[test]
    fn all_drain_before_the_first_stops_and_each_outlives_those_started_after_it() {
        let log = Log::default();
        let clean = running(&log).stop(&TimeLeft::of(Duration::from_secs(1)));
        assert!(!clean, "one of them lost something");
        let expected = [
            "cores drains",
            "consumers drains",
            "store drains",
            "cores stops",
            "cores is gone",
            "consumers stops",
            "consumers is gone",
            "store stops",
            "store is gone",
        ];
        assert_eq!(*log.lock(), expected);
    }

    #[test]
    fn those_of_a_start_that_failed_go_in_the_same_order() {
        let log = Log::default();
        drop(running(&log));
        assert_eq!(*log.lock(), ["cores is gone", "consumers is gone", "store is gone"]);
    }
}
