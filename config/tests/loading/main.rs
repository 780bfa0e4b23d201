//! Loading as the gateway sees it: files, overlay, environment and command line in, settings or violations out.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails by panicking")]

mod bounds;
mod errors;
mod every_setting;
mod example;
mod overlay;
mod rules;
mod schema;

use std::collections::BTreeMap;
use std::path::PathBuf;

use weir_config::{LoadError, Loaded, Sources, load};

/// Settings of which it matters that somebody wrote them, also at the default: the operating point no longer moves them.
const HEARD_WHERE_WRITTEN: [&str; 6] = [
    "security_analysis.ml_threshold",
    "security_analysis.jailbreak_threshold",
    "security_analysis.guard_a_threshold",
    "security_analysis.guard_b_threshold",
    "output_safety.toxicity_threshold",
    "output_safety.hallucination_threshold",
];

/// Sources whose files lie in a directory of their own.
struct Bench {
    dir: tempfile::TempDir,
    sources: Sources,
}

impl Bench {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), sources: Sources::default() }
    }

    /// With a configuration file of this text.
    fn with_file(text: impl AsRef<[u8]>) -> Self {
        Self::new().file(text)
    }

    fn file(mut self, text: impl AsRef<[u8]>) -> Self {
        self.sources.config = Some(self.write("service.yaml", text));
        self
    }

    fn overlay(mut self, text: impl AsRef<[u8]>) -> Self {
        self.sources.runtime_config = Some(self.write("overlay.yaml", text));
        self
    }

    fn env(mut self, variables: &[(&str, &str)]) -> Self {
        self.sources.env = variables.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        self
    }

    fn cli(mut self, level: Option<&str>, format: Option<&str>) -> Self {
        self.sources.log_level = level.map(str::to_owned);
        self.sources.log_format = format.map(str::to_owned);
        self
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn load(&self) -> Result<Loaded, LoadError> {
        load(&self.sources)
    }

    /// Loads what has to load.
    fn loaded(&self) -> Loaded {
        self.load().unwrap_or_else(|error| panic!("{error}"))
    }

    /// The lines of the error, with the directory cut off.
    fn errors(&self) -> Vec<String> {
        let error = self.load().expect_err("the configuration should be refused");
        self.cut(&error.to_string()).lines().map(str::to_owned).collect()
    }

    /// The warnings, with the directory cut off.
    fn warnings(&self) -> Vec<String> {
        self.loaded().warnings.iter().map(|warning| self.cut(warning)).collect()
    }

    fn cut(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.dir.path().display()), "")
    }
}

/// The environment with one variable.
fn only(name: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(name.to_owned(), value.to_owned())])
}
