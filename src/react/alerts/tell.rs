//! Telling a channel: claimed before, written down after, so that of several gateways one tells it, and a message that was not
//! accepted comes again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use uuid::Uuid;
use weir_config::vocab::Timestamp;
use weir_storage::alerts::{Accepted, AlertKey, Claim, Heard, Sighting};

use super::book::{Book, later, until};
use super::channel::Channel;
use super::cooldown::{Missed, Quiet};
use super::message::Notice;
use super::seen::Seen;
use crate::feed::Failure;

/// For how long a channel that has refused something is not sent it.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// A channel, the record of what it was told, and the settings that all channels have in common.
#[derive(Clone)]
pub(super) struct Teller {
    pub(super) channel: Arc<Channel>,
    pub(super) book: Arc<Book>,
    pub(super) cooldown: Duration,
    /// When what nobody acknowledges goes to another channel, where there is one.
    pub(super) escalate_after: Option<Duration>,
}

/// What came of telling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// The channel knows, or will not hear of it; the record says so.
    Kept,
    /// The channel knows, and nothing of it could be written down.
    Unkept,
    /// It is not told.
    Not,
}

/// Findings of one type that this process may tell of.
struct Granted {
    sighting: Sighting,
    notice: Notice,
    id: Uuid,
}

/// What came of asking to tell.
enum Claimed {
    Granted(Box<Granted>),
    /// Nothing is to be sent any more.
    Settled(Told),
}

impl Teller {
    /// Has the record count what the channel was told of; what is left it is to be told.
    ///
    /// # Errors
    /// The record's, with what it was asked about: nothing was counted.
    pub(super) async fn count(&self, seen: Vec<Seen>) -> Result<Vec<Seen>, Vec<Seen>> {
        let sightings: Vec<Sighting> = seen.iter().map(|seen| seen.sighting.clone()).collect();
        let heard = self.book.ask(move |book| book.count_alerts(sightings, Timestamp::now())).await;
        let heard = match heard {
            Ok(heard) => heard,
            Err(error) => {
                tracing::debug!(error, "alerts could not be counted");
                return Err(seen);
            }
        };
        let mut left = Vec::new();
        let mut counted = 0;
        for (seen, heard) in seen.into_iter().zip(heard) {
            match heard {
                Heard::Counted(count) => counted += count,
                Heard::Due | Heard::Unknown => left.push(seen),
            }
        }
        if counted > 0 {
            self.channel.tally.suppressed.add(counted);
            // The end of a cooldown has something to tell now.
            self.channel.news.notify_one();
        }
        Ok(left)
    }

    /// Tells the channel, in one message, of what it has not been told of: findings of one call, each type with a record of its own.
    ///
    /// # Errors
    /// Where it may be told later.
    pub(super) async fn tell(&self, of_one_call: Vec<Seen>) -> Result<Told, Failure> {
        let (mut claimed, mut told, mut later) = (Vec::new(), Told::Not, None);
        for seen in of_one_call {
            match self.claim(seen).await {
                Ok(Claimed::Granted(granted)) => claimed.push(*granted),
                Ok(Claimed::Settled(outcome)) => told = outcome,
                // What is this process's to send is sent first.
                Err(failure) => later = Some(failure),
            }
        }
        if !claimed.is_empty() {
            told = self.tell_claimed(claimed).await?;
        }
        later.map_or(Ok(told), Err)
    }

    /// Makes it this process's to tell of findings of one type.
    async fn claim(&self, seen: Seen) -> Result<Claimed, Failure> {
        let Seen { sighting, notice } = seen;
        let Some(mut notice) = notice else { return Ok(Claimed::Settled(Told::Not)) };
        let many = sighting.findings.len() as u64;
        if self.is_quiet(&sighting) {
            return Ok(Claimed::Settled(Told::Not));
        }
        if self.cooldown.is_zero() {
            notice.count = many;
        }
        let (asked, by) = (sighting.clone(), self.book.claimant());
        match self.book.ask(move |book| book.claim_alert(asked, by)).await {
            Ok(Claim::Granted(open)) => {
                let id = open.unwrap_or_else(Uuid::new_v4);
                notice.alert = Some(id);
                Ok(Claimed::Granted(Box::new(Granted { sighting, notice, id })))
            }
            Ok(Claim::Counted(count)) => {
                self.channel.tally.suppressed.add(count);
                Ok(Claimed::Settled(Told::Kept))
            }
            Ok(Claim::Held(end)) => {
                let reason = "another process is about to tell the channel".to_owned();
                Err(Failure::Later { reason, after: Some(until(end)) })
            }
            Ok(Claim::NoRoom) => {
                self.channel.tally.no_room.add(many);
                Ok(Claimed::Settled(Told::Not))
            }
            Ok(Claim::Unknown) | Err(_) => self.tell_unkept(sighting, notice).await.map(Claimed::Settled),
        }
    }

