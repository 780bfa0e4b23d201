//! `weir restore`: puts a backup where the settings say that the database, the key and the overlay are.
//!
//! Invariants: nothing that is there is touched before the backup has been read whole, compared with its manifest and its database examined;
//! what is there is moved aside and never deleted; no gateway uses the database meanwhile.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use weir_config::Loaded;
use weir_config::settings::StorageProfile;
use weir_config::vocab::Timestamp;
use weir_storage::UseClaim;

use super::files::{self, copy_file, folder_of};
use super::manifest::{Entry, LeftOut, MANIFEST, Manifest, Role};
use super::{BackupError, archive, end, rotation};
use crate::app::cli::common::{Options, sources};
use crate::boot::{StartError, token_key_file};

/// How every SQLite file begins.
const SQLITE_MAGIC: &[u8] = b"SQLite format 3\0";

/// Options of `weir restore`.
#[derive(Debug, Clone, Args)]
pub(in crate::app::cli) struct RestoreOptions {
    /// A backup, a folder of backups (its newest is taken), or a copy that was made before a migration (`<database>.schema-<version>`).
    #[arg(value_name = "BACKUP")]
    from: PathBuf,
    /// Move what is there aside (`<file>.replaced-<time>`) and put the backup in its place.
    #[arg(long)]
    replace: bool,
    /// Read the backup, compare it with its manifest and examine its database, and change nothing.
    #[arg(long)]
    verify: bool,
}

/// Restores, or verifies.
pub(in crate::app::cli) fn run(from: &Options, options: &RestoreOptions) -> Result<ExitCode, StartError> {
    let loaded = weir_config::load(&sources(from))?;
    Ok(end(restore(&loaded, options)))
}

/// A file of the backup on its way.
struct Coming {
    role: Role,
    /// Where it lies until all of them are there.
    held: PathBuf,
    to: PathBuf,
}

fn restore(loaded: &Loaded, options: &RestoreOptions) -> Result<String, BackupError> {
    if loaded.settings.storage.profile == StorageProfile::Memory {
        return Err(BackupError::InMemory);
    }
    let database = &loaded.settings.storage.database_path;
    if !options.verify {
        refuse_what_is_there(loaded, options)?;
    }
    let mut coming: Vec<Coming> = Vec::new();
    let held = fetch(loaded, &options.from, &mut coming);
    let done = held.and_then(|(source, manifest)| {
        let copy = coming.iter().find(|file| file.role == Role::Database).map(|file| file.held.clone());
        let examined = files::examine(&copy.ok_or_else(|| BackupError::not_whole(&source, "it holds no database"))?)?;
        let schema = examined.schema;
        if options.verify {
            return Ok(format!("{}: whole, schema version {schema}{}", source.display(), left_out(&manifest)));
        }
        let claim = UseClaim::alone(database).map_err(|error| BackupError::io(database, error))?;
        let Some(_claim) = claim else { return Err(in_use(database)) };
        let aside = put(&coming, Timestamp::now())?;
        let mut said = format!("{}: restored from {}, schema version {schema}", database.display(), source.display());
        for path in aside {
            said.push_str(&format!("\n  what was there is {}", path.display()));
        }
        said.push_str(&left_out(&manifest));
        Ok(said)
    });
    for file in &coming {
        // What was put in its place is no longer there.
        drop(fs::remove_file(&file.held));
    }
    done
}

fn in_use(database: &Path) -> BackupError {
    BackupError::Refused(format!("{}: a gateway uses it; stop all gateways on it first", database.display()))
}

fn refuse_what_is_there(loaded: &Loaded, options: &RestoreOptions) -> Result<(), BackupError> {
    let database = &loaded.settings.storage.database_path;
    if UseClaim::is_used(database).map_err(|error| BackupError::io(database, error))? {
        return Err(in_use(database));
    }
    if database.exists() && !options.replace {
        return Err(BackupError::Refused(format!(
            "{}: there is a database; --replace moves it aside and puts the backup in its place",
            database.display()
        )));
    }
    Ok(())
}

fn left_out(manifest: &Manifest) -> String {
    let lines = manifest.left_out.iter().map(|left| format!("\n  not in it: {}: {}", left.role.as_str(), left.why));
    lines.collect()
}

