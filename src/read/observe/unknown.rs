//! Strings of an answer that no dialect knows: read as text all the same, so that nothing passes without a look.
//!
//! What stands under one key continues one text, as deltas do. Ids, names and encoded bytes are left out. Invariant: linear in the
//! message.

use super::answer::{Channel, Collector, Piece, Slot};
use super::items::{self, Follows, NAMES, is_left_out, is_probability};
use super::value::{Value, skip};
use crate::json::{Event, JsonError, Location, Text, Walker};

/// Numbers of blocks from here on are those of unknown keys.
const BLOCKS_FROM: u32 = 1 << 31;
/// Members that say once more what others have said.
const REPEATS: [&str; 4] = ["reasoning_details", "annotations", "audio", "images"];

/// A member of a message or of its delta that is none of a dialect's; its value has been entered.
///
/// # Errors
/// The first [`JsonError`].
pub(super) fn member<'a>(
    collector: &mut Collector,
    walker: &mut Walker<'a>,
    choice: u32,
    key: &str,
    value: Value<'a>,
) -> Result<(), JsonError> {
    match value {
        Value::Str(text) => {
            string(collector, choice, key, text);
            Ok(())
        }
        Value::Object | Value::Array if REPEATS.contains(&key) || NAMES.contains(&key) => skip(walker, value),
        other => items::rest(collector, walker, other, key, BLOCKS_FROM | choice, Follows::AtOnce),
    }
}

/// A message of a stream of which no dialect knows a member.
///
/// # Errors
/// The first [`JsonError`].
pub(super) fn message(collector: &mut Collector, json: &[u8]) -> Result<(), JsonError> {
    let mut walker = Walker::new(json)?;
    let mut key = "";
    while let Some(event) = walker.next_event()? {
        match event {
            Event::Key(name) if is_probability(name.raw()) => drop(walker.next_raw()?),
            Event::Key(name) => key = name.raw(),
            Event::Str(text) => string(collector, 0, key, text),
            // The key of the values around it is not known any more.
            Event::ObjectEnd | Event::ArrayEnd => key = "",
            _ => {}
        }
    }
    Ok(())
}

fn string(collector: &mut Collector, choice: u32, key: &str, text: Text<'_>) {
    if NAMES.contains(&key) || is_left_out(key, text) {
        return;
    }
    // FNV-1a: two keys that meet in one block cost a line break, no more.
    let hash = key.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let slot = Slot { choice, channel: Channel::Content, block: BLOCKS_FROM | hash };
    collector.append(slot, Piece::Text(text), || Location::root("response"));
}
