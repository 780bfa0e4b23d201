//! The tap on a document that may be blocked: it is held, read and looked at whole, and then goes on or not.
//!
//! Invariant: at most [`HOLD_BYTES_MAX`] bytes wait, and they stand in the budget for bodies; a longer document passes, and says so.

use std::rc::Rc;

use bytes::BytesMut;
use weir_inference::PartKind;

use super::asking::{Asker, Case, Outcome, Words};
use super::body::{is_binary, sniffed};
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
    held: Option<Held>,
    room: Permit,
    bytes: usize,
    warning: String,
    missed: Option<&'static str>,
}

/// What has come of it.
enum Held {
    Json(Box<AnswerReader>),
    /// Its kind is what it turns out to be.
    Bytes(BytesMut),
}

impl Held {
    /// What is to be looked at; `None` where it is neither text nor anything that is read.
    fn case(self) -> Option<Case> {
        let body = match self {
            Self::Json(reader) => return Some(Case::Document(reader)),
            Self::Bytes(body) => body,
        };
        if let Some(kind) = sniffed(&body) {
            let mut reader = Box::new(reader(kind));
            reader.feed(&body);
            return Some(Case::Document(reader));
        }
        let words = std::str::from_utf8(&body).ok()?;
        Some(Case::Words(Words { texts: vec![(PartKind::Output, words.to_owned())], calls: Vec::new() }))
    }
}

fn reader(kind: AnswerKind) -> AnswerReader {
    AnswerReader::new(kind, None, HOLD_BYTES_MAX).with_failures()
}

impl DocumentTap {
    pub(super) fn new(core: &Rc<Core>, journal: &Journal, kind: AnswerKind) -> Self {
        let held = match kind {
            AnswerKind::Json => Held::Json(Box::new(reader(kind))),
            _ => Held::Bytes(BytesMut::new()),
        };
        Self {
            asker: Asker::new(core, journal),
            held: Some(held),
            room: core.process.bodies.of(journal.ids.tenant_id).permit_with_text(),
            bytes: 0,
            warning: String::new(),
            missed: None,
        }
    }

    fn note_missed(&mut self, reason: &'static str) -> Verdict {
        self.asker.missed(reason);
        (self.held, self.missed) = (None, Some(reason));
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
        let Some(held) = &mut self.held else { return Verdict::Pass };
        self.bytes += frame.len();
        if self.bytes > HOLD_BYTES_MAX {
            return self.note_missed("held_too_much");
        }
        if !self.room.grow(frame.len()) {
            return self.note_missed("out_of_memory");
        }
        match held {
            Held::Json(reader) => reader.feed(frame),
            Held::Bytes(body) if body.is_empty() && is_binary(frame) => return self.note_missed("media_type"),
            Held::Bytes(body) => body.extend_from_slice(frame),
        }
        Verdict::Hold(usize::MAX)
    }

    fn end(&mut self) -> Verdict {
        if self.held.is_some() { Verdict::Later } else { Verdict::Pass }
    }

    fn answer(&mut self) -> LateVerdict<'_> {
        Box::pin(async {
            let Some(held) = self.held.take() else { return Verdict::Pass };
            let Some(case) = held.case() else { return self.note_missed("media_type") };
            let found = self.asker.elsewhere(case, self.bytes).await;
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
