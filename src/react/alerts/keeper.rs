//! What channels are told later: how many more there were, that nobody has acknowledged an alert, that it is over or known. The
//! record says what is due, so nothing is forgotten by a restart; one task for each channel, so none waits for another one.

use std::sync::Arc;
use std::time::Duration;

use weir_config::vocab::Timestamp;
use weir_storage::alerts::{AlertKey, AlertRecord, Escalated, Step, StepDone};

use super::book::{later, until};
use super::channel::Channel;
use super::message::Notice;
use super::seen::TOO_OLD;
use super::tell::Teller;
use crate::feed::{Failure, jittered};

/// How often the record is looked at without word of a change: another process may have made one.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Waits between attempts.
const BACKOFF_MIN: Duration = Duration::from_millis(200);
const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// Keeps one channel told. `higher` hear of what nobody has acknowledged, one after the other.
pub(super) async fn keep(teller: Teller, higher: Vec<Arc<Channel>>) {
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
            Step::Escalation => escalate(&teller, &higher, alert).await,
            Step::Closing => {
                close(&teller, &higher, alert).await;
                Ok(())
            }
            Step::Summary | Step::Resolution => {
                let to = Arc::clone(&teller.channel);
                Due { teller: teller.clone(), to, alert, step, further: None }.take().await
            }
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
async fn escalate(teller: &Teller, higher: &[Arc<Channel>], alert: AlertRecord) -> Result<(), Duration> {
    let told = alert.escalated_to.as_ref();
    let told = told.and_then(|told| higher.iter().position(|channel| channel.label == *told));
    let mut left = higher.iter().skip(told.map_or(0, |told| told + 1));
    let (to, after_it) = (left.next(), left.next());
    let further = teller.escalate_after.filter(|_| after_it.is_some());
    let step = Step::Escalation;
    let due = Due { teller: teller.clone(), to: Arc::clone(to.unwrap_or(&teller.channel)), alert, step, further };
    let Some(to) = to else {
        // The settings have changed since.
        due.finish(0).await;
        return Ok(());
    };
    match Arc::clone(&to.escalations).try_acquire_owned() {
        Ok(place) => {
            tokio::spawn(async move {
                let _place = place;
                // Where it fails it is due again when its claim ends.
                let _again = due.take().await.is_err();
            });
        }
        Err(_) => {
            to.tally.no_room.add(1);
            due.hold(BACKOFF_MAX).await;
        }
    }
    Ok(())
}

/// Tells the channels it went to that an alert is over, where an incident is open there until then. Beside this channel's own messages,
/// because any of them may hang; where one does not hear of it all are told again, which changes nothing for those that know.
async fn close(teller: &Teller, higher: &[Arc<Channel>], alert: AlertRecord) {
    let last = alert.escalated_to.as_ref();
    let last = last.and_then(|last| higher.iter().position(|channel| channel.label == *last));
    let went = higher.iter().take(last.map_or(0, |last| last + 1));
    let open: Vec<Arc<Channel>> = went.filter(|channel| channel.keeps_incidents()).cloned().collect();
    let to = Arc::clone(&teller.channel);
    let due = Due { teller: teller.clone(), to, alert, step: Step::Closing, further: None };
    if open.is_empty() {
        return due.finish(0).await;
    }
    tokio::spawn(async move {
        let mut wait = None;
        for to in open {
            wait = due.tell(&to).await.err().max(wait);
        }
        match wait {
            None => due.finish(0).await,
            Some(wait) => due.hold(wait.max(jittered(BACKOFF_MAX)).max(BACKOFF_MIN)).await,
        }
    });
}

/// A message that is due.
struct Due {
    teller: Teller,
    /// Who hears it.
    to: Arc<Channel>,
    alert: AlertRecord,
    step: Step,
    /// For an escalation: after which time it goes further, where there is another channel.
    further: Option<Duration>,
}

impl Due {
    /// Sends the message; for how long the channel wants to be left alone, where it did not take it.
    async fn take(self) -> Result<(), Duration> {
        let Self { to, alert, step, .. } = &self;
        if self.is_too_old() {
            to.tally.expired.add(1);
            self.finish(u64::MAX).await;
            return Ok(());
        }
        match self.tell(to).await {
            Ok(()) => {
                self.finish(alert.suppressed).await;
                Ok(())
            }
            Err(wait) => {
                self.hold(if *step == Step::Escalation { wait.max(jittered(BACKOFF_MAX)) } else { wait }).await;
                Err(wait)
            }
        }
    }

    /// Sends it to a channel, and counts what became of it; for how long that wants to be left alone, where it did not take it.
    async fn tell(&self, to: &Channel) -> Result<(), Duration> {
        let (channel, step) = (&to.label, self.step);
        match to.send(&Notice::about(&self.alert, step)).await {
            Ok(()) => {
                match step {
                    Step::Summary => to.tally.summary.add(1),
                    Step::Escalation => to.tally.escalated.add(1),
                    Step::Resolution | Step::Closing => to.tally.resolved.add(1),
                }
                Ok(())
            }
            Err(Failure::Never { reason }) => {
                to.tally.refused.add(1);
                tracing::warn!(channel, reason, ?step, "a message about an alert was refused and is not sent again");
                Ok(())
            }
            Err(Failure::Later { reason, after }) => {
                to.tally.failed.add(1);
                tracing::warn!(channel, reason, ?step, "a message about an alert could not be sent; will retry");
                Err(after.unwrap_or_default())
            }
        }
    }

    /// That something is over is told however late it is. An escalation goes past a channel that does not answer.
    fn is_too_old(&self) -> bool {
        let (due, limit) = match self.step {
            Step::Summary => (self.alert.quiet_until, TOO_OLD),
            Step::Escalation => {
                let limit = self.further.map_or(TOO_OLD, |further| further.clamp(BACKOFF_MAX, TOO_OLD));
                (self.alert.escalates_at.unwrap_or(self.alert.notified_at), limit)
            }
            Step::Resolution | Step::Closing => return false,
        };
        later(due, limit).micros() < Timestamp::now().micros()
    }

    async fn finish(&self, told: u64) {
        let Self { teller, to, alert, step, further } = self;
        let (at, step) = (Timestamp::now(), *step);
        let escalated = (step == Step::Escalation && !Arc::ptr_eq(to, &teller.channel))
            .then(|| Escalated { to: to.label.clone(), next_at: further.map(|further| later(at, further)) });
        let told = told.min(alert.suppressed);
        let done = StepDone { step, told, at, quiet_until: later(at, teller.cooldown), escalated };
        let (channel, alert) = (&teller.channel.label, alert.clone());
        if let Err(error) = teller.book.ask(move |book| book.finish_step(alert, done)).await {
            tracing::warn!(
                channel,
                error,
                ?step,
                "a message about an alert could not be written down; it may be sent again"
            );
        }
        // What is due next may be due sooner than the keeper knows.
        teller.channel.news.notify_one();
    }

    /// Nobody sends it before so much time has passed.
    async fn hold(&self, time: Duration) {
        let AlertRecord { tenant_id, channel, finding_type, .. } = &self.alert;
        let key = AlertKey { tenant: *tenant_id, channel: channel.clone(), finding_type: finding_type.clone() };
        let (owner, end) = (self.teller.book.owner(), later(Timestamp::now(), time));
        // Where that fails, the claim ends with its time.
        drop(self.teller.book.ask(move |book| book.hold_alert(key, owner, end)).await);
    }
}
