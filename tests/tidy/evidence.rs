//! The rows of `docs/evidence/` name tests and modules: each of them is there, so that a row cannot outlive what it names.

use std::path::Path;

/// Where sources lie, and the name of their crate in rows.
const SOURCES: [(&str, &str); 9] = [
    ("src", "weir"),
    ("config/src", "config"),
    ("inference/src", "inference"),
    ("models/src", "models"),
    ("storage/src", "storage"),
    ("loadtest/src", "loadtest"),
    ("loadtest/provider/src", "provider"),
    ("proto/src", "proto"),
    ("tests", "tests"),
];
/// Where crates below have suites of their own.
const SUITES: [&str; 6] =
    ["config/tests", "inference/tests", "models/tests", "storage/tests", "loadtest/tests", "loadtest/provider/tests"];

/// A module or a function: the names that lead to it.
type Place = Vec<String>;

#[test]
fn every_test_that_the_evidence_names_is_there() {
    let places = places();
    let pages = std::fs::read_dir(root().join("docs/evidence")).unwrap().map(|entry| entry.unwrap().path());
    let mut gone = Vec::new();
    for page in pages {
        let evidence = std::fs::read_to_string(&page).unwrap();
        for (line, text) in evidence.lines().enumerate() {
            for name in text.split('`').skip(1).step_by(2).filter(|name| is_path(name)) {
                for one in expanded(name).iter().filter(|one| !is_there(&places, one)) {
                    gone.push(format!("{}:{}: `{one}` is nowhere in the sources", page.display(), line + 1));
                }
            }
        }
    }
    assert!(gone.is_empty(), "{}", gone.join("\n"));
}

#[test]
fn a_name_is_found_by_its_last_parts_and_one_that_is_gone_is_not() {
    let place = |path: &str| path.split("::").map(str::to_owned).collect::<Place>();
    let places = [
        place("weir::process"),
        place("weir::process::background"),
        place("weir::process::background::tests::an_end_is_told"),
    ];
    for there in ["process::background", "background::tests::an_end_*", "process::*", "tests::*_told"] {
        assert!(is_there(&places, there), "{there}");
    }
    for gone in ["flow::background", "background::tests::told", "flow::background::tests::*", "weir::tests"] {
        assert!(!is_there(&places, gone), "{gone}");
    }
    assert_eq!(expanded("a::{b, c_*}::d"), ["a::b::d", "a::c_*::d"]);
    assert!(is_path("a::b_*") && is_path("a::{b, c}") && !is_path("A::b") && !is_path("a b::c") && !is_path("a"));
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Whether it is written as the path of a test or a module.
fn is_path(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_*:".contains(c);
    let is_part = |(at, part): (usize, &str)| part.chars().all(|c| is_letter(c) || (at % 2 == 1 && ", ".contains(c)));
    // Between braces stands a list.
    name.contains("::") && name.split(['{', '}']).enumerate().all(is_part)
}

/// The names that one with a list in braces stands for.
pub(super) fn expanded(name: &str) -> Vec<String> {
    let Some((before, rest)) = name.split_once('{') else { return vec![name.to_owned()] };
    let Some((list, after)) = rest.split_once('}') else { return vec![name.to_owned()] };
    let each = list.split(',').flat_map(|one| expanded(&[before, one.trim(), after].concat()));
    each.collect()
}

/// Whether some place ends with these names; a star stands for any letters of one.
fn is_there(places: &[Place], name: &str) -> bool {
    let parts: Vec<&str> = name.split("::").collect();
    places.iter().any(|place| {
        let last = place.len().checked_sub(parts.len()).and_then(|from| place.get(from..));
        last.is_some_and(|last| last.iter().zip(&parts).all(|(name, part)| fits(part, name)))
    })
}

pub(super) fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((first, rest)) => {
            let left = name.strip_prefix(first);
            left.is_some_and(|left| (0..=left.len()).any(|at| fits(rest, &left[at..])))
        }
    }
}

/// All modules and functions of the sources.
fn places() -> Vec<Place> {
    let mut all = Vec::new();
    let suites = SUITES.iter().map(|suite| (*suite, suite.split('/').rev().nth(1).unwrap_or_default()));
    for (folder, name) in SOURCES.into_iter().chain(suites) {
        let folder = root().join(folder);
        if folder.is_dir() {
            read_folder(&folder, &vec![name.to_owned()], &mut all);
        }
    }
    all
}

fn read_folder(folder: &Path, at: &Place, all: &mut Vec<Place>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let below = |name: String| [at.as_slice(), &[name]].concat();
        if path.is_dir() {
            all.push(below(name.clone()));
            read_folder(&path, &below(name), all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let is_folder_s = matches!(name.as_str(), "mod" | "lib" | "main");
            read_source(&path, if is_folder_s { at.clone() } else { below(name) }, all);
        }
    }
}

/// Modules and functions of a file, by the indentation that rustfmt gives them.
fn read_source(path: &Path, module: Place, all: &mut Vec<Place>) {
    all.push(module.clone());
    let mut inside: Vec<(usize, String)> = Vec::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let indent = line.len() - line.trim_start().len();
        let words: Vec<&str> = line.split_whitespace().take(6).collect();
        if words.first().is_some_and(|word| word.starts_with('}')) {
            inside.retain(|(outer, _)| *outer < indent);
        }
        let named = |keyword: &str| {
            let at = words.iter().position(|word| *word == keyword)?;
            let is_item =
                words[..at].iter().all(|word| word.starts_with("pub") || matches!(*word, "async" | "const" | "unsafe"));
            let name = words.get(at + 1)?.split(['(', '<', ';', '{']).next()?;
            is_item.then(|| name.to_owned())
        };
        let name = named("mod").or_else(|| named("fn"));
        let Some(name) = name else { continue };
        let names = inside.iter().map(|(_, name)| name.clone()).chain([name.clone()]);
        all.push(module.iter().cloned().chain(names).collect());
        if words.contains(&"mod") && line.ends_with('{') {
            inside.push((indent, name));
        }
    }
}
