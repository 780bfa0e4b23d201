//! What the listener says while the gateway starts: the store may have to be opened, migrated, checked or waited for, and a
//! probe is to hear `starting` meanwhile, not silence.
//!
//! | path           | answer                          |
//! |----------------|---------------------------------|
//! | health report  | 503, `status` is `starting`     |
//! | `/livez`       | 200 `alive`                     |
//! | `/readyz`      | 503 `starting`                  |
//! | everything else| 503 `service_starting`, retry   |
//!
//! The listener for metrics says the same. Only sockets that this process has bound itself are answered on. Those of a
//! process that is taken over are served by it until this one is ready, and clients of a service manager's socket wait:
//! that is what it holds the socket for.
//!
//! Invariant: no core accepts before the thread has ended, so none waits for a connection that went elsewhere.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use tokio::runtime::Runtime;
use weir_config::Settings;
use weir_config::vocab::{Dialect, TraceId};

use super::answer::Answering;
use crate::control::probe;
use crate::exchange::Refusal;
use crate::inspect;
use crate::ops::health::Health;
use crate::rt::{self, TlsAcceptor};

/// How often the thread sees whether it is to end: what a start is longer for it.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// The running thread; dropping it ends it.
pub(super) struct Starting {
    over: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
}

impl Starting {
    /// Answers on `listeners` until it is dropped.
    pub(super) fn answer(
        listeners: Vec<TcpListener>,
        settings: Arc<Settings>,
        health: Arc<Health>,
        tls: Option<Arc<TlsAcceptor>>,
    ) -> io::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        if listeners.is_empty() {
            return Ok(Self { over, handle: None });
        }
        let stop = Arc::clone(&over);
        // Accepts here and answers on a thread of the runtime's: the sockets are the cores', which wait in ways of their own.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("weir-starting")
            .enable_all()
            .build()?;
        let handle = std::thread::Builder::new().name("weir-starting".to_owned()).spawn(move || {
            let answering = Answering::new(tls, move |request| {
                std::future::ready(reply(request.method(), request.uri().path(), &settings, &health))
            });
            while !stop.load(Ordering::Acquire) {
                let Some(stream) = rt::accept_any(&listeners, LOOK_EVERY) else { continue };
                let _entered = runtime.enter();
                let stream = stream.set_nonblocking(true).and_then(|()| tokio::net::TcpStream::from_std(stream));
                if let Ok(stream) = stream {
                    answering.serve(runtime.handle(), stream);
                }
            }
            finish(runtime, answering);
        })?;
        Ok(Self { over, handle: Some(handle) })
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if self.handle.take().is_some_and(|handle| handle.join().is_err()) {
            tracing::error!("the thread that answers during the start panicked");
        }
    }
}

/// Lets the last clients have their answers; the start does not wait for that.
fn finish(runtime: Runtime, answering: Arc<Answering>) {
    let ending = std::thread::Builder::new().name("weir-starting".to_owned()).spawn(move || {
        runtime.block_on(answering.finished());
        runtime.shutdown_background();
    });
    if let Err(error) = ending {
        tracing::debug!(%error, "the last clients of the start were cut");
    }
}

fn reply(method: &Method, path: &str, settings: &Settings, health: &Health) -> Response<Full<Bytes>> {
    // A report that has been moved leaves its path to the provider.
    let probed = match path {
        path if path == settings.health_check.path => "/health",
        "/health" => "",
        path => path,
    };
    if let Some(answer) = probe(health, method.as_str(), probed) {
        return answer.map(Full::new);
    }
    let refusal = Refusal::new(
        503,
        "service_starting",
        "the gateway is starting: its database is being opened and its parts are being built; ask again in a second, or \
         wait until /readyz answers 200",
    );
    let dialect = inspect::route(None, path, &settings.upstream.host).dialect;
    refused(&refusal.header("Retry-After", 1), dialect)
}

fn refused(refusal: &Refusal, dialect: Dialect) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(refusal.body(dialect, TraceId::fresh()))));
    *response.status_mut() = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in &refusal.headers {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(*name, value);
        }
    }
    response
}
