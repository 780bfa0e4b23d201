//! What a page of the database does not use goes into the file as zeros.
//!
//! `secure_delete` overwrites what is deleted in the place where it lies. When SQLite moves rows between pages, though, it lays a page out
//! anew and leaves what lay there before in the gap between the page's list of cells and the cells (`rebuildPage`, SQLite 3.54): of
//! a row that was moved and is then deleted, the copy in the gap would stay. So with `storage.erase: pages`, where a checkpoint writes a
//! page into the database, its gap is emptied on the way. By default nothing here runs, and the file is as SQLite writes it.
//!
//! Invariant: nothing but the unallocated space of a b-tree page is changed (file format, section 1.6), which no reader looks at. Pages
//! of other kinds are told by their first byte: where an overflow page or a list of free pages says which page comes next, it is the highest of
//! four, and no file below [`bytes_max`] has pages with such numbers. Pages of the log are left as they are, since it has checksums; it is
//! cut when something was deleted. `unsafe` stands here because SQLite is told of its files by a table of C functions.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::ops::Range;

use parking_lot::Mutex;
use rusqlite::ffi::{self, sqlite3_file, sqlite3_int64, sqlite3_io_methods};

/// First bytes of b-tree pages whose cells hold what was recorded; in what remains, inner pages of tables, they are numbers.
const INNER_OF_INDEX: u8 = 0x02;
const LEAF_OF_INDEX: u8 = 0x0a;
const LEAF_OF_TABLE: u8 = 0x0d;
/// The first page begins with the header of the file.
const FILE_HEADER_BYTES: usize = 100;
/// What a checkpoint may add to a file whose size was just asked for: hundreds of times what the log holds at most.
const GROWTH_MAX: u64 = 64 << 30;

/// A file system's functions for a file with another one for writing, and what they were.
#[repr(C)]
struct Methods {
    own: sqlite3_io_methods,
    base: sqlite3_io_methods,
}

/// By the address of the table they stand for, of which a file system has a handful that are never changed.
static TABLES: Mutex<Option<HashMap<usize, &'static Methods>>> = Mutex::new(None);

/// Has the gaps of pages emptied that are written into this database.
///
/// # Safety
/// The file was just opened by the default file system, and nobody else uses it yet.
pub(super) unsafe fn empty_in(file: *mut sqlite3_file) {
    // SAFETY: an open file has a table that lives for good.
    let Some(base) = (unsafe { (*file).pMethods.as_ref() }) else { return };
    let mut tables = TABLES.lock();
    let own = tables.get_or_insert_default().entry(std::ptr::from_ref(base).addr()).or_insert_with(|| {
        let own = sqlite3_io_methods { xWrite: Some(write), ..*base };
        Box::leak(Box::new(Methods { own, base: *base }))
    });
    // SAFETY: the table lives for good. Its other functions are the default's own, which look at the file, not at the table.
    unsafe { (*file).pMethods = &raw const own.own };
}

unsafe extern "C" fn write(file: *mut sqlite3_file, from: *const c_void, amount: c_int, at: sqlite3_int64) -> c_int {
    let (Ok(length), Ok(start)) = (usize::try_from(amount), u64::try_from(at)) else { return ffi::SQLITE_IOERR_WRITE };
    // SAFETY: `empty_in` put a `Methods` there, whose first field the table is; SQLite hands over `amount` bytes.
    unsafe {
        let base = &(*(*file).pMethods.cast::<Methods>()).base;
        let Some(base_write) = base.xWrite else { return ffi::SQLITE_IOERR_WRITE };
        let page = std::slice::from_raw_parts(from.cast::<u8>(), length);
        let clean = stale(page, start).filter(|_| {
            let mut size = 0;
            let asked = base.xFileSize.map_or(ffi::SQLITE_IOERR, |ask| ask(file, &raw mut size));
            asked == ffi::SQLITE_OK && u64::try_from(size).is_ok_and(|size| size < bytes_max(kind(page, start), length))
        });
        let Some(gap) = clean else { return base_write(file, from, amount, at) };
        let mut page = page.to_vec();
        if let Some(gap) = page.get_mut(gap) {
            gap.fill(0);
        }
        base_write(file, page.as_ptr().cast(), amount, at)
    }
}

/// Bytes of a file that has no page with a number whose highest byte is this one, and gets none by the next checkpoint.
fn bytes_max(kind: u8, page_bytes: usize) -> u64 {
    ((u64::from(kind) << 24) * page_bytes as u64).saturating_sub(GROWTH_MAX)
}

fn header_at(start: u64) -> usize {
    if start == 0 { FILE_HEADER_BYTES } else { 0 }
}

fn kind(page: &[u8], start: u64) -> u8 {
    page.get(header_at(start)).copied().unwrap_or_default()
}

