//! Texts in which nothing was found before.
//!
//! A conversation is sent again, whole, with every turn, and an agent takes many turns: all but the newest message has
//! been looked at already. What a text holds depends on nothing but the text, its role and the plan it is judged under, so a text that
//! was clean is clean, and need not be looked at again. Texts with findings are looked at each time.
//!
//! Kept are 128 bits of a hash with a secret key for each text, in a table of fixed size that all threads read and
//! write without locks. Invariants: a tenant's texts are known to nobody else, not even by the time it takes; nothing
//! of a text can be told from the table; a text that is not remembered is only looked at once more.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_utils::CachePadded;
use highway::{HighwayHash as _, HighwayHasher};
use parking_lot::Mutex;

use crate::part::{Part, PartKind};
use crate::pins::Tool;
use crate::plan::Call;

/// Places in the table, as a power of two; 4 MiB.
const SETS_BITS: u32 = 16;
/// Places of one piece of it, as a power of two. A piece is made when something is remembered in it.
const PIECE_BITS: u32 = 10;
/// Texts one place has room for: a cache line full.
const WAYS: usize = 4;
/// Shorter texts are looked at faster than they are looked up, in bytes.
const TEXT_MIN: usize = 64;

/// The texts found clean.
#[derive(Debug)]
pub(crate) struct Clean {
    pieces: Box<[OnceLock<Box<[Set]>>]>,
    /// Places in each piece.
    sets: usize,
    key: [u64; 3],
    counts: Mutex<Vec<Arc<CachePadded<Count>>>>,
}

/// Texts whose hashes share their last bits.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Set([Slot; WAYS]);

/// The two halves of a text's hash; zero where there is none. Written one after the other, so a reader may see halves of
/// two texts, which are no text's hash.
#[derive(Debug, Default)]
struct Slot(AtomicU64, AtomicU64);

/// Bytes of text one thread has met; written by that thread alone.
#[derive(Debug, Default)]
pub(crate) struct Count {
    scanned: AtomicU64,
    known: AtomicU64,
}

/// Bytes of text that all threads have met.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TextBytes {
    /// Looked at by the detectors.
    pub scanned: u64,
    /// Known to be clean, and not looked at again.
    pub known: u64,
}

/// Names one text of one tenant in one role under one plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name(u64, u64);

// === impl Clean ===

impl Clean {
    pub(crate) fn new() -> Self {
        Self::with_sets(1 << (SETS_BITS - PIECE_BITS), 1 << PIECE_BITS)
    }

    /// One that remembers nothing.
    pub(crate) fn without_memory() -> Self {
        Self::with_sets(0, 0)
    }

    /// `pieces` of `sets` places each, powers of two.
    fn with_sets(pieces: usize, sets: usize) -> Self {
        // The keys of the standard library's hash maps are the system's random numbers.
        let random = || RandomState::new().build_hasher().finish();
        Self {
            pieces: (0..pieces).map(|_| OnceLock::new()).collect(),
            sets,
            key: [random(), random(), random()],
            counts: Mutex::new(Vec::new()),
        }
    }

    /// The name of this text, if it is of a kind that is sent again. What defines one tool may be new for another one.
    pub(crate) fn name(&self, part: &Part<'_>, tool: Option<Tool>, call: &Call<'_>) -> Option<Name> {
        if self.pieces.is_empty() || part.text.len() < TEXT_MIN || part.kind == PartKind::Output {
            return None;
        }
        let [first, second, third] = self.key;
        let mut hasher = HighwayHasher::new(highway::Key([first, second, third, u64::from(part.kind.bit())]));
        // As long as what is taken in at once, so that the text need not be copied to be taken in.
        let mut of = [0; 32];
        let (tenant, rest) = of.split_at_mut(16);
        tenant.copy_from_slice(call.tenant.as_bytes());
        let (plan, name) = rest.split_at_mut(8);
        plan.copy_from_slice(&call.plan.fingerprint().to_le_bytes());
        name.copy_from_slice(&tool.map_or(0, Tool::name).to_le_bytes());
        hasher.append(&of);
        hasher.append(part.text.as_bytes());
        let [one, other] = hasher.finalize128();
        // Zero means a free place.
        Some(Name(one | 1, other))
    }

    /// Asks for the places of these names with nothing between them, so that the waits for memory overlap: the table is larger than what
    /// a core keeps near, and a conversation of ten messages would wait ten times.
    pub(crate) fn fetch(&self, names: impl Iterator<Item = Name>) {
        let places = names.filter_map(|name| set(self.piece(name)?.get()?, name)).filter_map(|set| set.0.first());
        std::hint::black_box(places.fold(0, |all, slot| all ^ slot.0.load(Ordering::Relaxed)));
    }

    /// Whether the text was clean before.
    pub(crate) fn has(&self, name: Name) -> bool {
        let piece = self.piece(name).and_then(OnceLock::get);
        piece.and_then(|sets| set(sets, name)).is_some_and(|set| set.0.iter().any(|slot| slot.is(name)))
    }

    /// Remembers a text as clean, in the place of another one if need be.
    pub(crate) fn add(&self, name: Name) {
        let made = || (0..self.sets).map(|_| Set::default()).collect();
        let Some(set) = self.piece(name).and_then(|piece| set(piece.get_or_init(made), name)) else { return };
        let free = set.0.iter().position(|slot| slot.0.load(Ordering::Relaxed) == 0);
        // Which one goes is left to the hash: to know which was asked for last would take a write for each question.
        let place = free.unwrap_or((name.0 >> 32) as usize % WAYS);
        if let Some(Slot(first, second)) = set.0.get(place) {
            first.store(name.0, Ordering::Relaxed);
            second.store(name.1, Ordering::Relaxed);
        }
    }

