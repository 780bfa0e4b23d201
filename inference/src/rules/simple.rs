//! A pattern rewritten so that its automaton is small, with the same matches.
//!
//! Where case does not count, texts are searched with small letters only ([`small_letters`]), so that words are literals and no rows of
//! classes; and words that are alternatives stand side by side ([`together`]), where the automaton keeps them as one tree instead of as
//! many places. Invariant: each rewritten pattern matches where the one before does, in the same order of preference.

use regex_syntax::hir::{Capture, Class, ClassBytes, ClassBytesRange, ClassUnicode, ClassUnicodeRange, Hir, HirKind};

/// Most words that one part of a pattern is written out as.
const WORDS_MAX: usize = 24;
/// Most bytes of a class that is written out.
const CLASS_MAX: usize = 3;

/// The pattern for texts without capital letters, as one that does not tell them from small ones.
pub(super) fn small_letters(hir: &Hir) -> Hir {
    match hir.kind() {
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(literal) => Hir::literal(literal.0.to_ascii_lowercase()),
        HirKind::Class(class) => small_letters_of(class).map_or_else(|| hir.clone(), Hir::class),
        HirKind::Look(look) => Hir::look(*look),
        HirKind::Repetition(repetition) => Hir::repetition(repetition.with(small_letters(&repetition.sub))),
        HirKind::Capture(capture) => {
            Hir::capture(Capture { sub: Box::new(small_letters(&capture.sub)), ..capture.clone() })
        }
        HirKind::Concat(parts) => Hir::concat(parts.iter().map(small_letters).collect()),
        HirKind::Alternation(branches) => Hir::alternation(branches.iter().map(small_letters).collect()),
    }
}

/// A class with small letters in place of capital ones; `None` where it has none of those. Of characters that look like a letter none is
/// added: without regard to case means that of ASCII, unless a pattern asks for more, and then it has them.
fn small_letters_of(class: &Class) -> Option<Class> {
    match class {
        Class::Bytes(class) => {
            let capitals = ClassBytes::new([ClassBytesRange::new(b'A', b'Z')]);
            let mut small = capitals.clone();
            small.intersect(class);
            let ranges =
                small.ranges().iter().map(|range| [range.start(), range.end()].map(|c| c.to_ascii_lowercase()));
            let mut all = ClassBytes::new(ranges.map(|[from, to]| ClassBytesRange::new(from, to)));
            all.union(class);
            all.difference(&capitals);
            (!small.ranges().is_empty()).then_some(Class::Bytes(all))
        }
        Class::Unicode(class) => {
            let capitals = ClassUnicode::new([ClassUnicodeRange::new('A', 'Z')]);
            let mut small = capitals.clone();
            small.intersect(class);
            let ranges =
                small.ranges().iter().map(|range| [range.start(), range.end()].map(|c| c.to_ascii_lowercase()));
            let mut all = ClassUnicode::new(ranges.map(|[from, to]| ClassUnicodeRange::new(from, to)));
            all.union(class);
            all.difference(&capitals);
            (!small.ranges().is_empty()).then_some(Class::Unicode(all))
        }
    }
}

/// The pattern with alternatives that are words written out and brought together. `is_free`: nobody asks for its groups, so that words
/// can be kept apart from other alternatives by one.
pub(super) fn together(hir: &Hir, is_free: bool) -> Hir {
    if let Some(words) = words(hir, is_free).filter(|words| words.len() > 1 && !words.iter().any(Vec::is_empty)) {
        return alternatives(words);
    }
    match hir.kind() {
        HirKind::Repetition(repetition) => Hir::repetition(repetition.with(together(&repetition.sub, is_free))),
        HirKind::Capture(capture) if is_free => together(&capture.sub, is_free),
        HirKind::Capture(capture) => {
            Hir::capture(Capture { sub: Box::new(together(&capture.sub, is_free)), ..capture.clone() })
        }
        HirKind::Concat(parts) => Hir::concat(parts.iter().map(|part| together(part, is_free)).collect()),
        HirKind::Alternation(branches) => {
            let (mut all, mut side_by_side) = (Vec::new(), Vec::new());
            for branch in branches {
                match words(branch, is_free).filter(|words| is_free && !words.iter().any(Vec::is_empty)) {
                    Some(words) => side_by_side.extend(words),
                    None => {
                        all.extend(apart(std::mem::take(&mut side_by_side)));
                        all.push(together(branch, is_free));
                    }
                }
            }
            all.extend(apart(side_by_side));
            Hir::alternation(all)
        }
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) | HirKind::Look(_) => hir.clone(),
    }
}

fn alternatives(words: Vec<Vec<u8>>) -> Hir {
    Hir::alternation(words.into_iter().map(Hir::literal).collect())
}

