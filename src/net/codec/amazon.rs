//! Cuts an Amazon event stream (`application/vnd.amazon.eventstream`) into messages, and writes messages of one.
//!
//! ```text
//! total length u32 | headers' length u32 | CRC-32 of these 8 bytes | headers | payload | CRC-32 of all before
//! ```
//! Numbers are big-endian. Invariants: the messages do not depend on how the bytes were cut; at most
//! [`FRAME_BYTES_MAX`] bytes of an unfinished message are held, longer ones are skipped and counted; a message whose
//! checksum is wrong, or that ends early, is not read; after a wrong checksum of the lengths nothing is, because nobody
//! knows where the next message begins. Must not know: what is in a payload.

/// Longest message kept: 1 MiB.
pub const FRAME_BYTES_MAX: usize = 1 << 20;
/// The two lengths and their checksum.
pub const PRELUDE_BYTES: usize = 12;
/// A checksum.
const CRC_BYTES: usize = 4;

/// Reads messages that may arrive in pieces.
#[derive(Default)]
pub struct MessageStream {
    /// The beginning of a message whose end has not come.
    held: Vec<u8>,
    /// Bytes left of a message that is too long.
    skip: usize,
    lost: bool,
    /// Messages whose checksum was wrong.
    broken: u32,
    dropped: u32,
}

/// One message whose checksums are right.
pub struct Message<'a> {
    /// `:event-type`: what the payload is.
    pub event: Option<&'a str>,
    /// `:exception-type`, or `:error-code`: the stream ended by an error.
    pub error: Option<&'a str>,
    /// `:error-message`, where the error has no payload.
    pub error_message: Option<&'a str>,
    /// The content; JSON in the streams of model calls.
    pub payload: &'a [u8],
}

impl MessageStream {
    /// Calls `each` for every message that ends in `bytes`.
    pub fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(Message<'_>)) {
        while !bytes.is_empty() && !self.lost {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = bytes.get(skipped..).unwrap_or_default();
            bytes = self.hold(bytes, PRELUDE_BYTES);
            if self.held.len() < PRELUDE_BYTES {
                return;
            }
            let Some(total) = total_bytes(&self.held) else {
                self.lost = true;
                self.held = Vec::new();
                return;
            };
            if total > FRAME_BYTES_MAX {
                self.dropped = self.dropped.saturating_add(1);
                self.skip = total - self.held.len();
                self.held.clear();
                continue;
            }
            bytes = self.hold(bytes, total);
            if self.held.len() == total {
                match message(&self.held) {
                    Some(message) => each(message),
                    None => self.broken = self.broken.saturating_add(1),
                }
                self.held.clear();
            }
        }
    }

    /// Takes of `bytes` what is missing to `wanted` held ones; returns the rest.
    fn hold<'a>(&mut self, bytes: &'a [u8], wanted: usize) -> &'a [u8] {
        let missing = wanted.saturating_sub(self.held.len()).min(bytes.len());
        let (taken, rest) = bytes.split_at_checked(missing).unwrap_or((bytes, &[]));
        self.held.extend_from_slice(taken);
        rest
    }

    /// Messages that could not be read.
    pub const fn broken(&self) -> u32 {
        self.broken
    }

    /// Messages skipped because they were too long.
    pub const fn dropped(&self) -> u32 {
        self.dropped
    }

    /// Whether the rest of the stream could not be cut any more.
    pub const fn is_lost(&self) -> bool {
        self.lost
    }
}

fn crc(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(..4)?.try_into().ok()?))
}

/// How long the message is that begins like this; `None` when the lengths cannot be right.
pub fn total_bytes(prelude: &[u8]) -> Option<usize> {
    let (lengths, rest) = prelude.split_at_checked(PRELUDE_BYTES - CRC_BYTES)?;
    let total = usize::try_from(number(lengths)?).ok()?;
    let headers = usize::try_from(number(lengths.get(4..)?)?).ok()?;
    let least = headers.checked_add(PRELUDE_BYTES + CRC_BYTES)?;
    (number(rest)? == crc(lengths) && total >= least).then_some(total)
}

