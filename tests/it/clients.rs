//! Promise: the official clients of Python and Node.js notice no difference, and each of their calls is recorded. The cases are in
//! `tests/clients`; this starts both ends and runs them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::coding_agents::packages;
use crate::support::{Driver, Gateway, Setup, on_both_drivers, provider};

/// The interpreter of a virtual environment with the pinned clients, made on the first call and when the pins change.
pub(crate) fn python() -> PathBuf {
    python_with("requirements.txt")
}

/// The same with the packages that another file of `tests/clients` pins.
pub(crate) fn python_with(pins: &str) -> PathBuf {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let requirements = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(pins);
    let name = if pins == "requirements.txt" { "clients-venv".to_owned() } else { format!("{pins}-venv") };
    let pins = fs::read_to_string(&requirements).unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let (python, stamp) = (folder.join("bin/python"), folder.join("installed.txt"));
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == pins) {
        return python;
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&folder), "install python3 with its venv module");
    let mut install = Command::new(&python);
    install
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"])
        .arg(&requirements);
    run(&mut install, "the clients come from the Python package index; check that it can be reached");
    fs::write(&stamp, pins).unwrap();
    python
}

fn run(command: &mut Command, advice: &str) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}; {advice}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}; {advice}\n{said}", output.status);
}

/// Runs the cases of one file in `tests/clients` against a provider and a gateway before it.
fn run_between(setup: Setup, file: &str) {
    let provider = provider();
    let gateway = setup.upstream(provider.url()).unlimited().start();
    run_cases(&python(), file, &provider.url(), &gateway);
}

/// The same between a provider that the cases ask directly and a gateway.
pub(crate) fn run_cases(python: &Path, file: &str, provider: &str, gateway: &Gateway) {
    run_client(cases(python, file).env("PROVIDER_URL", provider).env("WEIR_URL", gateway.url()));
}

/// A file in `tests/clients`, to be run by an interpreter.
pub(crate) fn cases(python: &Path, file: &str) -> Command {
    let mut command = Command::new(python);
    command.arg("-B").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(file));
    command
}

/// Runs cases, which must all pass; what they print.
pub(crate) fn run_client(command: &mut Command) -> String {
    for proxy in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"] {
        command.env_remove(proxy);
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    println!("{}", said.lines().rev().take(3).collect::<Vec<_>>().join(" "));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

on_both_drivers! {
    #[ignore = "what clients make of an answer does not depend on the driver; .ci/full runs it"]
    fn official_clients_get_the_same_answers_and_leave_traces(driver) {
        run_between(Setup::new(driver), "test_clients.py");
    }

    fn prometheus_own_reader_accepts_the_metrics(driver) {
        run_between(Setup::new(driver).storage("{profile: memory}"), "test_metrics.py");
    }

    #[ignore = "what clients make of an answer does not depend on the driver; .ci/full runs it"]
    fn fifty_streams_at_once_of_every_official_client_are_those_of_direct_calls(driver) {
        run_between(Setup::new(driver).storage("{profile: memory}"), "test_concurrency.py");
    }
}

#[test]
fn official_clients_of_node_get_the_same_answers_and_leave_whole_records() {
    let Some(folder) = packages("node_sdks") else { return };
    let provider = provider();
    let gateway = Setup::new(Driver::Auto).upstream(provider.url()).with("llm_advisory_injection_enabled: false");
    let gateway = gateway.unlimited().start();
    // Packages are looked for from where the script lies.
    let script = folder.join("ask.mjs");
    fs::copy(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/node_sdks/ask.mjs"), &script).unwrap();
    let mut command = Command::new("node");
    command.arg(script).current_dir(&folder).env("PROVIDER_URL", provider.url()).env("WEIR_URL", gateway.url());
    assert_eq!(run_client(&mut command).trim(), "11 calls, each with its record");
}

#[test]
#[ignore = "its hundred and thirty packages take long to install; .ci/full runs it"]
fn frameworks_over_the_clients_leave_whole_records() {
    let provider = provider();
    let gateway = Setup::new(Driver::Auto).upstream(provider.url()).with("llm_advisory_injection_enabled: false");
    let gateway = gateway.unlimited().start();
    let mut command = cases(&python_with("frameworks_pins.txt"), "test_frameworks.py");
    run_client(command.env("WEIR_URL", gateway.url()));
}
