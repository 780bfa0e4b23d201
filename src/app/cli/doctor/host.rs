//! The machine: kernel, ring, locked memory, descriptors, clock. What is read comes from /proc; what it means is decided
//! by functions of what was read.

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weir_config::Settings;
use weir_config::settings::{IoDriver, StorageProfile};

use super::diagnosis::Diagnosis;
use crate::ops::descriptors::DescriptorNeed;
use crate::ops::memory::{self, MemoryLimit};
use crate::rt;

/// Since this kernel, rings are charged to the control group and not to the locked memory.
const MEMLOCK_FREE_SINCE: (u32, u32) = (5, 12);
/// What the rings of a few cores take where they are charged to locked memory.
const MEMLOCK_LEAST_BYTES: u64 = 8 << 20;
/// 2026-01-01: a clock before this is wrong, since no build of Weir is older.
const EPOCH_LEAST: Duration = Duration::from_secs(1_767_225_600);
/// A last write that lies further in the future than this means that the clock went back.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(60);

/// Everything about the machine; without settings only what does not depend on them.
pub(super) fn machine(settings: Option<&Settings>) -> Vec<Diagnosis> {
    let release = read("/proc/sys/kernel/osrelease");
    let limits = read("/proc/self/limits");
    let mut found = vec![kernel(&release)];
    if let Some(settings) = settings {
        found.push(ring(
            settings.server.io_driver,
            rt::probe(settings.server.io_driver).map_err(|error| error.to_string()),
        ));
    }
    found.push(memlock(limit(&limits, "Max locked memory"), &release));
    if let Some(settings) = settings {
        // The start raises the soft limit to the hard one.
        found.push(descriptors(hard_limit(&limits, "Max open files"), DescriptorNeed::of(settings)));
    }
    if let Some(settings) = settings {
        found.push(memory(MemoryLimit::allowed(), settings));
    }
    let written = settings.filter(|settings| settings.storage.profile == StorageProfile::Lite).and_then(|settings| {
        let newest = |path: &std::path::Path| fs::metadata(path).and_then(|file| file.modified()).ok();
        newest(&settings.storage.database_path)
    });
    found.push(clock(SystemTime::now(), written));
    found
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// Major and minor number.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => Some((major, minor)),
        _ => None,
    }
}

fn kernel(release: &str) -> Diagnosis {
    match version(release) {
        Some(found) if found >= (6, 1) => Diagnosis::ok("kernel", format!("Linux {release}")),
        Some(found) if found >= (5, 10) => {
            Diagnosis::warn("kernel", format!("Linux {release}: works; the fastest ring mode needs Linux 6.1"))
        }
        Some(_) => Diagnosis::fail("kernel", format!("Linux {release} is too old; use Linux 5.10 or later")),
        None => Diagnosis::fail("kernel", "/proc/sys/kernel/osrelease names no version; Weir runs on Linux only"),
    }
}

fn ring(wanted: IoDriver, granted: Result<rt::DriverMode, String>) -> Diagnosis {
    match granted {
        Err(error) => Diagnosis::fail("io driver", error),
        Ok(mode) if mode == rt::DriverMode::Epoll && wanted == IoDriver::Auto => Diagnosis::warn(
            "io driver",
            "epoll: the kernel grants no io_uring; allow io_uring_setup (seccomp profile, kernel.io_uring_disabled) for \
             less CPU per request",
        ),
        Ok(mode) => Diagnosis::ok("io driver", mode.to_string()),
    }
}

/// The soft value of a line of /proc/self/limits; `u64::MAX` for unlimited.
fn limit(limits: &str, name: &str) -> Option<u64> {
    limit_at(limits, name, 0)
}

/// The hard value of the same line.
fn hard_limit(limits: &str, name: &str) -> Option<u64> {
    limit_at(limits, name, 1)
}

