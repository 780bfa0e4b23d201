//! Reads the files of a golden set.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Longest file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Most files.
const FILES_MAX: usize = 10_000;

/// A text, and what is known of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fixture {
    /// Its name, and that of its file.
    pub(super) id: String,
    /// What kind of text it is, and the name of its folder.
    pub(super) category: String,
    /// Whether it is an attack.
    pub(super) is_threat: bool,
    /// What is looked at.
    pub(super) text: String,
    /// Why it is in the set; for people.
    #[serde(rename = "rationale")]
    _rationale: String,
}

/// Why a golden set is not replayed. The texts name the file and what to do.
#[derive(Debug, thiserror::Error)]
pub enum BadFixture {
    /// A file or folder cannot be read.
    #[error("`{}` cannot be read: {source}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It does not stand at `<category>/<id>.json`.
    #[error("`{}` is no fixture: {what}", .path.display())]
    Misplaced {
        /// Which.
        path: PathBuf,
        /// What is wrong with it, and what it should be.
        what: String,
    },
    /// There is none.
    #[error("there is no `<category>/<id>.json` below `{}`; point SERVICE_GOLDEN_SET_PATH at a golden set", .0.display())]
    Empty(PathBuf),
}

/// All fixtures below `root`, by category, then id.
pub(super) fn load(root: &Path) -> Result<Vec<Fixture>, BadFixture> {
    let mut fixtures = Vec::new();
    let mut seen: HashMap<String, PathBuf> = HashMap::new();
    for folder in entries(root)?.into_iter().filter(|path| path.is_dir()) {
        for path in entries(&folder)? {
            if path.extension().is_none_or(|extension| extension != "json") {
                return Err(misplaced(&path, "only `<id>.json` may stand in the folder of a category".to_owned()));
            }
            let fixture = read(&path)?;
            if let Some(other) = seen.insert(fixture.id.clone(), path.clone()) {
                let what = format!("`{}` has the id \"{}\", too; ids are unique", other.display(), fixture.id);
                return Err(misplaced(&path, what));
            }
            fixtures.push(fixture);
            if fixtures.len() > FILES_MAX {
                return Err(misplaced(root, format!("more than {FILES_MAX} files")));
            }
        }
    }
    if fixtures.is_empty() { Err(BadFixture::Empty(root.to_owned())) } else { Ok(fixtures) }
}

/// What a folder holds, in order of name. What begins with a dot is left out.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, BadFixture> {
    let fail = |source| BadFixture::Unreadable { path: folder.to_owned(), source };
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        if !entry.file_name().as_encoded_bytes().starts_with(b".") {
            paths.push(entry.path());
        }
    }
    paths.sort_unstable();
    Ok(paths)
}

fn read(path: &Path) -> Result<Fixture, BadFixture> {
    let fail = |source| BadFixture::Unreadable { path: path.to_owned(), source };
    let mut text = String::new();
    File::open(path).map_err(fail)?.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(fail)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(misplaced(path, format!("it has more than {FILE_BYTES_MAX} bytes")));
    }
    let fixture: Fixture = serde_json::from_str(&text).map_err(|error| {
        misplaced(path, format!("{error}; it needs `id`, `category`, `is_threat`, `text` and `rationale`"))
    })?;
    for (field, value, place, named) in [
        ("id", &fixture.id, "file", path.file_stem()),
        ("category", &fixture.category, "folder", path.parent().and_then(Path::file_name)),
    ] {
        let named = named.unwrap_or_default().to_string_lossy();
        if *value != named {
            let what = format!("its `{field}` is \"{value}\" and its {place} is named \"{named}\"; make them the same");
            return Err(misplaced(path, what));
        }
    }
    Ok(fixture)
}

fn misplaced(path: &Path, what: String) -> BadFixture {
    BadFixture::Misplaced { path: path.to_owned(), what }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A golden set of these files; what the loader says of it.
    fn loaded(files: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let outside = format!("{}/", root.path().display());
        let ids = |fixtures: Vec<Fixture>| fixtures.into_iter().map(|fixture| fixture.id).collect();
        load(root.path()).map(ids).map_err(|error| error.to_string().replace(&outside, ""))
    }

    fn fixture(id: &str, category: &str) -> String {
        serde_json::json!({"id": id, "category": category, "is_threat": true, "text": "x", "rationale": "y"})
            .to_string()
    }

    #[test]
    fn a_set_is_read_in_order() {
        let files =
            [("b/2.json", &*fixture("2", "b")), ("a/3.json", &fixture("3", "a")), ("b/1.json", &fixture("1", "b"))];
        assert_eq!(loaded(&files).unwrap(), ["3", "1", "2"]);
        // What explains the set, and what a system leaves in folders, is no part of it.
        let beside = [("README.md", "words"), ("a/.DS_Store", ""), ("a/3.json", &*fixture("3", "a"))];
        assert_eq!(loaded(&beside).unwrap(), ["3"]);
    }

    #[test]
    fn what_is_not_where_it_says_is_refused_by_name() {
        let other_id = "`a/1.json` is no fixture: its `id` is \"2\" and its file is named \"1\"; make them the same";
        let other_folder =
            "`a/1.json` is no fixture: its `category` is \"b\" and its folder is named \"a\"; make them the same";
        for (path, text, expected) in [
            ("a/1.json", fixture("2", "a"), other_id),
            ("a/1.json", fixture("1", "b"), other_folder),
            (
                "a/1.txt",
                fixture("1", "a"),
                "`a/1.txt` is no fixture: only `<id>.json` may stand in the folder of a category",
            ),
        ] {
            assert_eq!(loaded(&[(path, &text)]).unwrap_err(), expected);
        }
        let twice = loaded(&[("a/1.json", &*fixture("1", "a")), ("b/1.json", &fixture("1", "b"))]).unwrap_err();
        assert_eq!(twice, "`b/1.json` is no fixture: `a/1.json` has the id \"1\", too; ids are unique");
        for (text, expected) in [
            ("", "EOF while parsing"),
            ("{\"id\": \"1\"}", "missing field `category`"),
            (&*fixture("1", "a").replace("rationale", "reason"), "unknown field `reason`"),
            (&fixture("1", "a").replace("true", "\"yes\""), "invalid type: string \"yes\""),
        ] {
            let said = loaded(&[("a/1.json", text)]).unwrap_err();
            assert!(said.starts_with("`a/1.json` is no fixture: ") && said.contains(expected), "{said}");
        }
        assert!(loaded(&[]).unwrap_err().starts_with("there is no `<category>/<id>.json`"));
        assert!(
            load(Path::new("/nowhere/at/all")).unwrap_err().to_string().starts_with("`/nowhere/at/all` cannot be read")
        );
    }
}
