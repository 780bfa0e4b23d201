//! The end of a document that is longer than what is kept of it. Providers count at the end, and what a call cost must not
//! hang on whether there was room for its text.
//!
//! Invariant: at most [`TAIL_BYTES_MAX`] bytes are held, whatever arrives; they stand in no budget.

use memchr::memmem::FinderRev;

use super::answer::Collector;
use super::head::is_last;
use super::usage;
use super::value::{Value, value};
use crate::json::Walker;

/// What is kept at least, once so much has come.
const TAIL_BYTES: usize = 16 * 1024;
/// Most that is held.
const TAIL_BYTES_MAX: usize = 2 * TAIL_BYTES;
/// The keys under which documents count their tokens.
const USAGE_KEYS: [&str; 3] = ["\"usage\"", "\"usageMetadata\"", "\"usage_metadata\""];
/// The keys under which messages say why an answer ended.
const REASON_KEYS: [&str; 4] = ["\"finish_reason\"", "\"finishReason\"", "\"stop_reason\"", "\"done_reason\""];
/// Of objects under one key so many are read, from the end: a tool's arguments may hold some, too.
const OBJECTS_MAX: usize = 8;

/// What came last.
#[derive(Default)]
pub(super) struct Tail {
    bytes: Vec<u8>,
    lost: usize,
}

impl Tail {
    /// Takes the next bytes.
    pub(super) fn push(&mut self, more: &[u8]) {
        let beyond = (self.bytes.len() + more.len()).saturating_sub(TAIL_BYTES_MAX);
        if beyond > 0 {
            // Half of it at a time: each byte is moved once.
            let drop = self.bytes.len() + more.len() - TAIL_BYTES;
            let of_held = drop.min(self.bytes.len());
            self.bytes.drain(..of_held);
            self.bytes.extend_from_slice(more.get(drop - of_held..).unwrap_or_default());
            self.lost += drop;
        } else {
            self.bytes.extend_from_slice(more);
        }
    }

    /// Takes what another one holds.
    pub(super) fn follow(&mut self, other: &Self) {
        if other.lost > 0 {
            self.lost += self.bytes.len() + other.lost;
            self.bytes.clear();
        }
        self.push(&other.bytes);
    }

    /// What is held.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes that stood before it and are gone.
    pub(super) const fn lost(&self) -> usize {
        self.lost
    }

    /// Reads what a message says at its end of itself: why the answer ended, and counters that stand at its top.
    pub(super) fn read_end(&self, collector: &mut Collector) {
        for key in REASON_KEYS {
            let Some(Value::Str(reason)) = self.last(key).and_then(|mut walker| value(&mut walker).ok()) else {
                continue;
            };
            collector.finished(0, reason);
            collector.answer.complete |= key == "\"finishReason\"";
        }
        if let Some(Value::Str(name)) = self.last("\"type\"").and_then(|mut walker| value(&mut walker).ok()) {
            collector.answer.complete |= is_last(&name.decode());
        }
        if let Some(Value::Bool(true)) = self.last("\"done\"").and_then(|mut walker| value(&mut walker).ok()) {
            collector.answer.complete = true;
        }
        if let Some(Value::Number(n)) =
            self.last("\"prompt_eval_count\"").and_then(|mut walker| value(&mut walker).ok())
        {
            usage::raise(&mut collector.counters.prompt, n);
        }
        if let Some(Value::Number(n)) = self.last("\"eval_count\"").and_then(|mut walker| value(&mut walker).ok()) {
            usage::raise(&mut collector.counters.completion, n);
        }
        self.read_usage(collector);
    }

    /// Where the value of the last member of this name begins.
    fn last(&self, key: &str) -> Option<Walker<'_>> {
        let at = FinderRev::new(key).rfind(&self.bytes)?;
        let rest = self.bytes.get(at + key.len()..)?.trim_ascii_start().strip_prefix(b":")?;
        let whole = std::str::from_utf8(rest).map_or_else(|fault| fault.valid_up_to(), str::len);
        Walker::new(rest.get(..whole)?).ok()
    }

    /// Reads the counters in it. Inside a text a key's quotes are escaped, so that no text passes for one.
    pub(super) fn read_usage(&self, collector: &mut Collector) {
        for key in USAGE_KEYS {
            for at in FinderRev::new(key).rfind_iter(&self.bytes).take(OBJECTS_MAX) {
                let rest = self.bytes.get(at + key.len()..).unwrap_or_default().trim_ascii_start();
                let Some(object) = rest.strip_prefix(b":") else { continue };
                let whole = std::str::from_utf8(object).map_or_else(|fault| fault.valid_up_to(), str::len);
                let Ok(mut walker) = Walker::new(object.get(..whole).unwrap_or_default()) else { continue };
                if let Ok(Value::Object) = value(&mut walker) {
                    // Cut or broken, it has said what stands before that.
                    usage::read(collector, &mut walker).unwrap_or_default();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn holds_the_end_and_knows_how_much_is_gone(pieces in prop::collection::vec(0_usize..40_000, 1..12)) {
            let mut tail = Tail::default();
            let mut all = Vec::new();
            for (at, length) in pieces.into_iter().enumerate() {
                let piece: Vec<u8> = (0..length).map(|byte| (byte * 7 + at) as u8).collect();
                tail.push(&piece);
                all.extend(piece);
            }
            prop_assert!(tail.bytes().len() <= TAIL_BYTES_MAX);
            prop_assert!(tail.bytes().len() >= all.len().min(TAIL_BYTES));
            prop_assert_eq!(tail.lost() + tail.bytes().len(), all.len());
            prop_assert_eq!(tail.bytes(), &all[tail.lost()..]);
        }
    }
}
