//! Where list reads run: on threads that stand back for everything else, and, where those are put off for too long, on
//! ordinary ones.
//!
//! Invariant: a read that was begun is answered also when its thread gets no CPU; then the next ones do not try for a while.
//! A read holds one place in its lane, wherever it runs. Knows neither routes nor the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::{JoinError, spawn_blocking};

/// How long a read may take on a thread that stands back before an ordinary one starts it again. Longer than a page takes
/// on a machine with a free CPU.
const PATIENCE: Duration = Duration::from_millis(400);
/// How long after that reads run on ordinary threads at once.
const REST: Duration = Duration::from_secs(10);

/// Threads that stand back.
pub(super) struct Reading {
    threads: Handle,
    began: Instant,
    /// Until when ordinary threads are used, in milliseconds since `began`.
    rests_until_ms: AtomicU64,
}

impl Reading {
    /// On the blocking threads of this runtime.
    pub(super) fn on(threads: Handle) -> Self {
        Self { threads, began: Instant::now(), rests_until_ms: AtomicU64::new(0) }
    }

    /// What `read` gives, wherever it could be run.
    pub(super) async fn run<P, T, E, F>(&self, permit: P, read: F) -> Result<Result<T, E>, JoinError>
    where
        P: Send + 'static,
        T: Send + 'static,
        E: Send + 'static,
        F: Fn() -> Result<T, E> + Send + Sync + 'static,
    {
        if self.now_ms() < self.rests_until_ms.load(Ordering::Relaxed) {
            return spawn_blocking(move || {
                let _permit = permit;
                read()
            })
            .await;
        }
        let (read, permit) = (Arc::new(read), Arc::new(Mutex::new(Some(permit))));
        let mut patient = self.threads.spawn_blocking({
            let (read, permit) = (Arc::clone(&read), Arc::clone(&permit));
            move || {
                let done = read();
                drop(permit);
                done
            }
        });
        if let Ok(done) = tokio::time::timeout(PATIENCE, &mut patient).await {
            return done;
        }
        self.rests_until_ms.store(self.now_ms() + REST.as_millis() as u64, Ordering::Relaxed);
        // The place moves on with the work: what stands still must not keep others from reading.
        let permit = permit.lock().take();
        let again = spawn_blocking(move || {
            let _permit = permit;
            read()
        });
        tokio::pin!(again);
        tokio::select! {
            // It may have met the store's limit of time, for want of CPU.
            done = &mut patient => if matches!(done, Ok(Ok(_))) { done } else { again.await },
            done = &mut again => done,
        }
    }

    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::mpsc;

    use tokio::sync::Semaphore;

    use super::*;

    fn runtime(threads: usize) -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_time().max_blocking_threads(threads).build().unwrap()
    }

    #[test]
    fn a_read_whose_thread_gets_no_cpu_is_done_by_another_and_keeps_no_place() {
        let (own, others) = (runtime(4), runtime(1));
        // The only thread there is busy with something else until the test ends.
        let (release, released) = mpsc::channel::<()>();
        let busy = others.spawn_blocking(move || released.recv());
        let lane = Arc::new(Semaphore::new(1));
        let reading = Reading::on(others.handle().clone());
        let read = AtomicUsize::new(0);
        own.block_on(async {
            for number in 0..5 {
                let permit = Arc::clone(&lane).acquire_owned().await.unwrap();
                assert_eq!(reading.run(permit, move || Ok::<_, ()>(number)).await.unwrap(), Ok(number));
                read.fetch_add(1, Ordering::Relaxed);
            }
        });
        assert_eq!((read.into_inner(), lane.available_permits()), (5, 1));
        assert!(reading.began.elapsed() < PATIENCE * 3, "only the first one tried");
        drop(release);
        assert!(own.block_on(busy).unwrap().is_err());
    }

    #[test]
    fn a_failure_for_want_of_cpu_is_not_the_answer() {
        let (own, others) = (runtime(4), runtime(1));
        let lane = Arc::new(Semaphore::new(1));
        let reading = Reading::on(others.handle().clone());
        let tries = Arc::new(AtomicUsize::new(0));
        let answer = own.block_on(async {
            let permit = Arc::clone(&lane).acquire_owned().await.unwrap();
            let tries = Arc::clone(&tries);
            let read = move || match tries.fetch_add(1, Ordering::SeqCst) {
                0 => {
                    // Its limit of time is over before the second one has its answer.
                    while tries.load(Ordering::SeqCst) < 2 {
                        std::thread::yield_now();
                    }
                    Err("timed out")
                }
                _ => Ok("a page"),
            };
            reading.run(permit, read).await.unwrap()
        });
        assert_eq!((answer, tries.load(Ordering::SeqCst)), (Ok("a page"), 2));
    }
}
