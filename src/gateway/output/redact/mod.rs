//! What is taken out of an answer on its way to its client (`pii.redact_answers`).
//!
//! A stream goes on frame by frame, as soon as no word in a frame can grow into something that is taken out; a document is read
//! whole first. Invariants: frames in which nothing is taken out stay byte for byte; what goes on untouched although it was to be
//! redacted is said.

mod document;
mod redactor;
mod stream;
mod window;

use weir_config::Settings;
use weir_inference::Taking;

pub(super) use document::RedactDocument;
#[cfg(test)]
pub(crate) use document::redacts;
pub(super) use redactor::Redactor;
pub(super) use stream::RedactStream;

/// What is taken out of answers under these settings.
pub(super) fn taking(settings: &Settings) -> Taking {
    let what = settings.pii_redact_answers;
    Taking { personal: what.personal(), secrets: what.secrets() }
}
