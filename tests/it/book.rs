//! The book: its reference is what the program says, and no link of any page leads nowhere.

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_reference_is_what_the_program_says() {
    let script = root().join("docs/book/reference.py");
    let mut check = Command::new("python3");
    check.arg(script).args(["--check", "--weir"]).arg(env!("CARGO_BIN_EXE_weir"));
    let output = check.output().expect("python3");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Pages in Markdown of the whole project, but not what others wrote or a build made.
fn pages() -> Vec<PathBuf> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let (path, name) = entry.map(|entry| (entry.path(), entry.file_name())).unwrap();
            match path.is_dir() {
                true if name == "target" || name == "node_modules" || name == ".git" => {}
                true => walk(&path, found),
                false if path.extension().is_some_and(|ending| ending == "md") => found.push(path),
                false => {}
            }
        }
    }
    let mut found = Vec::new();
    walk(root(), &mut found);
    found
}

/// Targets of the links `[text](target)` of a page, outside of code.
fn links(text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        // Every second piece stands between back-quotes.
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
        for piece in prose.split("](").skip(1) {
            found.extend(piece.split_once(')').map(|(target, _)| target.to_owned()));
        }
    }
    found
}

#[test]
fn no_link_of_a_page_leads_nowhere() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        for target in links(&text) {
            let file = target.split('#').next().unwrap_or_default();
            let elsewhere = file.is_empty() || file.contains("://") || file.starts_with("mailto:");
            if !elsewhere && !page.parent().unwrap().join(file).exists() {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_page_of_the_book_is_in_its_summary() {
    let source = root().join("docs/book/src");
    let summary = std::fs::read_to_string(source.join("SUMMARY.md")).unwrap();
    let listed = links(&summary);
    let written = pages().into_iter().filter_map(|page| Some(page.strip_prefix(&source).ok()?.display().to_string()));
    let mut missing: Vec<String> = written.filter(|page| page != "SUMMARY.md" && !listed.contains(page)).collect();
    missing.sort();
    assert_eq!(missing, Vec::<String>::new());
}
