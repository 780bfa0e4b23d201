//! Where the values of a call stand in the conversation: one pass over each side.

use aho_corasick::{AhoCorasick, MatchKind};

use super::call::{Asked, Kind, Needle};

/// Places of one value that are kept.
const PLACES_MAX: usize = 8;
/// Matches that are looked at on one side; what stands behind them was named often enough.
const MATCHES_MAX: usize = 1 << 16;
/// How close to each other values stand that are named together, in bytes.
const NEAR_BYTES: usize = 160;

/// Of each value whether ours and theirs hold it, and where theirs do.
#[derive(Debug, Default)]
pub(super) struct Places {
    pub(super) in_ours: Vec<bool>,
    pub(super) in_theirs: Vec<Vec<usize>>,
}

impl Places {
    pub(super) fn of(asked: &Asked, ours: &str, theirs: &str) -> Self {
        let mut places =
            Self { in_ours: vec![false; asked.needles.len()], in_theirs: vec![Vec::new(); asked.needles.len()] };
        let patterns = asked.needles.iter().map(|needle| needle.text.as_str());
        let Ok(automaton) = AhoCorasick::builder().match_kind(MatchKind::Standard).build(patterns) else {
            return places;
        };
        let mut seek = |text: &str, note: &mut dyn FnMut(&mut Self, usize, usize)| {
            for found in automaton.find_overlapping_iter(text).take(MATCHES_MAX) {
                let at = found.pattern().as_usize();
                let fits = asked.needles.get(at).is_some_and(|needle| stands_alone(needle, text, found.start()));
                if fits {
                    note(&mut places, at, found.start());
                }
            }
        };
        seek(ours, &mut |places, at, _| {
            if let Some(known) = places.in_ours.get_mut(at) {
                *known = true;
            }
        });
        seek(theirs, &mut |places, at, start| {
            if let Some(known) = places.in_theirs.get_mut(at).filter(|known| known.len() < PLACES_MAX) {
                known.push(start);
            }
        });
        places
    }

    /// Whether tools alone named it.
    pub(super) fn is_foreign(&self, at: usize) -> bool {
        !self.in_ours.get(at).copied().unwrap_or_default() && self.in_theirs.get(at).is_some_and(|at| !at.is_empty())
    }

    /// Where most of what tools alone named stands together; values count more than words.
    pub(super) fn densest(&self, asked: &Asked) -> Option<usize> {
        let mut all: Vec<(usize, usize)> = Vec::new();
        for (at, needle) in asked.needles.iter().enumerate().filter(|(at, _)| self.is_foreign(*at)) {
            let weight = match needle.kind {
                Kind::Mail | Kind::Host => 4,
                Kind::Handle | Kind::Path | Kind::Code => 2,
                Kind::Number | Kind::Word => 1,
                Kind::Whole => 0,
            };
            all.extend(self.in_theirs.get(at).into_iter().flatten().map(|place| (*place, weight)));
        }
        all.sort_unstable();
        let (mut from, mut sum, mut best) = (0, 0, None);
        for &(place, weight) in &all {
            sum += weight;
            while let Some(&(first, less)) = all.get(from).filter(|(first, _)| place - first > NEAR_BYTES) {
                debug_assert!(first <= place);
                (from, sum) = (from + 1, sum - less);
            }
            if best.is_none_or(|(most, _)| sum > most) {
                best = Some((sum, all.get(from).map_or(place, |(first, _)| usize::midpoint(*first, place))));
            }
        }
        best.filter(|(sum, _)| *sum > 0).map(|(_, at)| at)
    }
}

/// Whether what was found is no piece of something longer.
fn stands_alone(needle: &Needle, text: &str, start: usize) -> bool {
    let end = start + needle.text.len();
    let letter_before =
        text.get(..start).and_then(|before| before.chars().next_back()).is_some_and(char::is_alphanumeric);
    let letter_behind = text.get(end..).and_then(|behind| behind.chars().next()).is_some_and(char::is_alphanumeric);
    // Scripts that part no words are found anywhere.
    let starts = !letter_before || !needle.text.is_ascii();
    let ends = !letter_behind || !needle.text.is_ascii() || needle.is_stem;
    match needle.kind {
        Kind::Host => starts || needle.text.is_ascii() && !letter_behind,
        _ => starts && ends,
    }
}
