//! libFuzzer's entry. `WEIR_FUZZ_TARGET` names the target; `tests/fuzz/run` sets it.
#![no_main]

#[path = "../../it/smuggle/answer.rs"]
#[allow(dead_code, clippy::unwrap_used)]
mod answer;
#[path = "../../it/smuggle/readings.rs"]
#[allow(dead_code)]
mod readings;
mod targets;

use std::sync::OnceLock;

fn target() -> targets::Target {
    static TARGET: OnceLock<targets::Target> = OnceLock::new();
    *TARGET.get_or_init(|| {
        let name = std::env::var("WEIR_FUZZ_TARGET").unwrap_or_default();
        let names: Vec<&str> = targets::TARGETS.iter().map(|(name, _)| *name).collect();
        targets::by_name(&name).unwrap_or_else(|| panic!("WEIR_FUZZ_TARGET={name}: one of {}", names.join(", ")))
    })
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| target()(data));
