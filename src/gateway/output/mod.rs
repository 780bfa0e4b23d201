//! What looks at an answer before its client has all of it (`output_safety`, `streaming_analysis`).
//!
//! | answer | looked at | what may happen |
//! |---|---|---|
//! | a stream that may be stopped | every `token_interval` tokens, before the frame that makes them full goes on | it ends as its dialect ends streams |
//! | a document that may be blocked | whole, before anything of it goes on | 403 in its place |
//! | any of these out of which something is taken (`pii.redact_answers`) | frame by frame, a document whole | it goes on without it (`redact`) |
//! | another stream, with `streaming_analysis.enabled` | every `token_interval` tokens, behind the client's bytes | an event on the span |
//!
//! Where an answer may be stopped, a model of toxicity is asked at every look, and the answer waits for it. Failures
//! are looked at like any other. A document whose kind is not said is what its first bytes are. The record is analysed whole after the end in any case; what is found here decides
//! and is not kept. Invariants: a look at more text than a core may take is a job of the pool; every wait has a
//! deadline; what could not be looked at passes, is counted and is said on the span.

mod asking;
mod body;
mod document;
mod observer;
mod redact;
mod stream;
mod warning;
mod windows;

use std::rc::Rc;

use weir_config::Settings;
use weir_config::vocab::Operation;
use weir_inference::Taker;

use crate::exchange::{Analysis, Skip};
use crate::observe::AnswerKind;
use crate::process::Core;
use crate::rewrite::{Framed, HOLD_BYTES_MAX, Tap};
use crate::settle::journal::Journal;

pub(crate) use body::{Body, sniffed};
use document::DocumentTap;
pub(crate) use observer::Observer;
#[cfg(test)]
pub(crate) use redact::redacts;
use redact::{RedactDocument, RedactStream};
use stream::StreamTap;

/// The tap for an answer with this status, where the settings ask for one.
pub(crate) fn tap(core: &Rc<Core>, journal: &Journal, status: u16, form: Form) -> Option<Box<dyn Tap>> {
    let stopping = stopping(core, journal, status, form);
    if !journal.settings.redacts_answers() || !has_words(journal, status) {
        return stopping;
    }
    let taking = redact::taking(&journal.settings);
    match form.kind {
        kind if kind.is_stream() => Some(Box::new(RedactStream::new(form.framed, taking, stopping))),
        // Sound and pictures have no words.
        AnswerKind::Other if form.body == Body::Media => stopping,
        _ => Some(Box::new(RedactDocument::new(core, journal, taking, form.body, stopping))),
    }
}

/// Gets what these settings take out of answers ready, before a core needs it.
pub(crate) fn prepare(settings: &Settings) {
    drop(Taker::new(redact::taking(settings)));
}

/// A message that belongs to no answer, without what these settings take out of answers, and how many pieces those were; `None` where
/// that is nothing.
pub(crate) fn without(settings: &Settings, message: &[u8]) -> Option<(bytes::Bytes, usize)> {
    if !settings.redacts_answers() || message.len() > HOLD_BYTES_MAX {
        return None;
    }
    let mut redactor = redact::Redactor::new(Framed::Whole, redact::taking(settings));
    let message = bytes::Bytes::copy_from_slice(message);
    redactor.read(&message);
    redactor.end();
    let without = redactor.pass(message);
    let taken = redactor.redaction().taken;
    (taken > 0).then_some((without, taken))
}

/// What an answer looks like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub(crate) kind: AnswerKind,
    pub(crate) framed: Framed,
    pub(crate) body: Body,
}

/// The tap that may stop it.
fn stopping(core: &Rc<Core>, journal: &Journal, status: u16, form: Form) -> Option<Box<dyn Tap>> {
    let kind = form.kind;
    let settings = &journal.settings;
    if !settings.output_safety.enabled || !is_looked_at(journal, status) {
        return None;
    }
    if kind.is_stream() && settings.stops_streams() {
        return Some(Box::new(StreamTap::new(core, journal, kind)));
    }
    let is_document = kind == AnswerKind::Json || (kind == AnswerKind::Other && form.body != Body::Media);
    (is_document && settings.blocks_answers()).then(|| Box::new(DocumentTap::new(core, journal, kind)) as _)
}

/// What looks at an answer behind the client's bytes, where the settings ask for it.
pub(crate) fn observer(core: &Rc<Core>, journal: &Journal, status: u16, kind: AnswerKind) -> Option<Box<Observer>> {
    let wanted = journal.settings.streaming_analysis.enabled && kind.is_stream() && is_looked_at(journal, status);
    wanted.then(|| Box::new(Observer::new(core, journal)))
}

/// Whether an answer with this status says something in words, and analysis takes place at all.
fn is_looked_at(journal: &Journal, status: u16) -> bool {
    let off = matches!(journal.inspection.analysis, Analysis::Skipped(Skip::Disabled | Skip::BreakerOpen));
    !off && has_words(journal, status)
}

/// Whether an answer with this status says something in words.
pub(crate) fn has_words(journal: &Journal, status: u16) -> bool {
    let wordless = matches!(
        journal.ids.operation,
        Operation::Embedding | Operation::ListModels | Operation::Speech | Operation::Image | Operation::Moderation
    );
    // What a provider says of a failure may repeat what it was sent, whatever was asked of it.
    status >= 300 || (200..300).contains(&status) && !wordless
}
