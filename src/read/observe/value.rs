//! Values of a JSON message as its readers meet them: after a key, in an array.

use crate::json::{Event, JsonError, Text, Walker, integer};

/// A value; an object or array has been entered and must be read to its end.
#[derive(Clone, Copy)]
pub(super) enum Value<'a> {
    Str(Text<'a>),
    Number(&'a str),
    Bool(bool),
    Null,
    Object,
    Array,
}

/// The next value (after a key), or `None` at the end of an array.
#[inline(always)]
pub(super) fn next_value<'a>(walker: &mut Walker<'a>) -> Result<Option<Value<'a>>, JsonError> {
    Ok(match walker.next_event()? {
        Some(Event::Str(text)) => Some(Value::Str(text)),
        Some(Event::Number(spelled)) => Some(Value::Number(spelled)),
        Some(Event::Bool(value)) => Some(Value::Bool(value)),
        Some(Event::Null) => Some(Value::Null),
        Some(Event::ObjectStart) => Some(Value::Object),
        Some(Event::ArrayStart) => Some(Value::Array),
        Some(Event::ArrayEnd | Event::ObjectEnd | Event::Key(_)) | None => None,
    })
}

/// The value of a key.
#[inline(always)]
pub(super) fn value<'a>(walker: &mut Walker<'a>) -> Result<Value<'a>, JsonError> {
    Ok(next_value(walker)?.unwrap_or(Value::Null))
}

/// The next key of the object that was entered, or `None` at its end.
#[inline(always)]
pub(super) fn next_key<'a>(walker: &mut Walker<'a>) -> Result<Option<Text<'a>>, JsonError> {
    match walker.next_event()? {
        Some(Event::Key(key)) => Ok(Some(key)),
        _ => Ok(None),
    }
}

/// Reads past a value.
#[inline(always)]
pub(super) fn skip(walker: &mut Walker<'_>, value: Value<'_>) -> Result<(), JsonError> {
    match value {
        Value::Object | Value::Array => walker.leave(walker.depth().saturating_sub(1)),
        _ => Ok(()),
    }
}

/// A position as a number; out of range ones fold into the largest.
pub(super) fn position(spelled: &str) -> Option<u32> {
    integer(spelled).map(|at| u32::try_from(at).unwrap_or(u32::MAX))
}
