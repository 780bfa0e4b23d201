//! One line of `weir doctor`: topic, verdict and text.

use std::fmt;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Level {
    /// As it should be.
    Ok,
    /// Works, with a drawback.
    Warn,
    /// Does not work, or is dangerous.
    Fail,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::app::cli) struct Diagnosis {
    pub(super) level: Level,
    /// What was looked at; stable, for scripts.
    pub(super) topic: &'static str,
    pub(super) text: String,
}

impl Diagnosis {
    pub(super) fn ok(topic: &'static str, text: impl Into<String>) -> Self {
        Self { level: Level::Ok, topic, text: text.into() }
    }

    pub(super) fn warn(topic: &'static str, text: impl Into<String>) -> Self {
        Self { level: Level::Warn, topic, text: text.into() }
    }

    pub(super) fn fail(topic: &'static str, text: impl Into<String>) -> Self {
        Self { level: Level::Fail, topic, text: text.into() }
    }

    /// Whether it makes the exit code 1.
    pub(in crate::app::cli) fn is_failure(&self) -> bool {
        self.level == Level::Fail
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Ok => "ok",
            Level::Warn => "warn",
            Level::Fail => "FAIL",
        };
        write!(f, "{level:<4}  {:<12}  {}", self.topic, self.text)
    }
}
