//! The kernel's clocks that the standard library does not offer.

#[cfg(debug_assertions)]
use std::time::Duration;

/// Milliseconds of the system's monotonic clock, the same on every core. Read from the kernel's coarse clock: it advances
/// every few milliseconds and costs a fifth of the exact one, which is what deadlines need, several times per request.
#[allow(unsafe_code)]
pub fn now_ms() -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime fills the timespec it is given and keeps no pointer to it.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut at) };
    let seconds = u64::try_from(at.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000).saturating_add(u64::try_from(at.tv_nsec).unwrap_or(0) / 1_000_000)
}

/// CPU time this thread has used.
#[cfg(debug_assertions)]
#[allow(unsafe_code)]
pub(super) fn thread_cpu_time() -> Duration {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime fills the timespec it is given and keeps no pointer to it.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut at) };
    Duration::new(u64::try_from(at.tv_sec).unwrap_or(0), u32::try_from(at.tv_nsec).unwrap_or(0))
}
