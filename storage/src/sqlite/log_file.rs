//! The write-ahead log as the writer's connection sees it: what SQLite writes in a row reaches the kernel in one call.
//!
//! SQLite writes every page of a commit with two calls, its header and the page. At fifty spans a commit these calls were
//! the largest part of what a span costs (PERF.md). This is a layer over SQLite's own file system that changes one thing:
//! it holds back what is written to the log while the writes follow one another.
//!
//! Invariant: any other call on the file (a read, a sync, a truncation, its size) first writes what is held, in
//! order. The writer's cache does not spill once it writes records, so what is held belongs to a commit that ends in a sync;
//! what is held when the file is closed belongs to none and is dropped. With `synchronous = FULL` a commit is synced before other connections are told of it, so neither they nor a crash
//! can tell the difference. A write that failed is reported by the call that needed it, and once more by the next write or
//! sync when that call was neither, so that no commit can pass it by. Nothing here is aware of pages, and the database's own file
//! is the default's, but for one function where `storage.erase: pages` asks for it (`gaps`). `unsafe` stands here because SQLite is told of a file system by a table of C functions.
#![allow(unsafe_code)]

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use rusqlite::ffi::{self, sqlite3_file, sqlite3_int64, sqlite3_vfs};

use super::gaps;
use crate::pause;
use crate::retention::Erase;

const NAME: &CStr = c"weir-log";
/// The same, where the unused part of pages is emptied on the way into the database.
const NAME_WITH_PAGES: &CStr = c"weir-log-pages";
/// Bytes held back at most: SQLite's own file system takes no more in one call.
const HELD_MAX: usize = 0x1_ffff;
/// What a commit writes beyond so many bytes is sent to the disk piece by piece: the sync at the end of a large one is one long call
/// in which the kernel lets nobody go first. For what fits a usual commit that would be a call for nothing.
const UNSENT_MAX: usize = 2 * HELD_MAX;

/// The name of this file system for opening a connection; `None` when SQLite has none to build on.
pub(super) fn name(erase: Erase) -> Option<&'static CStr> {
    static ROWS: OnceLock<bool> = OnceLock::new();
    static PAGES: OnceLock<bool> = OnceLock::new();
    match erase {
        Erase::Rows => ROWS.get_or_init(|| register(NAME, open::<false>)).then_some(NAME),
        Erase::Pages => PAGES.get_or_init(|| register(NAME_WITH_PAGES, open::<true>)).then_some(NAME_WITH_PAGES),
    }
}

/// How SQLite opens a file of a file system.
type Open =
    unsafe extern "C" fn(*mut sqlite3_vfs, ffi::sqlite3_filename, *mut sqlite3_file, c_int, *mut c_int) -> c_int;

fn register(name: &'static CStr, open: Open) -> bool {
    // SAFETY: a null name asks for the default file system, which SQLite keeps for good.
    let base = unsafe { ffi::sqlite3_vfs_find(std::ptr::null()) };
    // SAFETY: null, or a table that is never changed once SQLite is set up.
    let Some(base) = (unsafe { base.as_ref() }) else { return false };
    let room = base.szOsFile + size_of::<LogFile>() as c_int;
    // Its other functions are the default's own, which look at no more of their table than is copied here.
    let own =
        sqlite3_vfs { szOsFile: room, pNext: std::ptr::null_mut(), zName: name.as_ptr(), xOpen: Some(open), ..*base };
    // SAFETY: the table lives for good, as SQLite asks.
    unsafe { ffi::sqlite3_vfs_register(Box::leak(Box::new(own)), 0) == ffi::SQLITE_OK }
}

/// What SQLite takes for the log's file. The default's file lies right behind it, in the room `szOsFile` asked for.
#[repr(C)]
struct LogFile {
    file: sqlite3_file,
    held: *mut Held,
}

/// Bytes on their way to the file.
#[derive(Default)]
struct Held {
    at: sqlite3_int64,
    bytes: Vec<u8>,
    /// The same file, for asking the kernel to begin writing; without it a sync does all at once.
    disk: Option<File>,
    /// Bytes written since the last sync.
    unsynced: usize,
    /// A write failed and neither a write nor a sync has said so.
    failed: c_int,
}