/// Where the settings say that a file of this kind is.
fn place(loaded: &Loaded, role: Role) -> Option<PathBuf> {
    match role {
        Role::Database => Some(loaded.settings.storage.database_path.clone()),
        Role::TokenKey => token_key_file(&loaded.settings),
        Role::Overlay => loaded.overlay_path.clone(),
        Role::ReceiptsKey => Some(loaded.settings.receipts.key_file(&loaded.settings.storage.database_path)),
        Role::Configuration | Role::Receipts => None,
    }
}

fn held_beside(to: &Path) -> PathBuf {
    let mut held = to.as_os_str().to_owned();
    held.push(format!(".restoring-{}", std::process::id()));
    PathBuf::from(held)
}

/// Reads the backup whole, each file beside the place it will have; what it was read from, and its manifest.
fn fetch(loaded: &Loaded, from: &Path, coming: &mut Vec<Coming>) -> Result<(PathBuf, Manifest), BackupError> {
    let mut expect = |role: Role| -> Option<PathBuf> {
        let to = place(loaded, role)?;
        let held = held_beside(&to);
        coming.push(Coming { role, held: held.clone(), to });
        Some(held)
    };
    if from.is_dir() {
        let folder = if from.join(MANIFEST).is_file() { from.to_owned() } else { newest(from)? };
        let manifest = Manifest::of_folder(&folder)?;
        for entry in &manifest.files {
            let source = folder.join(&entry.name);
            match expect(entry.role) {
                Some(held) => entry.compare(&copy_file(&source, &held)?, &source)?,
                None => entry.compare(&files::digest_of(&source)?, &source)?,
            }
        }
        return Ok((folder, manifest));
    }
    let begin = fs::File::open(from).and_then(|file| {
        let mut begin = Vec::new();
        std::io::Read::read_to_end(&mut std::io::Read::take(file, SQLITE_MAGIC.len() as u64), &mut begin)?;
        Ok(begin)
    });
    if begin.map_err(|error| BackupError::io(from, error))? == SQLITE_MAGIC {
        let held = expect(Role::Database).ok_or_else(|| BackupError::not_whole(from, "there is no place for it"))?;
        // Not byte by byte: it may have a log beside it, and be in use.
        weir_storage::copy(from, &held, &mut |_, _| {})?;
        return Ok((from.to_owned(), of_plain_file()));
    }
    let mut place = |entry: &Entry, _: &Manifest| -> Result<Box<dyn Write>, BackupError> {
        Ok(match expect(entry.role) {
            Some(held) => Box::new(files::create(&held)?),
            None => Box::new(std::io::sink()),
        })
    };
    let manifest = archive::read(from, &mut place)?;
    for file in coming.iter() {
        let synced = fs::File::open(&file.held).and_then(|held| held.sync_all());
        synced.map_err(|error| BackupError::io(&file.held, error))?;
    }
    Ok((from.to_owned(), manifest))
}

fn newest(folder: &Path) -> Result<PathBuf, BackupError> {
    rotation::all(folder)?.pop().ok_or_else(|| BackupError::not_whole(folder, "there is no backup in it"))
}

/// A database without anything beside it says no more of itself.
fn of_plain_file() -> Manifest {
    let left = |role| LeftOut::new(role, "it is a database alone; what is there stays");
    Manifest {
        format: 0,
        made_at: String::new(),
        weir: String::new(),
        schema: 0,
        files: Vec::new(),
        left_out: vec![left(Role::TokenKey), left(Role::ReceiptsKey), left(Role::Overlay)],
    }
}

/// Puts the files in their places; where those that were there are now.
fn put(coming: &[Coming], now: Timestamp) -> Result<Vec<PathBuf>, BackupError> {
    let suffix = |path: &Path, end: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    };
    let replaced = format!(".replaced-{}", now.micros());
    let mut aside = Vec::new();
    for file in coming {
        let old = suffix(&file.to, &replaced);
        if files::set_aside(&file.to, &old)? {
            aside.push(old.clone());
        }
        if file.role == Role::Database {
            // Its log belongs to it: a fresh file with an old log would be a mixture of both.
            for end in ["-wal", "-shm"] {
                files::set_aside(&suffix(&file.to, end), &suffix(&old, end))?;
            }
        }
        fs::rename(&file.held, &file.to).map_err(|error| BackupError::io(&file.to, error))?;
        files::sync_folder(&folder_of(&file.to))?;
    }
    Ok(aside)
}
