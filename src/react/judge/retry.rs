//! Trying again: exponential waits with full jitter, never shorter than the backend asks for, all under one deadline.

use std::time::Duration;

use tokio::time::Instant;
use weir_config::settings::JudgeRetry;

use super::failure::{Again, Failure, Status};

/// The longest wait between two tries.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// How often a backend is asked, and for how long.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// For one try.
    pub(super) each: Duration,
    /// All tries end here.
    pub(super) until: Option<Instant>,
    /// Further tries.
    pub(super) retry: JudgeRetry,
}

impl Patience {
    /// What is left for a try; `None` when the time is over.
    pub(super) fn left(&self) -> Option<Duration> {
        let left = self.until.map_or(self.each, |until| until.saturating_duration_since(Instant::now()).min(self.each));
        (!left.is_zero()).then_some(left)
    }

    /// Asks until there is an answer, an error that stays, no further try or no time.
    pub(super) async fn ask<T, A>(&self, mut ask: impl FnMut(Duration) -> A) -> Result<T, Failure>
    where
        A: Future<Output = Result<T, Failure>>,
    {
        let over = || Failure::lasting(Status::Timeout, "the time for the verdict (`total_deadline_ms`) is over");
        let mut left = self.left().ok_or_else(over)?;
        for tried in 0_u32.. {
            let failure = match ask(left).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let Again::After(asked) = failure.again else { return Err(failure) };
            let wait = asked.unwrap_or_default().max(jitter(self.retry.backoff_base_ms, tried));
            let fits = self.until.is_none_or(|until| Instant::now() + wait.min(WAIT_MAX) < until);
            if tried >= self.retry.max || wait > WAIT_MAX || !fits {
                return Err(failure);
            }
            tokio::time::sleep(wait).await;
            left = self.left().ok_or_else(over)?;
        }
        Err(over())
    }
}

/// From nothing to `base` milliseconds doubled `tried` times.
fn jitter(base: u64, tried: u32) -> Duration {
    let most = base.saturating_mul(1_u64 << tried.min(32)).min(WAIT_MAX.as_millis() as u64);
    let share = uuid::Uuid::new_v4().as_u128() as u32;
    Duration::from_millis(((u128::from(most) * u128::from(share)) >> 32) as u64)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn run(until: Option<u64>, outcomes: &[Result<u8, Failure>]) -> (Result<u8, Status>, usize, Duration) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let begun = Instant::now();
            let until = until.map(|millis| begun + Duration::from_millis(millis));
            let retry = JudgeRetry { max: 2, backoff_base_ms: 10 };
            let patience = Patience { each: Duration::from_secs(5), until, retry };
            let count = Cell::new(0);
            let ask = |_| {
                count.set(count.get() + 1);
                std::future::ready(outcomes[count.get() - 1].clone())
            };
            let answer = patience.ask(ask).await.map_err(|failure| failure.status);
            (answer, count.get(), begun.elapsed())
        })
    }

    fn busy(after_ms: Option<u64>) -> Result<u8, Failure> {
        let again = Again::After(after_ms.map(Duration::from_millis));
        Err(Failure { status: Status::BackendError, reason: "429".to_owned(), again })
    }

    #[test]
    fn it_is_tried_again_as_often_as_allowed_and_no_sooner_than_asked_for() {
        let (answer, tries, _) = run(None, &[busy(None), busy(None), Ok(3)]);
        assert_eq!((answer, tries), (Ok(3), 3));
        let (answer, tries, _) = run(None, &[busy(None), busy(None), busy(None), Ok(4)]);
        assert_eq!((answer, tries), (Err(Status::BackendError), 3));
        let (answer, tries, took) = run(None, &[busy(Some(150)), Ok(2)]);
        assert_eq!((answer, tries), (Ok(2), 2));
        assert!(took >= Duration::from_millis(150), "{took:?}");
    }

    #[test]
    fn a_wait_that_does_not_fit_and_an_error_that_stays_end_it_at_once() {
        let (answer, tries, took) = run(Some(3_000), &[busy(Some(60_000)), Ok(2)]);
        assert_eq!((answer, tries), (Err(Status::BackendError), 1));
        assert!(took < Duration::from_secs(3));
        let (_, tries, _) = run(None, &[busy(Some(3_600_000)), Ok(2)]);
        assert_eq!(tries, 1);
        let lasting = Err(Failure::lasting(Status::ParseError, "x"));
        let (answer, tries, _) = run(None, &[lasting, Ok(2)]);
        assert_eq!((answer, tries), (Err(Status::ParseError), 1));
        let (answer, tries, _) = run(Some(0), &[Ok(1)]);
        assert_eq!((answer, tries), (Err(Status::Timeout), 0));
    }

    #[test]
    fn the_jitter_is_full() {
        let waits: Vec<_> = (0..500).map(|_| jitter(1_000, 1).as_millis()).collect();
        assert!(waits.iter().all(|wait| *wait <= 2_000));
        assert!(waits.iter().any(|wait| *wait < 200) && waits.iter().any(|wait| *wait > 1_800));
        assert_eq!(jitter(0, 5), Duration::ZERO);
    }
}
