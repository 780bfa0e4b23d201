//! The runtime seam of the load tester: sockets, tasks and timers on the thread that called [`block_on`].
//!
//! Edge-triggered epoll with waits exact to the nanosecond, by hand: a busy thread is not interrupted, so what sends to
//! it pays nothing, and a request costs one read and one write on each side. An io_uring executor (glommio) was charged
//! twice the CPU per request here, and made the *sender* pay for an interrupt per message: a proxy between two such peers
//! looked about 5 us per request worse than between two of these. A tester must not add to the figure it reports.

mod epoll;
mod epoll_sys;

use std::future::Future;
use std::pin::pin;
use std::time::{Duration, Instant};

pub(crate) use epoll::{Listener, Socket, spawn};
use futures_util::future::{Either, select};

use crate::error::SetupError;

/// Runs a future to its end on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> Result<T, SetupError> {
    epoll::block_on(future).map_err(|error| SetupError(format!("epoll cannot be used: {error}")))
}

/// Waits.
pub(crate) async fn sleep(time: Duration) {
    epoll::Sleep::until(Instant::now() + time).await;
}

/// The future's output, or `None` when `time` passes first; the future is dropped then.
pub(crate) async fn timeout<T>(time: Duration, future: impl Future<Output = T>) -> Option<T> {
    match select(pin!(future), pin!(sleep(time))).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_sleep_lasts_as_long_as_it_should() {
        block_on(async {
            let start = Instant::now();
            sleep(Duration::from_micros(1500)).await;
            assert!(start.elapsed() >= Duration::from_micros(1500));
        })
        .unwrap();
    }

    #[test]
    fn the_shorter_of_future_and_timeout_wins() {
        block_on(async {
            assert_eq!(timeout(Duration::from_secs(5), async { 7 }).await, Some(7));
            assert_eq!(timeout(Duration::from_millis(2), sleep(Duration::from_secs(60))).await, None);
        })
        .unwrap();
    }

    #[test]
    fn large_writes_arrive_whole_and_the_end_is_seen() {
        block_on(async {
            let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let addr = probe.local_addr().unwrap();
            drop(probe);
            let listener = Listener::bind(addr).unwrap();
            let sent: Vec<u8> = (0..4_000_000u32).map(|i| i as u8).collect();
            let expected = sent.clone();
            let mut client = Socket::connect(addr, Duration::from_secs(5)).await.unwrap();
            spawn(async move {
                client.write_all(&sent).await.unwrap();
                client.finish().unwrap();
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
        })
        .unwrap();
    }

    #[test]
    fn silence_ends_a_read() {
        block_on(async {
            let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let mut client = Socket::connect(silent.local_addr().unwrap(), Duration::from_millis(20)).await.unwrap();
            assert_eq!(client.read(&mut [0; 8]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        })
        .unwrap();
    }
}