/// The gap of a b-tree page in which something stands.
fn stale(page: &[u8], start: u64) -> Option<Range<usize>> {
    let gap = gap(page, start)?;
    // Many bytes at a time: this is asked of every page that is written.
    let is_blank = |bytes: &[u8]| bytes.iter().fold(0, |all, byte| all | byte) == 0;
    (!page.get(gap.clone())?.chunks(256).all(is_blank)).then_some(gap)
}

/// Where a b-tree page, whole and by itself, has nothing: behind its list of cells and before the first of these.
fn gap(page: &[u8], start: u64) -> Option<Range<usize>> {
    let size = page.len();
    if !size.is_power_of_two() || !(512..=65_536).contains(&size) || !start.is_multiple_of(size as u64) {
        return None;
    }
    let at = header_at(start);
    let two = |at: usize| Some(usize::from(u16::from_be_bytes(*page.get(at..)?.first_chunk()?)));
    let cells = two(at + 3)?;
    let header_bytes = match kind(page, start) {
        LEAF_OF_INDEX | LEAF_OF_TABLE => 8,
        // A map of pages may begin like this, too.
        INNER_OF_INDEX if cells > 0 && !is_map(start / size as u64 + 1, size as u64) => 12,
        _ => return None,
    };
    let list = at + header_bytes..at + header_bytes + 2 * cells;
    let content = match two(at + 5)? {
        0 => 65_536,
        content => content,
    };
    let is_cell = |pointer: &[u8]| match pointer {
        [high, low] => (content..size).contains(&usize::from(u16::from_be_bytes([*high, *low]))),
        _ => false,
    };
    let sound = content <= size && page.get(list.clone())?.chunks(2).all(is_cell);
    (sound && list.end < content).then_some(list.end..content)
}

