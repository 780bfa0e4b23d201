//! What a replay says: spans that would change, tables by finding type and by agent, and what was not faithful.

use std::io::{BufWriter, Stdout, Write as _};

use serde::Serialize;
use weir_config::vocab::Severity;
use weir_storage::record::SpanRecord;

use super::curve::CurveTable;
use crate::cli::scan::plain;
use crate::replay::{Change, Tally, Unasked};

/// What is printed.
pub(super) struct Report {
    out: BufWriter<Stdout>,
    json: bool,
    list: bool,
}

#[derive(Serialize)]
struct JsonChange<'a> {
    kind: &'static str,
    trace_id: String,
    span_id: String,
    agent_id: Option<&'a str>,
    start_time: String,
    #[serde(flatten)]
    change: &'a Change,
}

#[derive(Serialize)]
struct JsonSummary<'a> {
    kind: &'static str,
    #[serde(flatten)]
    tally: &'a Tally,
}

impl Report {
    pub(super) fn new(json: bool, list: bool) -> Self {
        Self { out: BufWriter::new(std::io::stdout()), json, list }
    }

    /// A span that would change.
    pub(super) fn change(&mut self, span: &SpanRecord, change: &Change) {
        if self.json {
            return self.json(&JsonChange {
                kind: "change",
                trace_id: span.trace_id.to_string(),
                span_id: span.span_id.to_string(),
                agent_id: span.agent_id.as_deref(),
                start_time: span.start_time.to_string(),
                change,
            });
        }
        if !self.list {
            return;
        }
        let types = change.findings.iter().map(|(finding_type, seen)| {
            let said = |severity: Option<Severity>| severity.map_or("-", Severity::as_str);
            format!("{finding_type} {} -> {}", said(seen.before), said(seen.after))
        });
        let decision = (change.decision_before != change.decision_after)
            .then(|| format!("enforcement {} -> {}", change.decision_before, change.decision_after));
        let all: Vec<String> = types.chain(decision).collect();
        self.say(&format!("{}  {}  {}", span.start_time, span.trace_id, all.join(", ")));
    }

    /// What each threshold would come to.
    pub(super) fn curve(&mut self, table: &CurveTable) {
        if self.json {
            return self.json(table);
        }
        for line in table.lines() {
            self.say(&line);
        }
    }

    /// The last words.
    pub(super) fn end(&mut self, tally: &Tally) {
        if self.json {
            self.json(&JsonSummary { kind: "summary", tally });
        } else {
            self.types(tally);
            self.agents(tally);
            for (lack, count) in &tally.lacks {
                self.say(&format!("not faithful  {count} of {} spans: {}", tally.spans, lack.in_words()));
            }
            for (detector, count) in &tally.not_replayed {
                self.say(&format!("not replayed  {count} findings of `{detector}`"));
            }
            for Unasked { name, what } in &tally.not_asked {
                self.say(&format!("not asked  `{name}`: {what}"));
            }
            let Tally { spans, compared, changed, .. } = tally;
            self.say(&format!("{spans} spans, {compared} compared, {changed} would change"));
        }
        // A closed pipe is no error: the reader has seen enough.
        drop(self.out.flush());
    }

    fn types(&mut self, tally: &Tally) {
        if tally.by_type.is_empty() {
            return;
        }
        self.row("finding type", ["before", "after", "new", "gone", "severity", ""].map(str::to_owned));
        for (name, of) in &tally.by_type {
            let counts = [of.spans_before, of.spans_after, of.new, of.gone, of.severity_changed];
            let [a, b, c, d, e] = counts.map(|count| count.to_string());
            self.row(name, [a, b, c, d, e, String::new()]);
        }
        self.say("");
    }

    fn agents(&mut self, tally: &Tally) {
        if tally.by_agent.is_empty() {
            return;
        }
        self.row("agent", ["spans", "changed", "blocked", "then", "flagged", "then"].map(str::to_owned));
        for (name, of) in &tally.by_agent {
            let counts =
                [of.spans, of.changed, of.blocked_before, of.blocked_after, of.flagged_before, of.flagged_after];
            let name = if name.is_empty() { "(none named)" } else { name };
            self.row(name, counts.map(|count| count.to_string()));
        }
        self.say("");
    }

    fn row(&mut self, name: &str, cells: [String; 6]) {
        let cells: String = cells.iter().map(|cell| format!(" {cell:>9}")).collect();
        self.say(format!("{name:<28}{cells}").trim_end());
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
