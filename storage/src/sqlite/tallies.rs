//! Running sums of a transaction, added to the tables `tallies` and `slices` in that same transaction: the totals of
//! lists are then sums over a handful of rows, and always agree with what was committed.
//!
//! `slices` are the same sums cut by time, on three levels of 2^20, 2^28 and 2^36 microseconds (a second, four and a
//! half minutes, nineteen hours): totals over a window and the place of a deep page need a few hundred of them.
//!
//! Where a tenant has many spans within a second, further ones are counted by sixteenths of it, too, so that one of few among
//! them is found without looking at all. These sums need not be whole, but never say too much: a reader trusts those of a second
//! that add up to what the second holds.

use std::collections::{BTreeMap, HashMap};

use rusqlite::Connection;

use super::facets::Columns;
use crate::prompt_cache::{PromptState, ProviderUse};
use crate::record::SpanRecord;

/// Bits of `start_us` below a slice's number, finest level first.
pub(super) const LEVEL_BITS: [u32; 3] = [20, 28, 36];
/// The same of the sixteenths, and the number of their level.
pub(super) const FINE_BITS: u32 = 16;
pub(super) const FINE: usize = LEVEL_BITS.len();
/// Spans of a tenant within a second from which on they are kept.
const CROWD: i64 = 256;
/// Seconds of tenants of which it is remembered how many there were: calls that end together began at different times.
const CROWDS_MAX: usize = 8_192;

/// Tokens one span counts for at most. Providers report what they like; a sum must have room for millions of spans.
const TOKENS_MAX: u64 = 1 << 40;
/// Nanodollars one span counts for at most: about a million dollars.
const COST_NANO_USD_MAX: i64 = 1 << 50;

/// The filter values of a span, as small integers; `score` is -1 when there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) tenant: i64,
    pub(super) provider: i64,
    pub(super) model: i64,
    pub(super) operation: i64,
    pub(super) score: i64,
}

/// What a span adds to the sums besides itself.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Weight {
    pub(super) findings: i64,
    pub(super) tokens: i64,
    pub(super) cost_nano_usd: i64,
    pub(super) bytes: i64,
}

impl Weight {
    fn negative(&self) -> Self {
        Self { findings: -self.findings, tokens: -self.tokens, cost_nano_usd: -self.cost_nano_usd, bytes: -self.bytes }
    }

    pub(super) fn of(span: &SpanRecord, body_bytes: usize) -> Self {
        Self {
            findings: span.security_findings.len() as i64,
            tokens: span.total_tokens.unwrap_or(0).min(TOKENS_MAX).cast_signed(),
            cost_nano_usd: nano_usd(span.estimated_cost_usd),
            bytes: body_bytes as i64,
        }
    }
}

fn nano_usd(usd: Option<f64>) -> i64 {
    ((usd.unwrap_or(0.0) * 1e9).round() as i64).clamp(-COST_NANO_USD_MAX, COST_NANO_USD_MAX)
}

pub(super) const HOUR_US: i64 = 3_600_000_000;

/// The number of the hour since the epoch.
pub(super) fn hour_of(start_us: i64) -> i64 {
    start_us.div_euclid(HOUR_US)
}

/// What a call counts as among the sums of usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Use {
    pub(super) tenant: i64,
    pub(super) hour: i64,
    pub(super) session: i64,
    pub(super) agent: i64,
    pub(super) client: i64,
    pub(super) model: i64,
    /// Not part of what the sums are kept by.
    pub(super) failed: bool,
}

impl Use {
    pub(super) fn of(tenant: i64, start_us: i64, model: i64, columns: &Columns) -> Self {
        let Columns { session, agent, client, .. } = *columns;
        Self { tenant, hour: hour_of(start_us), session, agent, client, model, failed: columns.failed() }
    }
}

/// How much was used.
#[derive(Debug, Clone, Copy)]
struct Used {
    calls: i64,
    failed: i64,
    tokens: i64,
    cost_nano_usd: i64,
    new: New,
}

/// What sessions keep of calls, also of those that are gone again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct New {
    /// The worst score; -1 for none.
    score: i64,
    broken: i64,
    unused: i64,
    lost_tokens: i64,
    lost_nano_usd: i64,
    prompt_tokens: i64,
    cached_tokens: i64,
}

impl Default for New {
    fn default() -> Self {
        Self::NOTHING
    }
}

impl New {
    const NOTHING: Self =
        Self { score: -1, broken: 0, unused: 0, lost_tokens: 0, lost_nano_usd: 0, prompt_tokens: 0, cached_tokens: 0 };

