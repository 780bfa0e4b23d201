//! Names of detectors that others ask for, too: on spans, in findings and in plans.

/// The classifier that is part of the binary.
pub const EMBEDDED: &str = "ml";

/// What all detectors say, weighed together.
pub const FUSION: &str = "fusion";
