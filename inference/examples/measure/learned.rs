//! How long the embedded classifier takes for texts of 32, 128 and 512 tokens, what loading it costs, and what the whole analysis with it
//! costs beside the rules alone.

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use weir_inference::{Analyser, Call, Classifier, EMBEDDED, Part, PartKind, PlanSettings};

/// Bytes of a token of English prose, as byte pair encoders of today cut it.
const TOKEN_BYTES: f64 = 4.2;
/// Texts of each length.
const TEXTS: usize = 2_000;

/// Resident memory in KB.
fn resident() -> Result<u64, Box<dyn Error>> {
    let text = fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    Ok(line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default())
}

/// Pieces of the texts, cut at blanks, of `tokens` tokens each.
fn pieces(rows: &[Value], tokens: usize) -> Vec<String> {
    let bytes = (tokens as f64 * TOKEN_BYTES) as usize;
    let mut pieces = vec![String::new()];
    for word in rows.iter().filter_map(|row| row["text"].as_str()).flat_map(str::split_whitespace) {
        if pieces.last().is_some_and(|last| last.len() + word.len() > bytes) {
            if pieces.len() == TEXTS {
                break;
            }
            pieces.push(String::new());
        }
        if let Some(last) = pieces.last_mut() {
            last.push_str(word);
            last.push(' ');
        }
    }
    pieces
}

/// Median, 99th percentile and mean, in microseconds.
fn timed(pieces: &[String], mut each: impl FnMut(&str)) -> (f64, f64, f64) {
    let mut took: Vec<Duration> = pieces
        .iter()
        .map(|text| {
            let began = Instant::now();
            each(text);
            began.elapsed()
        })
        .collect();
    let mean = took.iter().sum::<Duration>().as_secs_f64() * 1e6 / took.len() as f64;
    took.sort_unstable();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
    (at(0.5), at(0.99), mean)
}

/// Prints it.
pub(super) fn learned(rows: &[Value]) -> Result<(), Box<dyn Error>> {
    let (before, began) = (resident()?, Instant::now());
    let classifier = Classifier::embedded()?;
    let took = began.elapsed();
    println!(
        "loaded and tested in {:.1} ms, {} KB more resident",
        took.as_secs_f64() * 1e3,
        resident()?.saturating_sub(before)
    );
    let analyser = Analyser::whole(Vec::new())?.without_memory();
    let plan = |off| Arc::new(analyser.plan(&PlanSettings { off, ..PlanSettings::default() }));
    let (rules, both) = (plan(&[EMBEDDED][..]), plan(&[][..]));
    let mut scratch = analyser.scratch();
    println!(
        "| tokens | classifier p50, p99 us | texts/s on one core | rules p50, p99 us | both |\n|--:|--:|--:|--:|--:|"
    );
    for tokens in [32, 128, 512] {
        let pieces = pieces(rows, tokens);
        let alone = timed(&pieces, |text| {
            black_box(classifier.probability(&[Part { text, kind: PartKind::User }], None));
        });
        let mut analysis = |plan| {
            timed(&pieces, |text| {
                let mut hits = Vec::new();
                analyser.analyse(&mut scratch, &[Part { text, kind: PartKind::User }], &Call::of(plan), &mut hits);
                black_box(hits);
            })
        };
        analysis(&rules);
        let (rules, both) = (analysis(&rules), analysis(&both));
        println!(
            "| {tokens} | {:.1}, {:.1} | {:.0} | {:.1}, {:.1} | {:.1}, {:.1} |",
            alone.0,
            alone.1,
            1e6 / alone.2,
            rules.0,
            rules.1,
            both.0,
            both.1
        );
    }
    Ok(())
}
