//! What can go wrong, said so that the reader knows what to do.

use std::path::PathBuf;

use crate::record::SpanRecord;

/// Why the store could not be opened. Every message names the path, the fault and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The folder is missing, or the file or its folder may not be written.
    #[error(
        "storage.database_path {}: cannot be written ({reason}); create the folder, give this user write access to it, \
         or set another path", path.display()
    )]
    Unwritable {
        /// The database file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The file cannot be read by what only reads.
    #[error(
        "storage.database_path {}: cannot be read ({reason}); give this user the right to read it and the files beside it \
         (-wal, -shm), or name another file", path.display()
    )]
    Unreadable {
        /// The database file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The file is something else.
    #[error(
        "storage.database_path {}: the file is not a SQLite database; move it away or set another path", path.display()
    )]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// The file is a database of another program.
    #[error(
        "storage.database_path {}: the database belongs to another program (application id {application_id:#x}, or \
         tables Weir does not know); set another path", path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The SQLite application id found.
        application_id: i64,
    },
    /// A newer Weir wrote the file.
    #[error(
        "storage.database_path {}: the schema is version {found}, this Weir knows up to {known}; start the newer Weir \
         or restore an older copy of the file", path.display()
    )]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// Highest migration applied to the file.
        found: u32,
        /// Highest migration this build knows.
        known: u32,
    },
    /// A migration in the file is not the one this build ships under that number.
    #[error(
        "storage.database_path {}: migration {version} differs from the one this Weir ships; the file was written by an \
         altered build, restore a copy or set another path", path.display()
    )]
    ChangedMigration {
        /// The file.
        path: PathBuf,
        /// The migration's number.
        version: u32,
    },
    /// Migrations wait and `storage.auto_migrate` is false.
    #[error(
        "storage.database_path {}: {pending} migration(s) are pending and storage.auto_migrate is false; run \
         `weir migrate` with the same configuration, or set storage.auto_migrate to true", path.display()
    )]
    PendingMigrations {
        /// The file.
        path: PathBuf,
        /// How many.
        pending: usize,
    },
    /// The integrity check after an unclean stop failed.
    #[error(
        "storage.database_path {}: the database is damaged ({detail}); restore a copy, or move the file away to start \
         with an empty one", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// First complaint of the check.
        detail: String,
    },
    /// A copy cannot be made.
    #[error("{}: the copy of the database cannot be written ({reason}); make room, or name another place", path.display())]
    Copy {
        /// The copy.
        path: PathBuf,
        /// What went wrong.
        reason: String,
    },
    /// The schema cannot go back without losing what it holds.
    #[error(
        "storage.database_path {}: the way from schema version {version} back to {} would lose records; put the copy back that was made \
         before the migration (`weir restore`)", path.display(), version - 1
    )]
    NoWayBack {
        /// The file.
        path: PathBuf,
        /// The version that cannot be left.
        version: u32,
    },
    /// There is no room for the copy that is made before a migration.
    #[error(
        "storage.database_path {}: a migration is due, and there is no room for the copy that is made before it ({needed} bytes, {free} \
         are free); make room, or set storage.migration_copy to false", path.display()
    )]
    NoRoomForCopy {
        /// The file.
        path: PathBuf,
        /// Bytes of the copy.
        needed: u64,
        /// Bytes that are free.
        free: u64,
    },
    /// The SQLite this build is linked with loses data (WAL-reset race, fixed in 3.51.3).
    #[error("SQLite {found} is too old: 3.51.3 or later is needed; build with the bundled SQLite")]
    OldSqlite {
        /// Its version.
        found: String,
    },
    /// Anything else the database said.
    #[error("storage.database_path {}: {step} failed ({reason}); check the disk and whether another process holds the file", path.display())]
    Failed {
        /// The file.
        path: PathBuf,
        /// What was being done.
        step: &'static str,
        /// What SQLite said.
        reason: String,
    },
    /// A store of the `production` profile does not answer, or answers what it must not.
    #[error("{reason}")]
    Stores {
        /// Which one, and why; no credential is in it.
        reason: String,
        /// It stays until a person changes a store or a setting.
        is_lasting: bool,
    },
    /// The writer thread could not be started.
    #[error("the storage thread could not be started ({reason}); raise the process's thread or memory limit")]
    Thread {
        /// What the system said.
        reason: String,
    },
}

impl OpenError {
    /// The same for what only reads: it needs no folder that it can write to.
    pub(crate) fn while_reading(self) -> Self {
        match self {
            Self::Unwritable { path, reason } => Self::Unreadable { path, reason },
            other => other,
        }
    }
}