    /// Of a call whose prompt was compared; of any other, its score.
    pub(super) fn of(span: &SpanRecord, score: i64) -> Self {
        let Some(cache) = &span.prompt_cache else { return Self { score, ..Self::NOTHING } };
        let tokens = |count: u64| count.min(TOKENS_MAX).cast_signed();
        Self {
            score,
            broken: i64::from(cache.state == PromptState::Broken),
            unused: i64::from(cache.provider_use == ProviderUse::NotUsed),
            lost_tokens: tokens(cache.lost_tokens),
            lost_nano_usd: nano_usd(cache.lost_usd),
            prompt_tokens: tokens(span.prompt_tokens.unwrap_or(0)),
            cached_tokens: tokens(span.cached_tokens.unwrap_or(0)),
        }
    }

    fn add(&mut self, other: &Self) {
        self.score = self.score.max(other.score);
        let pairs = [
            (&mut self.broken, other.broken),
            (&mut self.unused, other.unused),
            (&mut self.lost_tokens, other.lost_tokens),
            (&mut self.lost_nano_usd, other.lost_nano_usd),
            (&mut self.prompt_tokens, other.prompt_tokens),
            (&mut self.cached_tokens, other.cached_tokens),
        ];
        for (sum, more) in pairs {
            *sum = sum.saturating_add(more);
        }
    }

    const fn was_compared(&self) -> bool {
        self.prompt_tokens > 0 || self.broken > 0 || self.lost_tokens > 0
    }
}

impl Used {
    const NOTHING: Self = Self { calls: 0, failed: 0, tokens: 0, cost_nano_usd: 0, new: New::NOTHING };

    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.failed += other.failed;
        self.tokens = self.tokens.saturating_add(other.tokens);
        self.cost_nano_usd = self.cost_nano_usd.saturating_add(other.cost_nano_usd);
        self.new.add(&other.new);
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    spans: i64,
    traces: i64,
    weight: Weight,
}

impl Sums {
    fn add(&mut self, other: &Self) {
        self.spans += other.spans;
        self.traces += other.traces;
        self.weight.findings += other.weight.findings;
        self.weight.tokens = self.weight.tokens.saturating_add(other.weight.tokens);
        self.weight.cost_nano_usd = self.weight.cost_nano_usd.saturating_add(other.weight.cost_nano_usd);
        self.weight.bytes += other.weight.bytes;
    }
}

#[derive(Default)]
pub(super) struct Tallies {
    /// By key and sixteenth of a second.
    sums: HashMap<(Key, i64), Sums>,
    /// What is not in `sums` yet: spans that follow each other mostly have the key and the sixteenth in common.
    latest: Option<((Key, i64), Sums)>,
    used: BTreeMap<Use, Used>,
    /// How many spans a tenant's second has, as far as is remembered.
    crowds: HashMap<(i64, i64), i64>,
}

/// What is added to a row of `slices`.
#[derive(Default)]
struct Slice {
    sums: Sums,
    /// The row begins with it where there is none.
    begins: bool,
}

/// Sums stand still at 2^62: one that left the range of integers would become a REAL, which its column refuses, and with
/// it every further span of the key.
const ADD: &str = "UPDATE tallies SET spans = spans + ?6, traces = traces + ?7, findings = findings + ?8, \
    tokens = max(min(tokens + ?9, 4611686018427387904), -4611686018427387904), \
    cost_nano_usd = max(min(cost_nano_usd + ?10, 4611686018427387904), -4611686018427387904), bytes = bytes + ?11 \
    WHERE tenant = ?1 AND provider = ?2 AND model = ?3 AND operation = ?4 AND score = ?5";
/// Where there is no row yet. Nearly always there is one, and an INSERT with ON CONFLICT costs more than an UPDATE: it has
/// triggers, so that SQLite copies each page aside for the case that the statement is undone.
const BEGIN: &str = "INSERT INTO tallies (tenant, provider, model, operation, score, spans, traces, findings, tokens, \
    cost_nano_usd, bytes) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
const ADD_SLICE: &str = "UPDATE slices SET spans = spans + ?8, traces = traces + ?9 WHERE tenant = ?1 AND level = ?2 \
    AND slice = ?3 AND provider = ?4 AND model = ?5 AND operation = ?6 AND score = ?7";
const BEGIN_SLICE: &str = "INSERT INTO slices (tenant, level, slice, provider, model, operation, score, spans, traces) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
const PRUNE: &str = "DELETE FROM tallies WHERE tenant = ?1 AND provider = ?2 AND model = ?3 AND operation = ?4 AND \
    score = ?5 AND spans <= 0 AND traces <= 0";
const PRUNE_SLICE: &str = "DELETE FROM slices WHERE tenant = ?1 AND level = ?2 AND slice = ?3 AND provider = ?4 AND \
    model = ?5 AND operation = ?6 AND score = ?7 AND spans <= 0 AND traces <= 0";

