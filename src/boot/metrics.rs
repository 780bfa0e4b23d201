//! The separate listener for `/metrics` (`server.metrics_addr`): one plain thread that accepts, and one for each scrape.
//!
//! Invariant: it answers `GET` and `HEAD` of `/metrics` and nothing else, to whoever asks by a name of ours and is no web page of
//! another site. Knows no traffic.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::takeover::HandOver;
use super::visitors::{Reply, Visitors};
use crate::admit::Presented;
use crate::admit::web::{Pages, Path, Visit};
use crate::meter::{self, Registry};
use crate::wire::{Fault, RequestHead};

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
    pub(super) fn start(
        listener: TcpListener,
        registry: Arc<Registry>,
        pages: Pages,
        hand_over: Arc<HandOver>,
    ) -> io::Result<Self> {
        // On Linux the limit on reading holds for accepting.
        socket2::SockRef::from(&listener).set_read_timeout(Some(LOOK_EVERY))?;
        let stopping = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopping);
        let handle = std::thread::Builder::new().name("weir-metrics".to_owned()).spawn(move || {
            let scrapers = Visitors::new("weir-scrape", None, move |asked| reply(asked, &pages, &registry));
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

/// What a page, or a name that a page has pointed here, is told.
const NO_PAGES: &str = "this listener asks for no credential, so that it answers to IP addresses, localhost, names without a dot \
                        and `server.allowed_hosts` only, and to no web page of another site\n";

fn is_let_in(head: &RequestHead, pages: &Pages) -> bool {
    let presented = Presented::read(head.fields().map(|field| (field.name_bytes(), field.value())));
    let visit = Visit { method: head.method(), path: Path::Own, host: head.host(), lends: false };
    pages.judge(&presented, visit).is_ok()
}

fn reply(asked: Result<&RequestHead, &Fault>, pages: &Pages, registry: &Registry) -> io::Result<Reply> {
    let status = match asked.map(|head| (head.path(), head.method())) {
        _ if asked.is_ok_and(|head| !is_let_in(head, pages)) => 403,
        Ok(("/metrics", "GET" | "HEAD")) => 200,
        Ok(("/metrics", _)) => 405,
        Ok(_) => 404,
        Err(fault) => fault.status(),
    };
    let body = match status {
        200 => registry.render().map_err(io::Error::other)?,
        403 => NO_PAGES.to_owned(),
        _ => String::new(),
    };
    let fields = if status == 405 { vec![("Allow", "GET, HEAD".to_owned())] } else { Vec::new() };
    Ok(Reply { status, content_type: meter::CONTENT_TYPE, fields, body })
}
