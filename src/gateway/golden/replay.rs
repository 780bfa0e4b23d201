//! Looks at a golden set, and counts.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use weir_config::vocab::score;
use weir_inference::{Part, PartKind, Scratch};

use super::load::Fixture;
use crate::settle::inspection::Alone;
use crate::settle::whole::WholeLook;

/// Score from which a text counts as flagged.
pub const FLAGGED_FROM: u8 = 60;

/// Texts of this category are what a tool brought; all others are what a user wrote.
const BROUGHT_BY_TOOLS: &str = "indirect_injection";

/// What a replay came to.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Report {
    /// The folder that was read.
    pub fixture_root: String,
    /// Texts in it.
    pub total_entries: usize,
    /// One entry per category, by name.
    pub categories: Vec<CategoryReport>,
    /// Attacks that were not flagged and harmless texts that were, by category.
    pub disagreement_ids: Vec<String>,
}

/// The part of one category.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
pub struct CategoryReport {
    /// Its name.
    pub category: String,
    /// Attacks in it.
    pub n_threats: usize,
    /// Those that were flagged.
    pub agreed: usize,
    /// Their share; null where there are no attacks.
    pub alignment_rate: Option<f64>,
    /// Harmless texts in it.
    pub n_benign: usize,
    /// Those that were flagged.
    pub false_positives: usize,
    /// Their share; null where there are no harmless texts.
    pub false_positive_rate: Option<f64>,
}

/// Looks at all texts of a set.
pub(super) fn replay(look: &WholeLook<'_>, root: &Path, fixtures: &[Fixture]) -> Report {
    let mut scratch = look.scratch();
    let mut categories: Vec<CategoryReport> = Vec::new();
    let mut disagreement_ids = Vec::new();
    for fixture in fixtures {
        if categories.last().is_none_or(|last| last.category != fixture.category) {
            categories.push(CategoryReport { category: fixture.category.clone(), ..CategoryReport::default() });
        }
        let flagged = is_flagged(look, &mut scratch, fixture);
        if let Some(category) = categories.last_mut() {
            category.count(fixture.is_threat, flagged);
        }
        if fixture.is_threat != flagged {
            disagreement_ids.push(fixture.id.clone());
        }
    }
    let fixture_root = root.display().to_string();
    Report { fixture_root, total_entries: fixtures.len(), categories, disagreement_ids }
}

/// Whether the gateway would flag the text. One that could not be looked at is not flagged, as in a call.
fn is_flagged(look: &WholeLook<'_>, scratch: &mut Scratch, fixture: &Fixture) -> bool {
    let kind = if fixture.category == BROUGHT_BY_TOOLS { PartKind::Tool } else { PartKind::User };
    let text = Alone { part: Part { text: &fixture.text, kind }, location: &fixture.id };
    look.findings(scratch, &text).is_some_and(|findings| score(&findings) >= FLAGGED_FROM)
}

impl CategoryReport {
    fn count(&mut self, is_threat: bool, flagged: bool) {
        let (there, hits, rate) = match is_threat {
            true => (&mut self.n_threats, &mut self.agreed, &mut self.alignment_rate),
            false => (&mut self.n_benign, &mut self.false_positives, &mut self.false_positive_rate),
        };
        *there += 1;
        *hits += usize::from(flagged);
        *rate = Some(*hits as f64 / *there as f64);
    }
}