/// Calls a function of a file of the default file system.
macro_rules! call {
    ($file:expr, $method:ident $(, $argument:expr)*) => {{
        let file: *mut sqlite3_file = $file;
        (*(*file).pMethods).$method.map_or(ffi::SQLITE_IOERR, |method| method(file $(, $argument)*))
    }};
}

/// The two halves of the log's file.
///
/// # Safety
/// `file` was set up by [`open`], and nobody else uses it during the caller's call: SQLite makes one call at a time.
unsafe fn halves<'a>(file: *mut sqlite3_file) -> (&'a mut Held, *mut sqlite3_file) {
    let log = file.cast::<LogFile>();
    // SAFETY: `open` put a `Held` there, which lives until `close`; the default's file lies behind the `LogFile`.
    unsafe { (&mut *(*log).held, log.add(1).cast()) }
}

impl Held {
    /// Writes what is held; it is gone when that fails, as the transaction it belongs to is.
    ///
    /// # Safety
    /// `inner` is the open file behind this one.
    unsafe fn write_out(&mut self, inner: *mut sqlite3_file) -> c_int {
        if self.bytes.is_empty() {
            return self.failed;
        }
        // SAFETY: the bytes are ours and at most `HELD_MAX`, or one write of SQLite's, whose length is a `c_int`.
        let result = unsafe { call!(inner, xWrite, self.bytes.as_ptr().cast(), self.bytes.len() as c_int, self.at) };
        self.unsynced = self.unsynced.saturating_add(self.bytes.len());
        if result == ffi::SQLITE_OK && self.unsynced > UNSENT_MAX {
            self.send();
        }
        self.bytes.clear();
        self.failed = result;
        result
    }

    /// Has the kernel begin to write what it was just given. It promises nothing, the sync does.
    fn send(&self) {
        let Some(disk) = &self.disk else { return };
        pause::here();
        // SAFETY: the call takes numbers only, and the file is open. Where it is refused, the sync has more to do.
        unsafe {
            libc::sync_file_range(
                disk.as_raw_fd(),
                self.at,
                self.bytes.len() as libc::off64_t,
                libc::SYNC_FILE_RANGE_WRITE,
            )
        };
    }

    fn report(&mut self, result: c_int) -> c_int {
        self.failed = ffi::SQLITE_OK;
        result
    }
}

// SAFETY of all functions below: SQLite calls them as its documentation of `sqlite3_vfs` and `sqlite3_io_methods` says,
// with pointers that are good for the call, and with files that `open` has set up.

unsafe extern "C" fn open<const EMPTIES_PAGES: bool>(
    _own: *mut sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut sqlite3_file,
    flags: c_int,
    flags_out: *mut c_int,
) -> c_int {
    // SAFETY: see above; the default file system was there when this one was registered. The room behind `file` holds a
    // `LogFile` and the default's file, whose size is a multiple of a pointer's, as SQLite's own layers rely on.
    unsafe {
        let base = ffi::sqlite3_vfs_find(std::ptr::null());
        let Some(open_base) = (*base).xOpen else { return ffi::SQLITE_CANTOPEN };
        if flags & ffi::SQLITE_OPEN_WAL == 0 {
            let result = open_base(base, name, file, flags, flags_out);
            if EMPTIES_PAGES && result == ffi::SQLITE_OK && flags & ffi::SQLITE_OPEN_MAIN_DB != 0 {
                gaps::empty_in(file);
            }
            return result;
        }
        let log = file.cast::<LogFile>();
        (*log).file.pMethods = std::ptr::null();
        let result = open_base(base, name, log.add(1).cast(), flags, flags_out);
        if result == ffi::SQLITE_OK {
            let disk = File::open(Path::new(OsStr::from_bytes(CStr::from_ptr(name).to_bytes()))).ok();
            (*log).held = Box::into_raw(Box::new(Held { disk, ..Held::default() }));
            (*log).file.pMethods = &raw const METHODS;
        }
        result
    }
}

