//! Whether work is linear in what it is given: CPU time for one length and for four times that.
//!
//! Time is that of the calling thread on the CPU, so that a busy machine does not count; noise makes a measurement longer only, so
//! the shortest of some is taken, and more are made before anything is called superlinear.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How much more four times the text may take. Linear work takes 4 times as long, and somewhat more where memory gets slower;
/// quadratic work takes 16 times.
const RATIO_MAX: f64 = 8.0;
/// Work that takes less is lost in the noise of clock and memory, and harms nobody.
const SHORTEST: Duration = Duration::from_micros(1_000);
/// Work that takes longer shows its shape; longer texts need not be tried.
const LONG_ENOUGH: Duration = Duration::from_micros(1_500);
/// Lengths that are tried, each four times the one before, in bytes.
const LENGTHS: [usize; 4] = [16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Measurements before a length is called superlinear.
const TRIES: usize = 12;

/// CPU time of this thread up to this moment.
fn cpu_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().expect("a time after the thread's beginning")
}

fn once(work: impl FnOnce()) -> Duration {
    let before = cpu_time();
    work();
    cpu_time().saturating_sub(before)
}

/// What is superlinear about `work` on the texts that `text` makes, if anything.
pub(crate) fn superlinear<T>(text: impl Fn(usize) -> T, work: impl FnMut(&T)) -> Option<String> {
    superlinear_from(LENGTHS[0], text, work)
}

/// The same for texts of `shortest` bytes and longer: where a table of bounded size is searched, that is once it is full.
pub(crate) fn superlinear_from<T>(
    shortest: usize,
    text: impl Fn(usize) -> T,
    mut work: impl FnMut(&T),
) -> Option<String> {
    let mut short = text(shortest);
    // The first run pays for what is made once.
    work(&short);
    let mut took_short = once(|| work(&short));
    for pair in LENGTHS.windows(2).filter(|pair| pair[0] >= shortest) {
        let long = text(pair[1]);
        let mut took_long = once(|| work(&long));
        let ratio = |long: Duration, short: Duration| long.as_secs_f64() / short.max(SHORTEST / 4).as_secs_f64();
        for _ in 0..TRIES {
            if took_long < SHORTEST || ratio(took_long, took_short) <= RATIO_MAX {
                break;
            }
            took_long = took_long.min(once(|| work(&long)));
            took_short = took_short.min(once(|| work(&short)));
        }
        if took_long >= SHORTEST && ratio(took_long, took_short) > RATIO_MAX {
            // Memory gets slower by steps, where a cache is full or pages are new; what is superlinear goes on to grow.
            let longer = text(pair[1] * 4);
            let took_longer =
                (0..TRIES).map(|_| once(|| work(&longer))).find(|took| ratio(*took, took_long) <= RATIO_MAX);
            if took_longer.is_none() {
                return Some(format!("{took_short:?} for {} bytes, {took_long:?} for {}", pair[0], pair[1]));
            }
        }
        // Beside work that is lost in the noise, work of a slow moment looks like less of an increase than it is.
        if took_long >= LONG_ENOUGH && took_short >= SHORTEST / 4 {
            return None;
        }
        (short, took_short) = (long, took_long);
    }
    None
}

#[test]
fn quadratic_work_is_seen_and_linear_work_is_not() {
    let text = |length: usize| "a;".repeat(length / 2);
    // What was once done for each command of a line, for some of them.
    let quadratic = |text: &String| {
        let commands = text.split(';').step_by(256);
        std::hint::black_box(commands.filter(|_| std::hint::black_box(text).contains("/dev/tcp/")).count());
    };
    assert!(superlinear(text, quadratic).is_some());
    let linear = |text: &String| {
        std::hint::black_box(text.split(';').filter(|word| word.contains("/dev/tcp/")).count());
    };
    assert_eq!(superlinear(text, linear), None);
}
