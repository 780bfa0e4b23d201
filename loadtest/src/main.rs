//! The `weir-loadtest` command: `provider` serves a fake LLM provider, `run` measures a target.

use std::process::ExitCode;

fn main() -> ExitCode {
    weir_loadtest::main()
}
