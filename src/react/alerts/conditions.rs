//! What may be the matter with the gateway itself: told when it begins and when it is over, by each channel's own task, also while
//! the store is what has failed.
//!
//! Several gateways may hear of one channel what is the matter with each of them. Each of them says in the store that it goes on, for
//! a time, and says so again before that time ends; the channel hears that it is over when none of them says so any longer, be it
//! because it has ended or because the process has.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uuid::Uuid;
use weir_config::vocab::{Severity, TenantId, Timestamp};
use weir_storage::alerts::{AlertKey, Sighting};

use super::message::Notice;
use super::seen::Seen;
use super::tell::{Teller, Told};
use crate::feed::{Failure, jittered};

/// Between looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// How long something counts as going on after a process has said so: a store that is busy for less ends nothing.
const HELD_FOR: Duration = Duration::from_secs(60);
/// How often a process says that something goes on.
const SUSTAIN_EVERY: Duration = Duration::from_secs(20);
/// How soon it says so again where the store did not take it.
const SUSTAIN_AGAIN: Duration = Duration::from_secs(5);

/// Something that may be the matter.
#[derive(Debug, Clone)]
pub struct Condition {
    /// The type its alerts have.
    pub finding_type: String,
    /// How bad it is.
    pub severity: Severity,
    /// In words.
    pub description: String,
    /// Whether it is so now.
    pub holds: bool,
}

/// Says what may be the matter; nothing while the process starts or ends.
pub type Conditions = Arc<dyn Fn() -> Vec<Condition> + Send + Sync>;

/// What a channel was told of a condition that holds.
struct Raised {
    notice: Notice,
    told: Told,
    /// When the store is to be told that it goes on.
    sustain_at: Instant,
}

/// One channel, and what it was told of conditions that hold.
struct ChannelConditions {
    teller: Teller,
    raised: HashMap<String, Raised>,
}

/// Keeps one channel told.
pub(super) async fn watch(teller: Teller, conditions: Conditions) {
    let mut watch = ChannelConditions { teller, raised: HashMap::new() };
    let mut backoff = LOOK_EVERY;
    loop {
        let mut failed = false;
        for condition in conditions() {
            failed |= !watch.look(&condition).await;
        }
        backoff = if failed { (backoff * 2).min(BACKOFF_MAX) } else { LOOK_EVERY };
        tokio::time::sleep(if failed { LOOK_EVERY.max(jittered(backoff)) } else { LOOK_EVERY }).await;
    }
}

impl ChannelConditions {
    /// Whether the channel knows how it is, or need not.
    async fn look(&mut self, condition: &Condition) -> bool {
        let Some(mut raised) = self.raised.remove(&condition.finding_type) else {
            let concerns = condition.holds && self.teller.channel.is_for(condition.severity);
            return !concerns || self.raise(condition).await.is_ok();
        };
        let is_known = if condition.holds {
            if !self.sustain(condition, &mut raised).await {
                // The store took this process for gone, and the channel has heard that it is over.
                return self.raise(condition).await.is_ok();
            }
            true
        } else {
            self.end(condition, &raised).await
        };
        if condition.holds || !is_known {
            self.raised.insert(condition.finding_type.clone(), raised);
        }
        is_known
    }

    fn key(&self, condition: &Condition) -> AlertKey {
        let (channel, finding_type) = (self.teller.channel.label.clone(), condition.finding_type.clone());
        AlertKey { tenant: TenantId::DEFAULT, channel, finding_type }
    }

    async fn raise(&mut self, condition: &Condition) -> Result<(), Failure> {
        let Condition { finding_type, severity, description, .. } = condition;
        let (id, key) = (Uuid::new_v4(), self.key(condition));
        let (teller, by) = (&self.teller, self.teller.book.claimant_for(HELD_FOR));
        let sighting = Sighting {
            key: key.clone(),
            findings: vec![id],
            severity: *severity,
            security_score: severity.score(),
            place: None,
            first_at: by.now,
            last_at: by.now,
            resolves_at: Some(by.until),
            read_to: None,
        };
        let notice = Notice::of_condition(id, finding_type, *severity, description);
        let seen = Seen { sighting: sighting.clone(), notice: Some(notice.clone()) };
        // Before anybody is told: where another process has told, it must not say that it is over.
        let is_held = teller.book.ask(move |book| book.sustain_alert(key, by)).await.is_ok();
        let told = match if is_held { teller.count(vec![seen]).await } else { Err(vec![seen]) } {
            Ok(mut due) => match due.pop() {
                Some(due) => teller.tell(vec![due]).await?,
                // It was told before a restart, or by another process.
                None => Told::Kept,
            },
            Err(_) => teller.tell_unkept(sighting, notice.clone()).await?,
        };
        let sustain_at = Instant::now() + SUSTAIN_EVERY;
        self.raised.insert(finding_type.clone(), Raised { notice, told, sustain_at });
        Ok(())
    }

    /// Says in the store that the condition goes on, where it is time. False where it is to be raised anew.
    async fn sustain(&self, condition: &Condition, raised: &mut Raised) -> bool {
        let now = Instant::now();
        if now < raised.sustain_at || raised.told == Told::Not {
            return true;
        }
        let (key, by) = (self.key(condition), self.teller.book.claimant_for(HELD_FOR));
        let stands = self.teller.book.ask(move |book| book.sustain_alert(key, by)).await;
        raised.sustain_at = now + if stands.is_ok() { SUSTAIN_EVERY } else { SUSTAIN_AGAIN };
        stands != Ok(false) || raised.told != Told::Kept
    }

    /// Whether the channel knows, or will be told, that it is over for this process.
    async fn end(&self, condition: &Condition, raised: &Raised) -> bool {
        let (teller, key, owner) = (&self.teller, self.key(condition), self.teller.book.owner());
        let others_hold = teller.book.ask(move |book| book.release_alert(key, owner, Timestamp::now())).await;
        teller.channel.news.notify_one();
        if raised.told != Told::Unkept {
            return raised.told == Told::Not || others_hold.is_ok();
        }
        if others_hold == Ok(true) {
            // Whoever holds it last has it told.
            return true;
        }
        match teller.channel.send(&raised.notice.resolved()).await {
            Ok(()) => {
                teller.channel.tally.resolved.add(1);
                true
            }
            Err(Failure::Never { .. }) => {
                teller.channel.tally.refused.add(1);
                true
            }
            Err(Failure::Later { .. }) => {
                teller.channel.tally.failed.add(1);
                false
            }
        }
    }
}
