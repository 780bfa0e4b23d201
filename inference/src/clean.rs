//! Texts in which nothing was found before.
//!
//! A conversation is sent again, whole, with every turn, and an agent takes many turns: all but the newest message has
//! been looked at already. What a text holds depends on nothing but the text, its role and the plan it is judged under, so a text that
//! was clean is clean, and need not be looked at again. Texts with findings are looked at each time. Where nothing was found and only the
//! second stage did not read it, or not all of it, that is remembered by another name ([`Name::passed_over`], [`Name::read_in_part`]).
//!
//! Kept are 128 bits of a hash with a secret key for each text, in tables that all threads read and write without locks. It
//! begins with a small table; where that has no room left in many of its places the next one, four times as large, takes what
//! comes, up to the bytes it was given ([`Clean::of_bytes`]). What is met again in the former table moves to the present one.
//! Invariants: a tenant's texts are known to nobody else, not even by the time it takes; nothing of a text can be told from the
//! tables; a text that is not remembered is only looked at once more.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crossbeam_utils::CachePadded;
use highway::{HighwayHash as _, HighwayHasher};
use parking_lot::Mutex;

use crate::part::{Part, PartKind};
use crate::pins::Tool;
use crate::plan::Call;

/// Bytes of the first table: 65,536 texts.
const FIRST_BYTES: usize = 1 << 20;
/// How many times as large as the one before a table is.
const GROWTH: usize = 4;
/// Bytes that all tables take where nobody says otherwise.
const BYTES_USUAL: usize = 16 << 20;
/// Places of one piece of a table. A piece is made when something is remembered in it: 64 KiB.
const PIECE_SETS: usize = 1 << 10;
/// A table is full when one in so many of its places has turned a text out: by then more than half of its room is taken.
const CROWDED_PART: usize = 8;
/// Texts one place has room for: a cache line full.
const WAYS: usize = 4;
/// Shorter texts are looked at faster than they are looked up, in bytes.
const TEXT_MIN: usize = 64;

/// The texts found clean.
#[derive(Debug)]
pub(crate) struct Clean {
    /// From small to large; none where nothing is remembered.
    tables: Box<[Table]>,
    /// The one that takes what comes.
    present: AtomicUsize,
    key: [u64; 3],
    counts: Mutex<Vec<Arc<CachePadded<Count>>>>,
}

/// Places for texts, in pieces.
#[derive(Debug)]
struct Table {
    pieces: Box<[OnceLock<Box<[Set]>>]>,
    /// Places in each piece.
    sets: usize,
    /// Texts that were turned out for others.
    turned_out: CachePadded<AtomicU64>,
}

/// Texts whose hashes share their last bits.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Set([Slot; WAYS]);

/// The two halves of a text's hash; zero where there is none. Written one after the other, so a reader may see halves of
/// two texts, which are no text's hash.
#[derive(Debug, Default)]
struct Slot(AtomicU64, AtomicU64);

/// Bytes of text one thread has met, and texts; written by that thread alone.
#[derive(Debug, Default)]
pub(crate) struct Count {
    scanned: AtomicU64,
    known: AtomicU64,
    texts_scanned: AtomicU64,
    texts_known: AtomicU64,
}

/// Bytes of text that all threads have met.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TextBytes {
    /// Looked at by the detectors.
    pub scanned: u64,
    /// Known to be clean, and not looked at again.
    pub known: u64,
}

/// What the memory of clean texts has done and holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KnownTexts {
    /// Texts that were asked for and known.
    pub hits: u64,
    /// Texts that the detectors looked at: not known, or not remembered because something was found in them.
    pub misses: u64,
    /// Texts forgotten for others, since the start.
    pub turned_out: u64,
    /// Bytes the tables take now.
    pub bytes: usize,
    /// Bytes they may take.
    pub bytes_max: usize,
}

/// Names one text of one tenant in one role under one plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name(u64, u64);

/// Tells texts that are made of others from those that were sent as they are.
const JOINED: u64 = 0x9E37_79B9_7F4A_7C15;
/// Tell what the second stage did with a text. Bits that choose no place, so that all names of a text lie in one cache line.
const PASSED_OVER: u64 = 1 << 63;
/// As above.
const READ_PARTLY: u64 = 1 << 62;

impl Name {
    /// The same text, made of others: not all detectors look at such a one, so that it is clean by itself.
    pub(crate) const fn of_joined(self) -> Self {
        Self(self.0, self.1 ^ JOINED)
    }

