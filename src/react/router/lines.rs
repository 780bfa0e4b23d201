//! The action `log`: a line for each call with findings, ten a second; the rest is summed up.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use weir_storage::record::SpanRecord;

/// Lines in each [`PERIOD`].
const LINES_MAX: u32 = 10;
const PERIOD: Duration = Duration::from_secs(1);
/// Finding types a line names.
const TYPES_MAX: usize = 8;

/// How many lines were written lately.
#[derive(Default)]
pub(super) struct Lines {
    since: Option<Instant>,
    written: u32,
    left_out: u64,
}

impl Lines {
    /// A line about `span`, if there is room for one. Names of types may be strangers' text, so they are quoted.
    pub(super) fn write(&mut self, span: &SpanRecord) {
        if !self.has_room(Instant::now()) {
            self.left_out += 1;
            return;
        }
        let types: BTreeSet<&str> = span.security_findings.iter().map(|finding| &*finding.finding_type).collect();
        let types: Vec<&str> = types.into_iter().take(TYPES_MAX).collect();
        let worst = span.security_findings.iter().map(|finding| finding.severity).max();
        tracing::warn!(
            trace_id = %span.trace_id,
            tenant = %span.tenant_id,
            findings = span.security_findings.len(),
            worst = worst.map(tracing::field::display),
            score = span.security_score,
            ?types,
            "a call has findings"
        );
    }

    /// Whether a line may be written at `now`; tells how many were left out when a new period begins.
    fn has_room(&mut self, now: Instant) -> bool {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= PERIOD) {
            if self.left_out > 0 {
                tracing::warn!(calls = self.left_out, "more calls had findings than lines are written about");
            }
            *self = Self { since: Some(now), written: 0, left_out: 0 };
        }
        self.written += 1;
        self.written <= LINES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_lines_a_second_and_no_more() {
        let (mut lines, begin) = (Lines::default(), Instant::now());
        let room = |lines: &mut Lines, ms: u64| lines.has_room(begin + Duration::from_millis(ms));
        assert_eq!((0..25).filter(|_| room(&mut lines, 0)).count(), 10);
        assert!(!room(&mut lines, 999));
        assert!(room(&mut lines, 1_000));
    }
}
