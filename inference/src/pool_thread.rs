//! Which threads are of a pool: what must never run on a core asks.

use std::cell::Cell;

thread_local! {
    static IS_OF_POOL: Cell<bool> = const { Cell::new(false) };
}

/// This thread is one of a pool from here on.
pub(crate) fn begins() {
    IS_OF_POOL.set(true);
}

/// Whether this is a thread of a pool.
pub(crate) fn is_one() -> bool {
    IS_OF_POOL.get()
}