    async fn tell_claimed(&self, claimed: Vec<Granted>) -> Result<Told, Failure> {
        let mut notices = claimed.iter().map(|granted| &granted.notice);
        let Some(first) = notices.next().cloned() else { return Ok(Told::Not) };
        let notice = notices.fold(first, Notice::with);
        if let Err(failure) = self.channel.send(&notice).await {
            let mut outcome = Ok(Told::Not);
            for Granted { sighting, .. } in claimed {
                self.end_claim(&sighting.key).await;
                outcome = self.failed(failure.clone(), sighting.key, sighting.findings.len() as u64);
            }
            return outcome;
        }
        self.channel.tally.sent.add(1);
        let mut told = Told::Kept;
        for (place, granted) in claimed.into_iter().enumerate() {
            // One escalation for one message.
            let escalates = self.escalate_after.filter(|_| place == 0);
            if !self.accepted(granted, escalates).await {
                told = Told::Unkept;
            }
        }
        self.channel.news.notify_one();
        Ok(told)
    }

    /// Writes down that the channel knows; false where only memory could.
    async fn accepted(&self, granted: Granted, escalate_after: Option<Duration>) -> bool {
        let Granted { sighting, notice, id } = granted;
        let told = notice.count;
        self.channel.tally.suppressed.add((sighting.findings.len() as u64).saturating_sub(told));
        let at = Timestamp::now();
        let (key, missed) = (sighting.key.clone(), Missed::after(&sighting, told));
        let accepted = Accepted {
            sighting,
            id,
            told,
            at,
            quiet_until: later(at, self.cooldown),
            escalates_at: escalate_after.map(|after| later(at, after)),
        };
        let Err(error) = self.book.ask(move |book| book.accept_alert(accepted)).await else { return true };
        let channel = &self.channel.label;
        tracing::warn!(
            channel,
            error,
            "an alert was sent and could not be written down; it may be sent again after a restart"
        );
        self.channel.unkept.begin(key, missed, Instant::now(), self.cooldown);
        false
    }

    /// The store cannot say what the channel was told, or may be what it is to be told about: memory has to do.
    pub(super) async fn tell_unkept(&self, sighting: Sighting, mut notice: Notice) -> Result<Told, Failure> {
        if self.is_quiet(&sighting) {
            return Ok(Told::Not);
        }
        let many = sighting.findings.len() as u64;
        if self.cooldown.is_zero() {
            notice.count = many;
        }
        if let Err(failure) = self.channel.send(&notice).await {
            return self.failed(failure, sighting.key, many);
        }
        self.sent(many - notice.count.min(many));
        let missed = Missed::after(&sighting, notice.count);
        self.channel.unkept.begin(sighting.key, missed, Instant::now(), self.cooldown);
        Ok(Told::Unkept)
    }

    /// Whether memory says that the channel is not to hear of it now; counted.
    fn is_quiet(&self, sighting: &Sighting) -> bool {
        let quiet = self.channel.unkept.before_telling(sighting, Instant::now());
        let tally = &self.channel.tally;
        match quiet {
            Some((Quiet::Told, count)) => tally.suppressed.add(count),
            Some((Quiet::Refused, count)) => tally.refused.add(count),
            Some((Quiet::NoRoom, count)) => tally.no_room.add(count),
            None => {}
        }
        quiet.is_some()
    }

    fn sent(&self, suppressed: u64) {
        self.channel.tally.sent.add(1);
        self.channel.tally.suppressed.add(suppressed);
    }

    fn failed(&self, failure: Failure, key: AlertKey, many: u64) -> Result<Told, Failure> {
        let Failure::Never { reason } = failure else {
            self.channel.tally.failed.add(1);
            return Err(failure);
        };
        self.channel.tally.refused.add(many);
        let channel = &self.channel.label;
        tracing::warn!(channel, reason, "an alert was refused and is not sent again");
        self.channel.unkept.refuse(key, Instant::now(), REFUSED_FOR);
        Ok(Told::Not)
    }

    async fn end_claim(&self, key: &AlertKey) {
        let (key, owner) = (key.clone(), self.book.owner());
        // Where that fails, the claim ends with its time.
        drop(self.book.ask(move |book| book.hold_alert(key, owner, Timestamp::now())).await);
    }
}
