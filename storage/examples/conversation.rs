//! What calls take on disk and of the storage thread: single ones with fresh text of 1 and of 8 KB, chats of 8 KB, and agents' conversations of
//! twenty turns, with tools of their own and with the same ones.
//!
//! `cargo run --release -p weir-storage --example conversation -- [rounds] [turns] [kind]`. The medians
//! of interleaved rounds are shown; the file is measured after a clean close, and what an empty one takes is left out: it is shown by
//! itself. `kind` names what alone is to be measured. `turns` names a file of what the gateway records of a real agent, which `WEIR_TURNS_OUT=FILE cargo test -p weir --lib what_an_agent_sends` writes: it is measured as
//! it is recorded, without its frame, and with each turn's texts stored whole, as before texts were shared.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use weir_config::vocab::TenantId;
use weir_config::vocab::frame::Frame;
use weir_config::vocab::part::{PartKind, PartRecord};
use weir_storage::SpanLog as _;
use weir_storage::record::SpanRecord;
use weir_storage::{Backend, Store, StoreOptions};

#[path = "corpus/calls.rs"]
mod calls;
#[path = "corpus/mod.rs"]
mod corpus;

use calls::{conversations, single, told};
use corpus::Unobserved;

/// CPU seconds of the writer, user and system, from the scheduler's account.
fn busy() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten().map(|task| task.path());
    let is_writer =
        |task: &PathBuf| std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.starts_with("weir-store"));
    let ns = |task: PathBuf| -> Option<u64> {
        std::fs::read_to_string(task.join("schedstat")).ok()?.split_whitespace().next()?.parse().ok()
    };
    tasks.filter(is_writer).filter_map(ns).sum::<u64>() as f64 / 1e9
}

/// Bytes on disk and seconds of the writer.
fn measure(folder: &Path, spans: &[SpanRecord]) -> Result<(f64, f64), Box<dyn std::error::Error>> {
    let path = folder.join("store.db");
    let _fresh = std::fs::remove_file(&path);
    let store = Store::open(StoreOptions {
        erase: weir_storage::Erase::Rows,
        backend: Backend::Sqlite { path: path.clone(), auto_migrate: true, migration_copy: false },
        on_writer_start: || {},
        pause: || {},
        batch_timeout: Duration::from_secs(10),
        queue_items: 65_536,
        queue_bytes: 256 * 1024 * 1024,
        observer: Arc::new(Unobserved),
    })?;
    let before = busy();
    for spans in spans.chunks(64) {
        for span in spans {
            store.append(Box::new(span.clone()))?;
        }
        if !store.flush(Duration::from_secs(60)) {
            return Err("the store lost spans".into());
        }
    }
    let cpu = busy() - before;
    store.close(Duration::from_secs(10));
    Ok((std::fs::metadata(&path)?.len() as f64, cpu))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// What is recorded of a request.
#[derive(Deserialize)]
struct Turn {
    prompt: String,
    parts: Vec<PartRecord>,
    frame: String,
    texts: Vec<(u32, u32)>,
}

/// How much of it is kept.
#[derive(Clone, Copy, PartialEq)]
enum Kept {
    Whole,
    Texts,
    All,
}

/// The conversation in these lines, once for each of twenty tenants, who share nothing; the turns alternate.
fn recorded(turns: &str, kept: Kept) -> serde_json::Result<Vec<SpanRecord>> {
    let mut text = corpus::texts();
    let mut all = Vec::new();
    for line in turns.lines() {
        for tenant in 1..=20 {
            let Turn { prompt, parts, frame, texts } = serde_json::from_str(line)?;
            let texts = texts.into_iter().map(|(start, end)| start..end).collect();
            let Some(blank) = corpus::each_span(1).next() else { continue };
            all.push(SpanRecord {
                tenant_id: TenantId::from_bytes([tenant; 16]),
                prompt: Some(prompt),
                response: Some(text(300)),
                parts: if kept == Kept::Whole { Vec::new() } else { parts },
                frame: (kept == Kept::All).then(|| Box::new(Frame { json: frame, texts })),
                ..blank
            });
        }
    }
    Ok(all)
}

/// Chats of 8 KB, of which the newest message alone is new: ten messages that came before, in each of 256 chats in turn.
fn chats(count: usize) -> Vec<SpanRecord> {
    let mut text = corpus::texts();
    let histories: Vec<Vec<String>> = (0..256).map(|_| (0..10).map(|_| text(650)).collect()).collect();
    let system = text(100);
    let chat = |(at, span): (usize, SpanRecord)| {
        let newest = text(900);
        let history = histories.iter().cycle().nth(at % histories.len()).into_iter().flatten().enumerate();
        let kind = |message: u32| if message % 2 == 1 { PartKind::User } else { PartKind::Assistant };
        let mut said = vec![(PartKind::System, Some(0), system.as_str())];
        said.extend(history.map(|(at, turn)| (kind(at as u32 + 1), Some(at as u32 + 1), turn.as_str())));
        said.push((PartKind::User, Some(said.len() as u32), newest.as_str()));
        told(span, &said, &text(500))
    };
    corpus::spans(count).into_iter().enumerate().map(chat).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds = std::env::args().nth(1).map_or(Ok(5), |text| text.parse())?;
    let folder = std::env::temp_dir().join(format!("conversation-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut kinds = vec![
        ("single, 1 KB", single(8_000, 1_024)),
        ("single, 8 KB", single(4_000, 8_192)),
        ("8 KB, one message new", chats(8_000)),
        ("20 turns", conversations(20, false)),
        ("20 turns, the same tools in all", conversations(20, true)),
    ];
    if let Some(file) = std::env::args().nth(2) {
        let turns = std::fs::read_to_string(file)?;
        kinds.push(("a real agent, stored whole", recorded(&turns, Kept::Whole)?));
        kinds.push(("a real agent, without its frame", recorded(&turns, Kept::Texts)?));
        kinds.push(("a real agent", recorded(&turns, Kept::All)?));
    }
    if let Some(only) = std::env::args().nth(3) {
        kinds.retain(|(name, _)| *name == only);
    }
    let (empty, _) = measure(&folder, &[])?;
    println!("an empty file takes {empty:.0} bytes");
    let mut figures = vec![(Vec::new(), Vec::new()); kinds.len()];
    for _ in 0..rounds {
        for ((_, spans), (bytes, cpu)) in kinds.iter().zip(&mut figures) {
            let (on_disk, busy) = measure(&folder, spans)?;
            bytes.push((on_disk - empty) / spans.len() as f64);
            cpu.push(busy * 1e6 / spans.len() as f64);
        }
    }
    std::fs::remove_dir_all(&folder)?;
    for ((name, spans), (bytes, cpu)) in kinds.iter().zip(figures) {
        let (bytes, cpu) = (median(bytes), median(cpu));
        println!("{name}: {} spans, {bytes:.0} bytes on disk and {cpu:.1} us of the storage thread each", spans.len());
    }
    Ok(())
}
