//! Opening the database file: permissions, settings of the connections, and the check after an unclean stop.
//!
//! The busy timeout is set before anything that may lock, the journal mode among them. Mapping the file is off: an I/O
//! error must be an error code, not a signal.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::Home;
use crate::error::OpenError;

/// How long one statement waits for another process's lock.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(1);
/// The same at the start, when a former process may be writing its last and this one has no work to hold up yet.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// The check after an unclean stop ends here on a large file: a restart must not take long.
const CHECK_BUDGET: Duration = Duration::from_millis(300);
/// The writer's page cache.
const WRITER_CACHE_KIB: i64 = 16 * 1024;
/// Rows of about a kilobyte fill pages of 8 KiB better than of 4: a tenth less disk and CPU, measured with `examples/rate`.
const PAGE_BYTES: i64 = 8 * 1024;
/// Prepared statements a connection remembers.
const STATEMENTS_MAX: usize = 64;
/// Steps of the virtual machine between looks at the clock: well under a millisecond.
pub(super) const PROGRESS_STEPS: i32 = 2_000;
/// The byte of the log's index that each connection keeps locked (`UNIX_SHM_DMS` in SQLite's os_unix.c).
const INDEX_LOCK: &str = "128";
/// Before this version a race between a checkpoint and a writer could lose the log.
const SQLITE_MIN: i32 = 3_051_003;

/// Opens the file for writing, creating it when absent; sets the connection up for the start, and checks the file when the
/// last stop was not clean.
pub(super) fn writer(home: &Home) -> Result<Connection, OpenError> {
    if rusqlite::version_number() < SQLITE_MIN {
        return Err(OpenError::OldSqlite { found: rusqlite::version().to_owned() });
    }
    let path = home.path();
    let mut unclean = false;
    if home.is_file() {
        touch(path)?;
        // The log of a process that is still running is no sign of a crash.
        unclean = std::fs::metadata(log_path(path)).is_ok_and(|log| log.len() > 0) && !is_in_use(path);
    }
    let mut conn = connect(home, START_TIMEOUT).map_err(|error| explain(path, "opening the database", error))?;
    if unclean {
        tracing::info!(path = %path.display(), "the last shutdown was not clean; the write-ahead log was replayed, and the file is being checked");
        check(&mut conn, path)?;
    }
    Ok(conn)
}

/// Opens an existing database for writing; one statement waits so long for another process's lock.
pub(super) fn connect(home: &Home, busy_timeout: Duration) -> rusqlite::Result<Connection> {
    let conn = home.connect(OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    conn.busy_timeout(busy_timeout)?;
    // Count for a new file only, and must come before the journal mode.
    conn.pragma_update(None, "page_size", PAGE_BYTES)?;
    conn.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    conn.pragma_update(None, "mmap_size", 0)?;
    if home.is_file() {
        log_ahead(&conn)?;
    }
    conn.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    // What is removed is overwritten with zeros, also in pages that become free.
    conn.pragma_update(None, "secure_delete", home.is_file())?;
    distrust(&conn)?;
    keep_plans(&conn)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    Ok(conn)
}

/// A file somebody else wrote to gets no code run: triggers and views call nothing that has effects beside the database, and
/// no statement can rewrite the schema behind SQLite's back.
fn distrust(conn: &Connection) -> rusqlite::Result<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    Ok(())
}

/// A statement has one plan, whatever is bound to it. Otherwise SQLite prepares nearly every cached statement anew with each use: it notes
/// that the value of a `column = ?` might have made for a better plan, and going back to the cache clears what is bound.
pub(super) fn keep_plans(conn: &Connection) -> rusqlite::Result<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(|_| ())
}

/// To be called before records are written, behind migrations: what a transaction changes stays in memory until its commit,
/// so that the log never has what may be undone (see `log_file`). Batches and pieces of housekeeping are bounded.
pub(super) fn keep_changes(conn: &Connection) -> rusqlite::Result<()> {
    conn.pragma_update(None, "cache_spill", false)
}

