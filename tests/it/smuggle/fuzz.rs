//! The fuzz targets as ordinary tests: every committed input of `tests/fuzz/corpus` through its target, in one piece and
//! cut short anywhere. `tests/fuzz/run` searches for more.

#[path = "../../fuzz/src/targets.rs"]
pub(super) mod targets;

use std::path::Path;

pub(super) use super::{answer, readings};

/// Inputs are replayed at up to so many lengths each.
const CUTS_MAX: usize = 64;

#[test]
fn every_input_of_the_corpora_keeps_the_promises_of_its_target() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus");
    for (name, target) in targets::TARGETS {
        if *name == "canary" {
            continue;
        }
        let files = std::fs::read_dir(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut count = 0;
        for file in files {
            let path = file.unwrap().path();
            let input = std::fs::read(&path).unwrap();
            let step = input.len() / CUTS_MAX + 1;
            for end in (0..input.len()).step_by(step).chain([input.len()]) {
                let kept = std::panic::catch_unwind(|| target(&input[..end]));
                assert!(kept.is_ok(), "{} cut at {end} breaks a promise", path.display());
            }
            count += 1;
        }
        assert!(count >= 8, "the corpus of {name} has {count} inputs");
    }
}

#[test]
fn the_canary_is_there_to_be_found() {
    let canary = targets::by_name("canary").unwrap();
    canary(b"weir!\x17\x5b.");
    assert!(std::panic::catch_unwind(|| canary(b"weir!\x17\x5a.")).is_err());
}
