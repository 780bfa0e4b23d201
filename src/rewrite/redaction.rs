//! What is to be taken out of a request's body, found while the body was read and applied when it is forwarded.

use std::ops::Range;

use bytes::Bytes;

use super::edits::Edits;

/// Places of a body and what stands there instead, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Redaction {
    /// Bytes of the body, and their replacement in the spelling of that place.
    pub list: Vec<(Range<usize>, Bytes)>,
    /// Pieces that are not spelled in the body as they are (inside of base64, a compressed body): they stay.
    pub unplaced: usize,
}

impl Redaction {
    /// Whether there is nothing to say of it.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty() && self.unplaced == 0
    }

    /// Adds its edits; gives back how many pieces stay in the body.
    pub fn put(&self, edits: &mut Edits) -> usize {
        let refused = self.list.iter().filter(|(raw, with)| edits.replace(raw.clone(), with.clone()).is_err()).count();
        self.unplaced + refused
    }
}
