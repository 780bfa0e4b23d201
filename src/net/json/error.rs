//! Why a document is not JSON, and where.
//!
//! Invariant: the phrases are for people and fixed; code compares kinds.

use std::fmt;

/// Why a document is not JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonErrorKind {
    /// The bytes are not UTF-8.
    Utf8,
    /// The document starts with a byte order mark (RFC 8259 section 8.1 forbids sending one).
    ByteOrderMark,
    /// Nested deeper than [`DEPTH_MAX`](super::DEPTH_MAX).
    Depth,
    /// The document ends in the middle.
    End,
    /// Something after the document.
    Trailing,
    /// A control character inside a string.
    Control,
    /// An escape that does not exist.
    Escape,
    /// A number that RFC 8259 does not allow (`01`, `+1`, `NaN`, `.5`).
    Number,
    /// Any other byte that cannot stand here.
    Unexpected,
    /// The deadline passed before all of it was read ([`Walker::until`](super::Walker::until)).
    Late,
}

impl JsonErrorKind {
    /// A short phrase for a person.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Utf8 => "invalid UTF-8",
            Self::ByteOrderMark => "byte order mark",
            Self::Depth => "nested too deep",
            Self::End => "JSON ends early",
            Self::Trailing => "bytes after the JSON document",
            Self::Control => "control character in a JSON string",
            Self::Escape => "invalid JSON escape",
            Self::Number => "invalid JSON number",
            Self::Unexpected => "invalid JSON",
            Self::Late => "not read in time",
        }
    }
}

/// A fault and the offset of the byte that caused it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonError {
    /// Why.
    pub kind: JsonErrorKind,
    /// Byte offset in the document.
    pub at: usize,
}

impl JsonError {
    /// Whether there was no time to read on.
    pub fn is_late(self) -> bool {
        self.kind == JsonErrorKind::Late
    }
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.kind.as_str(), self.at)
    }
}

impl std::error::Error for JsonError {}
