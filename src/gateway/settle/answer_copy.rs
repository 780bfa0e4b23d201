//! The copy of an answer that is read for the record while its bytes go to the client, and the room it takes in memory.

use super::inspection::survive;
use crate::observe::AnswerReader;
use crate::record::{Budget, Permit};

/// Of the bytes of a stream so many to one are text.
const STREAM_BYTES_PER_TEXT: usize = 8;

/// One answer's copy for the record, with the permit for the memory it takes.
pub(super) struct AnswerCopy {
    /// `None` where nobody reads it, or reading it has failed.
    pub(super) reader: Option<Box<AnswerReader>>,
    /// Bytes of text it holds, about.
    pub(super) bytes: usize,
    /// Reading it has failed.
    pub(super) lost: bool,
    /// What it took from the budget.
    permit: Permit,
}

impl AnswerCopy {
    /// None yet.
    pub(super) fn new(permit: Permit) -> Self {
        Self { reader: None, bytes: 0, lost: false, permit }
    }

    /// From now on `reader` reads it.
    pub(super) fn begin(&mut self, reader: Box<AnswerReader>) {
        self.reader = Some(reader);
    }

    /// Reads `pieces`, `bytes` in all. Without room for them the answer flows on, and of its record only the end is kept.
    pub(super) fn feed<'a>(&mut self, bytes: usize, pieces: impl Iterator<Item = &'a [u8]>, streams: bool) {
        let Self { reader: slot, bytes: kept, lost, permit } = self;
        // Read in its place: it is large, and this happens for every piece.
        let Some(reader) = slot else { return };
        let mut make_room = |bytes: usize| {
            let more = if streams { bytes / STREAM_BYTES_PER_TEXT } else { bytes };
            *kept += more;
            permit.grow(more)
        };
        let is_full = !reader.keeps_less() && !make_room(bytes);
        let later = reader.may_wait();
        let before = reader.decoded_bytes();
        let read = survive(|| {
            if is_full {
                reader.keep_less();
            }
            pieces.for_each(|piece| if later { reader.feed_later(piece) } else { reader.feed(piece) });
        });
        if read.is_none() {
            // What is left of it cannot be trusted.
            (*slot, *lost) = (None, true);
            return;
        }
        if later {
            return;
        }
        // A compressed answer is kept as the many times more that it is.
        let more = reader.decoded_bytes().saturating_sub(before + bytes);
        if more > 0 && !reader.keeps_less() && !make_room(more) {
            reader.keep_less();
        }
    }

    /// What reads it, which has read all that came, where somebody does.
    pub(super) fn reader(&mut self) -> Option<&AnswerReader> {
        if survive(|| self.reader.as_mut().map(|reader| reader.catch_up())).is_none() {
            (self.reader, self.lost) = (None, true);
        }
        self.reader.as_deref()
    }

    /// Whether the last message of a stream has come.
    pub(super) fn is_complete(&mut self) -> bool {
        self.reader().is_some_and(AnswerReader::is_complete)
    }

    /// What it took, to be given back when the record is done.
    pub(super) fn take_permit(&mut self, bodies: &Budget) -> Permit {
        std::mem::replace(&mut self.permit, bodies.permit())
    }
}
