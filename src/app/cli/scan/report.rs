//! What a scan says: findings as they are found, what was not read, and a summary.
//!
//! Invariant: evidence is what the gateway would store, so no credential and no personal value in the clear; control characters of
//! names and texts never reach the terminal.

use std::collections::BTreeMap;
use std::io::{BufWriter, Stdout, Write as _};

use serde::Serialize;
use weir_config::vocab::{Finding, Severity, Unread};

/// Where something is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Where<'a> {
    pub(super) file: &'a str,
    /// Line of a text, from 1.
    pub(super) line: Option<u64>,
    /// Number of a JSON record, from 1.
    pub(super) record: Option<u64>,
}

/// What is printed.
pub(super) struct Report {
    out: BufWriter<Stdout>,
    json: bool,
    min_severity: Severity,
    shown: u64,
    pub(super) totals: Totals,
}

/// What was read and found.
#[derive(Debug, Default, Serialize)]
pub(super) struct Totals {
    pub(super) files: u64,
    pub(super) texts: u64,
    pub(super) bytes: u64,
    findings: BTreeMap<Severity, u64>,
    /// Why something was not read, and how often.
    not_read: BTreeMap<&'static str, u64>,
    pub(super) errors: u64,
}

#[derive(Serialize)]
struct JsonFinding<'a> {
    kind: &'static str,
    file: &'a str,
    line: Option<u64>,
    record: Option<u64>,
    location: &'a str,
    finding_type: &'a str,
    severity: Severity,
    confidence: f64,
    detector: &'a str,
    description: &'a str,
    evidence: &'a str,
    span: Option<[usize; 2]>,
    metadata: &'a BTreeMap<String, String>,
}

impl Totals {
    /// The worst that was found.
    pub(super) fn worst(&self) -> Option<Severity> {
        self.findings.keys().next_back().copied()
    }
}

impl Report {
    pub(super) fn new(json: bool, min_severity: Severity) -> Self {
        let out = BufWriter::new(std::io::stdout());
        Self { out, json, min_severity, shown: 0, totals: Totals::default() }
    }

    pub(super) fn finding(&mut self, at: Where<'_>, finding: &Finding) {
        *self.totals.findings.entry(finding.severity).or_default() += 1;
        if finding.severity < self.min_severity {
            return;
        }
        self.shown += 1;
        if self.json {
            return self.json(&JsonFinding {
                kind: "finding",
                file: at.file,
                line: at.line,
                record: at.record,
                location: &finding.location,
                finding_type: &finding.finding_type,
                severity: finding.severity,
                confidence: finding.confidence,
                detector: &finding.detector,
                description: &finding.description,
                evidence: &finding.evidence,
                span: finding.span.map(|span| [span.start, span.end]),
                metadata: &finding.metadata,
            });
        }
        let Finding { finding_type, severity, confidence, detector, description, location, evidence, .. } = finding;
        let place =
            format!("{}{}", spell(at), if location.is_empty() { String::new() } else { format!(" {location}") });
        self.say(&format!("{:<8}  {finding_type:<21}  {confidence:.2}  {detector:<9}  {place}", severity.as_str()));
        let colon = if evidence.is_empty() { "" } else { ": " };
        self.say(&format!("          {description}{colon}{evidence}"));
    }

    /// Something was not read, or not whole.
    pub(super) fn not_read(&mut self, at: Where<'_>, reason: &'static str) {
        *self.totals.not_read.entry(reason).or_default() += 1;
        if self.json {
            let Where { file, record, .. } = at;
            return self
                .json(&serde_json::json!({"kind": "not_read", "file": file, "record": record, "reason": reason}));
        }
        self.say(&format!("not read  {:<21}  {}: {}", reason, spell(at), in_words(reason)));
    }