unsafe extern "C" fn close(file: *mut sqlite3_file) -> c_int {
    // SAFETY: see above; `held` came from a box, and SQLite closes a file once.
    unsafe {
        let (held, inner) = halves(file);
        // What was not synced was never committed, and the lock it was written under is gone: another process may have
        // written there since.
        drop(Box::from_raw(held));
        (*file).pMethods = std::ptr::null();
        call!(inner, xClose)
    }
}

unsafe extern "C" fn write(file: *mut sqlite3_file, from: *const c_void, amount: c_int, at: sqlite3_int64) -> c_int {
    let Ok(length) = usize::try_from(amount) else { return ffi::SQLITE_IOERR_WRITE };
    // A commit is hundreds of writes in a row, each with a checksum of its own.
    pause::here();
    // SAFETY: see above; SQLite hands over `amount` bytes.
    unsafe {
        let (held, inner) = halves(file);
        let follows = held.at + held.bytes.len() as sqlite3_int64 == at && held.bytes.len() + length <= HELD_MAX;
        if !follows || held.failed != ffi::SQLITE_OK {
            let result = held.write_out(inner);
            if result != ffi::SQLITE_OK {
                return held.report(result);
            }
        }
        if held.bytes.is_empty() {
            held.at = at;
        }
        held.bytes.extend_from_slice(std::slice::from_raw_parts(from.cast::<u8>(), length));
        ffi::SQLITE_OK
    }
}

unsafe extern "C" fn sync(file: *mut sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: see above.
    unsafe {
        let (held, inner) = halves(file);
        let result = held.write_out(inner);
        held.unsynced = 0;
        if result == ffi::SQLITE_OK { call!(inner, xSync, flags) } else { held.report(result) }
    }
}

/// A call on the file that has nothing to do with what is held, once that is written.
macro_rules! pass {
    ($name:ident, $method:ident $(, $argument:ident: $kind:ty)*) => {
        unsafe extern "C" fn $name(file: *mut sqlite3_file $(, $argument: $kind)*) -> c_int {
            // SAFETY: see above.
            unsafe {
                let (held, inner) = halves(file);
                let result = held.write_out(inner);
                if result == ffi::SQLITE_OK { call!(inner, $method $(, $argument)*) } else { result }
            }
        }
    };
}

unsafe extern "C" fn read(file: *mut sqlite3_file, to: *mut c_void, amount: c_int, at: sqlite3_int64) -> c_int {
    // Copying the log into the database is thousands of reads in a row.
    pause::here();
    // SAFETY: see above.
    unsafe { read_now(file, to, amount, at) }
}

pass!(read_now, xRead, to: *mut c_void, amount: c_int, at: sqlite3_int64);
pass!(truncate, xTruncate, length: sqlite3_int64);
pass!(file_size, xFileSize, length: *mut sqlite3_int64);
pass!(lock, xLock, level: c_int);
pass!(unlock, xUnlock, level: c_int);
pass!(is_reserved, xCheckReservedLock, answer: *mut c_int);
pass!(control, xFileControl, operation: c_int, argument: *mut c_void);

unsafe extern "C" fn sector_size(file: *mut sqlite3_file) -> c_int {
    // SAFETY: see above.
    unsafe { call!(halves(file).1, xSectorSize) }
}

unsafe extern "C" fn characteristics(file: *mut sqlite3_file) -> c_int {
    // SAFETY: see above.
    unsafe { call!(halves(file).1, xDeviceCharacteristics) }
}

