//! Whole copies of a database file, made beside gateways that write to it, and the examination of a file as a whole.
//!
//! A copy is the database at one moment: all its pages are read in one read transaction, so nothing that is written meanwhile comes in
//! by halves, and nothing begins anew however much is written. It is one file, with its log in it. Until the copy is done the log is not
//! emptied, so it grows by what is written meanwhile.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use super::{Home, migrate, open};
use crate::encode::{self, Columns};
use crate::error::OpenError;

/// Pages that are copied from one look at how far it is to the next: 8 MiB.
const STEP_PAGES: i32 = 1_024;
/// Between looks at how long an examination has taken.
const TICK: Duration = Duration::from_millis(200);
/// Faults that an examination names.
const FAULTS_MAX: u32 = 20;

/// A copy that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    /// Bytes of the file.
    pub bytes: u64,
    /// Version of its schema.
    pub schema: u32,
}

/// Copies the database at `from` into a new file that only this user can read. `told` hears how many bytes are copied, and of how many.
///
/// # Errors
/// See [`OpenError`]; what was written of the copy is left behind.
pub fn copy(from: &Path, to: &Path, told: &mut dyn FnMut(u64, u64)) -> Result<Copied, OpenError> {
    migrate::examine(from, true)?;
    let failed = |error| open::explain(from, "copying the database", error);
    let source = open::reader(&Home::file(from)).map_err(failed)?;
    copy_from(&source, from, to, told)
}

/// The same of a connection that is open.
pub(super) fn copy_from(
    source: &Connection,
    from: &Path,
    to: &Path,
    told: &mut dyn FnMut(u64, u64),
) -> Result<Copied, OpenError> {
    let failed = |error| open::explain(from, "copying the database", error);
    let unwritable = |error: std::io::Error| OpenError::Copy { path: to.to_owned(), reason: error.to_string() };
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(to).map_err(unwritable)?;
    // All steps see what stands there now.
    let snapshot = source.unchecked_transaction().map_err(failed)?;
    let page_bytes: u32 = snapshot.query_row("PRAGMA page_size", [], |row| row.get(0)).map_err(failed)?;
    let schema = migrate::schema(&snapshot, from)?;
    let not_taken = |error: rusqlite::Error| OpenError::Copy { path: to.to_owned(), reason: error.to_string() };
    let mut target = Connection::open(to).map_err(not_taken)?;
    // A copy that is not whole is thrown away: there is nothing to roll back to.
    target.pragma_update(None, "journal_mode", "OFF").map_err(not_taken)?;
    target.pragma_update(None, "synchronous", "OFF").map_err(not_taken)?;
    let bytes = {
        let backup = Backup::new(&snapshot, &mut target).map_err(not_taken)?;
        loop {
            let step = backup.step(STEP_PAGES).map_err(not_taken)?;
            let progress = backup.progress();
            let pages = |count: i32| u64::try_from(count).unwrap_or(0) * u64::from(page_bytes);
            told(pages(progress.pagecount - progress.remaining), pages(progress.pagecount));
            match step {
                StepResult::Done => break pages(progress.pagecount),
                // Somebody holds a lock for a moment.
                StepResult::Busy | StepResult::Locked => std::thread::sleep(Duration::from_millis(5)),
                _ => {}
            }
        }
    };
    target.close().map_err(|(_, error)| not_taken(error))?;
    drop(snapshot);
    File::open(to).and_then(|file| file.sync_all()).map_err(unwritable)?;
    Ok(Copied { bytes, schema })
}

/// What a database file is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Examined {
    /// Version of its schema.
    pub schema: u32,
    /// Migrations this build would apply.
    pub pending: usize,
    /// Bytes of the file and its log.
    pub bytes: u64,
    /// What is wrong with it, at most twenty faults; none in a file that is whole.
    pub faults: Vec<String>,
}

