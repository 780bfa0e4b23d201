//! The right to read what is stored for a consumer, which one process has at a time.
//!
//! Processes that share a database are on one machine, as its log of changes needs memory they share; so a lock of the system on a file
//! beside the database is the right, and the system gives it on when its holder ends, however that is.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

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
