//! `weir doctor`: can the configured gateway run on this machine?
//!
//! One line each: `ok`, `warn` or `FAIL`, what was looked at, what was found and what to do. Nothing is changed: a
//! temporary file beside the database and the overlay shows whether their folders take files, and is removed again. The
//! provider, and receivers of alerts, are connected to and greeted by TLS, but not asked or told anything. Invariant:
//! the exit code is 1 exactly if a line says FAIL.

mod alerts;
mod choice;
mod cores;
mod diagnosis;
mod files;
mod host;
mod network;

use std::process::ExitCode;

use weir_config::Loaded;

use self::diagnosis::{Diagnosis, Level};
use super::common::{Options, say, sources};
use crate::ops::log;

/// Examines everything and prints what was found.
pub(super) fn run(options: &Options) -> ExitCode {
    let mut diagnoses = Vec::new();
    let mut tell = |diagnosis: Diagnosis| {
        say(&diagnosis.to_string());
        diagnoses.push(diagnosis);
    };
    match weir_config::load(&sources(options)) {
        Ok(loaded) => examine(&loaded, &mut tell),
        Err(error) => {
            for violation in &error.violations {
                tell(Diagnosis::fail("settings", violation.to_string()));
            }
            host::machine(None).into_iter().chain(cores::placement(None)).for_each(&mut tell);
        }
    }
    let count = |level| diagnoses.iter().filter(|diagnosis| diagnosis.level == level).count();
    say(&format!("ok: {}, warnings: {}, failures: {}", count(Level::Ok), count(Level::Warn), count(Level::Fail)));
    if count(Level::Fail) == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn examine(loaded: &Loaded, tell: &mut impl FnMut(Diagnosis)) {
    let settings = &loaded.settings;
    let from = loaded.config_file.as_ref().map_or("built-in defaults".to_owned(), |file| file.display().to_string());
    for warning in loaded.warnings.iter().chain(&loaded.remarks()) {
        tell(Diagnosis::warn("settings", warning.clone()));
    }
    match log::check_filter(&settings.logging.filter) {
        Ok(()) => tell(Diagnosis::ok("settings", from)),
        Err(error) => tell(Diagnosis::fail("settings", error.to_string())),
    }
    if let Some(advice) = crate::ops::store::breaker_advice(settings) {
        tell(Diagnosis::warn("breaker", advice));
    }
    host::machine(Some(settings)).into_iter().chain(cores::placement(Some(settings))).for_each(&mut *tell);
    identity(loaded).into_iter().for_each(&mut *tell);
    files(loaded).into_iter().for_each(&mut *tell);
    network::listeners(settings).into_iter().for_each(&mut *tell);
    tell(network::exposure(settings));
    network::blocking(settings).into_iter().for_each(&mut *tell);
    tell(network::patience(settings));
    choice::choice(settings).into_iter().for_each(&mut *tell);
    network::upstreams(settings).into_iter().for_each(&mut *tell);
    alerts::channels(settings).into_iter().for_each(tell);
}

/// Authentication settings that contradict each other; `weir check` looks at them, too.
pub(super) fn identity(loaded: &Loaded) -> Vec<Diagnosis> {
    loaded.alarms.iter().map(|alarm| Diagnosis::fail("identity", alarm.clone())).collect()
}

/// Addresses in use; `weir check` shows them, too, and is often run beside a gateway that uses them.
pub(super) fn taken_addresses(loaded: &Loaded) -> Vec<Diagnosis> {
    network::taken(&loaded.settings)
}

/// The files and folders the settings name; `weir check` looks at them, too.
pub(super) fn files(loaded: &Loaded) -> Vec<Diagnosis> {
    files::all(loaded)
}