/// Looks at every page, row, index and reference of a database file, and reads what its records hold; the file stays as it is. `told` hears now and then that it goes on.
///
/// # Errors
/// See [`OpenError`]: it cannot be read at all, or this build does not know it.
pub fn check(path: &Path, told: &mut dyn FnMut(Duration)) -> Result<Examined, OpenError> {
    let pending = migrate::examine(path, true).map_err(OpenError::while_reading)?;
    let failed = |error| open::explain(path, "checking the database", error);
    let mut conn = open::onlooker(path)?;
    let mut examined = Examined { schema: migrate::schema(&conn, path)?, pending, bytes: 0, faults: Vec::new() };
    examined.bytes = [path.to_owned(), open::log_path(path)]
        .iter()
        .filter_map(|file| Some(std::fs::metadata(file).ok()?.len()))
        .sum();
    let began = Instant::now();
    // The handler lives for as long as the connection, and what is told only for as long as this call: time passes by a channel.
    let (ticks, ticked) = std::sync::mpsc::channel();
    let mut next = began + TICK;
    conn.progress_handler(
        open::PROGRESS_STEPS,
        Some(move || {
            if Instant::now() >= next {
                next = Instant::now() + TICK;
                // Whoever asked may have gone.
                let _gone = ticks.send(()).is_err();
            }
            false
        }),
    )
    .map_err(failed)?;
    let found = std::thread::scope(|scope| {
        let work = scope.spawn(move || faults(&conn));
        while ticked.recv().is_ok() {
            told(began.elapsed());
        }
        work.join()
    });
    match found {
        Ok(Ok(faults)) => examined.faults = faults,
        Ok(Err(error)) => return Err(failed(error)),
        Err(_) => return Err(OpenError::Damaged { path: path.to_owned(), detail: "the check panicked".to_owned() }),
    }
    Ok(examined)
}

fn faults(conn: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut faults = Vec::new();
    let mut statement = conn.prepare(&format!("PRAGMA integrity_check({FAULTS_MAX})"))?;
    let said = statement.query_map([], |row| row.get::<_, String>(0))?;
    for fault in said {
        match fault {
            Ok(fault) if fault == "ok" => {}
            Ok(fault) => faults.push(fault),
            // A page that cannot be read ends the examination: that is what it was asked for.
            Err(error) => {
                faults.push(error.to_string());
                return Ok(faults);
            }
        }
    }
    let mut statement = conn.prepare("PRAGMA foreign_key_check")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        if faults.len() >= FAULTS_MAX as usize {
            break;
        }
        let (table, parent): (String, String) = (row.get(0)?, row.get(2)?);
        faults.push(format!("a row of {table} refers to none of {parent}"));
    }
    bodies(conn, &mut faults)?;
    Ok(faults)
}

/// Whether the body of a row can be read.
type IsWhole = fn(&[u8]) -> bool;

/// Reads what the rows hold: a page may be whole and say nothing.
fn bodies(conn: &Connection, faults: &mut Vec<String>) -> rusqlite::Result<()> {
    let kinds: [(&str, &str, IsWhole); 3] = [
        ("spans", "span", |body| encode::decode(Columns::unknown(), body).is_ok()),
        ("text_bodies", "shared text", |body| {
            encode::decode_stored(body).is_ok() || encode::decode_stretch(body).is_ok()
        }),
        ("actions", "reported action", |body| encode::decode_action(body).is_ok()),
    ];
    for (table, what, is_whole) in kinds {
        // A file of a schema before has not all of them.
        if !conn.table_exists(None::<&str>, table)? {
            continue;
        }
        let mut statement = conn.prepare(&format!("SELECT id, body FROM {table}"))?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let is_whole = row.get_ref(1)?.as_blob_or_null()?.is_none_or(is_whole);
            if !is_whole {
                if faults.len() >= FAULTS_MAX as usize {
                    return Ok(());
                }
                faults.push(format!(
                    "the {what} in row {} of {table} cannot be read: its bytes are damaged",
                    row.get::<_, i64>(0)?
                ));
            }
        }
    }
    Ok(())
}
