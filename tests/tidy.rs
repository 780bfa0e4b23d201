//! The shape of the code as a test: who may import whom, where `unsafe` may stand, which crates see which libraries.
//! ARCHITECTURE.md gives the reasons.
#![allow(clippy::unwrap_used, clippy::expect_used)] // Tests fail by panicking, their helpers too.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All Rust files below `folder`, with their text.
fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    fn walk(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join(folder), &mut found);
    assert!(!found.is_empty(), "{folder} holds no source");
    found
}

/// Code lines of `text`: no comments.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// Lines below `folder` that hold one of `words`, outside the files whose path contains one of `allowed`.
fn offences(folder: &str, words: &[&str], allowed: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in sources(folder) {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        if allowed.iter().any(|part| name.contains(part)) {
            continue;
        }
        for (line, text) in code(&text) {
            if words.iter().any(|word| text.contains(word)) {
                found.push(format!("{name}:{line}: {}", text.trim()));
            }
        }
    }
    found
}

#[track_caller]
fn assert_none(found: Vec<String>, rule: &str) {
    assert!(found.is_empty(), "{rule}\n{}", found.join("\n"));
}

#[test]
fn only_the_runtime_seam_imports_monoio() {
    let words = ["monoio::", "use monoio", "io_uring::"];
    assert_none(offences("src", &words, &["src/rt/"]), "the driver must be replaceable: only src/rt sees it");
}

#[test]
fn unsafe_stands_in_the_runtime_seam_only() {
    let words = ["unsafe {", "unsafe impl", "unsafe fn", "allow(unsafe_code)"];
    for (folder, allowed) in [
        ("src", "src/rt/"),
        ("config/src", "-"),
        ("inference/src", "-"),
        ("storage/src", "sqlite/log_file.rs"),
        ("loadtest/src", "epoll_sys.rs"),
    ] {
        assert_none(offences(folder, &words, &[allowed]), "unsafe is fenced");
    }
}

#[test]
fn stages_do_not_import_one_another() {
    let stages = ["admit", "inspect", "enforce", "rewrite", "forward", "observe"];
    for stage in stages {
        let others: Vec<String> =
            stages.iter().filter(|other| **other != stage).map(|other| format!("crate::{other}::")).collect();
        let words: Vec<&str> = others.iter().map(String::as_str).collect();
        assert_none(offences(&format!("src/{stage}"), &words, &[]), "only flow composes the stages");
    }
}

#[test]
fn pure_folders_know_no_runtime() {
    for folder in
        ["wire", "json", "codec", "admit", "inspect", "observe", "enforce", "rewrite", "exchange", "record", "meter"]
    {
        let words = ["crate::rt", "crate::flow", "crate::boot", "tokio::", "std::net::Tcp"];
        assert_none(offences(&format!("src/{folder}"), &words, &[]), "pure folders run anywhere");
    }
}

#[test]
fn each_library_has_one_home() {
    for (library, home) in [("rusqlite", "storage"), ("regex_automata", "inference"), ("serde_yaml", "config")] {
        let words = [format!("{library}::")];
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        for folder in ["src", "config/src", "inference/src", "storage/src", "loadtest/src"] {
            if !folder.starts_with(home) {
                // Rule files are data; the rule loader reads them with the library that settings use.
                assert_none(offences(folder, &words, &["inference/src/rules/"]), "one crate sees each library");
            }
        }
    }
}

#[test]
fn inference_and_storage_never_see_each_other() {
    assert_none(
        offences("inference/src", &["weir_storage", "http::"], &[]),
        "inference knows neither records nor HTTP",
    );
    assert_none(
        offences("storage/src", &["weir_inference", "http::"], &[]),
        "storage knows neither detectors nor HTTP",
    );
}

#[test]
fn every_file_says_what_it_is_for() {
    for folder in ["src", "config/src", "inference/src", "storage/src", "loadtest/src"] {
        for (path, text) in sources(folder) {
            assert!(text.starts_with("//!"), "{} does not open with its purpose", path.display());
        }
    }
}

/// What the lock file pins comes from the registry, with a checksum; what is known to be unmaintained has a line that says why
/// it stays.
#[test]
fn dependencies_come_from_the_registry_and_the_unmaintained_ones_have_a_reason() {
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let decisions = std::fs::read_to_string(root().join("docs/decisions.md")).unwrap();
    let packages: Vec<&str> = lock.split("[[package]]").skip(1).collect();
    assert!(packages.len() > 100, "{}", packages.len());
    let value = |package: &str, key: &str| -> Option<String> {
        let line = package.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))?;
        Some(line.trim_matches('"').to_owned())
    };
    for package in packages {
        let name = value(package, "name").unwrap();
        match value(package, "source") {
            None => assert!(name.starts_with("weir"), "`{name}` lies in no registry"),
            Some(source) => {
                assert!(source.starts_with("registry+"), "`{name}` comes from {source}");
                assert!(value(package, "checksum").is_some(), "`{name}` has no checksum");
            }
        }
        if ["serde_yaml", "unsafe-libyaml", "fxhash", "bincode", "instant", "paste"].contains(&name.as_str()) {
            assert!(
                decisions.contains(&format!("`{name}`")),
                "docs/decisions.md has no word on `{name}`, which is unmaintained"
            );
        }
    }
}
