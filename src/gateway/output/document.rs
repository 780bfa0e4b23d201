//! The tap on a JSON document that may be blocked: it is held, read and looked at whole, and then goes on or not.
//!
//! Invariant: at most [`HOLD_BYTES_MAX`] bytes wait, and they stand in the budget for bodies; a longer document passes, and says so.

use std::rc::Rc;

use super::asking::{Asker, Case, Outcome};
use super::warning::warning;
use crate::observe::{AnswerKind, AnswerReader};
use crate::process::Core;
use crate::record::Permit;
use crate::rewrite::{HOLD_BYTES_MAX, LateVerdict, Tap, Verdict};
use crate::settle::journal::Journal;

/// The setting that blocks it.
const SETTING: &str = "output_safety.block_on_critical";

/// The tap.
pub(super) struct DocumentTap {
    asker: Asker,
    /// `None` once it is looked at, or will not be.
    reader: Option<Box<AnswerReader>>,
    room: Permit,
    bytes: usize,
    warning: String,
    missed: Option<&'static str>,
}

impl DocumentTap {
    pub(super) fn new(core: &Rc<Core>, journal: &Journal) -> Self {
        Self {
            asker: Asker::new(core, journal),
            reader: Some(Box::new(AnswerReader::new(AnswerKind::Json, None, HOLD_BYTES_MAX))),
            room: core.process.bodies.of(journal.ids.tenant_id).permit_with_text(),
            bytes: 0,
            warning: String::new(),
            missed: None,
        }
    }

    fn note_missed(&mut self, reason: &'static str) -> Verdict {
        self.asker.missed(reason);
        (self.reader, self.missed) = (None, Some(reason));
        Verdict::Pass
    }

    fn judge(&mut self, found: Outcome) -> Verdict {
        match found.map(|found| warning(&found, SETTING)) {
            Ok(None) => Verdict::Pass,
            Ok(Some(warning)) => {
                self.warning = warning;
                Verdict::Stop
            }
            Err(skip) => self.note_missed(skip.reason()),
        }
    }
}

impl Tap for DocumentTap {
    fn look(&mut self, frame: &[u8]) -> Verdict {
        let Some(reader) = &mut self.reader else { return Verdict::Pass };
        self.bytes += frame.len();
        if self.bytes > HOLD_BYTES_MAX {
            return self.note_missed("held_too_much");
        }
        if !self.room.grow(frame.len()) {
            return self.note_missed("out_of_memory");
        }
        reader.feed(frame);
        Verdict::Hold(usize::MAX)
    }

    fn end(&mut self) -> Verdict {
        if self.reader.is_some() { Verdict::Later } else { Verdict::Pass }
    }

    fn answer(&mut self) -> LateVerdict<'_> {
        Box::pin(async {
            let Some(reader) = self.reader.take() else { return Verdict::Pass };
            let found = self.asker.elsewhere(Case::Document(reader), self.bytes).await;
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
