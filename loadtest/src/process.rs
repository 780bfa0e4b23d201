//! CPU time and memory of the measured processes, from `/proc`.
//!
//! CPU time is the sum over all threads of `schedstat`, in nanoseconds; when a thread ended in between, its share is
//! lost there, and the coarser but cumulative ticks of `stat` take over.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use crate::error::SetupError;
use crate::runtime;

/// Length of a tick in `/proc/PID/stat`: USER_HZ is 100 on every Linux that Rust's tier-one targets run on.
const TICK_NS: u64 = 10_000_000;
/// How often CPU time is looked at while waiting for quiet.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Less CPU than this between two looks is quiet.
const QUIET_NS: u64 = 1_000_000;
/// Waiting for quiet ends after this long in any case.
const QUIET_WAIT_MAX: Duration = Duration::from_secs(2);

/// Cumulative CPU time and present memory of some processes.
#[derive(Debug, Clone, Default)]
pub(super) struct Sample {
    /// Run time in nanoseconds of every thread.
    threads: HashMap<(u32, u32), u64>,
    /// Ticks of all processes.
    ticks: u64,
    /// Resident memory of all processes in KiB.
    pub(super) rss_kib: u64,
}

/// CPU time between two samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CpuTime {
    pub(super) total_ns: u64,
    /// `schedstat` or `stat`.
    pub(super) source: &'static str,
}

impl Sample {
    /// Reads the processes' state.
    pub(super) fn take(pids: &[u32]) -> Result<Self, SetupError> {
        let mut sample = Self::default();
        for &pid in pids {
            sample.add(pid).ok_or_else(|| SetupError(format!("--pid {pid}: no such process, or /proc is closed")))?;
        }
        Ok(sample)
    }

    fn add(&mut self, pid: u32) -> Option<()> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The command's name may hold blanks and parentheses; fields count from behind its last parenthesis.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        self.ticks += fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        self.rss_kib += rss.and_then(|rss| rss.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
        for task in fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten() {
            let Some(tid) = task.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // A thread may end between listing and reading; the ticks notice.
            let Ok(text) = fs::read_to_string(task.path().join("schedstat")) else { continue };
            if let Some(run_ns) = text.split_whitespace().next().and_then(|first| first.parse().ok()) {
                self.threads.insert((pid, tid), run_ns);
            }
        }
        Some(())
    }

    /// CPU time spent since an earlier sample.
    pub(super) fn since(&self, earlier: &Self) -> CpuTime {
        let lost = earlier.threads.keys().any(|thread| !self.threads.contains_key(thread));
        if lost || self.threads.is_empty() {
            return CpuTime { total_ns: (self.ticks - earlier.ticks) * TICK_NS, source: "stat" };
        }
        let spent = |(thread, run_ns): (&(u32, u32), &u64)| {
            run_ns.saturating_sub(earlier.threads.get(thread).copied().unwrap_or(0))
        };
        CpuTime { total_ns: self.threads.iter().map(spent).sum(), source: "schedstat" }
    }
}

/// Waits until the processes use almost no CPU any more, two seconds at most, so that work done after the last answer
/// is counted. Returns the sample at that point and how long it took.
pub(super) async fn settle(pids: &[u32]) -> Result<(Sample, Duration), SetupError> {
    let start = Instant::now();
    let mut sample = Sample::take(pids)?;
    let mut quiet_looks = 0;
    while !pids.is_empty() && quiet_looks < 2 && start.elapsed() < QUIET_WAIT_MAX {
        runtime::sleep(LOOK_EVERY).await;
        let next = Sample::take(pids)?;
        quiet_looks = if next.since(&sample).total_ns < QUIET_NS { quiet_looks + 1 } else { 0 };
        sample = next;
    }
    Ok((sample, start.elapsed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_the_work_of_threads_that_ended_by_ticks() {
        let busy = |sample: Sample, work_ms: u64| {
            let end = Instant::now() + Duration::from_millis(work_ms);
            let mut sum = 0u64;
            while Instant::now() < end {
                sum = std::hint::black_box(sum + 1);
            }
            Sample::take(&[std::process::id()]).unwrap().since(&sample)
        };
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || receiver.recv().unwrap_or_default());
        let before = Sample::take(&[std::process::id()]).unwrap();
        drop(sender);
        thread.join().unwrap();
        assert!(before.rss_kib > 0);
        let spent = busy(before, 60);
        assert_eq!(spent.source, "stat");
        assert!(spent.total_ns >= 2 * TICK_NS, "{spent:?}");
    }

    #[test]
    fn an_unknown_process_is_named() {
        assert_eq!(Sample::take(&[u32::MAX]).unwrap_err().0, "--pid 4294967295: no such process, or /proc is closed");
    }
}
