//! What an analysis did, and what of it is left to detectors on the pool.

use crate::detector_set::{DETECTORS_MAX, DetectorSet};
use crate::gate::Skips;
use crate::later::Later;

/// What an analysis did.
#[derive(Debug, Default, PartialEq)]
pub struct Ran {
    /// Detectors that ran on something, now or when it was found clean; [`crate::Analyser::names`] names them.
    pub detectors: DetectorSet,
    /// Detectors that are switched on and were not ready: it was done without them.
    pub absent: DetectorSet,
    /// The deadline passed: some text was not looked at.
    pub cut: bool,
    /// A detector could not judge some text.
    pub failed: bool,
    /// [`crate::HITS_MAX`] was reached: some text was not looked at.
    pub full: bool,
    /// Some text had so many pattern candidates that not all were verified; a sign of an attack on the scanner.
    pub verify_cap_reached: bool,
    /// The most that patterns have spent on a text of what they may, in thousandths.
    pub effort: u32,
    /// Of some text, not all that encoded words in it say was looked at by models.
    pub skipped: bool,
    /// Why the second stage was not asked about a text, or not about all of it, that it was to be asked about.
    pub second_stage_skipped: Skips,
    /// What is left to detectors that run on the pool alone.
    pub later: Option<Box<Later>>,
    /// Detectors that were not spared by what is known.
    pub(crate) timed: DetectorSet,
    /// How long the detectors took in nanoseconds; zero where all was known already.
    pub(crate) took_ns: [u64; DETECTORS_MAX],
}

impl Ran {
    /// Joins what was done later to what was done at once.
    pub fn join(&mut self, later: &Self) {
        self.detectors |= later.detectors;
        self.absent |= later.absent;
        self.cut |= later.cut;
        self.failed |= later.failed;
        self.full |= later.full;
        self.verify_cap_reached |= later.verify_cap_reached;
        self.effort = self.effort.max(later.effort);
        self.skipped |= later.skipped;
        self.second_stage_skipped.add(later.second_stage_skipped);
    }
}
