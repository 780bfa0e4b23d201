//! The separate listener for `/metrics` (`server.metrics_addr`): one plain thread that accepts, and one for each scrape.
//!
//! Invariant: it answers `GET` and `HEAD` of `/metrics` and nothing else, whoever asks; a scraper that is slow or silent delays
//! nobody: it is given up after [`PATIENCE`], and at once when [`SCRAPERS_MAX`] others have come. Knows no traffic.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use parking_lot::Mutex;

use super::takeover::HandOver;
use crate::meter::{self, Registry};
use crate::wire::{HeadScanner, HeadWriter, canonical_reason};

/// Longest time for a scrape; as long again for a write that makes no progress.
const PATIENCE: Duration = Duration::from_secs(2);
/// Scrapes at a time.
const SCRAPERS_MAX: usize = 16;
/// How often the accepting thread sees whether it is to end. The socket may be another process's by then, so it is not woken
/// through it.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The running thread.
pub(super) struct MetricsThread {
    stopping: Arc<AtomicBool>,
    handle: JoinHandle<()>,
}

impl MetricsThread {
    /// Accepts from `listener` until it is stopped, or another process does.
    pub(super) fn start(listener: TcpListener, registry: Arc<Registry>, hand_over: Arc<HandOver>) -> io::Result<Self> {
        // On Linux the limit on reading holds for accepting.
        socket2::SockRef::from(&listener).set_read_timeout(Some(LOOK_EVERY))?;
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopping);
        let handle = std::thread::Builder::new().name("weir-metrics".to_owned()).spawn(move || {
            let scrapers = Arc::new(Scrapers { registry, open: Mutex::default() });
            for number in 0.. {
                if stop.load(Ordering::Acquire) || hand_over.is_given() {
                    break;
                }
                match listener.accept() {
                    Ok((stream, _)) => scrapers.serve(number, stream),
                    Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                    // A scraper that left, or no descriptors: the next scrape comes in a few seconds.
                    Err(_) => std::thread::sleep(Duration::from_millis(10)),
                }
            }
        })?;
        Ok(Self { stopping, handle })
    }

    /// Ends the thread.
    pub(super) fn stop(self) {
        self.stopping.store(true, Ordering::Release);
        if self.handle.join().is_err() {
            tracing::error!("the metrics thread panicked");
        }
    }
}

/// The scrapes under way, the oldest first.
struct Scrapers {
    registry: Arc<Registry>,
    open: Mutex<VecDeque<(u64, TcpStream)>>,
}

impl Scrapers {
    /// Answers on a thread of its own; where there are too many, the oldest scrape has had its time.
    fn serve(self: &Arc<Self>, number: u64, stream: TcpStream) {
        let Ok(own) = stream.try_clone() else { return };
        let oldest = {
            let mut open = self.open.lock();
            open.push_back((number, own));
            if open.len() > SCRAPERS_MAX { open.pop_front() } else { None }
        };
        if let Some((_, oldest)) = oldest {
            // It may have gone by itself.
            let _gone = oldest.shutdown(Shutdown::Both).is_err();
        }
        let scrapers = Arc::clone(self);
        let thread = std::thread::Builder::new().name("weir-scrape".to_owned()).spawn(move || {
            if let Err(error) = serve(stream, &scrapers.registry) {
                tracing::debug!(%error, "a scrape was not answered");
            }
            scrapers.leave(number);
        });
        if thread.is_err() {
            self.leave(number);
        }
    }

    fn leave(&self, number: u64) {
        self.open.lock().retain(|(other, _)| *other != number);
    }
}

fn serve(mut stream: TcpStream, registry: &Registry) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let give_up = Instant::now() + PATIENCE;
    let (mut scanner, mut buffer, mut piece) = (HeadScanner::default(), BytesMut::new(), [0; 1024]);
    let (status, head_only) = loop {
        let count = read_before(give_up, &mut stream, &mut piece)?;
        if count == 0 {
            return Ok(());
        }
        buffer.extend_from_slice(piece.get(..count).unwrap_or_default());
        match scanner.request(&mut buffer) {
            Ok(None) => {}
            Ok(Some(head)) => {
                let status = match (head.path(), head.method()) {
                    ("/metrics", "GET" | "HEAD") => 200,
                    ("/metrics", _) => 405,
                    _ => 404,
                };
                break (status, head.method() == "HEAD");
            }
            Err(fault) => break (fault.status(), false),
        }
    };
    let body = if status == 200 { registry.render().map_err(io::Error::other)? } else { String::new() };
    let mut out = BytesMut::with_capacity(256 + body.len());
    let mut writer = HeadWriter::new(&mut out);
    writer.status_line(status, canonical_reason(status).as_bytes());
    writer.field("Content-Type", meter::CONTENT_TYPE.as_bytes());
    if status == 405 {
        writer.field("Allow", b"GET, HEAD");
    }
    writer.content_length(body.len() as u64);
    writer.connection_close();
    writer.end();
    if !head_only {
        out.extend_from_slice(body.as_bytes());
    }
    stream.write_all(&out)?;
    stream.shutdown(Shutdown::Write)?;
    // What the scraper still says is read, so that the answer is not destroyed by a reset (RFC 9112 section 9.6).
    while read_before(give_up, &mut stream, &mut piece)? > 0 {}
    Ok(())
}

fn read_before(give_up: Instant, stream: &mut TcpStream, piece: &mut [u8]) -> io::Result<usize> {
    let left = give_up.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    stream.set_read_timeout(Some(left))?;
    stream.read(piece)
}
