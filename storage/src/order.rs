//! An acknowledged write: a change that somebody waits for, made by the writer and answered after its commit.
//!
//! Invariant: `Ok` means durable, `Err` means not applied, whichever way the writer went. A caller that waits too long takes
//! the order back; one that the writer has in its hands already is waited for. Blocks, so it is never asked for on a
//! core thread. Knows nothing of engines.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::change::{Answer, Change};
use crate::error::NotWritten;
use crate::error::WriteError;
use crate::pause;

/// How long an order may lie in the queue: shorter than clients of an API wait.
pub(crate) const ORDER_WAIT: Duration = Duration::from_secs(5);

enum State {
    Waiting,
    InHand,
    TakenBack,
    Done(Result<Answer, NotWritten>),
}

struct Slot {
    state: Mutex<State>,
    changed: Condvar,
}

/// Where the asker waits.
pub(crate) struct Receipt(Arc<Slot>);

/// A change on its way, and what came of it.
pub(crate) struct Order {
    change: Change,
    result: Option<Result<Answer, NotWritten>>,
    slot: Arc<Slot>,
}

impl Receipt {
    /// Waits for the commit.
    pub(crate) fn wait(self, within: Duration) -> Result<Answer, NotWritten> {
        let deadline = Instant::now() + within;
        let mut state = self.0.state.lock();
        loop {
            match std::mem::replace(&mut *state, State::TakenBack) {
                State::Done(result) => return result,
                State::InHand => {
                    *state = State::InHand;
                    self.0.changed.wait(&mut state);
                }
                State::Waiting => {
                    *state = State::Waiting;
                    if self.0.changed.wait_until(&mut state, deadline).timed_out() && matches!(*state, State::Waiting) {
                        *state = State::TakenBack;
                        let limit_ms = within.as_millis() as u64;
                        return Err(NotWritten::TimedOut { limit_ms });
                    }
                }
                // Only this function takes an order back, and then returns.
                State::TakenBack => return Err(NotWritten::Closed),
            }
        }
    }
}

impl Order {
    /// An order and its receipt.
    pub(crate) fn new(change: Change) -> (Self, Receipt) {
        let slot = Arc::new(Slot { state: Mutex::new(State::Waiting), changed: Condvar::new() });
        let receipt = Receipt(Arc::clone(&slot));
        (Self { change, result: None, slot }, receipt)
    }

    /// What is to be made.
    pub(crate) fn change(&self) -> &Change {
        &self.change
    }

    /// Takes the order in hand; false when nobody waits for it any more.
    pub(crate) fn begin(&mut self) -> bool {
        let mut state = self.slot.state.lock();
        if matches!(*state, State::Waiting) {
            *state = State::InHand;
        }
        matches!(*state, State::InHand)
    }

    /// What came of making the change inside a transaction, which may happen again when the transaction has to be repeated. A
    /// change that cannot be made by its own fault (`WriteError::Row`) is remembered; the other orders of the transaction
    /// go on.
    pub(crate) fn made(&mut self, outcome: Result<Answer, WriteError>) -> Result<(), WriteError> {
        match outcome {
            Ok(answer) => {
                self.result = Some(Ok(answer));
                Ok(())
            }
            Err(error) => {
                let refused = |reason: &String| Err(NotWritten::Refused { reason: reason.clone() });
                self.result = if let WriteError::Row(reason) = &error { Some(refused(reason)) } else { None };
                Err(error)
            }
        }
    }

    /// The transaction is durable, or given up for this reason.
    pub(crate) fn finish(&mut self, outcome: Result<(), NotWritten>) {
        let result = match (outcome, self.result.take()) {
            (Ok(()), Some(result)) => result,
            (Ok(()), None) => Err(NotWritten::Closed),
            (Err(error), _) => Err(error),
        };
        self.answer(result);
        // A report brings hundreds of spans, each of which is dozens of pieces of memory to give back.
        if let Change::InsertSpans { spans, .. } = &mut self.change {
            for span in spans.drain(..) {
                drop(span);
                pause::here();
            }
        }
    }

    fn answer(&self, result: Result<Answer, NotWritten>) {
        let mut state = self.slot.state.lock();
        if matches!(*state, State::Waiting | State::InHand) {
            *state = State::Done(result);
            self.slot.changed.notify_all();
        }
    }
}

impl Drop for Order {
    /// Nobody waits for an order that was lost on the way.
    fn drop(&mut self) {
        self.answer(Err(NotWritten::Closed));
    }
}
