//! The words that every match of a pattern holds, so that a pattern is not run where it cannot match.
//!
//! Running a pattern over a window that its automaton has not seen the like of makes new states, which costs a hundred times
//! what looking for a few words does. The words are found by their first three bytes in a small table, so that one rule takes
//! about a kilobyte; an automaton of them takes thirty, and as long to build as the pattern. Most windows are settled by the rarest
//! words alone, for which few places have to be looked at closely. Invariant: where a pattern matches within a window, its words stand there; the
//! opposite is left to the pattern.

use regex_syntax::hir::{Hir, HirKind};

/// Shortest word that is looked for, in bytes.
const WORD_MIN: usize = 3;
/// Bytes of a longer word that are looked for: more would tell little and take memory.
const WORD_MAX: usize = 8;
/// Most words of one pattern.
const WORDS_MAX: usize = 250;
/// Most groups of one pattern: a bit each.
const GROUPS_MAX: usize = 64;
/// Bits of a hash of the first three bytes of a word.
const HASH_BITS: u32 = 11;
/// Those of them that number the buckets of words.
const BUCKET_BITS: u32 = 4;
/// Odd constant that spreads the bytes over the upper bits (2^32 divided by the golden ratio).
const SPREAD: u32 = 0x9E37_79B1;
/// How far before the last window the next one may begin for what is known to be kept, in bytes: literals are found by what is rare in
/// them, so one that begins first may be found last.
const BACK_MAX: usize = 64;
/// Places that one load brings all bytes of.
const STEPS: usize = 4;
/// Makes ASCII letters lower case; other bytes merely collide, in words and texts alike.
const FOLD: u64 = 0x2020_2020_2020_2020;

/// Words of which one must be there.
type Group = Vec<Vec<u8>>;

/// A bit for each hash.
type Filter = [u32; (1 << HASH_BITS) / u32::BITS as usize];

/// What every match of a pattern holds: in one of several ways, one word out of each of some groups.
#[derive(Debug)]
pub(crate) struct Words {
    /// The hashes of all words.
    filter: Filter,
    /// The rarest group of each way.
    telling: u64,
    /// The hashes of their words.
    telling_filter: Filter,
    /// Where the words of each bucket begin in `known`, and the end of the last one.
    buckets: [u8; (1 << BUCKET_BITS) + 1],
    known: Box<[Known]>,
    /// The groups of each way.
    ways: Box<[u64]>,
}

/// What is known of a pattern's words in a text from the windows that were looked at. Places are counted from 1: 0 is none.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Where the last window begins.
    from: usize,
    /// Up to where telling words were looked for, and the last place of one.
    told: usize,
    telling: usize,
    /// Up to where all words were looked for, and the last place of one of each group.
    read: usize,
    last: Vec<usize>,
}

/// What came of a look at a window.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Looked {
    /// Whether all words stand there that a match needs.
    pub(crate) stand: bool,
    /// How many places had to be looked at closely.
    pub(crate) places: usize,
    /// How many bytes were looked at.
    pub(crate) bytes: usize,
}

/// One word.
#[derive(Debug, Clone, Copy)]
struct Known {
    /// Its bytes, folded, zero behind them.
    word: u64,
    /// Ones where it has bytes.
    mask: u64,
    /// The groups that it is in.
    groups: u64,
}

impl Words {
    /// Of a pattern, as it is written, that is tried where one of `triggers` stands. `None` where they would never keep it from being
    /// tried.
    pub(crate) fn of(hir: &Hir, triggers: &[String]) -> Option<Self> {
        let mut ways = ways(hir, triggers);
        if ways.iter().map(Vec::len).sum::<usize>() > GROUPS_MAX {
            ways = vec![groups(hir, triggers)];
        }
        if ways.iter().any(Vec::is_empty) {
            return None;
        }
        let words = Self::index(&ways, triggers)?;
        (!triggers.iter().all(|trigger| words.stand_in(trigger.as_bytes()))).then_some(words)
    }

