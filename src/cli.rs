//! The command line.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use weir_config::settings::StorageProfile;
use weir_config::{Loaded, Sources};

use crate::boot::{self, Gateway, StartError};
use crate::meter::Registry;
use crate::ops::log;

/// Exit code when the settings or the environment do not allow a start (sysexits.h EX_CONFIG).
const EXIT_CONFIG: u8 = 78;

/// LLM egress gateway: a transparent proxy that records, scores and limits every LLM call.
#[derive(Debug, Parser)]
#[command(name = "weir", version, arg_required_else_help = false, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    options: Options,
}

/// Where settings come from.
#[derive(Debug, Clone, Args)]
struct Options {
    /// Configuration file (YAML). Without one the built-in defaults apply. [env: SERVICE_CONFIG]
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Runtime overlay with hot-swapped flags. [env: SERVICE_RUNTIME_CONFIG]
    #[arg(long, value_name = "FILE", global = true)]
    runtime_config: Option<PathBuf>,
    /// Log level: trace, debug, info, warn or error. RUST_LOG wins over it.
    #[arg(long, value_name = "LEVEL", global = true)]
    log_level: Option<String>,
    /// Log format: text or json.
    #[arg(long, value_name = "FORMAT", global = true)]
    log_format: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway (the default).
    Serve,
    /// Check the settings and exit: 0 when every one of them is valid.
    Check,
    /// Run the pending migrations of the database and exit.
    Migrate,
    /// See Weir at work: a fake provider, the gateway in front of it, a handful of calls, and the traces they left.
    Demo(DemoOptions),
    /// Print the version.
    Version,
}

/// Options of `weir demo`.
#[derive(Debug, Clone, Args)]
pub struct DemoOptions {
    /// End after printing the traces instead of staying up.
    #[arg(long)]
    pub once: bool,
    /// Keep the database at this path instead of a temporary one.
    #[arg(long, value_name = "FILE")]
    pub database: Option<PathBuf>,
}

/// Runs the command line this process was started with.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match cli.command.unwrap_or(Command::Serve) {
        Command::Serve => serve(&cli.options),
        Command::Check => check(&cli.options),
        Command::Migrate => migrate(&cli.options),
        Command::Demo(options) => crate::demo::run(&options),
        Command::Version => {
            say(&format!("weir {}", env!("CARGO_PKG_VERSION")));
            Ok(ExitCode::SUCCESS)
        }
    };
    outcome.unwrap_or_else(|error| {
        complain(&error.to_string());
        ExitCode::from(EXIT_CONFIG)
    })
}

/// Prints one line for the user. A closed pipe is nobody's loss.
pub(crate) fn say(line: &str) {
    drop(writeln!(std::io::stdout(), "{line}"));
}

fn complain(message: &str) {
    drop(writeln!(std::io::stderr(), "weir: {message}"));
}

fn sources(options: &Options) -> Sources {
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

fn serve(options: &Options) -> Result<ExitCode, StartError> {
    let loaded = weir_config::load(&sources(options))?;
    let registry = Arc::new(Registry::new());
    let _log = log::init(&loaded.settings.logging, Arc::clone(registry.shared()))?;
    // Registered before anything is started: a signal during the start must not be lost.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])
        .map_err(|source| StartError::Thread { what: "the signal handler", source })?;
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    let gateway = boot::start(loaded.clone(), registry)?;
    banner(&loaded, &gateway);
    let signal = signals.forever().find(|signal| match *signal {
        SIGHUP => {
            gateway.reload();
            false
        }
        _ => true,
    });
    tracing::info!(
        signal,
        limit_s = loaded.settings.shutdown_timeout_seconds,
        "stopping; a second signal exits at once"
    );
    second_signal_exits()?;
    let clean = gateway.stop();
    tracing::info!(clean, "stopped");
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// From now on a signal ends the process without further ado.
fn second_signal_exits() -> Result<(), StartError> {
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::new(std::sync::atomic::AtomicBool::new(true)))
            .map_err(|source| StartError::Thread { what: "the signal handler", source })?;
    }
    Ok(())
}

/// Says what is on, what is off, and what a reader should know before traffic comes.
fn banner(loaded: &Loaded, gateway: &Gateway) {
    let settings = &loaded.settings;
    let upstream = &settings.upstream;
    let scheme = match upstream.scheme {
        weir_config::settings::Scheme::Http => "http",
        weir_config::settings::Scheme::Https => "https",
    };
    let storage = match settings.storage.profile {
        StorageProfile::Lite => settings.storage.database_path.display().to_string(),
        StorageProfile::Memory => "memory (lost on restart)".to_owned(),
    };
    let on_off = |on: bool| if on { "on" } else { "off" };
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        listen = %gateway.addr(),
        upstream = format!("{scheme}://{}{}", upstream.authority, upstream.path_prefix),
        cores = gateway.cores(),
        io = %gateway.mode(),
        storage,
        "weir is ready"
    );
    tracing::info!(
        authentication = on_off(settings.auth.enabled),
        analysis = on_off(settings.enable_security_analysis),
        trace_storage = on_off(settings.enable_trace_storage),
        streaming = on_off(settings.enable_streaming),
        advisory = on_off(settings.llm_advisory_injection_enabled),
        rate_limit = on_off(settings.rate_limiting.enabled),
        circuit_breaker = on_off(settings.circuit_breaker.enabled),
        enforcement = ?settings.enforcement.mode,
        fails_open = "analysis (queue full, timeout), storage (queue full, breaker open)",
        "features"
    );
    if let Some(proxy) = &settings.egress.proxy {
        tracing::info!(proxy = proxy.authority(), named_by = proxy.variable, "the provider is reached through a proxy");
    }
    if !loaded.not_built_defaults.is_empty() {
        tracing::info!(missing = loaded.not_built_defaults.join(", "), "on by default but not built into this version");
    }
    if !settings.auth.enabled && !gateway.addr().ip().is_loopback() {
        tracing::warn!(
            listen = %gateway.addr(),
            "authentication is off and the listener is reachable from outside: any client can send traffic, read every \
             tenant's traces and claim any tenant id; set `auth.enabled: true`, or listen on 127.0.0.1"
        );
    }
}

fn check(options: &Options) -> Result<ExitCode, StartError> {
    let loaded = weir_config::load(&sources(options))?;
    for warning in &loaded.warnings {
        say(&format!("warning: {warning}"));
    }
    let file =
        loaded.config_file.as_ref().map_or_else(|| "built-in defaults".to_owned(), |file| file.display().to_string());
    say(&format!("{file}: ok"));
    Ok(ExitCode::SUCCESS)
}

fn migrate(options: &Options) -> Result<ExitCode, StartError> {
    let loaded = weir_config::load(&sources(options))?;
    match loaded.settings.storage.profile {
        StorageProfile::Memory => say("storage.profile is `memory`: nothing to migrate"),
        StorageProfile::Lite => {
            let report = weir_storage::Store::migrate(&loaded.settings.storage.database_path)?;
            let path = loaded.settings.storage.database_path.display();
            if report.applied.is_empty() {
                say(&format!("{path}: up to date at schema version {}", report.to));
            } else {
                say(&format!("{path}: schema version {} to {}: {}", report.from, report.to, report.applied.join(", ")));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
