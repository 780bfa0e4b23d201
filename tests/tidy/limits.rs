//! The limits of the product, read from its source: sizes, counts and times that stand as constants, each with the reason written above
//! it. `docs/limits.md` is made of them: a limit stands where it is obeyed, and all of them stand on that page.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// The crates that run in the product.
const FOLDERS: [&str; 6] = ["src", "config/src", "inference/src", "models/src", "storage/src", "proto/src"];
/// Words in names of limits: bounds, and the units of what is counted or measured.
const WORDS: [&str; 42] = [
    "MAX",
    "MIN",
    "LEAST",
    "LIMIT",
    "BYTES",
    "CHARS",
    "CHARACTERS",
    "ITEMS",
    "JOBS",
    "LINES",
    "SPANS",
    "ROWS",
    "THREADS",
    "CELLS",
    "MS",
    "US",
    "KIB",
    "TEXTS",
    "FEW",
    "CALLS",
    "SLOTS",
    "COUNTERS",
    "PROBES",
    "PLACES",
    "BATCH",
    "CREDITS",
    "TRIES",
    "ATTEMPTS",
    "ENTRIES",
    "BACKLOG",
    "TOGETHER",
    "EVERY",
    "LOOKS",
    "SCARCE",
    "PART",
    "OVERGROWN",
    "RECENT",
    "FREE",
    "RELIEF",
    "STRETCH",
    "STEPS",
    "REACH",
];

/// A constant.
struct Limit {
    name: String,
    value: String,
    reason: String,
}

/// The page, or what keeps it from being made.
pub(crate) fn page(root: &Path) -> Result<String, Vec<String>> {
    let mut by_room: BTreeMap<String, Vec<(String, Limit)>> = BTreeMap::new();
    let mut missing = Vec::new();
    for folder in FOLDERS {
        for (path, text) in super::sources(folder) {
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if name.contains("tests") || name.contains("/generated/") {
                continue;
            }
            for limit in limits(&text) {
                if limit.reason.is_empty() {
                    missing.push(format!("{name}: {}", limit.name));
                }
                by_room.entry(room(&name)).or_default().push((name.clone(), limit));
            }
        }
    }
    if missing.is_empty() { Ok(written(&by_room)) } else { Err(missing) }
}

/// The folder of a room of `src`, or the crate.
fn room(path: &str) -> String {
    let mut parts = path.split('/');
    let (first, room, folder) = (parts.next().unwrap(), parts.next().unwrap(), parts.next());
    match folder.filter(|_| first == "src") {
        Some(folder) => format!("src/{room}/{}", folder.trim_end_matches(".rs")),
        None => first.to_owned(),
    }
}

fn written(by_room: &BTreeMap<String, Vec<(String, Limit)>>) -> String {
    let mut page = String::from(
        "# Limits\n\nSizes, counts and times that are not settings. Each is a constant that stands where it is obeyed; this page is made of them\n\
         (`UPDATE_LIMITS=1 cargo test --test tidy`), and a test compares it with the source. What an operator may change is a setting:\n\
         [`config/service.example.yaml`](../config/service.example.yaml).\n",
    );
    for (room, limits) in by_room {
        write!(page, "\n## `{room}`\n\n| Limit | Value | What it bounds, and why |\n|---|---|---|\n").unwrap();
        let mut sorted: Vec<_> = limits.iter().collect();
        sorted.sort_by(|a, b| (&a.0, &a.1.name).cmp(&(&b.0, &b.1.name)));
        for (path, Limit { name, value, reason }) in sorted {
            let file = path.strip_prefix("src/").unwrap_or(path);
            writeln!(page, "| `{name}` ({file}) | `{value}` | {} |", reason.replace('|', "\\|")).unwrap();
        }
    }
    page
}

/// The limits of one file, without those of its tests.
fn limits(text: &str) -> Vec<Limit> {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some((name, kind)) = constant(line) else { continue };
        // What an hour is is no limit.
        if name.starts_with("HOUR") || name.starts_with("YEAR") {
            continue;
        }
        let is_limit = kind == "Duration" || name.split('_').any(|word| WORDS.contains(&word));
        if !is_limit || !["usize", "u64", "u32", "i64", "i32", "Duration"].contains(&kind) {
            continue;
        }
        let rest = lines[at..].join(" ");
        let value = rest.split_once('=').and_then(|(_, rest)| rest.split(';').next()).unwrap_or_default();
        let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
        found.push(Limit { name: name.to_owned(), value, reason: reason(&lines[..at]) });
    }
    found
}

/// Name and type of the constant that a line begins.
fn constant(line: &str) -> Option<(&str, &str)> {
    let (before, rest) = line.split_once("const ")?;
    let before = before.trim();
    let (name, rest) = rest.split_once(": ")?;
    let (kind, _) = rest.split_once(" =")?;
    let is_item = before.is_empty() || before.starts_with("pub") && !before.contains(' ');
    (is_item && name.chars().all(|it| it.is_ascii_uppercase() || it.is_ascii_digit() || it == '_'))
        .then_some((name, kind))
}

/// The comment above a line, or above the constants that stand directly above it: one is written for all of them.
fn reason(above: &[&str]) -> String {
    let above = above.iter().rev().map(|line| line.trim()).skip_while(|line| constant(line).is_some());
    let comment = above.take_while(|line| line.starts_with("///"));
    let mut lines: Vec<&str> = comment.map(|line| line.trim_start_matches('/').trim()).collect();
    lines.reverse();
    lines.join(" ")
}
