//! What the built-in detectors are made of: the rules of the binary and what goes with them, compiled once, and the decoding of what
//! is encoded in a text.

use std::ops::Range;
use std::sync::LazyLock;

use memchr::memmem;

use crate::decode::{
    Cipher, Ciphers, DECODE_MIN, HEAD_BYTES, NameKey, Next, Place, Run, Runs, Shown, Span, Vocabulary, WINDOW_AFTER,
    WINDOW_BEFORE, Way, decode_run, end_of_lines, is_plain, join_blocks, unscramble,
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
    key: NameKey,
}

/// Who is shown what was decoded.
pub(crate) trait Listener {
    /// Words, where they stood and how they were encoded. Says which ciphers give themselves away in them, or that it is enough.
    fn hear(&mut self, words: &[u8], span: Span, encoding: &'static str) -> Option<Ciphers>;

    /// How much it has said until now.
    fn said(&self) -> usize {
        0
    }

    /// A part of that is to be said of this place, too: the same words stood there.
    fn say_again(&mut self, _said: Range<usize>, _span: Span) {}
}

impl<F: FnMut(&[u8], Span, &'static str) -> Option<Ciphers>> Listener for F {
    fn hear(&mut self, words: &[u8], span: Span, encoding: &'static str) -> Option<Ciphers> {
        self(words, span, encoding)
    }
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
            key: NameKey::random(),
        })
    }

    /// Decodes what is encoded in a text, encodings inside it included, and shows it to `listener`. False when there was more to decode
    /// than may be.
    pub(crate) fn decode(
        &self,
        text: &[u8],
        runs: &[Run],
        ciphers: &Ciphers,
        plain: &mut [Vec<u8>],
        listener: &mut impl Listener,
    ) -> bool {
        let left = (BYTES_FREE + BYTES_PER_BYTE * text.len()).min(BYTES_MAX + 2 * text.len());
        let (vocabulary, shown) = (&self.vocabulary, Shown::new(self.key));
        let mut decoding = Decoding { vocabulary, left, exhausted: false, shown, listener };
        let mut ciphers = ciphers.clone();
        note_ascii85(text, &mut ciphers);
        note_parted(text, runs.iter().copied(), &mut ciphers);
        decoding.inside(text, runs.iter().copied(), (&ciphers, 0), None, plain);
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
struct Decoding<'a, L> {
    vocabulary: &'a Vocabulary,
    /// Bytes that may still be decoded.
    left: usize,
    exhausted: bool,
    shown: Shown,
    listener: &'a mut L,
}