fn log_ahead(conn: &Connection) -> rusqlite::Result<()> {
    let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
    if mode != "wal" {
        let reason = format!("the file system does not allow write-ahead logging (journal mode stays `{mode}`)");
        return Err(rusqlite::Error::SqliteFailure(
            rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN),
            Some(reason),
        ));
    }
    conn.pragma_update(None, "synchronous", "FULL")?;
    conn.pragma_update(None, "wal_autocheckpoint", 0)
}

/// Opens a read-only connection.
pub(super) fn reader(home: &Home) -> rusqlite::Result<Connection> {
    let conn = home.connect(OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    conn.busy_timeout(BUSY_TIMEOUT)?;
    conn.pragma_update(None, "mmap_size", 0)?;
    conn.pragma_update(None, "temp_store", "MEMORY")?;
    distrust(&conn)?;
    keep_plans(&conn)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    Ok(conn)
}

/// Opens an existing file for a look that leaves nothing behind: where there is no log to be read, none is made.
pub(super) fn onlooker(path: &Path) -> Result<Connection, OpenError> {
    let failed = |error| explain(path, "opening the database", error);
    let unreadable = |error: std::io::Error| OpenError::Unwritable { path: path.to_owned(), reason: error.to_string() };
    begins_as_a_database(&mut File::open(path).map_err(unreadable)?, path)?;
    let has_log = std::fs::metadata(log_path(path)).is_ok_and(|log| log.len() > 0);
    if has_log || is_in_use(path) {
        return reader(&Home::file(path)).map_err(failed);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => uri.push(char::from(*byte)),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri.push_str("?immutable=1");
    let conn = Connection::open_with_flags(uri, flags).map_err(failed)?;
    distrust(&conn).map_err(failed)?;
    Ok(conn)
}

/// The write-ahead log beside the database.
pub(super) fn log_path(path: &Path) -> PathBuf {
    beside(path, "-wal")
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut file = path.as_os_str().to_owned();
    file.push(suffix);
    file.into()
}

/// Whether somebody has the database open. Each connection holds a lock on one byte of the log's index for as long as it
/// lives. The kernel's list is read instead of the lock asked for: closing a descriptor of that file here would drop the
/// locks that other connections of this process hold. What runs in another PID namespace is not on the list.
pub(super) fn is_in_use(path: &Path) -> bool {
    let Ok(index) = std::fs::metadata(beside(path, "-shm")) else { return false };
    let Ok(locks) = std::fs::read_to_string("/proc/locks") else { return false };
    locks.lines().any(|line| holds(line, index.ino()))
}

/// Whether a line of `/proc/locks` is a connection's lock on this file: `1: POSIX  ADVISORY  READ 1234 08:01:5678 128 128`.
fn holds(line: &str, inode: u64) -> bool {
    let mut fields = line.split_ascii_whitespace().rev();
    let [end, start, file] = [fields.next(), fields.next(), fields.next()].map(Option::unwrap_or_default);
    let same = file.rsplit(':').next().and_then(|number| number.parse().ok()) == Some(inode);
    same && start == INDEX_LOCK && end == INDEX_LOCK
}

/// Creates the file for this user only, or makes sure an existing one is a database. SQLite gives the log and the index
/// of the log the same permissions.
pub(super) fn touch(path: &Path) -> Result<(), OpenError> {
    let unwritable = |reason: String| OpenError::Unwritable { path: path.to_owned(), reason };
    let mut file: File =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path).map_err(
            |error| match error.kind() {
                ErrorKind::NotFound => unwritable("the folder does not exist".to_owned()),
                _ => unwritable(error.to_string()),
            },
        )?;
    let meta = file.metadata().map_err(|error| unwritable(error.to_string()))?;
    if meta.permissions().mode() & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "the database can be read by other users; chmod 600 keeps them out");
    }
    begins_as_a_database(&mut file, path)
}

