//! Settings for a share of alarms: the most sensitive operating point whose words and rules stay within half of it by themselves, and the
//! lowest thresholds of the second stage that keep all together within it.

use serde::Serialize;
use weir_config::settings::OperatingPoint;

use crate::replay::{Curve, CurvePoint};

/// Operating points, the most sensitive first.
pub(super) const POINTS: [OperatingPoint; 3] =
    [OperatingPoint::HighRecall, OperatingPoint::Balanced, OperatingPoint::HighPrecision];
/// Lower thresholds are not proposed: what the second stage says there is chance.
const LEAST_FLAG: f64 = 0.1;
const LEAST_FINDING: f64 = 0.05;
/// The 97.5th of a hundred of the normal distribution.
const Z: f64 = 1.959_964;

/// What is proposed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Proposal {
    pub(super) operating_point: &'static str,
    pub(super) finding_threshold: f64,
    pub(super) flag_threshold: f64,
    pub(super) block_threshold: f64,
    pub(super) flagged: Counted,
    pub(super) refused: Counted,
}

/// Calls of all, with the 95 % interval of their share (Wilson).
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Counted {
    pub(super) calls: u64,
    pub(super) share: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// Why there is none: what words and rules flag by themselves under the strictest operating point.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct TooLoud {
    pub(super) flagged_anyway: u64,
    pub(super) refused_anyway: u64,
    pub(super) by_type: Vec<(String, u64)>,
}

impl Counted {
    pub(super) fn of(calls: u64, all: u64) -> Self {
        let n = all.max(1) as f64;
        let share = calls as f64 / n;
        let middle = share + Z * Z / (2.0 * n);
        let half = Z * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
        let scale = 1.0 + Z * Z / n;
        Self { calls, share, low: ((middle - half) / scale).max(0.0), high: ((middle + half) / scale).min(1.0) }
    }
}

/// Proposes settings from the curves of [`POINTS`].
pub(super) fn propose(curves: &[Curve; 3], max_alarms: f64, max_refusals: f64) -> Result<Proposal, TooLoud> {
    // Half of the share is the second stage's, which tells more apart than words and rules do.
    let quiet = |curve: &Curve| curve.flagged_anyway as f64 <= max_alarms / 2.0 * curve.calls as f64;
    let last = curves.len() - 1;
    let at = curves.iter().position(quiet).unwrap_or(last);
    let curve = &curves[at];
    let found = curve.flag_threshold(max_alarms, LEAST_FLAG).and_then(|flag| {
        let block = curve.block_threshold(max_refusals, flag.threshold)?;
        Some((flag, block))
    });
    let Some((flag, block)) = found else { return Err(too_loud(&curves[last])) };
    let finding = step_down(flag.threshold / 2.0).max(LEAST_FINDING);
    let CurvePoint { threshold: flag_threshold, flagged, .. } = flag;
    Ok(Proposal {
        operating_point: name(POINTS[at]),
        finding_threshold: finding,
        flag_threshold,
        block_threshold: block.threshold,
        flagged: Counted::of(flagged, curve.calls),
        refused: Counted::of(block.refused, curve.calls),
    })
}

fn too_loud(curve: &Curve) -> TooLoud {
    let mut by_type: Vec<(String, u64)> = curve.anyway_by_type.clone().into_iter().collect();
    by_type.sort_by(|(a, more), (b, less)| less.cmp(more).then(a.cmp(b)));
    TooLoud { flagged_anyway: curve.flagged_anyway, refused_anyway: curve.refused_anyway, by_type }
}

/// To two digits.
fn step_down(threshold: f64) -> f64 {
    (threshold * 100.0).floor() / 100.0
}

/// As the settings have it.
pub(super) const fn name(point: OperatingPoint) -> &'static str {
    match point {
        OperatingPoint::HighRecall => "high_recall",
        OperatingPoint::Balanced => "balanced",
        OperatingPoint::HighPrecision => "high_precision",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(calls: u64, anyway: u64) -> Curve {
        let mut curve = Curve::default();
        (curve.calls, curve.flagged_anyway) = (calls, anyway);
        curve
    }

    #[test]
    fn the_most_sensitive_operating_point_that_is_quiet_enough_is_taken() {
        let point = |anyway: [u64; 3]| {
            let curves = anyway.map(|anyway| curve(1_000, anyway));
            propose(&curves, 0.01, 0.001).map(|proposal| proposal.operating_point)
        };
        assert_eq!(point([5, 4, 1]), Ok("high_recall"));
        assert_eq!(point([6, 4, 1]), Ok("balanced"));
        // More than half of the share, but within it.
        assert_eq!(point([20, 12, 9]), Ok("high_precision"));
        assert_eq!(point([20, 12, 11]).map_err(|loud| loud.flagged_anyway), Err(11));
    }

    #[test]
    fn a_share_comes_with_its_interval() {
        let none = Counted::of(0, 380);
        assert_eq!((none.share, none.low), (0.0, 0.0));
        assert!((none.high - 0.01).abs() < 1e-4, "{none:?}");
        let some = Counted::of(10, 1_000);
        assert!((some.low - 0.0054).abs() < 1e-4 && (some.high - 0.0183).abs() < 1e-4, "{some:?}");
    }

    #[test]
    fn thresholds_ascend() {
        let quiet = [0; 3].map(|anyway| curve(10, anyway));
        let proposal = propose(&quiet, 0.01, 0.001).unwrap();
        assert_eq!(
            (proposal.finding_threshold, proposal.flag_threshold, proposal.block_threshold),
            (0.05, LEAST_FLAG, LEAST_FLAG)
        );
    }
}
