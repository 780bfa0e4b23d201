//! The pages that lead through the code name files and folders: each of them is there, so that none sends a reader to what has moved.

use std::collections::BTreeSet;

use super::evidence::{expanded, fits};
use super::{ROOMS, root};

/// The pages, and whether their drawings name files, too, as below `src`.
const PAGES: [(&str, bool); 6] = [
    ("ARCHITECTURE.md", false),
    ("CONTRIBUTING.md", false),
    ("README.md", false),
    ("SECURITY.md", false),
    ("docs/recipes.md", false),
    ("docs/walks.md", true),
];

#[test]
fn every_file_that_the_pages_name_is_there() {
    let tops = tops();
    let (mut gone, mut counted) = (Vec::new(), 0);
    for (page, has_drawings) in PAGES {
        let text = std::fs::read_to_string(root().join(page)).unwrap();
        for (line, name) in named(&text, has_drawings, &tops) {
            counted += 1;
            if !is_there(&name) {
                gone.push(format!("{page}:{line}: `{name}` is nowhere"));
            }
        }
    }
    assert!(gone.is_empty(), "{}", gone.join("\n"));
    assert!(counted > 250, "{counted} names are read: are the pages still written as this reads them?");
}

#[test]
fn names_of_files_are_read_as_pages_write_them() {
    let tops = tops();
    let text = "In `src/read/{inspect,gone}/mod.rs`, `config/src/` and `cargo test -p weir`.\n```\nread/observe/  says, a/b\n```\n`a/b`";
    let names = |drawings| named(text, drawings, &tops).into_iter().map(|(_, name)| name).collect::<Vec<_>>();
    assert_eq!(names(false), ["src/read/inspect/mod.rs", "src/read/gone/mod.rs", "config/src"]);
    assert_eq!(names(true), ["src/read/inspect/mod.rs", "src/read/gone/mod.rs", "config/src", "read/observe"]);
    let there = ["src/read", "read/observe", "read/inspect/provider", "inference/rules/*.yaml"];
    assert!(there.iter().all(|name| is_there(name)));
    assert!(!["src/read/gone/mod.rs", "read/gone", "inference/rules/*.gone"].iter().any(|name| is_there(name)));
}

/// The folders at the root and the rooms: what the name of a file begins with.
fn tops() -> BTreeSet<String> {
    let root = std::fs::read_dir(root()).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_dir());
    let root = root.map(|entry| entry.file_name().to_string_lossy().into_owned()).filter(|name| name != "target");
    root.chain(ROOMS.iter().map(|(room, _)| (*room).to_owned())).collect()
}

/// The names of files and folders in a page, with their lines: in backticks, and in its drawings if it has any.
fn named(text: &str, has_drawings: bool, tops: &BTreeSet<String>) -> Vec<(usize, String)> {
    let (mut names, mut is_drawing) = (Vec::new(), false);
    for (at, line) in text.lines().enumerate() {
        if line.starts_with("```") {
            is_drawing = !is_drawing;
            continue;
        }
        let pieces: Vec<&str> = match (is_drawing, has_drawings) {
            (true, true) => vec![line],
            (true, false) => Vec::new(),
            (false, _) => line.split('`').skip(1).step_by(2).collect(),
        };
        let words = pieces.iter().flat_map(|piece| piece.split_whitespace());
        let words = words.map(|word| word.trim_matches(|c: char| ",;:.()".contains(c)));
        let files = words.filter(|word| word.split_once('/').is_some_and(|(top, _)| tops.contains(top)));
        names.extend(files.flat_map(expanded).map(|name| (at + 1, name.trim_end_matches('/').to_owned())));
    }
    names
}

/// Whether a file or a folder has this name, at the root or below `src`, with or without `.rs`. A star in its last part stands for letters.
fn is_there(name: &str) -> bool {
    let (folder, last) = name.rsplit_once('/').unwrap_or(("", name));
    [root(), root().join("src")].iter().any(|base| {
        let Ok(entries) = std::fs::read_dir(base.join(folder)) else { return false };
        let mut entries = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
        entries.any(|entry| fits(last, &entry) || fits(last, entry.trim_end_matches(".rs")))
    })
}
