//! Embeddings, images, lists of models: `data` whose entries hold text here and there.

use crate::json::{JsonError, Location, Walker};
use crate::observe::answer::{Channel, Collector, Piece, Slot};
use crate::observe::head::{Root, Taken};
use crate::observe::usage;
use crate::observe::value::{Value, next_key, next_value, skip, value};

pub(super) fn member<'a>(
    _: &mut Root<'a>,
    collector: &mut Collector,
    walker: &mut Walker<'a>,
    key: &[u8],
    value: Value<'a>,
) -> Result<Taken, JsonError> {
    match (key, value) {
        (b"data", Value::Array) => data(collector, walker)?,
        // Of a transcription, in seconds.
        (b"duration", Value::Number(n)) => {
            let media = &mut collector.counters.media;
            media.heard_ms = media.heard_ms.max(usage::milliseconds(n).unwrap_or(0));
        }
        _ => return Ok(Taken::No),
    }
    Ok(Taken::Yes)
}

/// The array `data`: embeddings, images, models. Only sentences in it are text.
fn data(collector: &mut Collector, walker: &mut Walker<'_>) -> Result<(), JsonError> {
    let mut at: u32 = 0;
    while let Some(entry) = next_value(walker)? {
        match entry {
            Value::Object => {
                let mut is_picture = false;
                while let Some(key) = next_key(walker)? {
                    is_picture |= matches!(key.raw(), "b64_json" | "url");
                    match (key.raw().as_bytes(), value(walker)?) {
                        (b"revised_prompt", Value::Str(text)) => {
                            let slot = Slot { choice: 0, channel: Channel::Content, block: at };
                            let place = || Location::root("response").key("data").index(at).key("revised_prompt");
                            collector.append(slot, Piece::Text(text), place);
                        }
                        (_, other) => skip(walker, other)?,
                    }
                }
                collector.counters.media.images += u64::from(is_picture);
            }
            other => skip(walker, other)?,
        }
        at = at.saturating_add(1);
    }
    Ok(())
}