/// Version 1: the functions of later versions are for the database's file only.
static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(is_reserved),
    xFileControl: Some(control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rusqlite::{Connection, OpenFlags};
    use tempfile::TempDir;

    use super::*;

    /// A connection over the layer, with room for so few pages in memory that a transaction spills into the log.
    fn writer(path: &Path, cache_pages: i64) -> Connection {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let conn = Connection::open_with_flags_and_vfs(path, flags, name(Erase::Rows).unwrap()).unwrap();
        let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).unwrap();
        assert_eq!(mode, "wal");
        conn.pragma_update(None, "synchronous", "FULL").unwrap();
        conn.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
        conn.pragma_update(None, "cache_size", cache_pages).unwrap();
        conn.execute_batch("CREATE TABLE rows (id INTEGER PRIMARY KEY, text TEXT)").unwrap();
        conn
    }

    fn insert(conn: &Connection, rows: usize, fill: &str) {
        let mut insert = conn.prepare_cached("INSERT INTO rows (text) VALUES (?1)").unwrap();
        for _ in 0..rows {
            insert.execute([fill.repeat(1_000)]).unwrap();
        }
    }

    /// Rows by their first letter, and that the file is sound.
    fn seen(conn: &Connection) -> Vec<(String, i64)> {
        let verdict: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(verdict, "ok");
        let sql = "SELECT substr(text, 1, 1), count(*) FROM rows WHERE length(text) = 1000 GROUP BY 1";
        let mut statement = conn.prepare(sql).unwrap();
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
    }

    fn of(letter: &str, rows: i64) -> (String, i64) {
        (letter.to_owned(), rows)
    }

    #[test]
    fn transactions_that_spill_read_their_own_pages_and_come_out_whole() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("db");
        let conn = writer(&path, 5);
        conn.execute_batch("BEGIN").unwrap();
        insert(&conn, 500, "a");
        // Pages that were spilled already are changed again, so their frames are written over.
        conn.execute("UPDATE rows SET text = replace(text, 'a', 'b') WHERE id % 2", []).unwrap();
        assert_eq!(seen(&conn), [of("a", 250), of("b", 250)]);
        conn.execute_batch("COMMIT; BEGIN").unwrap();
        insert(&conn, 500, "c");
        conn.execute_batch("ROLLBACK; BEGIN").unwrap();
        insert(&conn, 3, "d");
        conn.execute_batch("COMMIT").unwrap();
        let all = [of("a", 250), of("b", 250), of("d", 3)];
        assert_eq!(seen(&conn), all);
        assert_eq!(seen(&Connection::open(&path).unwrap()), all);
        conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        assert_eq!(seen(&Connection::open(&path).unwrap()), all);
    }

    #[test]
    fn what_a_transaction_that_was_undone_left_is_not_written_over_anothers_commit() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("db");
        let conn = writer(&path, 5);
        conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
        conn.execute_batch("BEGIN").unwrap();
        insert(&conn, 60, "a");
        conn.execute_batch("ROLLBACK").unwrap();
        let other = Connection::open(&path).unwrap();
        other.execute_batch("BEGIN").unwrap();
        insert(&other, 60, "b");
        other.execute_batch("COMMIT").unwrap();
        drop(conn);
        assert_eq!(seen(&Connection::open(&path).unwrap()), [of("b", 60)]);
        other.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        assert_eq!(seen(&other), [of("b", 60)]);
    }

    #[test]
    fn what_was_committed_is_in_the_files_at_once() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("db");
        let conn = writer(&path, 2_000);
        for commit in 1..=5 {
            conn.execute_batch("BEGIN").unwrap();
            insert(&conn, 200, "a");
            conn.execute_batch("COMMIT").unwrap();
            let copy = folder.path().join(format!("copy-{commit}"));
            std::fs::copy(&path, &copy).unwrap();
            std::fs::copy(path.with_file_name("db-wal"), folder.path().join(format!("copy-{commit}-wal"))).unwrap();
            assert_eq!(seen(&Connection::open(copy).unwrap()), [of("a", 200 * commit)]);
        }
    }

    #[test]
    fn a_commit_of_many_pages_takes_a_handful_of_writes() {
        let calls = || {
            let account = std::fs::read_to_string("/proc/thread-self/io").ok()?;
            account.lines().find_map(|line| line.strip_prefix("syscw: "))?.parse::<u64>().ok()
        };
        let folder = TempDir::new().unwrap();
        let conn = writer(&folder.path().join("db"), 2_000);
        conn.execute_batch("BEGIN").unwrap();
        insert(&conn, 400, "a");
        let Some(before) = calls() else {
            eprintln!("skipped: this kernel keeps no account of calls");
            return;
        };
        conn.execute_batch("COMMIT").unwrap();
        let frames: i64 = conn.query_row("PRAGMA wal_checkpoint(NOOP)", [], |row| row.get(1)).unwrap();
        let wrote = calls().unwrap() - before;
        assert!(frames > 100, "{frames} pages are too few to tell");
        assert!((1..10).contains(&wrote), "{wrote} writes for {frames} pages");
    }
}
