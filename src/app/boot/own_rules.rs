//! Detection rules of the operator's own: the folder they lie in, read at start, by `weir check` and again on SIGHUP.
//!
//! Invariant: what is read is bounded, and a folder that cannot be used whole changes nothing.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_config::settings::Settings;
use weir_inference::{Analyser, Detector, OperatorRules, RuleBook};
use weir_models::SecondStage;

use super::StartError;

/// Most files that are read.
const FILES_MAX: usize = 64;
/// Most bytes in all of them together.
const BYTES_MAX: usize = 1 << 20;

/// The rules in use and where they come from.
pub(crate) struct OwnRules {
    folder: PathBuf,
    rules: Arc<OperatorRules>,
}

/// The detectors the settings ask for, and the operator's rules if there are any.
pub(crate) fn analyser(
    settings: &Settings,
    mut others: Vec<Arc<dyn Detector>>,
) -> Result<(Analyser, Option<OwnRules>), StartError> {
    others.extend(SecondStage::embedded().map_err(StartError::SecondStage)?.map(|second| second as _));
    let analyser = match super::fusion::open(settings)? {
        Some(fusion) => Analyser::fusing(others, fusion)?,
        None => Analyser::whole(others)?,
    };
    let Some(own) = OwnRules::open(settings)? else { return Ok((analyser, None)) };
    Ok((analyser.with_operator(Arc::clone(&own.rules))?, Some(own)))
}

/// The same as they are looked up; examples are not tried.
pub(crate) fn book(settings: &Settings) -> Result<Option<RuleBook>, StartError> {
    let Some(folder) = &settings.security_analysis.rules_dir else { return Ok(None) };
    let book = read(folder).and_then(|files| RuleBook::operator(&files).map_err(|error| about(folder, error)));
    book.map(Some).map_err(StartError::OwnRules)
}

impl OwnRules {
    /// Reads and tries the rules; `None` where the settings name no folder.
    pub(crate) fn open(settings: &Settings) -> Result<Option<Self>, StartError> {
        let Some(folder) = settings.security_analysis.rules_dir.clone() else { return Ok(None) };
        let rules = read(&folder).and_then(|files| OperatorRules::read(&files).map_err(|error| about(&folder, error)));
        Ok(Some(Self { rules: Arc::new(rules.map_err(StartError::OwnRules)?), folder }))
    }

    /// Reads the folder again, all or nothing.
    pub(crate) fn reload(&self) -> Result<String, String> {
        self.rules.replace(&read(&self.folder)?).map_err(|error| about(&self.folder, error))?;
        Ok(self.said())
    }

    /// How many there are.
    pub(crate) fn said(&self) -> String {
        let (rules, allow) = self.rules.count();
        format!("{}: {rules} rules, {allow} allow rules", self.folder.display())
    }
}

fn about(folder: &Path, error: impl std::fmt::Display) -> String {
    format!("security_analysis.rules_dir `{}`: {error}", folder.display())
}

/// Names and texts of the rule files in a folder, in the order of their names.
fn read(folder: &Path) -> Result<Vec<(String, String)>, String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .map_err(|error| about(folder, format!("cannot be listed: {error}; name a folder that can be read")))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.') && (name.ends_with(".yaml") || name.ends_with(".yml")))
        .take(FILES_MAX + 1)
        .collect();
    names.sort_unstable();
    match names.len() {
        0 => return Err(about(folder, "holds no file with a name in .yaml; put one there, or remove the setting")),
        1..=FILES_MAX => {}
        _ => return Err(about(folder, format!("holds more than {FILES_MAX} files; put the rules into fewer"))),
    }
    let mut left = BYTES_MAX;
    let mut file = |name: String| {
        let mut text = String::new();
        let opened =
            File::open(folder.join(&name)).and_then(|file| file.take(left as u64 + 1).read_to_string(&mut text));
        opened.map_err(|error| {
            about(folder, format!("`{name}` cannot be read: {error}; correct its permissions or its text"))
        })?;
        left = left.checked_sub(text.len()).ok_or_else(|| {
            about(
                folder,
                format!("its files have more than {BYTES_MAX} bytes together, from `{name}` on; use fewer rules"),
            )
        })?;
        Ok((name, text))
    };
    names.into_iter().map(&mut file).collect()
}
