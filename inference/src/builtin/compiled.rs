//! What the built-in detectors are made of: the rules of the binary and what goes with them, compiled once, and the decoding of what
//! is encoded in a text.

use std::sync::LazyLock;

use memchr::memmem;

use crate::decode::{
    Cipher, Ciphers, DECODE_MIN, HEAD_BYTES, Run, Runs, Vocabulary, WINDOW_AFTER, WINDOW_BEFORE, decode_run,
    end_of_lines, is_plain, unscramble,
};
use crate::definition::Guards;
use crate::fold::Folded;
use crate::frame::Frame;
use crate::rule_matcher::RuleMatcher;
use crate::rules::LoadError;

/// What the built-in detectors are made of, compiled once.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) matcher: RuleMatcher,
    pub(super) frame: Frame,
    pub(crate) guards: Guards,
    vocabulary: Vocabulary,
}

// === impl Compiled ===

impl Compiled {
    /// Compiles the rule files that are part of the binary.
    pub(crate) fn new() -> Result<Self, LoadError> {
        let loaded = crate::rules::builtin()?;
        Ok(Self {
            matcher: RuleMatcher::new(loaded.rules)?,
            frame: Frame::new()?,
            guards: Guards::new()?,
            vocabulary: loaded.vocabulary,
        })
    }

    /// Decodes what is encoded in a text, encodings inside it included. `each` is shown each result with its place and the
    /// name of the encoding; it says which ciphers give themselves away in there, or that it is enough. False when there was
    /// more to decode than may be.
    pub(crate) fn decode(
        &self,
        text: &[u8],
        runs: &[Run],
        ciphers: &Ciphers,
        plain: &mut [Vec<u8>],
        each: &mut impl FnMut(&[u8], (usize, usize), &'static str) -> Option<Ciphers>,
    ) -> bool {
        let left = (BYTES_FREE + BYTES_PER_BYTE * text.len()).min(BYTES_MAX + 2 * text.len());
        let mut decoding = Decoding { vocabulary: &self.vocabulary, left, exhausted: false, each };
        let mut ciphers = ciphers.clone();
        note_ascii85(text, &mut ciphers);
        decoding.inside(text, runs.iter().copied(), (&ciphers, &Ciphers::default()), None, plain);
        !decoding.exhausted
    }
}

/// Bytes that may be decoded of any text, however short.
const BYTES_FREE: usize = 8 << 10;
/// The same for each byte of a short text.
const BYTES_PER_BYTE: usize = 16;
/// Bytes that may be decoded of a long text, beside twice its length.
const BYTES_MAX: usize = 64 << 10;

/// What ascii85 begins with.
static ASCII85: LazyLock<memmem::Finder<'static>> = LazyLock::new(|| memmem::Finder::new("<~"));

/// The decoding of one text.
struct Decoding<'a, F> {
    vocabulary: &'a Vocabulary,
    /// Bytes that may still be decoded.
    left: usize,
    exhausted: bool,
    each: &'a mut F,
}

impl<F: FnMut(&[u8], (usize, usize), &'static str) -> Option<Ciphers>> Decoding<'_, F> {
    /// Decodes what is encoded in `text`, which stands at `outer` of the whole text, or is it. Ciphers that `known` has were
    /// undone where `text` comes from. False when it was enough.
    fn inside(
        &mut self,
        text: &[u8],
        runs: impl Iterator<Item = Run>,
        (ciphers, known): (&Ciphers, &Ciphers),
        outer: Option<(usize, usize)>,
        plain: &mut [Vec<u8>],
    ) -> bool {
        let fresh = known.is_empty();
        let Some((buffer, deeper)) = plain.split_first_mut() else { return true };
        let mut joined = 0;
        for run in runs.filter(|run| run.end - run.start >= DECODE_MIN) {
            if run.start < joined {
                continue;
            }
            let end = end_of_lines(text, run);
            joined = end;
            if !self.may_take(end - run.start) {
                return true;
            }
            let Some(encoding) = decode_run(text.get(run.start..end).unwrap_or_default(), buffer) else { continue };
            if !self.show(buffer, outer.unwrap_or((run.start, end)), encoding, &Ciphers::default(), deeper) {
                return false;
            }
        }
        for (cipher, at) in ciphers.but(known).filter(|(cipher, _)| *cipher != Cipher::Announced) {
            let (from, to) = (at.saturating_sub(WINDOW_BEFORE), (at + WINDOW_AFTER).min(text.len()));
            if !self.may_take(to - from) {
                return true;
            }
            cipher.decipher(text.get(from..to).unwrap_or_default(), self.vocabulary, buffer);
            if !self.show(buffer, outer.unwrap_or((from, to)), cipher.name(), ciphers, deeper) {
                return false;
            }
        }
        // Where something is announced, and at the beginning in any case.
        if !fresh {
            return true;
        }
        let announced = ciphers.places(Cipher::Announced).next();
        let (from, to) = match announced {
            Some(at) => (at.saturating_sub(WINDOW_BEFORE), (at + WINDOW_AFTER).min(text.len())),
            // Most texts say with their first words that they are plain.
            None if is_plain(text) => return true,
            None => (0, text.len().min(HEAD_BYTES)),
        };
        let Some((encoding, at)) = unscramble(text.get(from..to).unwrap_or_default(), buffer) else { return true };
        !self.may_take(to - from) || self.show(buffer, outer.unwrap_or((from + at, to)), encoding, ciphers, deeper)
    }

    /// Shows what was decoded, and what is encoded in that.
    fn show(
        &mut self,
        decoded: &[u8],
        span: (usize, usize),
        encoding: &'static str,
        known: &Ciphers,
        deeper: &mut [Vec<u8>],
    ) -> bool {
        // What was encoded may be disguised, as what was not may be.
        let mut folded = Folded::default();
        let foreign = std::str::from_utf8(decoded).ok().filter(|text| !text.is_ascii());
        let decoded = foreign.inspect(|text| folded.fold(text)).map_or(decoded, |text| folded.bytes(text));
        let Some(mut ciphers) = (self.each)(decoded, span, encoding) else { return false };
        note_ascii85(decoded, &mut ciphers);
        self.inside(decoded, Runs::new(decoded), (&ciphers, known), Some(span), deeper)
    }

    fn may_take(&mut self, bytes: usize) -> bool {
        self.exhausted |= self.left < bytes;
        self.left = self.left.saturating_sub(bytes);
        !self.exhausted
    }
}

/// Notes where ascii85 begins, which no literal tells of.
fn note_ascii85(text: &[u8], ciphers: &mut Ciphers) {
    if ciphers.places(Cipher::Ascii85).next().is_none() {
        ASCII85.find_iter(text).take_while(|at| ciphers.note(Cipher::Ascii85 as usize, *at)).for_each(drop);
    }
}
