//! New connections: straight to the destination, or through the proxy that the environment names for it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use http::{HeaderValue, Uri};
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower::Service;
use weir_config::egress::{Proxy, ProxyRules};
use weir_config::settings::Scheme;

use super::error::OutboundError;
use crate::forward;

/// Bounds what a proxy may answer to `CONNECT`.
const TUNNEL_HEAD_BYTES: usize = 8 * 1024;

/// Where a call goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Destination {
    scheme: Scheme,
    host: String,
    port: u16,
}

impl Destination {
    pub(super) fn of(uri: &Uri) -> Result<Self, OutboundError> {
        let (scheme, usual) = match uri.scheme_str() {
            Some("https") => (Scheme::Https, 443),
            Some("http") => (Scheme::Http, 80),
            _ => return Err(OutboundError::Url("its scheme is neither http nor https")),
        };
        let authority = uri.authority().ok_or(OutboundError::Url("it names no host"))?;
        if authority.as_str().contains('@') {
            return Err(OutboundError::Url("it holds a user name or a password; send them in a header"));
        }
        let port = authority.port_u16();
        if port.is_none() && authority.as_str() != authority.host() {
            return Err(OutboundError::Url("its port is none"));
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(OutboundError::Url("it names no host"));
        }
        Ok(Self { scheme, host: host.to_owned(), port: port.unwrap_or(usual) })
    }

    pub(super) fn is_tls(&self) -> bool {
        self.scheme == Scheme::Https
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, .. } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// Makes connections.
#[derive(Clone)]
pub(super) struct Connector(Arc<Rules>);

struct Rules {
    proxies: ProxyRules,
    tls: Arc<ClientConfig>,
    limit: Duration,
}

impl Connector {
    pub(super) fn new(proxies: ProxyRules, tls: Arc<ClientConfig>, limit: Duration) -> Self {
        Self(Arc::new(Rules { proxies, tls, limit }))
    }

    /// A connection straight to `host`.
    pub(super) async fn open(&self, host: &str, port: u16, is_tls: bool) -> io::Result<Opened> {
        let Rules { tls, limit, .. } = &*self.0;
        let connect = async {
            let tcp = dial(host, port, *limit).await?;
            if !is_tls {
                return Ok(Opened::Plain(tcp));
            }
            let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
            let tls = TlsConnector::from(Arc::clone(tls)).connect(name, tcp).await?;
            Ok(Opened::Tls(Box::new(tls)))
        };
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {limit:?}"));
        tokio::time::timeout(*limit, connect).await.map_err(late)?
    }

    /// What the proxy on the way to `destination` wants to see, if there is one and it wants something.
    pub(super) fn authorization(&self, destination: &Destination) -> Result<Option<HeaderValue>, OutboundError> {
        let Some(proxy) = self.0.proxy(destination)? else { return Ok(None) };
        let value = forward::authorization(&proxy).and_then(|value| HeaderValue::from_bytes(value.expose()).ok());
        Ok(value.map(|mut value| {
            value.set_sensitive(true);
            value
        }))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<TokioIo<Stream>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let rules = Arc::clone(&self.0);
        Box::pin(async move {
            let limit = rules.limit;
            let connected = tokio::time::timeout(limit, rules.connect(&uri)).await;
            connected
                .unwrap_or_else(|_| {
                    Err(io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {limit:?}")))
                })
                .map(TokioIo::new)
        })
    }
}

impl Rules {
    fn proxy(&self, to: &Destination) -> Result<Option<Arc<Proxy>>, OutboundError> {
        let proxy = self.proxies.proxy_for(to.scheme, &to.host, to.port);
        proxy.map_err(|source| OutboundError::Proxy { to: to.to_string(), source })
    }

