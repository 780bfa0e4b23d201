//! CPU time and memory of the measured processes, from `/proc`, or of a control group.
//!
//! CPU time is the sum over all threads of `schedstat`, in nanoseconds; when a thread ended in between, its share is
//! lost there, and the coarser but cumulative ticks of `stat` take over.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
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

/// Whose CPU time and memory are accounted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Subjects {
    pub(super) pids: Vec<u32>,
    /// Whether the processes that these have started count with them.
    pub(super) with_children: bool,
    /// Folders of control groups, version 2.
    pub(super) groups: Vec<PathBuf>,
}

impl Subjects {
    /// These processes and no others.
    pub(super) fn pids(pids: &[u32]) -> Self {
        Self { pids: pids.to_vec(), ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pids.is_empty() && self.groups.is_empty()
    }
}

/// Cumulative CPU time and present memory of some processes.
#[derive(Debug, Clone, Default)]
pub(super) struct Sample {
    /// Run time in nanoseconds of every thread.
    threads: HashMap<(u32, u32), u64>,
    /// Ticks of all processes.
    ticks: u64,
    /// Run time in nanoseconds of control groups.
    groups_ns: u64,
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
    /// Reads the state of the processes and groups.
    pub(super) fn take(subjects: &Subjects) -> Result<Self, SetupError> {
        let mut sample = Self::default();
        for &pid in &subjects.pids {
            sample.add(pid).ok_or_else(|| SetupError(format!("{pid}: no such process, or /proc is closed")))?;
            if subjects.with_children {
                // One that ends meanwhile takes its figures with it.
                for child in descendants(pid) {
                    sample.add(child).unwrap_or_default();
                }
            }
        }
        for group in &subjects.groups {
            let missing =
                || SetupError(format!("{}: no control group (version 2) with cpu and memory", group.display()));
            sample.add_group(group).ok_or_else(missing)?;
        }
        Ok(sample)
    }

    fn add_group(&mut self, group: &Path) -> Option<()> {
        let stat = fs::read_to_string(group.join("cpu.stat")).ok()?;
        let usage = stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
        self.groups_ns += usage.trim().parse::<u64>().ok()? * 1000;
        let memory = fs::read_to_string(group.join("memory.current")).ok()?;
        self.rss_kib += memory.trim().parse::<u64>().ok()? / 1024;
        Some(())
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
        if self.threads.is_empty() && self.ticks == 0 && self.groups_ns > 0 {
            return CpuTime { total_ns: self.groups_ns.saturating_sub(earlier.groups_ns), source: "cgroup" };
        }
        let lost = earlier.threads.keys().any(|thread| !self.threads.contains_key(thread));
        if lost || self.threads.is_empty() {
            let ticks = self.ticks.saturating_sub(earlier.ticks);
            return CpuTime { total_ns: ticks * TICK_NS + self.groups_since(earlier), source: "stat" };
        }
        let spent = |(thread, run_ns): (&(u32, u32), &u64)| {
            run_ns.saturating_sub(earlier.threads.get(thread).copied().unwrap_or(0))
        };
        let threads_ns: u64 = self.threads.iter().map(spent).sum();
        CpuTime { total_ns: threads_ns + self.groups_since(earlier), source: "schedstat" }
    }

    fn groups_since(&self, earlier: &Self) -> u64 {
        self.groups_ns.saturating_sub(earlier.groups_ns)
    }
}

/// All processes that this one has started, and those that they have.
fn descendants(pid: u32) -> Vec<u32> {
    let (mut found, mut next) = (Vec::new(), vec![pid]);
    while let Some(parent) = next.pop() {
        let Ok(tasks) = fs::read_dir(format!("/proc/{parent}/task")) else { continue };
        for task in tasks.flatten() {
            let text = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            let children: Vec<u32> = text.split_whitespace().filter_map(|child| child.parse().ok()).collect();
            next.extend(&children);
            found.extend(children);
        }
    }
    found
}

/// Waits until the processes use almost no CPU any more, two seconds at most, so that work done after the last answer
/// is counted. Returns the sample at that point and how long it took.
pub(super) async fn settle(subjects: &Subjects) -> Result<(Sample, Duration), SetupError> {
    let start = Instant::now();
    let mut sample = Sample::take(subjects)?;
    let mut quiet_looks = 0;
    while !subjects.is_empty() && quiet_looks < 2 && start.elapsed() < QUIET_WAIT_MAX {
        runtime::sleep(LOOK_EVERY).await;
        let next = Sample::take(subjects)?;
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
        // Works until the ticks show it: how long that takes depends on who else wants the core.
        let busy = |sample: Sample| loop {
            let mut sum = 0u64;
            (0..100_000u64).for_each(|number| sum = std::hint::black_box(sum ^ number));
            let spent = Sample::take(&Subjects::pids(&[std::process::id()])).unwrap().since(&sample);
            if spent.total_ns >= 2 * TICK_NS {
                return spent;
            }
        };
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || receiver.recv().unwrap_or_default());
        let before = Sample::take(&Subjects::pids(&[std::process::id()])).unwrap();
        drop(sender);
        thread.join().unwrap();
        assert!(before.rss_kib > 0);
        assert_eq!(busy(before).source, "stat");
    }

    #[test]
    fn processes_that_a_process_has_started_count_with_it() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let own = std::process::id();
        assert!(descendants(own).contains(&child.id()));
        let with = Sample::take(&Subjects { with_children: true, ..Subjects::pids(&[own]) }).unwrap();
        assert!(with.threads.keys().any(|(pid, _)| *pid == child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_control_group_is_read_and_a_missing_one_is_named() {
        let folder = std::env::temp_dir().join(format!("weir-loadtest-group-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let subjects = Subjects { groups: vec![folder.clone()], ..Subjects::default() };
        let sample = |usage: u64| {
            fs::write(folder.join("cpu.stat"), format!("usage_usec {usage}\nuser_usec 1\n")).unwrap();
            fs::write(folder.join("memory.current"), "2097152\n").unwrap();
            Sample::take(&subjects).unwrap()
        };
        let (first, second) = (sample(500), sample(1_700));
        assert_eq!(second.since(&first), CpuTime { total_ns: 1_200_000, source: "cgroup" });
        assert_eq!(second.rss_kib, 2048);
        fs::remove_dir_all(&folder).unwrap();
        assert!(Sample::take(&subjects).unwrap_err().0.contains("no control group"));
    }

    #[test]
    fn an_unknown_process_is_named() {
        assert_eq!(
            Sample::take(&Subjects::pids(&[u32::MAX])).unwrap_err().0,
            "4294967295: no such process, or /proc is closed"
        );
    }
}