    fn index(ways: &[Vec<Group>], triggers: &[String]) -> Option<Self> {
        let (mut known, mut masks): (Vec<Known>, Vec<u64>) = Default::default();
        let (mut next, mut telling) = (0, 0);
        for way in ways {
            let mut mask = 0;
            let frequencies: Vec<usize> = way.iter().map(|group| frequency(group, triggers)).collect();
            let rarest = frequencies.iter().min();
            for (group, frequency) in way.iter().zip(&frequencies) {
                let bit = 1u64.checked_shl(next)?;
                next += 1;
                if mask & telling == 0 && rarest == Some(frequency) {
                    telling |= bit;
                }
                mask |= bit;
                known.extend(group.iter().map(|word| Known::new(word, bit)));
            }
            masks.push(mask);
        }
        known.sort_unstable_by_key(|known| (hash(known.word), known.word, known.mask));
        known.dedup_by(|again, first| {
            let same = (again.word, again.mask) == (first.word, first.mask);
            first.groups |= if same { again.groups } else { 0 };
            same
        });
        if known.len() > WORDS_MAX {
            return None;
        }
        let [mut filter, mut telling_filter] = [[0; _]; 2];
        let mut buckets = [0; (1 << BUCKET_BITS) + 1];
        for known in &known {
            let hash = hash(known.word);
            add(&mut filter, hash);
            if known.groups & telling != 0 {
                add(&mut telling_filter, hash);
            }
            buckets.iter_mut().skip(bucket(hash) + 1).for_each(|end| *end += 1);
        }
        Some(Self { filter, telling, telling_filter, buckets, known: known.into(), ways: masks.into() })
    }

    /// Whether they stand in this window, anywhere and in any order.
    pub(super) fn stand_in(&self, window: &[u8]) -> bool {
        self.stand_next(window, (0, window.len()), &mut Seen::default()).stand
    }

    /// The same for one of several windows of a text, each of which begins about where the one before does or behind it: what was
    /// looked at for that one is not looked at again. Words may reach behind the end of the window.
    pub(crate) fn stand_next(&self, text: &[u8], (from, to): (usize, usize), seen: &mut Seen) -> Looked {
        let mut looked = Looked::default();
        if from < seen.from {
            self.look_back(text, from, seen, &mut looked);
        }
        seen.from = from;
        if seen.telling <= from {
            let begin = seen.told.max(from);
            let found = first(text, (begin, to), &self.telling_filter, |here, _| {
                looked.places += 1;
                self.groups_of(here) & self.telling != 0
            });
            seen.told = found.map_or(to.max(begin), |at| at + 1);
            looked.bytes += seen.told - begin;
            let Some(at) = found else { return looked };
            seen.telling = at + 1;
        }
        let mut groups = seen.groups_from(from);
        if self.is_enough(groups) {
            return Looked { stand: true, ..looked };
        }
        let begin = seen.read.max(from);
        let found = first(text, (begin, to), &self.filter, |here, at| {
            looked.places += 1;
            let here = self.groups_of(here);
            seen.note(here, at);
            groups |= here;
            here != 0 && self.is_enough(groups)
        });
        seen.read = found.map_or(to.max(begin), |at| at + 1);
        looked.bytes += seen.read - begin;
        Looked { stand: found.is_some(), ..looked }
    }

    /// Looks at what lies before the last window.
    fn look_back(&self, text: &[u8], from: usize, seen: &mut Seen, looked: &mut Looked) {
        let back = seen.from - from;
        if back > BACK_MAX {
            seen.clear();
            return;
        }
        first(text, (from, seen.from), &self.filter, |here, at| {
            looked.places += 1;
            let here = self.groups_of(here);
            seen.note(here, at);
            if here & self.telling != 0 {
                seen.telling = seen.telling.max(at + 1);
            }
            false
        });
        looked.bytes += back;
    }

    /// Whether a word of each of these groups is one of the ways.
    fn is_enough(&self, groups: u64) -> bool {
        self.ways.iter().any(|way| way & !groups == 0)
    }

    /// The groups of the words that begin with these bytes.
    fn groups_of(&self, here: u64) -> u64 {
        let hash = hash(here);
        let (from, to) = (self.buckets[bucket(hash)], self.buckets[bucket(hash) + 1]);
        let words = self.known.get(usize::from(from)..usize::from(to)).unwrap_or_default();
        words.iter().filter(|known| here & known.mask == known.word).fold(0, |all, known| all | known.groups)
    }
}

impl Seen {
    /// Forgets everything: the next window is one of another text, or far before the last one.
    pub(crate) fn clear(&mut self) {
        let mut last = std::mem::take(&mut self.last);
        last.clear();
        *self = Self { last, ..Self::default() };
    }

    /// Notes that words of these groups begin at a place.
    fn note(&mut self, groups: u64, at: usize) {
        let mut left = groups;
        while left != 0 {
            let group = left.trailing_zeros() as usize;
            if self.last.len() <= group {
                self.last.resize(group + 1, 0);
            }
            self.last[group] = self.last[group].max(at + 1);
            left &= left - 1;
        }
    }

