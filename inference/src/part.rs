//! What goes in and what comes out: parts of an exchange, and hits.
//!
//! A part is a piece of text and the role it plays; the caller keeps the map from parts to places in a body. Nothing
//! here knows where the text came from.

use weir_config::vocab::Finding;
pub use weir_config::vocab::part::PartKind;

/// One text to look at.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// The text as the model would read it (JSON escapes already decoded).
    pub text: &'a str,
    /// Its role.
    pub kind: PartKind,
}

/// One finding and the part it is about.
#[derive(Debug, Clone, PartialEq)]
pub struct Hit {
    /// Index into the `parts` that were given.
    pub part: usize,
    /// The finding; `location` is empty, `span` holds byte offsets into `parts[part].text`.
    pub finding: Finding,
}

/// Most findings one analysis returns; a bound on memory, far above what a person reads.
pub const HITS_MAX: usize = 4096;
