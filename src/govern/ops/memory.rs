//! How much memory there is, how much of it bodies may take, and when free memory is worth giving back.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use weir_config::Settings;

/// Most that bodies take where no setting says more.
const BODIES_BYTES_MAX: u64 = 512 << 20;
/// The part of the memory that is for bodies where no setting says otherwise.
const BODIES_PART: u64 = 4;
/// The part of the memory that remembers which texts were clean, and its bounds: a call of 1 MB has some 1,500 texts, and the least
/// remembers 300,000.
const TEXTS_PART: u64 = 256;
const TEXTS_BYTES: [u64; 2] = [5 << 20, 85 << 20];
/// The part of the memory that spans may take which wait for the store, and its bounds.
const SPANS_PART: u64 = 64;
const SPANS_BYTES: [u64; 2] = [64 << 20, 256 << 20];
/// Limits from here on are none: cgroup v1 has no other word for that.
const NO_LIMIT: u64 = 1 << 60;
/// More than the least that was ever resident, by which giving back is worth its cost.
const CHANGE_BYTES: u64 = 32 << 20;
/// After so many tries in vain the pause grows no more: 16 minutes.
const VAIN_MAX: u32 = 5;
/// Least time between two tries.
const PAUSE: Duration = Duration::from_secs(30);

/// The memory this process may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Bytes.
    pub bytes: u64,
    /// Whether a control group sets it, not the machine.
    pub by_group: bool,
}

impl MemoryLimit {
    /// What the control groups of this process and the machine allow; `None` where neither says.
    pub fn allowed() -> Option<Self> {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let group = group_limit(&groups, Path::new("/sys/fs/cgroup")).map(|bytes| Self { bytes, by_group: true });
        let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let machine = machine_bytes(&info).map(|bytes| Self { bytes, by_group: false });
        [group, machine].into_iter().flatten().min_by_key(|memory| memory.bytes)
    }
}

/// Bytes that bodies and the text read from them may take: the setting, else a quarter of the memory, at most 512 MiB.
pub fn body_bytes(settings: &Settings, memory: Option<MemoryLimit>) -> u64 {
    let part = memory.map_or(u64::MAX, |memory| memory.bytes / BODIES_PART);
    settings.server.max_body_memory_bytes.unwrap_or_else(|| part.min(BODIES_BYTES_MAX))
}

/// Bytes that remembering clean texts may take.
pub fn known_text_bytes(memory: Option<MemoryLimit>) -> usize {
    part(memory, TEXTS_PART, TEXTS_BYTES)
}

/// Bytes of spans that may wait for the store.
pub fn waiting_span_bytes(memory: Option<MemoryLimit>) -> usize {
    part(memory, SPANS_PART, SPANS_BYTES)
}

/// A part of the memory, within bounds; the least where nobody says how much there is.
fn part(memory: Option<MemoryLimit>, part: u64, [least, most]: [u64; 2]) -> usize {
    let bytes = memory.map_or(least, |memory| (memory.bytes / part).clamp(least, most));
    usize::try_from(bytes).unwrap_or(usize::MAX)
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

/// Decides when free memory is given back: while more is resident than there was at the least, less and less often as long as
/// that does not help. What is free cannot be seen from outside, so it is tried.
#[derive(Debug, Default)]
pub struct GivingBack {
    /// The least that was ever resident.
    least: Option<u64>,
    /// What was resident after the last try.
    then: u64,
    last: Option<Instant>,
    /// Tries in a row that gave nothing back.
    vain: u32,
}

impl GivingBack {
    /// Whether it is worth trying at `now`, with so much resident.
    pub fn is_due(&mut self, resident: u64, now: Instant) -> bool {
        let least = self.least.map_or(resident, |least| least.min(resident));
        self.least = Some(least);
        if resident.abs_diff(self.then) >= CHANGE_BYTES {
            self.vain = 0;
        }
        let pause = PAUSE * 2_u32.pow(self.vain.min(VAIN_MAX));
        let rested = self.last.is_none_or(|last| now.saturating_duration_since(last) >= pause);
        rested && resident >= least + CHANGE_BYTES
    }

    /// It has been tried with `before` bytes resident, and `after` are now.
    pub fn tried(&mut self, before: u64, after: u64, now: Instant) {
        let has_helped = before.saturating_sub(after) >= CHANGE_BYTES / 4;
        self.vain = if has_helped { 0 } else { self.vain + 1 };
        (self.then, self.last) = (after, Some(now));
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
        let bytes = |settings: &Settings, mib: u64| {
            body_bytes(settings, Some(MemoryLimit { bytes: mib * MIB, by_group: true }))
        };
        assert_eq!(bytes(&settings, 512), 128 * MIB);
        assert_eq!(bytes(&settings, 64 * 1_024), 512 * MIB);
        assert_eq!(body_bytes(&settings, None), 512 * MIB);
        settings.server.max_body_memory_bytes = Some(3 * MIB);
        assert_eq!(bytes(&settings, 512), 3 * MIB);
    }

    #[test]
    fn what_is_remembered_and_what_waits_goes_by_the_memory_there_is() {
        let memory = |mib: u64| Some(MemoryLimit { bytes: mib * MIB, by_group: true });
        let known = [None, memory(256), memory(4 * 1_024), memory(64 * 1_024)].map(known_text_bytes);
        assert_eq!(known, [5 << 20, 5 << 20, 16 << 20, 85 << 20]);
        let waiting = [None, memory(512), memory(8 * 1_024), memory(64 * 1_024)].map(waiting_span_bytes);
        assert_eq!(waiting, [64 << 20, 64 << 20, 128 << 20, 256 << 20]);
    }

    #[test]
    fn the_machine_is_read_as_the_kernel_writes_it() {
        assert_eq!(machine_bytes("MemTotal:       16311856 kB\nMemFree: 1 kB\n"), Some(16_311_856 * 1_024));
        assert_eq!(machine_bytes(""), None);
    }

    #[test]
    fn memory_is_given_back_while_it_helps_and_seldom_where_it_does_not() {
        let (mut giving, start) = (GivingBack::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(!giving.is_due(25 * MIB, at(0)));
        assert!(!giving.is_due(56 * MIB, at(31)), "too little");
        assert!(giving.is_due(700 * MIB, at(31)));
        giving.tried(700 * MIB, 600 * MIB, at(31));
        assert!(!giving.is_due(610 * MIB, at(60)), "too soon");
        assert!(giving.is_due(610 * MIB, at(61)));
        // All of it was in use at that moment.
        giving.tried(610 * MIB, 610 * MIB, at(61));
        assert!(!giving.is_due(610 * MIB, at(120)));
        assert!(giving.is_due(610 * MIB, at(121)), "it may be free by now");
        giving.tried(610 * MIB, 610 * MIB, at(121));
        assert!(!giving.is_due(610 * MIB, at(240)));
        assert!(giving.is_due(500 * MIB, at(240)), "much has gone, and may have left more behind");
        giving.tried(500 * MIB, 40 * MIB, at(240));
        assert!(!giving.is_due(56 * MIB, at(10_000)));
    }
}
