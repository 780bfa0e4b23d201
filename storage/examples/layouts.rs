//! A trial of two layouts for texts that come again, each in a few lines over bare SQLite: *named*, texts that spans name by a digest
//! and that count who names them, and *chained*, a span that names the previous one of its session and holds only what is new.
//!
//! `cargo run --release -p weir-storage --example layouts`. Both pack with zstd, put 64 spans in a transaction and sync it. Shown per
//! span: bytes of the file; CPU of putting it in; of reading it back, each checked; of removing it, the oldest first, as retention does; and
//! how many rows the last call of a session is read from. What the store makes of the same calls, `conversation` shows.

use std::collections::HashMap;
use std::hash::Hasher as _;
use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _, params};
use siphasher::sip128::{Hasher128 as _, SipHasher13};
use weir_config::vocab::part::PartSide;
use weir_storage::record::SpanRecord;

#[path = "corpus/calls.rs"]
mod calls;
#[path = "corpus/mod.rs"]
mod corpus;

use calls::{conversations, single};

type Trial<T> = Result<T, Box<dyn std::error::Error>>;

const GROUP: usize = 64;
/// Shorter texts are named together.
const LEAF_BYTES_MIN: usize = 1024;

/// A call: its session and its texts in wire order, the answer last.
struct Call {
    session: usize,
    texts: Vec<String>,
}

fn call(session: usize, span: &SpanRecord) -> Call {
    let prompt = span.prompt.as_deref().unwrap_or_default();
    let asked = span.parts.iter().filter(|part| part.side == PartSide::Request);
    let ranges = asked.filter_map(|part| part.text.clone());
    let texts = ranges.filter_map(|range| prompt.get(range.start as usize..range.end as usize));
    let answer = span.response.as_deref().unwrap_or_default();
    Call { session, texts: texts.chain([answer]).map(str::to_owned).collect() }
}

/// Texts behind one another, packed.
fn pack(texts: &[String]) -> Trial<Vec<u8>> {
    let mut plain = Vec::new();
    for text in texts {
        plain.extend_from_slice(&u32::try_from(text.len())?.to_le_bytes());
        plain.extend_from_slice(text.as_bytes());
    }
    Ok(zstd::bulk::compress(&plain, 1)?)
}

fn unpack(packed: &[u8]) -> Trial<Vec<String>> {
    let plain = zstd::stream::decode_all(packed)?;
    let (mut rest, mut texts) = (plain.as_slice(), Vec::new());
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let (text, behind) = behind.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or("a text is cut")?;
        texts.push(String::from_utf8(text.to_vec())?);
        rest = behind;
    }
    Ok(texts)
}

fn digest(texts: &[String]) -> [u8; 16] {
    let mut hasher = SipHasher13::new_with_keys(1, 2);
    for text in texts {
        hasher.write_usize(text.len());
        hasher.write(text.as_bytes());
    }
    hasher.finish128().as_u128().to_le_bytes()
}

/// How texts that come again lie.
trait Layout {
    fn tables(&self) -> &'static str;
    /// Puts a call in as the row `id`.
    fn insert(&mut self, conn: &Connection, id: i64, call: &Call) -> Trial<()>;
    /// Its texts, and how many rows they were read from.
    fn read(&self, conn: &Connection, id: i64) -> Trial<(Vec<String>, usize)>;
    fn remove(&mut self, conn: &Connection, id: i64) -> Trial<()>;
}

/// Texts named by a digest.
struct Named;

