//! Usage in buckets of time, summed up in the order in which the rows lie.
//!
//! Invariants: what an answer has no room for is in its `others`, so that points and others together are all that was used; the time
//! and the memory are bounded, and an answer that ran out of time says so. The room is shared out between the buckets.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OptionalExtension as _, Row, params_from_iter};
use weir_config::vocab::{TenantId, Timestamp};

use super::facets::find_session;
use super::intern::{find_name, find_tenant};
use super::reads::Reads;
use super::tallies::{HOUR_US, hour_of};
use crate::error::ReadError;
use crate::usage::{Series, SeriesPoint, SeriesQuery, Split};

/// Longest that rows are summed up: the rest of a read's time is for names and for a busy machine.
const SERIES_FOR: Duration = Duration::from_millis(1_200);
/// Rows that are summed up between two looks at the clock.
const ROWS_BETWEEN_LOOKS: u32 = 4_096;
/// Most of those that a bucket is split by that are held at a time; those of the least cost count as others then.
const HELD_MAX: usize = 131_072;

impl Reads<'_> {
    /// Usage in buckets of time.
    pub(crate) fn series(&self, tenant: TenantId, asked: &SeriesQuery) -> Result<Series, ReadError> {
        self.ask("read_series", |conn| {
            let Some(tenant) = find_tenant(conn, tenant)? else { return Ok(Series::default()) };
            let mut filter = String::new();
            let mut values = Vec::new();
            for (column, name) in [("agent", &asked.agent_id), ("model", &asked.model)] {
                let Some(name) = name else { continue };
                let Some(id) = find_name(conn, name)? else { return Ok(Series::default()) };
                filter.push_str(&format!(" AND {column} = ?"));
                values.push(id);
            }
            if let Some(name) = &asked.session_id {
                let Some(id) = find_session(conn, tenant, name)? else { return Ok(Series::default()) };
                filter.push_str(" AND session = ?");
                values.push(id);
            }
            Ok(summed_up(conn, tenant, asked, (&filter, &values), (SERIES_FOR, &|| conn.pause()))?)
        })
    }
}

/// Sums up a tenant's rows that fit, for as long as that may take.
fn summed_up(
    conn: &Connection,
    tenant: i64,
    asked: &SeriesQuery,
    (filter, filter_values): (&str, &[i64]),
    (within, pause): (Duration, &dyn Fn()),
) -> rusqlite::Result<Series> {
    let bucket = i64::from(asked.bucket_hours.max(1));
    let from = hour_of(asked.start.micros()).div_euclid(bucket) * bucket;
    let to = hour_of(asked.end.micros().saturating_sub(1)) + 1;
    let what = match asked.split {
        Split::Tenant => "0",
        Split::Agent => "agent",
        Split::Model => "model",
        Split::Client => "client",
        Split::Session => "session",
    };
    // In the order in which they lie: nothing is sorted, and one bucket is open at a time.
    let sql = format!(
        "SELECT hour / {bucket}, {what}, calls, failed, tokens, cost_nano_usd FROM usage WHERE tenant = ? AND hour >= ? \
         AND hour < ?{filter} ORDER BY tenant, hour, session"
    );
    let values = [tenant, from, to].into_iter().chain(filter_values.iter().copied());
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(values))?;
    let (begun, mut read) = (Instant::now(), 0_u32);
    // Rows of one session lie together in each hour.
    let in_order = asked.split == Split::Session && bucket == 1;
    let room = asked.points_max as usize;
    let (mut open, mut buckets, mut partial) = (Open::new(i64::MIN, in_order, room), Vec::new(), false);
    while let Some(row) = rows.next()? {
        let at = row.get(0)?;
        if at != open.at {
            close(std::mem::replace(&mut open, Open::new(at, in_order, room)), &mut buckets, room);
        }
        open.add(row.get(1)?, Sum::of(row)?);
        read += 1;
        if read.is_multiple_of(ROWS_BETWEEN_LOOKS) {
            pause();
            partial = begun.elapsed() > within;
            if partial {
                break;
            }
        }
    }
    close(open, &mut buckets, room);
    named(conn, asked, buckets, partial)
}

/// What was used by one of those that a bucket is split by.
#[derive(Clone, Copy, Default)]
struct Sum {
    calls: i64,
    failed: i64,
    // Sums of these may be more than an integer holds.
    tokens: f64,
    cost: f64,
}

