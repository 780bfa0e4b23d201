//! What the latest prompts of each session were made of, so that the next one can be compared with them (`settle/prompt_cache.rs`).
//!
//! A session may have several conversations at once (an agent and its helpers): each has a lane, and a prompt goes on in the one that it is
//! most like. Kept are outlines, which hold no text, in memory alone: after a restart the first prompt of each session is compared
//! with nothing. Bounded by [`BYTES_MAX`], of which no tenant has more than it leaves to the others. One short lock, taken once
//! or twice by calls that name a session, and by no others.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;
use weir_config::vocab::{SpanId, TenantId, Timestamp};
use weir_storage::prompt::{Outline, PromptState, ProviderUse};

use crate::meter::{Exposition, Source, names};

/// Bytes of outlines kept: some thousand sessions of 100 KB.
const BYTES_MAX: usize = 32 << 20;
/// Conversations of one session at once.
const LANES_MAX: usize = 6;
/// What is dropped at once where there is too much: a sixteenth.
const DROPPED: usize = 16;

/// The latest prompt of a conversation.
#[derive(Debug, Clone)]
pub(crate) struct Lane {
    pub(crate) outline: Arc<Outline>,
    /// The call it was sent with, when that began and ended.
    pub(crate) span: SpanId,
    pub(crate) began: Timestamp,
    pub(crate) ended: Timestamp,
}

#[derive(Debug, Default)]
struct Session {
    /// The latest one last.
    lanes: Vec<Lane>,
    bytes: usize,
    used: u64,
}

#[derive(Debug, Default)]
struct Table {
    tenants: HashMap<TenantId, Tenant>,
    bytes: usize,
    tick: u64,
    counts: BTreeMap<&'static str, Counts>,
}

#[derive(Debug, Default)]
struct Tenant {
    sessions: HashMap<u64, Session>,
    bytes: usize,
}

/// What came of the prompts of one provider.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    states: [u64; STATES.len()],
    unused: u64,
    lost_tokens: u64,
}

const STATES: [(PromptState, &str); 5] = [
    (PromptState::First, "first"),
    (PromptState::Kept, "kept"),
    (PromptState::Edited, "edited"),
    (PromptState::Broken, "broken"),
    (PromptState::StartedOver, "started_over"),
];

/// The latest prompts by session.
#[derive(Debug, Default)]
pub(crate) struct Prompts {
    key: RandomState,
    table: Mutex<Table>,
}

impl Prompts {
    /// The conversations of a session, the latest one last.
    pub(crate) fn lanes(&self, tenant: TenantId, session: &str) -> Vec<Lane> {
        let name = self.key.hash_one(session);
        let table = self.table.lock();
        let own = table.tenants.get(&tenant).and_then(|tenant| tenant.sessions.get(&name));
        own.map(|session| session.lanes.clone()).unwrap_or_default()
    }

    /// Keeps a prompt in the place of the one that it goes on from.
    pub(crate) fn keep(&self, tenant: TenantId, session: &str, former: Option<SpanId>, lane: Lane) {
        let name = self.key.hash_one(session);
        let table = &mut *self.table.lock();
        table.tick += 1;
        let tick = table.tick;
        let owner = table.tenants.entry(tenant).or_default();
        let own = owner.sessions.entry(name).or_default();
        own.lanes.retain(|lane| Some(lane.span) != former);
        if own.lanes.len() >= LANES_MAX {
            own.lanes.remove(0);
        }
        own.lanes.push(lane);
        own.used = tick;
        let before = own.bytes;
        own.bytes = own.lanes.iter().map(|lane| lane.outline.weight()).sum();
        owner.bytes = owner.bytes + own.bytes - before;
        table.bytes = table.bytes + own.bytes - before;
        if table.bytes > BYTES_MAX {
            table.make_room();
        }
    }

