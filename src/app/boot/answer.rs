//! Listeners that no core serves: the one for metrics, and the main one while the gateway starts. Each connection gets one answer,
//! from hyper on a tokio runtime.
//!
//! Invariant: a client that is slow or silent delays nobody. It is given up after [`PATIENCE`], and at once when
//! [`CONNECTIONS_MAX`] others have come.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::rt::TlsAcceptor;

/// Longest time for a connection.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often it is looked whether the last connection has ended.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Connections at a time.
const CONNECTIONS_MAX: usize = 16;
/// Read at a time of what a client says behind its request.
const READ_BYTES: usize = 1024;

/// Answers a request.
type Answer = dyn Fn(Request<Incoming>) -> BoxFuture<'static, Response<Full<Bytes>>> + Send + Sync;

/// The connections of a listener.
pub(super) struct Answering {
    tls: Option<Arc<TlsAcceptor>>,
    answer: Box<Answer>,
    /// The oldest first.
    open: Mutex<VecDeque<AbortHandle>>,
}

impl Answering {
    /// Nobody is there yet. With `tls` clients are expected to speak it.
    pub(super) fn new<F>(
        tls: Option<Arc<TlsAcceptor>>,
        answer: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    ) -> Arc<Self>
    where
        F: Future<Output = Response<Full<Bytes>>> + Send + 'static,
    {
        Arc::new(Self { tls, answer: Box::new(move |request| Box::pin(answer(request))), open: Mutex::default() })
    }

    /// Answers on `stream`, in a task of `runtime`; where there are too many connections, the oldest has had its time.
    pub(super) fn serve(self: &Arc<Self>, runtime: &Handle, stream: TcpStream) {
        let answering = Arc::clone(self);
        let task = runtime.spawn(async move {
            let outcome = tokio::time::timeout(PATIENCE, answering.connection(stream)).await;
            if let Ok(Err(error)) = outcome {
                tracing::debug!(%error, "a connection was not answered");
            }
        });
        let mut open = self.open.lock();
        open.retain(|other| !other.is_finished());
        open.push_back(task.abort_handle());
        if open.len() > CONNECTIONS_MAX
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
    }

    /// Waits until all connections have ended.
    pub(super) async fn finished(&self) {
        while self.open.lock().iter().any(|open| !open.is_finished()) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn connection(&self, stream: TcpStream) -> io::Result<()> {
        match &self.tls {
            None => self.exchange(stream).await,
            Some(tls) => self.exchange(tokio_rustls::TlsAcceptor::from(tls.config()).accept(stream).await?).await,
        }
    }

    async fn exchange<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(&self, stream: S) -> io::Result<()> {
        let answer = |request| async { Ok::<_, Infallible>((self.answer)(request).await) };
        let connection =
            http1::Builder::new().keep_alive(false).serve_connection(TokioIo::new(stream), service_fn(answer));
        let ended = connection.without_shutdown().await.map_err(io::Error::other)?;
        let mut stream = ended.io.into_inner();
        stream.shutdown().await?;
        // What the client still says is read, so that the answer is not destroyed by a reset (RFC 9112 section 9.6).
        let mut piece = [0; READ_BYTES];
        while stream.read(&mut piece).await? > 0 {}
        Ok(())
    }
}
