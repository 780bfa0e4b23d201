//! The layers laid over each other: for every setting the value of the highest layer that has one, and its origin.
//!
//! Invariant: values are put in the order of the layers, so that a later one wins; a value here has passed its check.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use super::check::Mismatch;
use crate::catalogue::{Build, Literal, Setting};
use crate::error::{Place, Violation};

/// Which layer a value comes from, lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// Built in.
    Default,
    /// The configuration file.
    File,
    /// The runtime overlay.
    Overlay,
    /// An environment variable.
    Env,
    /// The command line.
    Cli,
}

/// A value somebody wrote.
#[derive(Debug, Clone)]
pub(super) struct Written {
    pub(super) value: Value,
    pub(super) origin: Origin,
    pub(super) place: Place,
    /// Where in the file, for messages about settings that do not fit each other.
    pub(super) steps: Option<Vec<usize>>,
}

/// What the layers read so far have said.
#[derive(Debug, Default)]
pub(super) struct Layers {
    pub(super) written: BTreeMap<&'static str, Written>,
    pub(super) violations: Vec<Violation>,
    pub(super) warnings: Vec<String>,
    pub(super) alarms: Vec<String>,
    /// The usable entries of the overlay, by flag.
    pub(super) overlay: BTreeMap<&'static str, Value>,
}

// === impl Origin ===

impl Origin {
    /// `default`, `file`, `overlay`, `env` or `cli`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::File => "file",
            Self::Overlay => "overlay",
            Self::Env => "env",
            Self::Cli => "cli",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl Layers ===

impl Layers {
    pub(super) fn put(
        &mut self,
        setting: &'static Setting,
        value: Value,
        origin: Origin,
        place: Place,
        steps: Option<Vec<usize>>,
    ) {
        self.written.insert(setting.path, Written { value, origin, place, steps });
    }
}

/// "Correct it, or `undo` it": what to do about a value that does not fit; of a setting that is not built only the
/// undoing helps.
pub(super) fn mend(setting: &Setting, undo: &str) -> String {
    match setting.default {
        Literal::Null | Literal::EmptyList | Literal::EmptyMap => format!("correct it or {undo}"),
        default => format!("correct it, or {undo} for the default {}", default.to_value()),
    }
}

/// Gives the mismatches of a built setting's value the advice `mend`; those of a setting that is not built keep none.
pub(super) fn advise(setting: &Setting, mut mismatches: Vec<Mismatch>, mend: &str) -> Vec<Mismatch> {
    if matches!(setting.build, Build::Built { .. }) {
        for mismatch in mismatches.iter_mut().filter(|mismatch| mismatch.advice.is_none()) {
            mismatch.advice = Some(mend.to_owned());
        }
    }
    mismatches
}
