//! A rule's pattern, compiled when a text first needs it.
//!
//! Compiled patterns of all rules take 14 MB, most of which no text ever asks for. So each is compiled, for good, when one of its
//! literals and its words first stand in a text: 0.4 ms on average, once in a process. One of an operator is compiled when it is read
//! too, to see that it can be and how large it is; those of this build are compiled by a test, which takes a third of the time off a start.

use std::sync::OnceLock;

use regex_automata::meta::{BuildError, Config, Regex};
use regex_automata::nfa::thompson::WhichCaptures;
use regex_automata::util::syntax;

use super::simple::{small_letters, together};

/// Largest compiled pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 384 * 1024;
/// Largest lazy DFA a thread may make of a pattern, in bytes. One that does not fit is made from scratch over and over.
const CACHE_BYTES_MAX: usize = 2048 * 1024;
/// From this size on it is emptied after a search.
pub(crate) const CACHE_KEEP_MAX: usize = 1536 * 1024;
/// From this size on it is large, and a thread keeps few of those. A bound of half of this for all was too little for prose.
pub(crate) const CACHE_LARGE_MIN: usize = 512 * 1024;

/// A pattern that can be compiled.
#[derive(Debug)]
pub(crate) struct Pattern {
    text: Box<str>,
    exact_case: bool,
    small_letters: bool,
    compiled: OnceLock<Option<Regex>>,
}

impl Pattern {
    /// A pattern nobody has compiled yet.
    pub(super) fn new(text: &str, exact_case: bool) -> Self {
        let small_letters = !exact_case && !tells_case(text);
        Self { text: text.into(), exact_case, small_letters, compiled: OnceLock::new() }
    }

    /// What it takes once it is compiled, in bytes; an error where it cannot be.
    pub(super) fn measure(&self) -> Result<usize, Box<BuildError>> {
        Ok(self.compile()?.memory_usage())
    }

    /// The pattern, compiled by now. `None` where that cannot be done: [`Self::measure`] says why.
    pub(crate) fn compiled(&self) -> Option<&Regex> {
        self.compiled.get_or_init(|| self.compile().ok()).as_ref()
    }

    /// Whether it is to be searched in texts without capital letters.
    pub(crate) const fn wants_small_letters(&self) -> bool {
        self.small_letters
    }

    fn compile(&self) -> Result<Regex, Box<BuildError>> {
        let config = syntax::Config::new().unicode(false).utf8(false).case_insensitive(!self.exact_case);
        let Ok(hir) = syntax::parse_with(&self.text, &config) else { return plain(&self.text, config) };
        let hir = if self.small_letters { small_letters(&hir) } else { hir };
        let is_free = hir.properties().explicit_captures_len() == 0;
        let which = if is_free { WhichCaptures::Implicit } else { WhichCaptures::All };
        Regex::builder()
            .configure(options().which_captures(which))
            .build_from_hir(&together(&hir, is_free))
            .map_err(Box::new)
    }
}

#[cfg(test)]
impl Pattern {
    /// The pattern as an automaton that can be followed byte by byte.
    pub(super) fn dfa(&self) -> Result<regex_automata::hybrid::dfa::DFA, Box<regex_automata::hybrid::BuildError>> {
        regex_automata::hybrid::dfa::DFA::builder()
            .syntax(syntax::Config::new().unicode(false).utf8(false).case_insensitive(!self.exact_case))
            .configure(regex_automata::hybrid::dfa::Config::new().cache_capacity(CACHE_BYTES_MAX * 2))
            .thompson(regex_automata::nfa::thompson::Config::new().utf8(false))
            .build(&self.text)
            .map_err(Box::new)
    }
}

/// Whether a part of a pattern tells small letters from capital ones though the whole does not.
fn tells_case(pattern: &str) -> bool {
    pattern.split("(?").skip(1).any(|rest| {
        let flags = rest.split(|c: char| c != '-' && !c.is_ascii_alphabetic()).next().unwrap_or_default();
        flags.split_once('-').is_some_and(|(_, off)| off.contains('i'))
    })
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
