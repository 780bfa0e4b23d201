//! Reading from the peer while still writing to it: a provider may answer before it has read the whole request, and then
//! stop reading. A gateway that only wrote would wait until the provider closes the connection.

use std::future::{Future, poll_fn};
use std::os::fd::RawFd;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::BytesMut;

use super::conn::{shutdown_fd, watch_fd};
use super::{Deadline, On};

/// How long a write is held up before we read as well: most writes never are, and watching for bytes costs a descriptor.
const PATIENCE: Duration = Duration::from_millis(40);

/// Takes in what arrives while we write. Nothing is left in the socket: unread bytes would hide what comes behind them, and
/// report the socket as readable again and again.
pub trait EarlyReader {
    /// Where arrived bytes are put, behind what is there; it has room for at least one.
    fn buffer(&mut self) -> &mut BytesMut;

    /// More bytes are in the buffer. True when they end the writing.
    fn take_in(&mut self) -> bool;
}

/// Reads from one connection while it is written to.
pub struct ReadWhileWriting {
    patience: Deadline,
    armed: bool,
    arrival: Option<Pin<Box<dyn Future<Output = ()>>>>,
    /// What ends the writing has been read.
    ended: bool,
}

impl ReadWhileWriting {
    /// Not reading yet.
    pub fn new() -> Self {
        Self { patience: Deadline::new(), armed: false, arrival: None, ended: false }
    }

    /// Awaits `write` on the connection `fd` to its end. When something has arrived meanwhile, `read_early` takes it in;
    /// where that ends the writing our direction is shut down, so that the write ends by itself.
    pub(super) async fn during<F: Future>(
        &mut self,
        fd: RawFd,
        write: F,
        mut read_early: impl FnMut() -> bool,
    ) -> F::Output {
        let mut write = pin!(write);
        self.armed = false;
        let output = poll_fn(|context| {
            if let Poll::Ready(output) = write.as_mut().poll(context) {
                return Poll::Ready(output);
            }
            while self.poll_arrival(context, fd) {
                if read_early() {
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
            // Without a spare descriptor the answer is read when the peer closes.
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

impl Default for ReadWhileWriting {
    fn default() -> Self {
        Self::new()
    }
}
