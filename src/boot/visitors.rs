//! Visitors of a plain thread: connections that get one answer each, on a thread of their own with blocking reads and writes.
//! For what has to answer where no core does: the metrics listener, and the listener while the gateway starts.
//!
//! Invariant: a visitor that is slow or silent delays nobody. It is given up after [`PATIENCE`], and at once when
//! [`VISITORS_MAX`] others have come.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use parking_lot::Mutex;
use rustls::StreamOwned;

use crate::rt::TlsAcceptor;
use crate::wire::{Fault, HeadScanner, HeadWriter, RequestHead, canonical_reason};

/// Longest time for a visit.
const PATIENCE: Duration = Duration::from_secs(2);
/// Visitors at a time.
const VISITORS_MAX: usize = 16;
/// Read at a time.
const READ_BYTES: usize = 1024;

/// What a visitor gets.
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) content_type: &'static str,
    /// Further fields.
    pub(super) fields: Vec<(&'static str, String)>,
    pub(super) body: String,
}

/// Answers a request, or what is wrong with it.
pub(super) type Answer = dyn Fn(Result<&RequestHead, &Fault>) -> io::Result<Reply> + Send + Sync;

/// The visits under way, the oldest first.
pub(super) struct Visitors {
    thread_name: &'static str,
    tls: Option<Arc<TlsAcceptor>>,
    answer: Box<Answer>,
    open: Mutex<VecDeque<(u64, TcpStream)>>,
}

impl Visitors {
    /// Nobody is there yet. With `tls` the visitors are expected to speak it.
    pub(super) fn new(
        thread_name: &'static str,
        tls: Option<Arc<TlsAcceptor>>,
        answer: impl Fn(Result<&RequestHead, &Fault>) -> io::Result<Reply> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self { thread_name, tls, answer: Box::new(answer), open: Mutex::default() })
    }

    /// Answers visitor `number` on a thread of its own; where there are too many, the oldest has had its time.
    pub(super) fn serve(self: &Arc<Self>, number: u64, stream: TcpStream) {
        let Ok(own) = stream.try_clone() else { return };
        let oldest = {
            let mut open = self.open.lock();
            open.push_back((number, own));
            if open.len() > VISITORS_MAX { open.pop_front() } else { None }
        };
        if let Some((_, oldest)) = oldest {
            // It may have gone by itself.
            let _gone = oldest.shutdown(Shutdown::Both).is_err();
        }
        let visitors = Arc::clone(self);
        let thread = std::thread::Builder::new().name(self.thread_name.to_owned()).spawn(move || {
            if let Err(error) = visitors.converse(stream) {
                tracing::debug!(%error, thread = visitors.thread_name, "a connection was not answered");
            }
            visitors.leave(number);
        });
        if thread.is_err() {
            self.leave(number);
        }
    }

    fn leave(&self, number: u64) {
        self.open.lock().retain(|(other, _)| *other != number);
    }

    fn converse(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_write_timeout(Some(PATIENCE))?;
        let timed = Timed { stream, give_up: Instant::now() + PATIENCE };
        match &self.tls {
            None => self.exchange(timed, |timed| timed.stream.shutdown(Shutdown::Write)),
            Some(tls) => self.exchange(StreamOwned::new(tls.session()?, timed), |tls| {
                tls.conn.send_close_notify();
                tls.conn.complete_io(&mut tls.sock)?;
                tls.sock.stream.shutdown(Shutdown::Write)
            }),
        }
    }

    fn exchange<S: Read + Write>(
        &self,
        mut stream: S,
        finish: impl FnOnce(&mut S) -> io::Result<()>,
    ) -> io::Result<()> {
        let (mut scanner, mut buffer, mut piece) = (HeadScanner::default(), BytesMut::new(), [0; READ_BYTES]);
        let (reply, head_only) = loop {
            let count = stream.read(&mut piece)?;
            if count == 0 {
                return Ok(());
            }
            buffer.extend_from_slice(piece.get(..count).unwrap_or_default());
            match scanner.request(&mut buffer) {
                Ok(None) => {}
                Ok(Some(head)) => break ((self.answer)(Ok(&head))?, head.method() == "HEAD"),
                Err(fault) => break ((self.answer)(Err(&fault))?, false),
            }
        };
        stream.write_all(&written(&reply, head_only))?;
        stream.flush()?;
        finish(&mut stream)?;
        // What the visitor still says is read, so that the answer is not destroyed by a reset (RFC 9112 section 9.6).
        while stream.read(&mut piece)? > 0 {}
        Ok(())
    }
}

fn written(reply: &Reply, head_only: bool) -> BytesMut {
    let mut out = BytesMut::with_capacity(256 + reply.body.len());
    let mut writer = HeadWriter::new(&mut out);
    writer.status_line(reply.status, canonical_reason(reply.status).as_bytes());
    writer.field("Content-Type", reply.content_type.as_bytes());
    for (name, value) in &reply.fields {
        writer.field(name, value.as_bytes());
    }
    writer.content_length(reply.body.len() as u64);
    writer.connection_close();
    writer.end();
    if !head_only {
        out.extend_from_slice(reply.body.as_bytes());
    }
    out
}

/// A connection that is given up at a moment, however it dribbles.
struct Timed {
    stream: TcpStream,
    give_up: Instant,
}

impl Read for Timed {
    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        let left = self.give_up.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(piece)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
