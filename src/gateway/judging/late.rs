//! What became of questions that were asked before a request was forwarded: the request may have gone on without an answer, and
//! the call is not asked about again.
//!
//! Invariants: noting takes no lock and waits for nobody, because a core does it; what is noted and never asked for gives way at a
//! bound, and so its call may be asked about once more.

use std::collections::{HashMap, VecDeque};

use tokio::sync::mpsc;
use weir_config::vocab::SpanId;

use crate::judge::Told;

/// Calls under way that are remembered, and those of them that are noted and not read yet.
const MAX: usize = 4_096;

/// A request's question: where its ruling comes, or `None` where it was turned away.
type Noted = (SpanId, Option<Told>);

/// Where questions are noted. Cheap to clone.
#[derive(Clone)]
pub(super) struct Asking(mpsc::Sender<Noted>);

/// What was asked.
pub(super) struct Asked {
    noted: mpsc::Receiver<Noted>,
    by_span: HashMap<SpanId, Option<Told>>,
    order: VecDeque<SpanId>,
}

/// Both ends.
pub(super) fn asked() -> (Asking, Asked) {
    let (sender, noted) = mpsc::channel(MAX);
    (Asking(sender), Asked { noted, by_span: HashMap::new(), order: VecDeque::new() })
}

impl Asking {
    /// Notes that the request of `span` has asked.
    pub(super) fn note(&self, span: SpanId, ruling: Option<Told>) {
        // Where that many wait to be read, this call may be asked about once more.
        let _noted = self.0.try_send((span, ruling)).is_ok();
    }
}

impl Asked {
    /// What the request of `span` asked, if it did; `Some(None)` where it was turned away. Each is given once.
    pub(super) fn take(&mut self, span: SpanId) -> Option<Option<Told>> {
        while let Ok((span, ruling)) = self.noted.try_recv() {
            self.by_span.insert(span, ruling);
            self.order.push_back(span);
        }
        while self.order.len() > MAX {
            self.order.pop_front().and_then(|oldest| self.by_span.remove(&oldest));
        }
        self.by_span.remove(&span)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_given_once_and_the_oldest_gives_way() {
        let (asking, mut asked) = asked();
        let spans: Vec<SpanId> = (0..=MAX).map(|_| SpanId::fresh()).collect();
        assert!(asked.take(spans[0]).is_none());
        asking.note(spans[0], None);
        assert!(asked.take(spans[0]).is_some_and(|ruling| ruling.is_none()));
        assert!(asked.take(spans[0]).is_none());
        for halves in [&spans[..MAX / 2], &spans[MAX / 2..]] {
            halves.iter().for_each(|span| asking.note(*span, Some(tokio::sync::oneshot::channel().1)));
            assert!(asked.take(SpanId::fresh()).is_none());
        }
        assert!(asked.by_span.len() <= MAX && asked.take(spans[0]).is_none());
        assert!(asked.take(spans[MAX]).is_some_and(|ruling| ruling.is_some()));
    }
}
