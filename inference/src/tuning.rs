//! How strict a detector is to be.

/// How a detector weighs what it misses against what it reports in error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OperatingPoint {
    /// `high_precision`: few false alarms.
    HighPrecision,
    /// `balanced`.
    #[default]
    Balanced,
    /// `high_recall`: few misses.
    HighRecall,
}

/// From which probability of an attack on something is a finding, flags and blocks, 0.0 to 1.0 each; the operating point's where nothing
/// is written.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Levels {
    /// A finding of Low severity, which is recorded.
    pub finding: Option<f64>,
    /// Medium: the trace is flagged.
    pub flag: Option<f64>,
    /// High: what enforcement refuses by default.
    pub block: Option<f64>,
}

/// What one detector is told about how strict to be.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Tuning {
    /// Shifts all thresholds.
    pub point: OperatingPoint,
    /// A threshold that was set for this detector; wins over the operating point.
    pub threshold: Option<f64>,
    /// What its probabilities mean, where somebody wrote that.
    pub levels: Levels,
    /// Shorter texts are left alone, in characters.
    pub shortest: usize,
    /// The share of one core that it may take in the mean, where it heeds one.
    pub share: f64,
}
