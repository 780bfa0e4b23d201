//! `weir check` and `weir config`: the settings before anything runs.

use std::process::ExitCode;

use clap::ValueEnum;

use super::common::{Options, say, sources};
use super::doctor;
use crate::boot::StartError;
use crate::ops::log;
use crate::ops::store::breaker_advice;

/// How `weir config print` writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum PrintFormat {
    Yaml,
    Json,
}

/// Says whether a start would accept the settings and the files they name.
pub(super) fn check(options: &Options) -> Result<ExitCode, StartError> {
    let loaded = weir_config::load(&sources(options))?;
    log::check_filter(&loaded.settings.logging.filter)?;
    let breaker = breaker_advice(&loaded.settings).map(str::to_owned);
    for warning in loaded.warnings.iter().chain(&loaded.remarks()).chain(&breaker) {
        say(&format!("warning: {warning}"));
    }
    let mut findings = doctor::identity(&loaded);
    findings.extend(doctor::files(&loaded));
    findings.extend(doctor::taken_addresses(&loaded));
    let failures = findings.iter().filter(|finding| finding.is_failure()).count();
    let file =
        loaded.config_file.as_ref().map_or_else(|| "built-in defaults".to_owned(), |file| file.display().to_string());
    say(&match failures {
        0 => format!("{file}: ok"),
        1 => format!("{file}: the settings can be read, but one line below says FAIL: Weir would not start"),
        _ => format!("{file}: the settings can be read, but {failures} lines below say FAIL: Weir would not start"),
    });
    findings.iter().for_each(|finding| say(&finding.to_string()));
    Ok(if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints the settings in effect.
pub(super) fn print(options: &Options, format: PrintFormat) -> Result<ExitCode, StartError> {
    let loaded = weir_config::load(&sources(options))?;
    match format {
        PrintFormat::Yaml => say(weir_config::described(&loaded).trim_end()),
        PrintFormat::Json => {
            let all = serde_json::json!({ "config": weir_config::effective(&loaded), "sources": loaded.origins });
            say(&format!("{all:#}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the schema of the configuration file.
pub(super) fn schema() -> ExitCode {
    say(&format!("{:#}", weir_config::schema()));
    ExitCode::SUCCESS
}
