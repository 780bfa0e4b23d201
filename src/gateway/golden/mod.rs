//! The golden set: texts of which it is known whether they are attacks, looked at as the gateway looks at texts now.
//!
//! One text per file at `<category>/<id>.json` below the folder that `SERVICE_GOLDEN_SET_PATH` names. A text counts as flagged from
//! a score of [`FLAGGED_FROM`] on. Invariant: a file that does not say the same as its place is refused by name, and then nothing is
//! replayed, because a rate over part of a set says nothing. Knows no HTTP.

mod load;
mod replay;

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use parking_lot::Mutex;
use weir_config::Settings;
use weir_config::vocab::Timestamp;
use weir_inference::{Analyser, PoolHandle};

use crate::meter::{Exposition, Source, names};
use crate::settle::whole::WholeLook;

pub use load::BadFixture;
pub use replay::{CategoryReport, FLAGGED_FROM, Report};

/// The replays of one golden set, and what the last one came to.
pub struct GoldenSet {
    root: PathBuf,
    analyser: Arc<Analyser>,
    pool: PoolHandle,
    settings: Arc<ArcSwap<Settings>>,
    last: ArcSwapOption<Replayed>,
    /// Two at once would only take longer.
    replaying: Mutex<()>,
}

/// A replay that is over.
struct Replayed {
    report: Report,
    at: Timestamp,
}

impl GoldenSet {
    /// The set below `root`; its files are read at each replay.
    pub fn new(
        root: PathBuf,
        analyser: Arc<Analyser>,
        pool: PoolHandle,
        settings: Arc<ArcSwap<Settings>>,
    ) -> Arc<Self> {
        Arc::new(Self { root, analyser, pool, settings, last: ArcSwapOption::empty(), replaying: Mutex::new(()) })
    }

    /// Reads the set, looks at all of it under the settings in effect, and keeps the rates for `/metrics`. Blocks.
    ///
    /// # Errors
    /// When a file cannot be read or is no text of the set; the rates of the replay before then stay.
    pub fn replay(&self) -> Result<Report, BadFixture> {
        let _one_at_a_time = self.replaying.lock();
        let fixtures = load::load(&self.root)?;
        let look = WholeLook::new(&self.analyser, &self.pool, &self.settings.load());
        let report = replay::replay(&look, &self.root, &fixtures);
        self.last.store(Some(Arc::new(Replayed { report: report.clone(), at: Timestamp::now() })));
        Ok(report)
    }
}

/// The rates of the last replay, for `/metrics`.
pub struct GoldenGauges(pub Arc<GoldenSet>);

impl Source for GoldenGauges {
    fn collect(&self, out: &mut Exposition) {
        let Some(last) = self.0.last.load_full() else { return };
        for category in &last.report.categories {
            let label = [("category", category.category.as_str())];
            if let Some(rate) = category.alignment_rate {
                out.gauge(names::GOLDEN_ALIGNMENT, &label, rate);
            }
            if let Some(rate) = category.false_positive_rate {
                out.gauge(names::GOLDEN_FALSE_POSITIVES, &label, rate);
            }
        }
        out.gauge(names::GOLDEN_REPLAYED, &[], last.at.micros() as f64 / 1e6);
    }
}
