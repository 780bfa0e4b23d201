//! A program written from a pattern, from its end to its beginning, so that each step knows what follows it.

use std::cell::Cell;
use std::collections::BTreeSet;

use regex_syntax::hir::{Class, ClassUnicodeRange, Hir, HirKind, Look, Repetition};
use regex_syntax::utf8::Utf8Sequences;

use super::steps::{Begin, Filter, First, PREFIX_BYTES, Place, Program, Set, Step, Way, Word, prefix};

/// Most steps of one program: what needs more is left to an automaton.
const STEPS_MAX: usize = 2_000;
/// Most bytes of a class by which a search is kept from beginning where it cannot match.
const FIRST_BYTES_MAX: usize = 12;
/// Most beginnings of what follows by which that is done.
const FIRSTS_MAX: usize = 400;
/// Most steps that are looked at for those, and for those of all steps of a program.
const FIRSTS_STEPS_MAX: usize = 1_000;
const ALL_FIRSTS_STEPS_MAX: usize = 200_000;
/// Most words of all steps of one program.
const WORDS_MAX: usize = 8_000;
/// Most characters of a class that are looked for as words.
const CHARACTERS_MAX: usize = 64;
/// Shortest word that branches are found by together with others.
const HEAD_MIN: usize = 2;

/// The first bytes of a match, as many as are asked for at most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Begun {
    bytes: [u8; PREFIX_BYTES],
    len: usize,
}

/// Beginnings of matches while they are looked for.
#[derive(Debug)]
struct Firsts {
    all: BTreeSet<Begun>,
    /// Steps that may still be looked at.
    steps: usize,
}

/// A program while it is made, from its end to its beginning.
#[derive(Debug, Default)]
struct Draft {
    steps: Vec<Step>,
    sets: Vec<Set>,
    words: Vec<Word>,
    letters: Vec<u8>,
    ways: Vec<Way>,
    gaps: u16,
    /// Steps looked at for what can begin something.
    looked: Cell<usize>,
}

impl Program {
    /// The program of a pattern. `None` where it would be too long or ask for what programs do not know.
    pub(in crate::rules) fn of(hir: &Hir) -> Option<Self> {
        let mut draft = Draft::default();
        let done = draft.add(Step::Done)?;
        let entry = draft.write(hir, done)?;
        let first = First::of(&draft.firsts_of(entry));
        let mut begins = Vec::new();
        draft.begins(draft.way(entry), &mut begins)?;
        Some(Self {
            steps: draft.steps.into(),
            first,
            begins: begins.into(),
            gaps: usize::from(draft.gaps),
            sets: draft.sets.into(),
            words: draft.words.into(),
            letters: draft.letters.into(),
            ways: draft.ways.into(),
        })
    }
}

// === impl Begun, Firsts and Draft ===

impl Begun {
    /// With what follows, as far as it is asked for.
    fn and(mut self, letters: &[u8]) -> Self {
        let room = self.bytes.iter_mut().skip(self.len);
        self.len += room.zip(letters).map(|(place, letter)| *place = *letter).count();
        self
    }
}

impl AsRef<[u8]> for Begun {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }
}

impl Firsts {
    /// One more. `None` where nothing is asked of it, or they are many.
    fn add(&mut self, begun: Begun) -> Option<()> {
        self.all.insert(begun);
        (begun.len > 0 && self.all.len() <= FIRSTS_MAX).then_some(())
    }
}

impl Draft {
    fn add(&mut self, step: Step) -> Option<Place> {
        let place = self.steps.len();
        if place >= STEPS_MAX {
            return None;
        }
        self.steps.push(step);
        Place::try_from(place).ok()
    }

