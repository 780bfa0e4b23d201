//! Where a page lies: totals and the way to deep pages, from the sums by time.
//!
//! A list is ordered by time, so the rows before a page are counted slice by slice, the coarse slices first, and only
//! the slices that hold rows of the page are read. What is read row by row is at most what one finest slice, or a sixteenth of it,
//! holds per row of the page, however deep the page and however rare the filter. Ranges are half open, in microseconds.

use rusqlite::{Connection, params_from_iter};

use super::read::Filter;
use super::tallies::{FINE, FINE_BITS, LEVEL_BITS};
use crate::query::{Page, Place};

/// The place a page begins at, in a list whose rows are numbered from 1, newest first.
pub(super) fn first_place(total: i64, page: Page) -> i64 {
    match page.after {
        Some(after) => after.row.saturating_sub(1),
        None => total.saturating_sub(i64::try_from(page.offset).unwrap_or(i64::MAX)),
    }
}

/// Where such a list goes on behind a page of so many rows; `oldest` is the number it ends with.
pub(super) fn next_place(first: i64, rows: usize, oldest: i64) -> Option<Place> {
    let last = first.saturating_add(1).saturating_sub(i64::try_from(rows).unwrap_or(i64::MAX));
    (rows > 0 && last > oldest).then(|| Place::of_row(last))
}

/// Rows of a second that are few: more of them are soon found by looking at all.
const FEW: u64 = 256;

/// A list: the rows that match a filter, within a range of time.
pub(super) struct List<'a> {
    pub(super) conn: &'a Connection,
    pub(super) filter: &'a Filter,
    /// Column of the sums that counts this list's rows: `spans` or `traces`.
    pub(super) counted: &'static str,
    /// Index that covers the filter.
    pub(super) index: &'static str,
    /// A further condition on rows: `ord = 0` for traces.
    pub(super) rows_only: &'static str,
}

/// Neighbouring slices of one level, or rows when the level is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    level: Option<usize>,
    from_us: i64,
    to_us: i64,
}

/// Rows to be read: newest first, after skipping some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Piece {
    from_us: i64,
    to_us: i64,
    skip: u64,
    rows: u64,
}

/// Cuts a range into runs of the coarsest slices that fit, newest first.
fn cut(from_us: i64, to_us: i64, level: Option<usize>, runs: &mut Vec<Run>) {
    if from_us >= to_us {
        return;
    }
    let Some(level) = level else {
        runs.push(Run { level: None, from_us, to_us });
        return;
    };
    let below = level.checked_sub(1);
    let mask = (1i64 << LEVEL_BITS[level]) - 1;
    let first = if from_us & mask == 0 { from_us } else { (from_us | mask).saturating_add(1) };
    let last = to_us & !mask;
    if first >= last {
        return cut(from_us, to_us, below, runs);
    }
    cut(last, to_us, below, runs);
    runs.push(Run { level: Some(level), from_us: first, to_us: last });
    cut(from_us, first, below, runs);
}

