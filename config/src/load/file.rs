//! The configuration file against the table: known keys become values, everything else a violation.

use std::collections::HashSet;
use std::path::Path;

use super::check::{Mismatch, check};
use super::layers::{Layers, Origin, advise, mend};
use super::suggest::nearest;
use crate::catalogue;
use crate::error::{Place, SHOWN, Violation};
use crate::yaml::{self, Node};

/// Reads the whole file into `layers`.
pub(super) fn read(path: &Path, text: &str, layers: &mut Layers) {
    let root = match yaml::parse(text) {
        Ok(root) => root,
        Err(unreadable) => {
            let problem = format!("the file cannot be read as YAML: {}", unreadable.reason);
            let place = Place::File { path: path.to_owned(), position: unreadable.position };
            let advice = "correct the file".to_owned();
            return layers.violations.push(Violation { place, path: None, problem, accepted: None, advice });
        }
    };
    let Some(entries) = root.entries() else {
        let place = Place::File { path: path.to_owned(), position: None };
        let problem = format!("got {root} instead of settings");
        let accepted = Some("a YAML map such as `listen_addr: 0.0.0.0:8080`".to_owned());
        let advice = "correct the file".to_owned();
        return layers.violations.push(Violation { place, path: None, problem, accepted, advice });
    };
    Walk { path, text, layers, steps: Vec::new() }.section("", entries);
}

/// A file value against which mismatches were found, turned into violations with positions.
pub(super) fn violations(
    path: &Path,
    text: &str,
    at: &[usize],
    setting_path: &str,
    mismatches: Vec<Mismatch>,
) -> Vec<Violation> {
    let lift = |mismatch: Mismatch| {
        let steps = [at, &mismatch.steps].concat();
        let position = yaml::locate(text, &steps, mismatch.key);
        Violation {
            place: Place::File { path: path.to_owned(), position },
            path: Some(format!("{setting_path}{}", mismatch.below)),
            problem: mismatch.problem,
            accepted: mismatch.accepted,
            advice: mismatch.advice.unwrap_or_else(|| "remove the setting".to_owned()),
        }
    };
    mismatches.into_iter().map(lift).collect()
}

struct Walk<'a> {
    path: &'a Path,
    text: &'a str,
    layers: &'a mut Layers,
    steps: Vec<usize>,
}

impl Walk<'_> {
    fn section(&mut self, section: &str, entries: &[(String, Node)]) {
        let mut seen = HashSet::new();
        for (index, (key, node)) in entries.iter().enumerate() {
            self.steps.push(index);
            let path = if section.is_empty() { key.clone() } else { format!("{section}.{key}") };
            if !seen.insert(key) {
                self.push(&path, true, "is written twice".to_owned(), None, "keep one of them".to_owned());
            } else {
                self.entry(section, &path, key, node);
            }
            self.steps.pop();
        }
    }

    fn entry(&mut self, section: &str, path: &str, key: &str, node: &Node) {
        let known = catalogue::by_path(path).filter(|setting| setting.in_file() && !key.contains('.'));
        if let Some(setting) = known {
            match check(setting, node) {
                Ok(value) => {
                    let place = Place::File { path: self.path.to_owned(), position: None };
                    self.layers.put(setting, value, Origin::File, place, Some(self.steps.clone()));
                }
                Err(mismatches) => {
                    let advice = mend(setting, "remove it");
                    let mismatches = advise(setting, mismatches, &advice);
                    let located = violations(self.path, self.located_text(), &self.steps, path, mismatches);
                    self.layers.violations.extend(located);
                }
            }
        } else if catalogue::is_section(path) && !key.contains('.') {
            match node {
                Node::Map(entries) => self.section(path, entries),
                // A heading whose lines are all commented out.
                Node::Null => {}
                other => {
                    let names: Vec<&str> = distinct(catalogue::names_in(path)).collect();
                    let accepted = Some(format!("a section with {}", names.join(", ")));
                    self.push(path, false, format!("got {other}"), accepted, "indent its settings below it".to_owned());
                }
            }
        } else {
            let shown = self.layers.violations.len() < SHOWN;
            let advice = if shown { advice_for_unknown(section, key) } else { "remove it".to_owned() };
            self.push(path, true, "unknown setting".to_owned(), None, advice);
        }
    }

    fn push(&mut self, path: &str, key: bool, problem: String, accepted: Option<String>, advice: String) {
        let position = yaml::locate(self.located_text(), &self.steps, key);
        let place = Place::File { path: self.path.to_owned(), position };
        let path = Some(path.to_owned());
        self.layers.violations.push(Violation { place, path, problem, accepted, advice });
    }

    /// The text to look positions up in: none once there are more violations than are printed, since every look-up
    /// reads the document again.
    fn located_text(&self) -> &str {
        if self.layers.violations.len() < SHOWN { self.text } else { "" }
    }
}

/// What to do about a key that is in no table row.
fn advice_for_unknown(section: &str, key: &str) -> String {
    if key == "<<" {
        return "merge keys are not supported, write the settings out".to_owned();
    }
    if key.contains('.') && catalogue::by_path(key).is_some() {
        return "write it nested: each part on a line of its own, indented below the one before".to_owned();
    }
    if let Some(setting) = catalogue::by_wire(key) {
        return format!("in the file this flag is `{}`", setting.path);
    }
    let last = |path: &'static str| path.rsplit('.').next().unwrap_or(path);
    let mut elsewhere = catalogue::settings().filter(|setting| setting.in_file() && last(setting.path) == key);
    if let (Some(only), None) = (elsewhere.next(), elsewhere.next()) {
        return format!("did you mean `{}`?", only.path);
    }
    let beginning = || distinct(catalogue::names_in(section)).filter(|name| begins(name, key));
    let meant = match (beginning().next(), beginning().nth(1)) {
        // Half a name, such as `database` for `database_path`.
        (Some(only), None) => Some(only),
        _ => nearest(key, catalogue::names_in(section)),
    };
    match meant {
        Some(name) if section.is_empty() => format!("did you mean `{name}`?"),
        Some(name) => format!("did you mean `{section}.{name}`?"),
        None => "remove it".to_owned(),
    }
}

/// Whether `key` is the beginning of `name`, up to one of its underscores.
fn begins(name: &str, key: &str) -> bool {
    !key.is_empty() && name.strip_prefix(key).is_some_and(|rest| rest.starts_with('_'))
}

/// Without neighbours that repeat.
fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> impl Iterator<Item = &'a str> {
    let mut last = "";
    names.filter(move |name| std::mem::replace(&mut last, name) != *name)
}
