//! What an agent says it did: commands, addresses and files worth a second look.
//!
//! | finding | looked for |
//! |---|---|
//! | `dangerous_command` | destruction, remote code, reverse shells, privileges, covering of tracks |
//! | `suspicious_url` | metadata services, disguised hosts, drop boxes and tunnels, risky schemes |
//! | `sensitive_file_access` | credentials, keys, system accounts, other processes' memory |
//!
//! Commands are split as a shell would split them, so that `echo "rm -rf /"` and a commit message about it are what they
//! are, and `bash -c`, `$(...)` and pipes are followed. Invariants: pure, linear in the text and bounded besides (`bounds`;
//! where one is met, a finding says so), at most [`FINDINGS_MAX`] findings, one per rule. Knows nothing of who
//! reported the action.

mod arguments;
mod bounds;
mod command;
mod path;
mod pruned;
mod remote;
mod shell;
#[cfg(test)]
mod tests;
mod url;

use std::time::Instant;

use weir_config::vocab::{Finding, Severity};

use self::bounds::Bounds;
use crate::evidence;

pub use self::bounds::TEXT_BYTES_MAX;

/// Findings of one action at most.
pub const FINDINGS_MAX: usize = 32;
/// How deep commands inside commands are followed.
const DEPTH_MAX: u8 = 4;
/// Name of this detector in findings.
const DETECTOR: &str = "actions";

/// What kind of thing was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActionKind {
    /// A tool or skill was called; what its arguments are is told by their names.
    Tool,
    /// A command was run.
    Command,
    /// An address was visited.
    Web,
    /// A file was read or written.
    File,
}

/// An action to look at.
#[derive(Debug, Clone, Copy)]
pub struct Action<'a> {
    /// What kind.
    pub kind: ActionKind,
    /// Tool, command, address or file.
    pub name: &'a str,
    /// Arguments: JSON, or bare text.
    pub arguments: Option<&'a str>,
    /// Whether a file access changed the file.
    pub writes: bool,
}

/// What is to be said about `action`; `location` tells whether the name or the arguments showed it. When `deadline` has
/// passed, or a bound is met, the rest is left out and the last finding says so.
pub fn check(action: &Action<'_>, deadline: Option<Instant>) -> Vec<Finding> {
    let mut found = Found { list: Vec::new(), location: "", bounds: Bounds::new(deadline) };
    arguments::look(action, &mut found);
    found.finish()
}

/// One thing that was recognised.
#[derive(Debug, Clone, Copy)]
struct Sign {
    finding_type: &'static str,
    /// Identifies the rule, in metadata.
    rule: &'static str,
    severity: Severity,
    confidence: f64,
    description: &'static str,
}

/// Collects findings, each rule once, and keeps account of how much is still to be looked at.
#[derive(Debug)]
struct Found {
    list: Vec<Finding>,
    location: &'static str,
    bounds: Bounds,
}

impl Found {
    fn add(&mut self, sign: Sign, evidence: &str) {
        let known = |finding: &Finding| finding.metadata.get("rule").is_some_and(|rule| rule.as_str() == sign.rule);
        if self.list.iter().any(known) {
            return;
        }
        if self.list.len() >= FINDINGS_MAX - 1 {
            // The last place is kept for saying so.
            self.bounds.cut();
            return;
        }
        self.push(sign, evidence);
    }

    fn push(&mut self, sign: Sign, evidence: &str) {
        let mut finding = Finding::new(sign.finding_type, sign.severity, sign.confidence, DETECTOR, sign.description);
        finding.location = self.location.to_owned();
        finding.evidence = evidence::excerpt(evidence, 0, evidence.len(), &[]);
        finding.metadata.insert("rule".to_owned(), sign.rule.to_owned());
        self.list.push(finding);
    }

    fn finish(mut self) -> Vec<Finding> {
        if let Some(sign) = self.bounds.sign() {
            self.push(sign, "");
        }
        self.list
    }
}
