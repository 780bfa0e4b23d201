//! The zones of a request as texts of their own: what is said in them is said by strangers, whoever hands it in.
//!
//! Invariant: a zone never hides what the scan of the whole message finds; of two findings of one thing the one that knows of
//! the zone stays, unless it takes the thing for less.

use std::borrow::Cow;
use std::collections::BTreeMap;

use weir_config::vocab::{ByteSpan, Finding, Severity};
use weir_inference::{Hit, Part, PartKind};

use crate::inspect::RequestView;

/// The zones that detectors are to look at.
pub(super) fn parts(view: &RequestView) -> impl Iterator<Item = Part<'_>> {
    let zones = view.zones.as_deref().filter(|zones| zones.scanned);
    zones
        .into_iter()
        .flat_map(|zones| &zones.list)
        .map(|zone| Part { text: view.text.get(zone.range.clone()).unwrap_or_default(), kind: PartKind::Tool })
}

/// What a zone says of a stretch of its part.
struct Said {
    start: usize,
    end: usize,
    finding_type: Cow<'static, str>,
    severity: Severity,
    confidence: f64,
}

/// Types that are `indirect_injection` when a stranger wrote them.
const ORDERS: [&str; 6] =
    ["prompt_injection", "role_injection", "prompt_extraction", "synonym_injection", "jailbreak", "indirect_injection"];

impl Said {
    /// Whether it says of this stretch what the finding says, and no less.
    fn covers(&self, span: ByteSpan, finding: &Finding) -> bool {
        let same = self.finding_type == finding.finding_type
            || (self.finding_type == "indirect_injection" && ORDERS.contains(&&*finding.finding_type));
        let no_less = self.severity >= finding.severity && self.confidence >= finding.confidence;
        same && no_less && self.start < span.end && span.start < self.end
    }
}

/// Takes out of `hits` what a zone says as well. Parts from `from` on are zones; `place` tells the part of a zone and where it
/// begins there.
pub(super) fn settle(hits: &mut Vec<Hit>, from: usize, place: impl Fn(usize) -> Option<(usize, usize)>) {
    let mut said: BTreeMap<usize, Vec<Said>> = BTreeMap::new();
    for Hit { part, finding } in hits.iter().filter(|hit| hit.part >= from) {
        let (Some((part, shift)), Some(span)) = (place(*part), finding.span) else { continue };
        said.entry(part).or_default().push(Said {
            start: span.start + shift,
            end: span.end + shift,
            finding_type: finding.finding_type.clone(),
            severity: finding.severity,
            confidence: finding.confidence,
        });
    }
    if said.is_empty() {
        return;
    }
    hits.retain(|Hit { part, finding }| {
        let (Some(said), Some(span)) = (said.get(part), finding.span) else { return true };
        !said.iter().any(|said| said.covers(span, finding))
    });
}
