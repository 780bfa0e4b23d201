//! Weir's load tester: a fake provider fast enough not to be the bottleneck, a load generator that accounts for every request, and
//! the comparison of targets that take turns. Shares no parser, framing rule or runtime with the gateway it measures.
//!
//! Invariant: talks to loopback addresses only unless another host is named twice, ends by itself, and never reports a figure that
//! hides a failure: every refused, broken or unexpected answer is counted and makes the exit code 1.

mod arrivals;
mod bodies;
mod cli;
mod connection;
mod corpus;
mod error;
mod fast;
mod frames;
mod hosts;
mod own;
mod plan;
mod process;
mod progress;
mod prose;
mod relay;
mod report;
mod request;
mod results;
mod rounds;
mod run;
mod runtime;
mod sessions;
mod settings;
mod spelling;
mod stream;
mod table;
mod tally;
mod trust;

#[cfg(test)]
mod tests;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser as _;
pub use error::SetupError;
pub use fast::{ProviderSettings, serve};
pub use report::Report;
pub use run::run;
pub use settings::{Arrivals, Mode, Plan, RecordedCall, RequestDialect, Settings};

/// The command line's work. Exit codes: 0 all answers as expected, 1 some were not or something became worse, 2 it could not be done.
pub fn main() -> ExitCode {
    let done = match cli::Cli::parse().command {
        cli::Command::Provider(args) => args.settings().and_then(|settings| serve(settings, announce)).map(|()| 0),
        cli::Command::Relay(args) => relay(args),
        cli::Command::Run(args) => args.work().and_then(measure),
        cli::Command::Compare(args) => compare(&args),
        cli::Command::Plan { name } => plan::shown(name.as_deref()).and_then(|text| print(&text)).map(|()| 0),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // Nowhere is left to report a broken standard error to.
            drop(writeln!(std::io::stderr(), "weir-loadtest: {error}"));
            ExitCode::from(2)
        }
    }
}

fn announce(addr: std::net::SocketAddr) {
    // The process that started the provider waits for this line; if its output is closed, nothing waits.
    drop(writeln!(std::io::stdout(), "listening on {addr}"));
}

fn relay(args: cli::RelayArgs) -> Result<u8, SetupError> {
    let counts = relay::serve(args.settings()?, announce)?;
    print(&format!("{counts}\n")).map(|()| 0)
}

fn measure(work: cli::Work) -> Result<u8, SetupError> {
    match work {
        cli::Work::Once(settings, json) => {
            let report = run(*settings)?;
            if let Some(path) = json {
                let json =
                    serde_json::to_vec_pretty(&report).map_err(|error| SetupError(format!("report: {error}")))?;
                write("--json", &path, &json)?;
            }
            print(&table::render(&report))?;
            Ok(u8::from(report.failed > 0 || report.ok == 0))
        }
        cli::Work::Rounds(plan, wanted) => {
            let results = rounds::perform(*plan, wanted.quiet)?;
            if let Some(path) = &wanted.json {
                // Pairs of numbers by the thousand: a line each would be for nobody.
                let json = serde_json::to_vec(&results).map_err(|error| SetupError(format!("report: {error}")))?;
                write("--json", path, &json)?;
            }
            if let Some(path) = &wanted.html {
                write("--html", path, results::page(&results).as_bytes())?;
            }
            if let Some(path) = &wanted.markdown {
                write("--markdown", path, results::markdown(&results).as_bytes())?;
            }
            print(&results::render(&results))?;
            Ok(u8::from(results.has_failures()))
        }
    }
}

fn compare(args: &cli::CompareArgs) -> Result<u8, SetupError> {
    let terms = results::Terms { threshold: args.threshold, allow_missing: args.allow_missing };
    let (text, is_well) = results::compare(&read_results(&args.before)?, &read_results(&args.after)?, terms)?;
    print(&text)?;
    Ok(u8::from(!is_well))
}

fn read_results(path: &Path) -> Result<results::Results, SetupError> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| SetupError(format!("{shown}: {error}")))?;
    let made = |error| {
        format!("{shown} holds no results ({error}); make them with `weir-loadtest run --rounds 5 --json FILE`")
    };
    let read: results::Results = serde_json::from_str(&text).map_err(|error| SetupError(made(error)))?;
    match read.format == results::FORMAT {
        true => Ok(read),
        false => Err(SetupError(format!("{shown} is `{}`; this program reads `{}`", read.format, results::FORMAT))),
    }
}

fn write(argument: &str, path: &Path, bytes: &[u8]) -> Result<(), SetupError> {
    std::fs::write(path, bytes)
        .map_err(|error| SetupError(format!("{argument} {}: cannot be written: {error}", path.display())))
}

fn print(text: &str) -> Result<(), SetupError> {
    let printed = std::io::stdout().write_all(text.as_bytes());
    printed.map_err(|error| SetupError(format!("standard output: {error}")))
}
