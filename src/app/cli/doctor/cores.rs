//! Placement of the gateway's threads and memory: cores, isolated ones, NUMA nodes, huge pages, rings.
//!
//! One pinned thread per core carries traffic; the store, the analysis and the API run on threads that the scheduler places among the same
//! cores. What the kernel says is read as text, so that each judgement is a function of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use weir_config::Settings;
use weir_config::settings::IoDriver;

use super::diagnosis::Diagnosis;
use crate::rt;

/// What the kernel says of the machine.
struct Machine {
    /// Cores that this process may run on.
    allowed: BTreeSet<usize>,
    /// Cores that the scheduler leaves alone (`isolcpus=`, isolated partitions).
    isolated: BTreeSet<usize>,
    /// Nodes by their cores.
    nodes: Vec<(usize, BTreeSet<usize>)>,
    /// Cores' worth of time that the control group grants.
    quota: Option<f64>,
    huge_pages: String,
    rings_disabled: String,
}

impl Machine {
    /// What the files below `root` say of it; which cores are allowed says the system itself.
    fn read(root: &Path, allowed: BTreeSet<usize>) -> Self {
        let at = |path: &Path| fs::read_to_string(root.join(path.strip_prefix("/").unwrap_or(path)));
        let read = |path: &str| at(Path::new(path)).unwrap_or_default();
        let nodes = list(&read("/sys/devices/system/node/online"));
        let cores = |node: usize| list(&read(&format!("/sys/devices/system/node/node{node}/cpulist")));
        Self {
            allowed,
            isolated: list(&read("/sys/devices/system/cpu/isolated")),
            nodes: nodes.into_iter().map(|node| (node, cores(node))).collect(),
            quota: quota(&read("/proc/self/cgroup"), |path| at(path).ok()),
            huge_pages: read("/sys/kernel/mm/transparent_hugepage/enabled"),
            rings_disabled: read("/proc/sys/kernel/io_uring_disabled"),
        }
    }
}

/// Everything about the placement.
pub(super) fn placement(settings: Option<&Settings>) -> Vec<Diagnosis> {
    let machine = Machine::read(Path::new("/"), rt::allowed_cpus().into_iter().collect());
    judged(&machine, settings)
}

fn judged(machine: &Machine, settings: Option<&Settings>) -> Vec<Diagnosis> {
    let wanted = settings.map_or(0, |settings| settings.server.core_threads);
    let mut found = vec![cores(machine, wanted), numa(machine), huge_pages(&machine.huge_pages)];
    let driver = settings.map_or(IoDriver::Auto, |settings| settings.server.io_driver);
    found.extend(ring_limits(&machine.rings_disabled, driver));
    found
}

/// A list of numbers as the kernel writes it: `0-3,8`.
fn list(text: &str) -> BTreeSet<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

/// The same, written.
fn shown(cores: &BTreeSet<usize>) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for core in cores {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *core => *last = *core,
            _ => runs.push((*core, *core)),
        }
    }
    let run =
        |(first, last): &(usize, usize)| if first == last { first.to_string() } else { format!("{first}-{last}") };
    runs.iter().map(run).collect::<Vec<_>>().join(",")
}