    /// Counts what came of a prompt.
    pub(crate) fn count(&self, provider: &'static str, state: PromptState, made: ProviderUse, lost_tokens: u64) {
        let mut table = self.table.lock();
        let counts = table.counts.entry(provider).or_default();
        if let Some(at) = STATES.iter().position(|(named, _)| *named == state) {
            counts.states[at] += 1;
        }
        counts.unused += u64::from(made == ProviderUse::NotUsed);
        counts.lost_tokens = counts.lost_tokens.saturating_add(lost_tokens);
    }
}

impl Table {
    /// Drops the sessions longest not used of the tenant that has most.
    fn make_room(&mut self) {
        let Some((&tenant, owner)) = self.tenants.iter_mut().max_by_key(|(_, tenant)| tenant.bytes) else { return };
        let mut by_age: Vec<(u64, u64)> = owner.sessions.iter().map(|(name, own)| (own.used, *name)).collect();
        by_age.sort_unstable();
        let (mut freed, wanted) = (0, (BYTES_MAX / DROPPED).min(owner.bytes));
        for (_, name) in by_age {
            if freed >= wanted {
                break;
            }
            freed += owner.sessions.remove(&name).map_or(0, |session| session.bytes);
        }
        owner.bytes -= freed;
        self.bytes -= freed;
        if owner.sessions.is_empty() {
            self.tenants.remove(&tenant);
        }
    }
}

/// What [`Prompts`] counts, for `/metrics`.
pub(crate) struct PromptCounts(pub(crate) Arc<Prompts>);

impl Source for PromptCounts {
    fn collect(&self, out: &mut Exposition) {
        let counts = self.0.table.lock().counts.clone();
        for (provider, counts) in counts {
            for ((_, state), count) in STATES.iter().zip(counts.states) {
                out.counter(names::PROMPTS, &[("provider", provider), ("state", state)], count);
            }
            out.counter(names::PROMPTS_UNUSED, &[("provider", provider)], counts.unused);
            out.counter(names::PROMPT_TOKENS_LOST, &[("provider", provider)], counts.lost_tokens);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(bytes: usize) -> Lane {
        let mut outline = Outline::default();
        outline.segments.push(weir_storage::prompt::Segment::filler(bytes));
        Lane { outline: Arc::new(outline), span: SpanId::fresh(), began: Timestamp::now(), ended: Timestamp::now() }
    }

    #[test]
    fn who_keeps_many_prompts_has_no_other_s_forgotten() {
        let (prompts, many, other) =
            (Prompts::default(), TenantId::from_credential(b"a"), TenantId::from_credential(b"b"));
        prompts.keep(other, "mine", None, lane(64 << 10));
        for number in 0..1000 {
            prompts.keep(many, &number.to_string(), None, lane(1 << 20));
        }
        assert_eq!(prompts.lanes(other, "mine").len(), 1);
        assert_eq!(prompts.lanes(many, "mine").len(), 0);
        assert_eq!(prompts.lanes(many, "999").len(), 1);
        assert_eq!(prompts.lanes(many, "0").len(), 0);
        let table = prompts.table.lock();
        assert!(table.bytes <= BYTES_MAX, "{}", table.bytes);
        let sum: usize = table.tenants.values().flat_map(|tenant| tenant.sessions.values()).map(|it| it.bytes).sum();
        assert_eq!(sum, table.bytes);
    }

    #[test]
    fn a_prompt_takes_the_place_of_the_one_that_it_goes_on_from() {
        let prompts = Prompts::default();
        let first = lane(100);
        prompts.keep(TenantId::DEFAULT, "s", None, first.clone());
        prompts.keep(TenantId::DEFAULT, "s", Some(first.span), lane(200));
        assert_eq!(prompts.lanes(TenantId::DEFAULT, "s").len(), 1);
        for _ in 0..20 {
            prompts.keep(TenantId::DEFAULT, "s", None, lane(100));
        }
        assert_eq!(prompts.lanes(TenantId::DEFAULT, "s").len(), LANES_MAX);
    }
}