    /// The groups of which a word begins at `from` or behind it.
    fn groups_from(&self, from: usize) -> u64 {
        self.last.iter().enumerate().fold(0, |groups, (group, place)| groups | u64::from(*place > from) << group)
    }
}

/// The first place in a range of the text that the filter lets through and of whose folded bytes, up to [`WORD_MAX`], `is_it` says so.
fn first(
    text: &[u8],
    (from, to): (usize, usize),
    filter: &Filter,
    mut is_it: impl FnMut(u64, usize) -> bool,
) -> Option<usize> {
    (from..to).step_by(STEPS).find_map(|at| {
        // One load brings what several places need.
        let here = word_at(text, at);
        (at..at + STEPS)
            .find(|place| has(filter, hash(here >> (8 * (place - at)))) && is_it(word_at(text, *place), *place))
    })
}

/// The folded bytes at a place, zeros behind the end of the window.
fn word_at(window: &[u8], at: usize) -> u64 {
    match window.get(at..).and_then(<[u8]>::first_chunk::<WORD_MAX>) {
        Some(bytes) => u64::from_le_bytes(*bytes) | FOLD,
        None => padded(window.get(at..)),
    }
}

fn add(filter: &mut Filter, hash: usize) {
    filter[hash / u32::BITS as usize] |= 1 << (hash % u32::BITS as usize);
}

fn has(filter: &Filter, hash: usize) -> bool {
    filter[hash / u32::BITS as usize] >> (hash % u32::BITS as usize) & 1 != 0
}

impl Known {
    fn new(word: &[u8], groups: u64) -> Self {
        let mask = u64::MAX >> (64 - 8 * word.len().clamp(WORD_MIN, WORD_MAX));
        Self { word: padded(Some(word)) & mask, mask, groups }
    }
}

/// Up to eight bytes, folded.
fn padded(bytes: Option<&[u8]>) -> u64 {
    let mut word = [0; WORD_MAX];
    word.iter_mut().zip(bytes.unwrap_or_default()).for_each(|(slot, byte)| *slot = *byte);
    u64::from_le_bytes(word) | FOLD
}

/// Hash of the first three of these bytes: the product leaves a fourth one out.
const fn hash(word: u64) -> usize {
    ((word as u32).wrapping_mul(SPREAD << u8::BITS) >> (u32::BITS - HASH_BITS)) as usize
}

const fn bucket(hash: usize) -> usize {
    hash >> (HASH_BITS - BUCKET_BITS)
}

/// A byte that every match of a pattern holds and few texts do.
pub(super) fn rare_byte(hir: &Hir) -> Option<u8> {
    const RARE: &[u8] = b"@|{}$~^";
    let HirKind::Concat(parts) = hir.kind() else { return None };
    parts.iter().find_map(|part| match part.kind() {
        HirKind::Literal(literal) => literal.0.iter().find(|byte| RARE.contains(byte)).copied(),
        _ => None,
    })
}

/// The ways in which a pattern can match, each with its groups.
fn ways(hir: &Hir, triggers: &[String]) -> Vec<Vec<Group>> {
    match hir.kind() {
        HirKind::Capture(capture) => ways(&capture.sub, triggers),
        HirKind::Alternation(branches) => branches.iter().flat_map(|branch| ways(branch, triggers)).collect(),
        _ => vec![groups(hir, triggers)],
    }
}

/// Groups of which every match holds a word each.
fn groups(hir: &Hir, triggers: &[String]) -> Vec<Group> {
    match hir.kind() {
        HirKind::Literal(literal) if literal.0.len() >= WORD_MIN => {
            vec![vec![literal.0.iter().take(WORD_MAX).map(u8::to_ascii_lowercase).collect()]]
        }
        HirKind::Concat(parts) => parts.iter().flat_map(|part| groups(part, triggers)).collect(),
        HirKind::Capture(capture) => groups(&capture.sub, triggers),
        HirKind::Repetition(repetition) if repetition.min > 0 => groups(&repetition.sub, triggers),
        HirKind::Alternation(branches) => one_of(branches, triggers).into_iter().collect(),
        _ => Vec::new(),
    }
}

/// One group for all branches; `None` where one of them has no word.
fn one_of(branches: &[Hir], triggers: &[String]) -> Option<Group> {
    let mut all = Group::new();
    for branch in branches {
        let telling = groups(branch, triggers).into_iter().min_by_key(|group| frequency(group, triggers))?;
        all.extend(telling);
    }
    all.sort_unstable();
    all.dedup();
    Some(all)
}

