//! Folding: the text the patterns see, with a map back to the text the caller gave.
//!
//! ASCII passes untouched and uncopied. Elsewhere look-alikes become the ASCII letter they imitate, invisible
//! characters vanish, tag characters become readable, and other scripts are lower-cased. Invariants: the output is never
//! longer than four times the input, every output offset maps to a character boundary of the input, and one pass is
//! linear. Knows nothing of rules.

mod latin;

/// Where folded and original offsets drift apart: from `folded` on, original = `original + (at - folded)`.
#[derive(Debug, Clone, Copy)]
struct Drift {
    folded: u32,
    original: u32,
}

/// Buffers of one fold, kept between texts.
#[derive(Debug, Default)]
pub(crate) struct Folded {
    text: Vec<u8>,
    drifts: Vec<Drift>,
    same: bool,
    /// Invisible characters that were removed: zero-width, bidi controls, soft hyphens, variation selectors.
    pub(crate) hidden_count: u32,
    /// Tag characters (U+E0020 to U+E007E) made readable.
    pub(crate) tag_count: u32,
    /// Letters that imitate ASCII ones: full-width, mathematical, enclosed, foreign-script look-alikes.
    pub(crate) disguised_count: u32,
}

/// Longest text that is folded; longer ones are cut, because offsets are kept in 32 bits.
pub(crate) const TEXT_MAX: usize = u32::MAX as usize / 4;

enum Folding {
    Keep,
    /// Invisible and no part of honest text.
    Drop,
    /// Invisible to patterns but honest: combining marks, emoji selectors and joiners.
    Fade,
    Tag(u8),
    /// Plain typography: accents, quotes, dashes, spaces.
    Plain(u8),
    /// A letter dressed up as another one.
    Disguise(u8),
}

// === impl Folded ===

impl Folded {
    /// Folds `text`; afterwards [`Folded::bytes`] and [`Folded::original`] answer for it.
    pub(crate) fn fold(&mut self, text: &str) {
        self.text.clear();
        self.drifts.clear();
        self.hidden_count = 0;
        self.tag_count = 0;
        self.disguised_count = 0;
        self.same = text.is_ascii();
        if !self.same {
            self.fold_foreign(text);
        }
    }

    /// The folded text: `original` itself when nothing had to change.
    pub(crate) fn bytes<'a>(&'a self, original: &'a str) -> &'a [u8] {
        if self.same { original.as_bytes() } else { &self.text }
    }

    /// The half-open range of the original text that a folded range came from.
    pub(crate) fn original(&self, original: &str, start: usize, end: usize) -> (usize, usize) {
        let from = floor(original, self.offset(start));
        let last = floor(original, self.offset(end.max(start + 1) - 1));
        (from, ceil(original, last + 1))
    }

    /// Where the folded text has what stands at `at` in the original.
    pub(crate) fn folded(&self, at: usize) -> usize {
        let after = self.drifts.partition_point(|drift| drift.original as usize <= at);
        match after.checked_sub(1).and_then(|index| self.drifts.get(index)) {
            Some(drift) => drift.folded as usize + (at - drift.original as usize),
            None => at,
        }
    }

    /// Whether the text held invisible or look-alike characters (accents and typography do not count).
    pub(crate) fn is_disguised(&self) -> bool {
        self.hidden_count + self.tag_count + self.disguised_count > 0
    }

    fn offset(&self, at: usize) -> usize {
        let after = self.drifts.partition_point(|drift| drift.folded as usize <= at);
        match after.checked_sub(1).and_then(|index| self.drifts.get(index)) {
            Some(drift) => drift.original as usize + (at - drift.folded as usize),
            None => at,
        }
    }

    fn fold_foreign(&mut self, text: &str) {
        let bytes = text.as_bytes();
        let mut word = Word::default();
        let mut at = 0;
        let mut flag_emoji = false;
        while at < bytes.len() {
            let ascii = ascii_prefix(bytes.get(at..).unwrap_or_default());
            if ascii > 0 {
                self.text.extend_from_slice(bytes.get(at..at + ascii).unwrap_or_default());
                at += ascii;
                continue;
            }
            let Some(c) = text.get(at..).and_then(|rest| rest.chars().next()) else { break };
            let next = at + c.len_utf8();
            flag_emoji = c == '\u{1F3F4}' || (flag_emoji && ('\u{E0020}'..='\u{E007F}').contains(&c));
            let folding =
                if flag_emoji && c != '\u{1F3F4}' { Folding::Fade } else { self.folding(text, at, c, &mut word) };
            let before = self.text.len();
            match folding {
                Folding::Keep => self.keep(c),
                Folding::Drop => self.hidden_count += 1,
                Folding::Fade => {}
                Folding::Tag(byte) => {
                    self.tag_count += 1;
                    self.text.push(byte);
                }
                Folding::Plain(byte) => self.text.push(byte),
                Folding::Disguise(byte) => {
                    self.disguised_count += 1;
                    self.text.push(byte);
                }
            }
            if self.text.len() - before != next - at {
                self.drifts.push(Drift { folded: self.text.len() as u32, original: next as u32 });
            }
            at = next;
        }
    }

