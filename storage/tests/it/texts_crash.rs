//! kill -9 while conversations are put in, traces and tenants deleted and texts aged out: every span that is there reads, and nothing
//! stands in the file of what was deleted, with a trace or with its tenant, or had its time.
//!
//! The test runs itself again as a child that does all of that at once and says which pieces of stored bodies it has deleted, and which
//! will have to go; the parent kills it at a random moment. `STORAGE_TEXTS_CYCLES` sets the cycles.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use weir_config::vocab::{TenantId, Timestamp};
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
    let (mut seed, mut read, mut counts) = (0x5eed_u64, 0, [0; 3]);
    for cycle in 0..cycles {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let said = change_and_kill(&path, cycle, Duration::from_millis(60 + (seed >> 33) % 200));
        let store = open(&path);
        store.set_retention(retention());
        read += read_all(&store);
        let of = |kind: Kind| said.iter().filter(move |(of, _)| *of == kind).map(|(_, piece)| piece.clone());
        // What is deleted with its tenant, or too old, goes by and by, over a kill as well.
        for (sum, kind) in counts.iter_mut().zip([Kind::Trace, Kind::Tenant, Kind::Expired]) {
            *sum += of(kind).count();
        }
        // Ages of whole hours pass while this is looked at: those that count are half an hour past.
        let now = Timestamp::now().micros() - HOUR_US / 6;
        wait_for("what has to go", || has_gone(&store, &path, cycle, now));
        deleted.extend(said.into_iter().map(|(_, piece)| piece));
        assert!(store.close(PATIENCE));
        assert_whole(&path);
        assert_eq!(how_many_stand(folder.path(), &deleted), 0, "cycle {cycle}");
    }
    assert!(
        read > 0 && counts.iter().all(|sum| *sum as u64 > cycles / 2),
        "the child got to work: {counts:?}, {read} read"
    );
    // A text that counted too few would be missing above, one that counts too many stays here.
    let store = open(&path);
    for who in tenants(&path) {
        store.delete_tenant_data(who).unwrap();
    }
    wait_for("the last text to go", || held(&path) == (0, 0));
    assert!(store.close(PATIENCE));
    let [traces, tenants, expired] = counts;
    println!(
        "{cycles} kills, {read} spans read, none damaged; of {traces} bodies of traces and {tenants} of tenants that were deleted, and \
         {expired} that had their time, none stands in the file"
    );
}

/// Why a body goes.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Trace,
    Tenant,
    Expired,
}

impl Kind {
    /// How the child says it.
    const ALL: [(Self, &str); 3] = [(Self::Trace, "trace"), (Self::Tenant, "tenant"), (Self::Expired, "expired")];
}

/// The tenant whose records are too old when they come: another one each time, because what comes after its texts were taken
/// out has none to begin with.
fn aged(cycle: u64) -> TenantId {
    let mut id = *tenant(4).as_bytes();
    id[..8].copy_from_slice(&cycle.to_le_bytes());
    TenantId::from_bytes(id)
}

/// Those that are not deleted: also some that a kill kept from it, between their first span and their deletion.
fn tenants(path: &Path) -> Vec<TenantId> {
    let conn = Connection::open(path).unwrap();
    let mut ids = conn.prepare("SELECT uuid FROM tenants WHERE length(uuid) = 16").unwrap();
    let ids = ids.query_map([], |row| row.get(0)).unwrap();
    ids.map(|id| TenantId::from_bytes(id.unwrap())).collect()
}

/// Whether nothing is left of deleted tenants, and of what was too old at this time.
fn has_gone(store: &Store, path: &Path, cycle: u64, now: i64) -> bool {
    let live = "(SELECT id FROM tenants WHERE length(uuid) = 16)";
    let left = format!(
        "SELECT (SELECT count(*) FROM spans WHERE tenant NOT IN {live} OR start_us < ?1)
         + (SELECT count(*) FROM texts WHERE tenant NOT IN {live} OR refs <= 0)"
    );
    let left: i64 = Connection::open(path).unwrap().query_row(&left, [now - 3 * HOUR_US], |row| row.get(0)).unwrap();
    let has_text = |span: &SpanRecord| span.start_time.micros() < now - 2 * HOUR_US && span.prompt.is_some();
    left == 0
        && [tenant(1), tenant(2), aged(cycle)].into_iter().all(|who| {
            let filter =
                SpanFilter { end_time: Some(Timestamp::from_micros(now - 2 * HOUR_US)), ..SpanFilter::default() };
            !store.list_spans(who, &filter, page(1_000, 0)).unwrap().data.iter().any(has_text)
        })
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
            assert!(spans.iter().all(|span| !span.tags.contains_key("record_damaged")));
            offset += spans.len() as u64;
            read += spans.len();
        }
    }
    read
}

/// Lets a child work for a while, kills it, and gives pieces of what it had deleted, or of what is to go.
fn change_and_kill(path: &Path, cycle: u64, after: Duration) -> Vec<(Kind, Vec<u8>)> {
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
            let (kind, digits) = line.strip_suffix('.')?.split_once(' ')?;
            let (kind, _) = Kind::ALL.into_iter().find(|(_, name)| *name == kind)?;
            let byte = |at: usize| u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok();
            Some((kind, (0..digits.len() / 2).map(byte).collect::<Option<Vec<u8>>>()?))
        };
        output.lines().map_while(Result::ok).filter_map(piece).collect::<Vec<_>>()
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
    let mut out = std::io::stdout();
    let mut say = |kind: &str, pieces: Vec<Vec<u8>>| {
        for piece in pieces {
            let digits: String = piece.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(out, "{kind} {digits}.").unwrap();
        }
        out.flush().unwrap();
    };
    // As far as they have come before: one is to lose its texts, the other to go.
    for (own, halves) in [(12, 5), (14, 7)] {
        let old = marked(2, 100 + cycle, (cycle << 32) + own, Timestamp::now().micros() - halves * HOUR_US / 2);
        let old = SpanRecord { tenant_id: aged(cycle), ..old };
        put(&store, [old.clone()]);
        say("expired", pieces_of(&conn, &old));
    }
    store.set_retention(retention());
    for round in 1.. {
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
        say("trace", pieces);
        let mut own_tenant = *tenant(3).as_bytes();
        own_tenant[..8].copy_from_slice(&own.to_le_bytes());
        let leaving = SpanRecord { tenant_id: TenantId::from_bytes(own_tenant), ..marked(3, 1, own + 14, now) };
        put(&store, [leaving.clone()]);
        let pieces = pieces_of(&conn, &leaving);
        store.delete_tenant_data(leaving.tenant_id).unwrap();
        say("tenant", pieces);
    }
}
