//! The separate listener for `/metrics` (`server.metrics_addr`): one plain thread that serves one scrape at a time.
//!
//! Invariant: it answers `GET` and `HEAD` of `/metrics` and nothing else, whoever asks; a scraper that is slow or silent
//! is given up after [`PATIENCE`] each read and write. Knows no traffic.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::BytesMut;

use crate::meter::{self, Registry};
use crate::wire::{HeadScanner, HeadWriter, canonical_reason};

/// Longest wait for a scraper.
const PATIENCE: Duration = Duration::from_secs(2);

/// The running thread.
pub(super) struct MetricsThread {
    addr: SocketAddr,
    stopping: Arc<AtomicBool>,
    handle: JoinHandle<()>,
}

impl MetricsThread {
    /// Listens on `addr`.
    pub(super) fn start(addr: SocketAddr, registry: Arc<Registry>) -> io::Result<Self> {
        let listener = TcpListener::bind(addr)?;
        let addr = listener.local_addr()?;
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopping);
        let handle = std::thread::Builder::new().name("weir-metrics".to_owned()).spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::Acquire) {
                    break;
                }
                // A scraper that left, or no descriptors: the next scrape comes in a few seconds.
                if stream.and_then(|stream| serve(stream, &registry)).is_err() {
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        })?;
        Ok(Self { addr, stopping, handle })
    }

    /// The address that is listened on.
    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Ends the thread.
    pub(super) fn stop(self) {
        self.stopping.store(true, Ordering::Release);
        let mut own = self.addr;
        if own.ip().is_unspecified() {
            own.set_ip(if own.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() });
        }
        // Wakes the thread; where that fails it ends with the process.
        if TcpStream::connect_timeout(&own, PATIENCE).is_ok() && self.handle.join().is_err() {
            tracing::error!("the metrics thread panicked");
        }
    }
}

fn serve(mut stream: TcpStream, registry: &Registry) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let give_up = Instant::now() + PATIENCE;
    let (mut scanner, mut buffer, mut piece) = (HeadScanner::default(), BytesMut::new(), [0; 1024]);
    let (status, head_only) = loop {
        let count = stream.read(&mut piece)?;
        if count == 0 || Instant::now() > give_up {
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
    while stream.read(&mut piece)? > 0 && Instant::now() < give_up {}
    Ok(())
}
