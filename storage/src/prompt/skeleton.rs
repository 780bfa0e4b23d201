//! A frame's JSON in pieces. The frame was cut out of JSON that has been read, so that nothing here reports what is wrong: reading
//! ends where it cannot go on. Linear in the frame's length.

use std::borrow::Cow;
use std::ops::Range;

use memchr::memmem;
use weir_config::vocab::frame::{TEXT, VALUE, VALUE_END, has_text};

/// A value of a frame's JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stretch {
    /// Where it stands in the JSON.
    pub(super) json: Range<usize>,
    /// Which of the frame's texts stand in it.
    pub(super) texts: Range<usize>,
}

/// Reads a frame's JSON from one value to the next.
pub(super) struct Cursor<'a> {
    json: &'a [u8],
    at: usize,
    texts: usize,
}

const fn is(mark: char, byte: u8) -> bool {
    byte == mark as u8
}

impl<'a> Cursor<'a> {
    pub(super) fn at(json: &'a str, stretch: &Stretch) -> Self {
        Self {
            json: json.as_bytes().get(..stretch.json.end).unwrap_or_default(),
            at: stretch.json.start,
            texts: stretch.texts.start,
        }
    }

    fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.json.get(self.at) {
            let is_space = matches!(byte, b' ' | b'\t' | b'\n' | b'\r') || is(VALUE, *byte) || is(VALUE_END, *byte);
            if !is_space {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    /// Steps over this byte, if it is the next one.
    fn take(&mut self, wanted: u8) -> bool {
        let found = self.peek() == Some(wanted);
        self.at += usize::from(found);
        found
    }

    /// Behind the quote that ends the string which begins here.
    fn skip_string(&mut self) {
        self.at += 1;
        while let Some(step) = memchr::memchr2(b'"', b'\\', self.json.get(self.at..).unwrap_or_default()) {
            self.at += step + 1;
            if self.json.get(self.at - 1) == Some(&b'"') {
                return;
            }
            self.at += 1;
        }
        self.at = self.json.len();
    }

    /// The value that begins here.
    pub(super) fn value(&mut self) -> Option<Stretch> {
        self.peek()?;
        let (start, first) = (self.at, self.texts);
        let mut depth = 0_usize;
        while let Some(byte) = self.json.get(self.at) {
            match byte {
                b'"' => self.skip_string(),
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' if depth == 0 => break,
                b'}' | b']' => {
                    depth -= 1;
                    self.at += 1;
                }
                b',' | b':' if depth == 0 => break,
                mark => {
                    self.texts += usize::from(has_text(char::from(*mark)));
                    self.at += 1;
                }
            }
            let is_whole =
                depth == 0 && self.json.get(self.at).is_none_or(|next| matches!(next, b',' | b'}' | b']' | b':'));
            if is_whole {
                break;
            }
        }
        (self.at > start).then_some(Stretch { json: start..self.at, texts: first..self.texts })
    }

    /// The members of the object that begins here, each with its key in quotes; a key that is a text has its mark.
    pub(super) fn members(mut self) -> Vec<(Stretch, Stretch)> {
        let mut all = Vec::new();
        if !self.take(b'{') {
            return all;
        }
        while self.peek().is_some_and(|byte| byte != b'}') {
            let Some(key) = self.value().filter(|_| self.take(b':')) else { break };
            let Some(value) = self.value() else { break };
            all.push((key, value));
            if !self.take(b',') {
                break;
            }
        }
        all
    }

    /// The elements of the array that begins here; `None` where none does.
    pub(super) fn elements(mut self) -> Option<Vec<Stretch>> {
        if !self.take(b'[') {
            return None;
        }
        let mut all = Vec::new();
        while self.peek().is_some_and(|byte| byte != b']') {
            all.extend(self.value());
            if !self.take(b',') {
                break;
            }
        }
        Some(all)
    }
}

/// The JSON of one segment as it is compared, and the texts that stand in it, in order.
pub(super) struct Skeleton<'a> {
    pub(super) json: Cow<'a, str>,
    pub(super) texts: Cow<'a, [Range<u32>]>,
}

const CACHE_CONTROL: &[u8] = b"\"cache_control\"";

/// Whether a piece of a body asks for caching.
pub(super) fn asks_for_cache(json: &str) -> bool {
    memmem::find(json.as_bytes(), CACHE_CONTROL).is_some()
}

impl<'a> Skeleton<'a> {
    /// Leaves out what says what to cache: it moves on with each turn and is no part of the prompt. A text in a list of its own, as
    /// which clients send a message that they mark, is that text.
    pub(super) fn of(json: &'a str, texts: &'a [Range<u32>], stretch: &Stretch) -> Self {
        let whole = json.get(stretch.json.clone()).unwrap_or_default();
        let own = texts.get(stretch.texts.clone()).unwrap_or_default();
        let mut skeleton = Self { json: Cow::Borrowed(whole), texts: Cow::Borrowed(own) };
        if asks_for_cache(whole) {
            skeleton.leave_out_marks();
        }
        skeleton.unwrap_texts();
        skeleton
    }