    /// Writes a part of a pattern that goes on with `next`; where it begins.
    fn write(&mut self, hir: &Hir, next: Place) -> Option<Place> {
        match hir.kind() {
            HirKind::Empty => Some(next),
            HirKind::Literal(literal) => self.words(&[(&literal.0, next)]),
            HirKind::Class(class) => match one_byte(class) {
                Some(set) => {
                    let set = self.set(set)?;
                    self.add(Step::Byte { set, next })
                }
                None => self.characters(class, next),
            },
            HirKind::Look(look) => is_known(*look).then(|| self.add(Step::Look { look: *look, next }))?,
            HirKind::Repetition(repetition) => self.repetition(repetition, next),
            HirKind::Capture(capture) => self.write(&capture.sub, next),
            HirKind::Concat(parts) => parts.iter().rev().try_fold(next, |next, part| self.write(part, next)),
            HirKind::Alternation(branches) => self.alternation(branches, next),
        }
    }

    /// Branches that begin with words are found by those, all in one step.
    fn alternation(&mut self, branches: &[Hir], next: Place) -> Option<Place> {
        let mut ways = Vec::new();
        for group in branches.chunk_by(|one, other| begins_with_words(one) && begins_with_words(other)) {
            let mut words = Vec::new();
            for branch in group {
                let Some((heads, rest)) = heads(branch) else { break };
                let behind = rest.iter().rev().try_fold(next, |next, part| self.write(part, next))?;
                words.extend(heads.into_iter().map(|head| (head, behind)));
            }
            ways.push(if words.is_empty() { self.write(group.first()?, next)? } else { self.words(&words)? });
        }
        self.fork(&ways)
    }

    fn fork(&mut self, ways: &[Place]) -> Option<Place> {
        if let [way] = ways {
            return Some(*way);
        }
        let from = u32::try_from(self.ways.len()).ok()?;
        let ways: Vec<Way> = ways.iter().map(|way| self.way(*way)).collect();
        self.ways.extend(ways);
        self.add(Step::Fork { from, to: u32::try_from(self.ways.len()).ok()? })
    }

    /// One of some characters that are written in several bytes.
    fn characters(&mut self, class: &Class, next: Place) -> Option<Place> {
        let Class::Unicode(class) = class else { return None };
        let ranges = class.ranges();
        if ranges.iter().map(ClassUnicodeRange::len).sum::<usize>() <= CHARACTERS_MAX {
            let each = ranges.iter().flat_map(|range| range.start()..=range.end());
            let words: Vec<_> = each.map(|character| character.to_string()).collect();
            return self.words(&words.iter().map(|word| (word.as_bytes(), next)).collect::<Vec<_>>());
        }
        let mut ways = Vec::new();
        for sequence in ranges.iter().flat_map(|range| Utf8Sequences::new(range.start(), range.end())) {
            ways.push(sequence.as_slice().iter().rev().try_fold(next, |next, range| {
                let mut set = Set([0; 4]);
                (range.start..=range.end).for_each(|byte| set.add(byte));
                let set = self.set(set)?;
                self.add(Step::Byte { set, next })
            })?);
        }
        self.fork(&ways)
    }

    fn way(&self, place: Place) -> Way {
        Way { place, filter: Filter::of(&self.firsts_of(place)) }
    }

    /// Adds the ways in which a way may begin.
    fn begins(&self, way: Way, begins: &mut Vec<Begin>) -> Option<()> {
        let step = self.steps.get(way.place as usize)?;
        if let Step::Fork { from, to } = step {
            let ways = self.ways.get(*from as usize..*to as usize)?;
            // One that goes round begins with what it goes on with.
            if ways.iter().all(|other| other.place < way.place) {
                return ways.iter().try_for_each(|way| self.begins(*way, begins));
            }
        }
        begins.push(Begin { way, run: self.run_at(step) });
        Some(())
    }

