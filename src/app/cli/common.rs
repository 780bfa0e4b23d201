//! What all commands share: where settings come from, exit codes, and output.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use weir_config::Sources;

/// Exit code of a command line that makes no sense, and of a file that cannot be read.
pub(super) const EXIT_USAGE: u8 = 2;

/// Where settings come from.
#[derive(Debug, Clone, Args)]
pub(super) struct Options {
    /// Configuration file (YAML). Without one the built-in defaults apply. [env: SERVICE_CONFIG]
    #[arg(long, value_name = "FILE", global = true)]
    pub(super) config: Option<PathBuf>,
    /// Where flags changed at run time are kept. [env: SERVICE_RUNTIME_CONFIG] [default: config.runtime.yaml beside the
    /// configuration file]
    #[arg(long, value_name = "FILE", global = true)]
    pub(super) runtime_config: Option<PathBuf>,
    /// Log level: trace, debug, info, warn or error. RUST_LOG wins over it. [env: SERVICE_LOG_LEVEL]
    #[arg(long, value_name = "LEVEL", global = true)]
    pub(super) log_level: Option<String>,
    /// Log format: text, or json for one object per line. [env: SERVICE_LOG_FORMAT]
    #[arg(long, value_name = "FORMAT", global = true)]
    pub(super) log_format: Option<String>,
}

/// Prints a whole document. A closed pipe is no error: the reader has seen enough.
pub(super) fn print_bytes(bytes: &[u8]) -> ExitCode {
    drop(std::io::stdout().write_all(bytes));
    ExitCode::SUCCESS
}

/// Prints one line for the user. A closed pipe is no error: the reader has seen enough.
pub(super) fn say(line: &str) {
    drop(writeln!(std::io::stdout(), "{line}"));
}

pub(super) fn complain(message: &str) {
    drop(writeln!(std::io::stderr(), "weir: {message}"));
}

pub(super) fn sources(options: &Options) -> Sources {
    Sources {
        config: options.config.clone(),
        runtime_config: options.runtime_config.clone(),
        env: std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect(),
        log_level: options.log_level.clone(),
        log_format: options.log_format.clone(),
    }
}
