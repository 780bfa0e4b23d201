//! kill -9 while conversations are put in, traces deleted and texts aged out: every span that is there reads, and nothing of what
//! was deleted stands in the file.
//!
//! The test runs itself again as a child that does all of that at once and says which pieces of stored bodies it has deleted; the parent
//! kills it at a random moment. `STORAGE_TEXTS_CYCLES` sets the cycles.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use weir_config::vocab::Timestamp;
use weir_storage::query::SpanFilter;
use weir_storage::record::SpanRecord;
use weir_storage::{Retention, SpanLog as _, Store};

use crate::ledger::event;
use crate::support::{PATIENCE, open, page, put, tenant, wait_for};
use crate::texts::{assert_whole, held, how_many_stand, marked};

const CYCLES: u64 = 20;
pub(crate) const HOUR_US: i64 = 3_600_000_000;

/// Spans go after three hours, their texts after two.
pub(crate) fn retention() -> Retention {
    let hours = |hours: u64| Some(Duration::from_secs(hours * 3_600));
    Retention { max_age: hours(3), text_max_age: hours(2), ..Retention::default() }
}

#[test]
fn no_kill_leaves_a_span_without_its_text_or_a_deleted_text_behind() {
    let cycles = std::env::var("STORAGE_TEXTS_CYCLES").ok().and_then(|text| text.parse().ok()).unwrap_or(CYCLES);
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("service.db");
    let mut deleted: Vec<Vec<u8>> = Vec::new();
    let (mut seed, mut read) = (0x5eed_u64, 0);
    for cycle in 0..cycles {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        deleted.extend(change_and_kill(&path, cycle, Duration::from_millis(60 + (seed >> 33) % 200)));
        let store = open(&path);
        read += read_all(&store);
        assert!(store.close(PATIENCE));
        assert_whole(&path);
        assert_eq!(how_many_stand(folder.path(), &deleted), 0, "cycle {cycle}");
    }
    assert!(deleted.len() as u64 > cycles && read > 0, "the child got to work: {} deleted, {read} read", deleted.len());
    // A text that counted too few would be missing above, one that counts too many stays here.
    let store = open(&path);
    store.delete_tenant_data(tenant(1)).unwrap();
    store.delete_tenant_data(tenant(2)).unwrap();
    wait_for("the last text to go", || held(&path) == (0, 0));
    assert!(store.close(PATIENCE));
    println!("{cycles} kills, {} bodies deleted, {read} spans read, none damaged", deleted.len());
}

/// How many spans there are; each must read.
fn read_all(store: &Store) -> usize {
    let mut read = 0;
    for who in [1, 2] {
        let mut offset = 0;
        loop {
            let spans = store.list_spans(tenant(who), &SpanFilter::default(), page(100, offset)).unwrap().data;
            if spans.is_empty() {
                break;
            }
            offset += spans.len() as u64;
            read += spans.len();
        }
    }
    read
}

/// Lets a child work for a while, kills it, and gives pieces of what it had deleted.
fn change_and_kill(path: &Path, cycle: u64, after: Duration) -> Vec<Vec<u8>> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "texts_crash::child", "--ignored", "--nocapture"])
        .env("TEXTS_DATABASE", path)
        .env("TEXTS_CYCLE", cycle.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let reader = std::thread::spawn(move || {
        let piece = |line: String| {
            let digits = line.strip_prefix("gone ")?.strip_suffix('.')?.to_owned();
            (0..digits.len() / 2).map(|at| u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok()).collect()
        };
        output.lines().map_while(Result::ok).filter_map(piece).collect::<Vec<Vec<u8>>>()
    });
    // The moment of the kill is the experiment, not a wait for something.
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

/// Pieces of the bodies that the latest span of a tenant has to itself.
pub(crate) fn pieces_of(conn: &Connection, span: &SpanRecord) -> Vec<Vec<u8>> {
    let body = |sql: &str, value: &[u8]| -> Vec<u8> { conn.query_row(sql, [value], |row| row.get(0)).unwrap() };
    let own = body("SELECT body FROM spans WHERE span_id = ?1", span.span_id.as_bytes());
    let text =
        body("SELECT body FROM text_bodies WHERE ?1 IS NOT NULL AND length(body) > 100 ORDER BY id DESC LIMIT 1", b"");
    [own, text].map(|body| body[body.len() / 2..][..24].to_vec()).into()
}

#[test]
#[ignore = "run by the test above"]
fn child() {
    let Some(path) = std::env::var_os("TEXTS_DATABASE") else { return };
    let cycle: u64 = std::env::var("TEXTS_CYCLE").unwrap().parse().unwrap();
    let store = open(Path::new(&path));
    let conn = Connection::open(&path).unwrap();
    store.set_retention(retention());
    let mut out = std::io::stdout();
    for round in 0.. {
        let own = (cycle << 32) + 16 * round;
        let now = Timestamp::now().micros();
        // Both tenants say the same; some spans are about to lose their texts, or to go.
        let kept = [(1, 0), (2, 1), (1, 2), (2, 3)].map(|(who, at)| {
            let age = (round as i64 + at) % 4 * HOUR_US;
            marked(who, at as u64, own + 2 * at as u64, now - age + 50_000)
        });
        put(&store, kept);
        let gone = marked(1, 1, own + 10, now);
        put(&store, [gone.clone()]);
        let pieces = pieces_of(&conn, &gone);
        assert!(store.delete_trace(tenant(1), gone.trace_id, event("trace.delete", Some(tenant(1)))).unwrap());
        for piece in pieces {
            let digits: String = piece.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(out, "gone {digits}.").unwrap();
        }
        out.flush().unwrap();
    }
}