    fn leave_out_marks(&mut self) {
        let json = std::mem::take(&mut self.json);
        let (mut kept, mut texts, mut done, mut read) = (String::with_capacity(json.len()), Vec::new(), 0, 0);
        let take_texts = |upto: usize, from: usize| {
            json.get(from..upto).unwrap_or_default().chars().filter(|c| has_text(*c)).count()
        };
        for at in memmem::find_iter(json.as_bytes(), CACHE_CONTROL) {
            if at < done {
                continue;
            }
            let rest = Stretch { json: at..json.len(), texts: 0..0 };
            let mut cursor = Cursor::at(&json, &rest);
            let Some(value) = cursor.value().filter(|_| cursor.take(b':')).and_then(|_| cursor.value()) else { break };
            let before = json.get(done..at).unwrap_or_default();
            let (before, end) = match before.trim_end().strip_suffix(',') {
                Some(before) => (before, cursor.at),
                None => (before, if cursor.take(b',') { cursor.at } else { value.json.end }),
            };
            kept.push_str(before);
            let here = take_texts(at, done);
            texts.extend(self.texts.get(read..read + here).unwrap_or_default().iter().cloned());
            read += here + take_texts(end, at);
            done = end;
        }
        kept.push_str(json.get(done..).unwrap_or_default());
        texts.extend(self.texts.get(read..).unwrap_or_default().iter().cloned());
        (self.json, self.texts) = (Cow::Owned(kept), Cow::Owned(texts));
    }

    fn unwrap_texts(&mut self) {
        let (from, to) = (format!("[{{\"type\":\"text\",\"text\":{TEXT}}}]"), TEXT.to_string());
        if memmem::find(self.json.as_bytes(), from.as_bytes()).is_some() {
            self.json = Cow::Owned(self.json.replace(&from, &to));
        }
    }

    /// The pieces that are compared, in order: JSON as it stands, and texts.
    pub(super) fn pieces<'b>(&'b self, prompt: &'b str) -> impl Iterator<Item = Piece<'b>> + 'b {
        let mut rest = &*self.json;
        let mut texts = self.texts.iter();
        std::iter::from_fn(move || {
            loop {
                if rest.is_empty() {
                    return None;
                }
                let to = rest.find(weir_config::vocab::frame::is_mark).unwrap_or(rest.len());
                if to > 0 {
                    let (plain, behind) = rest.split_at(to);
                    rest = behind;
                    return Some(Piece::Json(plain));
                }
                let mark = rest.chars().next().unwrap_or(VALUE);
                rest = rest.get(mark.len_utf8()..).unwrap_or_default();
                if has_text(mark) {
                    let range = texts.next().cloned().unwrap_or_default();
                    return Some(Piece::Text(prompt.get(range.start as usize..range.end as usize).unwrap_or_default()));
                }
            }
        })
    }
}

/// A piece of what is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Piece<'a> {
    /// JSON as it stands in the body.
    Json(&'a str),
    /// A text, which stands there as a string.
    Text(&'a str),
}