/// Words that are some of several alternatives: a group keeps them from being mixed with the others.
fn apart(words: Vec<Vec<u8>>) -> Option<Hir> {
    match words.len() {
        0 => None,
        1 => Some(alternatives(words)),
        _ => Some(Hir::capture(Capture { index: 1, name: None, sub: Box::new(alternatives(words)) })),
    }
}

/// All that a pattern matches, what is preferred first. `None` where that is much.
fn words(hir: &Hir, is_free: bool) -> Option<Vec<Vec<u8>>> {
    let all = match hir.kind() {
        HirKind::Empty => vec![Vec::new()],
        HirKind::Literal(literal) => vec![literal.0.to_vec()],
        HirKind::Class(Class::Bytes(class)) => {
            let bytes = class.ranges().iter().map(|range| range.len()).sum::<usize>();
            let each = || class.ranges().iter().flat_map(|range| range.start()..=range.end());
            (bytes <= CLASS_MAX).then(|| each().map(|byte| vec![byte]).collect())?
        }
        HirKind::Repetition(repetition) if (repetition.min, repetition.max) == (0, Some(1)) => {
            let mut all = words(&repetition.sub, is_free)?;
            let at = if repetition.greedy { all.len() } else { 0 };
            all.insert(at, Vec::new());
            all
        }
        HirKind::Capture(capture) if is_free => words(&capture.sub, is_free)?,
        HirKind::Concat(parts) => {
            let mut all = vec![Vec::new()];
            for part in parts {
                let next = words(part, is_free)?;
                if all.len() * next.len() > WORDS_MAX {
                    return None;
                }
                all = all.iter().flat_map(|begun| next.iter().map(move |end| [&**begun, end].concat())).collect();
            }
            all
        }
        HirKind::Alternation(branches) => {
            let each: Option<Vec<_>> = branches.iter().map(|branch| words(branch, is_free)).collect();
            each?.concat()
        }
        _ => return None,
    };
    Some(all)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex_automata::Span;
    use regex_automata::meta::Regex;
    use regex_automata::nfa::thompson::WhichCaptures;
    use regex_automata::util::syntax;

    use super::*;

    /// The pattern as it is written, and as it is searched in small letters.
    fn both(pattern: &str) -> (Regex, Regex) {
        let config = syntax::Config::new().unicode(false).utf8(false).case_insensitive(true);
        let plain = Regex::builder().syntax(config).build(pattern).unwrap();
        let hir = syntax::parse_with(pattern, &config).unwrap();
        let is_free = plain.captures_len() == 1;
        let which = if is_free { WhichCaptures::Implicit } else { WhichCaptures::All };
        let options = Regex::config().which_captures(which);
        let simple = Regex::builder().configure(options).build_from_hir(&together(&small_letters(&hir), is_free));
        (plain, simple.unwrap())
    }

    fn match_and_group(regex: &Regex, text: &[u8]) -> Option<(Span, Option<Span>)> {
        let mut captures = regex.create_captures();
        regex.search_captures(&text.into(), &mut captures);
        let whole = captures.get_match()?;
        Some((whole.span(), captures.get_group(1)))
    }

    /// Small patterns over a small alphabet, with alternatives that begin, end or hold each other.
    fn pattern() -> impl Strategy<Value = String> {
        let leaf =
            prop_oneof!["[abC]{1,3}", Just("[^c]{0,3}?".to_owned()), Just(r"\b".to_owned()), Just("[a-c]".to_owned())];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 1..4).prop_map(|all| all.concat()),
                prop::collection::vec(inner.clone(), 1..5).prop_map(|all| format!("(?:{})", all.join("|"))),
                (inner.clone(), any::<bool>())
                    .prop_map(|(one, lazy)| format!("(?:{one}){}", if lazy { "??" } else { "?" })),
            ]
        })
    }

    proptest! {
        #[test]
        fn matches_where_the_pattern_does(pattern in pattern(), text in "[abcABC ]{0,24}", is_grouped in any::<bool>()) {
            let pattern = if is_grouped { format!("(?:a|b)?({pattern})c?") } else { pattern };
            let (plain, simple) = both(&pattern);
            let small = text.to_ascii_lowercase();
            prop_assert_eq!(match_and_group(&plain, text.as_bytes()), match_and_group(&simple, small.as_bytes()));
        }
    }

    #[test]
    fn rules_match_the_same_in_their_examples() {
        let loaded = crate::rules::builtin().unwrap();
        let rules = loaded.rules.iter().zip(&loaded.texts);
        for (rule, about) in rules.filter(|(rule, _)| !rule.exact_case) {
            let (plain, simple) = both(&about.pattern);
            let examples = about.hits.iter().chain(&about.misses);
            for text in examples.chain([&about.hits.join(" "), &rule.literals.join(" ")]) {
                let small = text.to_ascii_lowercase();
                let found = match_and_group(&simple, small.as_bytes());
                assert_eq!(match_and_group(&plain, text.as_bytes()), found, "{}: {text}", rule.id);
            }
        }
    }
}
