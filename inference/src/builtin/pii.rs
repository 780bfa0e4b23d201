//! `pii`: personal data, by a linear scanner.

use std::time::Instant;

use crate::candidate::Candidate;
use crate::detector::{CostClass, Detector, Found, Text};
use crate::part::{HITS_MAX, PartKind};
use crate::pii::Scanner;
use crate::rule_matcher::{Outcome, SLICE_BYTES};
use crate::shared_look::SharedLook;
use crate::tuning::Tuning;

#[derive(Debug)]
pub(super) struct Pii;

impl Detector for Pii {
    fn name(&self) -> &'static str {
        "pii"
    }

    fn cost(&self) -> CostClass {
        CostClass::Core
    }

    fn look(&self, text: &Text<'_>, _tuning: &Tuning, found: &mut Found<'_>) {
        let Some(SharedLook { candidates, outcome, .. }) = &mut found.shared else { return };
        find(text, candidates, outcome);
    }
}

/// Runs the PII scanner in slices, until the deadline has passed or there is no room for more.
fn find(text: &Text<'_>, out: &mut Vec<Candidate>, outcome: &mut Outcome) {
    let is_definition = text.kind == PartKind::ToolDefinition;
    let mut scanner = Scanner::new(text.folded);
    let mut limit = SLICE_BYTES;
    loop {
        while let Some(pii) = scanner.next_before(limit) {
            // The application wrote it and sends it with every call: an address in it is an example or its own.
            if is_definition && pii.kind.is_contact() {
                continue;
            }
            out.push(Candidate::pii(pii));
            if out.len() >= HITS_MAX {
                outcome.full = true;
                return;
            }
        }
        if scanner.position() >= text.folded.len() {
            return;
        }
        limit = scanner.position() + SLICE_BYTES;
        if text.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            outcome.cut = true;
            return;
        }
    }
}
