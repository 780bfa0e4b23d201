//! Pages found by walking an index, newest first: behind a cursor, and wherever the sums do not know what is asked for.
//!
//! A walk looks at so many entries and no more, whatever is asked for. What it has found by then is the page, and the place
//! where it stopped begins the next one, so a filter that nearly nothing matches costs several short pages instead of one
//! long wait.

use rusqlite::{Connection, params_from_iter};

use super::facets::{Conditions, Lead};
use super::read::Filter;
use crate::query::{Page, Place};

/// Entries of the first stretch; the further ones are longer, so that what is common is found at once.
const FIRST_STRETCH: u32 = 1_024;
const LAST_STRETCH: u32 = 32_768;

/// A list to walk through.
pub(super) struct Walk<'a> {
    pub(super) conn: &'a Connection,
    pub(super) filter: &'a Filter,
    pub(super) lead: Lead,
    pub(super) conditions: &'a Conditions,
    /// A further condition on rows: `ord = 0` for traces.
    pub(super) rows_only: &'static str,
    pub(super) from_us: i64,
    pub(super) to_us: i64,
}

/// What a walk found.
pub(super) struct Walked {
    /// Number and start of each row of the page.
    pub(super) rows: Vec<(i64, i64)>,
    /// Rows passed before them that `offset` skips.
    skipped: u64,
    /// Where it stopped, unless at the end.
    stopped: Option<(i64, i64)>,
    /// Matching rows counted behind the page.
    behind: u64,
    /// They were counted to the end.
    counted: bool,
}

impl Walked {
    /// Total, whether that is all, and the place behind the first `shown` rows of the page.
    pub(super) fn ends(&self, page: &Page, shown: usize) -> (u64, bool, Option<Place>) {
        let before = page.after.map_or(0, |after| after.passed) + self.skipped;
        let found = before + self.rows.len() as u64;
        let known = page.after.map_or((0, false), |after| (after.total, after.total_is_exact));
        let (total, total_is_exact) = match known {
            (total, true) => (total, true),
            _ if self.counted => (found + self.behind, true),
            (total, false) => (total.max(found + self.behind), false),
        };
        let wanted = page.after.map_or(page.offset, |after| after.skip);
        let place = |(start_us, row), shown: usize| Place {
            start_us,
            row,
            span: None,
            passed: before + shown as u64,
            skip: wanted - self.skipped,
            total,
            total_is_exact,
        };
        let next = match self.rows.get(shown.wrapping_sub(1)) {
            // The answer had no room for all of them.
            Some((row, start_us)) if shown < self.rows.len() => Some(place((*start_us, *row), shown)),
            _ if total_is_exact && found >= total => None,
            _ => self.stopped.map(|at| place(at, shown)),
        };
        (total, total_is_exact, next)
    }
}

