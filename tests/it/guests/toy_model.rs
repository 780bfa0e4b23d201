//! A toy model: reports every platypus, and any thread it should not run on.

use weir_config::vocab::{Finding, Severity};
use weir_inference::{CostClass, Detector, Found, Text, Tuning};

/// What stands in the line of registration.
#[derive(Debug)]
pub(super) struct ToyModel;

impl Detector for ToyModel {
    fn name(&self) -> &'static str {
        "classifier"
    }

    fn cost(&self) -> CostClass {
        CostClass::Model
    }

    fn batch(&self) -> usize {
        8
    }

    fn look(&self, text: &Text<'_>, _tuning: &Tuning, found: &mut Found<'_>) {
        let thread = std::thread::current();
        if !thread.name().is_some_and(|name| name.starts_with("weir-infer")) {
            found.report(0..1, Finding::new("ran_on_a_core", Severity::Critical, 1.0, "classifier", "on a core"));
        }
        if let Some(at) = text.raw().find("platypus") {
            let about = "The toy model does not like this animal";
            found.report(at..at + 8, Finding::new("jailbreak", Severity::High, 0.95, "classifier", about));
        }
        if text.raw().contains("think for long") {
            std::thread::sleep(std::time::Duration::from_secs(3));
        }
        if let Some((_, rest)) = text.raw().split_once("think until there is ") {
            let file = rest.split_whitespace().next().unwrap_or_default();
            std::fs::write(format!("{file}.begun"), "").expect("a folder of the test's");
            let end = std::time::Instant::now() + std::time::Duration::from_secs(120);
            while !std::path::Path::new(file).exists() && std::time::Instant::now() < end {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
    }
}
