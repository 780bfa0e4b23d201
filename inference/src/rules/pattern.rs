//! A rule's pattern, compiled when a text first needs it.
//!
//! Nearly all patterns are searched as programs, which all threads share. An automaton finds the group of a pattern that has one, within
//! what the program matched, and searches those patterns of operators that no program can be made of. Most of either no text ever asks
//! for. So each automaton is compiled, for good, when one of its literals and its words first stand in a text: once in a process. Programs are
//! made as rules are read, but for a few, which a gateway makes soon after its start ([`Pattern::prepare`]), on a thread that no call waits
//! for. A pattern of an
//! operator is compiled as an automaton when it is read too, to see that it can be and how large it is; those of this build are compiled
//! by a test, which takes a third of the time off a start.

use std::sync::OnceLock;

use regex_automata::meta::{BuildError, Config, Regex};
use regex_automata::nfa::thompson::WhichCaptures;
use regex_automata::util::syntax;
use regex_syntax::hir::Hir;

use super::program::Program;
use super::simple::{small_letters, together};

/// Largest compiled pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 384 * 1024;
/// Largest lazy DFA a thread may make of a pattern, in bytes. One that does not fit is made from scratch over and over.
const CACHE_BYTES_MAX: usize = 2048 * 1024;
/// From this size on it is emptied after a search.
pub(crate) const CACHE_KEEP_MAX: usize = 512 * 1024;

/// A pattern that can be compiled.
#[derive(Debug)]
pub(crate) struct Pattern {
    text: Box<str>,
    exact_case: bool,
    small_letters: bool,
    program: OnceLock<(Option<Box<Program>>, HasGroup)>,
    automaton: OnceLock<Option<Regex>>,
}

/// Whether it is a group of a pattern that counts.
type HasGroup = bool;

impl Pattern {
    /// A pattern without an automaton. `read`: what [`read_as_written`] makes of it, to find its words; the program is made of that at once
    /// where it serves, since reading takes a third of the time of a start, and what is kept until later takes several megabytes.
    pub(super) fn new(text: &str, exact_case: bool, read: Option<&Hir>) -> Self {
        let small_letters = !exact_case && !tells_case(text);
        let serves = exact_case || (small_letters && folds_when_read(text));
        let made = read.filter(|_| serves).map(|read| made_of(read, small_letters));
        let program = made.map_or_else(OnceLock::new, OnceLock::from);
        Self { text: text.into(), exact_case, small_letters, program, automaton: OnceLock::new() }
    }

    /// What it takes once it is compiled as an automaton, in bytes; an error where it cannot be.
    pub(super) fn measure(&self) -> Result<usize, Box<BuildError>> {
        Ok(self.compile()?.memory_usage())
    }

    /// The program of the pattern, made by now. `None` where there is none.
    pub(crate) fn program(&self) -> Option<&Program> {
        self.made().0.as_deref()
    }

    /// The automaton of the pattern, compiled by now. `None` where that cannot be done: [`Self::measure`] says why.
    pub(crate) fn automaton(&self) -> Option<&Regex> {
        self.automaton.get_or_init(|| self.compile().ok()).as_ref()
    }

    /// Makes the program, which the first text that needs it would wait for. Automata, of which few texts ask for any, take several times
    /// its memory.
    pub(crate) fn prepare(&self) {
        self.made();
    }

    /// Whether it is to be searched in texts without capital letters.
    pub(crate) const fn wants_small_letters(&self) -> bool {
        self.small_letters
    }

    /// Whether it is a group of it that counts.
    pub(crate) fn has_group(&self) -> HasGroup {
        self.made().1
    }

    fn made(&self) -> &(Option<Box<Program>>, HasGroup) {
        self.program.get_or_init(|| match syntax::parse_with(&self.text, &self.syntax()) {
            Ok(read) => made_of(&read, self.small_letters),
            Err(_) => (None, false),
        })
    }

    fn syntax(&self) -> syntax::Config {
        syntax::Config::new().unicode(false).utf8(false).case_insensitive(!self.exact_case)
    }

    fn compile(&self) -> Result<Regex, Box<BuildError>> {
        let config = self.syntax();
        let Ok(hir) = syntax::parse_with(&self.text, &config) else { return plain(&self.text, config) };
        let hir = if self.small_letters { small_letters(&hir) } else { hir };
        let has_group = has_group(&hir);
        let which = if has_group { WhichCaptures::All } else { WhichCaptures::Implicit };
        Regex::builder()
            .configure(options().which_captures(which))
            .build_from_hir(&together(&hir, !has_group))
            .map_err(Box::new)
    }
}

#[cfg(test)]
impl Pattern {
    /// Whether it matches somewhere in a text, by the automaton.
    pub(super) fn is_match(&self, text: &str) -> bool {
        self.compile().unwrap().is_match(text)
    }

    /// The pattern as an automaton that can be followed byte by byte.
    pub(super) fn dfa(&self) -> Result<regex_automata::hybrid::dfa::DFA, Box<regex_automata::hybrid::BuildError>> {
        regex_automata::hybrid::dfa::DFA::builder()
            .syntax(self.syntax())
            .configure(regex_automata::hybrid::dfa::Config::new().cache_capacity(CACHE_BYTES_MAX * 2))
            .thompson(regex_automata::nfa::thompson::Config::new().utf8(false))
            .build(&self.text)
            .map_err(Box::new)
    }
}

/// The program of a pattern that was read, to be searched in small letters or in all.
fn made_of(read: &Hir, in_small_letters: bool) -> (Option<Box<Program>>, HasGroup) {
    let small = in_small_letters.then(|| small_letters(read));
    let hir = small.as_ref().unwrap_or(read);
    (Program::of(&together(hir, true)).map(Box::new), has_group(hir))
}

