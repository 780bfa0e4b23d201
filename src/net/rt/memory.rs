//! The memory of this process: how much of it is resident, and giving back what nobody uses.

use std::fs;

/// Bytes of memory that are resident (proc(5), `statm`); `None` where the kernel does not say.
pub fn resident_bytes() -> Option<u64> {
    let pages = fs::read_to_string("/proc/self/statm").ok()?;
    let pages = pages.split_whitespace().nth(1)?.parse::<u64>().ok()?;
    Some(pages * page_bytes())
}

#[allow(unsafe_code)]
fn page_bytes() -> u64 {
    // SAFETY: takes and returns an integer.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4_096)
}

/// Gives free memory of all threads back to the kernel. Takes milliseconds per hundred MB and holds each thread's allocations
/// up for its part of that: not for a core thread, and not often.
#[allow(unsafe_code)]
pub fn give_back_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes an integer, touches only memory that the allocator knows to be free, under its own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}