/// Cores' worth of time that the control group of this process, or one above it, grants (`cpu.max` of version 2).
fn quota(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<f64> {
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let root = Path::new("/sys/fs/cgroup");
    let of = |folder: &Path| {
        let text = read(&folder.join("cpu.max"))?;
        let (granted, period) = text.trim().split_once(' ')?;
        Some(granted.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
    };
    let place = root.join(own.trim_start_matches('/'));
    place.ancestors().take_while(|folder| folder.starts_with(root)).filter_map(of).reduce(f64::min)
}

fn cores(machine: &Machine, wanted: usize) -> Diagnosis {
    let have = machine.allowed.len();
    let threads = if wanted == 0 { have.max(1) } else { wanted };
    let on = format!("{threads} core thread(s) on cores {}", shown(&machine.allowed));
    if threads > have {
        return Diagnosis::warn(
            "cores",
            format!("{on}: more threads than cores, so none is pinned; set server.core_threads to {have} or less"),
        );
    }
    if let Some(quota) = machine.quota.filter(|quota| *quota < threads as f64) {
        return Diagnosis::warn(
            "cores",
            format!(
                "{on}, and the control group grants the time of {quota:.1}: all of them stand still when it is used up; set \
                 server.core_threads to {} or raise the quota",
                (quota.floor() as usize).max(1)
            ),
        );
    }
    let isolated: BTreeSet<usize> = machine.allowed.intersection(&machine.isolated).copied().collect();
    if !isolated.is_empty() && isolated.len() == have {
        return Diagnosis::warn(
            "cores",
            format!(
                "{on}, all of them isolated: the threads that are not pinned (store, analysis, API) stay on one of them, because the \
                 scheduler moves nothing there; allow one more core that is not isolated (CPUAffinity=, taskset)"
            ),
        );
    }
    if !machine.isolated.is_empty() && isolated.is_empty() {
        return Diagnosis::ok(
            "cores",
            format!(
                "{on}; {} are isolated and not used: CPUAffinity= (or taskset) with them and one other core has Weir use them",
                shown(&machine.isolated)
            ),
        );
    }
    Diagnosis::ok("cores", format!("{on}, one pinned to each"))
}

fn numa(machine: &Machine) -> Diagnosis {
    let used: Vec<&(usize, BTreeSet<usize>)> =
        machine.nodes.iter().filter(|(_, cores)| !cores.is_disjoint(&machine.allowed)).collect();
    match used.as_slice() {
        [] | [_] => Diagnosis::ok("numa", "all cores share one node of memory"),
        several => {
            let parts: Vec<String> =
                several.iter().map(|(node, cores)| format!("node {node}: {}", shown(cores))).collect();
            Diagnosis::warn(
                "numa",
                format!(
                    "cores of several nodes ({}): buffers of a connection lie with its core, but rules, tables and the store are one for \
                     all; a process per node (CPUAffinity= and NUMAPolicy=bind, a port each) keeps memory near",
                    parts.join("; ")
                ),
            )
        }
    }
}

fn huge_pages(enabled: &str) -> Diagnosis {
    let mode = enabled.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map_or("", |(mode, _)| mode);
    match mode {
        "always" => Diagnosis::warn(
            "huge pages",
            "transparent huge pages are `always`: a process that is idle holds memory in pieces of 2 MiB; `madvise` \
             (/sys/kernel/mm/transparent_hugepage/enabled) keeps it small",
        ),
        "" => Diagnosis::ok("huge pages", "this kernel has no transparent huge pages; Weir asks for none"),
        mode => Diagnosis::ok("huge pages", format!("transparent huge pages are `{mode}`; Weir asks for none")),
    }
}

/// `kernel.io_uring_disabled`, where it says anything but 0.
fn ring_limits(disabled: &str, driver: IoDriver) -> Option<Diagnosis> {
    if driver == IoDriver::Epoll {
        return None;
    }
    match disabled.trim() {
        "1" => Some(Diagnosis::warn(
            "ring limits",
            "kernel.io_uring_disabled is 1: only processes with CAP_SYS_ADMIN, or of the group kernel.io_uring_group, get rings; add the \
             gateway's user to that group",
        )),
        "2" => Some(Diagnosis::warn(
            "ring limits",
            "kernel.io_uring_disabled is 2: no process gets a ring; with server.io_driver auto Weir uses epoll",
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::diagnosis::Level;
    use super::*;

    fn machine() -> Machine {
        Machine {
            allowed: list("0-3"),
            isolated: BTreeSet::new(),
            nodes: vec![(0, list("0-3"))],
            quota: None,
            huge_pages: String::new(),
            rings_disabled: String::new(),
        }
    }

    #[test]
    fn lists_are_read_and_written_as_the_kernel_does() {
        for text in ["0", "0-3", "0-3,8,10-11", ""] {
            assert_eq!(shown(&list(text)), text);
        }
        assert_eq!(list("x,1-,2\n"), BTreeSet::from([2]));
    }

    #[test]
    fn cores_that_are_too_few_throttled_or_isolated_are_named() {
        let say = |machine: &Machine, wanted| cores(machine, wanted);
        assert_eq!(say(&machine(), 0), Diagnosis::ok("cores", "4 core thread(s) on cores 0-3, one pinned to each"));
        assert_eq!(say(&machine(), 5).level, Level::Warn);
        let throttled = Machine { quota: Some(2.5), ..machine() };
        assert!(say(&throttled, 0).text.contains("set server.core_threads to 2"));
        assert_eq!(say(&throttled, 2).level, Level::Ok);
        let all = Machine { isolated: list("0-7"), ..machine() };
        assert!(say(&all, 0).text.contains("all of them isolated"));
        let others = Machine { isolated: list("4-7"), ..machine() };
        assert!(say(&others, 0).text.contains("4-7 are isolated and not used"));
        let some = Machine { isolated: list("2-3"), ..machine() };
        assert_eq!(say(&some, 0).level, Level::Ok);
    }

    #[test]
    fn several_nodes_are_named_where_the_process_has_cores_of_them() {
        let two = vec![(0, list("0-3")), (1, list("4-7"))];
        assert_eq!(numa(&Machine { nodes: two.clone(), ..machine() }).level, Level::Ok);
        let both = Machine { nodes: two, allowed: list("0-7"), ..machine() };
        assert!(numa(&both).text.contains("node 1: 4-7"), "{}", numa(&both).text);
        assert_eq!(numa(&Machine { nodes: Vec::new(), ..machine() }).level, Level::Ok);
    }

    #[test]
    fn huge_pages_and_rings_are_judged_by_what_the_kernel_says() {
        assert_eq!(huge_pages("[always] madvise never\n").level, Level::Warn);
        assert!(huge_pages("always [madvise] never\n").text.contains("`madvise`"));
        assert_eq!(huge_pages("").level, Level::Ok);
        assert_eq!(ring_limits("0\n", IoDriver::Auto), None);
        assert!(ring_limits("1\n", IoDriver::Auto).unwrap().text.contains("io_uring_group"));
        assert_eq!(ring_limits("2\n", IoDriver::Epoll), None);
    }

    /// A server with two sockets, half of the second isolated, as its kernel writes it into /sys and /proc.
    #[test]
    fn a_machine_of_two_nodes_is_read_from_its_files() {
        let root = tempfile::TempDir::new().unwrap();
        for (path, text) in [
            ("sys/devices/system/node/online", "0-1\n"),
            ("sys/devices/system/node/node0/cpulist", "0-15,32-47\n"),
            ("sys/devices/system/node/node1/cpulist", "16-31,48-63\n"),
            ("sys/devices/system/cpu/isolated", "24-31,56-63\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n"),
            ("proc/sys/kernel/io_uring_disabled", "2\n"),
            ("proc/self/cgroup", "0::/system.slice/weir.service\n"),
            ("sys/fs/cgroup/system.slice/weir.service/cpu.max", "400000 100000\n"),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let said = |allowed: &str| judged(&Machine::read(root.path(), list(allowed)), None);
        let texts = |allowed: &str| said(allowed).iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        let all = texts("0-63");
        for part in [
            "grants the time of 4.0: all of them stand still",
            "node 0: 0-15,32-47; node 1: 16-31,48-63",
            "transparent huge pages are `always`",
            "kernel.io_uring_disabled is 2",
        ] {
            assert!(all.contains(part), "{part}: {all}");
        }
        let one = said("24-27");
        assert!(one[0].text.contains("all of them isolated") && one[1].level == Level::Ok, "{}", texts("24-27"));
    }

    #[test]
    fn the_narrowest_group_counts() {
        let read = |path: &Path| match path.to_str() {
            Some("/sys/fs/cgroup/a/b/cpu.max") => Some("max 100000\n".to_owned()),
            Some("/sys/fs/cgroup/a/cpu.max") => Some("150000 100000\n".to_owned()),
            Some("/sys/fs/cgroup/cpu.max") => Some("400000 100000\n".to_owned()),
            _ => None,
        };
        assert_eq!(quota("0::/a/b\n", read), Some(1.5));
        assert_eq!(quota("0::/\n", |_| None), None);
        assert_eq!(quota("12:cpu:/x\n", read), None);
    }
}
