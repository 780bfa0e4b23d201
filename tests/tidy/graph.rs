//! The import graph of a crate, read from its source: which file names what of which other file. Used by `tests/tidy.rs`, which
//! says what may import what, and by `examples/house.rs`, which prints it.
//!
//! It reads `use` trees and paths written out in code, and follows re-exports to the file that defines a name. Tests, comments and
//! what macros make are left out. Uses the standard library only, and panics on what it cannot read.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A file of a crate: its module path, `flow::relay` say; the crate's root is the empty one.
pub(crate) type Module = String;

/// One source file.
pub(crate) struct Source {
    /// Path below the crate's `src`.
    pub(crate) path: String,
    /// Text without tests, comments and literals.
    code: String,
    /// Lines that are no test's, comments among them.
    pub(crate) lines: usize,
    /// Lines of tests.
    pub(crate) test_lines: usize,
}

/// All files of a crate and what they import of each other.
pub(crate) struct Graph {
    /// By module path.
    pub(crate) files: BTreeMap<Module, Source>,
    /// From file to file.
    pub(crate) edges: BTreeMap<Module, BTreeSet<Module>>,
}

/// A name that a `use` brings: what it is called here, the path it stands for, and whether others see it here.
struct Import {
    name: String,
    path: Vec<String>,
    public: bool,
}

impl Graph {
    /// Reads the crate whose source lies in `folder`.
    pub(crate) fn read(folder: &Path) -> Self {
        let mut files = BTreeMap::new();
        collect(folder, folder, &mut files);
        let imports: BTreeMap<Module, Vec<Import>> =
            files.iter().map(|(module, source)| (module.clone(), imports(&source.code))).collect();
        let mut edges = BTreeMap::new();
        for (module, source) in &files {
            let mut targets = BTreeSet::new();
            for path in named(module, source, &files, &imports) {
                targets.extend(resolve(&path, &files, &imports, 0).filter(|target| target != module));
            }
            edges.insert(module.clone(), targets);
        }
        Self { files, edges }
    }

    /// The folder of a file: the first name of its module path.
    pub(crate) fn folder(module: &str) -> &str {
        module.split("::").next().unwrap_or(module)
    }

    /// From folder to folder, with the files that make each arrow.
    pub(crate) fn folders(&self) -> BTreeMap<(String, String), BTreeSet<(Module, Module)>> {
        let mut arrows: BTreeMap<(String, String), BTreeSet<(Module, Module)>> = BTreeMap::new();
        for (from, targets) in &self.edges {
            for to in targets {
                let (here, there) = (Self::folder(from), Self::folder(to));
                // The root names every folder and is named by the program only.
                if here != there && !here.is_empty() && !there.is_empty() {
                    let arrow = (here.to_owned(), there.to_owned());
                    arrows.entry(arrow).or_default().insert((from.clone(), to.clone()));
                }
            }
        }
        arrows
    }

    /// Sets of files that import one another in a circle, the largest first.
    pub(crate) fn circles(&self) -> Vec<BTreeSet<Module>> {
        circles(&self.edges)
    }

    /// Sets of folders that import one another in a circle.
    pub(crate) fn folder_circles(&self) -> Vec<BTreeSet<String>> {
        let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (from, to) in self.folders().into_keys() {
            edges.entry(to.clone()).or_default();
            edges.entry(from).or_default().insert(to);
        }
        circles(&edges)
    }
}

/// Reads `folder` and what lies below it. Files of tests count as tests and are not read.
fn collect(root: &Path, folder: &Path, files: &mut BTreeMap<Module, Source>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(root, &path, files);
            continue;
        }
        let name = path.strip_prefix(root).unwrap().display().to_string();
        let Some(stem) = name.strip_suffix(".rs") else { continue };
        if stem == "main" {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let all = text.lines().count();
        let is_test = stem.split('/').any(|part| part == "tests" || part == "testing");
        let (code, test_lines) = if is_test { (String::new(), all) } else { without_tests(&without_literals(&text)) };
        let code = without_visibility(&code);
        // A room only groups its folders, which are named without it.
        let rooms = ["net", "read", "govern", "react", "gateway", "serve", "app"];
        let stem = match stem.split_once('/') {
            Some((room, "mod")) if root.join("app").is_dir() && rooms.contains(&room) => continue,
            Some((room, rest)) if root.join("app").is_dir() && rooms.contains(&room) => rest,
            _ => stem,
        };
        let module = stem.strip_suffix("/mod").unwrap_or(if stem == "lib" { "" } else { stem }).replace('/', "::");
        files.insert(module, Source { path: name, code, lines: all - test_lines, test_lines });
    }
}

