//! Reads the frames of a WebSocket (RFC 6455) from a copy of its bytes, with `permessage-deflate` (RFC 7692).
//!
//! For: whoever wants to know what is said in one direction of a socket. Invariants: the messages do not depend on how the bytes were
//! cut; at most [`MESSAGE_BYTES_MAX`] bytes of a message are held, and a message is inflated to no more than that, nor to more than
//! [`RATIO_MAX`] times its size; linear in the bytes read; nothing here panics. Must not know: who speaks, what is in a message.

use flate2::{Decompress, FlushDecompress, Status};

/// Longest message that is read.
pub const MESSAGE_BYTES_MAX: usize = 8 << 20;
/// Room for a message that a reader keeps from one to the next.
const KEPT_BYTES_MAX: usize = 64 * 1024;
/// Most output per input byte; small messages of repeated text compress very well.
const RATIO_MAX: u64 = 1_000;
/// What a message may be inflated to in any case.
const RATIO_FREE_BYTES: u64 = 64 * 1024;
/// Working buffer of the inflater.
const STEP_BYTES: usize = 16 * 1024;
/// The end of a deflate block that a message is sent without (RFC 7692 section 7.2.1).
const BLOCK_END: [u8; 4] = [0, 0, 0xff, 0xff];

/// How messages of one direction are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Deflate {
    /// Each message begins with an empty window.
    pub resets: bool,
}

/// What a socket's extensions are, as the answer to its handshake names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extensions {
    /// None.
    None,
    /// `permessage-deflate`: from the client, from the server.
    Deflate(Deflate, Deflate),
    /// One that is not known here: frames cannot be read.
    Unknown,
}

impl Extensions {
    /// From the values of `Sec-WebSocket-Extensions`.
    pub fn read<'a>(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut found = Self::None;
        for extension in values.flat_map(|value| value.split(|byte| *byte == b',')) {
            let mut words = extension.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
            let name = words.next().unwrap_or_default();
            if name.is_empty() {
                continue;
            }
            if found != Self::None || !name.eq_ignore_ascii_case(b"permessage-deflate") {
                return Self::Unknown;
            }
            let (mut client, mut server) = (Deflate::default(), Deflate::default());
            for word in words {
                client.resets |= word.eq_ignore_ascii_case(b"client_no_context_takeover");
                server.resets |= word.eq_ignore_ascii_case(b"server_no_context_takeover");
            }
            found = Self::Deflate(client, server);
        }
        found
    }

    /// What reads the client's frames, and the server's; `None` where nobody can.
    pub fn readers(self) -> Option<(Frames, Frames)> {
        match self {
            Self::None => Some((Frames::new(None), Frames::new(None))),
            Self::Deflate(client, server) => Some((Frames::new(Some(client)), Frames::new(Some(server)))),
            Self::Unknown => None,
        }
    }
}

/// What has ended in the bytes that were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A message of text; see [`Frames::message`].
    Text {
        /// It came compressed.
        compressed: bool,
    },
    /// A message that is no text.
    Binary,
    /// A message that is too long, or cannot be inflated.
    Unread,
    /// A piece of a message, of which more is to come.
    Piece,
    /// A ping, a pong or a close.
    Control,
}

/// The bytes are no frames; nothing that follows can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoFrames;

#[derive(Clone, Copy)]
struct Head {
    opcode: u8,
    is_last: bool,
    left: u64,
    mask: Option<[u8; 4]>,
    masked: usize,
}

/// Reads the frames of one direction.
pub struct Frames {
    /// The beginning of a frame's head.
    head_bytes: [u8; 14],
    head_len: usize,
    head: Option<Head>,
    /// What has come of the message.
    message: Vec<u8>,
    /// The opcode of its first frame, and whether it is compressed.
    begun: Option<(u8, bool)>,
    overlong: bool,
    inflate: Option<Inflate>,
    deflate: Deflate,
    failed: bool,
}

struct Inflate {
    state: Decompress,
    /// The window is lost: nothing that follows can be inflated.
    lost: bool,
}

