//! The runtime seam of the measuring side: sockets, tasks and timers over one of two backends.
//!
//! | backend | readiness | why |
//! |---|---|---|
//! | `epoll` (default) | edge-triggered epoll, nanosecond waits | a busy thread is not interrupted: what sends to it pays nothing |
//! | `glommio` | io_uring polls | for comparison; needs RLIMIT_MEMLOCK |
//!
//! glommio builds its rings without cooperative task running, so every byte that arrives interrupts the receiving core,
//! and the *sender* pays for that interrupt: a proxy between two glommio peers was charged about 10 us of CPU per
//! request more than between two epoll peers. A tester must not add to the figure it reports, hence the default.
//!
//! Invariant: no other file of the driver names a backend. Everything runs on the thread that called [`block_on`].

mod epoll;
mod epoll_sys;
mod glommio_backend;

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use futures_util::future::{Either, select};

use super::SetupError;

/// Which backend drives sockets and timers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Io {
    /// Edge-triggered epoll.
    Epoll,
    /// glommio's io_uring executor.
    Glommio,
}

thread_local! {
    static CURRENT: Cell<Io> = const { Cell::new(Io::Epoll) };
}

/// Runs a future to its end on this thread.
pub(super) fn block_on<T>(io: Io, future: impl Future<Output = T>) -> Result<T, SetupError> {
    CURRENT.set(io);
    match io {
        Io::Epoll => epoll::block_on(future).map_err(|error| SetupError(format!("epoll cannot be used: {error}"))),
        Io::Glommio => glommio_backend::block_on(future),
    }
}

/// Starts a task of its own; it ends with the runtime at the latest.
pub(super) fn spawn(future: impl Future<Output = ()> + 'static) {
    match CURRENT.get() {
        Io::Epoll => epoll::spawn(future),
        Io::Glommio => glommio_backend::spawn(future),
    }
}

/// Waits.
pub(super) async fn sleep(time: Duration) {
    match CURRENT.get() {
        Io::Epoll => epoll::Sleep::until(Instant::now() + time).await,
        Io::Glommio => glommio_backend::sleep(time).await,
    }
}

/// The future's output, or `None` when `time` passes first; the future is dropped then.
pub(super) async fn timeout<T>(time: Duration, future: impl Future<Output = T>) -> Option<T> {
    match select(pin!(future), pin!(sleep(time))).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(_) => None,
    }
}

/// A TCP connection, Nagle's algorithm off.
pub(super) enum Socket {
    Epoll(epoll::Socket),
    Glommio(glommio_backend::Socket),
}

impl Socket {
    /// Opens a connection. `silence_max` bounds the opening and later every single read and write.
    pub(super) async fn connect(addr: SocketAddr, silence_max: Duration) -> io::Result<Self> {
        Ok(match CURRENT.get() {
            Io::Epoll => Self::Epoll(epoll::Socket::connect(addr, silence_max).await?),
            Io::Glommio => Self::Glommio(glommio_backend::Socket::connect(addr, silence_max).await?),
        })
    }

    /// Reads what is there, waiting for the first byte; 0 is the end.
    pub(super) async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Epoll(socket) => socket.read(buf).await,
            Self::Glommio(socket) => socket.read(buf).await,
        }
    }

    /// Writes everything.
    pub(super) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Epoll(socket) => socket.write_all(bytes).await,
            Self::Glommio(socket) => socket.write_all(bytes).await,
        }
    }

    /// Says that nothing more will be written.
    pub(super) async fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Epoll(socket) => socket.finish(),
            Self::Glommio(socket) => socket.finish().await,
        }
    }
}

/// A listening socket that shares its port with others of this process.
pub(super) enum Listener {
    Epoll(epoll::Listener),
    Glommio(glommio_backend::Listener),
}

impl Listener {
    /// Listens.
    pub(super) fn bind(addr: SocketAddr) -> io::Result<Self> {
        Ok(match CURRENT.get() {
            Io::Epoll => Self::Epoll(epoll::Listener::bind(addr)?),
            Io::Glommio => Self::Glommio(glommio_backend::Listener::bind(addr)?),
        })
    }

    /// Waits for the next connection.
    pub(super) async fn accept(&mut self) -> io::Result<Socket> {
        Ok(match self {
            Self::Epoll(listener) => Socket::Epoll(listener.accept().await?),
            Self::Glommio(listener) => Socket::Glommio(listener.accept().await?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on_both(test: impl AsyncFn()) {
        for io in [Io::Epoll, Io::Glommio] {
            block_on(io, test()).unwrap();
        }
    }

    #[test]
    fn a_sleep_lasts_as_long_as_it_should() {
        on_both(async || {
            let start = Instant::now();
            sleep(Duration::from_micros(1500)).await;
            assert!(start.elapsed() >= Duration::from_micros(1500));
        });
    }

    #[test]
    fn the_shorter_of_future_and_timeout_wins() {
        on_both(async || {
            assert_eq!(timeout(Duration::from_secs(5), async { 7 }).await, Some(7));
            assert_eq!(timeout(Duration::from_millis(2), sleep(Duration::from_secs(60))).await, None);
        });
    }

    #[test]
    fn large_writes_arrive_whole_and_the_end_is_seen() {
        on_both(async || {
            let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let addr = probe.local_addr().unwrap();
            drop(probe);
            let mut listener = Listener::bind(addr).unwrap();
            let sent: Vec<u8> = (0..4_000_000u32).map(|i| i as u8).collect();
            let expected = sent.clone();
            let mut client = Socket::connect(addr, Duration::from_secs(5)).await.unwrap();
            spawn(async move {
                client.write_all(&sent).await.unwrap();
                client.finish().await.unwrap();
                // Held open until the other side is done.
                client.read(&mut [0]).await.unwrap();
            });
            let mut server = listener.accept().await.unwrap();
            let (mut received, mut buf) = (Vec::new(), vec![0; 10_000]);
            loop {
                let count = server.read(&mut buf).await.unwrap();
                if count == 0 {
                    break;
                }
                received.extend_from_slice(&buf[..count]);
            }
            assert!(received == expected, "{} of {} bytes", received.len(), expected.len());
        });
    }

    #[test]
    fn silence_ends_a_read() {
        on_both(async || {
            let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let mut client = Socket::connect(silent.local_addr().unwrap(), Duration::from_millis(20)).await.unwrap();
            assert_eq!(client.read(&mut [0; 8]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        });
    }
}
