//! The right to read what is stored for a consumer, which one process has at a time.
//!
//! Processes that share a database are on one machine, as its log of changes needs memory they share; so a lock of the system on a file
//! beside the database is the right, and the system gives it on when its holder ends, however that is.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Held by whoever reads for a consumer; given up with it.
#[derive(Debug)]
#[must_use = "it is given up at once"]
pub struct ReadingClaim {
    _lock: Option<File>,
}

impl ReadingClaim {
    /// That of a store which one process alone has.
    pub const fn sole() -> Self {
        Self { _lock: None }
    }

    /// That of a store in the file `database`; `None` where somebody else holds it.
    pub(crate) fn beside(database: &Path, consumer: &str) -> io::Result<Option<Self>> {
        let mut path = database.as_os_str().to_owned();
        path.push(format!("-reader-{consumer}"));
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Self { _lock: Some(lock) })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// Says, as long as it is held, that a gateway uses a database file.
#[derive(Debug)]
#[must_use = "it is given up at once"]
pub struct UseClaim {
    _lock: File,
}

impl UseClaim {
    /// Begins to use the database in this file; whether another process uses it already.
    ///
    /// # Errors
    /// The file for the lock cannot be made or locked.
    pub fn of(database: &Path) -> io::Result<(Self, bool)> {
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(users(database))?;
        let others = match lock.try_lock() {
            Ok(()) => false,
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Error(error)) => return Err(error),
        };
        // Held alone for no longer than this takes, so that nobody waits.
        lock.lock_shared()?;
        Ok((Self { _lock: lock }, others))
    }

    /// The use of a database by nobody else, while its file is exchanged; `None` where somebody uses it.
    ///
    /// # Errors
    /// The file for the lock cannot be made or locked.
    pub fn alone(database: &Path) -> io::Result<Option<Self>> {
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(users(database))?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Self { _lock: lock })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Whether a process uses this database now.
    ///
    /// # Errors
    /// The file for the lock is there and cannot be used.
    pub fn is_used(database: &Path) -> io::Result<bool> {
        let lock = match File::open(users(database)) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        match lock.try_lock() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// The file whose lock says it: SQLite's own locks go when anybody closes the database file itself.
fn users(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push("-gateways");
    PathBuf::from(path)
}
