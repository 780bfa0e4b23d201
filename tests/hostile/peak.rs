//! What work takes of memory: the bytes that are allocated, counted, for texts of one length, of twice and of four times that.
//!
//! A grown buffer counts as the old and the new one together, as where it has to be copied. Counted is what this thread allocates,
//! so that other tests may run, or what the whole process does, where the work is that of others: then they may not.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::texts::{families, hostile};

/// The system's allocator, counted.
struct Counted;

/// What is allocated now, and the most that was, by the process.
static NOW: AtomicIsize = AtomicIsize::new(0);
static MOST: AtomicIsize = AtomicIsize::new(0);

thread_local! {
    /// The same by this thread; what it gives back for others counts for it.
    static HERE: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

fn change(bytes: isize) {
    let now = NOW.fetch_add(bytes, Ordering::Relaxed) + bytes;
    MOST.fetch_max(now, Ordering::Relaxed);
    // A thread that ends has none any more.
    let _counted = HERE.try_with(|here| {
        let (now, most) = here.get();
        here.set((now + bytes, most.max(now + bytes)));
    });
}

fn size(layout: Layout) -> isize {
    isize::try_from(layout.size()).unwrap_or(isize::MAX)
}

#[allow(unsafe_code)] // An allocator cannot be written without.
// SAFETY: every call goes to the system's allocator as it came; beside it numbers are added.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        change(size(layout));
        // SAFETY: the caller keeps to the contract of `alloc`, which is that of the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        change(-size(layout));
        // SAFETY: as above; the system's allocator gave it.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        change(size(layout));
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        change(isize::try_from(bytes).unwrap_or(isize::MAX));
        change(-size(layout));
        // SAFETY: as above; the system's allocator gave it.
        unsafe { System.realloc(at, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

/// Whose allocations count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// This thread's.
    Mine,
    /// Those of all threads.
    All,
}

/// Most bytes that there were during `work` beyond those before it.
pub(crate) fn peak_of<R>(whose: Whose, work: impl FnOnce() -> R) -> usize {
    let before = match whose {
        Whose::Mine => HERE.get().0,
        Whose::All => NOW.load(Ordering::Relaxed),
    };
    HERE.with(|here| here.set((here.get().0, here.get().0)));
    MOST.store(NOW.load(Ordering::Relaxed), Ordering::Relaxed);
    drop(std::hint::black_box(work()));
    let most = match whose {
        Whose::Mine => HERE.get().1,
        Whose::All => MOST.load(Ordering::Relaxed),
    };
    usize::try_from(most - before).unwrap_or_default()
}

/// Shortest text, in bytes; the others are twice and four times as long.
const SHORTEST: usize = 64 << 10;
/// Bytes that are nobody's: tables that are made when they are first needed, and what other threads do.
const NOISE: usize = 96 << 10;

/// What a step may take.
#[derive(Clone, Copy)]
pub(crate) struct Bound {
    /// Bytes for each byte of the text, beside the text itself.
    pub(crate) times: usize,
    /// Bytes whatever the text is.
    pub(crate) fixed: usize,
    /// Whose count.
    pub(crate) whose: Whose,
}

impl Bound {
    /// For the work of this thread.
    pub(crate) const fn mine(times: usize, fixed: usize) -> Self {
        Self { times, fixed, whose: Whose::Mine }
    }

    /// For the work of all threads.
    #[allow(dead_code)] // Not every suite has such work.
    pub(crate) const fn of_all(times: usize, fixed: usize) -> Self {
        Self { times, fixed, whose: Whose::All }
    }
}

/// Does `work` with every hostile text in three lengths: it takes no more than its bound, and twice as much for twice the text.
#[track_caller]
pub(crate) fn assert_bounded(name: &str, bound: Bound, mut work: impl FnMut(&str)) {
    assert_bounded_in(name, bound, hostile, |text| work(text));
}

/// The same with texts that are made of a hostile one before it counts.
#[track_caller]
pub(crate) fn assert_bounded_in<T>(name: &str, bound: Bound, text: impl Fn(usize, usize) -> T, work: impl FnMut(&T)) {
    assert_bounded_for(name, bound, families(), text, work);
}

/// The same with one text, which no hostile one is part of.
#[track_caller]
#[allow(dead_code)] // Not every suite has such texts.
pub(crate) fn assert_bounded_of<T>(name: &str, bound: Bound, text: impl Fn(usize) -> T, work: impl FnMut(&T)) {
    assert_bounded_for(name, bound, std::iter::once((0, name.to_owned())), |_, length| text(length), work);
}

#[track_caller]
fn assert_bounded_for<T>(
    name: &str,
    bound: Bound,
    families: impl Iterator<Item = (usize, String)>,
    text: impl Fn(usize, usize) -> T,
    mut work: impl FnMut(&T),
) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    // What is made once is made here.
    work(&text(0, SHORTEST));
    let longest = 4 * SHORTEST;
    let (mut steepest, mut most, mut wrong) = ((0.0, String::new()), 0, Vec::new());
    for (family, shown) in families {
        let peaks = [1, 2, 4].map(|times| {
            let text = text(family, times * SHORTEST);
            peak_of(bound.whose, || work(&text))
        });
        most = most.max(peaks[2]);
        let slope = peaks[2].saturating_sub(peaks[0]) as f64 / (3 * SHORTEST) as f64;
        if slope > steepest.0 {
            steepest = (slope, shown.clone());
        }
        let grows = peaks[2] > 2 * peaks[1] + peaks[1] / 4 + NOISE && peaks[1] > 2 * peaks[0] + NOISE;
        if grows || peaks[2] > bound.fixed + bound.times * longest {
            wrong.push(format!("{name}, {shown:?}: {peaks:?} bytes for {SHORTEST}, twice and four times that"));
        }
    }
    let (slope, shown) = steepest;
    println!("{name}: {slope:.1} bytes more a byte with {shown:?}; at most {most} bytes for {longest}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