impl Frames {
    /// A reader at the beginning of a socket.
    pub fn new(deflate: Option<Deflate>) -> Self {
        Self {
            head_bytes: [0; 14],
            head_len: 0,
            head: None,
            message: Vec::new(),
            begun: None,
            overlong: false,
            inflate: deflate.map(|_| Inflate { state: Decompress::new(false), lost: false }),
            deflate: deflate.unwrap_or_default(),
            failed: false,
        }
    }

    /// The message that has just ended, inflated and without its masks.
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// Takes the message that has just ended.
    pub fn take_message(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.message)
    }

    /// Bytes that are held of a message that has not ended.
    pub const fn held_bytes(&self) -> usize {
        self.message.len()
    }

    /// Reads no more of the message that is under way: there is no room for it.
    pub fn leave_out(&mut self) {
        self.overlong = true;
        self.message = Vec::new();
        if let Some(inflate) = &mut self.inflate {
            inflate.lost |= !self.deflate.resets;
        }
    }

    /// Whether the next byte is the first of a frame that begins a message.
    pub const fn is_between(&self) -> bool {
        self.head.is_none() && self.head_len == 0 && self.begun.is_none()
    }

    /// Whether the next byte is the first of a frame.
    pub const fn is_between_frames(&self) -> bool {
        self.head.is_none() && self.head_len == 0
    }

    /// Reads up to the end of the next frame, and takes what was read from `bytes`; `None` where it has not ended in them.
    ///
    /// # Errors
    /// [`NoFrames`], from the first fault on for ever.
    pub fn next(&mut self, bytes: &mut &[u8]) -> Result<Option<Event>, NoFrames> {
        if self.failed {
            return Err(NoFrames);
        }
        let outcome = self.read(bytes);
        self.failed |= outcome.is_err();
        outcome
    }

    fn read(&mut self, bytes: &mut &[u8]) -> Result<Option<Event>, NoFrames> {
        if self.is_between() {
            // A socket must not keep the room of its largest message.
            if self.message.capacity() > KEPT_BYTES_MAX {
                self.message = Vec::new();
            }
            self.message.clear();
            self.overlong = false;
        }
        let mut head = match self.head {
            Some(head) => head,
            None => match self.read_head(bytes)? {
                Some(head) => head,
                None => return Ok(None),
            },
        };
        let take = usize::try_from(head.left).unwrap_or(usize::MAX).min(bytes.len());
        let (piece, rest) = bytes.split_at(take);
        *bytes = rest;
        head.left -= take as u64;
        // Bytes of control frames are nobody's text.
        if head.opcode < 8 {
            self.keep(&mut head, piece);
        }
        if head.left > 0 {
            self.head = Some(head);
            return Ok(None);
        }
        self.head = None;
        if head.opcode >= 8 {
            return Ok(Some(Event::Control));
        }
        if !head.is_last {
            return Ok(Some(Event::Piece));
        }
        let Some((opcode, compressed)) = self.begun.take() else { return Err(NoFrames) };
        if compressed && !self.inflated() || self.overlong {
            self.message = Vec::new();
            return Ok(Some(Event::Unread));
        }
        Ok(Some(if opcode == 1 { Event::Text { compressed } } else { Event::Binary }))
    }

    /// Reads the head of a frame, as far as it has come.
    fn read_head(&mut self, bytes: &mut &[u8]) -> Result<Option<Head>, NoFrames> {
        loop {
            let needed = needed(self.head_bytes.get(..self.head_len).unwrap_or_default());
            while self.head_len < needed {
                let Some((&first, rest)) = bytes.split_first() else { return Ok(None) };
                if let Some(slot) = self.head_bytes.get_mut(self.head_len) {
                    *slot = first;
                }
                self.head_len += 1;
                *bytes = rest;
            }
            if needed == self::needed(self.head_bytes.get(..self.head_len).unwrap_or_default()) {
                break;
            }
        }
        let held = self.head_bytes;
        let known = held.get(..self.head_len).unwrap_or_default();
        self.head_len = 0;
        let [first, second, ..] = held;
        let (opcode, is_last) = (first & 0x0f, first & 0x80 != 0);
        let (long, mask_at) = match second & 0x7f {
            126 => (known.get(2..4), 4),
            127 => (known.get(2..10), 10),
            _ => (None, 2),
        };
        let left = match long {
            Some(bytes) => bytes.iter().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte)),
            None => u64::from(second & 0x7f),
        };
        let mask = known.get(mask_at..mask_at + 4).and_then(|mask| mask.try_into().ok());
        // RSV2 and RSV3 belong to no extension that is known, RSV1 to the first frame of a compressed message.
        let compressed = first & 0x40 != 0;
        let is_control = opcode >= 8;
        let is_odd = first & 0x30 != 0
            || left >> 63 != 0
            || (is_control && (!is_last || second & 0x7f > 125 || compressed || opcode > 10))
            || (!is_control && opcode > 2)
            || (compressed && (self.inflate.is_none() || opcode == 0))
            || (opcode == 0 && self.begun.is_none())
            || (matches!(opcode, 1 | 2) && self.begun.is_some());
        if is_odd {
            return Err(NoFrames);
        }
        if matches!(opcode, 1 | 2) {
            self.begun = Some((opcode, compressed));
        }
        Ok(Some(Head { opcode, is_last, left, mask, masked: 0 }))
    }

    fn keep(&mut self, head: &mut Head, piece: &[u8]) {
        // A window goes on behind a message that is too long: its bytes are needed all the same, up to the bound.
        if self.message.len() + piece.len() > MESSAGE_BYTES_MAX {
            self.overlong = true;
            if let Some(inflate) = &mut self.inflate {
                inflate.lost |= !self.deflate.resets;
            }
        }
        if self.overlong {
            self.message = Vec::new();
            return;
        }
        let before = self.message.len();
        self.message.extend_from_slice(piece);
        if let Some(mask) = head.mask {
            let start = head.masked;
            for (at, byte) in self.message.get_mut(before..).unwrap_or_default().iter_mut().enumerate() {
                *byte ^= mask.get((start + at) & 3).copied().unwrap_or_default();
            }
            head.masked = (start + piece.len()) & 3;
        }
    }

    /// Inflates the message in its place. Whether it could be.
    fn inflated(&mut self) -> bool {
        let Some(inflate) = &mut self.inflate else { return false };
        if inflate.lost || self.overlong {
            return false;
        }
        if self.deflate.resets {
            inflate.state.reset(false);
        }
        self.message.extend_from_slice(&BLOCK_END);
        let room = RATIO_FREE_BYTES.max((self.message.len() as u64).saturating_mul(RATIO_MAX));
        let room = usize::try_from(room).unwrap_or(usize::MAX).min(MESSAGE_BYTES_MAX);
        let mut out = Vec::new();
        let mut step = vec![0; STEP_BYTES];
        let mut at = 0;
        loop {
            let (before_in, before_out) = (inflate.state.total_in(), inflate.state.total_out());
            let input = self.message.get(at..).unwrap_or_default();
            let status = inflate.state.decompress(input, &mut step, FlushDecompress::Sync);
            let read = usize::try_from(inflate.state.total_in() - before_in).unwrap_or(usize::MAX);
            let made = usize::try_from(inflate.state.total_out() - before_out).unwrap_or(usize::MAX);
            at += read;
            out.extend_from_slice(step.get(..made).unwrap_or_default());
            let stuck = read == 0 && made == 0;
            match status {
                Ok(Status::Ok | Status::BufError) if out.len() <= room => {
                    if at >= self.message.len() && made < STEP_BYTES || stuck {
                        break;
                    }
                }
                // A last block may end a message before its bytes do (RFC 7692 section 7.2.3.4). Of what is compressed behind it some
                // readers see nothing and others all: only the empty block that such a sender leaves is none of that.
                Ok(Status::StreamEnd) if out.len() <= room && is_empty_block(self.message.get(at..)) => {
                    inflate.state.reset(false);
                    break;
                }
                _ => {
                    inflate.lost = true;
                    return false;
                }
            }
        }
        self.message = out;
        true
    }
}

