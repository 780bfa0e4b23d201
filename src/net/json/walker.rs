//! The walker: pulls one event after the other out of a document.
//!
//! ```text
//!            '{'            string          ':'
//!  Value ─────────▶ KeyOrEnd ─────▶ (Key event) ─▶ Value
//!    │ '['              '}' ▲ ','                    │
//!    └─▶ ValueOrEnd          └────── CommaOrEnd ◀────┘ scalar or end of a container; at depth 0: Finished
//! ```
//! Containers are one bit each in a 128-bit word: that is the whole stack.

use std::ops::Range;
use std::time::Instant;

use super::error::{JsonError, JsonErrorKind};
use super::scan::plain_len;
use super::text::{Text, code_point};

/// Deepest nesting of objects and arrays that is read. Chat bodies use about 10.
pub const DEPTH_MAX: u32 = 128;

/// What the walker saw.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Event<'a> {
    /// `{`
    ObjectStart,
    /// `}`
    ObjectEnd,
    /// `[`
    ArrayStart,
    /// `]`
    ArrayEnd,
    /// The key of a member; its value follows.
    Key(Text<'a>),
    /// A string value.
    Str(Text<'a>),
    /// A number as it is spelled; see [`integer`].
    Number(&'a str),
    /// `true` or `false`.
    Bool(bool),
    /// `null`
    Null,
}

/// What [`Walker::advance`] found. One byte, so that it comes back in a register: an [`Event`] handed through memory
/// costs more than reading it (partial stores followed by wide loads stall; half of the time per event).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    ObjectStart,
    ObjectEnd,
    ArrayStart,
    ArrayEnd,
    Key,
    Str,
    Number,
    True,
    False,
    Null,
    Finished,
    Broken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    Value,
    ValueOrEnd,
    KeyOrEnd,
    CommaOrEnd,
    Finished,
}

/// A cursor over one document. `Clone` is cheap and gives a look-ahead.
#[derive(Debug, Clone)]
pub struct Walker<'a> {
    source: &'a str,
    at: usize,
    start: usize,
    /// Bit n is set when the container at depth n is an object; the innermost one is bit 0.
    objects: u128,
    depth: u32,
    expect: Expect,
    /// The last key, string or number: what it says and where it starts.
    raw: &'a str,
    raw_start: usize,
    escaped: bool,
    fault: JsonError,
    /// From where on the clock is looked at, and until when there is time.
    clock_from: usize,
    until: Option<Instant>,
}

/// Bytes between two looks at the clock.
const CLOCK_STEP: usize = 64 << 10;

impl<'a> Walker<'a> {
    /// Starts at the first byte of a document.
    ///
    /// # Errors
    /// [`JsonErrorKind::Utf8`] when the bytes are not UTF-8.
    pub fn new(document: &'a [u8]) -> Result<Self, JsonError> {
        // The faster look does not say where the fault is.
        match simdutf8::basic::from_utf8(document).or_else(|_| simdutf8::compat::from_utf8(document)) {
            Ok(source) => Ok(Self::over(source)),
            Err(fault) => Err(JsonError { kind: JsonErrorKind::Utf8, at: fault.valid_up_to() }),
        }
    }

    /// Starts at the first byte of a document that is known to be UTF-8.
    pub const fn over(source: &'a str) -> Self {
        let fault = JsonError { kind: JsonErrorKind::End, at: 0 };
        let (expect, raw, start, raw_start) = (Expect::Value, "", 0, 0);
        let (clock_from, until, escaped) = (usize::MAX, None, false);
        Self { source, at: 0, start, objects: 0, depth: 0, expect, raw, raw_start, escaped, fault, clock_from, until }
    }

    /// The same, which ends with [`JsonErrorKind::Late`] when this instant has passed.
    #[must_use]
    pub const fn until(mut self, deadline: Option<Instant>) -> Self {
        self.until = deadline;
        if deadline.is_some() {
            self.clock_from = self.at + CLOCK_STEP;
        }
        self
    }

    /// Byte range of the last event: strings include their quotes, keys also the colon.
    pub const fn span(&self) -> Range<usize> {
        self.start..self.at
    }

    /// Containers open at this point.
    pub const fn depth(&self) -> u32 {
        self.depth
    }

