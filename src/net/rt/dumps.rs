//! Keeping the process's memory to itself: it holds keys, tokens and what people said.

/// No core of this process is written to a file, nor handed to a collector. One byte and not none: a collector behind a pipe
/// (systemd-coredump) is given cores whatever the limit is, except where it is 1 (core(5), `do_coredump` in the kernel).
/// `/proc` stays readable to the user who runs it, which PR_SET_DUMPABLE would end.
#[allow(unsafe_code)]
pub fn forbid_core_dumps() {
    let least = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
    // SAFETY: setrlimit reads `least`, which outlives the call.
    if unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const least) } != 0 {
        // The hard limit was 0 already, which is as good where no collector takes cores.
        let error = std::io::Error::last_os_error();
        tracing::debug!(%error, "the limit on core files stays as it is");
    }
}
