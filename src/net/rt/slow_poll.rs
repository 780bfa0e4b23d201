//! Debug builds: says which task held its core for too long without an await.
//!
//! Every connection of a core waits while one task runs, so whatever takes long belongs on another thread. What counts is the
//! thread's CPU time: on a busy machine a task may stand still for longer through no fault of its own. A debug build needs
//! several times the CPU of a release build, so what passes here passes there too.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::panic::Location;
use std::time::Duration;

use super::clock;

/// Longest CPU time of a task between two awaits.
const LIMIT: Duration = Duration::from_micros(500);
/// A core says no more than one line in this time.
const PAUSE_MS: u64 = 10_000;

thread_local! {
    static SLOW: Cell<Slow> = const { Cell::new(Slow { count: 0, unsaid: 0, quiet_until_ms: 0 }) };
}

/// What a core has seen.
#[derive(Clone, Copy)]
struct Slow {
    count: u64,
    /// Of those, how many no line has told of.
    unsaid: u64,
    quiet_until_ms: u64,
}

/// How often a task of this core has run for too long.
#[cfg(test)]
pub(super) fn count() -> u64 {
    SLOW.get().count
}

/// Runs `task` and watches how long each of its turns takes. Boxed, so that the watching adds nothing to the size of what is
/// watched.
pub(super) async fn watched<F: Future>(task: F, spawned_at: &'static Location<'static>) -> F::Output {
    let mut task = Box::pin(task);
    poll_fn(|context| {
        let began = clock::thread_cpu_time();
        let polled = task.as_mut().poll(context);
        let took = clock::thread_cpu_time().saturating_sub(began);
        if took > LIMIT {
            tell(took, spawned_at);
        }
        polled
    })
    .await
}

fn tell(took: Duration, spawned_at: &Location<'_>) {
    let mut slow = SLOW.get();
    slow.count += 1;
    let now_ms = clock::now_ms();
    if now_ms < slow.quiet_until_ms {
        slow.unsaid += 1;
        SLOW.set(slow);
        return;
    }
    let others = std::mem::take(&mut slow.unsaid);
    slow.quiet_until_ms = now_ms + PAUSE_MS;
    SLOW.set(slow);
    tracing::warn!(
        cpu_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
        limit_us = u64::try_from(LIMIT.as_micros()).unwrap_or(u64::MAX),
        spawned_at = %spawned_at,
        others_since_the_last_line = others,
        "a task held its core without an await (debug build)"
    );
}
