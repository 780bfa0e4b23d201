//! Alerts: each channel of `alerts.channels` is a consumer of finished spans of its own, so it has its own durable cursor, its
//! own queue and its own retries, and one that hangs delays no other.
//!
//! Invariants: a channel hears of a tenant's findings of one type once, then not again for the cooldown, which begins when
//! the channel has *accepted* the message; then it is told how many there were meanwhile. A batch counts as taken only when
//! all its messages were accepted, so a first alert outlives a crash and may come twice. Cooldowns lie in memory: after a
//! restart the next finding is told at once. Knows how a channel is addressed, and nothing of who found what.

mod channel;
mod cooldown;
mod message;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use weir_config::settings::{ActionRouter, Alerts as AlertSettings, RouterAction};
use weir_config::vocab::{Finding, TenantId, Timestamp};
use weir_storage::record::SpanRecord;

use crate::feed::{Consumer, Failure, Feed};
use crate::meter::Registry;
use channel::{Channel, Tallies};
use cooldown::{Cooldowns, Heard, Key};
use message::Notice;

/// The consumers' names, which are the keys of their cursors: by the place of the channel in the settings.
const NAMES: [&str; weir_config::settings::CHANNELS_MAX] = [
    "alerts_1",
    "alerts_2",
    "alerts_3",
    "alerts_4",
    "alerts_5",
    "alerts_6",
    "alerts_7",
    "alerts_8",
    "alerts_9",
    "alerts_10",
    "alerts_11",
    "alerts_12",
    "alerts_13",
    "alerts_14",
    "alerts_15",
    "alerts_16",
];
/// Nobody is told of what is older: it waited for a channel that did not answer, or for alerts to be switched on again.
const TOO_OLD: Duration = Duration::from_secs(3_600);

/// Adds a consumer for each channel, and their counters. `router` may have all channels told of a finding, whatever their
/// thresholds.
pub fn add(feed: &mut Feed, settings: &AlertSettings, router: &ActionRouter, registry: &Registry) {
    let router = router.may(RouterAction::Alert).then(|| Arc::new(router.clone()));
    let channels: Vec<Arc<Channel>> = settings
        .effective()
        .into_iter()
        .enumerate()
        .map(|(index, channel)| Arc::new(Channel::new(index, channel, router.clone(), feed.client())))
        .collect();
    for (name, channel) in NAMES.into_iter().zip(&channels) {
        let cooldowns = Arc::new(Cooldowns::new(Duration::from_secs(settings.cooldown_seconds)));
        feed.add(Alerts { name, channel: Arc::clone(channel), cooldowns });
    }
    registry.add_source(Box::new(Tallies(channels)));
}

/// One channel's consumer.
struct Alerts {
    name: &'static str,
    channel: Arc<Channel>,
    cooldowns: Arc<Cooldowns>,
}

/// Findings of one tenant and type in a batch.
struct Group<'a> {
    span: &'a SpanRecord,
    first: &'a Finding,
    count: u64,
}

impl Consumer for Alerts {
    fn name(&self) -> &'static str {
        self.name
    }

    async fn take(&mut self, batch: &[&SpanRecord]) -> Result<(), Failure> {
        let (groups, expired) = self.groups(batch);
        let mut more = Vec::new();
        for (key, group) in groups {
            match self.cooldowns.heard(&key, group.first.id) {
                Heard::Never => {
                    if self.tell(&key, &group).await? {
                        more.push((key, group.count - 1));
                    }
                }
                Heard::Of(same) => more.push((key, group.count - u64::from(same))),
                Heard::NoRoom => self.channel.tally.no_room.add(group.count),
            }
        }
        // Only now: a batch that fails comes again, whole.
        self.channel.tally.expired.add(expired);
        for (key, count) in more {
            if self.cooldowns.suppress(&key, count) {
                self.channel.tally.suppressed.add(count);
            }
        }
        Ok(())
    }
}

impl Alerts {
    /// What the channel is to hear of, and how many findings are too old for that.
    fn groups<'a>(&self, batch: &[&'a SpanRecord]) -> (BTreeMap<Key, Group<'a>>, u64) {
        let oldest = Timestamp::now().micros() - i64::try_from(TOO_OLD.as_micros()).unwrap_or(i64::MAX);
        let (mut groups, mut expired) = (BTreeMap::new(), 0);
        for &span in batch {
            for finding in span.security_findings.iter().filter(|finding| self.channel.wants(span, finding)) {
                if span.end_time.micros() < oldest {
                    expired += 1;
                    continue;
                }
                let key = key_of(span.tenant_id, finding);
                let group = groups.entry(key).or_insert(Group { span, first: finding, count: 0 });
                group.count += 1;
            }
        }
        (groups, expired)
    }

    /// Whether the channel has accepted the group's first finding; an error where it may later.
    async fn tell(&self, key: &Key, group: &Group<'_>) -> Result<bool, Failure> {
        let mut notice = Notice::of(group.span, group.first);
        if self.cooldowns.are_off() {
            notice.count = group.count;
        }
        match self.channel.send(&notice).await {
            Ok(()) => {}
            Err(failure @ Failure::Later { .. }) => {
                self.channel.tally.failed.add(1);
                return Err(failure);
            }
            Err(Failure::Never { reason }) => {
                self.channel.tally.refused.add(group.count);
                tracing::warn!(channel = self.channel.label, reason, "an alert was refused and is not sent again");
                return Ok(false);
            }
        }
        self.channel.tally.sent.add(1);
        if self.cooldowns.begin(key.clone(), group.first.id) {
            let (channel, cooldowns, key) = (Arc::clone(&self.channel), Arc::clone(&self.cooldowns), key.clone());
            tokio::spawn(async move { tell_rest(&channel, &cooldowns, &key, notice.without_findings()).await });
        }
        Ok(true)
    }
}

/// Tells, at the end of each cooldown, how many findings there were meanwhile; ends with one in which there were none.
async fn tell_rest(channel: &Channel, cooldowns: &Cooldowns, key: &Key, first: Notice) {
    loop {
        tokio::time::sleep(cooldowns.length()).await;
        let Some(count) = cooldowns.end(key) else { return };
        match channel.send(&first.summary(count)).await {
            Ok(()) => channel.tally.summary.add(1),
            Err(failure) => {
                channel.tally.failed.add(1);
                tracing::warn!(channel = channel.label, %failure, "the number of further findings could not be told; it is told later");
                cooldowns.suppress(key, count);
            }
        }
    }
}

/// Types come from rules and from reported spans; a long one is cut.
fn key_of(tenant: TenantId, finding: &Finding) -> Key {
    Key { tenant, finding_type: message::cut(&finding.finding_type, 100) }
}