    fn keep(&mut self, c: char) {
        let mut buffer = [0; 4];
        let mut lower = c.to_lowercase();
        let c = match (lower.next(), lower.next()) {
            (Some(one), None) => one,
            _ => c,
        };
        self.text.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes());
    }

    fn folding(&self, text: &str, at: usize, c: char, word: &mut Word) -> Folding {
        let cp = c as u32;
        match cp {
            0xA0 | 0x1680 | 0x2000..=0x200A | 0x202F | 0x205F | 0x3000 => Folding::Plain(b' '),
            0x2028 | 0x2029 | 0x85 => Folding::Plain(b'\n'),
            0x2018 | 0x2019 | 0x201A | 0x201B | 0x2032 | 0x2039 | 0x203A => Folding::Plain(b'\''),
            0xAB | 0xBB | 0x201C..=0x201F | 0x2033 | 0x300C..=0x300F | 0x300A | 0x300B => Folding::Plain(b'"'),
            0x2010..=0x2015 | 0x2212 => Folding::Plain(b'-'),
            0xAD | 0x34F | 0x61C | 0x180B..=0x180F | 0x200B | 0x200E | 0x200F | 0x202A..=0x202E | 0x2060..=0x206F => {
                Folding::Drop
            }
            0x300..=0x36F | 0x1AB0..=0x1AFF | 0x1DC0..=0x1DFF | 0x20D0..=0x20FF | 0xFE20..=0xFE2F => Folding::Fade,
            // Half a surrogate pair is read as U+FFFD; whoever gets the text may drop it.
            0xFE00..=0xFE0F | 0x200C | 0x200D | 0xFFFD => Folding::Fade,
            0xFEFF | 0x1D173..=0x1D17A | 0xE0100..=0xE01EF | 0xE0001 | 0xE007F => Folding::Drop,
            0xE0020..=0xE007E => Folding::Tag((cp - 0xE0000) as u8),
            0xFF01..=0xFF5E => Folding::Disguise((cp - 0xFF01) as u8 + b'!'),
            0x1D400..=0x1D6A3 => {
                let letter = ((cp - 0x1D400) % 52) as u8;
                Folding::Disguise(if letter < 26 { b'A' + letter } else { b'a' + letter - 26 })
            }
            0x1D7CE..=0x1D7FF => Folding::Disguise(b'0' + ((cp - 0x1D7CE) % 10) as u8),
            0x24B6..=0x24CF => Folding::Disguise((cp - 0x24B6) as u8 + b'A'),
            0x24D0..=0x24E9 => Folding::Disguise((cp - 0x24D0) as u8 + b'a'),
            0x249C..=0x24B5 => Folding::Disguise((cp - 0x249C) as u8 + b'a'),
            0x2800 => Folding::Plain(b' '),
            0x2801..=0x283F => latin::braille(cp).map_or(Folding::Keep, Folding::Disguise),
            0x16A0..=0x16EA => latin::rune(c).map_or(Folding::Keep, Folding::Disguise),
            0x1F130..=0x1F149 => Folding::Disguise((cp - 0x1F130) as u8 + b'A'),
            0x1F150..=0x1F169 => Folding::Disguise((cp - 0x1F150) as u8 + b'A'),
            0x1F170..=0x1F189 => Folding::Disguise((cp - 0x1F170) as u8 + b'A'),
            0x1F1E6..=0x1F1FF => Folding::Disguise((cp - 0x1F1E6) as u8 + b'A'),
            _ => {
                if let Some(byte) = latin::accented(cp) {
                    Folding::Plain(byte)
                } else if let Some(byte) = latin::lettered(c) {
                    Folding::Disguise(byte)
                } else if let Some(byte) = latin::lookalike(c).filter(|_| word.is_mixed(text, at)) {
                    Folding::Disguise(byte)
                } else {
                    Folding::Keep
                }
            }
        }
    }
}

/// The ASCII letter that a character is or looks like.
pub(crate) fn to_latin(c: char) -> Option<u8> {
    match u8::try_from(c) {
        Ok(byte) if byte.is_ascii() => Some(byte),
        _ => latin::accented(c as u32).or_else(|| latin::lettered(c)).or_else(|| latin::lookalike(c)),
    }
}

