//! Prints the shape of the code: `cargo run --example house [-- ROOT]`. Lines per folder, the arrows between folders, and the sets
//! of files that import one another. `tests/tidy.rs` says which of it is allowed.

#[path = "../tests/tidy/graph.rs"]
#[allow(dead_code)] // What `tests/tidy.rs` checks is not all printed here.
mod graph;

use std::path::{Path, PathBuf};

use graph::Graph;

/// The crates, each with the folder of its source.
const CRATES: [(&str, &str); 8] = [
    ("weir", "src"),
    ("weir-config", "config/src"),
    ("weir-inference", "inference/src"),
    ("weir-models", "models/src"),
    ("weir-storage", "storage/src"),
    ("weir-proto", "proto/src"),
    ("weir-loadtest", "loadtest/src"),
    ("weir-fake-provider", "loadtest/provider/src"),
];

fn main() {
    let root = std::env::args_os().nth(1).map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let mut total = (0, 0);
    println!("## Lines per folder: without tests, of tests\n");
    for (name, folder) in CRATES {
        if !root.join(folder).is_dir() {
            continue;
        }
        let (code, tests) = lines(&root.join(folder), name == "weir");
        total = (total.0 + code, total.1 + tests);
        println!("{:<28}{code:>7}{tests:>7}\n", format!("= {name}"));
    }
    println!("{:<28}{:>7}{:>7}\n", "= all", total.0, total.1);
    for (name, folder) in CRATES {
        if root.join(folder).is_dir() {
            print(name, &Graph::read(&root.join(folder)), std::env::args().any(|arg| arg == "--files"));
        }
    }
}

/// Prints the lines of each folder of a crate, and says how many there are in all.
fn lines(folder: &Path, each: bool) -> (usize, usize) {
    let graph = Graph::read(folder);
    let mut by_folder = std::collections::BTreeMap::new();
    for (module, source) in &graph.files {
        let sum: &mut (usize, usize) = by_folder.entry(Graph::folder(module).to_owned()).or_default();
        *sum = (sum.0 + source.lines, sum.1 + source.test_lines);
    }
    for (name, (code, tests)) in by_folder.iter().filter(|_| each) {
        println!("{:<28}{code:>7}{tests:>7}", if name.is_empty() { "lib.rs" } else { name });
    }
    by_folder.values().fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1))
}

fn print(name: &str, graph: &Graph, files: bool) {
    println!("## {name}: arrows between folders\n");
    let mut from_before = String::new();
    for ((from, to), arrows) in graph.folders() {
        let back = if graph.folders().contains_key(&(to.clone(), from.clone())) { "  <- and back" } else { "" };
        if from != from_before {
            println!("{from}");
            from_before.clone_from(&from);
        }
        println!("    -> {to} ({}){back}", arrows.len());
    }
    println!("\n## {name}: circles of folders\n");
    for circle in graph.folder_circles() {
        println!("{}: {}", circle.len(), circle.into_iter().collect::<Vec<_>>().join(", "));
    }
    println!("\n## {name}: circles of files\n");
    for circle in graph.circles() {
        println!("{}: {}", circle.len(), circle.into_iter().collect::<Vec<_>>().join(", "));
    }
    if files {
        println!("\n## {name}: arrows between files\n");
        for (from, targets) in graph.edges.iter().filter(|(_, targets)| !targets.is_empty()) {
            println!("{from} -> {}", targets.iter().map(String::as_str).collect::<Vec<_>>().join(", "));
        }
    }
    println!();
}
