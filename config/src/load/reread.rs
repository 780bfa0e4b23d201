//! The sources read once more while the process runs: what of them is put in force, what takes effect at the next start, and what
//! stays without effect because a higher layer says otherwise.
//!
//! Invariant: every setting that is written otherwise than before is in exactly one of the three lists.

use std::collections::BTreeMap;

use serde_json::Value;

use super::masked::MASK;
use super::{Loaded, Origin, load};
use crate::catalogue::{self, Build, OnReload, Setting};
use crate::error::LoadError;

/// Most characters of a value that are told.
const VALUE_CHARS: usize = 160;

/// A setting that is written otherwise than before. Values of secrets are not told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its path.
    pub path: &'static str,
    /// The former value and the layer it is from.
    pub from: String,
    /// The value that is written now, and in which layer.
    pub to: String,
}

/// What a reload does with all that was changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// In force from now on.
    pub in_force: Vec<Change>,
    /// In force from the next start on.
    pub next_start: Vec<Change>,
    /// Changed in the configuration file, where the layer that is named wins over it.
    pub overruled: Vec<(Change, Origin)>,
}

impl Loaded {
    /// These settings with what a reload takes as it is written now, and what became of every change.
    ///
    /// # Errors
    /// Every violation, also in what would not be taken: of a file that would not start nothing is obeyed.
    pub fn reread(&self) -> Result<(Self, Changes), LoadError> {
        let read = load(&self.sources)?;
        let mut next = self.clone();
        next.settings.upstreams = read.settings.upstreams.clone();
        next.settings.upstream_api_key = read.settings.upstream_api_key.clone();
        // What a flag falls back to is what the file says now.
        next.beneath.clone_from(&read.beneath);
        let mut changes = Changes::default();
        for setting in catalogue::settings() {
            let differs = self.differs(&read, setting);
            let is_taken = setting.on_reload() == OnReload::InForce
                && match setting.wire {
                    Some(flag) if differs => next.take_flag(setting, flag, &read),
                    Some(_) => false,
                    None => {
                        next.take_row(setting, &read);
                        true
                    }
                };
            if differs {
                let change = Change { path: setting.path, from: self.told(setting), to: read.told(setting) };
                if is_taken { changes.in_force.push(change) } else { changes.next_start.push(change) }
            } else if let Some(overruled) = self.overruled(&read, setting) {
                changes.overruled.push(overruled);
            }
        }
        Ok((next, changes))
    }

    /// Whether the value in effect would be another one.
    fn differs(&self, read: &Self, setting: &Setting) -> bool {
        let (now, next) = (self.shown.get(setting.path), read.shown.get(setting.path));
        let hides = now.is_some_and(|shown| shown.to_string().contains(MASK));
        // Of some settings it matters whether anybody wrote them.
        let is_written = |of: &Self| of.origin(setting) != Origin::Default;
        let heard = setting.is_heard_where_written() && is_written(self) != is_written(read);
        now != next || heard || hides && self.prints.get(setting.path) != read.prints.get(setting.path)
    }

    /// A value that was changed in the file to no effect, and the layer that wins over the file.
    fn overruled(&self, read: &Self, setting: &Setting) -> Option<(Change, Origin)> {
        let (was, is) = (self.in_file.get(setting.path), read.in_file.get(setting.path));
        let wins = read.origin(setting);
        let told = |held: Option<&InFile>| {
            let default = setting.default.to_value();
            told(held.map_or(&default, |held| &held.shown), held.map_or(Origin::Default, |_| Origin::File))
        };
        (was.map(|held| held.print) != is.map(|held| held.print) && wins > Origin::File)
            .then(|| (Change { path: setting.path, from: told(was), to: told(is) }, wins))
    }

    /// Takes what is said of a setting over; its value in `settings` has been.
    fn take_row(&mut self, setting: &Setting, read: &Self) {
        fn copy<T: Clone>(to: &mut BTreeMap<&'static str, T>, from: &BTreeMap<&'static str, T>, path: &str) {
            match from.get_key_value(path) {
                Some((path, value)) => drop(to.insert(path, value.clone())),
                None => drop(to.remove(path)),
            }
        }
        copy(&mut self.origins, &read.origins, setting.path);
        copy(&mut self.shown, &read.shown, setting.path);
        copy(&mut self.prints, &read.prints, setting.path);
    }

    /// Puts a flag in force; false where it has to wait for the next start.
    fn take_flag(&mut self, setting: &Setting, flag: &'static str, read: &Self) -> bool {
        // It was changed while the gateway ran and could not be written down, or its line was removed: the caller was told
        // that it holds until the next start.
        if self.overlay.contains_key(flag) && !read.overlay.contains_key(flag) {
            return false;
        }
        let Build::Built { set, .. } = setting.build else { return false };
        let mut next = self.clone();
        let is_set = set(&mut next.settings, &read.in_effect(setting)).is_ok();
        // What it needs may have been written together with it, and wait for the next start.
        if !is_set || !next.contradictions(|name| name == flag).is_empty() {
            return false;
        }
        next.take_row(setting, read);
        match read.overlay.get(flag) {
            Some(value) => drop(next.overlay.insert(flag, value.clone())),
            None => drop(next.overlay.remove(flag)),
        }
        *self = next;
        true
    }

    fn origin(&self, setting: &Setting) -> Origin {
        self.origins.get(setting.path).copied().unwrap_or(Origin::Default)
    }

    fn told(&self, setting: &Setting) -> String {
        told(&self.in_effect(setting), self.origin(setting))
    }
}

/// What the configuration file says of a setting, whether or not another layer wins over it.
#[derive(Debug, Clone)]
pub(crate) struct InFile {
    /// The value, secrets masked.
    pub(super) shown: Value,
    /// A number that is another one when the value is.
    pub(super) print: u64,
}

/// A value as a line of the log has it.
fn told(value: &Value, origin: Origin) -> String {
    let text = match value {
        Value::String(text) if text == MASK => "(a secret)".to_owned(),
        Value::String(text) if !text.is_empty() => text.clone(),
        other => other.to_string(),
    };
    let mut shown: String = text.chars().take(VALUE_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(VALUE_CHARS).is_some() {
        shown.push('…');
    }
    format!("{shown} ({origin})")
}