/// The word around the character at hand: look-alikes of other scripts are folded only in words that also hold Latin
/// letters, so that honest Cyrillic and Greek stay what they are.
#[derive(Default)]
struct Word {
    end: usize,
    mixed: bool,
}

/// How far a word is looked at in either direction, in bytes.
const WORD_REACH: usize = 64;

impl Word {
    fn is_mixed(&mut self, text: &str, at: usize) -> bool {
        if at < self.end {
            return self.mixed;
        }
        let bytes = text.as_bytes();
        let glued = |byte: &&u8| byte.is_ascii_alphabetic() || !byte.is_ascii();
        let back = bytes.iter().take(at).rev().take(WORD_REACH).take_while(glued).count();
        let ahead = bytes.iter().skip(at).take(WORD_REACH).take_while(glued).count();
        self.end = at + ahead;
        let word = bytes.get(at - back..self.end).unwrap_or_default();
        let whole = || text.get(ceil(text, at - back)..floor(text, self.end)).unwrap_or_default();
        let dressed =
            |c: char| matches!(c, '\u{FF21}'..='\u{FF5A}' | '\u{1D400}'..='\u{1D7FF}' | '\u{24B6}'..='\u{24E9}');
        let has_latin = word.iter().any(u8::is_ascii_alphabetic) || whole().chars().any(dressed);
        let alone = || {
            // A whole word of look-alikes between Latin words, such as a lone Cyrillic article.
            let latin_before = bytes.iter().take(at - back).rev().take(12).any(u8::is_ascii_alphabetic);
            latin_before && !whole().is_empty() && whole().chars().all(|c| latin::lookalike(c).is_some())
        };
        self.mixed = has_latin || alone();
        self.mixed
    }
}

/// Bytes until the first one that is not ASCII.
fn ascii_prefix(bytes: &[u8]) -> usize {
    let blocks = bytes.chunks_exact(32).take_while(|block| block.is_ascii()).count() * 32;
    let rest = bytes.get(blocks..).unwrap_or_default();
    blocks + rest.iter().take_while(|byte| byte.is_ascii()).count()
}

/// The last character boundary at or before `at`.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// The first character boundary at or after `at`.
fn ceil(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn folded(text: &str) -> String {
        let mut folded = Folded::default();
        folded.fold(text);
        String::from_utf8_lossy(folded.bytes(text)).into_owned()
    }

    #[test]
    fn undoes_every_common_disguise() {
        for text in [
            "Ｉｇｎｏｒｅ",
            "𝐈𝐠𝐧𝐨𝐫𝐞",
            "I\u{200b}g\u{200b}n\u{200b}o\u{200b}r\u{200b}e",
            "Ignоrе",
            "Ⓘⓖⓝⓞⓡⓔ",
            "Ígnórè",
            "\u{E0049}\u{E0067}\u{E006E}\u{E006F}\u{E0072}\u{E0065}",
        ] {
            assert_eq!(folded(text), "Ignore", "{text:?}");
        }
        for text in ["⠊⠛⠝⠕⠗⠑", "ᛁᚷᚾᛟᚱᛖ", "⒤⒢⒩⒪⒭⒠"] {
            assert_eq!(folded(text), "ignore", "{text:?}");
        }
    }

    #[test]
    fn keeps_honest_cyrillic_but_lowers_it() {
        assert_eq!(folded("Забудь ВСЁ"), "забудь всё");
    }

    #[test]
    fn offsets_lead_back_to_whole_characters() {
        let text = "aＩb\u{200b}\u{200b}é世c";
        let mut folded = Folded::default();
        folded.fold(text);
        assert_eq!(folded.bytes(text), "aIbe世c".as_bytes());
        assert_eq!(folded.original(text, 1, 2), (1, 4));
        assert_eq!(folded.original(text, 3, 4), (11, 13));
        assert_eq!(folded.original(text, 4, 7), (13, 16));
        assert_eq!(folded.original(text, 7, 8), (16, 17));
    }

    #[test]
    fn a_flag_is_not_smuggled_text() {
        let mut folded = Folded::default();
        folded.fold("\u{1F3F4}\u{E0067}\u{E0062}\u{E007F} x");
        assert_eq!(folded.tag_count, 0);
    }

    proptest! {
        #[test]
        fn never_grows_fourfold_and_maps_inside(text in "\\PC{0,80}", a in 0usize..400, b in 0usize..400) {
            let mut folded = Folded::default();
            folded.fold(&text);
            let len = folded.bytes(&text).len();
            prop_assert!(len <= text.len() * 4);
            let (start, end) = (a.min(b).min(len), a.max(b).min(len));
            let (from, to) = folded.original(&text, start, end);
            prop_assert!(text.get(from..to).is_some());
        }
    }
}
