//! The table of `weir replay --curve`.

use serde::Serialize;

use crate::replay::{Curve, CurvePoint, Thresholds};

/// Thresholds that are always shown.
const SHOWN: [f64; 13] = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.97, 0.99];

/// A curve at some thresholds, those in force among them.
#[derive(Debug, Serialize)]
pub(in crate::app::cli) struct CurveTable {
    kind: &'static str,
    calls: u64,
    unknown: u64,
    partly: u64,
    flagged_anyway: u64,
    refused_anyway: u64,
    points: Vec<CurveRow>,
}

#[derive(Debug, Serialize)]
struct CurveRow {
    threshold: f64,
    flagged: u64,
    refused: u64,
    /// The settings that have this value.
    in_force: Vec<&'static str>,
}

impl CurveTable {
    pub(in crate::app::cli) fn new(curve: &Curve, in_force: Thresholds) -> Self {
        let Thresholds { finding, flag, block } = in_force;
        let set = [("finding_threshold", finding), ("flag_threshold", flag), ("block_threshold", block)];
        let mut at: Vec<f64> = SHOWN.into_iter().chain(set.map(|(_, value)| value)).collect();
        at.sort_unstable_by(f64::total_cmp);
        at.dedup();
        let row = |CurvePoint { threshold, flagged, refused }| {
            let in_force = set.iter().filter(|(_, value)| *value == threshold).map(|(name, _)| *name).collect();
            CurveRow { threshold, flagged, refused, in_force }
        };
        Self {
            kind: "curve",
            calls: curve.calls,
            unknown: curve.unknown,
            partly: curve.partly,
            flagged_anyway: curve.flagged_anyway,
            refused_anyway: curve.refused_anyway,
            points: curve.points(at).into_iter().map(row).collect(),
        }
    }

    /// For people.
    pub(super) fn lines(&self) -> Vec<String> {
        let share = |count: u64| format!("{:.2}%", 100.0 * count as f64 / self.calls.max(1) as f64);
        let mut lines = vec![format!("{:<10} {:>9} {:>8} {:>9} {:>8}", "threshold", "flagged", "", "refused", "")];
        for CurveRow { threshold, flagged, refused, in_force } in &self.points {
            let (of_flagged, of_refused) = (share(*flagged), share(*refused));
            let line = format!("{threshold:<10} {flagged:>9} {of_flagged:>8} {refused:>9} {of_refused:>8}");
            lines.push(format!("{line}  {}", in_force.join(", ")).trim_end().to_owned());
        }
        let Self { calls, flagged_anyway, refused_anyway, .. } = self;
        lines.push(format!(
            "of {calls} calls; flagged if `flag_threshold` is this, refused in block mode if `block_threshold` is this. {flagged_anyway} \
             are flagged and {refused_anyway} refused whatever the second stage says"
        ));
        for (count, what) in [
            (self.unknown, "cannot be looked at: no texts are kept of them, or a detector failed"),
            (self.partly, "were not looked at by the second stage to their end"),
        ] {
            if count > 0 {
                lines.push(format!("not faithful  {count} calls {what}"));
            }
        }
        lines.push(String::new());
        lines
    }
}