/// Whether a page would hold the map of a file that can give pages back (file format, section 1.8).
fn is_map(number: u64, page_bytes: u64) -> bool {
    let each = page_bytes / 5 + 1;
    let lock = (1 << 30) / page_bytes + 1;
    number >= 2 && ((number - 2).is_multiple_of(each) || (number == lock + 1 && (lock - 2).is_multiple_of(each)))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::Path;

    use memchr::memmem;
    use rusqlite::{Connection, OpenFlags};
    use tempfile::TempDir;

    use super::super::log_file;
    use super::*;
    use crate::retention::Erase;

    fn open(path: &Path, empties: bool) -> Connection {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let erase = if empties { Erase::Pages } else { Erase::Rows };
        let conn = Connection::open_with_flags_and_vfs(path, flags, log_file::name(erase).unwrap()).unwrap();
        conn.pragma_update(None, "page_size", 8192).unwrap();
        conn.pragma_update(None, "auto_vacuum", "INCREMENTAL").unwrap();
        conn.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())).unwrap();
        conn.pragma_update(None, "secure_delete", true).unwrap();
        conn.pragma_update(None, "synchronous", "OFF").unwrap();
        let sql = "CREATE TABLE bodies (id INTEGER PRIMARY KEY, said BLOB); \
            CREATE TABLE names (id INTEGER, said BLOB, PRIMARY KEY (said, id)) WITHOUT ROWID";
        conn.execute_batch(sql).unwrap();
        conn
    }

    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, bound: i64) -> i64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) as i64 % bound
        }
    }

    const ROWS: i64 = 1_500;

    /// The same rows come, change and go in every database that gets this seed: bodies in a table, names in order of an index.
    fn work(conn: &Connection, seed: u64) {
        let mut numbers = Numbers(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for id in 0..ROWS {
            let length = [60, 200, 200, 700, 20_000][numbers.below(5) as usize];
            conn.execute("INSERT INTO bodies VALUES (?1, ?2)", (id, said("body", id, length))).unwrap();
            let length = [60, 300, 1_500][numbers.below(3) as usize];
            let name = [numbers.below(i64::MAX).to_be_bytes().to_vec(), said("name", id, length)].concat();
            conn.execute("INSERT INTO names VALUES (?1, ?2)", (id, name)).unwrap();
            let (changes, length) = (numbers.below(id + 1), numbers.below(900) as usize);
            conn.execute("UPDATE bodies SET said = ?2 WHERE id = ?1", (changes, said("body", changes, length)))
                .unwrap();
            for table in ["bodies", "names"] {
                if numbers.below(2) == 0 {
                    let sql = format!("DELETE FROM {table} WHERE id = ?1");
                    conn.execute(&sql, [numbers.below(id + 1)]).unwrap();
                }
            }
        }
        conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    }

    /// Says whose it is every sixteen bytes.
    fn said(what: &str, id: i64, length: usize) -> Vec<u8> {
        format!("<{what} {id:08}>.").repeat(length / 16 + 1).into_bytes()
    }

    fn rows(conn: &Connection, table: &str) -> BTreeMap<i64, Vec<u8>> {
        let mut statement = conn.prepare(&format!("SELECT id, said FROM {table}")).unwrap();
        statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect()
    }

    /// How many of the rows that are not there any more the file still has something of.
    fn left(file: &[u8], what: &str, there: &BTreeMap<i64, Vec<u8>>) -> usize {
        let beginning = format!("<{what} ");
        let ends = memmem::find_iter(file, &beginning).map(|at| at + beginning.len());
        let ids = ends.filter_map(|at| std::str::from_utf8(file.get(at..at + 8)?).ok()?.parse().ok());
        ids.filter(|id| !there.contains_key(id)).collect::<BTreeSet<i64>>().len()
    }

    #[test]
    fn what_is_deleted_stands_nowhere_in_the_file_and_the_rest_is_as_without() {
        let folder = TempDir::new().unwrap();
        let mut without = [0; 2];
        for seed in 1..=12 {
            let [plain, emptied] = [false, true].map(|empties| {
                let path = folder.path().join(format!("{seed}-{empties}"));
                let conn = open(&path, empties);
                work(&conn, seed);
                let verdict: String = conn.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
                assert_eq!(verdict, "ok");
                let tables = ["bodies", "names"].map(|table| rows(&conn, table));
                let file = std::fs::read(path).unwrap();
                let left = [("body", &tables[0]), ("name", &tables[1])].map(|(what, there)| left(&file, what, there));
                (tables, left)
            });
            assert!(plain.0 == emptied.0, "seed {seed}");
            assert!(plain.0.iter().all(|rows| (400..1_100).contains(&rows.len())), "seed {seed}");
            assert_eq!(emptied.1, [0, 0], "seed {seed}");
            without.iter_mut().zip(plain.1).for_each(|(sum, left)| *sum += left);
        }
        assert!(without.iter().all(|left| *left > 0), "by default pages are as SQLite leaves them: {without:?}");
    }

    /// A page with so many cells, the first of which begins here; the rest is full of ones.
    fn page(kind: u8, cells: u16, content: u16) -> Vec<u8> {
        let mut page = vec![1; 4096];
        page[0] = kind;
        page[3..5].copy_from_slice(&cells.to_be_bytes());
        page[5..7].copy_from_slice(&content.to_be_bytes());
        let list = if kind == INNER_OF_INDEX { 12 } else { 8 };
        for cell in 0..usize::from(cells) {
            page[list + 2 * cell..][..2].copy_from_slice(&content.to_be_bytes());
        }
        page
    }

    #[test]
    fn only_what_is_surely_a_page_of_a_b_tree_is_changed() {
        let number = |number: u64| (number - 1) * 4096;
        assert_eq!(gap(&page(LEAF_OF_TABLE, 3, 4000), number(5)), Some(14..4000));
        assert_eq!(gap(&page(LEAF_OF_INDEX, 0, 4096), number(5)), Some(8..4096));
        assert_eq!(gap(&page(INNER_OF_INDEX, 3, 4000), number(5)), Some(18..4000));
        // Inner pages of tables, free pages, overflow pages of a small file.
        for kind in [0, 1, 5, 0x0b, 0xff] {
            assert_eq!(gap(&page(kind, 3, 4000), number(5)), None, "{kind}");
        }
        // Pages that map others, of which 4096 bytes hold 819.
        for map in [2, 822] {
            assert_eq!(gap(&page(INNER_OF_INDEX, 3, 4000), number(map)), None, "{map}");
        }
        // A list of cells that ends behind the first of them, and one that names a place before it.
        assert_eq!(gap(&page(LEAF_OF_TABLE, 100, 200), number(5)), None);
        let mut damaged = page(LEAF_OF_TABLE, 3, 4000);
        damaged[8..10].copy_from_slice(&3999_u16.to_be_bytes());
        assert_eq!(gap(&damaged, number(5)), None);
        // No page by itself.
        assert_eq!(gap(&page(LEAF_OF_TABLE, 3, 4000), 100), None);
        assert_eq!(gap(&page(LEAF_OF_TABLE, 3, 1000)[..2000], 0), None);
        // Nothing stands there.
        let mut clean = page(LEAF_OF_TABLE, 3, 4000);
        clean[14..4000].fill(0);
        assert_eq!(stale(&clean, number(5)), None);
    }

    #[test]
    fn a_file_in_which_a_page_number_could_begin_like_a_page_is_left_alone() {
        // In pages of 8 KiB, numbers that begin with 2 come from 256 GiB on, with 10 from 1,280 GiB, with 13 from 1,664.
        let gib = |gib: u64| gib << 30;
        assert_eq!(bytes_max(INNER_OF_INDEX, 8192), gib(256 - 64));
        assert_eq!(bytes_max(LEAF_OF_INDEX, 8192), gib(1_280 - 64));
        assert_eq!(bytes_max(LEAF_OF_TABLE, 8192), gib(1_664 - 64));
        assert_eq!(bytes_max(INNER_OF_INDEX, 512), 0);
    }
}
