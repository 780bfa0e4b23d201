//! Which thread the kernel lets run first where several want one CPU, and which CPUs there are.
//!
//! Core threads have the ordinary policy. What stands back needs more than that, see `yielding`.

use std::time::Duration;

/// Niceness of threads in the background: about a tenth of a core thread's share of a contended CPU.
const NICE_BACKGROUND: libc::c_int = 10;

/// Pins the calling thread to one CPU. A refusal (a container without that CPU) is harmless: the thread floats.
#[allow(unsafe_code)]
pub(super) fn pin_to(cpu: usize) {
    // SAFETY: `set` is a plain bit mask on our stack; CPU_SET writes inside it because the index is checked, and
    // sched_setaffinity only reads `size_of::<cpu_set_t>()` bytes from it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if cpu < 8 * size_of::<libc::cpu_set_t>() {
            libc::CPU_SET(cpu, &mut set);
            if libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) != 0 {
                tracing::debug!(cpu, "core thread could not be pinned");
            }
        }
    }
}

/// How long a core thread's turn is, the shortest there is. The kernel's own is some milliseconds.
const TURN: Duration = Duration::from_micros(100);
/// How long a turn is of threads that let core threads go first. Linux (6.12 and later) takes the CPU from a thread at
/// once when one with shorter turns wakes; one whose turns are as short keeps it to the end of its own.
const LONGER_TURN: Duration = Duration::from_micros(200);

/// Asks for short turns on the CPU, which come the sooner for it: Linux's fair scheduler (EEVDF, Linux 6.12 and later) lets a
/// thread that has been woken go before one whose turn ends later. The share of the CPU stays the same. Older kernels do not
/// mind; where it is refused the turns are as long as everybody's.
pub(super) fn take_short_turns() {
    take_turns(TURN);
}

#[allow(unsafe_code)]
fn take_turns(turn: Duration) {
    // SAFETY: `attr` is a plain struct on our stack, filled whole, which sched_setattr only reads; 0 names the calling thread.
    let refused = unsafe {
        let mut attr: libc::sched_attr = std::mem::zeroed();
        attr.size = size_of::<libc::sched_attr>() as u32;
        attr.sched_policy = libc::SCHED_OTHER as u32;
        attr.sched_nice = libc::getpriority(libc::PRIO_PROCESS, 0);
        attr.sched_runtime = turn.as_nanos() as u64;
        libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) != 0
    };
    if refused {
        tracing::debug!(?turn, "a thread could not be given short turns");
    }
}

/// Lets core threads go before the calling thread wherever both want the CPU: for threads whose work nobody's call waits
/// for. A refusal is harmless: the thread competes as before.
#[allow(unsafe_code)]
pub fn give_way() {
    // SAFETY: setpriority takes three numbers and touches no memory of ours; 0 names the calling thread on Linux.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE_BACKGROUND) } != 0 {
        tracing::debug!("a background thread could not be given a lower priority");
    }
}

/// Lets the calling thread run only while nothing else wants its CPU, and be put off at once when something does. Under the
/// ordinary policy a thread that is running, however low its priority, may go on for some milliseconds before one that
/// has just been woken gets its turn. A refusal is harmless: the thread gives way by niceness.
#[allow(unsafe_code)]
pub fn stand_back() {
    give_way();
    // SAFETY: `param` is a plain struct on our stack that sched_setscheduler only reads; 0 names the calling thread.
    let refused = unsafe {
        let param: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_IDLE, &param) != 0
    };
    if refused {
        tracing::debug!("a background thread could not be made to stand back");
    }
}

/// For threads whose work comes in long stretches and must not fall behind, such as the store's writer: their turns are
/// little longer than a core thread's, and others go first at every [`pause`](super::yielding::pause). A yield gives up
/// the rest of a turn for good (Linux 6.18): with the kernel's turns of milliseconds the writer of a busy gateway fell
/// behind until records were dropped.
pub fn let_others_in() {
    take_turns(LONGER_TURN);
    super::yielding::yield_often();
}

/// The same at low priority: for threads that read and take in what is reported.
pub fn give_way_often() {
    give_way();
    let_others_in();
}

/// The CPUs this process may run on, in ascending order.
#[allow(unsafe_code)]
pub fn allowed_cpus() -> Vec<usize> {
    // SAFETY: `set` is a plain bit mask that the kernel fills with at most its own size; CPU_ISSET reads inside it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set) != 0 {
            return Vec::new();
        }
        (0..8 * size_of::<libc::cpu_set_t>()).filter(|cpu| libc::CPU_ISSET(*cpu, &set)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number from the kernel's account of the calling thread (proc_pid_stat(5)).
    fn account(field: usize) -> i32 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        // Fields are counted behind the name, which is the second and may hold blanks.
        let behind_name = stat.rsplit_once(')').unwrap().1;
        behind_name.split_whitespace().nth(field - 3).unwrap().parse().unwrap()
    }

    #[test]
    fn standing_back_concerns_the_calling_thread_only() {
        let policy = || account(41);
        let background = std::thread::spawn(move || {
            stand_back();
            policy()
        });
        assert_eq!((background.join().unwrap(), policy()), (libc::SCHED_IDLE, libc::SCHED_OTHER));
    }

    #[test]
    #[allow(unsafe_code)]
    fn short_turns_change_nothing_else() {
        // SAFETY: zeroed plain memory, which the kernel fills at most to the size it is told; 0 names the calling thread.
        let asked = || unsafe {
            let mut attr: libc::sched_attr = std::mem::zeroed();
            let size = size_of::<libc::sched_attr>() as u32;
            assert_eq!(libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0), 0);
            (attr.sched_policy, attr.sched_nice, attr.sched_runtime)
        };
        let before = asked();
        // The background's turns are longer, so that a core thread that wakes goes first at once.
        assert!(TURN < LONGER_TURN);
        for (take, expected) in [(take_short_turns as fn(), TURN), (let_others_in, LONGER_TURN)] {
            let (policy, nice, turn) = std::thread::spawn(move || {
                take();
                asked()
            })
            .join()
            .unwrap();
            assert_eq!((policy, nice), (before.0, before.1));
            // Kernels before 6.12 keep no turn.
            assert!(turn == before.2 || Duration::from_nanos(turn) == expected, "{turn}");
        }
        assert_eq!(asked(), before);
    }

    #[test]
    fn giving_way_concerns_the_calling_thread_only() {
        let niceness = || account(19);
        let before = niceness();
        let background = std::thread::spawn(move || {
            give_way();
            niceness()
        });
        assert_eq!(background.join().unwrap(), before.max(NICE_BACKGROUND));
        assert_eq!(niceness(), before);
    }
}
