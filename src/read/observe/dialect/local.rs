//! The local server: its counters, and the end of its streams. Its texts are read like those of anybody.

use crate::json::{JsonError, Walker};
use crate::observe::answer::Collector;
use crate::observe::head::{Root, Taken};
use crate::observe::usage;
use crate::observe::value::Value;

pub(super) fn member<'a>(
    _: &mut Root<'a>,
    collector: &mut Collector,
    _: &mut Walker<'a>,
    key: &[u8],
    value: Value<'a>,
) -> Result<Taken, JsonError> {
    match (key, value) {
        (b"done", Value::Bool(true)) => collector.answer.complete = true,
        (b"prompt_eval_count", Value::Number(n)) => usage::raise(&mut collector.counters.prompt, n),
        (b"eval_count", Value::Number(n)) => usage::raise(&mut collector.counters.completion, n),
        _ => return Ok(Taken::No),
    }
    Ok(Taken::Yes)
}