impl List<'_> {
    /// Rows of the list in `from_us..to_us`.
    pub(super) fn count(&self, from_us: i64, to_us: i64) -> rusqlite::Result<u64> {
        let mut runs = Vec::new();
        cut(from_us, to_us, Some(LEVEL_BITS.len() - 1), &mut runs);
        runs.iter().try_fold(0, |sum, run| Ok(sum + self.count_run(run)?))
    }

    fn count_run(&self, run: &Run) -> rusqlite::Result<u64> {
        let (sql, bounds) = match run.level {
            Some(level) => {
                let sql = format!(
                    "SELECT ifnull(sum({}), 0) FROM slices WHERE {} AND level = ? AND slice >= ? AND slice < ?",
                    self.counted, self.filter.sql
                );
                let bits = LEVEL_BITS[level];
                (sql, vec![level as i64, run.from_us >> bits, run.to_us >> bits])
            }
            None => {
                let sql = format!("SELECT count(*) FROM spans INDEXED BY {} WHERE {}", self.index, self.rows_within());
                (sql, vec![run.from_us, run.to_us])
            }
        };
        let values = self.filter.values.iter().copied().chain(bounds);
        let count: i64 = self.conn.prepare_cached(&sql)?.query_row(params_from_iter(values), |row| row.get(0))?;
        Ok(count.max(0).unsigned_abs())
    }

    fn rows_within(&self) -> String {
        format!("{}{} AND start_us >= ? AND start_us < ?", self.filter.sql, self.rows_only)
    }

    /// Rows of a page of the list, each its number and its start, in `from_us..to_us`, newest first.
    pub(super) fn page(&self, from_us: i64, to_us: i64, page: Page, total: u64) -> rusqlite::Result<Vec<(i64, i64)>> {
        let wanted = u64::from(page.limit).min(total.saturating_sub(page.offset));
        if wanted == 0 {
            return Ok(Vec::new());
        }
        let mut runs = Vec::new();
        cut(from_us, to_us, Some(LEVEL_BITS.len() - 1), &mut runs);
        let mut search = Search { skip: page.offset, wanted, pieces: Vec::new() };
        for run in &runs {
            if search.wanted == 0 {
                break;
            }
            self.seek(run, &mut search)?;
        }
        let sql = format!(
            "SELECT id, start_us FROM spans INDEXED BY {} WHERE {} ORDER BY start_us DESC, id DESC LIMIT ? OFFSET ?",
            self.index,
            self.rows_within()
        );
        let mut statement = self.conn.prepare_cached(&sql)?;
        let mut ids = Vec::with_capacity(wanted as usize);
        for piece in &search.pieces {
            let bounds = [piece.from_us, piece.to_us, piece.rows.cast_signed(), piece.skip.cast_signed()];
            let values = self.filter.values.iter().copied().chain(bounds);
            for id in statement.query_map(params_from_iter(values), |row| Ok((row.get(0)?, row.get(1)?)))? {
                ids.push(id?);
            }
        }
        Ok(ids)
    }

    /// Passes over what lies before the page, and notes what lies in it.
    fn seek(&self, run: &Run, search: &mut Search) -> rusqlite::Result<()> {
        let Some(level) = run.level else {
            let rows = self.count_run(run)?;
            search.meet(run.from_us, run.to_us, rows);
            return Ok(());
        };
        let sql = format!(
            "SELECT slice, sum({0}) FROM slices WHERE {1} AND level = ? AND slice >= ? AND slice < ? \
             GROUP BY slice HAVING sum({0}) > 0 ORDER BY slice DESC",
            self.counted, self.filter.sql
        );
        let bits = LEVEL_BITS[level];
        let bounds = [level as i64, run.from_us >> bits, run.to_us >> bits];
        let values = self.filter.values.iter().copied().chain(bounds);
        let mut statement = self.conn.prepare_cached(&sql)?;
        let mut slices = statement.query(params_from_iter(values))?;
        let crowded = level == 0 && self.any_sixteenths(run)?;
        while search.wanted > 0 {
            let Some(slice) = slices.next()? else { break };
            let from_us = slice.get::<_, i64>(0)? << bits;
            let to_us = from_us.saturating_add(1 << bits);
            let rows = slice.get::<_, i64>(1)?.max(0).unsigned_abs();
            match level.checked_sub(1) {
                _ if search.skip >= rows => search.skip -= rows,
                Some(below) => self.seek(&Run { level: Some(below), from_us, to_us }, search)?,
                None if crowded && rows < FEW => self.seek_sixteenths(from_us, to_us, rows, search)?,
                None => search.meet(from_us, to_us, rows),
            }
        }
        Ok(())
    }

    /// Whether anything is known of sixteenths of these seconds.
    fn any_sixteenths(&self, run: &Run) -> rusqlite::Result<bool> {
        let sql = "SELECT 1 FROM slices WHERE tenant = ?1 AND level = ?2 AND slice >= ?3 AND slice < ?4 LIMIT 1";
        let tenant = self.filter.values.first().copied();
        let values = (tenant, FINE as i64, run.from_us >> FINE_BITS, run.to_us >> FINE_BITS);
        self.conn.prepare_cached(sql)?.exists(values)
    }

    /// A second's rows by the sixteenths in which they are, if that is known of all of them.
    fn seek_sixteenths(&self, from_us: i64, to_us: i64, rows: u64, search: &mut Search) -> rusqlite::Result<()> {
        let sql = format!(
            "SELECT slice, sum({0}) FROM slices WHERE {1} AND level = ? AND slice >= ? AND slice < ? \
             GROUP BY slice HAVING sum({0}) > 0 ORDER BY slice DESC",
            self.counted, self.filter.sql
        );
        let bounds = [FINE as i64, from_us >> FINE_BITS, to_us >> FINE_BITS];
        let mut statement = self.conn.prepare_cached(&sql)?;
        let known = statement
            .query_map(params_from_iter(self.filter.values.iter().copied().chain(bounds)), |row| {
                Ok((row.get::<_, i64>(0)? << FINE_BITS, row.get::<_, i64>(1)?.max(0).unsigned_abs()))
            })?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        if known.iter().map(|(_, rows)| rows).sum::<u64>() != rows {
            search.meet(from_us, to_us, rows);
            return Ok(());
        }
        for (from_us, rows) in known {
            search.meet(from_us, from_us.saturating_add(1 << FINE_BITS), rows);
        }
        Ok(())
    }
}

