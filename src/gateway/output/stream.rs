//! The tap on a stream that may be stopped.
//!
//! A look asks the rules, on the core, and then the models that read answers, on the pool: until those have said something, nothing
//! more is read of the answer.
//!
//! Without hold-back every frame goes on at once, but for the one at which a look finds something: the client has at most
//! `token_interval` tokens and a frame behind the critical word. With it a frame goes on once the words in it, and
//! [`OVERLAP_BYTES`](super::windows::OVERLAP_BYTES) behind them, have been looked at, or the stream has ended.

use std::collections::VecDeque;
use std::rc::Rc;

use weir_config::vocab::Finding;

use super::asking::{Asker, Case, Outcome, Words};
use super::warning::warning;
use super::windows::Windows;
use crate::observe::{AnswerKind, AnswerReader};
use crate::process::Core;
use crate::record::Permit;
use crate::rewrite::{LateVerdict, Tap, Verdict};
use crate::settle::inspection::{Rest, fits_core, survive};
use crate::settle::journal::Journal;

/// Bytes of an answer's text that are looked at while it lasts; no model writes so much.
const TEXT_BYTES_MAX: usize = 8 << 20;

/// The tap.
pub(super) struct StreamTap {
    asker: Asker,
    reader: AnswerReader,
    /// What the text read takes.
    room: Permit,
    windows: Windows,
    waiting: Option<Waiting>,
    calls: LookedCalls,
    /// What is to be looked at on the pool.
    asked: Option<Asked>,
    /// Which setting stops it.
    setting: &'static str,
    warning: String,
    missed: Option<&'static str>,
    /// Nothing more of it is looked at.
    given_up: bool,
}

/// What takes longer than a core may.
enum Asked {
    /// Words that are too many for it.
    Words(Words),
    /// Words in which the rules found nothing that stops.
    Models(Rest),
}

/// How much of the tool calls has been looked at, in bytes. They are looked at whole: a command says what it does at its end.
#[derive(Default)]
struct LookedCalls {
    bytes: usize,
}

impl LookedCalls {
    /// Whether they are to be looked at again, now that there are so many bytes of them. An answer that has several choices goes on
    /// when one of them has ended, and so does one that says it has ended and has not: until its last message they are looked at when
    /// there is half as much again of them, so that all looks together take time in proportion to the calls.
    const fn are_due(&mut self, bytes: usize, is_last: bool) -> bool {
        let due = if is_last { bytes != self.bytes } else { bytes > self.bytes + self.bytes / 2 };
        if due {
            self.bytes = bytes;
        }
        due
    }
}

/// The frames that wait, by how many bytes of text had come with each of them.
#[derive(Default)]
struct Waiting {
    ends: VecDeque<usize>,
}

impl Waiting {
    /// Lets all frames go whose words stand among the first `safe` bytes.
    fn release(&mut self, safe: usize) -> Verdict {
        while self.ends.front().is_some_and(|end| *end <= safe) {
            self.ends.pop_front();
        }
        if self.ends.is_empty() { Verdict::Pass } else { Verdict::Hold(self.ends.len()) }
    }
}

impl StreamTap {
    pub(super) fn new(core: &Rc<Core>, journal: &Journal, kind: AnswerKind) -> Self {
        let (stream, safety) = (&journal.settings.streaming_analysis, &journal.settings.output_safety);
        let setting = match safety.block_on_critical {
            true => "output_safety.block_on_critical",
            false => "streaming_analysis.early_stop_on_critical",
        };
        Self {
            asker: Asker::new(core, journal),
            reader: AnswerReader::new(kind, None, TEXT_BYTES_MAX).with_failures(),
            room: core.process.bodies.of(journal.ids.tenant_id).permit(),
            windows: Windows::new(stream.token_interval),
            waiting: stream.hold_back.then(Waiting::default),
            calls: LookedCalls::default(),
            asked: None,
            setting,
            warning: String::new(),
            missed: None,
            given_up: false,
        }
    }

