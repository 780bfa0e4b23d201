//! Frames of a streamed answer: events separated by empty lines, or lines of JSON.
//!
//! Invariant: frames are cut at their separators, not at the reads they arrive in.

use weir_fake_provider::provider;

/// Ends an event.
pub(super) const EVENTS: &[u8] = b"\n\n";
/// Ends an event where lines end as in HTTP.
pub(super) const CRLF_EVENTS: &[u8] = b"\r\n\r\n";
/// Ends a line of JSON.
pub(super) const LINES: &[u8] = b"\n";
/// Ends a frame of a compressed stream: a sync flush, with which the fake provider ends each frame, leaves these bytes.
pub(super) const FLUSHES: &[u8] = b"\x00\x00\xff\xff";

/// What a frame showed when it arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame<'a> {
    /// Its bytes, without the separator behind it.
    pub(super) bytes: &'a [u8],
    /// Time between sending and arrival in nanoseconds, if the frame was stamped.
    pub(super) delay_ns: Option<u64>,
}

/// Cuts a stream's payload into frames.
#[derive(Debug)]
pub(super) struct FrameCutter {
    separator: &'static [u8],
    pending: Vec<u8>,
}

impl FrameCutter {
    /// For frames that end with [`EVENTS`], [`CRLF_EVENTS`], [`LINES`] or [`FLUSHES`].
    pub(super) fn new(separator: &'static [u8]) -> Self {
        Self { separator, pending: Vec::new() }
    }

    /// What frames end with.
    pub(super) fn separator(&self) -> &'static [u8] {
        self.separator
    }

    /// What has arrived of a frame that is not whole.
    pub(super) fn pending(&self) -> &[u8] {
        &self.pending
    }

    /// Whether a part of a frame has arrived.
    pub(super) fn is_amid_frame(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Forgets what an earlier answer left, for frames that end like this.
    pub(super) fn reset(&mut self, separator: &'static [u8]) {
        self.separator = separator;
        self.pending.clear();
    }

    /// Takes payload that has just arrived and reports every frame it completes.
    pub(super) fn push(&mut self, payload: &[u8], mut seen: impl FnMut(Frame<'_>)) {
        let searched = self.pending.len().saturating_sub(self.separator.len() - 1);
        self.pending.extend_from_slice(payload);
        let (mut start, mut search) = (0, searched);
        let now_ns = provider::now_ns();
        while let Some(at) = self.pending.get(search..).and_then(|rest| memchr::memmem::find(rest, self.separator)) {
            let end = search + at;
            let frame = self.pending.get(start..end).unwrap_or_default();
            seen(Frame {
                bytes: frame,
                delay_ns: provider::read_stamp(frame).map(|sent_ns| now_ns.saturating_sub(sent_ns)),
            });
            start = end + self.separator.len();
            search = start;
        }
        self.pending.drain(..start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn count(separator: &'static [u8], pieces: &[&[u8]]) -> usize {
        let (mut cutter, mut frames) = (FrameCutter::new(separator), 0);
        pieces.iter().for_each(|piece| cutter.push(piece, |_| frames += 1));
        frames
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_frames(cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6)) {
            let input = b"data: a\n\ndata: b\n\nevent: x\ndata: c\n\n: tail";
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len())).chain([0, input.len()]).collect();
            at.sort_unstable();
            let pieces: Vec<&[u8]> = at.windows(2).map(|pair| &input[pair[0]..pair[1]]).collect();
            prop_assert_eq!(count(EVENTS, &pieces), 3);
            prop_assert_eq!(count(LINES, &pieces), 7);
        }
    }

    #[test]
    fn a_stamp_split_over_two_reads_is_still_read() {
        let frame = format!("data: {{\"fake_sent_ns\":\"{:019}\"}}\n\n", provider::now_ns());
        let (mut cutter, mut delays) = (FrameCutter::new(EVENTS), Vec::new());
        for piece in frame.as_bytes().chunks(9) {
            cutter.push(piece, |frame| delays.push(frame.delay_ns));
        }
        assert!(matches!(delays[..], [Some(delay_ns)] if delay_ns < 10_000_000_000), "{delays:?}");
    }
}
