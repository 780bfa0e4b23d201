//! How many descriptors this process may have (getrlimit(2)). Knows nothing of what they are for.

use std::io;

/// The soft limit, after it has been raised to the hard one.
///
/// # Errors
/// The kernel's; the limits are what they were then.
#[allow(unsafe_code)]
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: getrlimit fills `limits`, setrlimit reads it; it outlives both calls and no pointer is kept.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limits) != 0 {
            return Err(io::Error::last_os_error());
        }
        if limits.rlim_cur < limits.rlim_max {
            limits.rlim_cur = limits.rlim_max;
            if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limits) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
    }
    Ok(limits.rlim_cur)
}
