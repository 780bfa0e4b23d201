//! Toy detectors that fail when a text asks for it: one that runs on cores, and a model.

use std::path::Path;
use std::time::{Duration, Instant};

use weir_config::vocab::{Finding, Severity};
use weir_inference::{CostClass, Detector, Found, Text, Tuning};

/// What stands in the line of registration: a detector of this class.
#[derive(Debug)]
pub(super) struct ToyFaults(pub(super) CostClass);

/// How long a text may keep a detector waiting.
const PATIENCE: Duration = Duration::from_secs(60);

impl Detector for ToyFaults {
    fn name(&self) -> &'static str {
        if self.0 == CostClass::Model { "classifier" } else { "toy" }
    }

    fn cost(&self) -> CostClass {
        self.0
    }

    fn look(&self, text: &Text<'_>, _tuning: &Tuning, found: &mut Found<'_>) {
        let named = if self.0 == CostClass::Model { "model" } else { "rule" };
        assert!(!text.raw().contains(&format!("the {named} panics")), "as the text asks");
        // "the model counts to 9." reports so many things.
        let asked = text.raw().split_once(&format!("the {named} counts to "));
        let number = asked.and_then(|(_, rest)| rest.split_once('.')?.0.parse().ok()).unwrap_or(0_usize);
        for at in 0..number {
            let about = "The toy model has found another one";
            found.report(at % 4..at % 4 + 1, Finding::new("jailbreak", Severity::Info, 0.5, self.name(), about));
        }
        // "the model waits for /a/file." goes on when the file is there; that it waits says a file beside it.
        let asked = text.raw().split_once(&format!("the {named} waits for "));
        let Some((path, _)) = asked.and_then(|(_, rest)| rest.split_once(' ')) else { return };
        drop(std::fs::write(format!("{path}.begun"), ""));
        let begun = Instant::now();
        while !Path::new(path).exists() && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
        if text.raw().contains("it is guilty") {
            let about = "The toy model has thought about it";
            found.report(0..1, Finding::new("jailbreak", Severity::High, 0.95, self.name(), about));
        }
    }
}
