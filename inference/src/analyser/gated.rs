//! The gate before detectors that are asked about some texts alone.

use super::{Analyser, Scratch, is_mention, is_order, place};
use crate::clean::Name;
use crate::detector::{Found, Text};
use crate::detector_set::DetectorSet;
use crate::fold::TEXT_MAX;
use crate::gate::{FirstLook, Gate, Skips, is_addressed};
use crate::part::{HITS_MAX, Hit, Part};
use crate::plan::Call;
use crate::signals::Signals;

/// What comes of it.
#[derive(Debug, Default)]
pub(super) struct Gated {
    /// Detectors that do not look at the text.
    pub(super) kept_out: DetectorSet,
    /// Those of them that had looked at it before.
    pub(super) known: DetectorSet,
    pub(super) skips: Skips,
    /// What the gate was asked with, for those that look.
    pub(super) first: Option<FirstLook>,
    /// What those said.
    pub(super) heard: Signals,
    /// They have reported something.
    pub(super) reported: bool,
}

/// What is remembered of a text in which nothing was found.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// What the second stage left out of it.
    pub(super) skips: Skips,
    /// Detectors behind the gate that have looked at it.
    pub(super) looked: DetectorSet,
}

impl Gated {
    /// The name under which a text is remembered in which nothing was found.
    pub(super) fn name(&self, name: Name) -> Name {
        match self.skips {
            skips if skips.is_empty() => name,
            Skips::LENGTH => name.read_in_part(),
            _ => name.passed_over(),
        }
    }
}

impl Analyser {
    /// What is remembered of a text, if that spares a look: what was passed over is looked at again where one of the `gated` detectors may
    /// have time for it. Without that, each turn of a conversation would have all such texts looked at from the beginning, and passed over.
    pub(super) fn known(&self, name: Name, bytes: usize, gated: DetectorSet, call: &Call<'_>) -> Option<Known> {
        if self.clean.has(name) {
            return Some(Known::default());
        }
        if gated.is_empty() {
            return None;
        }
        if self.clean.has(name.read_in_part()) {
            return Some(Known { skips: Skips::LENGTH, looked: gated });
        }
        let mut detectors = gated.indices().filter_map(|number| Some((number, self.detectors.get(number)?)));
        let spares = self.clean.has(name.passed_over())
            && !detectors.any(|(number, detector)| detector.has_time(bytes, &call.plan.tuning(number)));
        spares.then(|| Known { skips: Skips::BUDGET, looked: DetectorSet::default() })
    }

    /// Asks those of `later` that look at some texts alone whether this is one. What they know of it stands before the last
    /// `doubtful` of `out`, of which those from `before` on are about this text.
    pub(super) fn pass_gate(
        &self,
        scratch: &Scratch,
        (index, part): (usize, &Part<'_>),
        (call, later): (&Call<'_>, DetectorSet),
        (before, doubtful): (usize, usize),
        out: &mut Vec<Hit>,
    ) -> Gated {
        let mut gated = Gated::default();
        let asked = later & call.plan.gated();
        if asked.is_empty() {
            return gated;
        }
        let raw = part.text.get(..part.text.floor_char_boundary(TEXT_MAX)).unwrap_or_default();
        let folded = scratch.folded.bytes(raw);
        let words = scratch.score.map(|score| score.logits);
        let hits = out.get(before..).unwrap_or_default();
        let signs = Signals::of(hits, part.kind, words);
        let sure = hits.get(..hits.len() - doubtful).unwrap_or_default().iter().map(|hit| &hit.finding);
        let first = FirstLook {
            words,
            suspected: signs.high.max(signs.medium).max(signs.low) > 0.0,
            reported: sure.clone().filter(|finding| is_order(finding)).map(|finding| finding.severity).max(),
            quoted: sure.clone().any(is_mention) && !sure.clone().any(is_order),
            addressed: is_addressed(folded, part.kind),
            tenant: call.tenant,
        };
        let text = Text {
            raw,
            kind: part.kind,
            folded,
            decoded: &[],
            suspect: first.suspected,
            context: "",
            deadline: call.deadline,
            folding: Some(&scratch.folded),
            words: None,
            tenant: call.tenant,
            first: Some(first),
        };
        gated.first = Some(first);
        for number in asked.indices() {
            let Some(detector) = self.detectors.get(number) else { continue };
            let mut found = Found::default();
            let gate = detector.gate(&text, &first, &call.plan.tuning(number), &mut found);
            if gate != Gate::Look {
                gated.kept_out |= DetectorSet::only(number);
            }
            if gate == Gate::Known {
                gated.known |= DetectorSet::only(number);
            }
            gated.skips.add(found.second_stage_skipped);
            gated.heard = gated.heard.with(&found.heard);
            for (range, finding) in found.said {
                if out.len() < HITS_MAX {
                    gated.reported = true;
                    let at = out.len() - doubtful;
                    out.insert(at, place(index, part.text, range, finding, &scratch.hidden));
                }
            }
        }
        gated
    }
}
