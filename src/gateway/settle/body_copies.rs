//! What a call's receipt needs of the data path: the bodies' bytes until they are digested, which is done with the record, on the core
//! where they are short and on the pool where they are not. Made only where receipts are on.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::limits::INLINE_TEXT_BYTES_MAX;
use crate::receipts::digest;
use crate::record::Permit;

/// The bodies of one call.
pub(crate) struct BodyCopies {
    /// As it was sent, and whether that is all of it.
    request: Option<(Bytes, bool)>,
    /// As the provider sent it, without its framing.
    answer: Vec<u8>,
    answer_is_whole: bool,
    answer_bytes_max: usize,
    permit: Permit,
    /// Pieces that were taken out on the way.
    redactions: usize,
    /// What the detectors and rules are by which the call is judged.
    rules: u64,
}

impl BodyCopies {
    pub(crate) fn new(permit: Permit, answer_bytes_max: usize, rules: u64) -> Self {
        let (request, answer, redactions) = (None, Vec::new(), 0);
        Self { request, answer, answer_is_whole: true, answer_bytes_max, permit, redactions, rules }
    }

    /// The request's body, whose memory somebody else accounts for.
    pub(crate) fn keep_request(&mut self, body: Bytes, is_whole: bool) {
        self.request = Some((body, is_whole));
    }

    /// Whether the request's body is here.
    pub(crate) fn has_request(&self) -> bool {
        self.request.is_some()
    }

    /// Further bytes of the answer, as far as there is room.
    pub(crate) fn keep_answer<'a>(&mut self, pieces: impl Iterator<Item = &'a [u8]>) {
        for piece in pieces {
            let fits = self.answer.len() + piece.len() <= self.answer_bytes_max;
            self.answer_is_whole = self.answer_is_whole && fits && self.permit.grow(piece.len());
            if !self.answer_is_whole {
                return;
            }
            self.answer.extend_from_slice(piece);
        }
    }

    pub(crate) fn redacted(&mut self, pieces: usize) {
        self.redactions += pieces;
    }

    /// Whether digesting them takes longer than a core should be held up.
    pub(crate) fn are_long(&self) -> bool {
        self.bytes() > INLINE_TEXT_BYTES_MAX
    }

    fn bytes(&self) -> usize {
        self.request.as_ref().map_or(0, |(body, _)| body.len()) + self.answer.len()
    }

    /// Lets go of what is too long for a core: a receipt says then what the record has.
    pub(crate) fn give_up(&mut self) {
        if self.are_long() {
            (self.request, self.answer, self.answer_is_whole) = (None, Vec::new(), false);
        }
    }

    /// What waits in the record for the receipt.
    pub(crate) fn notes(self, served_model: Option<String>) -> Value {
        let request = self.request.map(|(body, is_whole)| digest("body", &body, is_whole));
        let has_answer = !self.answer_is_whole || !self.answer.is_empty();
        let response = has_answer.then(|| digest("body", &self.answer, self.answer_is_whole));
        json!({
            "request": request, "response": response, "served_model": served_model, "redactions": self.redactions as u64,
            "rules": format!("{:016x}", self.rules),
        })
    }
}
