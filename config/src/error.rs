//! What is wrong with a configuration, in messages that say how to correct it.
//!
//! Invariant: no message contains the value of a secret.

use std::fmt;
use std::path::PathBuf;

/// Where a value was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In a file, if possible with line and column, both from 1.
    File {
        /// The file.
        path: PathBuf,
        /// Line and column.
        position: Option<(usize, usize)>,
    },
    /// In an environment variable.
    Variable(&'static str),
    /// In a command-line option.
    Option(&'static str),
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Where it stands.
    pub place: Place,
    /// Which setting, as a path with list indices; `None` when the whole file is meant.
    pub path: Option<String>,
    /// What is wrong, with the value unless it is a secret.
    pub problem: String,
    /// What would be right.
    pub accepted: Option<String>,
    /// What to do.
    pub advice: String,
}

/// Why the configuration cannot be used: every violation of every layer at once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct LoadError {
    /// In the order file, environment, command line, rules between settings. Never empty.
    pub violations: Vec<Violation>,
}

/// Most violations that are printed, and located in the file.
pub(super) const SHOWN: usize = 50;

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, position: Some((line, column)) } => write!(f, "{}:{line}:{column}", path.display()),
            Self::File { path, position: None } => write!(f, "{}", path.display()),
            Self::Variable(name) | Self::Option(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Violation {
    /// `place: path: what; accepted: ...; what to do`, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place)?;
        if let Some(path) = &self.path {
            // A key is the writer's own text and may contain anything.
            write!(f, "`{}`: ", path.escape_debug())?;
        }
        f.write_str(&self.problem)?;
        if let Some(accepted) = &self.accepted {
            write!(f, "; accepted: {accepted}")?;
        }
        write!(f, "; {}", self.advice)
    }
}

impl fmt::Display for LoadError {
    /// One violation per line, without a final line break.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, violation) in self.violations.iter().take(SHOWN).enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{violation}")?;
        }
        match self.violations.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}
