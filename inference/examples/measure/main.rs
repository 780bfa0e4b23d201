//! Measures the detectors on labelled data: recall and false positives per label and source, and speed.
//!
//! `measure prompts FILE`, `measure pii FILE`, `measure secrets FILE`: one JSON object per line, in the forms described
//! in the README of the data set: `{text,label,source}`, `{text,spans,kind}`, `{parts,spans,kind}`.
//! `measure speed FILE`: microseconds per KB over the texts of a file, each text seen once.
//! `measure kinds FILE`: the same for each text alone, the dearest last: for texts made to be dear.
//! `measure hostile FILE [--count N] [--seed N] [--recipe NAME]`: the same for texts made up from the rules' own words, from the
//! texts of FILE and from every encoding; the dearest of them, and which recipe made it.
//! `measure hard`: the same for named kinds of text that are hard to read and harmless as a rule: base64, logs, lists of keys, emoji.
//! `measure learned FILE`: what the embedded classifier takes for 32, 128 and 512 tokens of those texts.
//! `measure findings FILE`: every finding of every text, looked at in each role, one to a line, to compare two builds by.
//! `--missed LABEL` prints missed texts of that label, `--false` prints false alarms, `--tool` treats texts as tool
//! results, `--source NAME` keeps one source.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use serde_json::Value;
use weir_config::vocab::score;
use weir_inference::{Analyser, Call, Hit, Part, PartKind, Plan, PlanSettings, Scratch};

#[path = "../../tests/encodings/mod.rs"]
mod encodings;
mod hard;
mod hostile;
mod learned;

/// Every role a text may have.
const ROLES: [PartKind; 7] = [
    PartKind::System,
    PartKind::User,
    PartKind::Assistant,
    PartKind::Tool,
    PartKind::ToolDefinition,
    PartKind::ToolCall,
    PartKind::Output,
];

/// Types that say nothing about an attack on the model.
const DATA_TYPES: [&str; 2] = ["pii_detected", "secret_leakage"];

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (mode, path) = (args.first().map_or("", |mode| mode), args.get(1));
    if path.is_none() && mode != "hard" {
        return Err(
            "usage: measure hard | prompts|pii|secrets|speed|kinds|hostile|learned|findings FILE [--missed LABEL] [--false] [--tool] [--source NAME]"
                .into(),
        );
    }
    let text = path.map_or(Ok(String::new()), std::fs::read_to_string)?;
    let rows: Vec<Value> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let began = Instant::now();
    let analyser = Analyser::builtin()?.without_memory();
    println!("rules loaded in {:.0} ms", began.elapsed().as_secs_f64() * 1e3);
    let plan = Arc::new(analyser.plan(&PlanSettings::default()));
    let mut bench = Bench { scratch: analyser.scratch(), plan, analyser, kind: PartKind::User };
    if args.iter().any(|arg| arg == "--tool") {
        bench.kind = PartKind::Tool;
    }
    match mode {
        "hard" => hard::run(&mut bench),
        "learned" => learned::learned(&rows)?,
        "prompts" => prompts(&mut bench, &rows, &args),
        "pii" => spans(&mut bench, &rows, "pii_detected", "pii_type", &args),
        "secrets" => spans(&mut bench, &rows, "secret_leakage", "secret_type", &args),
        "speed" => speed(&mut bench, &rows),
        "kinds" => kinds(&mut bench, &rows),
        "findings" => findings(&mut bench, &rows),
        "hostile" => hostile::run(&mut bench, &rows, &args)?,
        other => return Err(format!("unknown mode `{other}`").into()),
    }
    Ok(())
}

struct Bench {
    analyser: Analyser,
    plan: Arc<Plan>,
    scratch: Scratch,
    kind: PartKind,
}

impl Bench {
    fn look(&mut self, text: &str) -> Vec<Hit> {
        let mut hits = Vec::new();
        let part = Part { text, kind: self.kind };
        self.analyser.analyse(&mut self.scratch, &[part], &Call::of(&self.plan), &mut hits);
        hits
    }
}

fn field<'a>(row: &'a Value, name: &str) -> &'a str {
    row.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn option<'a>(args: &'a [String], name: &str) -> Option<&'a str> {
    let at = args.iter().position(|arg| arg == name)?;
    args.get(at + 1).map(String::as_str)
}

