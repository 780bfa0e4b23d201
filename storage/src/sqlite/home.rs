//! Where a database lives: in a file, or in this process only.
//!
//! Both are SQLite, so both profiles answer alike by construction. A database in memory is shared by the connections of
//! one store; a lock around its use takes the place of the write-ahead log, which it cannot have.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use rusqlite::{Connection, OpenFlags};

use super::log_file;
use crate::retention::Erase;

/// Tells the databases of one process apart.
static NUMBER: AtomicU64 = AtomicU64::new(0);

#[derive(Clone)]
pub(crate) enum Home {
    /// A file, and how thoroughly what is deleted is overwritten there.
    File(PathBuf, Erase),
    Memory(Arc<Shared>),
}

/// A database in memory.
pub(crate) struct Shared {
    uri: String,
    pub(super) bytes_max: usize,
    /// Readers share it, the writer has it alone.
    gate: RwLock<()>,
    /// The database lives as long as a connection to it.
    anchor: Mutex<Option<Connection>>,
}

impl Home {
    /// A file in which rows are overwritten where they are deleted.
    pub(crate) fn file(path: impl Into<PathBuf>) -> Self {
        Self::File(path.into(), Erase::Rows)
    }

    pub(crate) fn memory(bytes_max: usize) -> Self {
        let uri = format!("file:/weir-{}?vfs=memdb", NUMBER.fetch_add(1, Ordering::Relaxed));
        Self::Memory(Arc::new(Shared { uri, bytes_max, gate: RwLock::new(()), anchor: Mutex::new(None) }))
    }

    /// Opens a connection with nothing set up.
    pub(super) fn connect(&self, flags: OpenFlags) -> rusqlite::Result<Connection> {
        let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        match self {
            Self::File(path, erase) => {
                match log_file::name(*erase).filter(|_| flags.contains(OpenFlags::SQLITE_OPEN_READ_WRITE)) {
                    Some(name) => Connection::open_with_flags_and_vfs(path, flags, name),
                    None => Connection::open_with_flags(path, flags),
                }
            }
            Self::Memory(shared) => {
                let flags = flags | OpenFlags::SQLITE_OPEN_URI;
                let mut anchor = shared.anchor.lock();
                if anchor.is_none() {
                    let create = OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_READ_WRITE;
                    *anchor = Some(Connection::open_with_flags(&shared.uri, flags | create)?);
                }
                Connection::open_with_flags(&shared.uri, flags)
            }
        }
    }

    /// For error messages.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::File(path, _) => path,
            Self::Memory(_) => Path::new(":memory:"),
        }
    }

    pub(super) fn is_file(&self) -> bool {
        matches!(self, Self::File(..))
    }

    /// Held while reading.
    pub(super) fn shared(&self) -> Option<RwLockReadGuard<'_, ()>> {
        match self {
            Self::File(..) => None,
            Self::Memory(shared) => Some(shared.gate.read()),
        }
    }

    /// Held while writing.
    pub(super) fn alone(&self) -> Option<RwLockWriteGuard<'_, ()>> {
        match self {
            Self::File(..) => None,
            Self::Memory(shared) => Some(shared.gate.write()),
        }
    }
}