impl<L: Listener> Decoding<'_, L> {
    /// Decodes what is encoded in `text`, which stands at `outer` of the whole text, or is it. Ciphers that `known` has were
    /// undone where `text` comes from. False when it was enough.
    fn inside(
        &mut self,
        text: &[u8],
        runs: impl Iterator<Item = Run>,
        (ciphers, known): (&Ciphers, u32),
        outer: Option<Place>,
        plain: &mut [Vec<u8>],
    ) -> bool {
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
            let place = outer.unwrap_or(Place { span: (run.start, end), is_run: true });
            if !self.show(buffer, place, encoding, 0, deeper) {
                return false;
            }
        }
        // Marks between letters may be part of a code, and part the words in it, too.
        let seen = ciphers.bits() & !Cipher::Parted.bit();
        let window = |span| outer.unwrap_or(Place { span, is_run: false });
        for (cipher, at) in ciphers.but(known).filter(|(cipher, _)| *cipher != Cipher::Announced) {
            let (from, to) = (at.saturating_sub(WINDOW_BEFORE), (at + WINDOW_AFTER).min(text.len()));
            let written = text.get(from..to).unwrap_or_default();
            cipher.decipher(written, self.vocabulary, buffer);
            // Nothing is parted there: that was told by a glance.
            if buffer.is_empty() {
                continue;
            }
            if !self.may_take(to - from) {
                return true;
            }
            // Most of a window around an escape or two is what it was: nobody reads that again.
            let Some((before, behind)) = unchanged(written, buffer) else { continue };
            let read = buffer.get(before..buffer.len() - behind).unwrap_or_default();
            if !self.show(read, window((from + before, to - behind)), cipher.name(), seen, deeper) {
                return false;
            }
        }
        // Where something is announced, and at the beginning in any case.
        if known != 0 {
            return true;
        }
        let mut announced = ciphers.places(Cipher::Announced).peekable();
        // Most texts say with their first words that they are plain.
        let head = (announced.peek().is_none() && !is_plain(text)).then_some((0, text.len().min(HEAD_BYTES)));
        let windows = announced.map(|at| (at.saturating_sub(WINDOW_BEFORE), (at + WINDOW_AFTER).min(text.len())));
        for (from, to) in windows.chain(head) {
            let window_text = text.get(from..to).unwrap_or_default();
            let mut joined = Vec::new();
            if join_blocks(window_text, &mut joined)
                && let Some(encoding) = decode_run(&joined, buffer)
                && self.may_take(to - from)
                && !self.show(buffer, window((from, to)), encoding, seen, deeper)
            {
                return false;
            }
            let Some((encoding, at)) = unscramble(text.get(from..to).unwrap_or_default(), buffer) else { continue };
            if !self.may_take(to - from) {
                return true;
            }
            if !self.show(buffer, window((from + at, to)), encoding, seen, deeper) {
                return false;
            }
        }
        true
    }

    /// Shows what was decoded, and what is encoded in that.
    fn show(
        &mut self,
        decoded: &[u8],
        place: Place,
        encoding: &'static str,
        known: u32,
        deeper: &mut [Vec<u8>],
    ) -> bool {
        let way = Way { place, deeper: deeper.len(), known };
        let name = match self.shown.next(decoded, way, self.listener.said()) {
            Next::Read(name) => name,
            Next::Say(said) => {
                self.listener.say_again(said, place.span);
                return true;
            }
            Next::Nothing => return true,
        };
        // What was encoded may be disguised, as what was not may be.
        let mut folded = Folded::default();
        let foreign = std::str::from_utf8(decoded).ok().filter(|text| !text.is_ascii());
        let decoded = foreign.inspect(|text| folded.fold(text)).map_or(decoded, |text| folded.bytes(text));
        let Some(mut ciphers) = self.listener.hear(decoded, place.span, encoding) else { return false };
        note_ascii85(decoded, &mut ciphers);
        let runs: Vec<Run> = Runs::new(decoded).collect();
        note_parted(decoded, runs.iter().copied(), &mut ciphers);
        let goes_on = self.inside(decoded, runs.into_iter(), (&ciphers, known), Some(place), deeper);
        self.shown.end(name, way, self.listener.said());
        goes_on
    }

    fn may_take(&mut self, bytes: usize) -> bool {
        self.exhausted |= self.left < bytes;
        self.left = self.left.saturating_sub(bytes);
        !self.exhausted
    }
}

/// Bytes beside what a cipher changed that are read with it: rules look as far.
const BESIDE: usize = 512;

/// How much of what was deciphered need not be read, before what is changed and behind it. `None` where nothing is.
fn unchanged(written: &[u8], read: &[u8]) -> Option<(usize, usize)> {
    if written == read {
        return None;
    }
    let same = |pairs: &mut dyn Iterator<Item = (&u8, &u8)>| pairs.take_while(|(a, b)| a == b).count();
    let before = same(&mut written.iter().zip(read));
    let rest = (written.get(before..)?, read.get(before..)?);
    let behind = same(&mut rest.0.iter().rev().zip(rest.1.iter().rev()));
    let (mut before, mut behind) = (before.saturating_sub(BESIDE), behind.saturating_sub(BESIDE));
    let is_inside = |byte: Option<&u8>| byte.is_some_and(|byte| byte & 0xC0 == 0x80);
    while before > 0 && is_inside(read.get(before)) {
        before -= 1;
    }
    while behind > 0 && is_inside(read.get(read.len() - behind)) {
        behind -= 1;
    }
    Some((before, behind))
}

/// Notes where marks may part the letters of words.
fn note_parted(text: &[u8], runs: impl Iterator<Item = Run>, ciphers: &mut Ciphers) {
    for run in runs {
        let is_separator = |byte: &&u8| matches!(byte, b'/' | b'+' | b'=' | b'-' | b'_' | b'.');
        let here = text.get(run.start..run.end).unwrap_or_default();
        // Every other byte of a run; a rule of dashes has no letters to be parted.
        let separators = here.iter().filter(is_separator).count();
        if separators * 5 >= here.len() * 2 && separators * 5 <= here.len() * 3 {
            ciphers.note(Cipher::Parted as usize, run.start);
        }
    }
}

/// Notes where ascii85 begins, which no literal tells of.
fn note_ascii85(text: &[u8], ciphers: &mut Ciphers) {
    if ciphers.places(Cipher::Ascii85).next().is_none() {
        ASCII85.find_iter(text).for_each(|at| ciphers.note(Cipher::Ascii85 as usize, at));
    }
}
