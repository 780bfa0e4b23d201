//! A text that is part of no call, inspected to the end by the thread that asks: what detectors say at once, and what those on the
//! pool say within the time an analysis may take.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use weir_config::Settings;
use weir_config::vocab::Finding;
use weir_inference::{Analyser, Call, Job, Later, Plan, PoolHandle, Scratch, Turn, Work};

use super::inspection::{self, Alone, How, Inspection, Rest};
use crate::process::plan;

/// How texts are looked at.
pub(crate) struct WholeLook<'a> {
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
        findings.extend(rest.and_then(|rest| self.ask_models(rest, deadline)).unwrap_or_default());
        Some(findings)
    }

    fn ask_models(&self, rest: Rest, deadline: Instant) -> Option<Vec<Finding>> {
        let (tell, told) = mpsc::channel();
        let (lane, tenant, bytes) = (rest.lane(), rest.later().tenant(), rest.later().bytes());
        let work = Box::new(Asked { rest, tell });
        self.pool.submit(Job { lane, tenant, bytes, deadline, work }).ok()?;
        told.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
    }
}
