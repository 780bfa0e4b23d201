//! The chunked transfer coding (RFC 9112 section 7.1), decoded incrementally.
//!
//! Invariant: any cut of the same input yields the same payload, the same end and the same error. Extensions and
//! trailers are skipped within bounds.

use super::WireError;

/// Bytes that extensions and trailers of one message may take together.
const SKIPPED_BYTES_MAX: usize = 16 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Size,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    TrailerStart,
    TrailerLine,
    TrailerLf,
    EndLf,
    Done,
}

/// Decoder of one chunked body.
#[derive(Debug, Clone)]
pub struct ChunkDecoder {
    state: State,
    left: u64,
    digits: u8,
    skipped: usize,
}

impl Default for ChunkDecoder {
    fn default() -> Self {
        Self::new()
    }
}

impl ChunkDecoder {
    /// A decoder that stands before the first chunk-size line.
    pub fn new() -> Self {
        Self { state: State::Size, left: 0, digits: 0, skipped: 0 }
    }

    /// Whether the last chunk and its trailer section have been read.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Decodes `input`, handing payload to `payload`. Returns how many bytes belong to this body; after the end the
    /// rest is the next message's.
    ///
    /// # Errors
    /// The coding is broken; the connection cannot be used again.
    pub fn decode(&mut self, input: &[u8], mut payload: impl FnMut(&[u8])) -> Result<usize, WireError> {
        let mut at = 0;
        while let Some(rest) = input.get(at..).filter(|rest| !rest.is_empty()) {
            match self.state {
                State::Done => break,
                State::Data => {
                    let take = usize::try_from(self.left).unwrap_or(usize::MAX).min(rest.len());
                    payload(&rest[..take]);
                    at += take;
                    self.left -= take as u64;
                    if self.left == 0 {
                        self.state = State::DataCr;
                    }
                }
                _ => {
                    self.step(rest[0])?;
                    at += 1;
                }
            }
        }
        Ok(at)
    }

    fn step(&mut self, byte: u8) -> Result<(), WireError> {
        self.state = match (self.state, byte) {
            (State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                if self.digits == 15 {
                    return Err(WireError("chunk size has more than 15 hex digits"));
                }
                self.digits += 1;
                self.left = self.left * 16 + u64::from((byte as char).to_digit(16).unwrap_or(0));
                State::Size
            }
            (State::Size, _) if self.digits == 0 => return Err(WireError("chunk size is empty")),
            (State::Size | State::Extension, b'\r') => State::SizeLf,
            (State::Size, b';' | b' ' | b'\t') => State::Extension,
            (State::Extension | State::TrailerStart | State::TrailerLine, b'\n') => {
                return Err(WireError("bare LF in a chunk line"));
            }
            (State::Extension, _) => self.skip(State::Extension)?,
            (State::SizeLf, b'\n') if self.left == 0 => State::TrailerStart,
            (State::SizeLf, b'\n') => State::Data,
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => {
                self.digits = 0;
                State::Size
            }
            (State::TrailerStart, b'\r') => State::EndLf,
            (State::TrailerLine, b'\r') => State::TrailerLf,
            (State::TrailerStart | State::TrailerLine, _) => self.skip(State::TrailerLine)?,
            (State::TrailerLf, b'\n') => State::TrailerStart,
            (State::EndLf, b'\n') => State::Done,
            _ => return Err(WireError("byte out of place in the chunked coding")),
        };
        Ok(())
    }

    fn skip(&mut self, state: State) -> Result<State, WireError> {
        self.skipped += 1;
        if self.skipped > SKIPPED_BYTES_MAX {
            return Err(WireError("chunk extensions and trailers are longer than 16 KiB"));
        }
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode_in(pieces: &[&[u8]]) -> Result<(Vec<u8>, usize, bool), WireError> {
        let (mut decoder, mut out, mut used) = (ChunkDecoder::new(), Vec::new(), 0);
        for piece in pieces {
            used += decoder.decode(piece, |data| out.extend_from_slice(data))?;
        }
        Ok((out, used, decoder.is_done()))
    }

    #[test]
    fn stops_at_the_end_and_leaves_the_next_message_alone() {
        let input = b"5;a=b\r\nhello\r\n1\r\n!\r\n0\r\nx: y\r\n\r\nGET / HTTP/1.1";
        assert_eq!(decode_in(&[input]), Ok((b"hello!".to_vec(), input.len() - 14, true)));
    }

    #[test]
    fn refuses_what_smugglers_send() {
        for bad in [&b"\r\n"[..], b"+5\r\n", b"5\nhello", b"5\r\nhelloX", b"0x5\r\n", b"1;\n", b"0\r\n\nx", b"0\r\nx\n"]
        {
            assert!(decode_in(&[bad]).is_err(), "{:?}", String::from_utf8_lossy(bad));
        }
        assert!(decode_in(&[b"1234567890abcdef"]).is_err(), "16 digits");
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_payload(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6),
                                          cut in any::<prop::sample::Index>()) {
            let mut coded = Vec::new();
            for chunk in &chunks {
                coded.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
                coded.extend_from_slice(chunk);
                coded.extend_from_slice(b"\r\n");
            }
            coded.extend_from_slice(b"0\r\n\r\n");
            let (left, right) = coded.split_at(cut.index(coded.len() + 1));
            prop_assert_eq!(decode_in(&[left, right]), Ok((chunks.concat(), coded.len(), true)));
        }

        #[test]
        fn never_panics(input in prop::collection::vec(any::<u8>(), 0..200)) {
            let _outcome = decode_in(&[&input]);
        }
    }
}
