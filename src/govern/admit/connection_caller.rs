//! Ties what is under way on a connection to the credential it was let in by: revoked, replaced or deleted with its tenant, the
//! credential takes streams and tunnels with it.
//!
//! Nothing is looked at per request or frame. Each core compares the directory's generation three times a second, and only
//! where that has moved on goes through its connections (`Core::end_revoked` of the gateway); one that has to end is
//! cut, and whoever waits for it finds out here why. Invariant: requests to our own API are not cut: a caller may be
//! revoking itself.

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;

use super::CallerCache;

/// What one connection remembers of its caller, and whether a call to the provider is under way.
#[derive(Default)]
pub struct ConnectionCaller {
    memory: RefCell<CallerCache>,
    serving: Cell<bool>,
}

/// A call to the provider, for as long as it lives.
pub struct Serving(Rc<ConnectionCaller>);

impl ConnectionCaller {
    /// What is remembered of the last caller; it decides nothing by itself.
    pub fn memory(&self) -> RefMut<'_, CallerCache> {
        self.memory.borrow_mut()
    }

    /// A call to the provider begins, let in by the credential that is remembered.
    pub fn serve(self: &Rc<Self>) -> Serving {
        self.serving.set(true);
        Serving(Rc::clone(self))
    }

    /// Whether the credential has been taken away.
    pub fn is_over(&self) -> bool {
        self.memory.borrow().is_over()
    }

    /// Whether something is under way that has lost its credential.
    pub fn has_to_end(&self) -> bool {
        self.serving.get() && self.is_over()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.serving.set(false);
    }
}