/// Reads a whole message; `None` when its checksum is wrong or its headers cannot be read.
pub fn message(bytes: &[u8]) -> Option<Message<'_>> {
    let (checked, checksum) = bytes.split_at_checked(bytes.len().checked_sub(CRC_BYTES)?)?;
    if number(checksum)? != crc(checked) {
        return None;
    }
    let headers_bytes = usize::try_from(number(checked.get(4..)?)?).ok()?;
    let (mut headers, payload) = checked.get(PRELUDE_BYTES..)?.split_at_checked(headers_bytes)?;
    let mut message = Message { event: None, error: None, error_message: None, payload };
    while !headers.is_empty() {
        let header = header(headers)?;
        headers = header.rest;
        let text = header.value.and_then(|value| std::str::from_utf8(value).ok());
        match header.name {
            b":event-type" => message.event = text,
            b":exception-type" | b":error-code" => message.error = text,
            b":error-message" => message.error_message = text,
            _ => {}
        }
    }
    Some(message)
}

/// A message with these headers, all of them texts of less than 64 KiB under names of less than 256 bytes.
pub fn encode(headers: &[(&str, &str)], payload: &[u8]) -> Vec<u8> {
    let mut fields = Vec::new();
    for (name, value) in headers {
        fields.push(u8::try_from(name.len()).unwrap_or_default());
        fields.extend_from_slice(name.as_bytes());
        fields.push(7);
        fields.extend_from_slice(&u16::try_from(value.len()).unwrap_or_default().to_be_bytes());
        fields.extend_from_slice(value.as_bytes());
    }
    sealed(&fields, payload)
}

/// A whole message with another payload; `None` where its headers cannot be found.
pub fn with_payload(message: &[u8], payload: &[u8]) -> Option<Vec<u8>> {
    let headers_bytes = usize::try_from(number(message.get(4..)?)?).ok()?;
    let fields = message.get(PRELUDE_BYTES..PRELUDE_BYTES.checked_add(headers_bytes)?)?;
    Some(sealed(fields, payload))
}

/// A message with its lengths and checksums.
fn sealed(fields: &[u8], payload: &[u8]) -> Vec<u8> {
    let total = PRELUDE_BYTES + fields.len() + payload.len() + CRC_BYTES;
    let mut out = u32::try_from(total).unwrap_or_default().to_be_bytes().to_vec();
    out.extend_from_slice(&u32::try_from(fields.len()).unwrap_or_default().to_be_bytes());
    out.extend_from_slice(&crc(&out).to_be_bytes());
    out.extend_from_slice(fields);
    out.extend_from_slice(payload);
    let checksum = crc(&out);
    out.extend_from_slice(&checksum.to_be_bytes());
    out
}

struct Header<'a> {
    name: &'a [u8],
    /// The value, if it is text.
    value: Option<&'a [u8]>,
    /// What follows it.
    rest: &'a [u8],
}

