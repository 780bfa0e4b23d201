//! `weir tune`: settings of detection that keep the alarms on recorded calls within a share. Reads the record beside a running gateway,
//! and writes nothing: what it proposes is printed.

mod options;
mod proposal;

use std::process::ExitCode;

use serde::Serialize;
use weir_config::Settings;
use weir_inference::Analyser;

pub(super) use self::options::TuneOptions;
use self::proposal::{Counted, POINTS, Proposal, TooLoud, name, propose};
use super::common::{EXIT_USAGE, Options, complain, say, sources};
use super::replay::{Meant, NO_SECOND_STAGE};
use super::scan::plain;
use super::traces::{self, TracesError};
use crate::boot::{Extensions, StartError, own_rules};
use crate::replay::{Curve, CurveLooker, Thresholds, thresholds, unbounded};

/// Types of findings that are named where words and rules are too loud.
const TYPES_MAX: usize = 8;

/// Looks at the calls, says what it proposes, and gives the exit code.
pub(super) fn run(from: &Options, options: &TuneOptions, extensions: Extensions) -> Result<ExitCode, StartError> {
    let settings = weir_config::load(&sources(from))?.settings;
    let Some(in_force) = thresholds(&settings) else {
        complain(NO_SECOND_STAGE);
        return Ok(ExitCode::from(EXIT_USAGE));
    };
    let analyser = own_rules::analyser(&settings, extensions.detectors)?.0.without_memory();
    let curves = traces::open(from, &options.of)?.and_then(|record| {
        let meant = Meant { of: &options.of, filter: &options.filter, limit: options.limit };
        curves(&settings, &analyser, |each| meant.each(&record, |span, _| each(span)))
    });
    Ok(match curves {
        Ok(curves) if curves[0].calls > 0 => said(options, &settings, in_force, &curves),
        Ok(_) => {
            complain("no recorded call with texts is meant by this; see `weir traces list`");
            ExitCode::from(EXIT_USAGE)
        }
        Err(fault) => {
            complain(&plain(&fault.to_string()));
            ExitCode::from(EXIT_USAGE)
        }
    })
}

/// The curve of each operating point over the calls that `all` brings.
fn curves(
    settings: &Settings,
    analyser: &Analyser,
    all: impl FnOnce(&mut dyn FnMut(&weir_storage::record::SpanRecord)) -> Result<(), TracesError>,
) -> Result<[Curve; 3], TracesError> {
    let settings = POINTS.map(|point| unbounded(settings, Some(point)));
    let mut lookers = settings.each_ref().map(|settings| CurveLooker::new(settings, analyser));
    all(&mut |span| lookers.iter_mut().for_each(|looker| looker.add(span)))?;
    Ok(lookers.map(|looker| looker.curve))
}

/// What is printed with `--json`.
#[derive(Serialize)]
struct Json<'a> {
    kind: &'static str,
    calls: u64,
    /// Calls that were left out: without texts, or a detector failed.
    unknown: u64,
    /// Calls that the second stage did not look at to their end.
    partly: u64,
    proposal: Option<&'a Proposal>,
    too_loud: Option<&'a TooLoud>,
}

fn said(options: &TuneOptions, settings: &Settings, in_force: Thresholds, curves: &[Curve; 3]) -> ExitCode {
    let max_alarms = options.max_alarms.0;
    let max_refusals = options.max_refusals.map_or(max_alarms / 10.0, |share| share.0);
    let proposed = propose(curves, max_alarms, max_refusals);
    let Curve { calls, unknown, partly, .. } = curves[0];
    if options.json {
        let (proposal, too_loud) = (proposed.as_ref().ok(), proposed.as_ref().err());
        let json = Json { kind: "tuning", calls, unknown, partly, proposal, too_loud };
        say(&serde_json::to_string(&json).unwrap_or_default());
    } else {
        say(&format!("{calls} calls looked at, each under three operating points"));
        for (count, what) in [
            (unknown, "left out: no texts are kept of them, or a detector failed"),
            (partly, "not looked at by the second stage to their end"),
        ] {
            if count > 0 {
                say(&format!("{count} calls {what}"));
            }
        }
        say("");
        match &proposed {
            Ok(proposal) => in_words(proposal, settings, in_force, max_alarms),
            Err(loud) => too_loud(loud, calls),
        }
    }
    if proposed.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn in_words(proposal: &Proposal, settings: &Settings, in_force: Thresholds, max_alarms: f64) {
    let Proposal { operating_point, finding_threshold, flag_threshold, block_threshold, flagged, refused } = proposal;
    let counted = |Counted { calls, share, low, high }: &Counted, what: &str| {
        let [share, low, high] = [share, low, high].map(|share| format!("{:.2}", share * 100.0));
        format!("{calls} {what}, {share}% (95% interval: {low} to {high}%)")
    };
    let row = |setting: &str, now: &str, then: &str, calls: &str| {
        say(format!("{setting:<20} {now:<15} {then:<15} {calls}").trim_end());
    };
    let number = |value: f64| format!("{value}");
    row("", "now", "proposed", "");
    row("operating_point", name(settings.security_analysis.operating_point), operating_point, "");
    row("finding_threshold", &number(in_force.finding), &number(*finding_threshold), "");
    row("flag_threshold", &number(in_force.flag), &number(*flag_threshold), &counted(flagged, "flagged"));
    let refusals = counted(refused, "refused in block mode");
    row("block_threshold", &number(in_force.block), &number(*block_threshold), &refusals);
    say("");
    say("security_analysis:");
    say(&format!("  operating_point: {operating_point}"));
    for (name, value) in [
        ("finding_threshold", finding_threshold),
        ("flag_threshold", flag_threshold),
        ("block_threshold", block_threshold),
    ] {
        say(&format!("  {name}: {value}"));
    }
    say("");
    if flagged.high > max_alarms {
        say("These are too few calls to be sure of it: the upper end of the interval lies above --max-alarms.");
    }
    say(
        "Every alarm counts as a false one here. With these lines in the configuration, `weir replay --list` names the calls that would be \
         flagged: look at them before you rely on it.",
    );
}

fn too_loud(loud: &TooLoud, calls: u64) {
    let TooLoud { flagged_anyway, refused_anyway, by_type } = loud;
    say(&format!(
        "No settings keep within it: words and rules flag {flagged_anyway} of {calls} calls and refuse {refused_anyway} by themselves, \
         even at `operating_point: high_precision`."
    ));
    for (finding_type, count) in by_type.iter().take(TYPES_MAX) {
        say(&plain(&format!("  {count:>7}  {finding_type}")));
    }
    say(
        "See which they are with `weir traces list --finding TYPE`. What is known to be harmless can be allowed by a rule of your own \
         (`security_analysis.rules_dir`).",
    );
}