impl Sum {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        let (tokens, cost): (i64, i64) = (row.get(4)?, row.get(5)?);
        Ok(Self { calls: row.get(2)?, failed: row.get(3)?, tokens: tokens as f64, cost: cost as f64 })
    }

    fn add(&mut self, more: Self) {
        self.calls = self.calls.saturating_add(more.calls);
        self.failed = self.failed.saturating_add(more.failed);
        self.tokens += more.tokens;
        self.cost += more.cost;
    }

    fn point(self, at: i64, bucket_hours: u32, name: Option<String>) -> SeriesPoint {
        let unsigned = |count: i64| count.max(0).unsigned_abs();
        SeriesPoint {
            start_time: Timestamp::from_micros(at * i64::from(bucket_hours.max(1)) * HOUR_US),
            name,
            calls: unsigned(self.calls),
            failed_calls: unsigned(self.failed),
            total_tokens: self.tokens as u64,
            total_cost_usd: self.cost / 1e9,
        }
    }
}

/// The bucket whose rows are being read.
struct Open {
    at: i64,
    /// Those whose rows lie together come once, and need not be found again.
    in_order: bool,
    /// As many as an answer may hold.
    room: usize,
    last: Option<(i64, Sum)>,
    once: Vec<(i64, Sum)>,
    held: HashMap<i64, Sum>,
    others: Sum,
}

/// A bucket that is summed up: the costliest first, and what the others come to.
struct Summed {
    at: i64,
    points: Vec<(i64, Sum)>,
    others: Sum,
}

impl Open {
    fn new(at: i64, in_order: bool, room: usize) -> Self {
        Self { at, in_order, room, last: None, once: Vec::new(), held: HashMap::new(), others: Sum::default() }
    }

    fn add(&mut self, what: i64, more: Sum) {
        match &mut self.last {
            Some((last, sum)) if *last == what => sum.add(more),
            _ => {
                self.put_away();
                self.last = Some((what, more));
            }
        }
    }

    fn put_away(&mut self) {
        let Some((what, sum)) = self.last.take() else { return };
        if self.in_order {
            self.once.push((what, sum));
            if self.once.len() > 2 * self.room.max(ROWS_BETWEEN_LOOKS as usize) {
                self.others.add(keep_costliest(&mut self.once, self.room));
            }
            return;
        }
        if self.held.len() >= HELD_MAX && !self.held.contains_key(&what) {
            let mut all: Vec<(i64, Sum)> = self.held.drain().collect();
            self.others.add(keep_costliest(&mut all, HELD_MAX / 2));
            self.held.extend(all);
        }
        self.held.entry(what).or_default().add(sum);
    }
}

/// Keeps so many, and gives the sum of the others.
fn keep_costliest(all: &mut Vec<(i64, Sum)>, count: usize) -> Sum {
    let mut others = Sum::default();
    if all.len() > count {
        all.select_nth_unstable_by(count, order);
        all.drain(count..).for_each(|(_, sum)| others.add(sum));
    }
    others
}

fn order(a: &(i64, Sum), b: &(i64, Sum)) -> std::cmp::Ordering {
    b.1.cost.total_cmp(&a.1.cost).then(b.1.calls.cmp(&a.1.calls)).then(a.0.cmp(&b.0))
}

/// Puts a bucket to those that are summed up; where they have more points than there is room for, the longest are cut.
fn close(mut open: Open, buckets: &mut Vec<Summed>, room: usize) {
    open.put_away();
    let mut points = open.once;
    points.extend(open.held);
    points.retain(|(_, sum)| sum.calls > 0);
    open.others.add(keep_costliest(&mut points, room));
    points.sort_unstable_by(order);
    buckets.push(Summed { at: open.at, points, others: open.others });
    let total = |level: usize| buckets.iter().map(|bucket| bucket.points.len().min(level)).sum::<usize>();
    if total(room) <= room {
        return;
    }
    // The highest level at which all that stick out are cut and the rest fits.
    let (mut fits, mut exceeds) = (0, room);
    while exceeds - fits > 1 {
        let middle = fits.midpoint(exceeds);
        *(if total(middle) <= room { &mut fits } else { &mut exceeds }) = middle;
    }
    // Earlier buckets get what is left below one more for each.
    let mut spare = room - total(fits);
    for bucket in buckets {
        let more = usize::from(spare > 0 && bucket.points.len() > fits);
        spare -= more;
        for (_, sum) in bucket.points.drain((fits + more).min(bucket.points.len())..) {
            bucket.others.add(sum);
        }
    }
}

