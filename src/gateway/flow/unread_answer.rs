//! What the head of an answer, and the bytes that came with it, tell of whether it will be read: the client can still be told then.

use weir_config::vocab::Unread;

use crate::codec::{can_decode, is_identity};
use crate::exchange::{Analysis, Skip};
use crate::inspect::{Takes, announces_binary};
use crate::observe::AnswerKind;
use crate::settle::journal::Journal;
use crate::wire::{ResponseBody, ResponseHead};

/// Why nobody will read the answer, where that is known before its head is sent. Where nothing of the call is analysed its client is
/// told that, and nothing here.
pub(super) fn from_the_start(
    journal: &Journal,
    head: &ResponseHead,
    kind: AnswerKind,
    beginning: &[u8],
) -> Option<Unread> {
    let is_off =
        matches!(journal.inspection.analysis, Analysis::Skipped(Skip::Disabled | Skip::BreakerOpen | Skip::WebSocket));
    if is_off || head.body == ResponseBody::Empty {
        return None;
    }
    let coding = head.get("content-encoding");
    if coding.is_some() && !can_decode(coding) {
        return Some(Unread::UnreadableBody);
    }
    if kind != AnswerKind::Other {
        return None;
    }
    // The reader goes by the first byte, whatever the head says.
    let first =
        beginning.trim_ascii_start().first().filter(|_| is_identity(coding) && head.body != ResponseBody::Chunked);
    let is_foreign = match first {
        Some(first) => AnswerKind::from_first_byte(*first).is_none(),
        None => announces_binary(Takes::Anything, head.get("content-type")),
    };
    is_foreign.then_some(Unread::MediaType)
}