    /// Reads a frame; what cannot be read, or has no room, is not looked at any more.
    fn read(&mut self, frame: &[u8]) {
        let before = self.reader.text_bytes();
        let lost = if survive(|| self.reader.feed(frame)).is_none() {
            "analyzer_error"
        } else if !self.room.grow(self.reader.text_bytes().saturating_sub(before)) {
            "out_of_memory"
        } else if self.reader.is_truncated() {
            "text_limit"
        } else {
            return;
        };
        self.reader.keep_less();
        self.given_up = true;
        self.note_missed(lost);
    }

    fn note_missed(&mut self, reason: &'static str) {
        if self.missed.replace(reason).is_none() {
            self.asker.missed(reason);
        }
    }

    /// The verdict after what has been read, `has_ended` where no more comes soon, `is_last` where none comes at all.
    fn verdict(&mut self, has_ended: bool, is_last: bool) -> Verdict {
        let due = self.windows.note(&self.reader);
        let calls_bytes = || self.reader.calls().map(|call| call.1.len() + 1).sum();
        let called = has_ended && self.calls.are_due(calls_bytes(), is_last);
        let said = due || (has_ended && self.windows.has_new());
        if !said && !called {
            return self.wait();
        }
        let mut words = Words { texts: self.windows.take(&self.reader), calls: Vec::new() };
        if called {
            let calls = self.reader.calls();
            words.calls = calls.map(|(name, args, writes)| (name.to_owned(), args.to_owned(), writes)).collect();
        }
        if !fits_core(words.bytes(), false) {
            self.asked = Some(Asked::Words(words));
            return Verdict::Later;
        }
        let (found, rest) = self.asker.here(words);
        if let Some(rest) = rest {
            self.asked = Some(Asked::Models(rest));
            return Verdict::Later;
        }
        self.judge(found)
    }

    fn judge(&mut self, found: Outcome) -> Verdict {
        let found: Vec<Finding> = found.unwrap_or_else(|skip| {
            self.note_missed(skip.reason());
            Vec::new()
        });
        match warning(&found, self.setting) {
            Some(warning) => {
                self.warning = warning;
                Verdict::Stop
            }
            None => self.wait(),
        }
    }

    /// Which frames wait.
    fn wait(&mut self) -> Verdict {
        let Some(waiting) = &mut self.waiting else { return Verdict::Pass };
        // Behind the last message nothing goes on that has begun.
        let tail = if self.reader.is_complete() { 0 } else { self.windows.tail() };
        waiting.release(self.windows.looked().saturating_sub(tail))
    }
}

impl Tap for StreamTap {
    fn look(&mut self, frame: &[u8]) -> Verdict {
        if self.given_up {
            return Verdict::Pass;
        }
        let was_complete = self.reader.is_complete();
        self.read(frame);
        if self.given_up {
            return Verdict::Pass;
        }
        if let Some(waiting) = &mut self.waiting {
            waiting.ends.push_back(self.reader.text_bytes());
        }
        self.verdict(self.reader.has_ended(), self.reader.is_complete() && !was_complete)
    }

    fn end(&mut self) -> Verdict {
        if self.given_up {
            return Verdict::Pass;
        }
        if self.reader.has_broken() {
            self.note_missed("not_read");
        }
        self.verdict(true, true)
    }

    fn answer(&mut self) -> LateVerdict<'_> {
        Box::pin(async {
            let found = match self.asked.take() {
                Some(Asked::Words(words)) => {
                    let bytes = words.bytes();
                    self.asker.elsewhere(Case::Words(words), bytes).await
                }
                Some(Asked::Models(rest)) => self.asker.by_models(rest).await,
                None => return Verdict::Pass,
            };
            self.judge(found)
        })
    }

    fn warning(&self) -> &str {
        &self.warning
    }

    fn missed(&self) -> Option<&'static str> {
        self.missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_go_on_behind_an_end_are_looked_at_in_proportion_to_their_length() {
        let (mut calls, mut looked) = (LookedCalls::default(), 0);
        for bytes in 1..100_000 {
            looked += if calls.are_due(bytes, false) { bytes } else { 0 };
        }
        assert!(looked < 3 * 100_000, "{looked}");
        // Whatever was missing is looked at in the end, and once.
        assert!(calls.are_due(100_000, true) && !calls.are_due(100_000, true));
    }
}