    async fn connect(&self, uri: &Uri) -> io::Result<Stream> {
        let to = Destination::of(uri).map_err(io::Error::other)?;
        let proxy = self.proxy(&to).map_err(io::Error::other)?;
        let tcp = match &proxy {
            None => dial(&to.host, to.port, self.limit).await?,
            Some(proxy) => dial(&proxy.host, proxy.port, self.limit).await.map_err(|error| {
                let (at, variable) = (proxy.authority(), proxy.variable);
                io::Error::new(error.kind(), format!("the proxy {at} of {variable} cannot be reached: {error}"))
            })?,
        };
        if !to.is_tls() {
            return Ok(Stream { io: Box::new(tcp), asks_proxy: proxy.is_some() });
        }
        let tcp = match &proxy {
            Some(proxy) => tunnel(tcp, &to, proxy).await?,
            None => tcp,
        };
        let name = ServerName::try_from(to.host).map_err(io::Error::other)?;
        let tls = TlsConnector::from(Arc::clone(&self.tls)).connect(name, tcp).await?;
        Ok(Stream { io: Box::new(tls), asks_proxy: false })
    }
}

/// Connects to the first address that answers; each has its share of `limit`, so that one that leads nowhere leaves the others
/// their chance.
async fn dial(host: &str, port: u16, limit: Duration) -> io::Result<TcpStream> {
    let end = Instant::now() + limit;
    let found: Vec<SocketAddr> = tokio::net::lookup_host((host, port)).await?.collect();
    let addresses = forward::alternating(found);
    let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for (at, address) in addresses.iter().enumerate() {
        let left = end.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(addresses.len() - at).unwrap_or(u32::MAX);
        match tokio::time::timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(tcp)) => {
                tcp.set_nodelay(true)?;
                return Ok(tcp);
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::Error::new(io::ErrorKind::TimedOut, format!("{address} does not answer")),
        }
    }
    Err(last)
}

/// Asks a proxy for a tunnel to `to` (RFC 9110 section 9.3.6).
async fn tunnel(mut tcp: TcpStream, to: &Destination, proxy: &Proxy) -> io::Result<TcpStream> {
    let mut ask = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n").into_bytes();
    if let Some(value) = forward::authorization(proxy) {
        ask.extend_from_slice(b"Proxy-Authorization: ");
        ask.extend_from_slice(value.expose());
        ask.extend_from_slice(b"\r\n");
    }
    ask.extend_from_slice(b"\r\n");
    tcp.write_all(&ask).await?;
    let mut head = Vec::with_capacity(256);
    // Interim answers count, too: they must not go on for ever.
    let mut room = TUNNEL_HEAD_BYTES;
    loop {
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut answer = httparse::Response::new(&mut fields);
        let parsed = answer.parse(&head);
        let parsed = parsed.map_err(|error| io::Error::other(format!("the proxy's answer is not usable: {error}")))?;
        let httparse::Status::Complete(length) = parsed else {
            if room == 0 {
                return Err(io::Error::other("the proxy's answer is too long"));
            }
            let read = (&mut tcp).take(room as u64).read_buf(&mut head).await?;
            if read == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the proxy closed the connection"));
            }
            room -= read;
            continue;
        };
        let (status, reason) = (answer.code.unwrap_or(0), answer.reason.unwrap_or_default().to_owned());
        match status {
            // The final answer may have come with it.
            100..200 => drop(head.drain(..length)),
            200..300 if head.len() == length => return Ok(tcp),
            // In TLS the client speaks first: whoever sends these bytes is not the destination.
            200..300 => return Err(io::Error::other("the proxy sent bytes nobody asked for behind its answer")),
            _ => return Err(io::Error::other(format!("the proxy refused the tunnel: {status} {reason}"))),
        }
    }
}

/// A connection for another protocol than HTTP.
#[derive(Debug)]
pub enum Opened {
    /// Not encrypted.
    Plain(TcpStream),
    /// Encrypted.
    Tls(Box<TlsStream<TcpStream>>),
}

/// A connection, plain or TLS.
pub(super) struct Stream {
    io: Box<dyn Io>,
    /// The proxy is asked for whole URLs over it.
    asks_proxy: bool,
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new().proxy(self.asks_proxy)
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, into)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