fn prompts(bench: &mut Bench, rows: &[Value], args: &[String]) {
    let mut table: BTreeMap<(String, String), (u32, u32)> = BTreeMap::new();
    let mut by_rule: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    for row in rows {
        let (text, label, source) = (field(row, "text"), field(row, "label"), field(row, "source"));
        if option(args, "--source").is_some_and(|only| only != source) {
            continue;
        }
        let mut hits = bench.look(text);
        hits.retain(|hit| !DATA_TYPES.contains(&hit.finding.finding_type.as_ref()));
        let flagged = score(hits.iter().map(|hit| &hit.finding)) >= 60;
        for key in [(label.to_owned(), String::new()), (label.to_owned(), source.to_owned())] {
            let entry = table.entry(key).or_default();
            entry.0 += 1;
            entry.1 += u32::from(flagged);
        }
        let benign = label == "benign";
        for hit in hits.iter().filter(|hit| hit.finding.severity.score() >= 60) {
            let rule = hit.finding.metadata.get("rule").cloned().unwrap_or_else(|| hit.finding.description.to_string());
            let entry = by_rule.entry(rule).or_default();
            if benign {
                entry.1 += 1;
            } else {
                entry.0 += 1;
            }
        }
        let shown: String = text.chars().take(240).collect();
        if !flagged && option(args, "--missed") == Some(label) {
            println!("MISSED {source}: {shown:?}");
        }
        if flagged && benign && args.iter().any(|arg| arg == "--false") {
            for hit in hits.iter().filter(|hit| hit.finding.severity.score() >= 60) {
                println!(
                    "FALSE {source}: {:?} {:?} in {shown:?}",
                    hit.finding.metadata.get("rule"),
                    hit.finding.evidence
                );
            }
        }
    }
    for ((label, source), (count, flagged)) in &table {
        let share = f64::from(*flagged) / f64::from(*count) * 100.0;
        println!("{label:20} {source:36} {flagged:6} / {count:6} = {share:5.1} %");
    }
    for (rule, (attacks, benign)) in &by_rule {
        println!("rule {rule:40} attacks {attacks:5} benign {benign:4}");
    }
}

/// The text of a row, which may be in parts.
fn text_of(row: &Value) -> Cow<'_, str> {
    match row.get("parts").and_then(Value::as_array) {
        Some(parts) => parts.iter().filter_map(Value::as_str).collect(),
        None => field(row, "text").into(),
    }
}

fn spans(bench: &mut Bench, rows: &[Value], finding_type: &str, key: &str, args: &[String]) {
    let mut recall: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    let mut precision: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    let mut negatives = (0, 0);
    for row in rows {
        let text = &*text_of(row);
        let hits: Vec<Hit> =
            bench.look(text).into_iter().filter(|hit| hit.finding.finding_type == finding_type).collect();
        let byte_at = |point: u64| text.char_indices().nth(point as usize).map_or(text.len(), |(at, _)| at);
        let gold: Vec<(usize, usize, &str)> = row
            .get("spans")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(|span| {
                let edge = |name: &str| byte_at(span.get(name).and_then(Value::as_u64).unwrap_or(0));
                (edge("start"), edge("end"), field(span, "type"))
            })
            .collect();
        let found: Vec<(usize, usize)> =
            hits.iter().filter_map(|hit| hit.finding.span.map(|span| (span.start, span.end))).collect();
        for (start, end, kind) in &gold {
            let seen = found.iter().any(|(from, to)| from < end && start < to);
            let entry = recall.entry((*kind).to_owned()).or_default();
            entry.0 += 1;
            entry.1 += u32::from(seen);
            if !seen && option(args, "--missed") == Some(kind) {
                println!("MISSED {kind}: {text:?}");
            }
        }
        for (hit, (from, to)) in hits.iter().zip(&found) {
            let right = gold.iter().any(|(start, end, _)| from < end && start < to);
            let kind = hit.finding.metadata.get(key).cloned().unwrap_or_default();
            let entry = precision.entry(kind).or_default();
            entry.0 += 1;
            entry.1 += u32::from(right);
            if !right && args.iter().any(|arg| arg == "--false") {
                println!("FALSE {:?} {:?} in {text:?}", hit.finding.metadata, text.get(*from..*to));
            }
        }
        if field(row, "kind") == "hard_negative" {
            negatives.0 += 1;
            negatives.1 += u32::from(!hits.is_empty());
        }
    }
    let line = |name: &str, of: &BTreeMap<String, (u32, u32)>| {
        for (kind, (count, right)) in of {
            println!(
                "{name:9} {kind:28} {right:5} / {count:5} = {:5.1} %",
                f64::from(*right) / f64::from(*count) * 100.0
            );
        }
    };
    line("recall", &recall);
    line("precision", &precision);
    println!("hard negatives with a finding: {} / {}", negatives.1, negatives.0);
}