impl Walk<'_> {
    /// The page; counts what lies behind it only where nothing is known of the list yet.
    pub(super) fn page(&self, page: &Page) -> rusqlite::Result<Walked> {
        let (mut skip, mut at) = match page.after {
            Some(after) => (after.skip, (after.start_us, after.row)),
            None => (page.offset, (self.to_us, i64::MIN)),
        };
        let mut walked = Walked { rows: Vec::new(), skipped: 0, stopped: None, behind: 0, counted: false };
        let (mut left, mut stretch) = (page.looks, FIRST_STRETCH);
        loop {
            let looks = stretch.min(left);
            if looks == 0 {
                walked.stopped = walked.stopped.or(Some(at));
                return Ok(walked);
            }
            let end = self.stretch_end(at, looks)?;
            if walked.stopped.is_none() && skip > 0 {
                // Skipped as a whole, or the stretch is walked again from its beginning with fewer to skip.
                let here = self.count(at, end)?;
                let passed = here.min(skip);
                if passed < here {
                    self.take(at, end, passed, page.limit, &mut walked)?;
                }
                (skip, walked.skipped) = (skip - passed, walked.skipped + passed);
            } else if walked.stopped.is_none() {
                self.take(at, end, 0, page.limit, &mut walked)?;
            }
            if walked.rows.len() as u32 >= page.limit {
                let last = walked.rows.last().map(|(row, start_us)| (*start_us, *row));
                if walked.stopped.is_some() {
                    walked.behind += self.count(at, end)?;
                } else if let Some(last) = last {
                    walked.stopped = Some(last);
                    if page.after.is_some() {
                        return Ok(walked);
                    }
                    walked.behind += self.count(last, end)?;
                }
            }
            let Some(end) = end else {
                walked.counted = true;
                return Ok(walked);
            };
            at = end;
            left -= looks;
            stretch = (stretch * 4).min(LAST_STRETCH);
        }
    }

    /// The entry that ends a stretch of so many, which is its last; `None` where the index ends before.
    fn stretch_end(&self, at: (i64, i64), looks: u32) -> rusqlite::Result<Option<(i64, i64)>> {
        let sql = format!(
            "SELECT start_us, id FROM spans INDEXED BY {} WHERE tenant = ?{} AND (start_us, id) < (?, ?) AND start_us >= ? \
             ORDER BY start_us DESC, id DESC LIMIT 1 OFFSET ?",
            self.lead.index, self.lead.sql
        );
        let values = self.leading().chain([at.0, at.1, self.from_us, i64::from(looks) - 1]);
        let mut statement = self.conn.prepare_cached(&sql)?;
        let mut rows = statement.query(params_from_iter(values))?;
        rows.next()?.map(|row| Ok((row.get(0)?, row.get(1)?))).transpose()
    }

    fn leading(&self) -> impl Iterator<Item = i64> {
        self.filter.values.first().copied().into_iter().chain(self.lead.value)
    }

    /// Rows of the list from behind `at` up to `end`.
    fn within(&self, at: (i64, i64), end: Option<(i64, i64)>) -> (String, impl Iterator<Item = i64>) {
        let (tenant, others) = self.filter.sql.split_at("tenant = ?".len());
        let sql = format!(
            "FROM spans INDEXED BY {} WHERE {tenant}{}{others}{}{} AND (start_us, id) < (?, ?) AND (start_us, id) >= (?, ?)",
            self.lead.index, self.lead.sql, self.conditions.sql, self.rows_only
        );
        let end = end.unwrap_or((self.from_us, i64::MIN));
        let others = self.filter.values.iter().skip(1).chain(&self.conditions.values).copied();
        (sql, self.leading().chain(others).chain([at.0, at.1, end.0, end.1]))
    }

    fn count(&self, at: (i64, i64), end: Option<(i64, i64)>) -> rusqlite::Result<u64> {
        let (within, values) = self.within(at, end);
        let mut statement = self.conn.prepare_cached(&format!("SELECT count(*) {within}"))?;
        statement
            .query_row(params_from_iter(values), |row| row.get::<_, i64>(0))
            .map(|count| count.max(0).unsigned_abs())
    }

    fn take(
        &self,
        at: (i64, i64),
        end: Option<(i64, i64)>,
        skip: u64,
        limit: u32,
        walked: &mut Walked,
    ) -> rusqlite::Result<()> {
        let (within, values) = self.within(at, end);
        let sql = format!("SELECT id, start_us {within} ORDER BY start_us DESC, id DESC LIMIT ? OFFSET ?");
        let wanted = i64::from(limit) - walked.rows.len() as i64;
        let mut statement = self.conn.prepare_cached(&sql)?;
        let rows = statement.query_map(params_from_iter(values.chain([wanted, skip.cast_signed()])), |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
        for row in rows {
            walked.rows.push(row?);
        }
        Ok(())
    }

    /// The statements, for tests of how SQLite carries them out.
    #[cfg(test)]
    fn plans(&self) -> rusqlite::Result<Vec<String>> {
        let (within, values) = self.within((5, 5), Some((1, 1)));
        let sql = format!("EXPLAIN QUERY PLAN SELECT id, start_us {within} ORDER BY start_us DESC, id DESC LIMIT 3");
        let mut statement = self.conn.prepare(&sql)?;
        statement.query_map(params_from_iter(values), |row| row.get(3))?.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Home, facets, migrate, open};
    use super::*;
    use crate::query::Facets;

    #[test]
    fn every_walk_stays_in_an_index_that_covers_it_and_never_sorts() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("service.db");
        migrate(&path, false).unwrap();
        let conn = open::connect(&Home::file(path), std::time::Duration::from_secs(1)).unwrap();
        conn.execute_batch(
            "INSERT INTO sessions (tenant, name) VALUES (1, 's'); INSERT INTO names (id, text) VALUES (9, 'a');
             INSERT INTO finding_types VALUES (0, 'jailbreak');",
        )
        .unwrap();
        let text = |text: &str| Some(text.to_owned());
        let many = Facets {
            agent_id: text("a"),
            client: text("a"),
            cost_min_nano_usd: Some(1),
            duration_max_us: Some(9),
            streaming: Some(true),
            upstream: text("openai"),
            ..Facets::default()
        };
        for (asked, index, lead) in [
            (many.clone(), "spans_by_start", "tenant=? AND start_us>? AND start_us<?"),
            (
                Facets { status: Some((500, 599)), ..many.clone() },
                "spans_failed",
                "tenant=? AND start_us>? AND start_us<?",
            ),
            (
                Facets { error_type: text("x"), ..many.clone() },
                "spans_failed",
                "tenant=? AND start_us>? AND start_us<?",
            ),
            (
                Facets { finding_type: text("jailbreak"), ..many.clone() },
                "spans_scored",
                "tenant=? AND start_us>? AND start_us<?",
            ),
            (
                Facets { session_id: text("s"), ..many },
                "spans_by_session",
                "tenant=? AND session=? AND start_us>? AND start_us<?",
            ),
        ] {
            let (lead_of, conditions) = facets::conditions(&conn, 1, &asked, false).unwrap().unwrap();
            let mut filter = Filter::of(1);
            filter.and("model = ?", 4);
            let walk = Walk {
                conn: &conn,
                filter: &filter,
                lead: lead_of,
                conditions: &conditions,
                rows_only: " AND ord = 0",
                from_us: i64::MIN,
                to_us: i64::MAX,
            };
            assert_eq!(walk.plans().unwrap(), [format!("SEARCH spans USING COVERING INDEX {index} ({lead})")]);
        }
    }
}
