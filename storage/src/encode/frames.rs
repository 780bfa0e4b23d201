//! The frame of a request in stretches, each behind one of its marks, so that two requests that share a beginning, a middle or
//! an end share the stretches there.
//!
//! A stretch holds its JSON, and for each text in it how long that is and where it begins, seen from the end of the one before.

use std::ops::Range;

use weir_config::vocab::frame::{CODED, FILE, Frame, TEXT};

use super::Damaged;
use super::bytes::{Packer, Unpacker};

/// From this many bytes on a stretch ends behind a mark in front of which a list of objects ended: there one part of the body
/// (messages, instructions, tools) gives way to the next, and there a conversation grows.
const PART_MIN: usize = 128;
/// From this many bytes on a stretch ends where another begins to speak, too, or where its surroundings say so.
const STRETCH_MIN: usize = 1024;
const SPEAKER: &[u8] = b"\"role\":";
/// Surroundings of a mark end a stretch where these bits of their hash are 0: one in eight.
const STRETCH_ENDS: u32 = 0b111;
/// It ends at this many bytes, whatever they say, so that what follows is shared again.
const STRETCH_MAX: usize = 4096;

/// A stretch of a frame on its way into the store.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stretch<'a> {
    json: &'a str,
    texts: &'a [Range<u32>],
    /// Where the text before them ends.
    before: u32,
}

/// A stretch that was read.
#[derive(Debug, PartialEq)]
pub(crate) struct ReadStretch {
    json: String,
    /// The beginning of each text as seen from the end of the one before, and its length.
    texts: Vec<(i64, u32)>,
}

impl Stretch<'_> {
    /// Bytes of its JSON.
    pub(crate) fn bytes(&self) -> usize {
        self.json.len()
    }
}

/// Divides a frame.
pub(crate) fn stretches(frame: &Frame) -> Vec<Stretch<'_>> {
    let mut found = Vec::new();
    let (mut start, mut texts, mut before, mut former) = (0, 0..0, 0, 0);
    let mut take = |end: usize, start: &mut usize, texts: &mut Range<usize>| {
        let own = frame.texts.get(texts.clone()).unwrap_or_default();
        let json = frame.json.get(*start..end).unwrap_or_default();
        found.push(Stretch { json, texts: own, before });
        before = own.last().map_or(before, |text| text.end);
        (*start, *texts) = (end, texts.end..texts.end);
    };
    let json = frame.json.as_bytes();
    for at in memchr::memchr3_iter(TEXT as u8, CODED as u8, FILE as u8, json) {
        let Some(text) = frame.texts.get(texts.end) else { continue };
        texts.end += 1;
        let end = at + 1;
        let (bytes, since) = (end - start, json.get(former..at).unwrap_or_default());
        former = end;
        if bytes >= STRETCH_MAX
            || (bytes >= PART_MIN && ends_part(since))
            || (bytes >= STRETCH_MIN && (speaks(since) || ends_stretch(json, at, text)))
        {
            take(end, &mut start, &mut texts);
        }
    }
    if start < frame.json.len() {
        texts.end = frame.texts.len();
        take(frame.json.len(), &mut start, &mut texts);
    }
    found
}

/// Whether a list of objects ends here, and another member follows.
fn ends_part(since: &[u8]) -> bool {
    memchr::memchr_iter(b']', since).any(|at| since.get(at.wrapping_sub(1)..at + 3) == Some(b"}],\""))
}

fn speaks(since: &[u8]) -> bool {
    since.windows(SPEAKER.len()).any(|window| window == SPEAKER)
}

/// Whether a stretch may end behind the mark at `at`: by what stands before it and how long its text is (FNV-1a).
fn ends_stretch(json: &[u8], at: usize, text: &Range<u32>) -> bool {
    let before = json.get(at.saturating_sub(24)..at).unwrap_or_default();
    let len = text.end.wrapping_sub(text.start).to_le_bytes();
    let hash = before
        .iter()
        .chain(&len)
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    (hash >> 16) & STRETCH_ENDS == 0
}

