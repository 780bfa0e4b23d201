//! A rule's pattern, compiled when a text first needs it.
//!
//! Compiled patterns of all rules take 14 MB, most of which no text ever asks for. So each is compiled when its rule is read, to see that
//! it can be and how large it is, and again, for good, when one of its literals and its words first stand in a text: 0.4 ms on
//! average, once in a process.

use std::sync::OnceLock;

use regex_automata::meta::{BuildError, Regex};
use regex_automata::util::syntax;

/// Largest compiled pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 384 * 1024;
/// Largest lazy DFA a thread keeps per pattern, in bytes. One that does not fit is made anew over and over: half of this was too
/// little for prose.
const CACHE_BYTES_MAX: usize = 512 * 1024;

/// A pattern that can be compiled.
#[derive(Debug)]
pub(crate) struct Pattern {
    text: Box<str>,
    exact_case: bool,
    bytes: usize,
    compiled: OnceLock<Option<Regex>>,
}

impl Pattern {
    /// Reads a pattern.
    pub(super) fn new(text: &str, exact_case: bool) -> Result<Self, Box<BuildError>> {
        let bytes = compile(text, exact_case)?.memory_usage();
        Ok(Self { text: text.into(), exact_case, bytes, compiled: OnceLock::new() })
    }

    /// The pattern, compiled by now. It could be once, so that it is always there.
    pub(crate) fn compiled(&self) -> Option<&Regex> {
        self.compiled.get_or_init(|| compile(&self.text, self.exact_case).ok()).as_ref()
    }

    /// What it takes once it is compiled, in bytes.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
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
