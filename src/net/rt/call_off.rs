//! Calling off what somebody else on this core is doing for us: waiting, or making a connection.
//!
//! Invariant: only futures that lose nothing are dropped; an operation on a connection is made to end by shutting the
//! connection down, and is awaited. Caller and called run in one task, so nobody has to be woken.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::os::fd::RawFd;
use std::pin::pin;
use std::task::Poll;

/// Whether something has been called off, and what has to be shut down then.
#[derive(Debug, Default)]
pub struct CallOff {
    called: Cell<bool>,
    busy: Cell<Option<RawFd>>,
}

impl CallOff {
    /// Cancels it. The task that polls it has to do so once more.
    pub fn call(&self) {
        self.called.set(true);
        if let Some(fd) = self.busy.get() {
            super::stop(fd);
        }
    }

    /// Whether it has been called off.
    pub fn is_called(&self) -> bool {
        self.called.get()
    }

    /// Awaits `future`, which is dropped when it is called off: only for what loses nothing by that (see [`super::within`]), and
    /// for connecting.
    pub async fn or<F: Future>(&self, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        poll_fn(|context| {
            if self.called.get() {
                return Poll::Ready(None);
            }
            future.as_mut().poll(context).map(Some)
        })
        .await
    }

    /// Awaits `future`, which uses the connection `fd` and ends by itself when that is shut down. `None` when it was called off.
    pub async fn over<F: Future>(&self, fd: RawFd, future: F) -> Option<F::Output> {
        self.busy.set(Some(fd));
        let output = future.await;
        self.busy.set(None);
        (!self.called.get()).then_some(output)
    }
}
