//! One look at a recorded call, under settings and rules that need not be those in force.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_config::Settings;
use weir_inference::{Analyser, Call, Plan, Scratch};
use weir_storage::record::SpanRecord;

use super::tally::{Lack, Look, lacks};
use crate::process::plan_at_leisure;
use crate::settle::inspection::{self, How, Inspection};
use crate::settle::recorded::Recorded;

/// What looks, and the memory it works in.
pub(crate) struct Looker<'a> {
    settings: &'a Settings,
    analyser: &'a Analyser,
    plan: Arc<Plan>,
    scratch: Scratch,
}

impl<'a> Looker<'a> {
    pub(crate) fn new(settings: &'a Settings, analyser: &'a Analyser) -> Self {
        Self { settings, analyser, plan: Arc::new(plan_at_leisure(analyser, settings)), scratch: analyser.scratch() }
    }

    /// Looks at a call within the time that an analysis may take. Models of the operator's are not asked: what is left to them stays
    /// unsaid.
    pub(crate) fn look(&mut self, span: &SpanRecord) -> Look {
        let limit = Duration::from_millis(self.settings.limits.security_analysis_timeout_ms);
        let call = Call {
            plan: &self.plan,
            tenant: span.tenant_id,
            agent: span.agent_id.as_deref(),
            deadline: Some(Instant::now() + limit),
        };
        let how = How { call, text_max: self.settings.security_analysis.max_analysis_text_bytes };
        let mut again = inspection::run(self.analyser, &mut self.scratch, &Recorded(span), &how);
        again.iter_mut().for_each(|seen| inspection::look_again(self.analyser, &mut self.scratch, seen));
        let Some(Inspection { findings, ran, rest, text_bytes, .. }) = again else {
            return Look { findings: Vec::new(), lacks: vec![Lack::Failed] };
        };
        let mut lacks = lacks(span, text_bytes);
        for (missed, lack) in [
            (ran.cut, Lack::Timeout),
            (ran.failed, Lack::Failed),
            (ran.full || ran.verify_cap_reached || ran.skipped, Lack::Cut),
            (rest.is_some() || !ran.second_stage_skipped.is_empty(), Lack::Models),
        ] {
            if missed {
                lacks.push(lack);
            }
        }
        Look { findings, lacks }
    }
}
