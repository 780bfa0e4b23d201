//! The storage probe: asks the store at an interval whether it works and tells [`Health`].
//!
//! Invariant: at most one probe runs at a time; a probe that hangs counts as one miss per interval and is not joined by
//! a second one. Runs as a task of the control thread, the probe itself on a blocking thread. Knows the store only as a
//! question that can fail.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::health::Health;

/// When to probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// `health_check.interval_seconds`.
    pub interval: Duration,
    /// `health_check.timeout_ms`.
    pub timeout: Duration,
}

impl Default for Schedule {
    fn default() -> Self {
        Self { interval: Duration::from_secs(10), timeout: Duration::from_secs(5) }
    }
}

/// One question to the store; the error says why it does not work.
pub type Probe = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Probes for ever, the first time at once. Logs when storage is lost and when it is back.
pub async fn watch(schedule: Schedule, health: Arc<Health>, probe: Probe) {
    let mut ticks = interval(schedule.interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut hanging: Option<JoinHandle<Result<(), String>>> = None;
    let mut is_lost = false;
    loop {
        ticks.tick().await;
        let mut running = hanging.take().unwrap_or_else(|| {
            let probe = probe.clone();
            spawn_blocking(move || probe())
        });
        let outcome = match timeout(schedule.timeout, &mut running).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err("the probe panicked".to_owned()),
            Err(_) => {
                hanging = Some(running);
                Err(format!("no answer within {} ms", schedule.timeout.as_millis()))
            }
        };
        let misses = health.probed(outcome.is_ok());
        match outcome {
            Ok(()) if is_lost => {
                is_lost = false;
                tracing::info!("storage answers again");
            }
            Err(reason) if !is_lost && health.is_too_many(misses) => {
                is_lost = true;
                tracing::error!(misses, reason, "storage does not answer; health is degraded");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::sync::mpsc;

    use weir_config::Settings;
    use weir_config::settings::StorageProfile;

    use super::*;
    use crate::meter::Registry;
    use crate::ops::breaker::Breakers;
    use crate::ops::clock::Clock;
    use crate::ops::health::Facts;

    const OFTEN: Schedule = Schedule { interval: Duration::from_millis(2), timeout: Duration::from_millis(20) };

    fn ready() -> Arc<Health> {
        let facts = Facts {
            version: "0.1.0",
            storage_profile: StorageProfile::Lite,
            judge_enabled_at_startup: false,
            retries: 3,
        };
        let breakers = Breakers::new(Settings::default().circuit_breaker, &Clock::monotonic());
        let health = Arc::new(Health::new(facts, Arc::new(breakers), Arc::new(Registry::new())));
        health.ready();
        health
    }

    /// Runs the probe until health says `status`.
    async fn until(health: &Health, status: &str) {
        let said = async {
            while health.report().1.status != status {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(20), said).await.unwrap_or_else(|_| panic!("health never became {status}"));
    }

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test);
    }

    #[test]
    fn storage_that_fails_degrades_and_heals_without_a_restart() {
        run(async {
            let health = ready();
            let works = Arc::new(AtomicBool::new(false));
            let asked = works.clone();
            let probe: Probe =
                Arc::new(move || if asked.load(Ordering::SeqCst) { Ok(()) } else { Err("disk full".to_owned()) });
            let watching = tokio::spawn(watch(OFTEN, health.clone(), probe));
            until(&health, "degraded").await;
            works.store(true, Ordering::SeqCst);
            until(&health, "healthy").await;
            watching.abort();
        });
    }

    #[test]
    fn a_hanging_probe_degrades_and_is_not_joined_by_others() {
        run(async {
            let health = ready();
            let started = Arc::new(AtomicU32::new(0));
            let counted = started.clone();
            let (release, wait) = mpsc::channel::<()>();
            let wait = parking_lot::Mutex::new(wait);
            let probe: Probe = Arc::new(move || {
                counted.fetch_add(1, Ordering::SeqCst);
                wait.lock().recv().map_err(|_| "released".to_owned())
            });
            let watching = tokio::spawn(watch(OFTEN, health.clone(), probe));
            until(&health, "degraded").await;
            assert_eq!(started.load(Ordering::SeqCst), 1);
            release.send(()).unwrap();
            until(&health, "healthy").await;
            watching.abort();
            drop(release);
        });
    }

    #[test]
    fn a_panicking_probe_counts_as_a_miss() {
        run(async {
            let health = ready();
            let watching = tokio::spawn(watch(OFTEN, health.clone(), Arc::new(|| panic!("store is broken"))));
            until(&health, "degraded").await;
            watching.abort();
        });
    }
}
