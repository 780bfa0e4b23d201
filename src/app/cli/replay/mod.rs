//! `weir replay`: recorded calls looked at once more under other settings or rules, and what would be different. Reads the record
//! beside a running gateway; writes nothing but what is said.
//!
//! Invariants: the texts go through the detectors of the proxy; what a record lacks for a faithful look is counted and said; one
//! piece of the list is in memory at a time.

mod curve;
mod options;
mod reading;
mod report;

use std::process::ExitCode;

use weir_config::Settings;
use weir_inference::Analyser;
use weir_storage::RecordReader;
use weir_storage::record::SpanRecord;

pub(super) use self::curve::CurveTable;
pub(super) use self::options::ReplayOptions;
pub(super) use self::reading::Meant;
use self::report::Report;
use super::common::{EXIT_USAGE, Options, complain, sources};
use super::scan::{Progress, plain};
use super::traces::{self, TracesError};
use crate::boot::{Extensions, StartError, own_rules, unasked};
use crate::replay::{CurveLooker, Looker, Tally, Terms, thresholds, unbounded};

/// What is said where there is no second stage to draw a curve of.
pub(super) const NO_SECOND_STAGE: &str = "the second stage is off under these settings, so that there are no thresholds to try: set \
                                          `security_analysis.ml_enabled: true`, `ml_model: embedded` and a `second_stage_cpu_share` above 0";

/// Looks again, says what would change, and gives the exit code.
pub(super) fn run(from: &Options, options: &ReplayOptions, extensions: Extensions) -> Result<ExitCode, StartError> {
    let loaded = weir_config::load(&sources(from))?;
    // Flags that were changed at run time beat the file here, too.
    for warning in loaded.warnings.iter().chain(&loaded.remarks()) {
        complain(&format!("warning: {warning}"));
    }
    let in_force = thresholds(&loaded.settings);
    if options.curve && in_force.is_none() {
        complain(NO_SECOND_STAGE);
        return Ok(ExitCode::from(EXIT_USAGE));
    }
    let analyser = own_rules::analyser(&loaded.settings, extensions.detectors)?.0.without_memory();
    let not_asked = unasked::all(&loaded.settings)?;
    let done = traces::open(from, &options.of)?.and_then(|record| {
        let all = unbounded(&loaded.settings, None);
        let mut replay = Replay::new(options, &loaded.settings, &analyser);
        replay.tally.not_asked = not_asked;
        replay.curve = options.curve.then(|| CurveLooker::new(&all, &analyser));
        replay.all(&record)?;
        if let (Some(looker), Some(in_force)) = (&replay.curve, in_force) {
            replay.report.curve(&CurveTable::new(&looker.curve, in_force));
        }
        Ok(replay.end())
    });
    Ok(done.unwrap_or_else(|fault| {
        complain(&plain(&fault.to_string()));
        ExitCode::from(EXIT_USAGE)
    }))
}

/// A replay under way.
struct Replay<'a> {
    options: &'a ReplayOptions,
    settings: &'a Settings,
    looker: Looker<'a>,
    /// Where a curve is asked for.
    curve: Option<CurveLooker<'a>>,
    tally: Tally,
    report: Report,
}

impl<'a> Replay<'a> {
    fn new(options: &'a ReplayOptions, settings: &'a Settings, analyser: &'a Analyser) -> Self {
        Self {
            options,
            settings,
            looker: Looker::new(settings, analyser),
            curve: None,
            tally: Tally::default(),
            report: Report::new(options.json, options.list),
        }
    }

    fn all(&mut self, record: &RecordReader) -> Result<(), TracesError> {
        let ReplayOptions { of, filter, limit, .. } = self.options;
        Meant { of, filter, limit: *limit }.each(record, |span, progress| self.one(span, progress))
    }

    fn one(&mut self, span: &SpanRecord, progress: &mut Progress) {
        let look = self.looker.look(span);
        if let Some(change) = self.tally.compare(span, None, (&look, Terms::of(self.settings))) {
            progress.clear();
            self.report.change(span, &change);
        }
        if let Some(curve) = &mut self.curve {
            curve.add(span);
        }
    }

    /// The last words, and the exit code.
    fn end(mut self) -> ExitCode {
        self.report.end(&self.tally);
        if self.tally.changed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }
}