/// Whether what stands behind a last block is the end of a message and nothing else: at most the head of an empty block.
fn is_empty_block(rest: Option<&[u8]>) -> bool {
    let behind = rest.unwrap_or_default().strip_suffix(&BLOCK_END);
    matches!(behind, None | Some([] | [0]))
}

/// How long a frame's head is, as far as its first bytes tell.
const fn needed(known: &[u8]) -> usize {
    let [_, second, ..] = known else { return 2 };
    let mask = if *second & 0x80 != 0 { 4 } else { 0 };
    mask + match *second & 0x7f {
        126 => 4,
        127 => 10,
        _ => 2,
    }
}

/// A frame of text as a server sends it: not masked, not compressed.
pub fn text_frame(text: &[u8]) -> Vec<u8> {
    frame(1, text)
}

/// The same with bytes that are no text.
pub fn binary_frame(bytes: &[u8]) -> Vec<u8> {
    frame(2, bytes)
}

/// A frame that closes a socket.
pub fn close_frame(code: u16, reason: &str) -> Vec<u8> {
    let mut end = reason.len().min(120);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    let payload = [&code.to_be_bytes()[..], reason.get(..end).unwrap_or_default().as_bytes()].concat();
    frame(8, &payload)
}

fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0x80 | opcode];
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length @ 0..=125), _) => out.push(length),
        (_, Ok(length)) => {
            out.push(126);
            out.extend_from_slice(&length.to_be_bytes());
        }
        _ => {
            out.push(127);
            out.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        }
    }
    out.extend_from_slice(payload);
    out
}

