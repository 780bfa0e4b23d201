//! How fast spans go into the file, next to a bare prepared-statement loop over the same rows, and what they weigh.
//!
//! `cargo run --release -p weir-storage --example rate -- [spans] [folder] [spans per second]`. With a rate the store's
//! spans arrive evenly, and its groups have the size they have in service; without, as fast as they go. Three rounds are interleaved; the medians are
//! shown. The bare loop does what nobody could do less of: one table, no index, no compression, one transaction per 512
//! rows, WAL with synchronous=FULL; it has its spans ready and no queue.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use weir_storage::SpanLog as _;
use weir_storage::record::SpanRecord;
use weir_storage::{Backend, Store, StoreOptions};

#[path = "corpus/mod.rs"]
mod corpus;

use corpus::{Unobserved, spans};

/// CPU seconds of a thread or of the whole process, user and system, from the scheduler's account.
fn cpu(stat: &Path) -> f64 {
    let text = std::fs::read_to_string(stat).unwrap_or_default();
    let ns: u64 = text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(0);
    ns as f64 / 1e9
}

/// The accounts of this process's threads whose name begins with `name`.
fn threads(name: &str) -> Vec<PathBuf> {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks
        .map(|task| task.path())
        .filter(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.starts_with(name)))
        .map(|task| task.join("schedstat"))
        .collect()
}

fn size(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |meta| meta.len())
}

struct Figures {
    spans_per_s: f64,
    cpu_us: f64,
    bytes: f64,
}

fn through_the_store(
    folder: &Path,
    spans: &[SpanRecord],
    per_s: Option<f64>,
) -> Result<Figures, Box<dyn std::error::Error>> {
    let path = folder.join("store.db");
    let _fresh = std::fs::remove_file(&path);
    let store = Store::open(StoreOptions {
        erase: weir_storage::Erase::Rows,
        backend: Backend::Sqlite { path: path.clone(), auto_migrate: true, migration_copy: false },
        on_writer_start: || {},
        pause: || {},
        batch_timeout: Duration::from_secs(10),
        queue_items: 65_536,
        queue_bytes: 64 * 1024 * 1024,
        observer: Arc::new(Unobserved),
    })?;
    let sink = store.sink();
    let started = Instant::now();
    for (at, span) in spans.iter().enumerate() {
        let due = per_s.map_or(Duration::ZERO, |per_s| Duration::from_secs_f64(at as f64 / per_s));
        if due > started.elapsed() + Duration::from_micros(500) {
            std::thread::sleep(due - started.elapsed());
        }
        let span = Box::new(span.clone());
        while store.counters().queue_items > 16_384 {
            std::thread::sleep(Duration::from_millis(1));
        }
        sink.push(span)?;
    }
    if !store.flush(Duration::from_secs(60)) {
        return Err("the store lost spans".into());
    }
    let took = started.elapsed().as_secs_f64();
    // The thread is as old as the store, so its whole account belongs to these spans.
    let busy: f64 = threads("weir-store").iter().map(|writer| cpu(writer)).sum();
    store.close(Duration::from_secs(10));
    let count = spans.len() as f64;
    Ok(Figures { spans_per_s: count / took, cpu_us: busy * 1e6 / count, bytes: size(&path) as f64 / count })
}

fn through_a_bare_loop(folder: &Path, spans: &[SpanRecord]) -> Result<Figures, Box<dyn std::error::Error>> {
    let path = folder.join("bare.db");
    let _fresh = std::fs::remove_file(&path);
    let conn = Connection::open(&path)?;
    conn.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 16384;
         CREATE TABLE spans (id INTEGER PRIMARY KEY, tenant BLOB, trace_id BLOB, span_id BLOB, start_us INTEGER,
            end_us INTEGER, provider TEXT, model TEXT, operation TEXT, score INTEGER, prompt TEXT, response TEXT)",
    )?;
    let own = PathBuf::from("/proc/thread-self/schedstat");
    let before = cpu(&own);
    let started = Instant::now();
    for batch in spans.chunks(512) {
        conn.execute_batch("BEGIN IMMEDIATE")?;
        let mut insert =
            conn.prepare_cached("INSERT INTO spans VALUES (NULL, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)")?;
        for span in batch {
            insert.execute((
                span.tenant_id.as_bytes().as_slice(),
                span.trace_id.as_bytes().as_slice(),
                span.span_id.as_bytes().as_slice(),
                span.start_time.micros(),
                span.end_time.micros(),
                span.provider.as_ref(),
                &span.model,
                span.operation_name.as_ref(),
                span.security_score,
                &span.prompt,
                &span.response,
            ))?;
        }
        drop(insert);
        conn.execute_batch("COMMIT")?;
    }
    let took = started.elapsed().as_secs_f64();
    let busy = cpu(&own) - before;
    conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
    let count = spans.len() as f64;
    Ok(Figures { spans_per_s: count / took, cpu_us: busy * 1e6 / count, bytes: size(&path) as f64 / count })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let count = args.next().map_or(Ok(100_000), |text| text.parse())?;
    let folder =
        args.next().map_or_else(std::env::temp_dir, PathBuf::from).join(format!("rate-{}", std::process::id()));
    let per_s = args.next().map(|text| text.parse()).transpose()?;
    std::fs::create_dir_all(&folder)?;
    let spans = spans(count);
    let mut store = Vec::new();
    let mut bare = Vec::new();
    for _ in 0..3 {
        store.push(through_the_store(&folder, &spans, per_s)?);
        bare.push(through_a_bare_loop(&folder, &spans)?);
    }
    std::fs::remove_dir_all(&folder)?;
    println!("{count} spans, 800 + 500 bytes of text each; medians of three interleaved rounds");
    for (name, rounds) in [("store", &store), ("bare loop", &bare)] {
        println!(
            "{name:>10}: {:>8.0} spans/s, {:>6.2} us CPU per span on the writing thread, {:>6.0} bytes per span on disk",
            median(rounds.iter().map(|round| round.spans_per_s).collect()),
            median(rounds.iter().map(|round| round.cpu_us).collect()),
            median(rounds.iter().map(|round| round.bytes).collect()),
        );
    }
    Ok(())
}
