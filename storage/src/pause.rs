//! Places where the writer lets others go first.
//!
//! It shares CPUs with threads that callers wait for, and its work comes in long stretches.

use std::cell::RefCell;

thread_local! {
    static PAUSE: RefCell<Option<Box<dyn Fn()>>> = const { RefCell::new(None) };
}

/// From now on the calling thread calls `pause` at each place.
pub(crate) fn set(pause: impl Fn() + 'static) {
    PAUSE.set(Some(Box::new(pause)));
}

/// A place where the calling thread may be put off; to be passed every few dozen microseconds of work.
pub(crate) fn here() {
    PAUSE.with_borrow(|pause| {
        if let Some(pause) = pause {
            pause();
        }
    });
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    #[test]
    fn a_thread_that_was_told_nothing_passes_by() {
        here();
        let called = Rc::new(Cell::new(0));
        let counter = Rc::clone(&called);
        set(move || counter.set(counter.get() + 1));
        here();
        std::thread::spawn(here).join().unwrap();
        assert_eq!(called.get(), 1);
    }
}
