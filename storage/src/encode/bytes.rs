//! The small building blocks of a stored body: numbers in one buffer, text in another.
//!
//! Whatever `Packer` writes, `Unpacker` reads back in the same order; an `Unpacker` never panics and never allocates more
//! than its input can justify, because a body may come from a damaged file.

use uuid::Uuid;

use super::Damaged;

/// Collects numbers (`head`) and text (`text`); both buffers are reused from row to row.
#[derive(Default)]
pub(super) struct Packer {
    pub(super) head: Vec<u8>,
    pub(super) text: Vec<u8>,
}

impl Packer {
    pub(super) fn clear(&mut self) {
        self.head.clear();
        self.text.clear();
    }

    pub(super) fn byte(&mut self, value: u8) {
        self.head.push(value);
    }

    pub(super) fn varint(&mut self, value: u64) {
        put_varint(&mut self.head, value);
    }

    /// Signed numbers near zero stay short.
    pub(super) fn zigzag(&mut self, value: i64) {
        self.varint(((value << 1) ^ (value >> 63)).cast_unsigned());
    }

    pub(super) fn uuid(&mut self, id: Uuid) {
        self.head.extend_from_slice(id.as_bytes());
    }

    /// Bit-exact. Multiples of a thousandth, which times in milliseconds are, and of a billionth, which costs are, take 2 to 5 bytes
    /// instead of 9.
    pub(super) fn float(&mut self, value: f64) {
        let (thousandths, billionths) = ((value * 1e3).round(), (value * 1e9).round());
        if value.is_sign_positive() && thousandths < 9e15 && (thousandths / 1e3).to_bits() == value.to_bits() {
            self.varint((thousandths as u64) << 1);
        } else if (1.0..3e10).contains(&billionths) && (billionths / 1e9).to_bits() == value.to_bits() {
            self.varint((billionths as u64) << 1 | 1);
        } else {
            self.byte(1);
            self.head.extend_from_slice(&value.to_le_bytes());
        }
    }

    pub(super) fn text(&mut self, text: &str) {
        self.varint(text.len() as u64);
        self.text.extend_from_slice(text.as_bytes());
    }

    /// A text, the value as JSON.
    pub(super) fn json(&mut self, value: &serde_json::Value) {
        let before = self.text.len();
        // A value made of names and numbers always has a form, and a buffer in memory takes it.
        let _never = serde_json::to_writer(&mut self.text, value).is_err();
        self.varint((self.text.len() - before) as u64);
    }

    pub(super) fn optional<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T)) {
        match value {
            None => self.byte(0),
            Some(value) => {
                self.byte(1);
                put(self, value);
            }
        }
    }

    pub(super) fn optional_text(&mut self, text: Option<&str>) {
        match text {
            None => self.byte(0),
            Some(text) => {
                self.varint(text.len() as u64 + 1);
                self.text.extend_from_slice(text.as_bytes());
            }
        }
    }

    pub(super) fn pairs<'a>(&mut self, pairs: impl ExactSizeIterator<Item = (&'a str, &'a str)>) {
        self.varint(pairs.len() as u64);
        for (key, value) in pairs {
            self.text(key);
            self.text(value);
        }
    }
}

/// LEB128.
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a LEB128 number off the front of `bytes`.
pub(super) fn take_varint(bytes: &mut &[u8]) -> Result<u64, Damaged> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or(Damaged)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(Damaged)
}

/// Reads what a [`Packer`] wrote.
pub(super) struct Unpacker<'a> {
    head: &'a [u8],
    text: &'a str,
}

impl<'a> Unpacker<'a> {
    pub(super) fn new(head: &'a [u8], text: &'a [u8]) -> Result<Self, Damaged> {
        Ok(Self { head, text: str::from_utf8(text).map_err(|_| Damaged)? })
    }

    /// Nothing may be left over.
    pub(super) fn finish(self) -> Result<(), Damaged> {
        if self.head.is_empty() && self.text.is_empty() { Ok(()) } else { Err(Damaged) }
    }

    pub(super) fn byte(&mut self) -> Result<u8, Damaged> {
        let (&byte, rest) = self.head.split_first().ok_or(Damaged)?;
        self.head = rest;
        Ok(byte)
    }

    pub(super) fn varint(&mut self) -> Result<u64, Damaged> {
        take_varint(&mut self.head)
    }

    pub(super) fn zigzag(&mut self) -> Result<i64, Damaged> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -((value & 1).cast_signed()))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        let (bytes, rest) = self.head.split_first_chunk::<N>().ok_or(Damaged)?;
        self.head = rest;
        Ok(*bytes)
    }

    pub(super) fn uuid(&mut self) -> Result<Uuid, Damaged> {
        self.array().map(Uuid::from_bytes)
    }

    pub(super) fn float(&mut self) -> Result<f64, Damaged> {
        let tagged = self.varint()?;
        match (tagged >> 1, tagged & 1) {
            (thousandths, 0) => Ok(thousandths as f64 / 1e3),
            (0, _) => self.array().map(f64::from_le_bytes),
            (billionths, _) => Ok(billionths as f64 / 1e9),
        }
    }

    fn text_of(&mut self, len: u64) -> Result<String, Damaged> {
        let len = usize::try_from(len).map_err(|_| Damaged)?;
        let (text, rest) = self.text.split_at_checked(len).ok_or(Damaged)?;
        self.text = rest;
        Ok(text.to_owned())
    }

    pub(super) fn text(&mut self) -> Result<String, Damaged> {
        let len = self.varint()?;
        self.text_of(len)
    }

    pub(super) fn optional<T>(
        &mut self,
        take: impl FnOnce(&mut Self) -> Result<T, Damaged>,
    ) -> Result<Option<T>, Damaged> {
        match self.byte()? {
            0 => Ok(None),
            1 => take(self).map(Some),
            _ => Err(Damaged),
        }
    }

    pub(super) fn optional_text(&mut self) -> Result<Option<String>, Damaged> {
        match self.varint()? {
            0 => Ok(None),
            len => self.text_of(len - 1).map(Some),
        }
    }

    /// A list; every item takes at least one byte of head, which bounds what a damaged count can allocate.
    pub(super) fn list<T>(&mut self, mut take: impl FnMut(&mut Self) -> Result<T, Damaged>) -> Result<Vec<T>, Damaged> {
        let count = usize::try_from(self.varint()?).map_err(|_| Damaged)?;
        if count > self.head.len() {
            return Err(Damaged);
        }
        let mut items = Vec::with_capacity(count.min(64));
        for _ in 0..count {
            items.push(take(self)?);
        }
        Ok(items)
    }

    pub(super) fn pairs(&mut self) -> Result<Vec<(String, String)>, Damaged> {
        self.list(|from| Ok((from.text()?, from.text()?)))
    }
}
