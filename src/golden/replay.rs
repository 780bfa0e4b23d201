//! Looks at a golden set, and counts.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;
use weir_config::Settings;
use weir_config::vocab::{Finding, score};
use weir_inference::{Analyser, Call, Job, Later, Part, PartKind, Plan, PoolHandle, Scratch, Turn, Work};

use super::load::Fixture;
use crate::process::plan;
use crate::settle::inspection::{self, Alone, How, Inspection, Rest};

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

/// How texts are looked at.
pub(super) struct Looking<'a> {
    analyser: &'a Analyser,
    pool: &'a PoolHandle,
    plan: Arc<Plan>,
    limit: Duration,
    text_max: usize,
}

/// What is left to models, on its way to them and back.
struct Asked {
    rest: Rest,
    tell: mpsc::Sender<Vec<Finding>>,
}

impl Work for Asked {
    fn run(self: Box<Self>, turn: Turn<'_>) {
        let Turn::Seen(seen) = turn else { return };
        // Whoever asked may have given up.
        drop(self.tell.send(self.rest.findings(seen).0));
    }

    fn rest(&self) -> Option<&Later> {
        Some(self.rest.later())
    }
}

impl<'a> Looking<'a> {
    pub(super) fn new(analyser: &'a Analyser, pool: &'a PoolHandle, settings: &Settings) -> Self {
        Self {
            analyser,
            pool,
            plan: Arc::new(plan(analyser, settings)),
            limit: Duration::from_millis(settings.limits.security_analysis_timeout_ms),
            text_max: settings.security_analysis.max_analysis_text_bytes,
        }
    }

    pub(super) fn replay(&self, root: &Path, fixtures: &[Fixture]) -> Report {
        let mut scratch = self.analyser.scratch();
        let mut categories: Vec<CategoryReport> = Vec::new();
        let mut disagreement_ids = Vec::new();
        for fixture in fixtures {
            if categories.last().is_none_or(|last| last.category != fixture.category) {
                categories.push(CategoryReport { category: fixture.category.clone(), ..CategoryReport::default() });
            }
            let flagged = self.is_flagged(&mut scratch, fixture);
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
    fn is_flagged(&self, scratch: &mut Scratch, fixture: &Fixture) -> bool {
        let kind = if fixture.category == BROUGHT_BY_TOOLS { PartKind::Tool } else { PartKind::User };
        let deadline = Instant::now() + self.limit;
        let call = Call { deadline: Some(deadline), ..Call::of(&self.plan) };
        let how = How { call, text_max: self.text_max };
        let text = Alone { part: Part { text: &fixture.text, kind }, location: &fixture.id };
        let Some(Inspection { mut findings, rest, .. }) = inspection::run(self.analyser, scratch, &text, &how) else {
            return false;
        };
        findings.extend(rest.and_then(|rest| self.ask_models(rest, deadline)).unwrap_or_default());
        score(&findings) >= FLAGGED_FROM
    }

    fn ask_models(&self, rest: Rest, deadline: Instant) -> Option<Vec<Finding>> {
        let (tell, told) = mpsc::channel();
        let (lane, tenant, bytes) = (rest.lane(), rest.later().tenant(), rest.later().bytes());
        let work = Box::new(Asked { rest, tell });
        self.pool.submit(Job { lane, tenant, bytes, deadline, work }).ok()?;
        told.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
    }
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