/// The text with comments and literals blanked out; line breaks stay.
fn without_literals(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    let blank = |out: &mut String, part: &str| out.extend(part.chars().filter(|it| *it == '\n'));
    while at < bytes.len() {
        let rest = &text[at..];
        let end = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some(end) = literal(rest, out.chars().next_back()) {
            end
        } else {
            let one = rest.chars().next().map_or(1, char::len_utf8);
            out.push_str(&rest[..one]);
            at += one;
            continue;
        };
        blank(&mut out, &rest[..end]);
        at += end;
    }
    out
}

/// Where the string, raw string or character that `rest` begins with ends.
fn literal(rest: &str, before: Option<char>) -> Option<usize> {
    let inside = before.is_some_and(|it| it.is_alphanumeric() || it == '_');
    let bare = rest.strip_prefix('b').filter(|_| !inside).unwrap_or(rest);
    let skipped = rest.len() - bare.len();
    if let Some(raw) = bare.strip_prefix('r').filter(|_| !inside) {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if raw[hashes..].starts_with('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            let body = hashes + 1;
            return Some(skipped + 1 + body + raw[body..].find(&close)? + close.len());
        }
    }
    let quote = bare.chars().next().filter(|it| matches!(it, '"' | '\''))?;
    let mut escaped = false;
    for (at, it) in bare.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if it == '\\' {
            escaped = true;
        } else if it == quote {
            return Some(skipped + at + 1);
        } else if quote == '\'' && at > 1 && !bare[1..].starts_with('\\') {
            // A lifetime.
            return None;
        }
    }
    None
}

/// The code in front of and behind `#[cfg(test)]` items, and how many lines those take.
fn without_tests(code: &str) -> (String, usize) {
    let mut out = String::with_capacity(code.len());
    let mut taken = 0;
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(test)]") {
        out.push_str(&rest[..at]);
        let item = &rest[at..];
        let end = match (item.find('{'), item.find(';')) {
            (Some(open), semicolon) if semicolon.is_none_or(|it| open < it) => closing(item, open),
            (_, Some(semicolon)) => semicolon + 1,
            _ => item.len(),
        };
        taken += item[..end].lines().count();
        rest = &item[end..];
    }
    out.push_str(rest);
    (out, taken)
}

/// The code without `(in crate::folder)`: who may see a name is nothing that the file needs.
fn without_visibility(code: &str) -> String {
    let mut parts = code.split("pub(in ");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str("pub");
        out.push_str(part.split_once(')').map_or(part, |(_, rest)| rest));
    }
    out
}

/// Behind the brace that closes the one at `open`.
fn closing(text: &str, open: usize) -> usize {
    let mut depth = 0;
    for (at, it) in text.char_indices().skip_while(|(at, _)| *at < open) {
        match it {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    text.len()
}

/// What the `use` items of a file bring.
fn imports(code: &str) -> Vec<Import> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("use ") {
        let line = code[..at].rfind('\n').map_or(0, |it| it + 1);
        let visibility = code[line..at].trim();
        if !(visibility.is_empty() || visibility.starts_with("pub")) {
            continue;
        }
        let Some(end) = code[at..].find(';') else { continue };
        let tree = code[at + 4..at + end].split_whitespace().collect::<Vec<_>>().join(" ");
        spread(&tree, &[], !visibility.is_empty(), &mut found);
    }
    found
}

/// Takes a `use` tree apart.
fn spread(tree: &str, prefix: &[String], public: bool, found: &mut Vec<Import>) {
    let tree = tree.trim();
    if let Some((head, group)) = tree.split_once('{') {
        let mut path = prefix.to_vec();
        path.extend(head.split("::").map(str::trim).filter(|it| !it.is_empty()).map(str::to_owned));
        let group = group.rsplit_once('}').map_or(group, |(inner, _)| inner);
        let (mut depth, mut from) = (0, 0);
        for (at, it) in group.char_indices().chain([(group.len(), ',')]) {
            match it {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    spread(&group[from..at], &path, public, found);
                    from = at + 1;
                }
                _ => {}
            }
        }
        return;
    }
    if tree.is_empty() {
        return;
    }
    let (tree, alias) = tree.split_once(" as ").map_or((tree, None), |(tree, alias)| (tree, Some(alias.trim())));
    let mut path = prefix.to_vec();
    path.extend(tree.split("::").map(|it| it.trim().to_owned()).filter(|it| !it.is_empty()));
    if path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    let Some(last) = path.last().cloned() else { return };
    found.push(Import { name: alias.map_or(last, str::to_owned), path, public });
}