const ADD_USAGE: &str = "UPDATE usage SET calls = calls + ?7, failed = failed + ?8, \
    tokens = max(min(tokens + ?9, 4611686018427387904), -4611686018427387904), \
    cost_nano_usd = max(min(cost_nano_usd + ?10, 4611686018427387904), -4611686018427387904) \
    WHERE tenant = ?1 AND hour = ?2 AND session = ?3 AND agent = ?4 AND client = ?5 AND model = ?6";
const BEGIN_USAGE: &str = "INSERT INTO usage (tenant, hour, session, agent, client, model, calls, failed, tokens, \
    cost_nano_usd) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
const PRUNE_USAGE: &str = "DELETE FROM usage WHERE tenant = ?1 AND hour = ?2 AND session = ?3 AND agent = ?4 AND \
    client = ?5 AND model = ?6 AND calls <= 0";
const ADD_SESSION: &str = "UPDATE sessions SET calls = calls + ?2, failed = failed + ?3, \
    tokens = max(min(tokens + ?4, 4611686018427387904), -4611686018427387904), \
    cost_nano_usd = max(min(cost_nano_usd + ?5, 4611686018427387904), -4611686018427387904), \
    score = max(score, ?6) WHERE id = ?1";

/// Sums stand still at 2^62, as those above.
const ADD_PROMPTS: &str = "UPDATE sessions SET broken = broken + ?2, unused = unused + ?3, \
    lost_tokens = min(lost_tokens + ?4, 4611686018427387904), \
    lost_nano_usd = min(lost_nano_usd + ?5, 4611686018427387904), \
    prompt_tokens = min(prompt_tokens + ?6, 4611686018427387904), \
    cached_tokens = min(cached_tokens + ?7, 4611686018427387904) WHERE id = ?1";

impl Tallies {
    pub(super) fn forget(&mut self) {
        self.sums.clear();
        self.latest = None;
        self.used.clear();
    }

    /// One more call.
    pub(super) fn begin_use(&mut self, of: Use, weight: &Weight, new: New) {
        self.note_use(of, 1, weight, new);
    }

    /// One call less.
    pub(super) fn end_use(&mut self, of: Use, weight: &Weight) {
        self.note_use(of, -1, weight, New::NOTHING);
    }

    fn note_use(&mut self, of: Use, sign: i64, weight: &Weight, new: New) {
        let used = Used {
            calls: sign,
            failed: sign * i64::from(of.failed),
            tokens: sign * weight.tokens,
            cost_nano_usd: sign * weight.cost_nano_usd,
            new,
        };
        self.used.entry(Use { failed: false, ..of }).or_insert(Used::NOTHING).add(&used);
    }

    /// One more span; `traces` is 1 when it is the first of its trace.
    pub(super) fn add(&mut self, key: Key, start_us: i64, traces: i64, weight: &Weight) {
        self.entry(key, start_us).add(&Sums { spans: 1, traces, weight: *weight });
    }

    /// One span less.
    pub(super) fn remove(&mut self, key: Key, start_us: i64, traces: i64, weight: &Weight) {
        self.entry(key, start_us).add(&Sums { spans: -1, traces: -traces, weight: weight.negative() });
    }

    /// Less of a span that stays counted.
    pub(super) fn take_weight(&mut self, key: Key, start_us: i64, weight: &Weight) {
        self.entry(key, start_us).add(&Sums { weight: weight.negative(), ..Sums::default() });
    }

    /// A span of this key became (1) or ceased to be (-1) the first of its trace.
    pub(super) fn add_traces(&mut self, key: Key, start_us: i64, change: i64) {
        self.entry(key, start_us).traces += change;
    }

    /// More findings, or bytes, on a span that is counted already.
    pub(super) fn add_weight(&mut self, key: Key, start_us: i64, weight: &Weight) {
        self.entry(key, start_us).add(&Sums { weight: *weight, ..Sums::default() });
    }

    fn entry(&mut self, key: Key, start_us: i64) -> &mut Sums {
        let at = (key, start_us >> FINE_BITS);
        if self.latest.as_ref().is_none_or(|(latest, _)| *latest != at) {
            self.settle();
        }
        &mut self.latest.get_or_insert((at, Sums::default())).1
    }

    /// Adds what came last to the others.
    fn settle(&mut self) {
        if let Some((at, sums)) = self.latest.take() {
            self.sums.entry(at).or_default().add(&sums);
        }
    }

    /// Whether the tenant has a crowd in the second of this sixteenth, with so many more spans.
    fn is_crowded(&mut self, tenant: i64, fine: i64, spans: i64) -> bool {
        if self.crowds.len() >= CROWDS_MAX {
            self.crowds.clear();
        }
        let crowd = self.crowds.entry((tenant, fine >> (LEVEL_BITS[0] - FINE_BITS))).or_default();
        *crowd += spans;
        *crowd > CROWD
    }

