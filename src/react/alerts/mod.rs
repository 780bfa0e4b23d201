//! Alerts: each channel of `alerts.channels` is a consumer of finished spans of its own, so it has its own durable cursor, its
//! own retries, and one that hangs delays no other.
//!
//! ```text
//!  finished spans ─▶ seen ─▶ tell ──────▶ channel ─▶ webhook, Slack, PagerDuty, mail
//!  what is the matter ─▶ conditions ─┘       ▲
//!                      the store's record ─▶ keeper: how many more, escalation, resolution
//!             while the store is away: memory ─▶ unkept: how many more
//! ```
//!
//! Invariants: a channel hears of a tenant's findings of one type once, then not again for the cooldown, which begins when
//! the channel has *accepted* the message, one for all types that were found in the same call; then it is told how many there were meanwhile. All that lies in the store, so it outlives
//! the process and holds for several. A batch counts as taken only when all its messages were accepted, so a first alert outlives a
//! crash and may come twice. What waits for a channel waits in the store: in memory there is one batch and a few messages for each.
//! Knows how a channel is addressed, and nothing of who found what.

mod book;
mod channel;
mod conditions;
mod cooldown;
mod keeper;
mod mail;
mod message;
mod seen;
mod tell;
#[cfg(test)]
mod tests;
mod text;
mod trial;
mod unkept;

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use weir_config::settings::{ActionRouter, Alerts as AlertSettings, RouterAction};
use weir_storage::AlertBook;

use crate::feed::{Batch, Consumer, Failure, Feed};
use crate::meter::Registry;
use book::Book;
use channel::{Channel, Tallies, With};
pub use conditions::{Condition, Conditions};
use tell::Teller;
pub use trial::{Trial, reach_channels, try_channels};

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

/// The channels, before the store is open.
pub struct Channels {
    /// Each with the channels that an alert escalates to while it is not acknowledged, in order.
    tellers: Vec<(Teller, Vec<Arc<Channel>>)>,
    book: Arc<Book>,
}

/// Adds a consumer for each channel, and their counters. `router` may have all channels told of a finding, whatever their
/// thresholds.
pub fn add(feed: &mut Feed, settings: &AlertSettings, router: &ActionRouter, registry: &Registry) -> Channels {
    let router = router.may(RouterAction::Alert).then(|| Arc::new(router.clone()));
    let effective = settings.effective();
    let book = Arc::new(Book::new());
    let with = With { client: feed.client(), book: Arc::clone(&book), console: settings.console_url.clone() };
    let make = |(index, channel)| Arc::new(Channel::new(index, channel, router.clone(), with.clone()));
    let channels: Vec<Arc<Channel>> = effective.iter().cloned().enumerate().map(make).collect();
    let mut tellers = Vec::new();
    for (place, channel) in channels.iter().enumerate() {
        let next = |place: &usize| AlertSettings::next_higher(&effective, *place);
        let higher: Vec<Arc<Channel>> =
            std::iter::successors(next(&place), next).filter_map(|higher| channels.get(higher)).cloned().collect();
        let escalate_after = settings.escalate_after_seconds.filter(|_| !higher.is_empty());
        let teller = Teller {
            channel: Arc::clone(channel),
            book: Arc::clone(&book),
            cooldown: Duration::from_secs(settings.cooldown_seconds),
            escalate_after: escalate_after.map(Duration::from_secs),
        };
        tellers.push((teller, higher));
    }
    for (name, (teller, _)) in NAMES.into_iter().zip(&tellers) {
        feed.add(Alerts { name, teller: teller.clone() });
    }
    registry.add_source(Box::new(Tallies(channels)));
    Channels { tellers, book }
}

impl Channels {
    /// From now on what channels were told is kept in `store`. To be called before the first span comes.
    pub fn open(&self, store: Arc<dyn AlertBook>) {
        self.book.open(store);
    }

    /// Starts what tells channels of anything but new findings: what is due by the record, and `conditions`.
    pub fn start(self, runtime: &Handle, conditions: &Conditions) {
        for (teller, higher) in self.tellers {
            runtime.spawn(conditions::watch(teller.clone(), Arc::clone(conditions)));
            runtime.spawn(unkept::sum_up(teller.clone()));
            runtime.spawn(keeper::keep(teller, higher));
        }
    }
}

/// One channel's consumer.
struct Alerts {
    name: &'static str,
    teller: Teller,
}

impl Consumer for Alerts {
    fn name(&self) -> &'static str {
        self.name
    }

    fn heeds_clean_calls(&self) -> bool {
        false
    }

    async fn take(&mut self, batch: Batch<'_>) -> Result<(), Failure> {
        let channel = &self.teller.channel;
        let (seen, expired) = seen::look(&channel.label, |span, finding| channel.wants(span, finding), batch);
        if !seen.is_empty() {
            self.hear(seen).await?;
        }
        // Only now: a batch that fails comes again, whole.
        self.teller.channel.tally.expired.add(expired);
        Ok(())
    }
}

impl Alerts {
    async fn hear(&self, seen: Vec<seen::Seen>) -> Result<(), Failure> {
        match self.teller.count(seen).await {
            Ok(due) => {
                for of_one_call in seen::by_call(due) {
                    self.teller.tell(of_one_call).await?;
                }
            }
            Err(all) => {
                for seen::Seen { sighting, notice } in all {
                    if let Some(notice) = notice {
                        self.teller.tell_unkept(sighting, notice).await?;
                    }
                }
            }
        }
        Ok(())
    }
}
