//! How bad a finding is. Serialised with the capital letter the interface shows (`High`).

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Severity of a finding, ordered from harmless to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Severity {
    /// Worth knowing, no action.
    Info,
    /// Weak signal.
    Low,
    /// Probable problem.
    Medium,
    /// Strong signal; alerts by default.
    High,
    /// Certain and serious.
    Critical,
}

/// A text that names no severity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a severity; use Info, Low, Medium, High or Critical")]
pub struct InvalidSeverity(pub String);

impl Severity {
    /// The security score (0-100) a trace gets when this is its worst finding.
    pub const fn score(self) -> u8 {
        match self {
            Self::Info => 10,
            Self::Low => 30,
            Self::Medium => 60,
            Self::High => 80,
            Self::Critical => 95,
        }
    }

    /// The name as the interface spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Info => "Info",
            Self::Low => "Low",
            Self::Medium => "Medium",
            Self::High => "High",
            Self::Critical => "Critical",
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Severity {
    type Err = InvalidSeverity;

    fn from_str(text: &str) -> Result<Self, InvalidSeverity> {
        Ok(match text {
            "Info" => Self::Info,
            "Low" => Self::Low,
            "Medium" => Self::Medium,
            "High" => Self::High,
            "Critical" => Self::Critical,
            other => return Err(InvalidSeverity(other.to_owned())),
        })
    }
}
