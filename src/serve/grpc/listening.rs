//! Connections of gRPC clients: accepted, shaken hands with, and given up when they fall silent.

use std::io;
use std::mem::MaybeUninit;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::stream::{Stream, poll_fn};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, Sleep};
use tonic::transport::server::Connected;

use super::bounds::{CONNECTIONS_MAX, Times};
use super::places::{Place, Places};
use crate::admit::connections::ClientKey;
use crate::meter::Registry;
use crate::rt::TlsAcceptor;

/// How long what still comes is read behind our end, at most.
const LINGER: Duration = Duration::from_millis(500);

/// Bytes both ways.
trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A client's connection.
pub(super) struct Conn {
    io: Box<dyn Io>,
    peer: Peer,
    /// Ends it when nothing has come for as long as that.
    silence_max: Duration,
    silence: Pin<Box<Sleep>>,
    /// We have said our last word.
    is_ended: bool,
    _place: Place<ClientKey>,
}

/// Where it comes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(pub(super) IpAddr);

/// What is listened on.
pub(super) struct Listening {
    pub(super) listener: TcpListener,
    pub(super) tls: Option<Arc<TlsAcceptor>>,
    pub(super) registry: Arc<Registry>,
    pub(super) times: Times,
    pub(super) stopping: watch::Receiver<bool>,
}

impl Listening {
    /// The connections that come, until `stopping` says so.
    pub(super) fn connections(self) -> impl Stream<Item = io::Result<Conn>> + Send {
        let (ready, mut come) = mpsc::channel(1);
        tokio::spawn(self.accept(ready));
        poll_fn(move |context| come.poll_recv(context))
    }

    async fn accept(mut self, ready: mpsc::Sender<io::Result<Conn>>) {
        let places = Places::new(CONNECTIONS_MAX);
        loop {
            let accepted = tokio::select! {
                biased;
                _ = self.stopping.wait_for(|stopping| *stopping) => return,
                accepted = self.listener.accept() => accepted,
            };
            let Ok((stream, from)) = accepted else {
                // A client that left, or no descriptors: both pass.
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            let Some(place) = places.enter(ClientKey::from(from.ip())) else {
                self.registry.shared().dropped("grpc_connections", "full", 1);
                continue;
            };
            let (tls, ready, times) = (self.tls.clone(), ready.clone(), self.times);
            tokio::spawn(async move {
                match tokio::time::timeout(times.handshake, shake_hands(stream, tls)).await {
                    Ok(Ok(io)) => {
                        let silence_max = times.silence;
                        let silence = Box::pin(tokio::time::sleep(silence_max));
                        let conn =
                            Conn { io, peer: Peer(from.ip()), silence_max, silence, is_ended: false, _place: place };
                        // The server has stopped: so does the connection.
                        drop(ready.send(Ok(conn)).await);
                    }
                    Ok(Err(error)) => tracing::debug!(%error, "a gRPC client's TLS handshake failed"),
                    Err(_) => tracing::debug!("a gRPC client's TLS handshake took too long"),
                }
            });
        }
    }
}

async fn shake_hands(stream: TcpStream, tls: Option<Arc<TlsAcceptor>>) -> io::Result<Box<dyn Io>> {
    stream.set_nodelay(true)?;
    let Some(tls) = tls else { return Ok(Box::new(stream)) };
    // The certificate of the main listener, and HTTP/2, which gRPC is spoken over.
    let mut config = (*tls.config()).clone();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Box::new(tokio_rustls::TlsAcceptor::from(Arc::new(config)).accept(stream).await?))
}

impl Connected for Conn {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer
    }
}

impl AsyncRead for Conn {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if let Poll::Ready(read) = Pin::new(&mut this.io).poll_read(context, into) {
            this.silence.as_mut().reset(Instant::now() + this.silence_max);
            return Poll::Ready(read);
        }
        ready!(this.silence.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncWrite for Conn {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    /// Ends our side, and reads until the client has ended its own: a socket that is closed over unread bytes resets the connection, and
    /// who is still sending would lose the answer that is on its way (RFC 9293, section 3.6.1).
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.is_ended {
            ready!(Pin::new(&mut this.io).poll_shutdown(context))?;
            this.is_ended = true;
            this.silence.as_mut().reset(Instant::now() + LINGER);
        }
        let mut unread = [MaybeUninit::uninit(); 4096];
        while this.silence.as_mut().poll(context).is_pending() {
            let mut unread = ReadBuf::uninit(&mut unread);
            let read = ready!(Pin::new(&mut this.io).poll_read(context, &mut unread));
            if read.is_err() || unread.filled().is_empty() {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    fn connected() -> (DuplexStream, Conn) {
        let (client, server) = duplex(64);
        let (silence_max, peer) = (Duration::from_secs(60), IpAddr::from([127, 0, 0, 1]));
        let place = Places::new(1).enter(ClientKey::from(peer)).unwrap();
        let silence = Box::pin(tokio::time::sleep(silence_max));
        let io: Box<dyn Io> = Box::new(server);
        (client, Conn { io, peer: Peer(peer), silence_max, silence, is_ended: false, _place: place })
    }

    fn wait<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
    }

    #[test]
    fn who_is_still_sending_gets_the_answer_and_is_read_to_the_end() {
        wait(async {
            let (mut client, mut conn) = connected();
            conn.write_all(b"the answer").await.unwrap();
            let end = |conn: &mut Conn| Pin::new(conn).poll_shutdown(&mut Context::from_waker(Waker::noop()));
            assert!(end(&mut conn).is_pending());
            // More than fits between them: somebody reads it.
            for _ in 0..10 {
                client.write_all(&[1; 64]).await.unwrap();
                assert!(end(&mut conn).is_pending());
            }
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            assert_eq!(answer, b"the answer");
            drop(client);
            assert!(matches!(end(&mut conn), Poll::Ready(Ok(()))));
        });
    }

    #[test]
    fn a_client_that_never_ends_keeps_no_connection() {
        wait(async {
            let (_client, mut conn) = connected();
            let begun = Instant::now();
            conn.shutdown().await.unwrap();
            assert!(begun.elapsed() >= LINGER);
        });
    }
}
