//! A few read-only connections, opened when first needed. A read waits for a free one and then runs at most
//! [`READ_LIMIT`]: an endless query would keep the log from being emptied.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rusqlite::{Connection, ErrorCode};

use super::file_id::{self, FileId};
use super::{Home, open};
use crate::error::ReadError;

/// Connections at most, each with a page cache of about 2 MiB: twice as many as the API reads at once, because a read that got
/// no CPU is begun again.
const READERS_MAX: usize = 8;
/// Longest a read runs, and longest it waits for a connection.
const READ_LIMIT: Duration = Duration::from_secs(2);

/// Damaged rows that are remembered at most.
const DAMAGED_MAX: usize = 1_000;

/// The damaged rows that reads have met since the start.
#[derive(Default)]
pub(crate) struct Damage(Mutex<BTreeSet<i64>>);

impl Damage {
    pub(super) fn note(&self, row: i64) {
        let mut rows = self.0.lock();
        if rows.len() < DAMAGED_MAX {
            rows.insert(row);
        }
    }

    pub(crate) fn rows(&self) -> usize {
        self.0.lock().len()
    }
}

pub(crate) struct Readers {
    home: Home,
    /// Nothing is left behind, also where nobody writes: each read opens the file anew.
    looks_on: bool,
    /// Called often while something is read.
    pub(super) pause: fn(),
    pub(crate) damage: Damage,
    connections: Mutex<Connections>,
    freed: Condvar,
}

#[derive(Default)]
struct Connections {
    /// With the file each was opened on.
    idle: Vec<(Connection, Option<FileId>)>,
    busy: usize,
}

/// Why a read ended without a result, before it is known which record or limit to name.
pub(crate) enum Stop {
    Sql(rusqlite::Error),
    Refused(ReadError),
}

impl From<rusqlite::Error> for Stop {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl Readers {
    pub(crate) fn new(home: Home, pause: fn()) -> Self {
        let (damage, connections) = (Damage::default(), Mutex::new(Connections::default()));
        Self { home, looks_on: false, pause, damage, connections, freed: Condvar::new() }
    }

    /// For a file that others write, or nobody.
    pub(crate) fn looking_on(home: Home) -> Self {
        Self { looks_on: true, ..Self::new(home, || {}) }
    }

    fn open(&self) -> Result<Connection, ReadError> {
        if self.looks_on {
            return open::onlooker(self.home.path())
                .map_err(|error| ReadError::Unavailable { reason: error.to_string() });
        }
        open::reader(&self.home).map_err(|error| ReadError::Unavailable { reason: error.to_string() })
    }

    /// Runs `read` on a connection of its own.
    pub(crate) fn with<T>(&self, read: impl FnOnce(&Connection) -> Result<T, Stop>) -> Result<T, ReadError> {
        self.with_one_of(READERS_MAX, read)
    }

    /// The same with a place that is kept for it: whether the store is healthy must not depend on how many read it.
    pub(super) fn with_kept_place<T>(&self, read: impl FnOnce(&Connection) -> Result<T, Stop>) -> Result<T, ReadError> {
        self.with_one_of(READERS_MAX + 1, read)
    }

    fn with_one_of<T>(&self, places: usize, read: impl FnOnce(&Connection) -> Result<T, Stop>) -> Result<T, ReadError> {
        // A file that was removed or replaced is not read any more.
        let idle = self.take(places)?.filter(|(_, file)| *file == file_id::now(&self.home)).map(|(conn, _)| conn);
        let _shared = self.home.shared();
        // Gives the place back however the read ends, a panic included.
        let mut place = Place { readers: self, keep: None, file: file_id::now(&self.home) };
        let unavailable = |error: rusqlite::Error| ReadError::Unavailable { reason: error.to_string() };
        let mut conn = match idle {
            Some(conn) => conn,
            None => self.open()?,
        };
        let deadline = Instant::now() + READ_LIMIT;
        let pause = self.pause;
        let over = move || {
            pause();
            Instant::now() >= deadline
        };
        conn.progress_handler(open::PROGRESS_STEPS, Some(over)).map_err(unavailable)?;
        match read(&conn) {
            Ok(value) => {
                place.keep = Some(conn);
                Ok(value)
            }
            Err(Stop::Refused(error)) => {
                if let ReadError::Damaged { row } = error {
                    self.damage.note(row);
                }
                place.keep = Some(conn);
                Err(error)
            }
            Err(Stop::Sql(error)) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
                place.keep = Some(conn);
                Err(ReadError::TimedOut { limit_ms: READ_LIMIT.as_millis() as u64 })
            }
            // The connection is not trusted any more; the next read opens another.
            Err(Stop::Sql(error)) => Err(unavailable(error)),
        }
    }

    /// Whether the store can be read.
    pub(crate) fn probe(&self) -> Result<(), ReadError> {
        self.with_kept_place(|conn| {
            Ok(conn.prepare_cached("SELECT count(*) FROM migrations")?.query_row([], |_| Ok(()))?)
        })
    }

    /// A place among the readers, with the connection of a former read if one is left.
    fn take(&self, places: usize) -> Result<Option<(Connection, Option<FileId>)>, ReadError> {
        let deadline = Instant::now() + READ_LIMIT;
        let mut connections = self.connections.lock();
        while connections.busy >= places {
            if self.freed.wait_until(&mut connections, deadline).timed_out() {
                return Err(ReadError::Busy { readers: places });
            }
        }
        connections.busy += 1;
        Ok(connections.idle.pop())
    }

    /// Closes the connections nobody uses.
    pub(crate) fn close_idle(&self) {
        let idle = std::mem::take(&mut self.connections.lock().idle);
        drop(idle);
    }
}

struct Place<'a> {
    readers: &'a Readers,
    keep: Option<Connection>,
    file: Option<FileId>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut connections = self.readers.connections.lock();
        connections.busy -= 1;
        let file = self.file;
        let keep = self.keep.take().filter(|_| !self.readers.looks_on);
        connections.idle.extend(keep.map(|conn| (conn, file)));
        // Not one: it may be a place that whoever is woken may not take.
        self.readers.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_busy(readers: &Readers, busy: usize, then: &dyn Fn()) {
        if busy == 0 {
            return then();
        }
        let read = readers.with(|_| {
            with_busy(readers, busy - 1, then);
            Ok(())
        });
        assert!(read.is_ok());
    }

    #[test]
    fn the_store_can_be_probed_while_all_readers_are_busy() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("service.db");
        super::super::migrate(&path, false).unwrap();
        let readers = Readers::new(Home::file(path), || {});
        with_busy(&readers, READERS_MAX, &|| assert_eq!(readers.probe(), Ok(())));
    }
}