/// The series, with the names of what its points are of.
fn named(conn: &Connection, asked: &SeriesQuery, buckets: Vec<Summed>, partial: bool) -> rusqlite::Result<Series> {
    let mut series = Series { partial, ..Series::default() };
    let mut name = conn.prepare_cached(match asked.split {
        Split::Tenant => "SELECT NULL WHERE ?1 IS NOT NULL",
        Split::Session => "SELECT name FROM sessions WHERE id = ?1",
        Split::Agent | Split::Model | Split::Client => "SELECT text FROM names WHERE id = ?1",
    })?;
    for Summed { at, points, others } in buckets {
        for (what, sum) in points {
            let text = name.query_row([what], |row| row.get::<_, Option<String>>(0)).optional()?.flatten();
            series.points.push(sum.point(at, asked.bucket_hours, text));
        }
        if others.calls > 0 {
            series.others.push(others.point(at, asked.bucket_hours, None));
        }
    }
    series.truncated = partial || !series.others.is_empty();
    Ok(series)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIME: i64 = 1_000_003;

    /// So many calls of one tenant over three hours, each of a session of its own, with costs in no order.
    fn usage(calls: i64) -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        let sql = format!(
            "CREATE TABLE usage (tenant INTEGER, hour INTEGER, session INTEGER, agent INTEGER, client INTEGER, model INTEGER, \
             calls INTEGER, failed INTEGER, tokens INTEGER, cost_nano_usd INTEGER, \
             PRIMARY KEY (tenant, hour, session, agent, client, model)) WITHOUT ROWID; \
             CREATE TABLE sessions (id INTEGER PRIMARY KEY, name TEXT); CREATE TABLE names (id INTEGER PRIMARY KEY, text TEXT); \
             INSERT INTO usage WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {calls}) \
             SELECT 1, i * 3 / ({calls} + 1), i, 0, 0, i % 3, 1, i % 2, 10, i * 7919 % {PRIME} * 1000 FROM n; \
             INSERT INTO sessions SELECT session, 'session ' || session FROM usage;"
        );
        conn.execute_batch(&sql).unwrap();
        conn
    }

    fn series(conn: &Connection, split: Split, bucket_hours: u32, points_max: u32, within: Duration) -> Series {
        let at = |hour: i64| Timestamp::from_micros(hour * HOUR_US);
        let (agent_id, session_id, model) = (None, None, None);
        let asked =
            SeriesQuery { start: at(0), end: at(3), bucket_hours, split, agent_id, session_id, model, points_max };
        summed_up(conn, 1, &asked, ("", &[]), (within, &|| ())).unwrap()
    }

    fn sums(series: &Series) -> (u64, u64, u64, i64) {
        let all = series.points.iter().chain(&series.others);
        all.fold((0, 0, 0, 0), |sum, point| {
            let cost = (point.total_cost_usd * 1e9).round() as i64;
            (sum.0 + point.calls, sum.1 + point.failed_calls, sum.2 + point.total_tokens, sum.3 + cost)
        })
    }

    #[test]
    fn points_and_others_are_all_that_was_used_and_the_points_are_the_costliest_of_each_bucket() {
        let calls = 30_000;
        let conn = usage(calls);
        let cost = |i: i64| i * 7919 % PRIME * 1000;
        let whole = (calls as u64, calls as u64 / 2, calls as u64 * 10, (1..=calls).map(cost).sum::<i64>());
        let forever = Duration::from_secs(3_600);
        for (split, hours) in [(Split::Session, 1), (Split::Session, 24), (Split::Model, 1), (Split::Tenant, 24)] {
            for room in [1, 7, 1_000, 100_000] {
                let got = series(&conn, split, hours, room, forever);
                assert_eq!(sums(&got), whole, "{split:?} {hours} {room}");
                assert!(got.points.len() <= room as usize && !got.partial, "{split:?} {hours} {room}");
                assert_eq!(got.truncated, !got.others.is_empty());
            }
        }
        let got = series(&conn, Split::Session, 1, 30, forever);
        for hour in 0..3 {
            let mut costs: Vec<i64> = (1..=calls).filter(|i| i * 3 / (calls + 1) == hour).map(cost).collect();
            costs.sort_unstable_by(|a, b| b.cmp(a));
            let of_hour = got.points.iter().filter(|point| point.start_time.micros() == hour * HOUR_US);
            let shown: Vec<i64> = of_hour.map(|point| (point.total_cost_usd * 1e9).round() as i64).collect();
            assert_eq!(shown, costs[..10], "hour {hour}");
        }
        let name = got.points[0].name.as_deref().unwrap();
        let of_name = cost(name.strip_prefix("session ").unwrap().parse().unwrap());
        assert_eq!((got.points[0].total_cost_usd * 1e9).round() as i64, of_name);
    }

    #[test]
    fn what_takes_too_long_is_answered_as_far_as_it_was_read_and_says_so() {
        let conn = usage(30_000);
        let got = series(&conn, Split::Session, 1, 100, Duration::ZERO);
        assert!(got.partial && got.truncated);
        assert_eq!((got.points.len(), sums(&got).0), (100, u64::from(ROWS_BETWEEN_LOOKS)));
    }
}
