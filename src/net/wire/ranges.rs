//! What a scan of a body found, gathered: ranges of its input, and the bytes they stand for.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

use super::ChunkSink;

/// Collects the ranges a scan reports.
#[derive(Default)]
pub struct Ranges {
    /// What is passed on as it came.
    pub forward: SmallVec<[Range<usize>; 4]>,
    /// The content.
    pub data: SmallVec<[Range<usize>; 8]>,
}

impl ChunkSink for Ranges {
    fn forward(&mut self, range: Range<usize>) {
        self.forward.push(range);
    }

    fn data(&mut self, range: Range<usize>) {
        self.data.push(range);
    }
}

impl Ranges {
    /// Forgets them.
    pub fn clear(&mut self) {
        self.forward.clear();
        self.data.clear();
    }

    /// What to relay of `input`: the input itself when nothing is left out, else its parts put together.
    pub fn relayed(&self, input: &Bytes) -> Bytes {
        match self.forward.as_slice() {
            [] => Bytes::new(),
            [one] => input.slice(one.clone()),
            many => gather(input, many),
        }
    }

    /// The content of `input`.
    pub fn content(&self, input: &Bytes) -> Bytes {
        match self.data.as_slice() {
            [] => Bytes::new(),
            [one] => input.slice(one.clone()),
            many => gather(input, many),
        }
    }
}

fn gather(input: &Bytes, ranges: &[Range<usize>]) -> Bytes {
    let mut out = BytesMut::with_capacity(input.len());
    for range in ranges {
        out.extend_from_slice(input.get(range.clone()).unwrap_or_default());
    }
    out.freeze()
}
