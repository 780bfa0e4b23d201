//! A text that is part of no call, inspected to the end by the thread that asks: what detectors say at once, and what those on the
//! pool say within the time an analysis may take.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_config::Settings;
use weir_config::vocab::Finding;
use weir_inference::{Analyser, Call, Plan, PoolHandle, Scratch};

use super::inspection::{self, Alone, How, Inspection};
use super::models;
use crate::process::plan;

/// How texts are looked at.
pub(crate) struct WholeLook<'a> {
    analyser: &'a Analyser,
    pool: &'a PoolHandle,
    plan: Arc<Plan>,
    limit: Duration,
    text_max: usize,
}

impl<'a> WholeLook<'a> {
    /// Under `settings`, with the models that are loaded now.
    pub(crate) fn new(analyser: &'a Analyser, pool: &'a PoolHandle, settings: &Settings) -> Self {
        Self {
            analyser,
            pool,
            plan: Arc::new(plan(analyser, settings)),
            limit: Duration::from_millis(settings.limits.security_analysis_timeout_ms),
            text_max: settings.security_analysis.max_analysis_text_bytes,
        }
    }

    /// Memory for looks, for as many as there will be.
    pub(crate) fn scratch(&self) -> Scratch {
        self.analyser.scratch()
    }

    /// What is found in `text`; `None` when a detector panicked. Blocks.
    pub(crate) fn findings(&self, scratch: &mut Scratch, text: &Alone<'_>) -> Option<Vec<Finding>> {
        let deadline = Instant::now() + self.limit;
        let call = Call { deadline: Some(deadline), ..Call::of(&self.plan) };
        let how = How { call, text_max: self.text_max };
        let Inspection { mut findings, rest, .. } = inspection::run(self.analyser, scratch, text, &how)?;
        if let Some(Ok((later, _))) = rest.map(|rest| models::wait(self.pool, rest, deadline)) {
            findings.extend(later);
        }
        Some(findings)
    }
}