#[cfg(test)]
mod tests {
    use flate2::{Compress, Compression, FlushCompress};
    use proptest::prelude::*;

    use super::*;

    /// A frame as a client sends it.
    fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = frame(first & 0x0f, payload);
        out[0] = first;
        let head = out.len() - payload.len();
        out[1] |= 0x80;
        let mask = [7, 99, 200, 31];
        out.splice(head..head, mask);
        for (at, byte) in out[head + 4..].iter_mut().enumerate() {
            *byte ^= mask[at & 3];
        }
        out
    }

    fn read(frames: &mut Frames, pieces: &[&[u8]]) -> Result<Vec<(Event, Vec<u8>)>, NoFrames> {
        let mut seen = Vec::new();
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() {
                if let Some(event) = frames.next(&mut rest)? {
                    let is_text = matches!(event, Event::Text { .. });
                    seen.push((event, if is_text { frames.message().to_vec() } else { Vec::new() }));
                }
            }
        }
        Ok(seen)
    }

    fn texts(frames: &mut Frames, bytes: &[u8]) -> Vec<String> {
        let seen = read(frames, &[bytes]).unwrap();
        seen.into_iter()
            .filter(|(event, _)| matches!(event, Event::Text { .. }))
            .map(|(_, text)| String::from_utf8(text).unwrap())
            .collect()
    }

    /// Compresses messages with one window.
    fn deflated(messages: &[&str], resets: bool) -> Vec<Vec<u8>> {
        let mut state = Compress::new(Compression::default(), false);
        let mut all = Vec::new();
        for message in messages {
            if resets {
                state.reset();
            }
            let mut out = Vec::with_capacity(message.len() + 1024);
            state.compress_vec(message.as_bytes(), &mut out, FlushCompress::Sync).unwrap();
            assert!(out.ends_with(&BLOCK_END));
            out.truncate(out.len() - 4);
            all.push(masked(0xc1, &out));
        }
        all
    }

    #[test]
    fn messages_in_pieces_with_controls_between_them_are_whole() {
        let bytes = [
            masked(0x01, b"Hel"),
            masked(0x89, b"ping"),
            masked(0x80, b"lo"),
            masked(0x82, b"\x01"),
            masked(0x88, b""),
        ]
        .concat();
        let seen = read(&mut Frames::new(None), &[&bytes]).unwrap();
        let kinds: Vec<Event> = seen.iter().map(|(event, _)| *event).collect();
        assert_eq!(
            kinds,
            [Event::Piece, Event::Control, Event::Text { compressed: false }, Event::Binary, Event::Control]
        );
        assert_eq!(seen[2].1, b"Hello");
    }

    #[test]
    fn what_the_server_sends_is_read_as_it_is_written() {
        for length in [0, 1, 125, 126, 65_535, 65_536, 100_000] {
            let text = "x".repeat(length);
            assert_eq!(texts(&mut Frames::new(None), &text_frame(text.as_bytes())), [text]);
        }
        assert_eq!(close_frame(1008, "no"), b"\x88\x04\x03\xf0no");
    }

    #[test]
    fn a_window_is_taken_over_or_begins_with_each_message() {
        let messages = ["the same words again and again", "the same words again and again", "and others"];
        for resets in [false, true] {
            let all = deflated(&messages, resets);
            assert_eq!(all[1].len() < all[0].len(), !resets, "the second is known");
            let mut frames = Frames::new(Some(Deflate { resets }));
            assert_eq!(texts(&mut frames, &all.concat()), messages);
        }
        // Not all messages need be compressed.
        let mixed = [deflated(&["one"], false).concat(), masked(0x81, b"two")].concat();
        assert_eq!(texts(&mut Frames::new(Some(Deflate::default())), &mixed), ["one", "two"]);
    }

    #[test]
    fn what_is_too_long_or_too_dense_is_not_read_and_what_follows_is() {
        let long = "x".repeat(MESSAGE_BYTES_MAX + 1);
        let bytes = [text_frame(long.as_bytes()), text_frame(b"after")].concat();
        let seen = read(&mut Frames::new(None), &[&bytes]).unwrap();
        assert_eq!((seen[0].0, seen[1].1.as_slice()), (Event::Unread, &b"after"[..]));
        let dense = deflated(&[&"0".repeat(MESSAGE_BYTES_MAX * 2), "after"], true).concat();
        let seen = read(&mut Frames::new(Some(Deflate { resets: true })), &[&dense]).unwrap();
        assert_eq!(seen[0].0, Event::Unread);
    }

    #[test]
    fn what_is_no_frame_is_refused_for_ever() {
        for bad in [
            &[0x83, 0x00][..],
            &[0x91, 0x00],
            &[0xc1, 0x00],
            &[0x09, 0x00],
            &[0x80, 0x00],
            &[0x89, 0x7e, 0, 0],
            b"HTTP/1.1 200 OK",
        ] {
            let mut frames = Frames::new(None);
            assert_eq!(read(&mut frames, &[bad]), Err(NoFrames), "{bad:?}");
            assert_eq!(read(&mut frames, &[&text_frame(b"x")]), Err(NoFrames));
        }
    }

    #[test]
    fn extensions_are_known_by_their_answer() {
        let read = |value: &str| Extensions::read([value.as_bytes()].into_iter());
        assert_eq!(read(""), Extensions::None);
        let takes_over = Deflate::default();
        assert_eq!(read("permessage-deflate; server_max_window_bits=15"), Extensions::Deflate(takes_over, takes_over));
        let resets = Deflate { resets: true };
        assert_eq!(read("permessage-deflate;client_no_context_takeover"), Extensions::Deflate(resets, takes_over));
        assert_eq!(read("x-webkit-deflate-frame"), Extensions::Unknown);
        assert!(read("x-webkit-deflate-frame").readers().is_none());
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter(
            messages in prop::collection::vec("[a-c]{0,300}", 1..6),
            pack in any::<bool>(),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let said: Vec<&str> = messages.iter().map(String::as_str).collect();
            let bytes = if pack {
                deflated(&said, false).concat()
            } else {
                said.iter().flat_map(|text| masked(0x81, text.as_bytes())).collect()
            };
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            let seen = read(&mut Frames::new(Some(Deflate::default())), &pieces).unwrap();
            let seen: Vec<String> = seen.into_iter().map(|(_, text)| String::from_utf8(text).unwrap()).collect();
            prop_assert_eq!(seen, messages);
        }

        #[test]
        fn any_bytes_are_read_to_their_end(bytes in prop::collection::vec(any::<u8>(), 0..2_000)) {
            for deflate in [None, Some(Deflate::default())] {
                let mut frames = Frames::new(deflate);
                let mut rest = bytes.as_slice();
                while !rest.is_empty() {
                    let before = rest.len();
                    match frames.next(&mut rest) {
                        Ok(Some(_)) => prop_assert!(rest.len() < before),
                        Ok(None) => prop_assert!(rest.is_empty()),
                        Err(NoFrames) => break,
                    }
                }
            }
        }
    }
}
