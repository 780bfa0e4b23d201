//! A program finds what the automaton of the same pattern finds, in as many steps as it says.

use std::ops::Range;

use proptest::prelude::*;
use regex_automata::meta::Regex;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};

use super::search::OutOfSteps;
use super::*;
use crate::rules::simple::{small_letters, together};

/// Steps that no search of a test needs.
const MANY: usize = 1_000_000;

/// The pattern as it is searched in small letters: as an automaton, and as a program if there is one.
fn both(pattern: &str) -> (Regex, Option<Program>) {
    let config = syntax::Config::new().unicode(false).utf8(false).case_insensitive(true);
    let options = Regex::config().utf8_empty(false);
    let regex = Regex::builder().configure(options).syntax(config).build(pattern).unwrap();
    let hir = syntax::parse_with(pattern, &config).unwrap();
    (regex, Program::of(&together(&small_letters(&hir), true)))
}

fn program(pattern: &str) -> Program {
    both(pattern).1.unwrap()
}

/// What a program finds in a part of a text, and the steps that it took.
fn find(
    program: &Program,
    text: &str,
    part: Range<usize>,
    is_anchored: bool,
    scratch: &mut SearchScratch,
) -> (Option<Range<usize>>, usize) {
    let bytes = [text.as_bytes(), &PADDING].concat();
    let mut steps = MANY;
    let found = program.find(&bytes, part, is_anchored, &mut steps, scratch).unwrap();
    (found, MANY - steps)
}

/// Small patterns over a small alphabet: words, gaps, edges, groups and what is repeated, greedy and not.
fn pattern() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        "[abc]{1,4}",
        Just("[^ab]{1,2}".to_owned()),
        Just("[^c]{0,3}?".to_owned()),
        Just("[^\\n]*?".to_owned()),
        Just(r"\w+".to_owned()),
        Just(r"\b".to_owned()),
        Just("(?m:^)".to_owned()),
        Just("(?m:$)".to_owned()),
        Just("[a-c]".to_owned()),
        Just("(?:ä|ö|ß)".to_owned()),
        Just("(?u:[α-ω])".to_owned()),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(|all| all.concat()),
            prop::collection::vec(inner.clone(), 1..5).prop_map(|all| format!("(?:{})", all.join("|"))),
            (inner.clone(), any::<bool>())
                .prop_map(|(one, lazy)| format!("(?:{one}){}", if lazy { "??" } else { "?" })),
            (inner.clone(), 0..3u32, 0..3u32, any::<bool>()).prop_map(|(one, least, more, lazy)| format!(
                "({one}){{{least},{}}}{}",
                least + more,
                if lazy { "?" } else { "" }
            )),
            (inner, any::<bool>()).prop_map(|(one, lazy)| format!("(?:{one}){}", if lazy { "+?" } else { "*" })),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn finds_what_the_automaton_finds(
        pattern in pattern(), text in "[abcxα ß\n]{0,80}", from in 0usize..8, short in 0usize..8, is_anchored in any::<bool>(),
    ) {
        let (regex, Some(program)) = both(&pattern) else { return Ok(()) };
        let to = text.len().saturating_sub(short);
        let from = from.min(to);
        let anchored = if is_anchored { Anchored::Yes } else { Anchored::No };
        let expected = regex.search(&Input::new(&text).range(from..to).anchored(anchored)).map(|found| found.range());
        let mut scratch = SearchScratch::default();
        for _ in 0..2 {
            let (found, _) = find(&program, &text, from..to, is_anchored, &mut scratch);
            prop_assert_eq!(&found, &expected);
        }
    }
}

#[test]
fn rules_match_the_same_in_their_examples() {
    let loaded = crate::rules::builtin().unwrap();
    let mut scratch = SearchScratch::default();
    for (rule, about) in loaded.rules.iter().zip(&loaded.texts) {
        let (Some(program), Some(regex)) = (rule.pattern.program(), rule.pattern.automaton()) else { continue };
        let examples = about.hits.iter().chain(&about.misses);
        for text in examples.chain([&about.hits.join(" "), &rule.literals.join(" ")]) {
            let text = if rule.pattern.wants_small_letters() { text.to_ascii_lowercase() } else { text.clone() };
            let expected = regex.find(&text).map(|found| found.range());
            assert_eq!(find(program, &text, 0..text.len(), false, &mut scratch).0, expected, "{}: {text}", rule.id);
        }
    }
}

/// Patterns whose automaton makes many states, or that a search that forgets would try in every way.
#[test]
fn steps_grow_with_the_text_and_not_faster() {
    let patterns = [
        r"(?:no|not)[^.]{0,48}?(?:rule|limit)[^.]{0,36}?(?:drop|forget)",
        r"(?:a|aa)(?:\w+ ){0,5}(?:x|xx)y",
        r"(?:(?:no |rule ?)+ ?)+z",
        r"\w+(?: \w+)*@\w+",
        r"[^x][^\n]*?(?:rule|limit)[^\n]*?zz",
    ];
    let mut scratch = SearchScratch::default();
    for pattern in patterns {
        let program = program(pattern);
        for piece in ["no rule ", "aaaa aa ", "limit rule no not ", "xx no "] {
            let mut steps = |pieces: usize| {
                let text = piece.repeat(pieces);
                let (found, steps) = find(&program, &text, 0..text.len(), false, &mut scratch);
                assert_eq!(found, None, "{pattern} in {text}");
                steps
            };
            let (short, long) = (steps(40), steps(160));
            assert!(long <= short * 5 + 100, "{pattern} in {piece}: {short} and {long}");
        }
    }
}

#[test]
fn a_search_ends_when_its_steps_are_taken_and_leaves_nothing_behind() {
    let program = program(r"(?:no|not)[^.]{0,48}?(?:rule|limit)[^.]{0,36}?(?:drop|forget)");
    let bytes = ["no rule ".repeat(40).as_bytes(), b"forget", &PADDING].concat();
    let (mut scratch, part) = (SearchScratch::default(), 0..bytes.len() - PADDING.len());
    let mut steps = 50;
    let ended = program.find(&bytes, part.clone(), false, &mut steps, &mut scratch);
    assert_eq!((ended, steps), (Err(OutOfSteps), 0));
    steps = MANY;
    let found = program.find(&bytes, part, false, &mut steps, &mut scratch);
    assert_eq!(found, Ok(Some(240..326)));
}

#[test]
fn what_no_program_can_be_made_of_is_refused() {
    let long = format!("(?:{}){{100}}", r"(?:\w+ ){0,30}[a-c]+x?");
    for pattern in ["(?:a?)*b", &*long] {
        assert!(both(pattern).1.is_none(), "{pattern}");
    }
}
