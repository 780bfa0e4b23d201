//! The folder that backups are made in: their names, which of them stay, and that one is made at a time.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use weir_config::vocab::Timestamp;

use super::BackupError;
use super::manifest::MANIFEST;

const PREFIX: &str = "weir-";
const PARTIAL: &str = ".partial";
const LOCK: &str = ".weir-backup.lock";

/// The moment as names have it, `20261128T101500Z`: sorted by name they are sorted by time.
fn stamp(at: Timestamp) -> String {
    let text = at.to_string();
    let digits: String = text.chars().take(19).filter(|c| c.is_ascii_digit() || *c == 'T').collect();
    format!("{digits}Z")
}

/// What a backup is called while it is not whole.
pub(super) fn partial(now: Timestamp) -> String {
    format!(".{PREFIX}{}-{}{PARTIAL}", stamp(now), std::process::id())
}

/// A name that no backup has yet.
pub(super) fn free_name(folder: &Path, now: Timestamp) -> PathBuf {
    let first = folder.join(format!("{PREFIX}{}", stamp(now)));
    let later = |number: u32| folder.join(format!("{PREFIX}{}-{number:02}", stamp(now)));
    std::iter::once(first.clone()).chain((2..).map(later)).find(|path| !path.exists()).unwrap_or(first)
}

/// Held while a backup is made in a folder.
pub(super) fn lock(folder: &Path) -> Result<File, BackupError> {
    let path = folder.join(LOCK);
    let failed = |error| BackupError::io(&path, error);
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(BackupError::Busy(folder.to_owned())),
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// Removes what a backup that was ended half way has left. The lock is held, so nobody is at it.
pub(super) fn sweep(folder: &Path) -> Result<(), BackupError> {
    for name in names(folder)? {
        if name.starts_with(&format!(".{PREFIX}")) && name.ends_with(PARTIAL) {
            let path = folder.join(name);
            fs::remove_dir_all(&path).map_err(|error| BackupError::io(&path, error))?;
        }
    }
    Ok(())
}

/// The whole backups of a folder, oldest first.
pub(super) fn all(folder: &Path) -> Result<Vec<PathBuf>, BackupError> {
    let mut found: Vec<PathBuf> = names(folder)?
        .into_iter()
        .filter(|name| is_name(name))
        .map(|name| folder.join(name))
        .filter(|path| path.join(MANIFEST).is_file())
        .collect();
    found.sort();
    Ok(found)
}

/// Removes all but the newest; how many it removed.
pub(super) fn keep(folder: &Path, count: usize) -> Result<usize, BackupError> {
    let all = all(folder)?;
    let old = all.get(..all.len().saturating_sub(count)).unwrap_or_default();
    for path in old {
        // Without its manifest it is no backup any more, whatever ends this process now.
        let manifest = path.join(MANIFEST);
        fs::remove_file(&manifest).map_err(|error| BackupError::io(&manifest, error))?;
        fs::remove_dir_all(path).map_err(|error| BackupError::io(path, error))?;
    }
    Ok(old.len())
}

fn is_name(name: &str) -> bool {
    let Some(stamp) = name.strip_prefix(PREFIX) else { return false };
    let Some((stamp, number)) = stamp.split_at_checked(stamp.len().min(16)) else { return false };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_stamp = match (stamp.get(..8), stamp.get(8..9), stamp.get(9..15), stamp.get(15..)) {
        (Some(date), Some("T"), Some(time), Some("Z")) => digits(date) && digits(time),
        _ => false,
    };
    is_stamp && (number.is_empty() || number.strip_prefix('-').is_some_and(digits))
}

fn names(folder: &Path) -> Result<Vec<String>, BackupError> {
    let failed = |error| BackupError::io(folder, error);
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        names.extend(entry.map_err(failed)?.file_name().into_string().ok());
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_stay_and_what_is_no_backup_is_not_touched() {
        let folder = tempfile::TempDir::new().unwrap();
        let make = |name: &str, whole: bool| {
            fs::create_dir(folder.path().join(name)).unwrap();
            if whole {
                fs::write(folder.path().join(name).join(MANIFEST), "{}").unwrap();
            }
        };
        let stamps =
            ["weir-20261128T101500Z", "weir-20261128T101501Z", "weir-20261128T101501Z-02", "weir-20261129T000000Z"];
        for name in stamps {
            make(name, true);
        }
        for (name, whole) in [("weir-20261127T101500Z", false), ("weir-mine", true), ("other-20261128T101500Z", true)] {
            make(name, whole);
        }
        make(".weir-20261128T101500Z-1.partial", true);
        sweep(folder.path()).unwrap();
        assert_eq!(keep(folder.path(), 2).unwrap(), 2);
        let left = all(folder.path()).unwrap();
        assert_eq!(left, stamps[2..].iter().map(|name| folder.path().join(name)).collect::<Vec<_>>());
        let names = names(folder.path()).unwrap();
        assert_eq!(names.len(), 5, "{names:?}");
    }

    #[test]
    fn names_are_the_time_and_none_is_taken_twice() {
        let folder = tempfile::TempDir::new().unwrap();
        let now = Timestamp::from_micros(1_795_861_000_123_456);
        let first = free_name(folder.path(), now);
        assert!(is_name(first.file_name().unwrap().to_str().unwrap()), "{}", first.display());
        fs::create_dir(&first).unwrap();
        let second = free_name(folder.path(), now);
        assert!(second > first && is_name(second.file_name().unwrap().to_str().unwrap()));
        for name in
            ["weir-", "weir-20261128", "weir-20261128T101500", "weir-20261128T10150éZ", "weir-20261128T101500Z-"]
        {
            assert!(!is_name(name), "{name}");
        }
    }

    #[test]
    fn one_is_made_at_a_time() {
        let folder = tempfile::TempDir::new().unwrap();
        let held = lock(folder.path()).unwrap();
        assert!(matches!(lock(folder.path()), Err(BackupError::Busy(_))));
        drop(held);
        lock(folder.path()).unwrap();
    }
}
