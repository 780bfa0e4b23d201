//! Notices that the client has gone while Weir waits for the provider, so that the provider can be told within 100 ms:
//! tokens cost money.
//!
//! Most exchanges end long before that matters, so the watch costs two stores until an exchange has lasted
//! [`PATIENCE`]; only then a readiness operation is posted on a second descriptor.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::ClientConn;
use crate::rt::{Deadline, On};

/// How long an exchange lasts before its client is watched.
const PATIENCE: Duration = Duration::from_millis(40);

/// The watch over one client connection during one exchange.
pub(crate) struct ClientWatch {
    patience: Deadline,
    armed: bool,
    gone: Option<Pin<Box<dyn Future<Output = ()>>>>,
    left: bool,
    by_state: bool,
    behind_bytes: bool,
}

impl ClientWatch {
    /// A watch; `input_ended` when we may have ended the connection's reading ourselves, so that only the kernel's state of it
    /// tells about the client.
    pub(crate) fn new(input_ended: bool) -> Self {
        let by_state = input_ended;
        Self { patience: Deadline::new(), armed: false, gone: None, left: false, by_state, behind_bytes: false }
    }

    /// The same while bytes of the client's may lie unread: its body, for whose turn to come it waits.
    pub(crate) fn behind_bytes(mut self) -> Self {
        self.behind_bytes = true;
        self
    }

    /// Whether the client has been seen to leave.
    pub(crate) fn client_left(&self) -> bool {
        self.left
    }

    /// Awaits `operation` to its end. When the client leaves meanwhile, `on_gone` is called once; it has to make the
    /// operation end (by shutting its socket down), because an operation in flight is never dropped. It is borrowed, because a
    /// future that takes another one by value is twice as large.
    pub(crate) async fn during<F: Future>(
        &mut self,
        client: &ClientConn,
        mut on_gone: impl FnMut(),
        mut operation: Pin<&mut F>,
    ) -> F::Output {
        poll_fn(|context| {
            if let Poll::Ready(output) = operation.as_mut().poll(context) {
                return Poll::Ready(output);
            }
            if !self.left && self.poll_gone(context, client) {
                self.left = true;
                on_gone();
                return operation.as_mut().poll(context);
            }
            Poll::Pending
        })
        .await
    }

    fn poll_gone(&mut self, context: &mut Context<'_>, client: &ClientConn) -> bool {
        if let Some(gone) = self.gone.as_mut() {
            return gone.as_mut().poll(context).is_ready();
        }
        if !self.armed {
            self.armed = true;
            self.patience.arm(PATIENCE, On::Wake(context.waker().clone()));
            return false;
        }
        if !self.patience.fired() {
            return false;
        }
        // Without a spare descriptor the client is simply not watched: the next write to it will tell.
        let Ok(mut watch) = client.watch() else { return false };
        if self.by_state {
            watch = watch.by_state();
        }
        if self.behind_bytes {
            watch = watch.behind_bytes();
        }
        self.gone = Some(Box::pin(async move { watch.gone().await }));
        self.gone.as_mut().is_some_and(|gone| gone.as_mut().poll(context).is_ready())
    }
}
