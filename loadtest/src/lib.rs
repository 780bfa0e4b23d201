//! Weir's load tester: a fake provider fast enough not to be the bottleneck, and a load generator that accounts for
//! every request. Shares no parser, framing rule or runtime with the gateway it measures.
//!
//! Invariant: talks to loopback addresses only, ends by itself, and never reports a figure that hides a failure: every
//! refused, broken or unexpected answer is counted and makes the exit code 1.

mod arrivals;
mod bodies;
mod cli;
mod connection;
mod error;
mod fast;
mod frames;
mod process;
mod prose;
mod report;
mod request;
mod run;
mod runtime;
mod sessions;
mod table;
mod tally;

#[cfg(test)]
mod tests;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
pub use cli::{Arrivals, Mode, Plan, RequestDialect, Settings};
pub use error::SetupError;
pub use fast::{ProviderSettings, serve};
pub use report::Report;
pub use run::run;

/// The command line's work. Exit codes: 0 all answers as expected, 1 some were not, 2 it could not be done.
pub fn main() -> ExitCode {
    let done = match cli::Cli::parse().command {
        cli::Command::Provider(args) => args.settings().and_then(|settings| serve(settings, announce)).map(|()| 0),
        cli::Command::Run(args) => measure(args),
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

fn measure(args: cli::RunArgs) -> Result<u8, SetupError> {
    let (settings, json_path) = args.settings()?;
    let report = run(settings)?;
    if let Some(path) = json_path {
        let json = serde_json::to_vec_pretty(&report).map_err(|error| SetupError(format!("report: {error}")))?;
        std::fs::write(&path, json)
            .map_err(|error| SetupError(format!("--json {}: cannot be written: {error}", path.display())))?;
    }
    let printed = std::io::stdout().write_all(table::render(&report).as_bytes());
    printed.map_err(|error| SetupError(format!("standard output: {error}")))?;
    Ok(u8::from(report.failed > 0 || report.ok == 0))
}