    /// The piece of the table a name belongs to.
    fn piece(&self, name: Name) -> Option<&OnceLock<Box<[Set]>>> {
        self.pieces.get((name.1 >> 32) as usize & self.pieces.len().checked_sub(1)?)
    }

    /// A place where a thread counts.
    pub(crate) fn counter(&self) -> Arc<CachePadded<Count>> {
        let count = Arc::default();
        self.counts.lock().push(Arc::clone(&count));
        count
    }

    /// What all threads have met until now.
    pub(crate) fn met(&self) -> TextBytes {
        let counts = self.counts.lock();
        counts.iter().fold(TextBytes::default(), |sum, count| TextBytes {
            scanned: sum.scanned + count.scanned.load(Ordering::Relaxed),
            known: sum.known + count.known.load(Ordering::Relaxed),
        })
    }
}

/// The place in its piece.
fn set(sets: &[Set], name: Name) -> Option<&Set> {
    sets.get(name.1 as usize & sets.len().checked_sub(1)?)
}

// === impl Slot ===

impl Slot {
    fn is(&self, name: Name) -> bool {
        self.0.load(Ordering::Relaxed) == name.0 && self.1.load(Ordering::Relaxed) == name.1
    }
}

// === impl Count ===

impl Count {
    pub(crate) fn scanned(&self, part: &Part<'_>) {
        Self::add(&self.scanned, part);
    }

    pub(crate) fn known(&self, part: &Part<'_>) {
        Self::add(&self.known, part);
    }

    /// Only one thread writes, so this takes no locked instruction.
    fn add(count: &AtomicU64, part: &Part<'_>) {
        count.store(count.load(Ordering::Relaxed) + part.text.len() as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use weir_config::vocab::TenantId;

    use super::*;
    use crate::{Analyser, PlanSettings};

    const TEXT: &str = "A message long enough to be worth looking up, sent again with every turn.";

    fn part(kind: PartKind) -> Part<'static> {
        Part { text: TEXT, kind }
    }

    #[test]
    fn a_text_is_known_to_its_tenant_in_its_role_under_its_plan_alone() {
        let clean = Clean::with_sets(1, 16);
        let name = |kind, options: &Call<'_>| clean.name(&part(kind), None, options).unwrap();
        let analyser = Analyser::builtin().unwrap();
        let plan = |settings| Arc::new(analyser.plan(&settings));
        let whole = plan(PlanSettings::default());
        let options = Call::of(&whole);
        let other_tenant = Call { tenant: TenantId::from_bytes([7; 16]), ..options };
        let without_jailbreak = plan(PlanSettings { off: &["jailbreak"], ..PlanSettings::default() });
        let without_jailbreak = Call::of(&without_jailbreak);
        clean.add(name(PartKind::User, &options));
        assert!(clean.has(name(PartKind::User, &options)));
        assert!(!clean.has(name(PartKind::Assistant, &options)));
        assert!(!clean.has(name(PartKind::User, &other_tenant)));
        assert!(!clean.has(name(PartKind::User, &without_jailbreak)));
        let longer = format!("{TEXT} ");
        let longer = Part { text: &longer, kind: PartKind::User };
        assert!(!clean.has(clean.name(&longer, None, &options).unwrap()));
    }

    #[test]
    fn answers_and_short_texts_are_not_looked_up() {
        let clean = Clean::with_sets(1, 16);
        let plan = Arc::new(Analyser::builtin().unwrap().plan(&PlanSettings::default()));
        assert_eq!(clean.name(&part(PartKind::Output), None, &Call::of(&plan)), None);
        let short = Part { text: "yes, please", kind: PartKind::User };
        assert_eq!(clean.name(&short, None, &Call::of(&plan)), None);
    }

    #[test]
    fn a_full_table_gives_places_away_and_knows_nothing_it_was_not_told() {
        let clean = Clean::with_sets(1, 4);
        let names: Vec<Name> = (1..=1_000_u64).map(|n| Name(n.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, n)).collect();
        let (told, untold) = names.split_at(500);
        told.iter().for_each(|name| clean.add(*name));
        let known = told.iter().filter(|name| clean.has(**name)).count();
        assert_eq!(known, 4 * WAYS);
        assert!(told.last().is_some_and(|name| clean.has(*name)));
        assert!(!untold.iter().any(|name| clean.has(*name)));
    }

    #[test]
    fn texts_told_by_several_threads_at_once_make_no_other_text_known() {
        let clean = Clean::with_sets(1, 1);
        let plan = Arc::new(Analyser::builtin().unwrap().plan(&PlanSettings::default()));
        let name = |who: &str, n: u32| {
            let text = format!("Message {n} of {who}, long enough to be worth looking up, and sent again every turn.");
            clean.name(&Part { text: &text, kind: PartKind::User }, None, &Call::of(&plan)).unwrap()
        };
        std::thread::scope(|scope| {
            for who in ["Alice", "Bob"] {
                let (clean, name) = (&clean, &name);
                scope.spawn(move || (0..20_000).for_each(|n| clean.add(name(who, n))));
            }
            assert!((0..20_000).all(|n| !clean.has(name("Carol", n))));
        });
        assert!(clean.has(name("Alice", 19_999)) || clean.has(name("Bob", 19_999)));
    }
}
