//! The fuzz targets as ordinary tests: every committed input of `tests/fuzz/corpus` through its target, in one piece and
//! cut short anywhere. `tests/fuzz/run` searches for more.

#[path = "../../fuzz/src/targets.rs"]
pub(super) mod targets;

use std::path::Path;
use std::time::{Duration, Instant};

pub(super) use super::{answer, readings};

/// So many spoiled inputs are tried of each kind of reports.
const SPOILED: usize = 2_000;
/// Spoiled inputs that are kept to be spoiled again.
const GENERATION: usize = 256;
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

/// SplitMix64, so that a finding comes again.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ mixed >> 31) % bound.max(1) as u64).unwrap()
    }

    /// One of these inputs, spoiled in a few places.
    fn spoiled(&mut self, inputs: &[Vec<u8>]) -> Vec<u8> {
        let mut input = inputs[self.below(inputs.len())].clone();
        for _ in 0..=self.below(4) {
            let at = self.below(input.len());
            match self.below(4) {
                0 if !input.is_empty() => input[at] = u8::try_from(self.below(256)).unwrap(),
                1 if !input.is_empty() => input[at] ^= 1 << self.below(8),
                2 => {
                    let other = &inputs[self.below(inputs.len())];
                    let from = self.below(other.len());
                    let piece = other[from..].iter().take(self.below(64)).copied().collect::<Vec<u8>>();
                    input.splice(at..at, piece);
                }
                _ => drop(input.drain(at..(at + self.below(16)).min(input.len()))),
            }
        }
        input
    }
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/corpus");
    let files = std::fs::read_dir(folder.join(name)).unwrap();
    let mut inputs: Vec<Vec<u8>> = files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    inputs.sort();
    inputs
}

#[test]
fn reports_keep_their_promises_however_they_are_spoiled() {
    let mut random = Random(18);
    for name in ["otlp", "native"] {
        let (target, inputs) = (targets::by_name(name).unwrap(), corpus(name));
        for _ in 0..SPOILED {
            let input = random.spoiled(&inputs);
            let kept = std::panic::catch_unwind(|| target(&input));
            assert!(kept.is_ok(), "{name}: {:?}", String::from_utf8_lossy(&input));
        }
    }
}

/// `WEIR_FRAMES_SECONDS` for longer runs, `WEIR_FRAMES_SEED` for others; what was interesting is spoiled further.
#[test]
fn frames_of_sockets_keep_their_promises_however_they_are_spoiled() {
    let of = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let until = of("WEIR_FRAMES_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut random = Random(of("WEIR_FRAMES_SEED").unwrap_or(43));
    let (target, mut inputs) = (targets::by_name("websocket").unwrap(), corpus("websocket"));
    let committed = inputs.len();
    let mut tried = 0_u64;
    while until.map_or(tried < SPOILED as u64, |until| Instant::now() < until) {
        let input = random.spoiled(&inputs);
        let kept = std::panic::catch_unwind(|| target(&input));
        assert!(kept.is_ok(), "{input:?}");
        tried += 1;
        // Faults on top of faults: some of what was tried is spoiled again.
        if random.below(16) == 0 && input.len() < 4096 {
            let at = committed + random.below(GENERATION);
            match inputs.get_mut(at) {
                Some(slot) => *slot = input,
                None => inputs.push(input),
            }
        }
    }
    println!("{tried} streams of frames");
}

#[test]
fn the_canary_is_there_to_be_found() {
    let canary = targets::by_name("canary").unwrap();
    canary(b"weir!\x17\x5b.");
    assert!(std::panic::catch_unwind(|| canary(b"weir!\x17\x5a.")).is_err());
}