/// Reads the first header.
fn header(bytes: &[u8]) -> Option<Header<'_>> {
    let (&length, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(length))?;
    let (&kind, rest) = rest.split_first()?;
    let fixed = match kind {
        // True and false have no bytes of their own.
        0 | 1 => 0,
        2 => 1,
        3 => 2,
        4 => 4,
        // A number or a time.
        5 | 8 => 8,
        // A UUID.
        9 => 16,
        // Bytes or a text, with their length before them.
        6 | 7 => {
            let length = u16::from_be_bytes(rest.get(..2)?.try_into().ok()?);
            let (value, rest) = rest.get(2..)?.split_at_checked(usize::from(length))?;
            return Some(Header { name, value: (kind == 7).then_some(value), rest });
        }
        _ => return None,
    };
    Some(Header { name, value: None, rest: rest.get(fixed..)? })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn event(name: &str, payload: &str) -> Vec<u8> {
        encode(&[(":event-type", name), (":message-type", "event")], payload.as_bytes())
    }

    #[derive(Debug, PartialEq, Default)]
    struct Seen {
        messages: Vec<String>,
        broken: u32,
        dropped: u32,
        lost: bool,
    }

    fn read(pieces: &[&[u8]]) -> Seen {
        let (mut stream, mut messages) = (MessageStream::default(), Vec::new());
        for piece in pieces {
            stream.feed(piece, |message| {
                let payload = String::from_utf8_lossy(message.payload);
                messages.push(format!("{:?} {:?} {payload}", message.event, message.error));
            });
            assert!(stream.held.len() <= FRAME_BYTES_MAX);
        }
        Seen { messages, broken: stream.broken(), dropped: stream.dropped(), lost: stream.is_lost() }
    }

    #[test]
    fn reads_the_published_example() {
        // From the description of the encoding: one header, `event-type: {}`, checksums as given there.
        let empty = [0, 0, 0, 16, 0, 0, 0, 0, 5, 194, 72, 235, 125, 152, 200, 255];
        assert_eq!(read(&[&empty]).messages, ["None None "]);
    }

    #[test]
    fn every_kind_of_header_is_passed_over() {
        let mut fields = vec![1, b'a', 0, 1, b'b', 1, 1, b'c', 2, 9, 1, b'd', 3, 9, 9, 1, b'e', 4, 9, 9, 9, 9];
        fields.extend_from_slice(&[1, b'f', 5, 1, 2, 3, 4, 5, 6, 7, 8, 1, b'g', 6, 0, 2, 9, 9]);
        fields.extend_from_slice(&[1, b'h', 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, b'i', 9]);
        fields.extend_from_slice(&[0; 16]);
        fields.extend_from_slice(&[11]);
        fields.extend_from_slice(b":event-type");
        fields.extend_from_slice(&[7, 0, 1, b'x']);
        assert_eq!(read(&[&sealed(&fields, b"{}")]).messages, ["Some(\"x\") None {}"]);
        let unknown = sealed(&[1, b'a', 10, 0], b"{}");
        assert_eq!(read(&[&unknown]), Seen { broken: 1, ..Seen::default() });
    }

    #[test]
    fn a_wrong_checksum_costs_the_message_and_wrong_lengths_the_rest() {
        let mut stream = [event("a", "one"), event("b", "two"), event("c", "three")].concat();
        let first = event("a", "one").len();
        stream[first + 40] ^= 1;
        let seen = read(&[&stream]);
        assert_eq!((seen.messages.len(), seen.broken, seen.lost), (2, 1, false));
        stream[first + 2] ^= 1;
        let seen = read(&[&stream]);
        assert_eq!((seen.messages.len(), seen.broken, seen.lost), (1, 0, true));
        // Lengths that contradict each other are wrong with a right checksum, too.
        let mut short = 15_u32.to_be_bytes().to_vec();
        short.extend_from_slice(&0_u32.to_be_bytes());
        let checksum = crc(&short).to_be_bytes();
        short.extend_from_slice(&checksum);
        assert!(read(&[&short]).lost);
    }

    #[test]
    fn drops_what_is_over_the_bound_and_goes_on() {
        let long = event("long", &"x".repeat(FRAME_BYTES_MAX));
        let stream = [event("a", "1"), long, event("b", "2")].concat();
        let pieces: Vec<&[u8]> = stream.chunks(1000).collect();
        for seen in [read(&[&stream]), read(&pieces)] {
            assert_eq!((seen.messages.len(), seen.dropped, seen.lost), (2, 1, false));
        }
    }

    proptest! {
        #[test]
        fn cuts_do_not_matter(
            bodies in proptest::collection::vec("[a-z]{0,40}", 0..6), flip in any::<prop::sample::Index>(), spoil in any::<bool>(),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6), single in any::<bool>(),
        ) {
            let mut bytes: Vec<u8> = bodies.iter().flat_map(|body| event("e", body)).collect();
            if spoil && !bytes.is_empty() {
                let at = flip.index(bytes.len());
                bytes[at] ^= 0x10;
            }
            let pieces: Vec<&[u8]> = if single {
                bytes.chunks(1).collect()
            } else {
                let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
                cuts.extend([0, bytes.len()]);
                cuts.sort_unstable();
                cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect()
            };
            let whole = read(&[&bytes]);
            prop_assert!(spoil || whole.messages.len() == bodies.len());
            prop_assert_eq!(read(&pieces), whole);
        }
    }
}
