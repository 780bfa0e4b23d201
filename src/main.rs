//! The `weir` binary: reads the command line and runs what it says.

use std::process::ExitCode;

fn main() -> ExitCode {
    weir::cli::run()
}
