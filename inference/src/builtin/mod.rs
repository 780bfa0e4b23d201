//! The detectors that are part of the binary. They share the fold, one pass over the literals of all rules and the list of
//! words that may be encoded, which the analyser makes once for each text ([`Bench`]).

mod jailbreak;
mod pii;
mod rules;
mod secrets;

use std::sync::Arc;

use crate::decode::{Cipher, DEPTH_MAX, Run, Runs, Vocabulary, WINDOW_AFTER, WINDOW_BEFORE, decode_run};
use crate::definition::Guards;
use crate::detector::Detector;
use crate::frame::Frame;
use crate::rule_matcher::{Outcome, RuleMatcher};
use crate::rules::LoadError;

/// Numbers of the detectors whose shared work is measured as theirs.
pub(crate) const RULES: usize = 0;
pub(crate) const JAILBREAK: usize = 1;
pub(crate) const SECRETS: usize = 3;

/// What the built-in detectors are made of, compiled once.
#[derive(Debug)]
pub(crate) struct Kit {
    pub(crate) matcher: RuleMatcher,
    frame: Frame,
    guards: Guards,
    vocabulary: Vocabulary,
}

// === impl Kit ===

impl Kit {
    /// Compiles the rule files that are part of the binary.
    pub(crate) fn new() -> Result<Self, LoadError> {
        let loaded = crate::rules::builtin()?;
        Ok(Self {
            matcher: RuleMatcher::new(loaded.rules)?,
            frame: Frame::new()?,
            guards: Guards::new()?,
            vocabulary: loaded.vocabulary,
        })
    }

    /// The detectors, in the order in which they run and are named.
    pub(crate) fn detectors(self: &Arc<Self>) -> [Arc<dyn Detector>; 4] {
        [
            Arc::new(rules::Rules(Arc::clone(self))),
            Arc::new(jailbreak::Jailbreak(Arc::clone(self))),
            Arc::new(pii::Pii),
            Arc::new(secrets::Secrets(Arc::clone(self))),
        ]
    }

    /// Decodes what is encoded in a text, encodings inside it included, and shows each result with its place and the name
    /// of the encoding, until `each` says that it is enough.
    pub(crate) fn decode(
        &self,
        text: &[u8],
        runs: &[Run],
        outcome: &Outcome,
        plain: &mut [Vec<u8>],
        each: &mut impl FnMut(&[u8], (usize, usize), &'static str) -> bool,
    ) {
        for run in runs {
            let window = text.get(run.start..run.end).unwrap_or_default();
            if !decode_deep(window, (run.start, run.end), 0, plain, each) {
                return;
            }
        }
        let Some(buffer) = plain.first_mut() else { return };
        for (cipher, seen) in Cipher::ALL.into_iter().zip(outcome.ciphers) {
            let Some(at) = seen else { continue };
            let (from, to) = (at.saturating_sub(WINDOW_BEFORE), (at + WINDOW_AFTER).min(text.len()));
            cipher.decipher(text.get(from..to).unwrap_or_default(), &self.vocabulary, buffer);
            if !each(buffer, (from, to), cipher.name()) {
                return;
            }
        }
    }
}

/// Decodes one run, and what is encoded in it. False when that was enough.
fn decode_deep(
    run: &[u8],
    span: (usize, usize),
    depth: usize,
    plain: &mut [Vec<u8>],
    each: &mut impl FnMut(&[u8], (usize, usize), &'static str) -> bool,
) -> bool {
    let Some((buffer, deeper)) = plain.split_first_mut() else { return true };
    let Some(encoding) = decode_run(run, buffer) else { return true };
    if !each(buffer, span, encoding) {
        return false;
    }
    depth + 1 >= DEPTH_MAX
        || Runs::new(buffer).all(|run| {
            let window = buffer.get(run.start..run.end).unwrap_or_default();
            decode_deep(window, span, depth + 1, deeper, each)
        })
}
