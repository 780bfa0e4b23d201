//! `weir reconcile`: a provider's usage export or bill beside the record. Each difference has a reason, and all of them add up to the whole.

mod amount;
mod bill;
mod csv;
mod record;
mod residual;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use weir_config::vocab::{TenantId, Timestamp};
use weir_storage::RecordReader;

use super::common::{EXIT_USAGE, Options, complain, say};
use super::scan::plain;
use super::traces::{self, Of, TracesError};
use crate::boot::StartError;
use bill::Row;
use residual::{Difference, Outcome, Reason, Residual, compare};

/// A larger export is more than a year of a large customer's by the hour.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Around the times of rows without an end: calls begin before the provider's clock says so.
const AROUND: i64 = 900_000_000;
const NANO_PER_USD: f64 = 1e9;

/// What is held against what.
#[derive(Debug, Clone, Args)]
pub(super) struct ReconcileOptions {
    /// Exports of one provider, JSON or CSV: OpenAI's usage or costs, Anthropic's usage or cost report, or a row for each call with
    /// its id, time, model, tokens and cost. Of the same calls: usage and costs together say more than one of them.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    of: Of,
    /// Only the record's calls of this provider, as it calls it: openai, anthropic, azure_openai, ...
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// US dollars by which a call, or a bucket of a model, may differ and still agrees.
    #[arg(long, value_name = "USD", default_value = "0.000001")]
    tolerance: f64,
    /// One JSON document: both sums, and each residual.
    #[arg(long)]
    json: bool,
}

/// Answers: 0 where both agree, 1 where there are residuals.
pub(super) fn run(from: &Options, options: &ReconcileOptions) -> Result<ExitCode, StartError> {
    let mut rows = Vec::new();
    for path in &options.files {
        match read(path) {
            Ok(read) => rows.extend(read),
            Err(reason) => {
                complain(&plain(&format!("{}: {reason}", path.display())));
                return Ok(ExitCode::from(EXIT_USAGE));
            }
        }
    }
    let done = traces::open(from, &options.of)?.and_then(|record| reconcile(&record, options, &rows));
    Ok(match done {
        Ok(outcome) => {
            if options.json {
                say(&shown(&outcome).to_string())
            } else {
                print(&outcome)
            }
            if is_agreed(&outcome, options) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(fault) => {
            complain(&plain(&fault.to_string()));
            ExitCode::from(EXIT_USAGE)
        }
    })
}

fn read(path: &Path) -> Result<Vec<Row>, String> {
    let file = std::fs::File::open(path).map_err(|error| format!("it cannot be read: {error}"))?;
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| format!("it cannot be read: {error}"))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("it has more than {FILE_BYTES_MAX} bytes; export a shorter time"));
    }
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())?;
    bill::read(&text).map_err(|error| error.to_string())
}

fn reconcile(record: &RecordReader, options: &ReconcileOptions, rows: &[Row]) -> Result<Outcome, TracesError> {
    let tenants: Vec<TenantId> = options.of.tenants(record)?.into_iter().map(|(tenant, _)| tenant).collect();
    let around = |row: &Row| if row.to > row.from { 0 } else { AROUND };
    let from = rows.iter().map(|row| row.from - around(row)).min().unwrap_or(0);
    // What the end names is no part of a bucket.
    let to = rows.iter().map(|row| row.to + around(row) - 1).max().unwrap_or(0);
    let ours = record::read(record, &tenants, (from, to), options.provider.as_deref())?;
    let tolerance = (options.tolerance.max(0.0) * NANO_PER_USD) as i128;
    Ok(compare(rows, &ours, tolerance))
}

/// Whether nothing but amounts within the tolerance is left.
fn is_agreed(outcome: &Outcome, options: &ReconcileOptions) -> bool {
    let tolerance = (options.tolerance.max(0.0) * NANO_PER_USD) as i128;
    let is_small = |residual: &Residual| {
        let Difference { calls, input, output, nano_usd } = residual.difference;
        (calls, input, output) == (0, 0, 0) && nano_usd.abs() <= tolerance
    };
    outcome.residuals.iter().all(is_small)
}

fn print(outcome: &Outcome) {
    let line = |name: &str, model: &str, of: &Difference, says: &str| {
        let usd = amount::shown(of.nano_usd);
        let row =
            format!("{name:<12}  {model:<28} {:>8} {:>14} {:>12} {usd:>14}  {says}", of.calls, of.input, of.output);
        say(plain(row.trim_end()).as_ref());
    };
    say(&format!("{:<12}  {:<28} {:>8} {:>14} {:>12} {:>14}", "", "model", "calls", "input", "output", "USD"));
    line("billed", "", &outcome.theirs, "");
    line("recorded", "", &outcome.ours, "");
    let mut sums: BTreeMap<(Reason, &str), Difference> = BTreeMap::new();
    for residual in &outcome.residuals {
        sums.entry((residual.reason, &residual.model)).or_default().add(&residual.difference);
    }
    for ((reason, model), sum) in &sums {
        line(reason.as_str(), model, sum, reason.says());
    }
    say(&format!("{} of {} calls or buckets agree", outcome.agreed, outcome.compared));
}

fn shown(outcome: &Outcome) -> Value {
    let figures = |of: &Difference| json!({"calls": of.calls, "input_tokens": of.input, "output_tokens": of.output, "usd": of.nano_usd as f64 / NANO_PER_USD});
    let residual = |residual: &Residual| {
        let mut one = figures(&residual.difference);
        if let Some(fields) = one.as_object_mut() {
            fields.insert("reason".to_owned(), json!(residual.reason.as_str()));
            fields.insert("says".to_owned(), json!(residual.reason.says()));
            fields.insert("model".to_owned(), json!(residual.model));
            fields.insert("at".to_owned(), json!(Timestamp::from_micros(residual.at)));
            fields.insert("response_id".to_owned(), json!(residual.id));
            fields.insert("span_id".to_owned(), json!(residual.span));
        }
        one
    };
    json!({
        "billed": figures(&outcome.theirs),
        "recorded": figures(&outcome.ours),
        "compared": outcome.compared,
        "agreed": outcome.agreed,
        "residuals": outcome.residuals.iter().map(residual).collect::<Vec<_>>(),
    })
}