    /// The bytes of which a step needs any number, or one and then any number of a set that holds them.
    fn run_at(&self, step: &Step) -> Option<Set> {
        let set = |set: u16| self.sets.get(usize::from(set)).copied();
        match step {
            Step::Gap { set: all, most: u32::MAX, .. } => set(*all),
            Step::Byte { set: first, next } => match self.steps.get(*next as usize)? {
                Step::Gap { set: all, least: 0, most: u32::MAX, .. } => {
                    let (first, all) = (set(*first)?, set(*all)?);
                    first.bytes().all(|byte| all.holds(byte)).then_some(first)
                }
                _ => None,
            },
            _ => None,
        }
    }

    fn repetition(&mut self, repetition: &Repetition, next: Place) -> Option<Place> {
        let Repetition { min, max, greedy, ref sub } = *repetition;
        let set = match sub.kind() {
            HirKind::Class(class) => one_byte(class),
            HirKind::Literal(literal) => <[u8; 1]>::try_from(&*literal.0).ok().map(|[byte]| {
                let mut set = Set([0; 4]);
                set.add(byte);
                set
            }),
            _ => None,
        };
        if let Some(set) = set {
            let (set, most, filter) = (self.set(set)?, max.unwrap_or(u32::MAX), Filter::of(&self.firsts_of(next)));
            let number = self.gaps;
            self.gaps = number.checked_add(1)?;
            return self.add(Step::Gap { set, number, least: min, most, is_greedy: greedy, filter, next });
        }
        let ways = |body, next| if greedy { [body, next] } else { [next, body] };
        let mut entry = next;
        match max {
            Some(max) => {
                for _ in min..max {
                    let body = self.write(sub, entry)?;
                    entry = self.fork(&ways(body, next))?;
                }
            }
            // What may match nothing would go round without end.
            None if sub.properties().minimum_len().is_none_or(|least| least == 0) => return None,
            None => {
                let from = u32::try_from(self.ways.len()).ok()?;
                self.ways.extend([Way { place: Place::MAX, filter: Filter::ALL }; 2]);
                entry = self.add(Step::Fork { from, to: from + 2 })?;
                let body = self.write(sub, entry)?;
                let ways = ways(body, next).map(|way| self.way(way));
                self.ways.get_mut(from as usize..from as usize + 2)?.copy_from_slice(&ways);
            }
        }
        (0..min).try_fold(entry, |next, _| self.write(sub, next))
    }

    fn set(&mut self, set: Set) -> Option<u16> {
        let at = self.sets.iter().position(|known| *known == set).unwrap_or_else(|| {
            self.sets.push(set);
            self.sets.len() - 1
        });
        u16::try_from(at).ok()
    }

    /// One of some words, and what follows it. Words that begin in different ways do not match at one place, so that preference tells
    /// only those apart that begin alike.
    fn words(&mut self, words: &[(&[u8], Place)]) -> Option<Place> {
        if words.iter().any(|(word, _)| word.is_empty()) || self.words.len() + words.len() > WORDS_MAX {
            return None;
        }
        let filter = Filter::of(&words.iter().map(|(word, _)| word).collect::<Vec<_>>());
        let from = self.words.len();
        for (word, next) in words {
            let (at, len) = (u32::try_from(self.letters.len()).ok()?, u32::try_from(word.len()).ok()?);
            self.words.push(Word { prefix: prefix(word) & filter.mask, at, len, next: *next });
            self.letters.extend_from_slice(word);
        }
        self.words.get_mut(from..)?.sort_by_key(|word| word.prefix);
        let (from, to) = (u32::try_from(from).ok()?, u32::try_from(self.words.len()).ok()?);
        self.add(Step::Words { filter, from, to })
    }

    /// The bytes a match can begin with from a step on; empty where there are too many of them, or no limit.
    fn firsts_of(&self, place: Place) -> Vec<Begun> {
        let may = FIRSTS_STEPS_MAX.min(ALL_FIRSTS_STEPS_MAX.saturating_sub(self.looked.get()));
        let mut firsts = Firsts { all: BTreeSet::new(), steps: may };
        let found = self.firsts(place, Begun::default(), &mut firsts);
        self.looked.set(self.looked.get() + may - firsts.steps);
        found.map_or_else(Vec::new, |()| firsts.all.into_iter().collect())
    }