fn speed(bench: &mut Bench, rows: &[Value]) {
    let texts: Vec<&str> = rows.iter().map(|row| field(row, "text")).filter(|text| !text.is_empty()).collect();
    let (warm, fresh) = texts.split_at(texts.len() / 10);
    for text in warm {
        bench.look(text);
    }
    let (mut hits, mut efforts) = (Vec::new(), Vec::new());
    let bytes: usize = fresh.iter().map(|text| text.len()).sum();
    let (began, on_cpu) = (Instant::now(), cpu_ns());
    for text in fresh {
        let part = Part { text, kind: bench.kind };
        hits.clear();
        let ran = bench.analyser.analyse(&mut bench.scratch, &[part], &Call::of(&bench.plan), &mut hits);
        efforts.push((ran.effort, ran.verify_cap_reached, *text));
    }
    let wall = began.elapsed().as_secs_f64() * 1e6;
    let cpu = cpu_ns().zip(on_cpu).map_or(wall, |(end, start)| (end - start) as f64 / 1e3);
    let per_kb = 1024.0 / bytes as f64;
    println!(
        "{} texts, {bytes} bytes: {:.2} us of CPU per KB, {:.2} us of wall clock",
        fresh.len(),
        cpu * per_kb,
        wall * per_kb
    );
    efforts.sort_unstable_by_key(|(effort, ..)| *effort);
    let at = |share: f64| efforts.get((share * efforts.len() as f64) as usize).map_or(0, |(effort, ..)| *effort);
    let capped = efforts.iter().filter(|(_, capped, _)| *capped).count();
    println!(
        "spent of what patterns may cost, in thousandths: median {}, 1 in 100 {}, 1 in 1000 {}, most {}; {capped} texts not wholly tried",
        at(0.5),
        at(0.99),
        at(0.999),
        efforts.last().map_or(0, |(effort, ..)| *effort)
    );
    for (effort, capped, text) in efforts.iter().rev().take(8).filter(|(effort, ..)| *effort > 333) {
        let shown: String = text.chars().take(120).collect();
        println!("{effort}{}: {} bytes, {shown:?}", if *capped { " capped" } else { "" }, text.len());
    }
}

fn kinds(bench: &mut Bench, rows: &[Value]) {
    let mut dear: Vec<(f64, bool, &str)> = rows
        .iter()
        .map(|row| {
            let part = Part { text: field(row, "text"), kind: bench.kind };
            let (mut best, mut capped) = (f64::MAX, false);
            for _ in 0..3 {
                let began = Instant::now();
                let ran = bench.analyser.analyse(&mut bench.scratch, &[part], &Call::of(&bench.plan), &mut Vec::new());
                best = best.min(began.elapsed().as_secs_f64());
                capped |= ran.verify_cap_reached;
            }
            (best * 1e6 * 1024.0 / part.text.len() as f64, capped, field(row, "source"))
        })
        .collect();
    dear.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (us_per_kb, capped, source) in dear {
        println!("{us_per_kb:8.2} us per KB{} {source}", if capped { " capped" } else { "" });
    }
}

fn findings(bench: &mut Bench, rows: &[Value]) {
    for (row, value) in rows.iter().enumerate() {
        let text = text_of(value);
        for kind in ROLES {
            let mut hits = Vec::new();
            let part = Part { text: &text, kind };
            let ran = bench.analyser.analyse(&mut bench.scratch, &[part], &Call::of(&bench.plan), &mut hits);
            let ends = (ran.cut, ran.failed, ran.full, ran.verify_cap_reached);
            if ends != (false, false, false, false) {
                println!("{row} {kind:?} cut, failed, full, capped: {ends:?}");
            }
            for Hit { finding, .. } in &hits {
                let (what, how) = (&finding.finding_type, (finding.severity, finding.confidence, finding.span));
                println!("{row} {kind:?} {what} {how:?} {:?} {:?}", finding.evidence, finding.metadata);
            }
        }
    }
}

/// Time this thread has spent on a CPU, in nanoseconds (Linux). Giving way first makes the kernel bring its account up to date.
fn cpu_ns() -> Option<u64> {
    std::thread::yield_now();
    std::fs::read_to_string("/proc/thread-self/schedstat").ok()?.split_whitespace().next()?.parse().ok()
}
