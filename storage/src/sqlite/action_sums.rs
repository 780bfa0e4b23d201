//! Running sums of reported actions, changed in the transaction that changes the actions: the summary reads them and no
//! action.
//!
//! Invariant: after every transaction a row says how many actions of a kind and name the spans of its filter values have,
//! and a row of kind 0 how many such spans have any; no row counts nothing.

use std::collections::BTreeMap;

use rusqlite::{Connection, params_from_iter};

use super::read::Filter;
use super::readers::Stop;
use super::tallies::Key;
use crate::actions::{ActionsSummary, TOP_ACTIONS_MAX, TopAction};

/// The kind of rows that count spans.
const SPANS: i64 = 0;

const ADD: &str = "INSERT INTO action_sums (tenant, kind, name, provider, model, operation, score, actions, failures) \
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO UPDATE SET \
    actions = actions + excluded.actions, failures = failures + excluded.failures";
const PRUNE: &str = "DELETE FROM action_sums WHERE tenant = ?1 AND kind = ?2 AND name = ?3 AND provider = ?4 AND \
    model = ?5 AND operation = ?6 AND score = ?7 AND actions <= 0";

fn add(conn: &Connection, key: &Key, kind: i64, name: &str, actions: i64, failures: i64) -> rusqlite::Result<()> {
    let Key { tenant, provider, model, operation, score } = *key;
    let row = (tenant, kind, name, provider, model, operation, score);
    conn.prepare_cached(ADD)?.execute((row.0, row.1, row.2, row.3, row.4, row.5, row.6, actions, failures))?;
    if actions < 0 {
        conn.prepare_cached(PRUNE)?.execute(row)?;
    }
    Ok(())
}

/// One more action for `span`, which is not in the table of actions yet.
pub(super) fn add_action(
    conn: &Connection,
    key: &Key,
    span: i64,
    kind: i64,
    name: &str,
    success: bool,
) -> rusqlite::Result<()> {
    if !conn.prepare_cached("SELECT 1 FROM actions WHERE span = ?1 LIMIT 1")?.exists([span])? {
        add(conn, key, SPANS, "", 1, 0)?;
    }
    add(conn, key, kind, name, 1, i64::from(!success))
}

/// Actions of one span by kind and name, and how many of them failed.
pub(super) type Removed = BTreeMap<(i64, String), (i64, i64)>;

/// Actions of a span count for nothing any more; `all` when it has no further ones.
pub(super) fn remove(conn: &Connection, key: &Key, removed: &Removed, all: bool) -> rusqlite::Result<()> {
    for ((kind, name), (actions, failures)) in removed {
        add(conn, key, *kind, name, -actions, -failures)?;
    }
    if all && !removed.is_empty() { add(conn, key, SPANS, "", -1, 0) } else { Ok(()) }
}

/// The actions of `span` count under another score from now on.
pub(super) fn move_span(conn: &Connection, from: &Key, to: &Key, span: i64) -> rusqlite::Result<()> {
    change_span(conn, from, span, -1)?;
    change_span(conn, to, span, 1)
}

fn change_span(conn: &Connection, key: &Key, span: i64, sign: i64) -> rusqlite::Result<()> {
    let sql = "SELECT kind, name, count(*), sum(NOT success) FROM actions WHERE span = ?1 GROUP BY kind, name";
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query([span])?;
    let mut any = false;
    while let Some(row) = rows.next()? {
        let (actions, failures): (i64, i64) = (row.get(2)?, row.get(3)?);
        add(conn, key, row.get(0)?, row.get_ref(1)?.as_str()?, sign * actions, sign * failures)?;
        any = true;
    }
    if any { add(conn, key, SPANS, "", sign, 0) } else { Ok(()) }
}

/// Whether the tenant has reported actions.
pub(super) fn any(conn: &Connection, tenant: i64) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT 1 FROM action_sums WHERE tenant = ?1 LIMIT 1")?.exists([tenant])
}

/// Adds what the spans that match have to `summary`.
pub(super) fn sum_up(conn: &Connection, filter: &Filter, summary: &mut ActionsSummary) -> Result<(), Stop> {
    let sql = format!(
        "SELECT kind, name, sum(actions), sum(failures), (SELECT text FROM names WHERE id = kind) FROM action_sums \
         WHERE {} GROUP BY kind, name",
        filter.sql
    );
    let mut statement = conn.prepare_cached(&sql)?;
    let mut rows = statement.query(params_from_iter(&filter.values))?;
    let mut failures = 0;
    // How many a name needs to be among the top ones, as far as is known.
    let mut least = 0;
    while let Some(row) = rows.next()? {
        let count = row.get::<_, i64>(2)?.max(0).unsigned_abs();
        if row.get::<_, i64>(0)? == SPANS {
            summary.spans_with_actions = count;
            continue;
        }
        let failed = row.get::<_, i64>(3)?.max(0).unsigned_abs();
        let kind = row.get_ref(4)?.as_str().map_err(rusqlite::Error::from)?;
        summary.total_actions += count;
        failures += failed;
        match summary.action_counts.get_mut(kind) {
            Some(sum) => *sum += count,
            None => drop(summary.action_counts.insert(kind.to_owned(), count)),
        }
        if count >= least {
            let name = row.get(1)?;
            summary.top_actions.push(TopAction { name, action_type: kind.to_owned(), count, failures: failed });
        }
        if summary.top_actions.len() > 4 * TOP_ACTIONS_MAX {
            keep_top(&mut summary.top_actions);
            least = summary.top_actions.last().map_or(0, |last| last.count);
        }
    }
    keep_top(&mut summary.top_actions);
    if summary.total_actions > 0 {
        summary.success_rate = Some((summary.total_actions - failures) as f64 / summary.total_actions as f64);
    }
    Ok(())
}

/// Most frequent first; names decide among equals.
fn keep_top(actions: &mut Vec<TopAction>) {
    actions.sort_by(|a, b| (b.count, &a.name, &a.action_type).cmp(&(a.count, &b.name, &b.action_type)));
    actions.truncate(TOP_ACTIONS_MAX);
}