    /// Adds the beginnings of all matches that begin with some bytes and go on with a step. `None` where they are many, or one may be
    /// anything.
    fn firsts(&self, place: Place, begun: Begun, firsts: &mut Firsts) -> Option<()> {
        firsts.steps = firsts.steps.saturating_sub(1);
        if begun.len >= PREFIX_BYTES || firsts.steps == 0 {
            return firsts.add(begun);
        }
        match self.steps.get(place as usize)? {
            Step::Words { from, to, .. } => {
                for word in self.words.get(*from as usize..*to as usize)? {
                    let letters = self.letters.get(word.at as usize..(word.at + word.len) as usize)?;
                    self.firsts(word.next, begun.and(letters), firsts)?;
                }
            }
            Step::Byte { set, next } => match self.few(*set) {
                Some(set) => set.bytes().try_for_each(|byte| self.firsts(*next, begun.and(&[byte]), firsts))?,
                None => firsts.add(begun)?,
            },
            Step::Look { next, .. } => self.firsts(*next, begun, firsts)?,
            Step::Gap { set, least, most, next, .. } => match self.few(*set) {
                Some(set) => {
                    if *least == 0 {
                        self.firsts(*next, begun, firsts)?;
                    }
                    for byte in set.bytes() {
                        let begun = begun.and(&[byte]);
                        if *most == 1 { self.firsts(*next, begun, firsts) } else { firsts.add(begun) }?;
                    }
                }
                None => firsts.add(begun)?,
            },
            Step::Fork { from, to } => {
                for way in self.ways.get(*from as usize..*to as usize)? {
                    // A way of a loop that is not written yet, or one that comes back.
                    if way.place >= place { firsts.add(begun) } else { self.firsts(way.place, begun, firsts) }?;
                }
            }
            Step::Done => firsts.add(begun)?,
        }
        Some(())
    }

    /// A set that holds few bytes.
    fn few(&self, set: u16) -> Option<Set> {
        self.sets.get(usize::from(set)).copied().filter(|set| set.len() <= FIRST_BYTES_MAX)
    }
}

/// The bytes of a class whose characters all have one.
fn one_byte(class: &Class) -> Option<Set> {
    match class {
        Class::Bytes(class) => Some(Set::of(class)),
        Class::Unicode(class) => class.to_byte_class().as_ref().map(Set::of),
    }
}

/// The words of which one stands at the beginning of what a part matches, and the parts behind it. `None` where there are none, or some
/// of them are so short that all others would be found by as few bytes.
fn heads(hir: &Hir) -> Option<(Vec<&[u8]>, &[Hir])> {
    let (heads, rest) = match hir.kind() {
        HirKind::Concat(parts) => parts.split_first().map(|(first, rest)| (words(first), rest))?,
        _ => (words(hir), [].as_slice()),
    };
    heads.filter(|heads| heads.iter().all(|head| head.len() >= HEAD_MIN)).map(|heads| (heads, rest))
}

fn begins_with_words(hir: &Hir) -> bool {
    heads(hir).is_some()
}

/// All that a part matches where that is one of some words that are written out.
fn words(hir: &Hir) -> Option<Vec<&[u8]>> {
    match hir.kind() {
        HirKind::Literal(literal) => Some(vec![&literal.0]),
        HirKind::Capture(capture) => words(&capture.sub),
        HirKind::Alternation(branches) => {
            let words: Option<Vec<_>> = branches.iter().map(words).collect();
            Some(words?.concat())
        }
        _ => None,
    }
}

/// What a search can tell of the bytes around a place.
const fn is_known(look: Look) -> bool {
    use Look::{End, EndLF, Start, StartLF, WordAscii, WordAsciiNegate};
    matches!(look, Start | End | StartLF | EndLF | WordAscii | WordAsciiNegate)
}
