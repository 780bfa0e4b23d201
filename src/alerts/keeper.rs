//! What channels are told later: how many more there were, that nobody has acknowledged an alert, that it is over. The record says
//! what is due, so nothing is forgotten by a restart; one task for each channel, so none waits for another one.

use std::sync::Arc;
use std::time::Duration;

use weir_config::vocab::Timestamp;
use weir_storage::alerts::{AlertKey, AlertRecord, Step, StepDone};

use super::book::{later, until};
use super::channel::Channel;
use super::message::Notice;
use super::seen::TOO_OLD;
use super::tell::Teller;
use crate::feed::{Failure, jittered};

/// How often the record is looked at without word of a change: another process may have made one.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Waits between attempts.
const BACKOFF_MIN: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// Keeps one channel told. `higher` hears of what nobody has acknowledged.
pub(super) async fn keep(teller: Teller, higher: Option<Arc<Channel>>) {
    let mut backoff = BACKOFF_MIN;
    loop {
        let label = teller.channel.label.clone();
        let due = teller.book.ask(move |book| book.next_due(&label)).await;
        let wait = match due {
            Ok(due) => due.map_or(LOOK_EVERY, until).min(LOOK_EVERY),
            Err(_) => LOOK_EVERY,
        };
        if !wait.is_zero() {
            // A timeout is the moment that was waited for.
            let _news = tokio::time::timeout(wait, teller.channel.news.notified()).await;
            continue;
        }
        let (label, by) = (teller.channel.label.clone(), teller.book.claimant());
        let claimed = teller.book.ask(move |book| book.claim_due(&label, by, 1)).await;
        let Some((alert, step)) = claimed.unwrap_or_default().pop() else {
            tokio::time::sleep(BACKOFF_MIN).await;
            continue;
        };
        let outcome = match step {
            Step::Escalation => escalate(&teller, higher.as_ref(), alert).await,
            Step::Summary | Step::Resolution => take(&teller, &teller.channel, alert, step).await,
        };
        match outcome {
            Ok(()) => backoff = BACKOFF_MIN,
            Err(wait) => {
                tokio::time::sleep(wait.max(jittered(backoff)).min(BACKOFF_MAX)).await;
                backoff = (backoff * 2).min(BACKOFF_MAX);
            }
        }
    }
}

/// Another channel may hang: it is told beside this one's own messages, and not by more than it has room for.
async fn escalate(teller: &Teller, higher: Option<&Arc<Channel>>, alert: AlertRecord) -> Result<(), Duration> {
    let Some(higher) = higher.cloned() else {
        // The settings have changed since.
        finish(teller, alert, Step::Escalation, 0).await;
        return Ok(());
    };
    match Arc::clone(&higher.escalations).try_acquire_owned() {
        Ok(place) => {
            let teller = teller.clone();
            tokio::spawn(async move {
                let _place = place;
                // Where it fails it is due again when its claim ends.
                let _again = take(&teller, &higher, alert, Step::Escalation).await.is_err();
            });
        }
        Err(_) => {
            higher.tally.no_room.add(1);
            hold(teller, &alert, later(Timestamp::now(), BACKOFF_MAX)).await;
        }
    }
    Ok(())
}

/// Sends the message; for how long the channel wants to be left alone, where it did not take it.
async fn take(teller: &Teller, to: &Channel, alert: AlertRecord, step: Step) -> Result<(), Duration> {
    if is_too_old(&alert, step) {
        to.tally.expired.add(1);
        finish(teller, alert, step, u64::MAX).await;
        return Ok(());
    }
    let (channel, suppressed) = (&to.label, alert.suppressed);
    match to.send(&Notice::about(&alert, step)).await {
        Ok(()) => {
            match step {
                Step::Summary => to.tally.summary.add(1),
                Step::Escalation => to.tally.escalated.add(1),
                Step::Resolution => to.tally.resolved.add(1),
            }
            finish(teller, alert, step, suppressed).await;
            Ok(())
        }
        Err(Failure::Never { reason }) => {
            to.tally.refused.add(1);
            tracing::warn!(channel, reason, ?step, "a message about an alert was refused and is not sent again");
            finish(teller, alert, step, suppressed).await;
            Ok(())
        }
        Err(Failure::Later { reason, after }) => {
            to.tally.failed.add(1);
            tracing::warn!(channel, reason, ?step, "a message about an alert could not be sent; will retry");
            let wait = after.unwrap_or_default();
            let held = if step == Step::Escalation { wait.max(jittered(BACKOFF_MAX)) } else { wait };
            hold(teller, &alert, later(Timestamp::now(), held)).await;
            Err(wait)
        }
    }
}

/// That something is over is told however late it is.
fn is_too_old(alert: &AlertRecord, step: Step) -> bool {
    let due = match step {
        Step::Summary => alert.quiet_until,
        Step::Escalation => alert.escalates_at.unwrap_or(alert.notified_at),
        Step::Resolution => return false,
    };
    later(due, TOO_OLD).micros() < Timestamp::now().micros()
}

async fn finish(teller: &Teller, alert: AlertRecord, step: Step, told: u64) {
    let at = Timestamp::now();
    let told = told.min(alert.suppressed);
    let done = StepDone { step, told, at, quiet_until: later(at, teller.cooldown) };
    let channel = &teller.channel.label;
    if let Err(error) = teller.book.ask(move |book| book.finish_step(alert, done)).await {
        tracing::warn!(
            channel,
            error,
            ?step,
            "a message about an alert could not be written down; it may be sent again"
        );
    }
}

async fn hold(teller: &Teller, alert: &AlertRecord, end: Timestamp) {
    let (channel, finding_type) = (alert.channel.clone(), alert.finding_type.clone());
    let key = AlertKey { tenant: alert.tenant_id, channel, finding_type };
    let owner = teller.book.owner();
    // Where that fails, the claim ends with its time.
    drop(teller.book.ask(move |book| book.hold_alert(key, owner, end)).await);
}
