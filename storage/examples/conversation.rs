//! What calls take on disk and of the storage thread: single ones with fresh text of 1 and of 8 KB, and agents' conversations of
//! twenty turns, each of which sends 90 KB of instructions and tools and all that was said before.
//!
//! `cargo run --release -p weir-storage --example conversation -- [rounds]`. No two conversations have a text in common. The medians
//! of interleaved rounds are shown; the file is measured after a clean close.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use weir_config::vocab::part::{PartForm, PartKind, PartRecord, PartSide};
use weir_storage::SpanLog as _;
use weir_storage::record::SpanRecord;
use weir_storage::{Backend, Store, StoreOptions};

#[path = "corpus/mod.rs"]
mod corpus;

use corpus::{Unobserved, spans, texts};

const TURNS: usize = 20;

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

/// Gives a span these texts as its request's parts.
fn told(mut span: SpanRecord, said: &[(PartKind, Option<u32>, &str)], answer: &str) -> SpanRecord {
    let (mut prompt, mut parts) = (String::new(), Vec::new());
    for (kind, message, text) in said {
        if !prompt.is_empty() {
            prompt.push('\n');
        }
        let start = prompt.len() as u32;
        prompt.push_str(text);
        let text = Some(start..prompt.len() as u32);
        let (side, form) = (PartSide::Request, PartForm::Text);
        parts.push(PartRecord { side, kind: *kind, form, role: None, message: *message, text, raw: None, tool: None });
    }
    parts.push(PartRecord {
        side: PartSide::Response,
        kind: PartKind::Output,
        form: PartForm::Text,
        role: None,
        message: Some(0),
        text: Some(0..answer.len() as u32),
        raw: None,
        tool: None,
    });
    (span.prompt, span.response, span.parts) = (Some(prompt), Some(answer.to_owned()), parts);
    span
}

fn single(count: usize, bytes: usize) -> Vec<SpanRecord> {
    let mut text = texts();
    spans(count)
        .into_iter()
        .map(|span| {
            let (asked, answered) = (text(bytes), text(500));
            told(span, &[(PartKind::User, Some(0), &asked)], &answered)
        })
        .collect()
}

/// Conversations, turn by turn in the order in which agents that work side by side send them.
fn conversations(count: usize) -> Vec<SpanRecord> {
    let mut text = texts();
    let mut blank = spans(count * TURNS).into_iter();
    let mut all: Vec<Vec<SpanRecord>> = Vec::new();
    for _ in 0..count {
        let system = text(10_000);
        let tools: Vec<String> = (0..40).map(|_| text(2_000)).collect();
        // Each turn: what the model said, the tool it asked for, what that brought.
        let turns: Vec<[String; 3]> = (0..TURNS).map(|_| [text(300), text(150), text(1_500)]).collect();
        let task = text(400);
        let conversation = (0..TURNS).zip(blank.by_ref()).map(|(turn, span)| {
            let mut said = vec![(PartKind::System, None, system.as_str()), (PartKind::User, Some(0), task.as_str())];
            for (at, [answer, call, result]) in turns.iter().take(turn).enumerate() {
                let message = 1 + 2 * at as u32;
                said.push((PartKind::Assistant, Some(message), answer));
                said.push((PartKind::ToolCall, Some(message), call));
                said.push((PartKind::Tool, Some(message + 1), result));
            }
            said.extend(tools.iter().map(|tool| (PartKind::ToolDefinition, None, tool.as_str())));
            told(span, &said, &turns[turn][0])
        });
        all.push(conversation.collect());
    }
    (0..TURNS).flat_map(|turn| all.iter().filter_map(move |conversation| conversation.get(turn).cloned())).collect()
}

/// Bytes on disk and microseconds of the writer, per span.
fn measure(folder: &Path, spans: &[SpanRecord]) -> Result<(f64, f64), Box<dyn std::error::Error>> {
    let path = folder.join("store.db");
    let _fresh = std::fs::remove_file(&path);
    let store = Store::open(StoreOptions {
        backend: Backend::Sqlite { path: path.clone(), auto_migrate: true },
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
    let count = spans.len() as f64;
    Ok((std::fs::metadata(&path)?.len() as f64 / count, cpu * 1e6 / count))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds = std::env::args().nth(1).map_or(Ok(5), |text| text.parse())?;
    let folder = std::env::temp_dir().join(format!("conversation-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let kinds = [
        ("single, 1 KB", single(8_000, 1_024)),
        ("single, 8 KB", single(4_000, 8_192)),
        ("20 turns", conversations(20)),
    ];
    let mut figures = vec![(Vec::new(), Vec::new()); kinds.len()];
    for _ in 0..rounds {
        for ((_, spans), (bytes, cpu)) in kinds.iter().zip(&mut figures) {
            let (on_disk, busy) = measure(&folder, spans)?;
            bytes.push(on_disk);
            cpu.push(busy);
        }
    }
    std::fs::remove_dir_all(&folder)?;
    for ((name, spans), (bytes, cpu)) in kinds.iter().zip(figures) {
        let (bytes, cpu) = (median(bytes), median(cpu));
        println!("{name}: {} spans, {bytes:.0} bytes on disk and {cpu:.1} us of the storage thread each", spans.len());
    }
    Ok(())
}
