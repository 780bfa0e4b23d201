//! What a prompt is made of, in the order in which providers read it, and where it differs from the one that its session sent before:
//! from there on a provider's prompt cache is of no use.
//!
//! An [`Outline`] is made of a finished span, holds no text, and takes an eighth of the prompt's bytes. Two of them are compared
//! without the prompts they were made of; the span of the later one says in words where they part.
//!
//! ```text
//! skeleton  the JSON around the texts, in pieces: members, elements, what is left out
//! outline   segments: settings, tools, system, messages, each with a hash and marks of its stretches
//! compare   how much is equal from the beginning, and what came there instead
//! place     from an offset to a path, and what kind of text stands there
//! ```

mod compare;
mod outline;
mod place;
mod skeleton;
#[cfg(test)]
mod tests;

pub use crate::prompt_cache::{BrokeAt, Change, PromptCache, PromptState, ProviderUse, SegmentKind, Stands};
pub use compare::{Comparison, Divergence, compare};
pub use outline::{Draft, Outline, Segment};