/// How often one of these words is to be expected in a window: for comparing.
fn frequency(group: &Group, triggers: &[String]) -> usize {
    let each = |word: &Vec<u8>| {
        // A word inside a trigger tells nothing where that trigger stands.
        let given = triggers.iter().any(|trigger| trigger.as_bytes().windows(word.len()).any(|part| part == word));
        if given { 1000 } else { 64 >> word.len().min(6) }
    };
    group.iter().map(each).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex_automata::meta::Regex;
    use regex_automata::util::syntax;

    use super::super::pattern::read_as_written;
    use super::*;

    fn words_of(pattern: &str, trigger: &str) -> Option<Words> {
        Words::of(&read_as_written(pattern).unwrap(), &[trigger.to_owned()])
    }

    fn words(pattern: &str) -> Option<Words> {
        words_of(pattern, "prompt")
    }

    #[test]
    fn asks_for_a_word_of_each_part() {
        let words = words(r"\b(?:show|print)\b[^.]*?(?:your|the)\s+(?:\w+\s+)?prompt").unwrap();
        assert!(words.stand_in(b"PRINT me the prompt"));
        assert!(words.stand_in(b"the prompt that you show"), "the order is the pattern's business");
        assert!(!words.stand_in(b"print a prompt"));
        assert!(!words.stand_in(b"your prompt"));
    }

    #[test]
    fn any_way_will_do_and_words_may_overlap() {
        let pattern = r"(?:the secret|secrets?\s+of\s+state|x+prompt)";
        let words = words_of(pattern, "secret").unwrap();
        assert!(words.stand_in(b"prompt"));
        assert!(words.stand_in(b"the secret"));
        assert!(!words.stand_in(b"the sec"));
        assert!(!words.stand_in(b"secret"), "`state` is missing");
        assert!(words.stand_in(b"statesecret"));
    }

    #[test]
    fn a_pattern_that_may_do_without_words_has_none() {
        for pattern in [r"\w+\s\d", "(?:prompt)?", "prompt|ab", "(?i)prompt", "the prompt|prompt"] {
            assert!(words(pattern).is_none(), "{pattern}");
        }
    }

    #[test]
    fn a_rare_byte_stands_in_every_match() {
        let rare_byte = |pattern| rare_byte(&read_as_written(pattern).unwrap());
        assert_eq!(rare_byte(r"https?://\w+:(\w+)@\w+"), Some(b'@'));
        assert_eq!(rare_byte(r"a@b|c"), None, "one way has none");
        assert_eq!(rare_byte(r"a@?b"), None);
        assert_eq!(rare_byte(r"plain words"), None);
    }

    /// Small patterns over a small alphabet, so that texts match often.
    fn pattern() -> impl Strategy<Value = String> {
        let leaf = prop_oneof!["[ab]{3,5}", Just(r"\s+".to_owned()), Just("[^c]*?".to_owned()), Just(r"\b".to_owned())];
        leaf.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 1..4).prop_map(|all| all.concat()),
                prop::collection::vec(inner.clone(), 1..4).prop_map(|all| format!("(?:{})", all.join("|"))),
                inner.clone().prop_map(|one| format!("({one})?")),
                inner.prop_map(|one| format!("(?:{one}){{1,2}}")),
            ]
        })
    }

    proptest! {
        #[test]
        fn stand_wherever_the_pattern_matches(pattern in pattern(), text in "[abAB ]{0,24}") {
            let config = syntax::Config::new().unicode(false).utf8(false).case_insensitive(true);
            let regex = Regex::builder().syntax(config).build(&pattern).unwrap();
            if let Some(words) = words_of(&pattern, "aba") {
                prop_assert!(words.stand_in(text.as_bytes()) || !regex.is_match(text.as_bytes()));
            }
        }

        /// Windows one after the other say what each says by itself, but for a word that its end cuts.
        #[test]
        fn windows_of_a_text_are_looked_at_as_each_by_itself(
            pattern in pattern(), text in "[abAB c]{0,160}", windows in prop::collection::vec((-4isize..30, 1usize..40), 1..12),
        ) {
            let Some(words) = words_of(&pattern, "aba") else { return Ok(()) };
            let (text, mut from, mut seen) = (text.as_bytes(), 0usize, Seen::default());
            for (step, len) in windows {
                from = from.saturating_add_signed(step).min(text.len());
                let to = (from + len).min(text.len());
                let stand = words.stand_next(text, (from, to), &mut seen).stand;
                prop_assert!(stand || !words.stand_in(&text[from..to]));
                let wide = &text[from..text.len().min(seen.told.max(seen.read) + WORD_MAX)];
                prop_assert!(!stand || words.stand_in(wide));
            }
        }
    }
}