/// How much of the way is left.
struct Search {
    skip: u64,
    wanted: u64,
    pieces: Vec<Piece>,
}

impl Search {
    /// The next older stretch of the list holds `rows` rows.
    fn meet(&mut self, from_us: i64, to_us: i64, rows: u64) {
        if self.skip >= rows {
            self.skip -= rows;
            return;
        }
        let taken = (rows - self.skip).min(self.wanted);
        match self.pieces.last_mut() {
            // Right behind the former: one scan for both.
            Some(former) if former.from_us == to_us => {
                former.from_us = from_us;
                former.rows += taken;
            }
            _ => self.pieces.push(Piece { from_us, to_us, skip: self.skip, rows: taken }),
        }
        self.skip = 0;
        self.wanted -= taken;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{Home, migrate, open};
    use super::*;

    fn time() -> impl Strategy<Value = i64> {
        prop_oneof![
            any::<i64>(),
            0i64..4_000_000_000_000_000,
            (0i64..50_000, 20u32..37).prop_map(|(at, bits)| at << bits)
        ]
    }

    proptest! {
        #[test]
        fn runs_cover_a_range_once_newest_first(a in time(), b in time()) {
            let (from_us, to_us) = (a.min(b), a.max(b));
            let mut runs = Vec::new();
            cut(from_us, to_us, Some(2), &mut runs);
            let mut at = to_us;
            for run in &runs {
                prop_assert_eq!(run.to_us, at);
                prop_assert!(run.from_us < run.to_us);
                if let Some(level) = run.level {
                    let mask = (1i64 << LEVEL_BITS[level]) - 1;
                    prop_assert_eq!((run.from_us & mask, run.to_us & mask), (0, 0));
                } else {
                    prop_assert!(run.to_us as i128 - run.from_us as i128 <= 2 << LEVEL_BITS[0]);
                }
                at = run.from_us;
            }
            prop_assert_eq!(at, from_us);
            prop_assert!(runs.len() <= 7);
        }
    }

    #[test]
    fn pages_are_read_from_a_covering_index_without_sorting() {
        let folder = tempfile::TempDir::new().unwrap();
        let home = Home::file(folder.path().join("service.db"));
        migrate(home.path(), false).unwrap();
        let conn = open::connect(&home, std::time::Duration::from_secs(1)).unwrap();
        let mut any = Filter::of(1);
        any.and("model = ?", 4);
        let mut scored = Filter::of(1);
        scored.sql.push_str(" AND score > 0");
        scored.and("operation = ?", 2);
        let lists =
            [("spans_by_start", &any, ""), ("spans_scored", &scored, ""), ("spans_by_start", &any, " AND ord = 0")];
        for (index, filter, rows_only) in lists {
            let list = List { conn: &conn, filter, counted: "spans", index, rows_only };
            let sql = format!(
                "EXPLAIN QUERY PLAN SELECT id, start_us FROM spans INDEXED BY {index} WHERE {} \
                 ORDER BY start_us DESC, id DESC LIMIT 10 OFFSET 5",
                list.rows_within()
            );
            let values = filter.values.iter().copied().chain([0, 1]);
            let mut statement = conn.prepare(&sql).unwrap();
            let steps = statement.query_map(params_from_iter(values), |row| row.get::<_, String>(3)).unwrap();
            let plan = steps.map(Result::unwrap).collect::<Vec<_>>().join("; ");
            let covering =
                format!("SEARCH spans USING COVERING INDEX {index} (tenant=? AND start_us>? AND start_us<?)");
            assert_eq!(plan, covering);
        }
    }
}
