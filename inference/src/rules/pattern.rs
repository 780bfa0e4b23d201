//! A rule's pattern, compiled when a text first needs it.
//!
//! Compiled patterns of all rules take 14 MB, most of which no text ever asks for. So each is compiled, for good, when one of its
//! literals and its words first stand in a text: 0.4 ms on average, once in a process. One of an operator is compiled when it is read
//! too, to see that it can be and how large it is; those of this build are compiled by a test, which takes a third of the time off a start.

use std::sync::OnceLock;

use regex_automata::meta::{BuildError, Regex};
use regex_automata::util::syntax;

/// Largest compiled pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 384 * 1024;
/// Largest lazy DFA a thread keeps per pattern, in bytes. One that does not fit is made anew over and over: half of this was too
/// little for prose.
const CACHE_BYTES_MAX: usize = 640 * 1024;
/// From this size on it is emptied after a search.
pub(crate) const CACHE_KEEP_MAX: usize = 512 * 1024;

/// A pattern that can be compiled.
#[derive(Debug)]
pub(crate) struct Pattern {
    text: Box<str>,
    exact_case: bool,
    compiled: OnceLock<Option<Regex>>,
}

impl Pattern {
    /// A pattern nobody has compiled yet.
    pub(super) fn new(text: &str, exact_case: bool) -> Self {
        Self { text: text.into(), exact_case, compiled: OnceLock::new() }
    }

    /// What it takes once it is compiled, in bytes; an error where it cannot be.
    pub(super) fn measure(&self) -> Result<usize, Box<BuildError>> {
        Ok(compile(&self.text, self.exact_case)?.memory_usage())
    }

    /// The pattern, compiled by now. `None` where that cannot be done: [`Self::measure`] says why.
    pub(crate) fn compiled(&self) -> Option<&Regex> {
        self.compiled.get_or_init(|| compile(&self.text, self.exact_case).ok()).as_ref()
    }
}

#[cfg(test)]
impl Pattern {
    /// The pattern as an automaton that can be followed byte by byte.
    pub(super) fn dfa(&self) -> Result<regex_automata::hybrid::dfa::DFA, Box<regex_automata::hybrid::BuildError>> {
        regex_automata::hybrid::dfa::DFA::builder()
            .syntax(syntax::Config::new().unicode(false).utf8(false).case_insensitive(!self.exact_case))
            .configure(regex_automata::hybrid::dfa::Config::new().cache_capacity(CACHE_BYTES_MAX * 4))
            .thompson(regex_automata::nfa::thompson::Config::new().utf8(false))
            .build(&self.text)
            .map_err(Box::new)
    }
}

fn compile(text: &str, exact_case: bool) -> Result<Regex, Box<BuildError>> {
    Regex::builder()
        .configure(
            Regex::config()
                .nfa_size_limit(Some(PATTERN_BYTES_MAX))
                .hybrid_cache_capacity(CACHE_BYTES_MAX)
                .onepass(false)
                // Its own search for literals: a window is short, and holds the words already. Preparing it would take a third
                // of the time of a start.
                .auto_prefilter(false),
        )
        .syntax(syntax::Config::new().unicode(false).utf8(false).case_insensitive(!exact_case))
        .build(text)
        .map_err(Box::new)
}
