//! The command line, with one file per command that does more than a few lines.
//!
//! Invariant: results go to standard output, complaints to standard error; the exit code is 0 for yes, 1 for
//! no, 2 for a command line that makes no sense or input that cannot be read; a start that fails ends with [`crate::boot::StartError::exit_code`].

mod alerts;
mod backup;
mod common;
mod db;
#[cfg(feature = "demo")]
mod demo;
mod doctor;
mod judge;
mod models;
mod receipts;
mod reconcile;
mod replay;
mod rules;
mod scan;
mod serve;
mod settings;
mod traces;
mod tune;
mod upgrade;
mod version;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use self::common::{Options, complain, print_bytes, say};
#[cfg(feature = "demo")]
use self::demo::DemoOptions;
use self::serve::ServeOptions;
use self::settings::PrintFormat;
use crate::boot::Extensions;

#[cfg(feature = "demo")]
macro_rules! see_it_work {
    () => {
        "weir demo                              see it work, nothing leaves the machine"
    };
}

/// Packages for servers hold no demonstration; the wheel and the npm package do.
#[cfg(not(feature = "demo"))]
macro_rules! see_it_work {
    () => {
        "uvx weir demo (or npx weir demo)       see it work, nothing leaves the machine; not in this build"
    };
}

/// LLM egress gateway: a transparent proxy that records, scores and limits every LLM call.
///
/// Without a command it runs the gateway. Settings come from a YAML file (--config), from SERVICE_* variables and from
/// built-in defaults; `weir config print` shows what is in effect and why, `weir doctor` whether this machine allows it.
#[derive(Debug, Parser)]
#[command(name = "weir", version = version::FULL, arg_required_else_help = false, disable_help_subcommand = true)]
#[command(
    after_help = concat!("First steps:\n  ", see_it_work!(), "\n  \
                        weir check --config service.yaml       are the settings right?\n  \
                        weir doctor --config service.yaml      is this machine right for them?\n  \
                        weir --config service.yaml             run\n\n\
                        Signals: SIGTERM or SIGINT stop (a second one at once). SIGHUP reads upstreams, routes and their keys, flags,\n  \
                        prices, certificates and own rules again, and names every change: in force, or at the next start.\n\n\
                        Exit codes: 0 yes or a clean stop, 1 no or a stop that lost something, 2 the command line or input cannot be\n  \
                        read, 70 an internal error, 75 try again (port in use, store cannot be written), 78 a setting or a file that\n  \
                        it names has to be changed.")
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    options: Options,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the gateway (the default).
    Serve(ServeOptions),
    /// Check the settings and the files they name, and exit: 0 when a start would accept them.
    Check,
    /// Show the settings in effect, or describe them all.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Examine this machine for the configured gateway: kernel, limits, database, provider, exposure. 0 when nothing
    /// fails.
    Doctor,
    /// Run the pending migrations of the database and exit, or take the last one back.
    Migrate(upgrade::MigrateOptions),
    /// Say what an upgrade to this version does to the settings and the database.
    Upgrade(upgrade::UpgradeOptions),
    /// Copy the database, and the key and flags beside it, while gateways run; verified.
    Backup(backup::BackupOptions),
    /// Put a backup back.
    Restore(backup::RestoreOptions),
    /// Examine the database file.
    #[command(subcommand)]
    Db(db::DbCommand),
    /// See Weir at work: a fake provider, the gateway in front of it, a handful of calls, and the traces they left.
    #[cfg(feature = "demo")]
    Demo(DemoOptions),
    /// Say what the gateway would find in files, directories or standard input, without running it.
    Scan(scan::ScanOptions),
    /// Look up the rules behind the findings, and try them.
    #[command(subcommand)]
    Rules(rules::RulesCommand),
    /// Read the record in the terminal: list traces, show conversations, follow calls, export.
    #[command(subcommand)]
    Traces(traces::TracesCommand),
    /// Write the record to a file or standard output, as JSON Lines or CSV (the same as `weir traces export`).
    Export(traces::ExportOptions),
    /// Hold a provider's usage export or bill against the record: each difference has a reason. 0 where both agree.
    Reconcile(reconcile::ReconcileOptions),
    /// Make the key of signed receipts, write receipts to a file, and check them without a gateway.
    #[command(subcommand)]
    Receipts(receipts::ReceiptsCommand),
    /// Look at recorded calls once more under these settings and rules, and say what would change. Writes nothing; may run beside
    /// the gateway.
    Replay(replay::ReplayOptions),
    /// Propose settings of detection that keep the alarms on recorded calls within a share. Writes nothing.
    Tune(tune::TuneOptions),
    /// Try the configured channels of alerts.
    #[command(subcommand)]
    Alerts(alerts::AlertsCommand),
    /// Try the configured judge.
    #[command(subcommand)]
    Judge(judge::JudgeCommand),
    /// List, fetch and verify ONNX models.
    #[command(subcommand)]
    Models(models::ModelsCommand),
    /// Print the version.
    Version,
    /// Print a completion script, e.g. `weir completions bash > /etc/bash_completion.d/weir`.
    Completions {
        /// The shell it is for.
        #[arg(value_enum)]
        shell: CompletionShell,
    },
    /// Print the manual page, e.g. `weir man | man -l -`.
    Man,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Print every setting in effect with the layer it comes from, secrets masked.
    Print {
        /// yaml for people, json for programs: {"config", "sources"}.
        #[arg(long, value_enum, default_value = "yaml")]
        format: PrintFormat,
    },
    /// Print a JSON Schema (2020-12) of the configuration file, for editors.
    Schema,
}

