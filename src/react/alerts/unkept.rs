//! Sums up what a channel was not told of while the store could not count it: memory knows, and one task for each channel tells.

use std::time::{Duration, Instant};

use weir_config::vocab::Timestamp;
use weir_storage::alerts::AlertKey;

use super::book::later;
use super::cooldown::Missed;
use super::message::Notice;
use super::seen::TOO_OLD;
use super::tell::Teller;
use crate::feed::{Failure, jittered};

/// Waits between attempts.
const BACKOFF_MIN: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// Tells the end of each cooldown that memory keeps.
pub(super) async fn sum_up(teller: Teller) {
    let cooldowns = &teller.channel.unkept;
    let mut backoff = BACKOFF_MIN;
    loop {
        let now = Instant::now();
        let Some((key, missed)) = cooldowns.due(now) else {
            let news = cooldowns.news.notified();
            match cooldowns.next_due() {
                // A timeout is the moment that was waited for.
                Some(due) => drop(tokio::time::timeout(due.saturating_duration_since(now), news).await),
                None => news.await,
            }
            continue;
        };
        match tell(&teller, &key, &missed).await {
            Ok(()) => {
                cooldowns.summed_up(&key, &missed, Instant::now(), teller.cooldown);
                backoff = BACKOFF_MIN;
            }
            Err(wait) => {
                tokio::time::sleep(wait.max(jittered(backoff)).min(BACKOFF_MAX)).await;
                backoff = (backoff * 2).min(BACKOFF_MAX);
            }
        }
    }
}

/// Sends the summary, or gives it up; for how long the channel wants to be left alone, where it did not take it.
async fn tell(teller: &Teller, key: &AlertKey, missed: &Missed) -> Result<(), Duration> {
    let (tally, channel) = (&teller.channel.tally, &teller.channel.label);
    if later(missed.since, teller.cooldown + TOO_OLD).micros() < Timestamp::now().micros() {
        tally.expired.add(1);
        return Ok(());
    }
    match teller.channel.send(&Notice::of_missed(key, missed)).await {
        Ok(()) => tally.summary.add(1),
        Err(Failure::Never { reason }) => {
            tally.refused.add(1);
            tracing::warn!(channel, reason, "a summary of alerts was refused and is not sent again");
        }
        Err(Failure::Later { reason, after }) => {
            tally.failed.add(1);
            tracing::warn!(channel, reason, "a summary of alerts could not be sent; will retry");
            return Err(after.unwrap_or_default());
        }
    }
    Ok(())
}