impl OpenError {
    /// Whether it stays until a person changes the file or a setting; everything else may be over at the next try.
    pub fn is_lasting(&self) -> bool {
        matches!(
            self,
            Self::NotADatabase { .. }
                | Self::Foreign { .. }
                | Self::NewerSchema { .. }
                | Self::ChangedMigration { .. }
                | Self::PendingMigrations { .. }
                | Self::Stores { is_lasting: true, .. }
        )
    }
}

/// Why a read or a probe has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The read ran longer than a read may (2 s).
    #[error("the query took longer than {limit_ms} ms and was ended; narrow the time range or the page")]
    TimedOut {
        /// The limit in milliseconds.
        limit_ms: u64,
    },
    /// All readers stayed busy.
    #[error("all {readers} readers of the store are busy; try again")]
    Busy {
        /// How many there are.
        readers: usize,
    },
    /// The page's records are larger than one answer may be.
    #[error("{}", too_large(*limit_bytes, *fit))]
    TooLarge {
        /// The limit in bytes.
        limit_bytes: usize,
        /// Items of the page, from its first one on, for which there is room.
        fit: usize,
    },
    /// The record alone is larger than one answer may be.
    #[error("the record holds more than the {limit_bytes} bytes that one answer may hold")]
    RecordTooLarge {
        /// The limit in bytes.
        limit_bytes: usize,
    },
    /// A record cannot be read back.
    #[error("a stored record is damaged (row {row}); restore the database from a copy")]
    Damaged {
        /// Its row number.
        row: i64,
    },
    /// Writes fail at the moment, so the store is not healthy (probe only).
    #[error("the store cannot be written at the moment: {reason}")]
    NotWritable {
        /// The last failure.
        reason: String,
    },
    /// The database could not be opened or asked.
    #[error("the store cannot be read: {reason}")]
    Unavailable {
        /// What SQLite said.
        reason: String,
    },
}

fn too_large(limit_bytes: usize, fit: usize) -> String {
    if fit == 0 {
        return format!(
            "the first item of the page alone holds more than the {limit_bytes} bytes that one answer may hold; pass over it \
             with `offset`"
        );
    }
    format!("the page holds more than {limit_bytes} bytes of records; ask for fewer items: `limit={fit}` fits")
}

/// Why an acknowledged write was not made. None of it was applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotWritten {
    /// The change itself cannot be made, e.g. an id that is taken.
    #[error("the change cannot be stored: {reason}")]
    Refused {
        /// What the database said.
        reason: String,
    },
    /// The store cannot be written at the moment.
    #[error("the store cannot be written at the moment: {reason}")]
    Unavailable {
        /// The last failure.
        reason: String,
    },
    /// The writer did not come to it in time.
    #[error("the write was taken back after waiting {limit_ms} ms for the store")]
    TimedOut {
        /// How long it waited, in milliseconds.
        limit_ms: u64,
    },
    /// Too many writes wait already.
    #[error("{waiting} writes wait for the store already; try again")]
    Busy {
        /// How many.
        waiting: usize,
    },
    /// There is no room for spans that wait to be written.
    #[error("the spans that wait for the store take all the room there is ({bytes_max} bytes); try again")]
    Full {
        /// What may wait, in bytes.
        bytes_max: usize,
    },
    /// The tenant has as many reports waiting as it may.
    #[error("{waiting} reports of this tenant wait to be built already; ask again when one of them is there")]
    TooMany {
        /// How many.
        waiting: u64,
    },
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
}

/// Why a span was not taken. It is counted by the store under the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Dropped {
    /// The queue is at its bound, in items or in bytes.
    #[error("the storage queue is full")]
    QueueFull,
    /// The store is closed.
    #[error("the store is closed")]
    Closed,
}

/// A span that was not taken.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct NotTaken {
    /// Why.
    pub reason: Dropped,
    /// The span; `None` when it lay in the queue already and was dropped with it at the end of the store.
    pub span: Option<Box<SpanRecord>>,
}

/// What a failed write is blamed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WriteError {
    /// A row's: the same row fails again wherever it is written.
    Row(String),
    /// The store's: locked, read-only, no file.
    Store(String),
    /// The store's: no space is left.
    Full(String),
    /// The store's: an I/O error, after which the file is checked before it is trusted again.
    Damage(String),
}

impl WriteError {
    pub(crate) fn reason(self) -> String {
        match self {
            Self::Row(reason) | Self::Store(reason) | Self::Full(reason) | Self::Damage(reason) => reason,
        }
    }

    /// What the store said, when it was the store.
    pub(crate) fn of_store(&self) -> Option<&str> {
        match self {
            Self::Row(_) => None,
            Self::Store(reason) | Self::Full(reason) | Self::Damage(reason) => Some(reason),
        }
    }
}
