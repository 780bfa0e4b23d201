//! The runtime overlay: a flat map of wire flags, written by the gateway itself when an operator changes a flag.
//!
//! Invariant: nothing in this file stops a start. What cannot be used is a warning, what can be is applied.

use std::path::Path;

use serde_json::Value;

use super::check::check;
use super::file;
use super::layers::{Layers, Origin};
use super::suggest::nearest;
use crate::catalogue::{self, Setting};
use crate::error::{Place, Violation};
use crate::yaml::{self, Node};

/// Reads the overlay's text into `layers`.
pub(super) fn read(path: &Path, text: &str, layers: &mut Layers) {
    let shown = path.display();
    let root = match yaml::parse(text) {
        Ok(root) => root,
        Err(unreadable) => {
            let reason = unreadable.reason;
            layers.warnings.push(format!("{shown}: the runtime overlay cannot be read as YAML: {reason}; ignored"));
            return;
        }
    };
    let Some(entries) = root.entries() else {
        layers.warnings.push(format!("{shown}: the runtime overlay is not a map of flags; ignored"));
        return;
    };
    for (index, (flag, node)) in entries.iter().enumerate() {
        let Some(setting) = catalogue::by_wire(flag) else {
            let position = yaml::locate(text, &[index], true);
            let place = Place::File { path: path.to_owned(), position };
            let problem = "unknown flag".to_owned();
            let unknown =
                Violation { place, path: Some(flag.clone()), problem, accepted: None, advice: "ignored".to_owned() };
            layers.warnings.push(unknown.to_string());
            continue;
        };
        match check(setting, node) {
            Ok(value) => {
                if let Some(flag) = setting.wire {
                    layers.overlay.insert(flag, value.clone());
                }
                let place = Place::File { path: path.to_owned(), position: None };
                layers.put(setting, value, Origin::Overlay, place, None);
            }
            Err(mut mismatches) => {
                for mismatch in &mut mismatches {
                    mismatch.advice = Some("ignored".to_owned());
                }
                let warnings = file::violations(path, text, &[index], flag, mismatches);
                layers.warnings.extend(warnings.iter().map(Violation::to_string));
            }
        }
    }
}

/// Checks a flag's value that came as JSON; the error is what is wrong and what is accepted.
pub(crate) fn check_flag(setting: &'static Setting, value: &Value) -> Result<Value, (String, String)> {
    check(setting, &Node::from(value)).map_err(|mismatches| {
        let first = mismatches.into_iter().next();
        let (problem, accepted) = first.map_or_else(Default::default, |mismatch| (mismatch.problem, mismatch.accepted));
        let advice =
            accepted.map_or_else(|| "leave it as it is".to_owned(), |accepted| format!("accepted: {accepted}"));
        (problem, advice)
    })
}

/// The flag a mistyped one was probably meant to be.
pub(crate) fn nearest_flag(flag: &str) -> Option<&'static str> {
    nearest(flag, catalogue::settings().filter_map(|setting| setting.wire))
}
