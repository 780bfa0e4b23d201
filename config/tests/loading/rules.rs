//! The words every setting refuses a wrong value with, as one file: a change of any of them shows in a review.
//!
//! `UPDATE_RULES=1 cargo test -p weir-config --test loading rules` writes the file anew.

use std::path::Path;

use weir_config::catalogue::{self, Kind};

use super::Bench;

/// A value no setting of this kind accepts.
fn wrong(kind: &Kind) -> &'static str {
    match kind {
        Kind::Bool => "perhaps",
        Kind::Int { .. } => "-1",
        Kind::Float { .. } => "-0.5",
        Kind::Text => "[a list]",
        Kind::TextList | Kind::Choices(_) | Kind::Record(_) | Kind::Records(_) | Kind::RecordMap(..) => "a word",
        _ => "''",
    }
}

/// `a.b` and a value as a document on one line.
fn document(path: &str, value: &str) -> String {
    path.rsplit('.').fold(value.to_owned(), |inner, part| format!("{{{part}: {inner}}}"))
}

#[test]
fn every_setting_refuses_a_wrong_value_in_the_words_on_file() {
    let mut found = String::new();
    for setting in catalogue::settings().filter(|setting| setting.in_file()) {
        let errors = Bench::with_file(document(setting.path, wrong(&setting.kind))).errors();
        assert!(!errors.is_empty());
        for error in errors {
            assert!(error.contains(&format!("`{}", setting.path)), "{error} does not name {}", setting.path);
            found.push_str(&error);
            found.push('\n');
        }
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/loading/rules.snapshot");
    if std::env::var_os("UPDATE_RULES").is_some() {
        std::fs::write(&file, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap();
    for (line, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
        assert_eq!(found, expected, "rules.snapshot:{}", line + 1);
    }
    assert_eq!(found.lines().count(), expected.lines().count(), "rules.snapshot is shorter or longer");
}
