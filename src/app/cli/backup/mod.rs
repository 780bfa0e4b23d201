//! `weir backup`: a copy of the database and of what cannot be made again beside it, taken while gateways run, verified, as a folder or as
//! one file. `weir restore` puts one back.
//!
//! Invariants: what is not whole never has a backup's name; everything in a backup is named in its manifest with its length and digest, and
//! what is not in it is named there with the reason; older backups go only when a new one is there and verified.

mod archive;
mod files;
mod manifest;
mod restore;
mod rotation;

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use weir_config::Loaded;
use weir_config::settings::StorageProfile;
use weir_config::vocab::Timestamp;

pub(super) use self::restore::{RestoreOptions, run as restore};

use self::files::{copy_file, digest_of};
use self::manifest::{Entry, LeftOut, MANIFEST, Manifest, Role};
use super::common::{EXIT_USAGE, Options, complain, say, sources};
use super::scan::{Progress, plain};
use crate::boot::{StartError, token_key_file};

/// Options of `weir backup`.
#[derive(Debug, Clone, Args)]
pub(super) struct BackupOptions {
    /// Where the backup goes: a folder, in which it gets a name of its own by the time, or a file that ends in `.tar`.
    #[arg(long, value_name = "FOLDER|FILE.tar")]
    to: PathBuf,
    /// In a folder: how many backups stay there, this one among them. 0 keeps all.
    #[arg(long, value_name = "COUNT", default_value = "7")]
    keep: usize,
    /// Leave out the key of tenant tokens and provider keys, and that of receipts. Without the former a restored gateway knows no token
    /// and none of tenants' own provider keys, and the backup lets nobody in.
    #[arg(long)]
    without_key: bool,
    /// Do not examine the copy's rows and indexes; its digest is compared all the same.
    #[arg(long)]
    unexamined: bool,
}

/// Why there is no backup, or nothing was restored.
#[derive(Debug, thiserror::Error)]
pub(super) enum BackupError {
    #[error("storage.profile is `memory`: there is no file; nothing survives the process")]
    InMemory,
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{0}")]
    Store(#[from] weir_storage::OpenError),
    #[error("{}: {what}", path.display())]
    NotWhole { path: PathBuf, what: String },
    #[error("{}: another backup is being made there", .0.display())]
    Busy(PathBuf),
    #[error("{0}")]
    Refused(String),
}

impl BackupError {
    fn io(path: &Path, source: std::io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }

    fn not_whole(path: &Path, what: impl Into<String>) -> Self {
        Self::NotWhole { path: path.to_owned(), what: what.into() }
    }

    fn exit_code(&self) -> ExitCode {
        match self {
            Self::InMemory | Self::Refused(_) => ExitCode::from(EXIT_USAGE),
            _ => ExitCode::FAILURE,
        }
    }
}

/// Says what became of it, and gives the exit code.
fn end(done: Result<String, BackupError>) -> ExitCode {
    match done {
        Ok(said) => {
            said.lines().for_each(|line| say(&plain(line)));
            ExitCode::SUCCESS
        }
        Err(error) => {
            complain(&plain(&error.to_string()));
            error.exit_code()
        }
    }
}

/// Makes a backup.
pub(super) fn run(from: &Options, options: &BackupOptions) -> Result<ExitCode, StartError> {
    let loaded = weir_config::load(&sources(from))?;
    Ok(end(make(&loaded, options)))
}

fn make(loaded: &Loaded, options: &BackupOptions) -> Result<String, BackupError> {
    if loaded.settings.storage.profile == StorageProfile::Memory {
        return Err(BackupError::InMemory);
    }
    let database = &loaded.settings.storage.database_path;
    if !database.is_file() {
        return Err(BackupError::Refused(format!("{}: there is no database yet", database.display())));
    }
    let is_file = options.to.extension().is_some_and(|end| end == "tar") && !options.to.is_dir();
    let folder = if is_file { files::folder_of(&options.to) } else { options.to.clone() };
    if !folder.exists() {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&folder).map_err(|error| BackupError::io(&folder, error))?;
    }
    let _alone = rotation::lock(&folder)?;
    rotation::sweep(&folder)?;
    let now = Timestamp::now();
    let partial = folder.join(rotation::partial(now));
    fs::DirBuilder::new().mode(0o700).create(&partial).map_err(|error| BackupError::io(&partial, error))?;
    let made = fill(&partial, loaded, options, now).and_then(|manifest| {
        let place = if is_file {
            archive::pack(&partial, &manifest, &options.to)?;
            options.to.clone()
        } else {
            let place = rotation::free_name(&folder, now);
            fs::rename(&partial, &place).map_err(|error| BackupError::io(&place, error))?;
            place
        };
        files::sync_folder(&folder)?;
        Ok((manifest, place))
    });
    if partial.exists() {
        // Where it cannot be removed the next backup tries again.
        drop(fs::remove_dir_all(&partial));
    }
    let (manifest, place) = made?;
    let removed = if is_file || options.keep == 0 { 0 } else { rotation::keep(&folder, options.keep)? };
    Ok(told(&manifest, &place, removed))
}

