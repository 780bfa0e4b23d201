//! The gateway as a list of subsystems: each is started from what stands by then ([`Context`]), is told to take in nothing new
//! ([`Subsystem::drain`]) and ends ([`Subsystem::stop`]).
//!
//! They start in the order of [`SUBSYSTEMS`]. They drain, and then stop, in the reverse order: what stands higher in the list outlives
//! what is below it and uses it. A new one costs a file, with a function of type [`Build`], and a line in the list.

mod context;
mod control;
mod data_path;
mod outward;
mod records;

use super::StartError;
use context::Subsystem;
pub(super) use context::{Context, Made, TimeLeft};

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

/// Starts a subsystem; `None` where the settings ask for none, or it is only started and has nothing to end.
type Build = fn(&mut Context) -> Result<Option<Box<dyn Subsystem>>, StartError>;

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
    use std::sync::Arc;
    use std::time::Duration;

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
