//! Questions about sessions, answered from their sums; what was used over time is in `series`.

use rusqlite::{Connection, Row, params_from_iter};
use weir_config::vocab::{TenantId, Timestamp};

use super::intern::{find_name, find_tenant};
use super::reads::Reads;
use crate::error::ReadError;
use crate::query::{Page, Paged, Place};
use crate::usage::{PromptSums, SessionFilter, SessionRecord};

/// What looking at a session costs, in looks at an entry of an index: two steps into other indexes, and behind a filter a walk
/// over its calls.
const PLAIN_LOOKS: u32 = 8;
const FILTERED_LOOKS: u32 = 32;

/// What a row of `sessions` looks like from outside.
struct Sums {
    id: i64,
    name: String,
    calls: i64,
    failed: i64,
    tokens: i64,
    cost_nano_usd: i64,
    score: i64,
    prompts: PromptSums,
}

/// The first or last call of a session.
struct End {
    start_us: i64,
    agent: Option<String>,
    client: Option<String>,
    model: Option<String>,
}

fn end(conn: &Connection, tenant: i64, session: i64, order: &str) -> rusqlite::Result<Option<End>> {
    use rusqlite::OptionalExtension as _;
    let sql = format!(
        "SELECT s.start_us, a.text, c.text, m.text FROM (SELECT start_us, agent, client, model FROM spans \
         INDEXED BY spans_by_session WHERE tenant = ?1 AND session = ?2 AND session > 0 \
         ORDER BY start_us {order}, id {order} LIMIT 1) s LEFT JOIN names a ON a.id = s.agent \
         LEFT JOIN names c ON c.id = s.client LEFT JOIN names m ON m.id = s.model"
    );
    let read =
        |row: &Row<'_>| Ok(End { start_us: row.get(0)?, agent: row.get(1)?, client: row.get(2)?, model: row.get(3)? });
    conn.prepare_cached(&sql)?.query_row((tenant, session), read).optional()
}

fn record(conn: &Connection, tenant: i64, sums: Sums) -> rusqlite::Result<SessionRecord> {
    let (first, last) = (end(conn, tenant, sums.id, "ASC")?, end(conn, tenant, sums.id, "DESC")?);
    let at = |end: &Option<End>| end.as_ref().map(|end| Timestamp::from_micros(end.start_us));
    let (first_call_at, last_call_at) = (at(&first), at(&last));
    let (agent_id, client, model) = last.map_or((None, None, None), |last| (last.agent, last.client, last.model));
    Ok(SessionRecord {
        session_id: sums.name,
        agent_id,
        client,
        model,
        first_call_at,
        last_call_at,
        calls: unsigned(sums.calls),
        failed_calls: unsigned(sums.failed),
        total_tokens: unsigned(sums.tokens),
        total_cost_usd: sums.cost_nano_usd as f64 / 1e9,
        security_score: u8::try_from(sums.score).ok(),
        prompt_cache: sums.prompts,
    })
}

fn unsigned(count: i64) -> u64 {
    count.max(0).unsigned_abs()
}

