//! What the store knows already of the traces of a batch: which spans stand there, and which of them have counted what was used.

use std::collections::{HashMap, HashSet};

use weir_config::vocab::{SpanId, TenantId, TraceId};
use weir_storage::{ReadError, SpanLog};

use super::span::ReportedSpan;

/// Steps from a span to the root of its trace that are followed.
const DEPTH_MAX: usize = 64;

/// What is known of the traces of one tenant.
#[derive(Default)]
pub(super) struct Known {
    looked_up: HashSet<TraceId>,
    stored: HashSet<SpanId>,
    /// The span around each span.
    parents: HashMap<(TraceId, SpanId), SpanId>,
    /// The spans around one that has counted its tokens, and which that is.
    covered: HashMap<(TraceId, SpanId), SpanId>,
}

impl Known {
    /// Looks up the traces of these spans.
    pub(super) fn look_up<'a>(
        &mut self,
        log: &dyn SpanLog,
        tenant: TenantId,
        spans: impl Iterator<Item = &'a ReportedSpan> + Clone,
    ) -> Result<(), ReadError> {
        for span in spans.clone() {
            if let Some(parent) = span.parent_span_id {
                self.parents.insert((span.trace_id, span.span_id), parent);
            }
        }
        for span in spans {
            if self.looked_up.insert(span.trace_id) {
                self.read(log, tenant, span.trace_id)?;
            }
        }
        Ok(())
    }

    fn read(&mut self, log: &dyn SpanLog, tenant: TenantId, trace: TraceId) -> Result<(), ReadError> {
        let stored = match log.trace(tenant, trace) {
            Ok(Some(stored)) => stored,
            // A trace too large to be read at once has its repetitions told apart by the store alone.
            Ok(None)
            | Err(ReadError::TooLarge { .. } | ReadError::RecordTooLarge { .. } | ReadError::TimedOut { .. }) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        for span in &stored.spans {
            self.stored.insert(span.span_id);
            if let Some(parent) = span.parent_span_id {
                self.parents.insert((trace, span.span_id), parent);
            }
        }
        for span in &stored.spans {
            if span.prompt_tokens.is_some() || span.completion_tokens.is_some() {
                self.count(trace, span.span_id);
            }
        }
        Ok(())
    }

    /// Whether the span is kept already. From now on it is.
    pub(super) fn is_repeated(&mut self, span: SpanId) -> bool {
        !self.stored.insert(span)
    }

    /// This span has counted what it used: those around it report the same again.
    pub(super) fn count(&mut self, trace: TraceId, span: SpanId) {
        let mut at = span;
        for _ in 0..DEPTH_MAX {
            let Some(parent) = self.parents.get(&(trace, at)) else { return };
            at = *parent;
            if self.covered.insert((trace, at), span).is_some() {
                return;
            }
        }
    }

    /// The span that has counted what this one reports, if there is one.
    pub(super) fn counted_by(&self, trace: TraceId, span: SpanId) -> Option<SpanId> {
        self.covered.get(&(trace, span)).copied()
    }
}
