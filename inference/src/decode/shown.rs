//! What was decoded of one text until now. Windows around markers overlap, so that what is encoded stands in many of them; two ways of
//! decoding may lead to the same words; and one code may stand in a text a hundred times. Each is read once.
//!
//! Invariant: what is not read again says nothing that was not said of the same place, or is said of this one too. Rules pass by what stood
//! in plain sight where words come from; in a window much of them may have, in a run nothing, so that only what a run says is known of
//! another place.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::ops::Range;

use highway::{HighwayHash as _, HighwayHasher, Key};

/// A place in the whole text.
pub(crate) type Span = (usize, usize);

/// Where encoded words stand in the whole text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) span: Span,
    /// Nothing else stands there: it is a run, and no window that is deciphered.
    pub(crate) is_run: bool,
}

/// Names decoded words: nobody can write others of the same name who does not know it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NameKey([u64; 4]);

/// How words were come by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Way {
    /// Where they stand in the whole text.
    pub(crate) place: Place,
    /// Encodings that may still be undone in them.
    pub(crate) deeper: usize,
    /// Ciphers, a bit each, that are not looked for in them.
    pub(crate) known: u32,
}

/// How words were come by that were read, and what was said of them: as a part of all that was said of the text.
#[derive(Debug)]
struct Read {
    way: Way,
    said: Range<usize>,
}

/// What was decoded of one text.
#[derive(Debug)]
pub(crate) struct Shown {
    key: NameKey,
    read: HashMap<Name, Read>,
}

/// Names words.
pub(crate) type Name = [u64; 2];

/// What is to be done with words.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Read(Name),
    /// This was said of the same words, of another place.
    Say(Range<usize>),
    Nothing,
}

// === impl NameKey ===

impl NameKey {
    pub(crate) fn random() -> Self {
        // The keys of the standard library's hash maps are the system's random numbers.
        Self([(); 4].map(|()| RandomState::new().build_hasher().finish()))
    }
}

// === impl Way ===

impl Way {
    /// Whether all is read of words come by like this that would be read of them in another way.
    fn reads_all_of(&self, other: &Self) -> bool {
        let is_looked_at_alike = self.place.is_run || self.place == other.place;
        is_looked_at_alike && self.deeper >= other.deeper && self.known & !other.known == 0
    }

    /// Whether the places have something in common: of what is said of them, one is kept.
    const fn meets(&self, other: &Self) -> bool {
        let (one, another) = (self.place.span, other.place.span);
        one.0 < another.1 && another.0 < one.1
    }
}

// === impl Shown ===

impl Shown {
    pub(crate) fn new(key: NameKey) -> Self {
        Self { key, read: HashMap::new() }
    }

    /// What is to be done with words that were come by in a way. `said`: how much was said until now.
    pub(crate) fn next(&mut self, words: &[u8], way: Way, said: usize) -> Next {
        let name = HighwayHasher::new(Key(self.key.0)).hash128(words);
        match self.read.entry(name) {
            Entry::Vacant(free) => {
                free.insert(Read { way, said: said..said });
            }
            Entry::Occupied(read) if read.get().way.reads_all_of(&way) => {
                let read = read.get();
                return if read.way.meets(&way) { Next::Nothing } else { Next::Say(read.said.clone()) };
            }
            Entry::Occupied(mut read) => {
                if way.reads_all_of(&read.get().way) {
                    read.insert(Read { way, said: said..said });
                }
            }
        }
        Next::Read(name)
    }

    /// Takes note of how much was said once words are read.
    pub(crate) fn end(&mut self, name: Name, way: Way, said: usize) {
        if let Some(read) = self.read.get_mut(&name).filter(|read| read.way == way) {
            read.said.end = said;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn run(span: Span) -> Place {
        Place { span, is_run: true }
    }

    #[test]
    fn what_a_window_says_is_not_known_of_another_place() {
        let mut shown = Shown::new(NameKey::random());
        let mut next = |place| shown.next(b"words", Way { place, deeper: 1, known: 0 }, 0);
        let [window, other] = [(0, 9), (5, 20)].map(|span| Place { span, is_run: false });
        assert!(matches!(next(window), Next::Read(_)));
        assert_eq!(next(window), Next::Nothing);
        assert!(matches!(next(other), Next::Read(_)));
        assert!(matches!(next(run((30, 39))), Next::Read(_)));
        assert_eq!(next(other), Next::Say(0..0), "a run says all");
    }

    #[test]
    fn words_are_read_again_where_more_is_read_of_them() {
        let mut shown = Shown::new(NameKey::random());
        let way = |span, deeper, known| Way { place: run(span), deeper, known };
        let mut next = |way: Way| shown.next(b"words", way, 0);
        assert!(matches!(next(way((0, 9), 1, 0b01)), Next::Read(_)));
        assert_eq!(
            next(way((5, 20), 1, 0b11)),
            Next::Nothing,
            "the same place, and one more cipher that is not looked for"
        );
        assert_eq!(next(way((9, 20), 0, 0b01)), Next::Say(0..0), "another place");
        assert!(matches!(next(way((0, 9), 1, 0b10)), Next::Read(_)), "another cipher is looked for");
        assert!(matches!(next(way((0, 9), 2, 0b11)), Next::Read(_)), "more is decoded in them");
        assert_eq!(next(way((0, 9), 1, 0b01)), Next::Nothing, "the first way is still known");
        assert!(matches!(next(way((0, 9), 2, 0)), Next::Read(_)));
        assert_eq!(next(way((0, 9), 2, 0b11)), Next::Nothing, "it was known by the widest way");
    }

    #[test]
    fn what_is_said_again_is_all_that_was_said_of_the_words_and_nothing_else() {
        let mut shown = Shown::new(NameKey::random());
        let [here, there] = [(0, 9), (30, 39)].map(|span| Way { place: run(span), deeper: 2, known: 0 });
        let Next::Read(outer) = shown.next(b"outer", here, 4) else { panic!("they are new") };
        let deeper = Way { deeper: 1, ..here };
        let Next::Read(inner) = shown.next(b"inner", deeper, 5) else { panic!("they are new") };
        shown.end(inner, deeper, 6);
        shown.end(outer, here, 7);
        assert_eq!(shown.next(b"outer", there, 9), Next::Say(4..7));
        assert_eq!(shown.next(b"inner", Way { deeper: 1, ..there }, 9), Next::Say(5..6));
    }
}
