//! Names of detectors that others ask for, too: on spans, in findings and in plans.

/// The classifier that is part of the binary, in plans.
pub const EMBEDDED: &str = "embedded";

/// Whichever classifier looks, on spans, in findings and on metrics: a model of the operator's, or the embedded one in its place. What
/// the embedded one finds says `model: embedded`.
pub const CLASSIFIER: &str = "classifier";

/// The transformer that looks at what the embedded classifier finds suspicious.
pub const SECOND_STAGE: &str = "second_stage";

/// What all detectors say, weighed together.
pub const FUSION: &str = "fusion";

/// Type of the finding that a definition of a tool says something it did not say before.
pub const TOOL_CHANGED: &str = "tool_definition_changed";

/// What a finding about an order in such a definition has in its metadata, and no other finding of the rules: which signs it is made of.
pub const CHANGE_SIGNS: &str = "signs";

/// What a finding of that type has in its metadata where nothing of the definition was known: it may be another server's tool.
pub const ANOTHER_TOOL: &str = "another_tool";
