//! The separate listener for `/metrics` (`server.metrics_addr`), served on the control thread's runtime.
//!
//! Invariant: it answers `GET` and `HEAD` of `/metrics` and nothing else, to whoever asks by a name of ours and is no web page of
//! another site. Knows no traffic.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HOST};
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::answer::Answering;
use super::takeover::HandOver;
use crate::admit::Presented;
use crate::admit::web::{Pages, Path, Visit};
use crate::meter::{self, Registry};

/// How often it is looked whether another process accepts now.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Accepts from `listener` on `runtime`, until that ends or another process does. The task ends when whoever it has accepted until
/// then has an answer.
pub(super) fn start(
    runtime: &Handle,
    listener: TcpListener,
    registry: Arc<Registry>,
    pages: Pages,
    hand_over: Arc<HandOver>,
) -> io::Result<JoinHandle<()>> {
    listener.set_nonblocking(true)?;
    let _entered = runtime.enter();
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let shared = Arc::new(Scraped { registry, pages, rendering: Semaphore::new(1) });
    let scrapers = Answering::new(None, move |request| reply(request.map(drop), Arc::clone(&shared)));
    let spawner = runtime.clone();
    Ok(runtime.spawn(async move {
        while !hand_over.is_given() {
            match tokio::time::timeout(LOOK_EVERY, listener.accept()).await {
                Ok(Ok((stream, _))) => scrapers.serve(&spawner, stream),
                // A scraper that left, or no descriptors: the next scrape comes in a few seconds.
                Ok(Err(_)) => tokio::time::sleep(Duration::from_millis(10)).await,
                Err(_) => {}
            }
        }
        drop(listener);
        scrapers.finished().await;
    }))
}

struct Scraped {
    registry: Arc<Registry>,
    pages: Pages,
    /// One scrape at a time takes a thread of those that everything else needs, too.
    rendering: Semaphore,
}

/// What a page, or a name that a page has pointed here, is told.
const NO_PAGES: &str = "this listener asks for no credential, so that it answers to IP addresses, localhost, names without a dot \
                        and `server.allowed_hosts` only, and to no web page of another site\n";

fn is_let_in(request: &Request<()>, pages: &Pages) -> bool {
    let fields = request.headers();
    let presented = Presented::read(fields.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes())));
    let named = request.uri().authority().map(http::uri::Authority::as_str);
    let host = named.or_else(|| fields.get(HOST)?.to_str().ok());
    let visit = Visit { method: request.method().as_str(), path: Path::Own, host, lends: false };
    fields.get_all(HOST).iter().count() <= 1 && pages.judge(&presented, visit).is_ok()
}

async fn reply(request: Request<()>, scraped: Arc<Scraped>) -> Response<Full<Bytes>> {
    if !is_let_in(&request, &scraped.pages) {
        return plain(StatusCode::FORBIDDEN, NO_PAGES);
    }
    match (request.uri().path(), request.method().as_str()) {
        ("/metrics", "GET" | "HEAD") => {}
        ("/metrics", _) => {
            let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "");
            refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return refused;
        }
        _ => return plain(StatusCode::NOT_FOUND, ""),
    }
    // Closed it never is.
    let _turn = scraped.rendering.acquire().await;
    let registry = Arc::clone(&scraped.registry);
    match tokio::task::spawn_blocking(move || registry.render()).await {
        Ok(Ok(text)) => plain(StatusCode::OK, text),
        Ok(Err(error)) => {
            tracing::error!(%error, "the metrics could not be written out");
            plain(StatusCode::INTERNAL_SERVER_ERROR, "")
        }
        // Its panic is in the log.
        Err(_) => plain(StatusCode::INTERNAL_SERVER_ERROR, ""),
    }
}

fn plain(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(meter::CONTENT_TYPE));
    response
}