impl Layout for Named {
    fn tables(&self) -> &'static str {
        "CREATE TABLE texts (id INTEGER PRIMARY KEY, name BLOB, body BLOB); CREATE UNIQUE INDEX by_name ON texts (name);
         CREATE TABLE counts (id INTEGER PRIMARY KEY, spans INTEGER);
         CREATE TABLE spans (id INTEGER PRIMARY KEY, named BLOB, body BLOB);"
    }

    fn insert(&mut self, conn: &Connection, id: i64, call: &Call) -> Trial<()> {
        let (mut named, mut own) = (Vec::new(), Vec::new());
        let mut leaf: Vec<String> = Vec::new();
        // A text on its own has no history: it stays in its span.
        let is_shared = call.texts.len() > 2;
        for text in &call.texts {
            if text.len() >= LEAF_BYTES_MIN && !leaf.is_empty() && is_shared {
                name(conn, &std::mem::take(&mut leaf), &mut named)?;
            }
            leaf.push(text.clone());
            if leaf.iter().map(String::len).sum::<usize>() >= LEAF_BYTES_MIN && is_shared {
                name(conn, &std::mem::take(&mut leaf), &mut named)?;
            }
        }
        own.append(&mut leaf);
        let sql = "INSERT INTO spans VALUES (?1, ?2, ?3)";
        conn.prepare_cached(sql)?.execute(params![id, named, pack(&own)?])?;
        Ok(())
    }

    fn read(&self, conn: &Connection, id: i64) -> Trial<(Vec<String>, usize)> {
        let (named, own): (Vec<u8>, Vec<u8>) = conn
            .prepare_cached("SELECT named, body FROM spans WHERE id = ?1")?
            .query_row([id], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let (mut texts, mut rows) = (Vec::new(), 1);
        for text in integers(&named) {
            let sql = "SELECT body FROM texts WHERE id = ?1";
            let body: Vec<u8> = conn.prepare_cached(sql)?.query_row([text], |row| row.get(0))?;
            texts.extend(unpack(&body)?);
            rows += 1;
        }
        texts.extend(unpack(&own)?);
        Ok((texts, rows))
    }

    fn remove(&mut self, conn: &Connection, id: i64) -> Trial<()> {
        let sql = "DELETE FROM spans WHERE id = ?1 RETURNING named";
        let named: Vec<u8> = conn.prepare_cached(sql)?.query_row([id], |row| row.get(0))?;
        for text in integers(&named) {
            let sql = "UPDATE counts SET spans = spans - 1 WHERE id = ?1 RETURNING spans";
            let left: i64 = conn.prepare_cached(sql)?.query_row([text], |row| row.get(0))?;
            if left == 0 {
                conn.prepare_cached("DELETE FROM counts WHERE id = ?1")?.execute([text])?;
                conn.prepare_cached("DELETE FROM texts WHERE id = ?1")?.execute([text])?;
            }
        }
        Ok(())
    }
}

/// Counts a shared text, putting it in where it is not there.
fn name(conn: &Connection, texts: &[String], named: &mut Vec<u8>) -> Trial<()> {
    let name = digest(texts);
    let known: Option<i64> =
        conn.prepare_cached("SELECT id FROM texts WHERE name = ?1")?.query_row([name], |row| row.get(0)).optional()?;
    let id = match known {
        Some(id) => {
            conn.prepare_cached("UPDATE counts SET spans = spans + 1 WHERE id = ?1")?.execute([id])?;
            id
        }
        None => {
            let sql = "INSERT INTO texts (name, body) VALUES (?1, ?2)";
            let id = conn.prepare_cached(sql)?.insert(params![name, pack(texts)?])?;
            conn.prepare_cached("INSERT INTO counts VALUES (?1, 1)")?.execute([id])?;
            id
        }
    };
    named.extend_from_slice(&id.to_le_bytes());
    Ok(())
}

fn integers(bytes: &[u8]) -> impl Iterator<Item = i64> {
    bytes.as_chunks::<8>().0.iter().map(|bytes| i64::from_le_bytes(*bytes))
}

/// The previous span, and how many texts are those it begins and ends with.
type Before = (Option<i64>, u32, u32);

/// The session's previous span, and what is new between what both begin and end with.
#[derive(Default)]
struct Chained {
    /// The last span of each session and the digests of its texts.
    last: HashMap<usize, (i64, Vec<[u8; 16]>)>,
}

impl Chained {
    fn write(conn: &Connection, id: i64, before: Before, new: &[String]) -> Trial<()> {
        let sql = "INSERT OR REPLACE INTO spans VALUES (?1, ?2, ?3, ?4, ?5)";
        conn.prepare_cached(sql)?.execute(params![id, before.0, before.1, before.2, pack(new)?])?;
        Ok(())
    }
}

impl Layout for Chained {
    fn tables(&self) -> &'static str {
        "CREATE TABLE spans (id INTEGER PRIMARY KEY, previous INTEGER, first INTEGER, last INTEGER, body BLOB);
         CREATE INDEX by_previous ON spans (previous) WHERE previous IS NOT NULL;"
    }

    fn insert(&mut self, conn: &Connection, id: i64, call: &Call) -> Trial<()> {
        let digests: Vec<[u8; 16]> = call.texts.iter().map(|text| digest(std::slice::from_ref(text))).collect();
        let before = self.last.get(&call.session).map(|(previous, known)| {
            let first = known.iter().zip(&digests).take_while(|(a, b)| a == b).count();
            // The answer stands behind what is sent, so it is new and not looked for.
            let (known, new) = (known.split_last(), digests.split_last());
            let (known, new) = (known.map_or(&[][..], |(_, rest)| rest), new.map_or(&[][..], |(_, rest)| rest));
            let room = known.len().min(new.len()).saturating_sub(first);
            let last = known.iter().rev().zip(new.iter().rev()).take(room).take_while(|(a, b)| a == b).count();
            (Some(*previous), first as u32, last as u32)
        });
        let before: Before = before.unwrap_or_default();
        let (answer, asked) = call.texts.split_last().ok_or("a call without texts")?;
        let mut new: Vec<String> =
            asked.get(before.1 as usize..asked.len() - before.2 as usize).unwrap_or_default().to_vec();
        new.push(answer.clone());
        Self::write(conn, id, before, &new)?;
        self.last.insert(call.session, (id, digests));
        Ok(())
    }

    fn read(&self, conn: &Connection, id: i64) -> Trial<(Vec<String>, usize)> {
        type Row = (Option<i64>, u32, u32, Vec<u8>);
        let (previous, first, last, body): Row = conn
            .prepare_cached("SELECT previous, first, last, body FROM spans WHERE id = ?1")?
            .query_row([id], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
        let mut new = unpack(&body)?;
        let Some(previous) = previous else { return Ok((new, 1)) };
        let (mut before, rows) = self.read(conn, previous)?;
        before.pop();
        let answer = new.pop();
        let mut tail = before.split_off(before.len() - last as usize);
        before.truncate(first as usize);
        before.append(&mut new);
        before.append(&mut tail);
        before.extend(answer);
        Ok((before, rows + 1))
    }

    fn remove(&mut self, conn: &Connection, id: i64) -> Trial<()> {
        // Whoever rests on it has to stand by itself first.
        let sql = "SELECT id FROM spans WHERE previous = ?1";
        let next: Option<i64> = conn.prepare_cached(sql)?.query_row([id], |row| row.get(0)).optional()?;
        if let Some(next) = next {
            let (texts, _) = self.read(conn, next)?;
            Self::write(conn, next, (None, 0, 0), &texts)?;
        }
        conn.prepare_cached("DELETE FROM spans WHERE id = ?1")?.execute([id])?;
        Ok(())
    }
}

