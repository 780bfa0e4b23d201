//! How much memory there is, how much of it bodies may take, and when free memory is worth giving back.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weir_config::Settings;

/// Most that bodies take where no setting says more.
const BODIES_BYTES_MAX: u64 = 512 << 20;
/// The part of the memory that is for bodies where no setting says otherwise.
const BODIES_PART: u64 = 4;
/// Limits from here on are none: cgroup v1 has no other word for that.
const NO_LIMIT: u64 = 1 << 60;
/// Change since memory was last given back that makes giving back worth its cost: what came may be free again, and what went may
/// have left more behind.
const CHANGE_BYTES: u64 = 32 << 20;
/// Least time between two tries.
const PAUSE: Duration = Duration::from_secs(30);

/// The memory this process may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Bytes.
    pub(crate) bytes: u64,
    /// Whether a control group sets it, not the machine.
    pub(crate) by_group: bool,
}

impl Memory {
    /// What the control groups of this process and the machine allow; `None` where neither says.
    pub(crate) fn allowed() -> Option<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let group = group_limit(&groups, Path::new("/sys/fs/cgroup")).map(|bytes| Self { bytes, by_group: true });
        let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let machine = machine_bytes(&info).map(|bytes| Self { bytes, by_group: false });
        [group, machine].into_iter().flatten().min_by_key(|memory| memory.bytes)
    }
}

/// Bytes that bodies and the text read from them may take: the setting, else a quarter of the memory, at most 512 MiB.
pub(crate) fn body_bytes(settings: &Settings, memory: Option<Memory>) -> u64 {
    let part = memory.map_or(u64::MAX, |memory| memory.bytes / BODIES_PART);
    settings.server.max_body_memory_bytes.unwrap_or_else(|| part.min(BODIES_BYTES_MAX))
}

/// The least limit of the control groups that /proc/self/cgroup names and of those around them, mounted at `root`: version 2, or
/// the memory controller of version 1. In a container the path may be the host's, and then only the root is there.
fn group_limit(groups: &str, root: &Path) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let (base, file) = match controllers {
            "" => (root.to_path_buf(), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => (root.join("memory"), "memory.limit_in_bytes"),
            _ => return None,
        };
        least(&base, path, file)
    });
    limits.min()
}

fn least(base: &Path, path: &str, file: &str) -> Option<u64> {
    let mut folders: Vec<PathBuf> = vec![base.to_path_buf()];
    for part in Path::new(path.trim_start_matches('/')).iter() {
        let inner = folders.last().map(|folder| folder.join(part))?;
        folders.push(inner);
    }
    let limit = |folder: &PathBuf| fs::read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok();
    folders.iter().filter_map(limit).filter(|bytes| *bytes < NO_LIMIT).min()
}

fn machine_bytes(info: &str) -> Option<u64> {
    let line = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1_024)
}

/// Decides when free memory is given back: when much has come or gone since the last time.
#[derive(Debug, Default)]
pub(crate) struct GivingBack {
    /// What was resident after the last time, or at first.
    then: Option<u64>,
    last: Option<Instant>,
}

impl GivingBack {
    /// Whether it is worth trying at `now`, with so much resident.
    pub(crate) fn is_due(&mut self, resident: u64, now: Instant) -> bool {
        let then = *self.then.get_or_insert(resident);
        let rested = self.last.is_none_or(|last| now.saturating_duration_since(last) >= PAUSE);
        rested && resident.abs_diff(then) >= CHANGE_BYTES
    }

    /// It has been tried, and so much is resident now.
    pub(crate) fn tried(&mut self, resident: u64, now: Instant) {
        (self.then, self.last) = (Some(resident), Some(now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn the_tightest_group_around_a_process_is_its_limit() {
        let root = tempfile::tempdir().unwrap();
        write(&root.path().join("pod/memory.max"), "536870912\n");
        write(&root.path().join("pod/app/memory.max"), "max\n");
        assert_eq!(group_limit("0::/pod/app\n", root.path()), Some(512 * MIB));
        assert_eq!(group_limit("0::/\n", root.path()), None);
        write(&root.path().join("memory.max"), "268435456\n");
        assert_eq!(group_limit("0::/not/mounted/here\n", root.path()), Some(256 * MIB));
    }

    #[test]
    fn the_first_version_is_read_too_and_its_word_for_none_is_understood() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("memory/memory.limit_in_bytes");
        write(&file, "9223372036854771712\n");
        let groups = "9:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n";
        assert_eq!(group_limit(groups, root.path()), None);
        write(&file, "134217728\n");
        assert_eq!(group_limit(groups, root.path()), Some(128 * MIB));
    }

    #[test]
    fn bodies_get_a_quarter_and_never_more_than_the_most() {
        let mut settings = Settings::default();
        let bytes =
            |settings: &Settings, mib: u64| body_bytes(settings, Some(Memory { bytes: mib * MIB, by_group: true }));
        assert_eq!(bytes(&settings, 512), 128 * MIB);
        assert_eq!(bytes(&settings, 64 * 1_024), 512 * MIB);
        assert_eq!(body_bytes(&settings, None), 512 * MIB);
        settings.server.max_body_memory_bytes = Some(3 * MIB);
        assert_eq!(bytes(&settings, 512), 3 * MIB);
    }

    #[test]
    fn the_machine_is_read_as_the_kernel_writes_it() {
        assert_eq!(machine_bytes("MemTotal:       16311856 kB\nMemFree: 1 kB\n"), Some(16_311_856 * 1_024));
        assert_eq!(machine_bytes(""), None);
    }

    #[test]
    fn memory_is_given_back_after_a_change_and_not_again_for_nothing() {
        let (mut giving, start) = (GivingBack::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(!giving.is_due(25 * MIB, at(0)));
        assert!(!giving.is_due(56 * MIB, at(31)), "too little");
        assert!(giving.is_due(700 * MIB, at(31)));
        giving.tried(600 * MIB, at(31));
        assert!(!giving.is_due(700 * MIB, at(60)), "too soon");
        assert!(giving.is_due(700 * MIB, at(61)));
        giving.tried(700 * MIB, at(61));
        assert!(!giving.is_due(700 * MIB, at(99)), "it is in use");
        assert!(giving.is_due(100 * MIB, at(100)), "what is left may be free");
        giving.tried(30 * MIB, at(100));
        assert!(!giving.is_due(61 * MIB, at(200)));
    }
}