impl Reads<'_> {
    /// Sessions, in the order in which they were first seen, newest first.
    pub(crate) fn list_sessions(
        &self,
        tenant: TenantId,
        asked: &SessionFilter,
        page: Page,
    ) -> Result<Paged<SessionRecord>, ReadError> {
        self.ask("read_sessions", |conn| {
            let mut answer = Paged::new(Vec::new(), 0, page);
            let Some(tenant) = find_tenant(conn, tenant)? else { return Ok(answer) };
            let mut names = Vec::new();
            for (column, name) in [("agent", &asked.agent_id), ("client", &asked.client)] {
                let Some(name) = name else { continue };
                let Some(id) = find_name(conn, name)? else { return Ok(answer) };
                names.push((column, id));
            }
            let is_filtered = !names.is_empty() || asked.start_time.is_some() || asked.end_time.is_some();
            let before = page.after.map_or(0, |after| after.passed);
            let mut skip = page.after.map_or(page.offset, |after| after.skip);
            let (mut at, mut skipped) = (page.after.map_or(i64::MAX, |after| after.row), 0);
            let sql = "SELECT id, name, calls, failed, tokens, cost_nano_usd, score, broken, unused, lost_tokens, lost_nano_usd, \
                prompt_tokens, cached_tokens FROM sessions \
                INDEXED BY sessions_by_age WHERE tenant = ?1 AND id < ?2 AND calls > 0 ORDER BY id DESC";
            let mut statement = conn.prepare_cached(sql)?;
            let mut rows = statement.query([tenant, at])?;
            let mut left = page.looks / if is_filtered { FILTERED_LOOKS } else { PLAIN_LOOKS };
            let (filter, filter_values) = matching(tenant, asked, &names);
            let mut filter = conn.prepare_cached(&filter)?;
            let mut ended = true;
            while let Some(row) = rows.next()? {
                conn.pause();
                if answer.data.len() as u32 >= page.limit || left == 0 {
                    ended = false;
                    break;
                }
                left -= 1;
                let sums = Sums {
                    id: row.get(0)?,
                    name: row.get(1)?,
                    calls: row.get(2)?,
                    failed: row.get(3)?,
                    tokens: row.get(4)?,
                    cost_nano_usd: row.get(5)?,
                    score: row.get(6)?,
                    prompts: PromptSums {
                        broken_calls: unsigned(row.get(7)?),
                        unused_calls: unsigned(row.get(8)?),
                        lost_tokens: unsigned(row.get(9)?),
                        lost_usd: row.get::<_, i64>(10)? as f64 / 1e9,
                        prompt_tokens: unsigned(row.get(11)?),
                        cached_tokens: unsigned(row.get(12)?),
                    },
                };
                let id = sums.id;
                at = id;
                if asked.prompt_cache.is_some_and(|fault| !sums.prompts.has(fault)) {
                    continue;
                }
                if is_filtered {
                    let own = filter_values.iter().copied().chain([id]);
                    if !filter.exists(params_from_iter(own))? {
                        continue;
                    }
                }
                if skip > 0 {
                    (skip, skipped) = (skip - 1, skipped + 1);
                    continue;
                }
                answer.data.push(record(conn, tenant, sums)?);
            }
            drop(rows);
            let found = before + skipped + answer.data.len() as u64;
            (answer.total, answer.total_is_exact) = match page.after {
                Some(after) if after.total_is_exact => (after.total, true),
                _ if ended => (found, true),
                _ if !is_filtered && asked.prompt_cache.is_none() => (count(conn, tenant)?, true),
                _ => (found, false),
            };
            let (total, total_is_exact) = (answer.total, answer.total_is_exact);
            answer.next =
                (!ended).then_some(Place { start_us: 0, row: at, span: None, passed: found, skip, total, total_is_exact });
            Ok(answer)
        })
    }
}

/// The question whether a call of a session is what is asked for, and its values but the last, which is the session.
fn matching(tenant: i64, asked: &SessionFilter, names: &[(&str, i64)]) -> (String, Vec<i64>) {
    let mut sql =
        "SELECT 1 FROM spans INDEXED BY spans_by_session WHERE tenant = ? AND start_us >= ? AND start_us <= ?"
            .to_owned();
    let from_us = asked.start_time.map_or(i64::MIN, Timestamp::micros);
    let to_us = asked.end_time.map_or(i64::MAX, Timestamp::micros);
    let mut values = vec![tenant, from_us, to_us];
    for (column, id) in names {
        sql.push_str(&format!(" AND {column} = ?"));
        values.push(*id);
    }
    sql.push_str(" AND session = ? AND session > 0 LIMIT 1");
    (sql, values)
}

fn count(conn: &Connection, tenant: i64) -> rusqlite::Result<u64> {
    let sql = "SELECT count(*) FROM sessions INDEXED BY sessions_by_age WHERE tenant = ?1";
    conn.prepare_cached(sql)?.query_row([tenant], |row| row.get(0)).map(unsigned)
}
