//! `weir migrate` and `weir upgrade --check`: migrations of the database, forward and back.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use weir_config::Settings;
use weir_config::settings::StorageProfile;
use weir_storage::{Migrated, Store, UseClaim};

use super::common::{EXIT_USAGE, Options, complain, say, sources};
use super::scan::{Progress, plain};
use crate::boot::StartError;

#[derive(Debug, Clone, Default, Args)]
pub(super) struct MigrateOptions {
    /// Take the last migration back, so that the former version can use the file. All gateways on it are to be stopped. Where that would
    /// lose records it is refused: then the copy that was made before the migration is the way back (`weir restore`).
    #[arg(long)]
    down: bool,
    /// Copy the record of a database file into the stores of this profile, which the configuration names: spans, tenants, keys, tokens,
    /// reports, verdicts, alerts, the audit log and what was spent. The file stays as it is, and no gateway may use it meanwhile. Called
    /// again, it goes on where it stopped.
    #[arg(long, value_name = "PROFILE", value_parser = ["production"], requires = "from", conflicts_with = "down")]
    to: Option<String>,
    /// The database file of the profile `lite` for --to.
    #[arg(long, value_name = "FILE", requires = "to")]
    from: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(super) struct UpgradeOptions {
    /// Say what would happen, and change nothing.
    #[arg(long, required = true)]
    check: bool,
}

/// Runs the pending migrations, or takes the last one back.
pub(super) fn migrate(from: &Options, options: &MigrateOptions) -> Result<ExitCode, StartError> {
    let settings = weir_config::load(&sources(from))?.settings;
    if let Some(file) = &options.from {
        return copy_over(&settings, file);
    }
    let path = &settings.storage.database_path;
    let shown = path.display();
    match settings.storage.profile {
        StorageProfile::Memory => {
            say("storage.profile is `memory`: nothing to migrate");
            return Ok(ExitCode::SUCCESS);
        }
        StorageProfile::Production if options.down => {
            complain("storage.profile is `production`: its stores are not migrated down; restore their backups");
            return Ok(ExitCode::from(EXIT_USAGE));
        }
        StorageProfile::Production => {
            let Migrated { relational, analytics } = Store::migrate_stores(&crate::boot::stores_of(&settings)?)?;
            say(&format!("relational store: {relational} migration(s) applied; analytics store: {analytics}"));
            return Ok(ExitCode::SUCCESS);
        }
        StorageProfile::Lite => {}
    }
    if options.down {
        if UseClaim::is_used(path).unwrap_or(false) {
            complain(&plain(&format!("{shown}: a gateway uses it; stop all gateways on it first")));
            return Ok(ExitCode::from(EXIT_USAGE));
        }
        let report = Store::migrate_down(path)?;
        let taken = report.applied.join(", ");
        say(&plain(&format!("{shown}: schema version {} to {}: {taken} taken back", report.from, report.to)));
        return Ok(ExitCode::SUCCESS);
    }
    let report = Store::migrate(path, settings.storage.migration_copy)?;
    if report.applied.is_empty() {
        say(&format!("{shown}: up to date at schema version {}", report.to));
    } else {
        say(&format!("{shown}: schema version {} to {}: {}", report.from, report.to, report.applied.join(", ")));
    }
    if let Some(copy) = report.copy {
        say(&plain(&format!("  as it was before: {}", copy.display())));
    }
    Ok(ExitCode::SUCCESS)
}

/// Copies a record into the stores that the settings name.
fn copy_over(settings: &Settings, file: &Path) -> Result<ExitCode, StartError> {
    if settings.storage.profile != StorageProfile::Production {
        complain(
            "--to production: storage.profile has to be `production` in this configuration, with its three stores",
        );
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    let shown = file.display();
    if !file.exists() {
        complain(&plain(&format!("{shown}: there is no such file")));
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    if UseClaim::is_used(file).unwrap_or(false) {
        complain(&plain(&format!("{shown}: a gateway uses it; stop all gateways on it first")));
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    let mut progress = Progress::counting("rows of spans");
    let (mut passed, mut expected) = (0, 0);
    let copied = Store::import(&crate::boot::stores_of(settings)?, file, |done, total| {
        progress.expect(total - expected);
        expected = total;
        progress.advance(done - passed);
        passed = done;
    })?;
    progress.clear();
    if copied.resumed {
        say("it went on where it had stopped");
    }
    for (name, read, there) in copied.rows.iter().filter(|(_, read, _)| *read > 0) {
        say(&format!("{name:<18} {read} in the file, {there} in the relational store"));
    }
    let usd = |nano: i64| format!("{}.{:09} USD", nano / 1_000_000_000, nano % 1_000_000_000);
    let (spans, cost, spent) = (copied.spans, copied.cost_nano_usd, copied.spent_nano_usd);
    say(&format!("{:<18} {} in the file, {} in the analytics store", "spans", spans.0, spans.1));
    say(&format!("{:<18} {} in the file, {} in the analytics store", "cost of spans", usd(cost.0), usd(cost.1)));
    say(&format!("{:<18} {} in the file, {} in the ledger", "budgets' spend", usd(spent.0), usd(spent.1)));
    if !copied.is_whole() {
        complain(&plain(&format!("{shown}: the stores do not have all of it; keep the file, and call this again")));
        return Ok(ExitCode::FAILURE);
    }
    say(&plain(&format!("{shown}: all of it is there")));
    Ok(ExitCode::SUCCESS)
}

/// Says what a start of this version would do to the settings and the database.
pub(super) fn upgrade(from: &Options, options: &UpgradeOptions) -> Result<ExitCode, StartError> {
    // The only thing it does.
    debug_assert!(options.check);
    let loaded = weir_config::load(&sources(from))?;
    say(&format!("ok    version       this is Weir {}", super::version::FULL));
    say("ok    settings      this version reads them");
    for warning in loaded.warnings.iter().chain(&loaded.remarks()) {
        say(&plain(&format!("warn  settings      {warning}")));
    }
    let fits = database(&loaded.settings)?;
    Ok(if fits { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn database(settings: &Settings) -> Result<bool, StartError> {
    let path = &settings.storage.database_path;
    let tell = |level: &str, what: &str| say(&plain(&format!("{level}  database      {}: {what}", path.display())));
    if settings.storage.profile == StorageProfile::Memory {
        say(
            "ok    database      storage.profile is `memory`: there is nothing to migrate, and nothing survives a restart",
        );
        return Ok(true);
    }
    if !path.exists() {
        tell("ok  ", "will be made by the first start");
        return Ok(true);
    }
    let pending = match Store::examine(path, true) {
        Ok(pending) => pending,
        Err(error) => {
            say(&plain(&format!("FAIL  database      {error}")));
            return Ok(false);
        }
    };
    if pending == 0 {
        tell(
            "ok  ",
            "needs no migration: the former version can use it as well, and processes can take over from each other",
        );
        return Ok(true);
    }
    let room = weir_storage::room_beside(path);
    let copies = settings.storage.migration_copy;
    tell(
        "ok  ",
        &format!("{pending} migration(s) will be applied; the former version does not use the file after that"),
    );
    let used = UseClaim::is_used(path).unwrap_or(false);
    if used {
        tell(
            "warn",
            "a gateway uses it now: stop it before this version starts, or let this one take its place (`weir serve --take-over`); beside \
             each other on a migrated file they are not tried",
        );
    }
    match room {
        Some(room) if copies && room.free < room.held => {
            tell(
                "FAIL",
                &format!(
                    "the copy before the migration needs {} bytes, {} are free; make room, or a start migrates without a copy",
                    room.held, room.free
                ),
            );
            return Ok(false);
        }
        Some(room) if copies => tell(
            "ok  ",
            &format!(
                "it is copied before ({} bytes, {} are free): `weir restore {}.schema-<version> --replace` is the way back",
                room.held,
                room.free,
                path.display()
            ),
        ),
        _ if copies => tell("warn", "the free space for the copy before the migration cannot be determined"),
        _ => tell(
            "warn",
            "storage.migration_copy is false: make a backup (`weir backup --to FOLDER`), or there is no way back",
        ),
    }
    if !settings.storage.auto_migrate {
        tell("warn", "storage.auto_migrate is false: run `weir migrate` with this version before it is started");
    }
    Ok(true)
}
