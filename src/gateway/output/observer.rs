//! A look at a stream that nothing may stop, behind the client's bytes: what is found is on the span with the time at which it was.

use std::borrow::Cow;
use std::rc::Rc;

use weir_config::vocab::{FINDING_ALLOWED, Severity};

use super::asking::{Asker, Words};
use super::windows::Windows;
use crate::process::Core;
use crate::settle::inspection::fits_core;
use crate::settle::journal::Journal;

/// Kinds of findings that are noted of one answer.
const NOTED_MAX: usize = 16;

/// Looks at one answer.
pub(crate) struct Observer {
    asker: Asker,
    windows: Windows,
    noted: Vec<Cow<'static, str>>,
}

impl Observer {
    pub(super) fn new(core: &Rc<Core>, journal: &Journal) -> Self {
        let windows = Windows::new(journal.settings.streaming_analysis.token_interval);
        Self { asker: Asker::new(core, journal), windows, noted: Vec::new() }
    }

    /// Looks at what has been relayed, where that is due.
    pub(crate) fn look(&mut self, journal: &mut Journal) {
        let Some(reader) = journal.answer_reader() else { return };
        if !self.windows.note(reader) {
            return;
        }
        let words = Words { texts: self.windows.take(reader), calls: Vec::new() };
        // A larger piece is looked at when the answer has ended, as everything is.
        if !fits_core(words.bytes(), false) {
            return;
        }
        for found in self.asker.here(words).0.unwrap_or_default() {
            let worth = found.severity >= Severity::High && found.finding_type != FINDING_ALLOWED;
            if worth && self.noted.len() < NOTED_MAX && !self.noted.contains(&found.finding_type) {
                let said = format!("{} ({}) while the answer was streamed", found.finding_type, found.severity);
                journal.event("streaming_finding", &said);
                self.noted.push(found.finding_type);
            }
        }
    }
}
