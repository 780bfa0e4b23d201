//! Reading answers: text, tool calls, usage and errors, from a copy of the bytes that went to the client.
//!
//! Invariants: incremental (any cut of the bytes gives the same answer), bounded in memory whatever arrives, silent:
//! nothing here can fail, delay or change what the client gets. Must not know: the runtime, the wire, the request side
//! (`inspect`).

mod absorb;
mod answer;
mod blocks;
mod dialect;
mod estimate;
mod frames;
mod head;
mod items;
mod message;
mod places;
mod reader;
mod tail;
mod unknown;
mod usage;
mod value;

pub use answer::{Answer, AnswerPart, Media, Tier, ToolCall, ToolRuns, Usage};
pub use estimate::estimate_tokens;
pub use places::{Place, Places, Role};
pub use reader::{AnswerKind, AnswerReader};

#[cfg(test)]
mod tests;
