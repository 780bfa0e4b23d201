//! Rules as data: what a rule says, and the embedded rule files.
//!
//! A rule is a pattern plus the literals one of which every match must hold; the literals decide how often the pattern
//! is tried, so they are chosen to be rare in ordinary text. Invariant: a rule that was loaded has literals, a pattern
//! that compiled under the size cap and a type from the known list. Knows nothing of how text is scanned.

mod load;

use regex_automata::meta::Regex;
use weir_config::vocab::Severity;

pub(crate) use load::builtin;

/// Why the rule files cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A rule file is not what the format asks for.
    #[error("rule file `{file}`: {reason}")]
    File {
        /// The file's name.
        file: &'static str,
        /// What the reader said.
        reason: String,
    },
    /// One rule breaks the rules for rules.
    #[error("rule `{rule}`: {reason}")]
    Rule {
        /// The rule's id.
        rule: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The automaton over all literals cannot be built.
    #[error("the literals of the rules do not fit one automaton: {0}")]
    Literals(String),
}

/// Which detector a rule belongs to; also the order in which findings are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detector {
    Rules,
    Jailbreak,
    Secrets,
}

impl Detector {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Rules => "rules",
            Self::Jailbreak => "jailbreak",
            Self::Secrets => "secrets",
        }
    }
}

/// One loaded rule.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) id: String,
    pub(crate) detector: Detector,
    pub(crate) finding_type: &'static str,
    /// `None` for a pure signal: it adds to [`Rule::signal`] of its type and never reports alone.
    pub(crate) severity: Option<Severity>,
    pub(crate) confidence: f64,
    pub(crate) about: String,
    /// Bits of [`crate::PartKind`].
    pub(crate) scope: u8,
    pub(crate) jailbreak_type: Option<String>,
    pub(crate) secret_type: Option<String>,
    /// Points towards a combined finding of the same type; 100 make one.
    pub(crate) signal: u16,
    /// Whether a quoted match in a text that asks about it counts as a mention.
    pub(crate) frame: bool,
    /// Bytes before the literal that belong to the window; 0 = the match begins at the literal.
    pub(crate) before: usize,
    /// Bytes after the start of the literal that belong to the window.
    pub(crate) after: usize,
    /// Least Shannon entropy of the matched value, in bits per character.
    pub(crate) entropy: f64,
    /// Whether the matched value must hold a digit or a symbol.
    pub(crate) digit: bool,
    pub(crate) literals: Vec<String>,
    pub(crate) pattern: Regex,
    /// Texts the rule must match.
    #[cfg(test)]
    pub(crate) hits: Vec<String>,
    /// Texts close to a match that the rule must not match.
    #[cfg(test)]
    pub(crate) misses: Vec<String>,
}