    /// The same text, in which nothing was found and which the second stage had no time for.
    pub(crate) const fn passed_over(self) -> Self {
        Self(self.0, self.1 ^ PASSED_OVER)
    }

    /// The same text, in which nothing was found and of which the second stage has read a part, as much as it does of so long a text.
    pub(crate) const fn read_in_part(self) -> Self {
        Self(self.0, self.1 ^ READ_PARTLY)
    }
}

// === impl Clean ===

impl Clean {
    pub(crate) fn new() -> Self {
        Self::of_bytes(BYTES_USUAL)
    }

    /// One whose tables take about so many bytes together, once they are full.
    pub(crate) fn of_bytes(bytes: usize) -> Self {
        let mut tables = vec![Table::of_bytes(FIRST_BYTES)];
        let (mut last, mut all) = (FIRST_BYTES, FIRST_BYTES);
        while all + last * GROWTH <= bytes {
            last *= GROWTH;
            all += last;
            tables.push(Table::of_bytes(last));
        }
        // What is left of the bytes is worth a last table of another size.
        if bytes.saturating_sub(all) > last
            && let rest = 1 << (bytes - all).ilog2()
        {
            tables.push(Table::of_bytes(rest));
        }
        Self::with(tables)
    }

    /// One that remembers nothing.
    pub(crate) fn without_memory() -> Self {
        Self::with(Vec::new())
    }

    fn with(tables: Vec<Table>) -> Self {
        // The keys of the standard library's hash maps are the system's random numbers.
        let random = || RandomState::new().build_hasher().finish();
        Self {
            tables: tables.into(),
            present: AtomicUsize::new(0),
            key: [random(), random(), random()],
            counts: Mutex::new(Vec::new()),
        }
    }

    /// One table of `pieces` of `sets` places each, powers of two.
    #[cfg(test)]
    fn with_sets(pieces: usize, sets: usize) -> Self {
        Self::with(vec![Table::new(pieces, sets)])
    }