/// Puts everything into an empty folder, the manifest last.
fn fill(folder: &Path, loaded: &Loaded, options: &BackupOptions, now: Timestamp) -> Result<Manifest, BackupError> {
    let (settings, mut entries, mut left_out) = (&loaded.settings, Vec::new(), Vec::new());
    let database = &settings.storage.database_path;
    let copy = folder.join(Role::Database.file());
    let mut progress = Progress::new();
    let mut told = 0;
    let copied = weir_storage::copy(database, &copy, &mut |done, total| {
        if told == 0 {
            progress.expect(total);
        }
        progress.advance(done.saturating_sub(told));
        told = done;
    })?;
    progress.clear();
    entries.push(entry(&copy, Role::Database)?);
    // The key behind the database: a token that is in the copy was made with it.
    match token_key_file(settings) {
        Some(_) if options.without_key => left_out.push(LeftOut::new(Role::TokenKey, "--without-key")),
        Some(key) if key.exists() => entries.push(take(&key, folder, Role::TokenKey)?),
        _ => left_out.push(LeftOut::new(Role::TokenKey, "there is none: no token has been issued")),
    }
    let signing = settings.receipts.key_file(database);
    match options.without_key {
        true if signing.exists() => left_out.push(LeftOut::new(Role::ReceiptsKey, "--without-key")),
        false if signing.exists() => entries.push(take(&signing, folder, Role::ReceiptsKey)?),
        _ => left_out.push(LeftOut::new(Role::ReceiptsKey, "there is none: `weir receipts init` makes it")),
    }
    let receipts = settings.receipts.directory(database);
    if receipts.exists() {
        let why = format!("their files are only ever added to: copy {} as it is", receipts.display());
        left_out.push(LeftOut::new(Role::Receipts, &why));
    }
    match &loaded.overlay_path {
        Some(overlay) if overlay.exists() => entries.push(take(overlay, folder, Role::Overlay)?),
        _ => left_out.push(LeftOut::new(Role::Overlay, "there is none: no flag was changed at run time")),
    }
    left_out.push(LeftOut::new(
        Role::Configuration,
        "the configuration file and what it names (certificates, prices, rules, models) are kept where they come from",
    ));
    let manifest = Manifest {
        format: manifest::FORMAT,
        made_at: now.to_string(),
        weir: super::version::FULL.to_owned(),
        schema: copied.schema,
        files: entries,
        left_out,
    };
    if !options.unexamined {
        files::examine(&copy)?;
    }
    manifest.verify(folder)?;
    files::write_new(&folder.join(MANIFEST), manifest.text().as_bytes())?;
    files::sync_folder(folder)?;
    Ok(manifest)
}

fn entry(path: &Path, role: Role) -> Result<Entry, BackupError> {
    let (bytes, sha256) = digest_of(path)?;
    Ok(Entry { name: role.file().to_owned(), role, bytes, sha256 })
}

/// Copies a small file into the backup.
fn take(from: &Path, folder: &Path, role: Role) -> Result<Entry, BackupError> {
    let to = folder.join(role.file());
    copy_file(from, &to)?;
    fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).map_err(|error| BackupError::io(&to, error))?;
    entry(&to, role)
}

fn told(manifest: &Manifest, place: &Path, removed: usize) -> String {
    let names: Vec<String> =
        manifest.files.iter().map(|file| format!("{} ({} bytes)", file.role.as_str(), file.bytes)).collect();
    let mut said = format!("{}: schema version {}, {}; verified", place.display(), manifest.schema, names.join(", "));
    for left in &manifest.left_out {
        said.push_str(&format!("\n  not in it: {}: {}", left.role.as_str(), left.why));
    }
    if removed > 0 {
        said.push_str(&format!("\n  {removed} older backup(s) removed"));
    }
    said
}
