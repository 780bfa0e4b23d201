//! The fuzz targets as ordinary tests: every committed input of `tests/fuzz/corpus` through its target, in one piece and
//! cut short anywhere. `tests/fuzz/run` searches for more.

#[path = "../../fuzz/src/targets.rs"]
pub(super) mod targets;

use std::path::Path;

pub(super) use super::{answer, readings};

/// So many spoiled inputs are tried of each kind of reports.
const SPOILED: usize = 2_000;
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
fn reports_keep_their_promises_however_they_are_spoiled() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus");
    // SplitMix64, so that a finding comes again.
    let mut state = 18_u64;
    let mut random = |below: usize| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ mixed >> 31) % below.max(1) as u64).unwrap()
    };
    for name in ["otlp", "native"] {
        let target = targets::by_name(name).unwrap();
        let files = std::fs::read_dir(folder.join(name)).unwrap();
        let mut inputs: Vec<Vec<u8>> = files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
        inputs.sort();
        for _ in 0..SPOILED {
            let mut input = inputs[random(inputs.len())].clone();
            for _ in 0..=random(4) {
                let at = random(input.len());
                match random(4) {
                    0 if !input.is_empty() => input[at] = u8::try_from(random(256)).unwrap(),
                    1 if !input.is_empty() => input[at] ^= 1 << random(8),
                    2 => {
                        let other = &inputs[random(inputs.len())];
                        let from = random(other.len());
                        let piece = other[from..].iter().take(random(64)).copied().collect::<Vec<u8>>();
                        input.splice(at..at, piece);
                    }
                    _ => drop(input.drain(at..(at + random(16)).min(input.len()))),
                }
            }
            let kept = std::panic::catch_unwind(|| target(&input));
            assert!(kept.is_ok(), "{name}: {:?}", String::from_utf8_lossy(&input));
        }
    }
}

#[test]
fn the_canary_is_there_to_be_found() {
    let canary = targets::by_name("canary").unwrap();
    canary(b"weir!\x17\x5b.");
    assert!(std::panic::catch_unwind(|| canary(b"weir!\x17\x5a.")).is_err());
}