/// A pattern with all letters as they are written. `None` where that is no pattern.
pub(super) fn read_as_written(pattern: &str) -> Option<Hir> {
    syntax::parse_with(pattern, &syntax::Config::new().unicode(false).utf8(false)).ok()
}

/// Whether a pattern that was read as it is written matches the same small letters as one that was read without regard to case: that is
/// so unless a class leaves out some letters, which would leave out one case of them, or some flags or operations are in it.
fn folds_when_read(pattern: &str) -> bool {
    pattern.split("(?").skip(1).all(|rest| rest.starts_with([':', 'P', '<']))
        && !["&&", "--", "~~"].iter().any(|operation| pattern.contains(operation))
        && !pattern.split("[^").skip(1).any(may_leave_out_letters)
}

/// Whether a class may leave out letters of one case only, by what stands behind its `[^`.
fn may_leave_out_letters(class: &str) -> bool {
    let mut escaped = false;
    for (at, c) in class.char_indices() {
        match c {
            'x' | 'u' | 'U' if escaped => return true,
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ']' if at > 0 => return false,
            '[' | '-' => return true,
            _ if c.is_ascii_alphabetic() => return true,
            _ => {}
        }
    }
    true
}

/// Whether a part of a pattern tells small letters from capital ones though the whole does not.
fn tells_case(pattern: &str) -> bool {
    pattern.split("(?").skip(1).any(|rest| {
        let flags = rest.split(|c: char| c != '-' && !c.is_ascii_alphabetic()).next().unwrap_or_default();
        flags.split_once('-').is_some_and(|(_, off)| off.contains('i'))
    })
}

fn has_group(hir: &Hir) -> HasGroup {
    hir.properties().explicit_captures_len() > 0
}

/// The pattern as it is written.
fn plain(text: &str, config: syntax::Config) -> Result<Regex, Box<BuildError>> {
    Regex::builder().configure(options()).syntax(config).build(text).map_err(Box::new)
}

fn options() -> Config {
    Regex::config()
        .nfa_size_limit(Some(PATTERN_BYTES_MAX))
        .hybrid_cache_capacity(CACHE_BYTES_MAX)
        .onepass(false)
        // Its own search for literals: a window is short, and holds the words already. Preparing it would take a third of the time of
        // a start.
        .auto_prefilter(false)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::program::{PADDING, SearchScratch};
    use super::*;

    /// The pattern for small letters: of what was read as it is written, and of what is read anew. `None` where the first does not serve.
    fn both(text: &str) -> Option<[Hir; 2]> {
        let known = read_as_written(text)?;
        let pattern = Pattern::new(text, false, Some(&known));
        let anew = syntax::parse_with(text, &pattern.syntax()).unwrap();
        (pattern.small_letters && pattern.program.get().is_some())
            .then(|| [small_letters(&known), small_letters(&anew)])
    }

    #[test]
    fn nearly_all_rules_are_read_once_and_find_the_same() {
        let loaded = crate::rules::builtin().unwrap();
        let (mut known, mut all) = (0, 0);
        for (rule, texts) in loaded.rules.iter().zip(&loaded.texts).filter(|(rule, _)| rule.pattern.small_letters) {
            all += 1;
            let Some(read) = both(&rule.pattern.text) else { continue };
            known += 1;
            let programs = read.map(|hir| Program::of(&together(&hir, true)));
            assert_eq!(programs[0].is_some(), programs[1].is_some(), "{}", rule.id);
            for text in texts.hits.iter().chain(&texts.misses) {
                let text = [text.to_ascii_lowercase().as_bytes(), &PADDING].concat();
                let found = programs.each_ref().map(|program| {
                    let (mut steps, part) = (1_000_000, 0..text.len() - PADDING.len());
                    let program = program.as_ref()?;
                    program.find(&text, part, false, &mut steps, &mut SearchScratch::default()).unwrap()
                });
                assert_eq!(found[0], found[1], "{}", rule.id);
            }
        }
        assert!(known * 10 > all * 9, "{known} of {all}");
    }

    #[test]
    fn what_may_leave_out_letters_is_read_anew() {
        for text in ["[^a]", "[^!-Z]", r"[^\x41]", r"[^\]a]", "[^]a]", "(?i-u:a)", "[a-z&&[^b]]", "[^[a]]", "[a-z--b]"]
        {
            assert!(!folds_when_read(text), "{text}");
        }
        for text in [r"[^\s.]*?a", "(?:a|b)", "(?P<name>a)", r"[^\n]b[c-e]", "[^]]a"] {
            assert!(folds_when_read(text), "{text}");
        }
    }

    proptest! {
        /// Whatever is taken for a pattern that need not be read anew is one.
        #[test]
        fn reading_as_written_serves_where_it_is_said_to(
            pattern in r"[aBkZ\[\]^()|*?:.\\swdDSWbx4\-!~&]{1,14}", texts in prop::collection::vec("[abkzdsw4 !~^]{0,8}", 8),
        ) {
            let regexes = both(&pattern).map(|both| both.map(|hir| Regex::builder().build_from_hir(&hir).unwrap()));
            for text in regexes.iter().flat_map(|_| &texts) {
                let found = regexes.as_ref().map(|both| both.each_ref().map(|regex| regex.find(text.as_bytes())));
                prop_assert!(found.as_ref().is_some_and(|[one, other]| one == other), "{text}: {found:?}");
            }
        }
    }
}
