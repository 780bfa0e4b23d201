//! Rules as data: what a rule says, and the embedded rule files.
//!
//! A rule is a pattern plus the literals one of which every match must hold; the literals decide how often the pattern
//! is tried, so they are chosen to be rare in ordinary text. Invariant: a rule that was loaded has literals, a pattern
//! that compiled under the size cap and a type from the known list. Knows nothing of how text is scanned.

mod allow;
pub(crate) mod bounds;
mod credential;
mod load;
mod pattern;
mod program;
mod simple;
mod words;

use weir_config::vocab::Severity;

pub(crate) use allow::Allow;
pub(crate) use load::{Loaded, builtin, builtin_ids, of_operator, of_operator_changed, secrets};
pub(crate) use pattern::CACHE_KEEP_MAX;
pub(crate) use pattern::Pattern;
pub(crate) use program::{PADDING, Program, SearchScratch};
pub(crate) use words::{Seen, Words};

/// Why there is no analyser.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A rule file is not what the format asks for.
    #[error("rule file `{file}`: {reason}")]
    File {
        /// The file's name.
        file: String,
        /// What the reader said.
        reason: String,
    },
    /// A rule is not valid.
    #[error("rule file `{file}`, rule `{rule}`: {reason}")]
    Rule {
        /// The file's name.
        file: String,
        /// The rule's id.
        rule: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There are more rules than there may be.
    #[error("rule files: {0}")]
    TooMuch(String),
    /// A rule that is to be left out is none of those in force.
    #[error("there is no rule `{0}` to leave out; `without` names rules of `security_analysis.rules_dir`")]
    NoSuchRule(String),
    /// The automaton over all literals cannot be built.
    #[error("the literals of the rules do not fit one automaton: {0}")]
    Literals(String),
    /// The embedded classifier is not what was trained.
    #[error("{0}")]
    Model(String),
    /// Two detectors cannot be told apart.
    #[error("two detectors are named `{0}`")]
    DetectorTwice(&'static str),
    /// There is no room for so many.
    #[error("{0} detectors are more than an analyser has room for ({1})")]
    TooManyDetectors(usize, usize),
}

/// The scope of rules that read only what was encoded or written in look-alike letters, beside the bits of
/// [`crate::PartKind`]: words that say little in plain text say much where they were hidden.
pub(crate) const DISGUISED: u8 = 1 << 7;

/// Which detector a rule belongs to; also the order in which findings are reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Group {
    Rules,
    Jailbreak,
    Secrets,
}

impl Group {
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
    pub(crate) group: Group,
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
    /// As they are written: upper-case letters tell where `exact_case` says that case counts.
    pub(crate) literals: Vec<String>,
    pub(crate) exact_case: bool,
    pub(crate) pattern: Pattern,
    /// What must stand in the window for the pattern to be tried; `None` where it asks for no words.
    pub(crate) words: Option<Words>,
    /// For a rule without words: a rare byte that every match holds.
    pub(crate) rare_byte: Option<u8>,
}

/// What a rule says for people, and its examples; a gateway at work keeps none of it.
#[derive(Debug, Clone)]
pub struct RuleText {
    /// Its name.
    pub id: String,
    /// The file that it stands in.
    pub file: String,
    /// The pattern with its macros expanded.
    pub pattern: String,
    /// Texts it matches.
    pub hits: Vec<String>,
    /// Texts close to a match that it does not match.
    pub misses: Vec<String>,
}
