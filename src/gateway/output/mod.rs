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
use crate::rewrite::{Framed, Tap};
use crate::settle::journal::Journal;

use document::DocumentTap;
pub(crate) use observer::Observer;
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

/// What an answer looks like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub(crate) kind: AnswerKind,
    pub(crate) framed: Framed,
    pub(crate) body: Body,
}

/// What a document says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Body {
    Json,
    /// Text; or nothing.
    Text,
    /// Bytes that may be anything.
    Bytes,
    /// Sound, a picture, a film.
    Media,
}

impl Body {
    /// What the content type of an answer of this kind says.
    pub(crate) fn of(kind: AnswerKind, content_type: Option<&[u8]>) -> Self {
        let Some(said) = content_type else { return Self::Text };
        let is = |family: &[u8]| said.get(..family.len()).is_some_and(|start| start.eq_ignore_ascii_case(family));
        match () {
            () if kind == AnswerKind::Json => Self::Json,
            () if is(b"text/") => Self::Text,
            () if [&b"audio/"[..], b"image/", b"video/", b"font/", b"model/"].iter().any(|family| is(family)) => {
                Self::Media
            }
            () => Self::Bytes,
        }
    }
}

/// Whether the beginning of a body is that of no text.
fn is_binary(beginning: &[u8]) -> bool {
    // The last character may be cut.
    let broken = std::str::from_utf8(beginning).is_err_and(|fault| fault.error_len().is_some());
    broken || memchr::memchr(0, beginning).is_some()
}

/// What a body whose kind is not said is by its first bytes, where those of a document or of a stream have come.
pub(crate) fn sniffed(beginning: &[u8]) -> Option<AnswerKind> {
    let beginning = beginning.strip_prefix(b"\xef\xbb\xbf").unwrap_or(beginning).trim_ascii_start();
    let is_event = [&b"data:"[..], b"event:", b"id:", b"retry:", b":"].iter().any(|field| beginning.starts_with(field));
    match beginning.first() {
        Some(b'{' | b'[') => Some(AnswerKind::Json),
        _ => is_event.then_some(AnswerKind::EventStream),
    }
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