/// Whether this is a SQLite file, or empty: SQLite itself takes a shorter text for an empty database.
fn begins_as_a_database(file: &mut File, path: &Path) -> Result<(), OpenError> {
    let mut magic = Vec::new();
    let read = file.by_ref().take(16).read_to_end(&mut magic);
    read.map_err(|error| OpenError::Unwritable { path: path.to_owned(), reason: error.to_string() })?;
    if !magic.is_empty() && magic != b"SQLite format 3\0" {
        return Err(OpenError::NotADatabase { path: path.to_owned() });
    }
    Ok(())
}

/// `quick_check`, as far as it gets within its budget.
pub(super) fn check(conn: &mut Connection, path: &Path) -> Result<(), OpenError> {
    let deadline = Instant::now() + CHECK_BUDGET;
    let failed = |error| explain(path, "checking the database", error);
    conn.progress_handler(PROGRESS_STEPS, Some(move || Instant::now() >= deadline)).map_err(failed)?;
    let result = conn.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    conn.progress_handler(0, None::<fn() -> bool>).map_err(failed)?;
    match result {
        Ok(verdict) if verdict == "ok" => Ok(()),
        Ok(detail) => Err(OpenError::Damaged { path: path.to_owned(), detail }),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) => {
            tracing::info!("the check of the database file was cut short because the file is large");
            Ok(())
        }
        Err(error) => Err(failed(error)),
    }
}

/// What an error of SQLite means to the person who has to act on it.
pub(super) fn explain(path: &Path, step: &'static str, error: rusqlite::Error) -> OpenError {
    let path = path.to_owned();
    let reason = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => OpenError::NotADatabase { path },
        Some(ErrorCode::DatabaseCorrupt) => OpenError::Damaged { path, detail: reason },
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            OpenError::Unwritable { path, reason }
        }
        _ => OpenError::Failed { path, step, reason },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_of_a_live_connection_is_found_in_the_kernel_s_list() {
        let held = "12: POSIX  ADVISORY  READ 1234 00:2f:5678 128 128";
        assert!(holds(held, 5678));
        for other in [
            "12: POSIX  ADVISORY  READ 1234 00:2f:15678 128 128",
            "12: POSIX  ADVISORY  WRITE 1234 00:2f:5678 120 120",
            "12: FLOCK  ADVISORY  WRITE 1234 00:2f:5678 0 EOF",
            "",
        ] {
            assert!(!holds(other, 5678), "{other}");
        }
    }

    #[test]
    fn a_database_is_in_use_for_as_long_as_somebody_has_it_open() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("service.db");
        touch(&path).unwrap();
        assert!(!is_in_use(&path));
        let conn = connect(&Home::file(path.clone()), BUSY_TIMEOUT).unwrap();
        conn.execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (1)").unwrap();
        assert!(is_in_use(&path));
        drop(conn);
        assert!(!is_in_use(&path));
        // What a crash leaves: a log and its index, and nobody.
        std::fs::write(log_path(&path), b"left").unwrap();
        std::fs::write(beside(&path, "-shm"), b"left").unwrap();
        assert!(!is_in_use(&path));
    }

    #[test]
    fn a_file_from_a_stranger_gets_no_code_run() {
        let folder = tempfile::TempDir::new().unwrap();
        let home = Home::file(folder.path().join("service.db"));
        touch(home.path()).unwrap();
        for conn in [connect(&home, BUSY_TIMEOUT).unwrap(), reader(&home).unwrap()] {
            let trusted: i64 = conn.query_row("PRAGMA trusted_schema", [], |row| row.get(0)).unwrap();
            assert_eq!(trusted, 0);
            conn.execute_batch("PRAGMA writable_schema = ON").unwrap();
            let rewritten = conn.execute("UPDATE sqlite_schema SET sql = sql", []);
            assert!(rewritten.is_err(), "the schema stays as it is");
        }
    }
}
