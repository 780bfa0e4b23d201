//! An acknowledged write: a change that somebody waits for, carried out by the writer and answered after its commit.
//!
//! Invariant: `Ok` means durable, `Err` means not applied, whichever way the writer went. Whoever waits too long takes
//! the order back; one that the writer has in its hands already is waited for. Blocks, so it is never asked for on a
//! core thread. Knows nothing of SQL: what is changed is a closure over the engine's transaction.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::error::NotWritten;
use crate::sqlite::Tx;
use crate::writer::WriteError;

/// How long an order may lie in the queue: shorter than clients of an API wait.
pub(crate) const ORDER_WAIT: Duration = Duration::from_secs(5);

/// What the writer sees of an order.
pub(crate) trait Job: Send {
    /// Takes the order in hand; false when nobody waits for it any more.
    fn begin(&mut self) -> bool;
    /// Makes the change inside a transaction. Called again when the transaction has to be repeated. A change of its own
    /// making that cannot be done (`WriteError::Row`) is remembered; the other orders of the transaction go on.
    fn run(&mut self, tx: &mut Tx<'_>) -> Result<(), WriteError>;
    /// The transaction is durable, or given up for this reason.
    fn finish(&mut self, outcome: Result<(), NotWritten>);
    /// The metric label, e.g. `write_key`.
    fn operation(&self) -> &'static str;
}

enum State<T> {
    Waiting,
    InHand,
    TakenBack,
    Done(Result<T, NotWritten>),
}

struct Slot<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

/// Where the asker waits.
pub(crate) struct Receipt<T>(Arc<Slot<T>>);

struct Order<T, F> {
    operation: &'static str,
    change: F,
    result: Option<Result<T, NotWritten>>,
    slot: Arc<Slot<T>>,
}

/// An order and its receipt.
pub(crate) fn order<T, F>(operation: &'static str, change: F) -> (Box<dyn Job>, Receipt<T>)
where
    T: Send + 'static,
    F: FnMut(&mut Tx<'_>) -> Result<T, WriteError> + Send + 'static,
{
    let slot = Arc::new(Slot { state: Mutex::new(State::Waiting), changed: Condvar::new() });
    let receipt = Receipt(Arc::clone(&slot));
    (Box::new(Order { operation, change, result: None, slot }), receipt)
}

impl<T> Receipt<T> {
    /// Waits for the commit.
    pub(crate) fn wait(self, within: Duration) -> Result<T, NotWritten> {
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

impl<T, F> Order<T, F> {
    fn answer(&self, result: Result<T, NotWritten>) {
        let mut state = self.slot.state.lock();
        if matches!(*state, State::Waiting | State::InHand) {
            *state = State::Done(result);
            self.slot.changed.notify_all();
        }
    }
}

impl<T, F> Job for Order<T, F>
where
    T: Send,
    F: FnMut(&mut Tx<'_>) -> Result<T, WriteError> + Send,
{
    fn begin(&mut self) -> bool {
        let mut state = self.slot.state.lock();
        if matches!(*state, State::Waiting) {
            *state = State::InHand;
        }
        matches!(*state, State::InHand)
    }

    fn run(&mut self, tx: &mut Tx<'_>) -> Result<(), WriteError> {
        self.result = None;
        match (self.change)(tx) {
            Ok(value) => {
                self.result = Some(Ok(value));
                Ok(())
            }
            Err(WriteError::Row(reason)) => {
                self.result = Some(Err(NotWritten::Refused { reason: reason.clone() }));
                Err(WriteError::Row(reason))
            }
            Err(error) => Err(error),
        }
    }

    fn finish(&mut self, outcome: Result<(), NotWritten>) {
        let result = match (outcome, self.result.take()) {
            (Ok(()), Some(result)) => result,
            (Ok(()), None) => Err(NotWritten::Closed),
            (Err(error), _) => Err(error),
        };
        self.answer(result);
    }

    fn operation(&self) -> &'static str {
        self.operation
    }
}

impl<T, F> Drop for Order<T, F> {
    /// Nobody waits for an order that was lost on the way.
    fn drop(&mut self) {
        self.answer(Err(NotWritten::Closed));
    }
}
