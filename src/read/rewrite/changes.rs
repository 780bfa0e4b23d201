//! What is to be changed in a request's body, found while the body was read and applied when it is forwarded.

use std::ops::Range;

use bytes::Bytes;

use super::edits::Edits;

/// Places of a body and what stands there instead, in order; and what that amounts to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Bytes of the body, and their replacement in the spelling of that place.
    pub list: Vec<(Range<usize>, Bytes)>,
    /// The same of the texts they were found in, for those who look at what is forwarded: the number of each one's part, its place
    /// there, and what stands in it.
    pub replaced: Vec<(usize, Range<usize>, String)>,
    /// Pieces of personal data that are to be taken out.
    pub personal: usize,
    /// Those of them that are not spelled in the body as they are (inside of base64, a compressed body): they stay.
    pub unplaced: usize,
    /// The time was over before all of the body had been looked at for personal data: what comes behind stays.
    pub is_late: bool,
    /// Names were looked for in the beginning of the texts only.
    pub is_partial: bool,
    /// The body that is to be changed, where that is not the one that came but what is in its content coding.
    pub decoded: Option<Bytes>,
    /// What was done to fence in strangers' words; `None` where nothing was asked for.
    pub defence: Option<Box<Defence>>,
}

/// What the boundary defence does to one request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Defence {
    /// Whether it does anything.
    pub outcome: DefenceOutcome,
    /// Only computed: the body stays as it came.
    pub shadow: bool,
    /// Messages with a tag around their contents.
    pub wrapped: usize,
    /// Bytes the tags, what is neutralised between them and the reminder add.
    pub bytes: usize,
    /// Whether there was a place for the reminder; `None` where none was due.
    pub reminder: Option<bool>,
    /// What was marked, where marks are asked for.
    pub marks: Option<Marks>,
    /// Some texts could not be told apart, so that nothing was done about them.
    pub crowded: bool,
}

/// What became of the boundary defence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DefenceOutcome {
    /// The body could not be read as what is forwarded.
    #[default]
    Unread,
    /// No message has one of the roles.
    NothingToWrap,
    /// Contents are wrapped.
    Applied,
}

/// White space in data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    /// Stretches of data.
    pub zones: usize,
    /// White space in them that is replaced by a marker.
    pub marks: usize,
    /// Only counted.
    pub shadow: bool,
}

impl Defence {
    /// Of a body that could not be read.
    pub fn failed() -> Self {
        Self::default()
    }
}

impl Changes {
    /// Adds its edits; gives back how many pieces of personal data stay in the body.
    pub fn put(&self, edits: &mut Edits) -> usize {
        let refused = self.list.iter().filter(|(raw, with)| edits.replace(raw.clone(), with.clone()).is_err()).count();
        self.unplaced + refused
    }
}
