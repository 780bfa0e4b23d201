//! What an answer says of what the call used, as it is kept until the call is charged.

use weir_config::vocab::{Provider, Unread, UnreadSet};

use crate::observe::Usage;

/// Of the bytes of a stream so many to one are text.
const STREAM_BYTES_PER_TEXT: u64 = 8;

/// What the answer said beside its text.
#[derive(Default)]
pub(crate) struct Bill {
    /// Tokens as the provider counted them.
    pub(crate) usage: Usage,
    /// The model asked for was read where others may read another one: it sets no price.
    pub(crate) doubts_model: bool,
    /// What each call of a batch used, and by which model.
    pub(crate) batch: Vec<(Option<String>, Usage)>,
    /// The model that answered.
    pub(crate) model: Option<String>,
    /// The answer was read to its end.
    pub(crate) complete: bool,
    /// The provider's id of an answer that may go on in the background.
    pub(crate) response_id: Option<String>,
    /// The answer goes on in the background.
    pub(crate) pending: bool,
    /// This is the end of an answer that went on, or might have gone on, in the background.
    pub(crate) ended: bool,
    /// Whose prices hold, where that is not the span's provider: a client's header names a provider, never a price.
    pub(crate) priced_as: Option<Provider>,
    /// Tokens of the prompt that were given as numbers, beside its text.
    pub(crate) prompt_token_ids: u64,
    /// Characters that are to be spoken.
    pub(crate) spoken_characters: u64,
    /// Bytes of the answer's text that nobody has seen, about.
    pub(crate) unseen_bytes: u64,
    /// Some of the answer was not read.
    pub(crate) unread: bool,
}

impl Bill {
    /// Takes in what was not read of the answer, of which `wire_bytes` were relayed.
    pub(crate) fn see_unread(&mut self, unread: UnreadSet, wire_bytes: u64, streaming: bool) {
        self.unread = !unread.is_empty();
        if unread.contains(Unread::UnreadableBody) {
            let text = if streaming { wire_bytes / STREAM_BYTES_PER_TEXT } else { wire_bytes };
            self.unseen_bytes = self.unseen_bytes.max(text);
        }
    }

    /// Whether the provider may have counted, and nobody has seen it: then what was reserved is the least it cost.
    pub(crate) const fn is_unsaid(&self) -> bool {
        self.unread && self.usage.completion.is_none()
    }
}
