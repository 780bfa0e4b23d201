//! Which findings stop an answer, and what its client is told.

use weir_config::vocab::{FINDING_ALLOWED, Finding, Severity};

/// Most finding types a warning names.
const NAMED_MAX: usize = 8;

/// Whether a finding stops an answer.
pub(super) fn is_critical(finding: &Finding) -> bool {
    finding.severity == Severity::Critical && finding.finding_type != FINDING_ALLOWED
}

/// What the client of an answer is told that these findings stop, as `setting` asks for; `None` where they do not.
pub(super) fn warning(findings: &[Finding], setting: &str) -> Option<String> {
    let mut types: Vec<&str> = findings.iter().filter(|found| is_critical(found)).map(|f| &*f.finding_type).collect();
    types.sort_unstable();
    types.dedup();
    types.truncate(NAMED_MAX);
    (!types.is_empty()).then(|| {
        format!(
            "[The gateway withheld the rest of this answer: its analysis found {} (Critical), which `{setting}` stops.]",
            types.join(", ")
        )
    })
}
