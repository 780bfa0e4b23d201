//! The hot-swappable flags: what they are now, a change of them, and the overlay that keeps the change over a restart.
//!
//! Invariant: a change is all or nothing, passes the same checks as a value in a file, and never moves a flag that a
//! higher layer (the environment) pins. The overlay is replaced as a whole or stays as it was. Knows no HTTP.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use serde_json::{Map, Value};

use crate::catalogue::{self, Build, Setting};
use crate::load::{Loaded, Origin, check_flag, missing_key, nearest_flag};

/// Regex detection has no switch (spec, "Runtime hot-swap").
const IMMUTABLE: &str = "analyzer_regex_enabled";

/// Why a flag cannot be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// There is no such flag.
    Unknown,
    /// The value does not fit, or switches on what is not built.
    Unfit,
    /// What it would switch is always on.
    Immutable,
    /// The environment says otherwise, and wins over flags.
    Pinned,
}

/// One refused flag; shown as one sentence that names flag, value, what is accepted and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlagError {
    /// The flag as it was written.
    pub flag: String,
    /// The kind of refusal.
    pub refused: Refused,
    /// What is wrong.
    pub problem: String,
    /// What would be right, or what to do.
    pub advice: String,
}

impl fmt::Display for FlagError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`: {}; {}", self.flag.escape_debug(), self.problem, self.advice)
    }
}

/// Every setting that has a wire flag, by the flag's name.
fn flags() -> impl Iterator<Item = (&'static str, &'static Setting)> {
    catalogue::settings().filter_map(|setting| setting.wire.map(|flag| (flag, setting)))
}

impl Loaded {
    /// The flags by wire name with the values in effect. A flag whose feature is not built shows what this version
    /// does: off.
    pub fn flags(&self) -> Map<String, Value> {
        flags().map(|(flag, setting)| (flag.to_owned(), self.in_effect(setting))).collect()
    }

    /// These settings with some flags changed.
    ///
    /// # Errors
    /// Every flag that cannot be changed so; then nothing is.
    pub fn with_flags(&self, changes: &Map<String, Value>) -> Result<Self, Vec<FlagError>> {
        let mut next = self.clone();
        let mut mismatches = Vec::new();
        for (flag, value) in changes {
            if let Err(mut found) = next.put_flag(flag, value) {
                mismatches.append(&mut found);
            }
        }
        let switched_on = |flag: &str| changes.get(flag) == Some(&Value::Bool(true));
        mismatches.append(&mut next.contradictions(switched_on));
        if mismatches.is_empty() { Ok(next) } else { Err(mismatches) }
    }

    /// Flags that are on and lack what they need. What was on before it was changed is not asked again where asking depends on the
    /// environment: `switched_on` says which flags were just changed.
    pub(crate) fn contradictions(&self, switched_on: impl Fn(&str) -> bool) -> Vec<FlagError> {
        let mut found = Vec::new();
        if self.settings.boundary_defense.enabled && self.settings.boundary_defense.wrap_roles.is_empty() {
            found.push(FlagError {
                flag: "boundary_defense_enabled".to_owned(),
                refused: Refused::Unfit,
                problem: "`boundary_defense.wrap_roles` is empty, so there is nothing to wrap".to_owned(),
                advice: "name a role in the configuration file, such as tool, and restart".to_owned(),
            });
        }
        if self.settings.judge.enabled
            && switched_on("llm_judge_enabled")
            && let Some((variable, tier)) = missing_key(&self.settings)
        {
            found.push(FlagError {
                flag: "llm_judge_enabled".to_owned(),
                refused: Refused::Unfit,
                problem: format!("{variable} is not set, and the backend {} needs its key", tier.as_str()),
                advice: format!("set {variable} in the gateway's environment and restart, or choose another backend"),
            });
        }
        found
    }

    /// The flags that the overlay has otherwise now than these settings, because another process has changed it; with the values
    /// that bring them about.
    ///
    /// # Errors
    /// What a start would ignore of it: a text that is damaged takes no flag back.
    pub fn overlay_changes(&self) -> Result<Map<String, Value>, String> {
        let now = self.overlay_now()?;
        let named: BTreeSet<_> = self.overlay.keys().chain(now.keys()).copied().collect();
        let changed = named.into_iter().filter(|flag| self.overlay.get(flag) != now.get(flag));
        let value = |flag| now.get(flag).or_else(|| Some(&self.beneath.get(flag)?.0)).cloned();
        Ok(changed.filter_map(|flag| Some((flag.to_owned(), value(flag)?))).collect())
    }

    fn put_flag(&mut self, flag: &str, value: &Value) -> Result<(), Vec<FlagError>> {
        let mismatch = |refused, problem: String, advice: String| {
            vec![FlagError { flag: flag.to_owned(), refused, problem, advice }]
        };
        if flag == IMMUTABLE {
            let problem = "regex detection is always on and has no switch".to_owned();
            return Err(mismatch(Refused::Immutable, problem, "leave the flag out".to_owned()));
        }
        let Some((name, setting)) = flags().find(|(name, _)| *name == flag) else {
            let advice = match nearest_flag(flag) {
                Some(near) => format!("did you mean `{near}`?"),
                None => {
                    let names: Vec<&str> = flags().map(|(name, _)| name).collect();
                    format!("accepted: {}", names.join(", "))
                }
            };
            return Err(mismatch(Refused::Unknown, "unknown flag".to_owned(), advice));
        };
        let value =
            check_flag(setting, value).map_err(|(problem, advice)| mismatch(Refused::Unfit, problem, advice))?;
        if self.origins.get(setting.path) > Some(&Origin::Overlay) {
            let is = self.shown.get(setting.path);
            if is == Some(&value) {
                return Ok(());
            }
            let variable = setting.env.map_or("the environment", |(name, _)| name);
            let problem = format!("{variable} is set and wins over flags");
            return Err(mismatch(
                Refused::Pinned,
                problem,
                format!("unset {variable} and restart, or change it there"),
            ));
        }
        if let Build::Built { set, .. } = setting.build {
            let unfit = |error: catalogue::Unfit| mismatch(Refused::Unfit, error.to_string(), "correct it".to_owned());
            set(&mut self.settings, &value).map_err(unfit)?;
        }
        self.shown.insert(setting.path, value.clone());
        match self.beneath.get(name) {
            // What the file says needs no entry, and an entry would beat the file when that is edited.
            Some((beneath, origin)) if *beneath == value => {
                self.origins.insert(setting.path, *origin);
                self.overlay.remove(name);
            }
            _ => {
                self.origins.insert(setting.path, Origin::Overlay);
                self.overlay.insert(name, value);
            }
        }
        Ok(())
    }

    /// The text of the overlay that brings these flags back after a restart.
    pub fn overlay_text(&self) -> String {
        let mut text = String::from(
            "# Flags changed at run time; they win over the configuration file. Written by the gateway.\n",
        );
        for (flag, value) in &self.overlay {
            // Flags are booleans and bare words: both are YAML as JSON writes them.
            text.push_str(&format!("{flag}: {value}\n"));
        }
        text
    }
}

/// Replaces the overlay: a temporary file beside it, fsync, rename, fsync of the folder. A crash at any point leaves
/// the former or the new text, never a part.
///
/// # Errors
/// Whatever the file system said; the former overlay is then still in place.
pub fn write_overlay(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no file name"))?;
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = folder.join(temporary);
    // What lies there is left over from a crash, or put there by somebody else: a link would be written through.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let write = || {
        let mut file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().inspect_err(|_| {
        // The failed write is what matters; a left-over file is removed by the next attempt.
        drop(fs::remove_file(&temporary));
    })?;
    File::open(folder)?.sync_all()
}