    /// The next event; `None` once after a complete document.
    ///
    /// # Errors
    /// A [`JsonError`] when the document is not strict JSON; the walker stays at the fault.
    #[inline(always)]
    pub fn next_event(&mut self) -> Result<Option<Event<'a>>, JsonError> {
        Ok(Some(match self.advance() {
            Token::ObjectStart => Event::ObjectStart,
            Token::ObjectEnd => Event::ObjectEnd,
            Token::ArrayStart => Event::ArrayStart,
            Token::ArrayEnd => Event::ArrayEnd,
            Token::Key => Event::Key(self.text()),
            Token::Str => Event::Str(self.text()),
            Token::Number => Event::Number(self.raw),
            Token::True => Event::Bool(true),
            Token::False => Event::Bool(false),
            Token::Null => Event::Null,
            Token::Finished => return Ok(None),
            Token::Broken => return Err(self.fault),
        }))
    }

    const fn text(&self) -> Text<'a> {
        Text { raw: self.raw, start: self.raw_start, escaped: self.escaped }
    }

    fn advance(&mut self) -> Token {
        self.skip_space();
        self.start = self.at;
        if self.at >= self.clock_from && self.is_late() {
            return self.fail(JsonErrorKind::Late);
        }
        let byte = self.source.as_bytes().get(self.at).copied();
        match self.expect {
            Expect::CommaOrEnd => self.after_value(byte),
            Expect::Value => self.value(byte),
            Expect::ValueOrEnd if byte == Some(b']') => self.close(),
            Expect::ValueOrEnd => self.value(byte),
            Expect::KeyOrEnd if byte == Some(b'}') => self.close(),
            Expect::KeyOrEnd => self.key(byte),
            Expect::Finished if byte.is_none() => Token::Finished,
            Expect::Finished => self.fail(JsonErrorKind::Trailing),
        }
    }

    /// Reads to the end of the value that follows (after a key) or of the next element, and returns how it is spelled.
    /// `None` at the end of the enclosing container or document.
    ///
    /// # Errors
    /// As [`Walker::next_event`].
    pub fn next_raw(&mut self) -> Result<Option<&'a str>, JsonError> {
        let opened = self.depth;
        let first = self.advance();
        let start = self.start;
        match first {
            Token::Broken => return Err(self.fault),
            Token::Finished | Token::ObjectEnd | Token::ArrayEnd => return Ok(None),
            Token::ObjectStart | Token::ArrayStart => self.leave(opened)?,
            _ => {}
        }
        Ok(self.source.get(start..self.at))
    }

    /// The string that `raw`, as [`Walker::next_raw`] returned it, spells; `None` when it is no string.
    pub fn string_of(&self, raw: &'a str) -> Option<Text<'a>> {
        let inside = raw.strip_prefix('"')?.strip_suffix('"')?;
        let start = inside.as_ptr().addr() - self.source.as_ptr().addr();
        Some(Text { raw: inside, start, escaped: memchr::memchr(b'\\', inside.as_bytes()).is_some() })
    }

    /// Reads on until only `depth` containers are open: past the end of the container entered at that depth.
    ///
    /// # Errors
    /// As [`Walker::next_event`].
    pub fn leave(&mut self, depth: u32) -> Result<(), JsonError> {
        while self.depth > depth {
            if self.advance() == Token::Broken {
                return Err(self.fault);
            }
        }
        Ok(())
    }

    #[cold]
    fn is_late(&mut self) -> bool {
        let is_late = self.until.is_some_and(|until| Instant::now() >= until);
        if !is_late {
            self.clock_from = self.at + CLOCK_STEP;
        }
        is_late
    }

    fn after_value(&mut self, byte: Option<u8>) -> Token {
        match (byte, self.in_object()) {
            (Some(b','), in_object) => {
                self.at += 1;
                self.skip_space();
                self.start = self.at;
                let byte = self.source.as_bytes().get(self.at).copied();
                if in_object { self.key(byte) } else { self.value(byte) }
            }
            (Some(b'}'), true) | (Some(b']'), false) => self.close(),
            (None, _) => self.fail(JsonErrorKind::End),
            _ => self.fail(JsonErrorKind::Unexpected),
        }
    }

    #[inline]
    fn key(&mut self, byte: Option<u8>) -> Token {
        match byte {
            Some(b'"') => {}
            None => return self.fail(JsonErrorKind::End),
            Some(_) => return self.fail(JsonErrorKind::Unexpected),
        }
        if let Err(fault) = self.string() {
            return self.fail_at(fault);
        }
        self.skip_space();
        match self.source.as_bytes().get(self.at) {
            Some(b':') => self.at += 1,
            None => return self.fail(JsonErrorKind::End),
            Some(_) => return self.fail(JsonErrorKind::Unexpected),
        }
        self.expect = Expect::Value;
        Token::Key
    }

    fn value(&mut self, byte: Option<u8>) -> Token {
        let (token, outcome) = match byte {
            Some(b'"') => (Token::Str, self.string()),
            Some(b'{') => return self.open(true),
            Some(b'[') => return self.open(false),
            Some(b'-' | b'0'..=b'9') => (Token::Number, self.number()),
            Some(b't') => (Token::True, self.word("true")),
            Some(b'f') => (Token::False, self.word("false")),
            Some(b'n') => (Token::Null, self.word("null")),
            Some(b'+' | b'.' | b'N' | b'I') => return self.fail(JsonErrorKind::Number),
            Some(0xef) if self.source.get(self.at..).is_some_and(|rest| rest.starts_with('\u{feff}')) => {
                return self.fail(JsonErrorKind::ByteOrderMark);
            }
            None => return self.fail(JsonErrorKind::End),
            Some(_) => return self.fail(JsonErrorKind::Unexpected),
        };
        if let Err(fault) = outcome {
            return self.fail_at(fault);
        }
        self.expect = if self.depth == 0 { Expect::Finished } else { Expect::CommaOrEnd };
        token
    }

    fn open(&mut self, object: bool) -> Token {
        if self.depth >= DEPTH_MAX {
            return self.fail(JsonErrorKind::Depth);
        }
        self.at += 1;
        self.depth += 1;
        self.objects = self.objects << 1 | u128::from(object);
        self.expect = if object { Expect::KeyOrEnd } else { Expect::ValueOrEnd };
        if object { Token::ObjectStart } else { Token::ArrayStart }
    }

    fn close(&mut self) -> Token {
        let token = if self.in_object() { Token::ObjectEnd } else { Token::ArrayEnd };
        self.at += 1;
        self.depth -= 1;
        self.objects >>= 1;
        self.expect = if self.depth == 0 { Expect::Finished } else { Expect::CommaOrEnd };
        token
    }

    const fn in_object(&self) -> bool {
        self.objects & 1 == 1
    }

    fn string(&mut self) -> Result<(), JsonError> {
        let bytes = self.source.as_bytes();
        let start = self.at + 1;
        let mut at = start;
        let mut escaped = false;
        loop {
            at += plain_len(bytes.get(at..).unwrap_or_default());
            match bytes.get(at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    let used = match bytes.get(at + 1) {
                        Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Some(2),
                        Some(b'u') => bytes.get(at..).and_then(code_point).map(|(_, used)| used),
                        _ => None,
                    };
                    match used {
                        Some(used) => at += used,
                        None => return Err(JsonError { kind: JsonErrorKind::Escape, at }),
                    }
                }
                Some(_) => return Err(JsonError { kind: JsonErrorKind::Control, at }),
                None => return Err(JsonError { kind: JsonErrorKind::End, at }),
            }
        }
        self.at = at + 1;
        self.escaped = escaped;
        self.keep(start, at);
        Ok(())
    }

    /// Remembers the bytes of a string or number. Both ends are next to ASCII, so they are character boundaries.
    fn keep(&mut self, start: usize, end: usize) {
        self.raw = self.source.get(start..end).unwrap_or_default();
        self.raw_start = start;
    }

    fn number(&mut self) -> Result<(), JsonError> {
        let bytes = self.source.as_bytes();
        let digits = |at: usize| bytes.get(at..).unwrap_or_default().iter().take_while(|b| b.is_ascii_digit()).count();
        let fault = |at| JsonError { kind: JsonErrorKind::Number, at };
        let start = self.at;
        let mut at = start + usize::from(bytes.get(start) == Some(&b'-'));
        let whole = digits(at);
        if whole == 0 || (whole > 1 && bytes.get(at) == Some(&b'0')) {
            return Err(fault(at));
        }
        at += whole;
        if bytes.get(at) == Some(&b'.') {
            let fraction = digits(at + 1);
            if fraction == 0 {
                return Err(fault(at));
            }
            at += 1 + fraction;
        }
        if matches!(bytes.get(at), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
            let exponent = digits(at + 1 + sign);
            if exponent == 0 {
                return Err(fault(at));
            }
            at += 1 + sign + exponent;
        }
        self.at = at;
        self.keep(start, at);
        Ok(())
    }

    fn word(&mut self, word: &'static str) -> Result<(), JsonError> {
        let rest = self.source.as_bytes().get(self.at..).unwrap_or_default();
        if !rest.starts_with(word.as_bytes()) {
            return Err(JsonError { kind: JsonErrorKind::Unexpected, at: self.at });
        }
        self.at += word.len();
        Ok(())
    }

    fn skip_space(&mut self) {
        let bytes = self.source.as_bytes();
        while matches!(bytes.get(self.at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn fail(&mut self, kind: JsonErrorKind) -> Token {
        self.fail_at(JsonError { kind, at: self.at })
    }

    #[cold]
    fn fail_at(&mut self, fault: JsonError) -> Token {
        self.fault = fault;
        Token::Broken
    }
}

/// The value of a number that stands for a whole, non-negative count: `12`, `12.0`, `1.2e1`. `None` for others.
pub fn integer(spelled: &str) -> Option<u64> {
    if let Ok(whole) = spelled.parse() {
        return Some(whole);
    }
    let value: f64 = spelled.parse().ok()?;
    // 2^53: the largest range in which f64 holds every whole number.
    ((0.0..=9_007_199_254_740_992.0).contains(&value) && value.fract() == 0.0).then_some(value as u64)
}
