//! The settings in effect as one nested document, for `/config/live`, and as a commented file, for `config print`.
//!
//! Invariant: the value of a secret never appears: `"***"` when it is set, as it is when it is null or empty.

use serde_json::{Map, Value};

use crate::catalogue::{self, Build};
use crate::load::{Loaded, Origin};

/// Where the origin stands in a line of [`described`].
const ORIGIN_COLUMN: usize = 64;

/// Every setting with the value in effect, nested by path. Variables without a path stand under `environment`.
pub fn effective(loaded: &Loaded) -> Value {
    let mut root = Map::new();
    for setting in catalogue::settings() {
        insert(&mut root, setting.path, loaded.in_effect(setting));
    }
    Value::Object(root)
}

/// The settings in effect as a YAML file with the origin of each value behind it. It can be read again, but for secrets.
/// What exists as a variable only stands in comments; what is not built is named at the end.
pub fn described(loaded: &Loaded) -> String {
    let mut text = String::new();
    let mut sections: Vec<&str> = Vec::new();
    let mut missing: Vec<&str> = Vec::new();
    // By path, so that a section is written once, its own values before its subsections.
    let mut rows: Vec<_> = catalogue::settings().filter(|setting| setting.in_file()).collect();
    rows.sort_by_key(|setting| {
        let parts: Vec<&str> = setting.path.split('.').collect();
        let last = parts.len() - 1;
        parts.into_iter().enumerate().map(|(depth, part)| (depth != last, part)).collect::<Vec<_>>()
    });
    for setting in rows {
        let origin = loaded.origins.get(setting.path).copied().unwrap_or(Origin::Default);
        if let Build::NotBuilt { feature, .. } = setting.build
            && origin == Origin::Default
        {
            missing.push(feature);
            continue;
        }
        let mut parts: Vec<&str> = setting.path.split('.').collect();
        let name = parts.pop().unwrap_or_default();
        let shared = parts.iter().zip(&sections).take_while(|(a, b)| a == b).count();
        for (depth, section) in parts.iter().enumerate().skip(shared) {
            text.push_str(&format!("{}{section}:\n", "  ".repeat(depth)));
        }
        sections = parts;
        // Read back, the line would count as written by somebody.
        let mark = if origin == Origin::Default && setting.is_heard_where_written() { "# " } else { "" };
        let line = format!("{}{mark}{name}: {}", "  ".repeat(sections.len()), loaded.in_effect(setting));
        let remark = match setting.build {
            Build::NotBuilt { feature, .. } => format!("; {feature} is not built into this version"),
            Build::Built { .. } => String::new(),
        };
        text.push_str(&format!("{line:<ORIGIN_COLUMN$} # {origin}{remark}\n"));
    }
    for setting in catalogue::settings().filter(|setting| !setting.in_file()) {
        let origin = loaded.origins.get(setting.path).copied().unwrap_or(Origin::Default);
        if let (Build::Built { .. }, Some((name, _))) = (setting.build, setting.env) {
            let value = loaded.shown.get(setting.path).unwrap_or(&Value::Null);
            let line = format!("# {name}={value}");
            text.push_str(&format!("{line:<ORIGIN_COLUMN$} # {origin}\n"));
        }
    }
    missing.sort_unstable();
    missing.dedup();
    if !missing.is_empty() {
        text.push_str(&format!("# not built into this version: {}\n", missing.join(", ")));
    }
    text
}

fn insert(object: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            object.insert(path.to_owned(), value);
        }
        Some((section, rest)) => {
            let inner = object.entry(section).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}