    /// The name of this text, if it is of a kind that is sent again. What defines one tool may be new for another one.
    pub(crate) fn name(&self, part: &Part<'_>, tool: Option<Tool>, call: &Call<'_>) -> Option<Name> {
        if self.tables.is_empty() || part.text.len() < TEXT_MIN || part.kind == PartKind::Output {
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
        let Some(table) = self.present() else { return };
        let places = names.filter_map(|name| table.set(name)?.0.first());
        std::hint::black_box(places.fold(0, |all, slot| all ^ slot.0.load(Ordering::Relaxed)));
    }

    /// Whether the text was clean before.
    pub(crate) fn has(&self, name: Name) -> bool {
        let at = self.present.load(Ordering::Relaxed);
        let has = |at: usize| self.tables.get(at).is_some_and(|table| table.has(name));
        if has(at) {
            return true;
        }
        let known = at.checked_sub(1).is_some_and(has);
        if known {
            self.add(name);
        }
        known
    }

    /// Remembers a text as clean, in the place of another one if need be.
    pub(crate) fn add(&self, name: Name) {
        let at = self.present.load(Ordering::Relaxed);
        let Some(table) = self.tables.get(at) else { return };
        if !table.add(name) && table.is_crowded() && at + 1 < self.tables.len() {
            // Two threads that see this at once mean the same table.
            self.present.fetch_max(at + 1, Ordering::Relaxed);
        }
    }

    fn present(&self) -> Option<&Table> {
        self.tables.get(self.present.load(Ordering::Relaxed))
    }

    /// What it has done until now, and holds.
    pub(crate) fn known_texts(&self) -> KnownTexts {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = self.counts.lock();
        let sum = |of: fn(&Count) -> &AtomicU64| counts.iter().map(|count| load(of(count))).sum();
        KnownTexts {
            hits: sum(|count| &count.texts_known),
            misses: sum(|count| &count.texts_scanned),
            turned_out: self.tables.iter().map(|table| load(&table.turned_out)).sum(),
            bytes: self.tables.iter().map(Table::bytes).sum(),
            bytes_max: self.tables.iter().map(Table::bytes_max).sum(),
        }
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

// === impl Table ===

impl Table {
    fn new(pieces: usize, sets: usize) -> Self {
        let pieces = (0..pieces).map(|_| OnceLock::new()).collect();
        Self { pieces, sets, turned_out: CachePadded::default() }
    }

    /// One of so many bytes, a power of two.
    fn of_bytes(bytes: usize) -> Self {
        Self::new((bytes / size_of::<Set>() / PIECE_SETS).max(1), PIECE_SETS)
    }

    /// The piece of the table a name belongs to.
    fn piece(&self, name: Name) -> Option<&OnceLock<Box<[Set]>>> {
        self.pieces.get((name.1 >> 32) as usize & self.pieces.len().checked_sub(1)?)
    }

    /// The place of a name, where its piece has been made.
    fn set(&self, name: Name) -> Option<&Set> {
        set(self.piece(name)?.get()?, name)
    }

    fn has(&self, name: Name) -> bool {
        self.set(name).is_some_and(|set| set.0.iter().any(|slot| slot.is(name)))
    }

    /// Puts a name in; false when that turned another one out.
    fn add(&self, name: Name) -> bool {
        let made = || (0..self.sets).map(|_| Set::default()).collect();
        let Some(set) = self.piece(name).and_then(|piece| set(piece.get_or_init(made), name)) else { return true };
        let free = set.0.iter().position(|slot| slot.0.load(Ordering::Relaxed) == 0);
        // Which one goes is left to the hash: to know which was asked for last would take a write for each question.
        let place = free.unwrap_or((name.0 >> 32) as usize % WAYS);
        if free.is_none() {
            self.turned_out.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(Slot(first, second)) = set.0.get(place) {
            first.store(name.0, Ordering::Relaxed);
            second.store(name.1, Ordering::Relaxed);
        }
        free.is_some()
    }

    fn is_crowded(&self) -> bool {
        self.turned_out.load(Ordering::Relaxed) >= (self.pieces.len() * self.sets / CROWDED_PART) as u64
    }

    fn bytes(&self) -> usize {
        self.pieces.iter().filter(|piece| piece.get().is_some()).count() * self.sets * size_of::<Set>()
    }

    fn bytes_max(&self) -> usize {
        self.pieces.len() * self.sets * size_of::<Set>()
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
        Self::add(&self.scanned, part.text.len() as u64);
        Self::add(&self.texts_scanned, 1);
    }

    pub(crate) fn known(&self, part: &Part<'_>) {
        Self::add(&self.known, part.text.len() as u64);
        Self::add(&self.texts_known, 1);
    }

    /// Only one thread writes, so this takes no locked instruction.
    fn add(count: &AtomicU64, more: u64) {
        count.store(count.load(Ordering::Relaxed) + more, Ordering::Relaxed);
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
    fn the_tables_grow_with_what_is_told_up_to_their_bytes() {
        let name = |n: u64| {
            let mixed = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            Name(mixed | 1, mixed.rotate_left(29) ^ n)
        };
        let clean = Clean::of_bytes(21 << 20);
        assert_eq!(clean.tables.iter().map(Table::bytes_max).collect::<Vec<_>>(), [1 << 20, 4 << 20, 16 << 20]);
        let known = |from: u64, to: u64| (from..to).filter(|n| clean.has(name(*n))).count() as u64;
        (0..30_000).for_each(|n| clean.add(name(n)));
        assert!(clean.known_texts().bytes <= 1 << 20 && known(0, 30_000) > 28_500, "{}", known(0, 30_000));
        // Three times as many as the first table has room for; what is met again is kept.
        (30_000..200_000).for_each(|n| {
            clean.add(name(n));
            if n % 4 == 0 {
                clean.has(name(n / 4));
            }
        });
        assert!(known(150_000, 200_000) > 45_000, "{}", known(150_000, 200_000));
        (200_000..3_000_000).for_each(|n| clean.add(name(n)));
        let held = clean.known_texts();
        assert!(held.bytes <= held.bytes_max && held.bytes_max == 21 << 20 && held.turned_out > 1_000_000, "{held:?}");
        assert!(known(2_900_000, 3_000_000) > 80_000);
        assert!(!(3_000_000..3_100_000).any(|n| clean.has(name(n))));
    }

    #[test]
    fn bytes_between_two_sizes_are_used_too() {
        let sizes = |bytes| Clean::of_bytes(bytes).tables.iter().map(Table::bytes_max).collect::<Vec<_>>();
        assert_eq!(sizes(0), [1 << 20]);
        assert_eq!(sizes(4 << 20), [1 << 20, 2 << 20]);
        assert_eq!(sizes(64 << 20), [1 << 20, 4 << 20, 16 << 20, 32 << 20]);
        assert_eq!(sizes(96 << 20), [1 << 20, 4 << 20, 16 << 20, 64 << 20]);
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
