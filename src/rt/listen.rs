//! Hearing the peer while still speaking: a provider may answer before it has read the whole request, and then stop
//! reading. Whoever only writes would wait for it until it closes.

use std::future::{Future, poll_fn};
use std::os::fd::RawFd;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;

use super::conn::{shutdown_fd, watch_fd};
use super::{Deadline, On};

/// How long a write is held up before the peer is listened to: most never are, and listening costs a descriptor.
const PATIENCE: Duration = Duration::from_millis(40);

/// Who takes in what arrives while we speak. Nothing is left lying in the socket: what lies there would hide what comes
/// behind it, and tell of itself again and again.
pub trait Ear {
    /// Where arrived bytes are put, behind what is there; it has room for at least one.
    fn inbox(&mut self) -> &mut BytesMut;

    /// More stands in the inbox. True when that ends the speaking.
    fn attend(&mut self) -> bool;
}

/// Listens on one connection while it is written to.
pub struct Listen {
    patience: Deadline,
    armed: bool,
    arrival: Option<Pin<Box<dyn Future<Output = ()>>>>,
    /// What ends the speaking has been heard.
    ended: bool,
}

impl Listen {
    /// Not listening yet.
    pub fn new() -> Self {
        Self { patience: Deadline::new(), armed: false, arrival: None, ended: false }
    }

    /// Awaits `write` on the connection `fd` to its end. When something has arrived meanwhile, `heard` takes it in; where that
    /// ends the speaking our direction is shut down, so that the write ends by itself.
    pub(super) async fn during<F: Future>(
        &mut self,
        fd: RawFd,
        write: F,
        mut heard: impl FnMut() -> bool,
    ) -> F::Output {
        let mut write = pin!(write);
        self.armed = false;
        let output = poll_fn(|context| {
            if let Poll::Ready(output) = write.as_mut().poll(context) {
                return Poll::Ready(output);
            }
            while self.poll_arrival(context, fd) {
                if heard() {
                    self.ended = true;
                    shutdown_fd(fd, libc::SHUT_WR);
                    return write.as_mut().poll(context);
                }
            }
            Poll::Pending
        })
        .await;
        self.patience.disarm();
        output
    }

    /// Whether something has arrived since the last time this said so.
    fn poll_arrival(&mut self, context: &mut Context<'_>, fd: RawFd) -> bool {
        if self.ended {
            return false;
        }
        if self.arrival.is_none() {
            if !self.armed {
                self.armed = true;
                self.patience.arm(PATIENCE, On::Wake(context.waker().clone()));
                return false;
            }
            if !self.patience.fired() {
                return false;
            }
            // Without a spare descriptor the answer is heard when the peer closes.
            let Ok(watch) = watch_fd(fd) else { return false };
            self.arrival = Some(Box::pin(async move { watch.arrival().await }));
        }
        let arrived = self.arrival.as_mut().is_some_and(|arrival| arrival.as_mut().poll(context).is_ready());
        if arrived {
            self.arrival = None;
        }
        arrived
    }
}

impl Default for Listen {
    fn default() -> Self {
        Self::new()
    }
}
