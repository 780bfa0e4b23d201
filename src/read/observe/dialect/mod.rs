//! The dialects of answers, a file each: which members of a message are theirs, and what those say.
//!
//! A message is asked of all of them, because an answer may come in another dialect than the path of its request says: their
//! keys do not collide but for those that the order of [`DIALECTS`] settles. What is none of theirs is read as text where its
//! key is one of a text, and passed over otherwise. A new dialect is a file and a line here.

mod bedrock;
mod chat;
mod gemini;
mod local;
mod media;
mod messages;
mod responses;
mod rpc;
mod text;
#[cfg(test)]
mod toy;

pub(super) use bedrock::message as amazon_message;
pub(super) use rpc::member as rpc_member;

use super::answer::Collector;
use super::head::{Root, Taken};
use super::value::Value;
use crate::json::{JsonError, Walker};

/// Takes a member of a message, whose value has been entered.
type Member = for<'a> fn(&mut Root<'a>, &mut Collector, &mut Walker<'a>, &[u8], Value<'a>) -> Result<Taken, JsonError>;

/// Responses come before messages, which take every `delta` that is an object.
const DIALECTS: &[Member] = &[
    chat::member,
    responses::member,
    messages::member,
    gemini::member,
    local::member,
    text::member,
    bedrock::member,
    media::member,
    #[cfg(test)]
    toy::member,
];

/// Takes a member of a message in the dialect it belongs to.
///
/// # Errors
/// The first [`JsonError`].
#[inline]
pub(super) fn member<'a>(
    root: &mut Root<'a>,
    collector: &mut Collector,
    walker: &mut Walker<'a>,
    key: &[u8],
    value: Value<'a>,
) -> Result<Taken, JsonError> {
    for take in DIALECTS {
        let taken = take(root, collector, walker, key, value)?;
        if taken != Taken::No {
            return Ok(taken);
        }
    }
    Ok(Taken::No)
}
