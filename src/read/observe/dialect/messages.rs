//! Messages: blocks of content, and what their deltas bring.

use crate::json::{JsonError, Walker};
use crate::observe::answer::Collector;
use crate::observe::blocks;
use crate::observe::head::{Root, Taken};
use crate::observe::value::Value;

pub(super) fn member<'a>(
    root: &mut Root<'a>,
    collector: &mut Collector,
    walker: &mut Walker<'a>,
    key: &[u8],
    value: Value<'a>,
) -> Result<Taken, JsonError> {
    match (key, value) {
        (b"content", Value::Array) => blocks::list(collector, walker, 0, "content")?,
        (b"delta", Value::Object) => blocks::delta(collector, walker, root.head.index.unwrap_or(0))?,
        (b"content_block", Value::Object) => {
            blocks::block(collector, walker, 0, root.head.index.unwrap_or(0), "content")?;
        }
        _ => return Ok(Taken::No),
    }
    Ok(Taken::Yes)
}
