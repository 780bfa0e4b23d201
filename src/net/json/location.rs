//! Where a value stands in a document, as a person writes it: `request.messages[2].content[0].text`.
//!
//! Kept as segments and shown only when a finding needs it: most texts have none. Paths deeper than [`SHOWN_MAX`]
//! segments end in `...`, long names are cut, so that a hostile body cannot make a location expensive.

use std::fmt;

use smallvec::SmallVec;

/// Segments kept; deeper ones are shown as `...`.
const SHOWN_MAX: usize = 12;
/// Bytes kept of a key we have no name for.
const NAME_BYTES_MAX: usize = 48;

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// A key this program knows.
    Key(&'static str),
    /// A position in an array, counted from 0.
    Index(u32),
    /// Any other key.
    Name(Box<str>),
}

impl Segment {
    /// A key that is not one of ours; cut to a bounded length, control characters replaced.
    pub fn name(key: &str) -> Self {
        let mut end = key.len().min(NAME_BYTES_MAX);
        while !key.is_char_boundary(end) {
            end -= 1;
        }
        let kept = key.get(..end).unwrap_or_default();
        Self::Name(kept.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect())
    }
}

/// A path from the root of a request or an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    root: &'static str,
    segments: SmallVec<[Segment; 4]>,
    cut: bool,
}

impl Location {
    /// The whole document; `root` is `request` or `response`.
    pub fn root(root: &'static str) -> Self {
        Self { root, segments: SmallVec::new(), cut: false }
    }

    /// Its steps from the root; empty where some were left out.
    pub fn segments(&self) -> &[Segment] {
        if self.cut { &[] } else { &self.segments }
    }

    /// Adds one step; past the bound only the fact that there were more is kept.
    pub fn push(&mut self, segment: Segment) {
        if self.segments.len() < SHOWN_MAX {
            self.segments.push(segment);
        } else {
            self.cut = true;
        }
    }

    /// [`Location::push`] of a known key, for building paths in one expression.
    #[must_use]
    pub fn key(mut self, key: &'static str) -> Self {
        self.push(Segment::Key(key));
        self
    }

    /// [`Location::push`] of an index, for building paths in one expression.
    #[must_use]
    pub fn index(mut self, at: u32) -> Self {
        self.push(Segment::Index(at));
        self
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.root)?;
        for segment in &self.segments {
            match segment {
                Segment::Key(key) => write!(f, ".{key}")?,
                Segment::Index(at) => write!(f, "[{at}]")?,
                Segment::Name(name) => write!(f, ".{name}")?,
            }
        }
        if self.cut { f.write_str("...") } else { Ok(()) }
    }
}