    /// What is to be added to which rows of `slices`, in the order of the table, so that neighbours are written together.
    fn slices(&mut self) -> BTreeMap<(i64, usize, i64, Key), Slice> {
        let mut slices: BTreeMap<(i64, usize, i64, Key), Slice> = BTreeMap::new();
        let all = std::mem::take(&mut self.sums);
        for ((key, fine), sums) in &all {
            for (level, bits) in LEVEL_BITS.iter().enumerate() {
                let slice = slices.entry((key.tenant, level, fine >> (bits - FINE_BITS), *key)).or_default();
                slice.sums.add(sums);
                slice.begins = true;
            }
            let begins = sums.spans > 0 && self.is_crowded(key.tenant, *fine, sums.spans);
            if begins || sums.spans < 0 || sums.traces < 0 {
                slices.insert((key.tenant, FINE, *fine, *key), Slice { sums: *sums, begins });
            }
        }
        self.sums = all;
        slices
    }

    /// Adds the sums to the tables; they are forgotten once the caller has committed.
    pub(super) fn store(&mut self, conn: &Connection) -> rusqlite::Result<()> {
        self.store_usage(conn)?;
        self.settle();
        if self.sums.is_empty() {
            return Ok(());
        }
        let mut totals: BTreeMap<Key, Sums> = BTreeMap::new();
        for ((key, _), sums) in &self.sums {
            totals.entry(*key).or_default().add(sums);
        }
        let mut add = conn.prepare_cached(ADD)?;
        for (key, sums) in &totals {
            let Sums { spans, traces, weight: Weight { findings, tokens, cost_nano_usd, bytes } } = *sums;
            let Key { tenant, provider, model, operation, score } = *key;
            let row =
                [tenant, provider, model, operation, score, spans, traces, findings, tokens, cost_nano_usd, bytes];
            if add.execute(row)? == 0 {
                conn.prepare_cached(BEGIN)?.execute(row)?;
            }
            if spans < 0 {
                conn.prepare_cached(PRUNE)?.execute([tenant, provider, model, operation, score])?;
            }
        }
        let mut add = conn.prepare_cached(ADD_SLICE)?;
        for ((tenant, level, slice, key), Slice { sums, begins }) in &self.slices() {
            let place = [*tenant, *level as i64, *slice, key.provider, key.model, key.operation, key.score];
            let [a, b, c, d, e, f, g] = place;
            let row = [a, b, c, d, e, f, g, sums.spans, sums.traces];
            if add.execute(row)? == 0 && *begins {
                conn.prepare_cached(BEGIN_SLICE)?.execute(row)?;
            }
            if sums.spans < 0 || sums.traces < 0 {
                conn.prepare_cached(PRUNE_SLICE)?.execute(place)?;
            }
        }
        Ok(())
    }

    fn store_usage(&self, conn: &Connection) -> rusqlite::Result<()> {
        let mut sessions: BTreeMap<i64, Used> = BTreeMap::new();
        for (of, used) in &self.used {
            if of.session > 0 {
                sessions.entry(of.session).or_insert(Used::NOTHING).add(used);
            }
            let row = [
                of.tenant,
                of.hour,
                of.session,
                of.agent,
                of.client,
                of.model,
                used.calls,
                used.failed,
                used.tokens,
                used.cost_nano_usd,
            ];
            if conn.prepare_cached(ADD_USAGE)?.execute(row)? == 0 {
                conn.prepare_cached(BEGIN_USAGE)?.execute(row)?;
            }
            if used.calls < 0 {
                let Use { tenant, hour, session, agent, client, model, .. } = *of;
                conn.prepare_cached(PRUNE_USAGE)?.execute([tenant, hour, session, agent, client, model])?;
            }
        }
        for (session, used) in sessions {
            let row = [session, used.calls, used.failed, used.tokens, used.cost_nano_usd, used.new.score];
            conn.prepare_cached(ADD_SESSION)?.execute(row)?;
            if used.new.was_compared() {
                let New { broken, unused, lost_tokens, lost_nano_usd, prompt_tokens, cached_tokens, .. } = used.new;
                let row = [session, broken, unused, lost_tokens, lost_nano_usd, prompt_tokens, cached_tokens];
                conn.prepare_cached(ADD_PROMPTS)?.execute(row)?;
            }
            if used.calls < 0 {
                conn.prepare_cached("DELETE FROM sessions WHERE id = ?1 AND calls <= 0")?.execute([session])?;
            }
        }
        Ok(())
    }
}
