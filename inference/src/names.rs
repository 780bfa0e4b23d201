//! Names of detectors that others ask for, too: on spans, in findings and in plans.

/// The classifier that is part of the binary, in plans.
pub const EMBEDDED: &str = "embedded";

/// Whichever classifier looks, on spans, in findings and on metrics: a model of the operator's, or the embedded one in its place. What
/// the embedded one finds says `model: embedded`.
pub const CLASSIFIER: &str = "classifier";

/// What all detectors say, weighed together.
pub const FUSION: &str = "fusion";
