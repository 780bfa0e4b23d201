//! Threads that let others go first.
//!
//! A thread under the kernel's idle policy is put off at once when another thread wakes; usually. Linux's fair scheduler
//! (EEVDF) picks among those whose share is not used up, though, and a thread that has just worked may have used up its
//! own: then the idle one keeps the CPU until the next tick, up to 4 ms later, while that thread waits for it. Asking the
//! scheduler again every few dozen microseconds ends that: by then the idle thread, whose share is the smallest there is,
//! has used it up.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Time between two questions. One costs about half a microsecond when nobody else wants the CPU.
const EVERY: Duration = Duration::from_micros(30);

thread_local! {
    static ASKED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// From now on the calling thread lets others go first at every [`pause`]. For threads whose work can wait.
pub fn yield_often() {
    ASKED.set(Some(Instant::now()));
}

/// A place where the calling thread can be put off; to be passed often. Does nothing on a thread that did not ask for it.
pub fn pause() {
    let Some(asked) = ASKED.get() else { return };
    if asked.elapsed() >= EVERY {
        std::thread::yield_now();
        ASKED.set(Some(Instant::now()));
    }
}