/// Shells with a completion script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum CompletionShell {
    Bash,
    Zsh,
    Fish,
}

/// Runs the command line this process was started with.
pub fn run() -> ExitCode {
    run_with(std::env::args_os(), Extensions::default())
}

/// Runs the command line `args`, the program's name first, in a gateway with `extensions`.
pub fn run_with(args: impl IntoIterator<Item = OsString>, extensions: Extensions) -> ExitCode {
    let cli = Cli::parse_from(args);
    let outcome = match cli.command.unwrap_or(Command::Serve(ServeOptions::default())) {
        Command::Serve(how) => serve::run(&cli.options, &how, extensions),
        Command::Check => settings::check(&cli.options),
        Command::Config(ConfigCommand::Print { format }) => settings::print(&cli.options, format),
        Command::Config(ConfigCommand::Schema) => Ok(settings::schema()),
        Command::Doctor => Ok(doctor::run(&cli.options)),
        Command::Migrate(how) => upgrade::migrate(&cli.options, &how),
        Command::Upgrade(how) => upgrade::upgrade(&cli.options, &how),
        Command::Backup(options) => backup::run(&cli.options, &options),
        Command::Restore(options) => backup::restore(&cli.options, &options),
        Command::Db(command) => db::run(&cli.options, &command),
        #[cfg(feature = "demo")]
        Command::Demo(options) => demo::run(&options),
        Command::Scan(options) => scan::run(&cli.options, &options, extensions),
        Command::Rules(command) => rules::run(&cli.options, &command),
        Command::Traces(command) => traces::run(&cli.options, &command),
        Command::Export(options) => traces::run(&cli.options, &traces::TracesCommand::Export(options)),
        Command::Reconcile(options) => reconcile::run(&cli.options, &options),
        Command::Receipts(command) => receipts::run(&cli.options, &command),
        Command::Replay(options) => replay::run(&cli.options, &options, extensions),
        Command::Tune(options) => tune::run(&cli.options, &options, extensions),
        Command::Alerts(command) => alerts::run(&cli.options, &command),
        Command::Judge(command) => judge::run(&cli.options, &command, extensions),
        Command::Models(command) => models::run(&cli.options, &command),
        Command::Version => {
            say(&format!("weir {}", version::FULL));
            Ok(ExitCode::SUCCESS)
        }
        Command::Completions { shell } => Ok(completions(shell)),
        Command::Man => Ok(manual()),
    };
    outcome.unwrap_or_else(|error| {
        complain(&error.to_string());
        ExitCode::from(error.exit_code())
    })
}

fn completions(shell: CompletionShell) -> ExitCode {
    let shell = match shell {
        CompletionShell::Bash => Shell::Bash,
        CompletionShell::Zsh => Shell::Zsh,
        CompletionShell::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "weir", &mut script);
    print_bytes(&script)
}

/// The page of the binary and, behind it, those of its commands.
fn manual() -> ExitCode {
    let mut command = Cli::command();
    command.build();
    let mut page = Vec::new();
    let rendered = clap_mangen::Man::new(command.clone()).render(&mut page);
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
    let sections = commands.map(|command| clap_mangen::Man::new(command.clone()).render(&mut page));
    match rendered.and(sections.collect()) {
        Ok(()) => print_bytes(&page),
        // Writing into memory does not fail.
        Err(_) => ExitCode::FAILURE,
    }
}
