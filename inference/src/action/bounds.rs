//! How much of an action is looked at, and until when.
//!
//! An action is what a stranger wrote: a tool call can be as long as an answer. Invariant: what these bounds leave out is told
//! by a finding ([`Bounds::sign`]), never left out in silence.

use std::time::Instant;

use weir_config::vocab::Severity;

use super::Sign;

/// Bytes of one text that are looked at, as many as the arguments of a reported action may have.
pub const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Bytes of all texts together; a command is looked at up to three times, alone, with its arguments and with the program that the
/// action names.
const TEXTS_BYTES_MAX: usize = 4 * TEXT_BYTES_MAX;
/// Simple commands that are looked at, those inside others among them: more than a script of 64 KiB that does something has.
const COMMANDS_MAX: u32 = 4_096;
/// Commands between two looks at the clock.
const COMMANDS_BETWEEN: u32 = 32;

/// What is left of each bound.
#[derive(Debug)]
pub(super) struct Bounds {
    bytes: usize,
    commands: u32,
    deadline: Option<Instant>,
    is_cut: bool,
    is_late: bool,
}

impl Bounds {
    pub(super) fn new(deadline: Option<Instant>) -> Self {
        Self { bytes: TEXTS_BYTES_MAX, commands: COMMANDS_MAX, deadline, is_cut: false, is_late: false }
    }

    /// The part of `text` that is looked at.
    pub(super) fn take<'a>(&mut self, text: &'a str) -> &'a str {
        if self.clock_says_stop() {
            return "";
        }
        let end = text.floor_char_boundary(self.bytes.min(TEXT_BYTES_MAX));
        self.is_cut |= end < text.len();
        self.bytes -= end;
        text.get(..end).unwrap_or_default()
    }

    /// The words that are looked at, whole ones.
    pub(super) fn take_words<'a>(&mut self, words: &'a [&'a str]) -> &'a [&'a str] {
        if self.clock_says_stop() {
            return &[];
        }
        let (mut count, mut bytes) = (0, 0);
        for word in words {
            let longer = bytes + word.len() + 1;
            if longer > self.bytes.min(TEXT_BYTES_MAX) {
                self.is_cut = true;
                break;
            }
            (count, bytes) = (count + 1, longer);
        }
        self.bytes -= bytes;
        words.get(..count).unwrap_or_default()
    }

    /// Whether one more command may be looked at.
    pub(super) fn next_command(&mut self) -> bool {
        let Some(left) = self.commands.checked_sub(1) else {
            self.is_cut = true;
            return false;
        };
        self.commands = left;
        !self.is_late && (!left.is_multiple_of(COMMANDS_BETWEEN) || !self.clock_says_stop())
    }

    /// Something was left out.
    pub(super) fn cut(&mut self) {
        self.is_cut = true;
    }

    /// Whether the time is over.
    pub(super) fn clock_says_stop(&mut self) -> bool {
        self.is_late = self.is_late || self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        self.is_late
    }

    /// What is to be said about what was left out.
    pub(super) fn sign(&self) -> Option<Sign> {
        let sign = |finding_type, rule, severity, description| {
            Some(Sign { finding_type, rule, severity, confidence: 1.0, description })
        };
        if self.is_late {
            let said = "The time for analysis was over before the whole action had been looked at.";
            return sign("analysis_timeout", "deadline", Severity::Info, said);
        }
        if self.is_cut {
            let said =
                "The action is longer, has more commands or is nested deeper than is looked at; the rest was left out.";
            return sign("analysis_truncated", "bounds", Severity::Low, said);
        }
        None
    }
}