    /// The last words.
    pub(super) fn end(&mut self) {
        let Totals { files, texts, bytes, findings, not_read, errors } = &self.totals;
        let total: u64 = findings.values().sum();
        if self.json {
            let summary = serde_json::json!({
                "kind": "summary", "files": files, "texts": texts, "bytes": bytes, "findings": findings,
                "not_read": not_read, "errors": errors,
            });
            self.json(&summary);
        } else {
            let worst_first = findings.iter().rev().map(|(severity, count)| format!("{severity} {count}"));
            let mut said = format!(
                "{}, {}, {}: {}",
                several(*files, "file"),
                several(*texts, "text"),
                several(*bytes, "byte"),
                counted(total, "finding", worst_first)
            );
            if total > self.shown {
                said.push_str(&format!("; {} below --min-severity not shown", total - self.shown));
            }
            let lost: u64 = not_read.values().sum();
            if lost > 0 {
                let reasons = not_read.iter().map(|(reason, count)| format!("{reason} {count}"));
                said.push_str(&format!("; not read or not whole: {}", counted(lost, "", reasons)));
            }
            if *errors > 0 {
                said.push_str(&format!("; {}", several(*errors, "error")));
            }
            self.say(&said);
        }
        self.flush();
    }

    /// Shows what has been said; before anything is written to standard error.
    pub(super) fn flush(&mut self) {
        // A closed pipe is no error: the reader has seen enough.
        drop(self.out.flush());
    }

    fn json(&mut self, value: &impl Serialize) {
        if serde_json::to_writer(&mut self.out, value).is_ok() {
            drop(self.out.write_all(b"\n"));
        }
    }

    fn say(&mut self, line: &str) {
        drop(writeln!(self.out, "{}", plain(line)));
    }
}

/// Text without control characters, and without those that turn the direction of a line or end it, for a terminal: what follows them
/// would be shown where it does not stand.
pub(in crate::app::cli) fn plain(text: &str) -> String {
    let steers = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}' | '\u{feff}')
            || ('\u{e0000}'..='\u{e007f}').contains(&c)
    };
    text.chars().map(|c| if steers(c) { '\u{FFFD}' } else { c }).collect()
}

fn spell(at: Where<'_>) -> String {
    let number = at.line.or(at.record);
    number.map_or_else(|| at.file.to_owned(), |number| format!("{}:{number}", at.file))
}

fn several(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn counted(total: u64, what: &str, parts: impl Iterator<Item = String>) -> String {
    let parts: Vec<String> = parts.collect();
    let total = if what.is_empty() { total.to_string() } else { several(total, what) };
    if parts.is_empty() { total } else { format!("{total} ({})", parts.join(", ")) }
}

/// Why something was not read, beside the words of the gateway.
pub(super) const NOT_A_FILE: &str = "not_a_file";
pub(super) const NO_FIELD: &str = "no_such_field";
pub(super) const TIMEOUT: &str = "analyzer_timeout";
pub(super) const FAILED: &str = "analyzer_error";
pub(super) const MODELS: &str = "models_not_run";

fn in_words(reason: &str) -> &'static str {
    match Unread::ALL.into_iter().find(|known| known.as_str() == reason) {
        Some(Unread::BinaryPart) => "an image, a sound or another file in it was passed by",
        Some(Unread::FilePart) => "a file in its form was passed by",
        Some(Unread::MediaType) => "a binary file",
        Some(Unread::TokenIds) => "tokens that are given as numbers",
        Some(Unread::WebSocket) => "the traffic of a tunnel",
        Some(Unread::TruncatedForModels) => "more than models are given",
        Some(Unread::Truncated) => "only its beginning was looked at, or not every rule was tried on all of it",
        Some(Unread::UnreadableBody) => "not what it claims to be; its bytes were looked at as one text",
        None => match reason {
            NOT_A_FILE => "a symbolic link or a special file, not followed",
            NO_FIELD => "no record in it has the field that --field names",
            TIMEOUT => "`security_analysis_timeout_ms` was over before all of it had been looked at",
            FAILED => "a detector failed on it",
            _ => "models run in the gateway only",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_a_terminal_turns_no_direction() {
        let shown = plain("a\u{202e}b\u{2066}c\u{200f}d\u{1b}[1m\u{2028}e\u{e0041} é\u{200d}");
        assert_eq!(shown, "a\u{fffd}b\u{fffd}c\u{fffd}d\u{fffd}[1m\u{fffd}e\u{fffd} é\u{200d}");
    }
}
