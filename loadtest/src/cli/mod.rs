//! Command-line arguments, checked into settings. Everything behind this folder can rely on them.

mod run;
mod servers;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub(super) use run::{RunArgs, Work};
pub(super) use servers::{ProviderArgs, RelayArgs};

/// Weir's load tester: measures LLM gateways beside each other, with a fake provider and a relay that makes faults.
#[derive(Debug, Parser)]
#[command(name = "weir-loadtest", version)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Load one target or several in turn, and report what they did. Without a target: the fake provider itself.
    Run(Box<RunArgs>),
    /// Compare two results. Exit code: 0 nothing is worse, 1 something is or is missing, 2 it could not be done.
    Compare(CompareArgs),
    /// Print a built-in plan as YAML, or the list of them.
    Plan {
        /// Its name.
        name: Option<String>,
    },
    /// Serve a fake LLM provider.
    Provider(ProviderArgs),
    /// Pass connections on to a server, and do to some answers what networks do.
    Relay(RelayArgs),
}

/// Arguments of `compare`.
#[derive(Debug, Args)]
pub(super) struct CompareArgs {
    /// Results before the change, as `run --json` wrote them.
    pub(super) before: PathBuf,
    /// Results after it.
    pub(super) after: PathBuf,
    /// How much worse is still the same: `0.1` or `10%`. A figure is worse when its whole interval is beyond.
    #[arg(long, default_value = "0.1", value_name = "SHARE", value_parser = crate::plan::parse_share)]
    pub(super) threshold: f64,
    /// Cells of the first run may be missing in the second.
    #[arg(long)]
    pub(super) allow_missing: bool,
}