/// The absolute paths that a file names: in its own imports (what it only passes on is not its need), and in its code.
fn named(
    module: &str,
    source: &Source,
    files: &BTreeMap<Module, Source>,
    imports: &BTreeMap<Module, Vec<Import>>,
) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    let mut modules: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for import in &imports[module] {
        let Some(path) = absolute(module, &import.path, files) else { continue };
        if files.contains_key(&path.join("::")) {
            modules.insert(&import.name, path);
        } else if !import.public {
            paths.push(path);
        }
    }
    let mut words = String::new();
    for it in source.code.chars().chain([' ']) {
        if it.is_alphanumeric() || it == '_' || it == ':' {
            words.push(it);
            continue;
        }
        let word = std::mem::take(&mut words);
        let written: Vec<String> = word.split("::").map(str::to_owned).collect();
        if written.len() < 2 || written.iter().any(|part| part.is_empty() || part.contains(':')) {
            continue;
        }
        if let Some(start) = modules.get(written[0].as_str()) {
            paths.push(start.iter().cloned().chain(written[1..].iter().cloned()).collect());
        } else if matches!(written[0].as_str(), "crate" | "super") || files.contains_key(&below(module, &written[0])) {
            paths.extend(absolute(module, &written, files));
        }
    }
    paths
}

fn below(module: &str, name: &str) -> String {
    if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") }
}

/// The path from the crate's root; `None` for what lies in another crate.
fn absolute(module: &str, path: &[String], files: &BTreeMap<Module, Source>) -> Option<Vec<String>> {
    let mut at: Vec<String> = module.split("::").filter(|it| !it.is_empty()).map(str::to_owned).collect();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => {
            at.clear();
            rest = &path[1..];
        }
        "self" => rest = &path[1..],
        "super" => {
            while rest.first().is_some_and(|it| it == "super") {
                at.pop()?;
                rest = &rest[1..];
            }
        }
        first if files.contains_key(&below(module, first)) => {}
        _ => return None,
    }
    at.extend(rest.iter().cloned());
    Some(at)
}

/// The file that defines what `path` names.
fn resolve(
    path: &[String],
    files: &BTreeMap<Module, Source>,
    imports: &BTreeMap<Module, Vec<Import>>,
    depth: usize,
) -> Option<Module> {
    let mut module = String::new();
    for (at, name) in path.iter().enumerate() {
        let child = below(&module, name);
        if files.contains_key(&child) {
            module = child;
            continue;
        }
        let here = imports.get(&module)?;
        let passed_on = here.iter().find(|it| it.public && it.name == *name);
        if let Some(import) = passed_on.filter(|_| depth < 8) {
            let mut target = absolute(&module, &import.path, files)?;
            target.extend(path[at + 1..].iter().cloned());
            return resolve(&target, files, imports, depth + 1);
        }
        break;
    }
    Some(module)
}

/// Strongly connected sets of more than one node.
fn circles(edges: &BTreeMap<String, BTreeSet<String>>) -> Vec<BTreeSet<String>> {
    let reach: BTreeMap<&String, BTreeSet<&String>> = edges
        .keys()
        .map(|from| {
            let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
            while let Some(at) = next.pop() {
                for to in edges.get(at).into_iter().flatten() {
                    if seen.insert(to) {
                        next.push(to);
                    }
                }
            }
            (from, seen)
        })
        .collect();
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for (from, seen) in &reach {
        if !seen.contains(from) || found.iter().any(|circle| circle.contains(*from)) {
            continue;
        }
        let circle = seen.iter().filter(|to| reach.get(**to).is_some_and(|back| back.contains(from)));
        let circle: BTreeSet<String> = circle.map(|it| (*it).clone()).collect();
        if circle.len() > 1 {
            found.push(circle);
        }
    }
    found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    found
}