/// CPU microseconds of this thread.
fn cpu_us() -> Trial<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(text.split_whitespace().next().ok_or("no schedstat")?.parse::<u64>()? as f64 / 1e3)
}

/// Does `work` for each row, 64 in a transaction, and gives its CPU per row.
fn grouped(conn: &Connection, rows: usize, mut work: impl FnMut(i64) -> Trial<()>) -> Trial<f64> {
    let (before, all): (f64, Vec<i64>) = (cpu_us()?, (1..=i64::try_from(rows)?).collect());
    for group in all.chunks(GROUP) {
        let transaction = conn.unchecked_transaction()?;
        group.iter().try_for_each(|id| work(*id))?;
        transaction.commit()?;
    }
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    Ok((cpu_us()? - before) / rows as f64)
}

fn measure(path: &Path, mut layout: impl Layout, calls: &[Call]) -> Trial<String> {
    let _fresh = std::fs::remove_file(path);
    let conn = Connection::open(path)?;
    conn.execute_batch("PRAGMA page_size = 8192; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;")?;
    conn.execute_batch(layout.tables())?;
    let nth = |id: i64| calls.get(usize::try_from(id - 1).unwrap_or(usize::MAX)).ok_or("no such call");
    let written = grouped(&conn, calls.len(), |id| layout.insert(&conn, id, nth(id)?))?;
    let bytes = std::fs::metadata(path)?.len() / calls.len() as u64;
    let mut rows = 0;
    let read = grouped(&conn, calls.len(), |id| {
        let (texts, from) = layout.read(&conn, id)?;
        rows = from;
        if texts == nth(id)?.texts { Ok(()) } else { Err(format!("call {id} reads otherwise").into()) }
    })?;
    let removed = grouped(&conn, calls.len(), |id| {
        layout.remove(&conn, id)?;
        // What came behind it still reads.
        if id % 97 == 0
            && nth(id + 1).is_ok_and(|next| layout.read(&conn, id + 1).is_ok_and(|(texts, _)| texts != next.texts))
        {
            return Err(format!("without call {id} the next one reads otherwise").into());
        }
        Ok(())
    })?;
    Ok(format!(
        "{bytes} bytes, {written:.0} us in, {read:.0} us read back from {rows} rows at most, {removed:.0} us removed"
    ))
}

fn main() -> Trial<()> {
    let folder = std::env::temp_dir().join(format!("layouts-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let path = folder.join("trial.db");
    let alone = |spans: Vec<SpanRecord>| spans.iter().enumerate().map(|(at, span)| call(at, span)).collect();
    let together = |count: usize, alike: bool, agents: usize| {
        let session = |at: usize| at % count / agents;
        conversations(count, alike).iter().enumerate().map(|(at, span)| call(session(at), span)).collect()
    };
    let kinds: [(&str, Vec<Call>); 5] = [
        ("single, 1 KB", alone(single(8_000, 1_024))),
        ("single, 8 KB", alone(single(4_000, 8_192))),
        ("20 turns, nothing in common", together(20, false, 1)),
        ("20 turns, the same tools in all", together(20, true, 1)),
        ("20 turns, two agents in a session", together(20, false, 2)),
    ];
    for (kind, calls) in &kinds {
        println!("{kind}, named: {}", measure(&path, Named, calls)?);
        println!("{kind}, chained: {}", measure(&path, Chained::default(), calls)?);
    }
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}