pub(super) fn pack(to: &mut Packer, stretch: &Stretch<'_>) {
    to.varint(stretch.texts.len() as u64);
    let mut end = stretch.before;
    for text in stretch.texts {
        let gap = i64::from(text.start) - i64::from(end);
        let len = u64::from(text.end.saturating_sub(text.start));
        // Mostly a text begins behind the line break that ends the one before.
        to.varint(len << 1 | u64::from(gap != 1));
        if gap != 1 {
            to.zigzag(gap);
        }
        end = text.end;
    }
    to.text(stretch.json);
}

pub(super) fn unpack(from: &mut Unpacker<'_>) -> Result<ReadStretch, Damaged> {
    let texts = from.list(|from| {
        let len = from.varint()?;
        let gap = if len & 1 == 0 { 1 } else { from.zigzag()? };
        Ok((gap, u32::try_from(len >> 1).map_err(|_| Damaged)?))
    })?;
    Ok(ReadStretch { json: from.text()?, texts })
}

/// Puts a frame together again from its stretches, given in order.
#[derive(Debug, Default)]
pub(crate) struct Reframing {
    frame: Frame,
    end: i64,
}

impl Reframing {
    pub(crate) fn add(&mut self, read: ReadStretch) -> Result<(), Damaged> {
        self.frame.json.push_str(&read.json);
        for (gap, len) in read.texts {
            let start = self.end.checked_add(gap).ok_or(Damaged)?;
            self.end = start.checked_add(i64::from(len)).ok_or(Damaged)?;
            let place = |at: i64| u32::try_from(at).map_err(|_| Damaged);
            self.frame.texts.push(place(start)?..place(self.end)?);
        }
        Ok(())
    }

    /// The frame; none where there was no stretch.
    pub(crate) fn end(self) -> Option<Box<Frame>> {
        (!self.frame.json.is_empty()).then(|| Box::new(self.frame))
    }
}

impl ReadStretch {
    /// What it takes in a record.
    pub(crate) fn weight(&self) -> usize {
        self.json.len() + self.texts.len() * size_of::<Range<u32>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of that many texts, from the one numbered `from` on.
    fn frame(from: u32, count: u32) -> Frame {
        let mut frame = Frame::default();
        let mut at = 0;
        for number in from..from + count {
            frame.json.push_str(&format!(
                "{{\"id\":\"toolu_{number}\",\"name\":\"read\",\"input\":\u{5}{{\"path\":\u{1}}}\u{6}}},"
            ));
            let len = number * 37 % 91;
            frame.texts.push(at..at + len);
            at += len + 1;
        }
        frame
    }

    fn packed(stretch: &Stretch<'_>) -> Packer {
        let mut packer = Packer::default();
        pack(&mut packer, stretch);
        packer
    }

    #[test]
    fn a_frame_comes_back_from_its_stretches() {
        let mut odd = frame(0, 200);
        odd.texts[7] = 3..5;
        for whole in [frame(0, 0), frame(0, 1), frame(3, 200), odd, Frame { json: "[1]".to_owned(), texts: Vec::new() }]
        {
            let mut reframing = Reframing::default();
            for stretch in stretches(&whole) {
                let Packer { head, text } = packed(&stretch);
                let mut unpacker = Unpacker::new(&head, &text).unwrap();
                reframing.add(unpack(&mut unpacker).unwrap()).unwrap();
                assert!(unpacker.finish().is_ok());
            }
            assert_eq!(reframing.end(), (!whole.json.is_empty()).then(|| Box::new(whole)));
        }
    }

    #[test]
    fn frames_that_share_their_end_share_its_stretches() {
        let (one, other) = (frame(1, 199), frame(0, 200));
        let all =
            |frame: &Frame| stretches(frame).iter().map(|it| (packed(it).head, it.json.to_owned())).collect::<Vec<_>>();
        let (one, other) = (all(&one), all(&other));
        let shared = one.iter().filter(|stretch| other.contains(stretch)).count();
        assert!(shared + 2 > one.len(), "{shared} of {}", one.len());
    }
}