fn limit_at(limits: &str, name: &str, column: usize) -> Option<u64> {
    let rest = limits.lines().find_map(|line| line.strip_prefix(name))?;
    match rest.split_whitespace().nth(column)? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

fn memlock(soft_bytes: Option<u64>, release: &str) -> Diagnosis {
    let charged = version(release).is_none_or(|found| found < MEMLOCK_FREE_SINCE);
    match soft_bytes {
        None => Diagnosis::warn("memlock", "/proc/self/limits does not name it"),
        Some(bytes) if charged && bytes < MEMLOCK_LEAST_BYTES => Diagnosis::fail(
            "memlock",
            format!(
                "{bytes} bytes; this kernel charges rings to locked memory: raise it to 8 MiB (`ulimit -l`, \
                 LimitMEMLOCK=) or set server.io_driver to epoll"
            ),
        ),
        Some(u64::MAX) => Diagnosis::ok("memlock", "unlimited"),
        Some(bytes) if charged => Diagnosis::ok("memlock", format!("{bytes} bytes")),
        Some(bytes) => Diagnosis::ok("memlock", format!("{bytes} bytes; this kernel does not charge rings to it")),
    }
}

fn descriptors(hard: Option<u64>, need: DescriptorNeed) -> Diagnosis {
    match hard {
        None => Diagnosis::warn("descriptors", "/proc/self/limits does not name them"),
        Some(u64::MAX) => Diagnosis::ok("descriptors", "unlimited"),
        Some(have) if have < need.least() => Diagnosis::fail("descriptors", need.advice(have)),
        Some(have) if have < need.full() => Diagnosis::warn("descriptors", need.advice(have)),
        Some(have) => Diagnosis::ok("descriptors", format!("{have}, of which {} may be needed", need.full())),
    }
}

/// Most of the memory there is that bodies should take: the rest of Weir lives in it, too.
const BODIES_PART_MAX: u64 = 2;

fn memory(allowed: Option<MemoryLimit>, settings: &Settings) -> Diagnosis {
    let Some(allowed) = allowed else {
        return Diagnosis::warn("memory", "neither a control group nor /proc/meminfo says how much there is");
    };
    let bodies = memory::body_bytes(settings, Some(allowed));
    let (have, part) = (allowed.bytes >> 20, bodies >> 20);
    let place = if allowed.by_group { "in this container" } else { "on this machine" };
    let request = settings.limits.max_request_size_bytes;
    if bodies > allowed.bytes / BODIES_PART_MAX {
        Diagnosis::warn(
            "memory",
            format!(
                "{have} MiB {place}, and bodies may take {part} MiB of it: set server.max_body_memory_bytes to less than \
                 half, or the kernel may end the process"
            ),
        )
    } else if request.saturating_mul(2) > bodies {
        Diagnosis::warn(
            "memory",
            format!(
                "{have} MiB {place}, of which bodies may take {part} MiB: a request of {} MiB that has to be held, with its \
                 text, does not fit; raise server.max_body_memory_bytes or lower max_request_size_bytes",
                request >> 20
            ),
        )
    } else {
        Diagnosis::ok("memory", format!("{have} MiB {place}, of which bodies may take {part} MiB"))
    }
}

fn clock(now: SystemTime, database_written: Option<SystemTime>) -> Diagnosis {
    let since_epoch = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    if since_epoch < EPOCH_LEAST {
        return Diagnosis::fail(
            "clock",
            "the system's clock is before 2026; certificates and budgets need the right time",
        );
    }
    match database_written.and_then(|written| written.duration_since(now).ok()) {
        Some(ahead) if ahead > CLOCK_TOLERANCE => Diagnosis::fail(
            "clock",
            format!(
                "the database was last written {} s in the future: the clock went back; synchronise it (NTP)",
                ahead.as_secs()
            ),
        ),
        _ => Diagnosis::ok("clock", "after the last write to the database and after this build"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::diagnosis::Level;
    use super::*;

    #[test]
    fn an_old_kernel_fails_and_a_middling_one_warns() {
        let level = |release| kernel(release).level;
        assert_eq!(level("4.18.0-553.el8.x86_64"), Level::Fail);
        assert_eq!(level("5.10.0"), Level::Warn);
        assert_eq!(level("6.0.19"), Level::Warn);
        assert_eq!(level("6.1.0-13-amd64"), Level::Ok);
        assert_eq!(level("10.0"), Level::Ok);
        assert_eq!(level(""), Level::Fail);
        assert_eq!(level("Darwin"), Level::Fail);
    }

    #[test]
    fn a_kernel_without_io_uring_fails_where_it_is_demanded_and_warns_where_it_would_be_taken() {
        assert_eq!(ring(IoDriver::IoUring, Err("refused".to_owned())).level, Level::Fail);
        assert_eq!(ring(IoDriver::Auto, Ok(rt::DriverMode::Epoll)).level, Level::Warn);
        assert_eq!(ring(IoDriver::Epoll, Ok(rt::DriverMode::Epoll)).level, Level::Ok);
        assert_eq!(ring(IoDriver::Auto, Ok(rt::DriverMode::UringPlain)).level, Level::Ok);
    }

    #[test]
    fn little_locked_memory_fails_only_where_rings_are_charged_to_it() {
        assert_eq!(memlock(Some(65_536), "5.10.0").level, Level::Fail);
        assert_eq!(memlock(Some(8 << 20), "5.10.0").level, Level::Ok);
        assert_eq!(memlock(Some(0), "6.1.0").level, Level::Ok);
        assert_eq!(memlock(Some(u64::MAX), "5.10.0").text, "unlimited");
        assert_eq!(memlock(None, "6.1.0").level, Level::Warn);
    }

    #[test]
    fn too_few_descriptors_fail_and_few_warn() {
        let level = |have| descriptors(Some(have), DescriptorNeed { clients: 10_000, upstream: 1_000 }).level;
        assert_eq!(level(1_024), Level::Fail);
        assert_eq!(level(11_000), Level::Warn);
        assert_eq!(level(1_048_576), Level::Ok);
        assert_eq!(level(u64::MAX), Level::Ok);
    }

    #[test]
    fn bodies_that_leave_no_memory_or_have_none_warn() {
        let mut settings = Settings::default();
        let found =
            |settings: &Settings, mib: u64| memory(Some(MemoryLimit { bytes: mib << 20, by_group: true }), settings);
        assert_eq!(
            found(&settings, 2_048),
            Diagnosis::ok("memory", "2048 MiB in this container, of which bodies may take 512 MiB")
        );
        // A quarter of it does not hold the largest request and its text.
        assert!(found(&settings, 256).text.contains("max_request_size_bytes"));
        settings.server.max_body_memory_bytes = Some(512 << 20);
        assert_eq!(found(&settings, 1_024).level, Level::Ok);
        assert!(found(&settings, 1_000).text.contains("set server.max_body_memory_bytes to less"));
        assert_eq!(memory(None, &settings).level, Level::Warn);
    }

    #[test]
    fn a_clock_that_is_wrong_or_went_back_fails() {
        let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        assert_eq!(clock(now, None).level, Level::Ok);
        assert_eq!(clock(now, Some(now + Duration::from_secs(59))).level, Level::Ok);
        assert_eq!(clock(now, Some(now + Duration::from_secs(3_600))).level, Level::Fail);
        assert_eq!(clock(UNIX_EPOCH, None).level, Level::Fail);
    }

    #[test]
    fn limits_are_read_as_the_kernel_writes_them() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max locked memory         8388608              unlimited            bytes     \n\
                      Max open files            unlimited            1048576              files     \n";
        assert_eq!(limit(limits, "Max locked memory"), Some(8_388_608));
        assert_eq!(limit(limits, "Max open files"), Some(u64::MAX));
        assert_eq!(hard_limit(limits, "Max open files"), Some(1_048_576));
        assert_eq!(limit(limits, "Max nonsense"), None);
    }
}
