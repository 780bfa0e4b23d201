//! The words, numbers and signs of a short stretch of text, as far as an address may hold them. What no address holds (the end of a
//! sentence, brackets, code, an empty line) takes all before it away.

/// Most items of a stretch: no stretch is longer than twice that.
const ITEMS_MAX: usize = 128;
/// Longest word of a street.
const WORD_BYTES_MAX: usize = 40;
/// Longest abbreviation.
const SHORT_BYTES_MAX: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A word that begins with a capital, ...
    Capital,
    /// ... and one that does not.
    Small,
    /// `12`, `12b`, `12-14`, `12/3`.
    Number,
    /// `42nd`, `17.`
    Ordinal,
    /// A comma or the end of a line.
    Break,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) kind: Kind,
}

impl Item {
    /// Its letters, without the point of an abbreviation.
    pub(super) fn word<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        let word = text.get(self.start..self.end).unwrap_or_default();
        word.strip_suffix(b".").unwrap_or(word)
    }

    pub(super) fn has_point(&self, text: &[u8]) -> bool {
        text.get(self.start..self.end).is_some_and(|word| word.ends_with(b"."))
    }
}

#[derive(Debug)]
pub(super) struct Items {
    all: [Item; ITEMS_MAX],
    count: usize,
}

impl Items {
    /// Those of a stretch that end with it.
    pub(super) fn of(text: &[u8], (from, to): (usize, usize)) -> Self {
        let empty = Item { start: 0, end: 0, kind: Kind::Break };
        let mut items = Self { all: [empty; ITEMS_MAX], count: 0 };
        let text = text.get(..to).unwrap_or_default();
        let mut at = from;
        // The first word may have been cut.
        if from > 0 {
            at += text.get(from..).unwrap_or_default().iter().take_while(|byte| is_word(**byte)).count();
        }
        while let Some(byte) = text.get(at).copied() {
            at = match byte {
                b' ' | b'\t' | b'#' => at + 1,
                b',' | b';' | b'|' | b'\n' | b'\r' => items.end_of_line(text, at),
                b'-' if is_dash(text, at) => items.end_of_line(text, at),
                b'0'..=b'9' => items.number(text, at),
                _ if is_word(byte) => items.word(text, at),
                _ => items.nothing(at),
            };
        }
        items
    }

    pub(super) fn all(&self) -> &[Item] {
        self.all.get(..self.count).unwrap_or_default()
    }

    fn push(&mut self, start: usize, end: usize, kind: Kind) -> usize {
        if let Some(slot) = self.all.get_mut(self.count) {
            *slot = Item { start, end, kind };
            self.count += 1;
        }
        end
    }

    /// No address goes over this.
    const fn nothing(&mut self, at: usize) -> usize {
        self.count = 0;
        at + 1
    }

    fn end_of_line(&mut self, text: &[u8], at: usize) -> usize {
        let rest = text.get(at..).unwrap_or_default();
        let is_sign = |byte: &&u8| matches!(**byte, b',' | b';' | b'|' | b'\n' | b'\r' | b' ' | b'\t');
        let len = 1 + rest.iter().skip(1).take_while(is_sign).count();
        let signs = rest.get(..len).unwrap_or_default();
        if signs.iter().filter(|byte| **byte == b'\n').count() > 1 {
            self.count = 0;
        } else if self.count > 0 {
            self.push(at, at + len, Kind::Break);
        }
        at + len
    }

    fn number(&mut self, text: &[u8], at: usize) -> usize {
        let run = |from: usize, of: fn(&u8) -> bool| {
            text.get(from..).unwrap_or_default().iter().take_while(|byte| of(byte)).count()
        };
        let digits = run(at, u8::is_ascii_digit);
        let letters = run(at + digits, u8::is_ascii_alphabetic);
        let mut end = at + digits + letters;
        let suffix = text.get(at + digits..end).unwrap_or_default();
        if digits > 6 || letters > 3 {
            return self.nothing(end - 1);
        }
        let is_ordinal = ["st", "nd", "rd", "th"].iter().any(|known| suffix.eq_ignore_ascii_case(known.as_bytes()));
        if is_ordinal {
            return self.push(at, end, Kind::Ordinal);
        }
        // `17. Juni`
        if letters == 0 && digits <= 2 && text.get(end) == Some(&b'.') && matches!(text.get(end + 1), None | Some(b' '))
        {
            return self.push(at, end + 1, Kind::Ordinal);
        }
        // `3º`
        if letters == 0 && text.get(end..end + 2).is_some_and(|sign| matches!(sign, [0xc2, 0xaa | 0xb0 | 0xba])) {
            return self.push(at, end + 2, Kind::Number);
        }
        // `12-14`, `10/5`, `4/A`.
        for _ in 0..2 {
            let more = run(end + 1, u8::is_ascii_alphanumeric);
            if matches!(text.get(end), Some(b'-' | b'/')) && (1..=5).contains(&more) {
                end += 1 + more;
            }
        }
        if text.get(end).is_some_and(|byte| is_word(*byte)) {
            return self.nothing(end);
        }
        self.push(at, end, Kind::Number)
    }

    fn word(&mut self, text: &[u8], at: usize) -> usize {
        let byte = |at: usize| text.get(at).copied();
        let goes_on = |at: usize| byte(at).is_some_and(is_word);
        let mut end = at;
        let mut part = at;
        while let Some(here) = byte(end) {
            match here {
                _ if is_word(here) => end += 1,
                b'-' | b'\'' if goes_on(end + 1) => end += 1,
                // `P.O.`, `C.so`, `V.le`
                b'.' if end - part <= 2 && goes_on(end + 1) => {
                    end += 1;
                    part = end;
                }
                _ => break,
            }
        }
        if end - at > WORD_BYTES_MAX {
            return self.nothing(end);
        }
        let kind = if byte(at).is_some_and(|byte| byte.is_ascii_uppercase()) { Kind::Capital } else { Kind::Small };
        match byte(end) {
            Some(b'.') => {
                let word = text.get(at..end).unwrap_or_default();
                let is_short = end - at <= SHORT_BYTES_MAX
                    || word.last_chunk::<3>().is_some_and(|last| last.eq_ignore_ascii_case(b"str"));
                let is_end = matches!(byte(end + 1), None | Some(b' ' | b',' | b'\n' | b'\r' | b'0'..=b'9'));
                if is_short && is_end { self.push(at, end + 1, kind) } else { self.nothing(end) }
            }
            // `C/ Mayor`
            Some(b'/') if end - at == 1 => self.push(at, end + 1, kind),
            _ => self.push(at, end, kind),
        }
    }
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || !byte.is_ascii()
}

/// A dash between blanks.
fn is_dash(text: &[u8], at: usize) -> bool {
    at.checked_sub(1).and_then(|before| text.get(before)) == Some(&b' ')
        && matches!(text.get(at + 1), None | Some(b' '))
}
