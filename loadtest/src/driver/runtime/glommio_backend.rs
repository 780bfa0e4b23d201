//! Sockets, tasks and timers of glommio, and plain words for why it cannot start.

use std::future::Future;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use futures_util::io::{AsyncReadExt as _, AsyncWriteExt as _};
use glommio::net::{TcpListener, TcpStream};
use glommio::{GlommioError, LocalExecutorBuilder, Placement, ReactorErrorKind};

use super::SetupError;

/// Registered I/O memory; sockets use none of it, and less memory locked means fewer machines refused.
const IO_MEMORY_BYTES: usize = 64 * 1024;
/// Entries of each of the executor's rings.
const RING_ENTRIES: usize = 1024;

pub(super) fn block_on<T>(future: impl Future<Output = T>) -> Result<T, SetupError> {
    let executor = LocalExecutorBuilder::new(Placement::Unbound)
        .io_memory(IO_MEMORY_BYTES)
        .ring_depth(RING_ENTRIES)
        .make()
        .map_err(|error| explain(&error))?;
    Ok(executor.run(future))
}

pub(super) fn spawn(future: impl Future<Output = ()> + 'static) {
    glommio::spawn_local(future).detach();
}

pub(super) async fn sleep(time: Duration) {
    glommio::timer::sleep(time).await;
}

/// A connection.
pub(in super::super) struct Socket(TcpStream);

impl Socket {
    pub(super) async fn connect(addr: SocketAddr, silence_max: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(addr, silence_max).await?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(silence_max))?;
        stream.set_write_timeout(Some(silence_max))?;
        Ok(Self(stream))
    }

    pub(super) async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf).await
    }

    pub(super) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes).await
    }

    pub(super) async fn finish(&mut self) -> io::Result<()> {
        Ok(self.0.shutdown(Shutdown::Write).await?)
    }
}

/// A listening socket.
pub(in super::super) struct Listener(TcpListener);

impl Listener {
    pub(super) fn bind(addr: SocketAddr) -> io::Result<Self> {
        Ok(Self(TcpListener::bind(addr)?))
    }

    pub(super) async fn accept(&self) -> io::Result<Socket> {
        let stream = self.0.accept().await?;
        stream.set_nodelay(true)?;
        Ok(Socket(stream))
    }
}

fn explain(error: &GlommioError<()>) -> SetupError {
    const RAISE: &str = "raise it with `ulimit -l 8192`, systemd `LimitMEMLOCK=8M` or docker `--ulimit memlock=8388608`, \
                         or use `--io epoll`";
    let os_error = match error {
        GlommioError::IoError(source) | GlommioError::EnhancedIoError { source, .. } => source.raw_os_error(),
        _ => None,
    };
    let limits = match error {
        GlommioError::ReactorError(ReactorErrorKind::MemLockLimit(limit, needed)) => Some(format!("{limit}/{needed}")),
        // Out of the executor's builder the same error comes as an I/O error that has only its text left.
        other => other.to_string().split_once("MemLockLimit(").map(|(_, rest)| rest.trim_end_matches(')').to_owned()),
    };
    // Linux error numbers: EPERM 1, ENOMEM 12, EACCES 13, ENOSYS 38.
    SetupError(match (limits, os_error) {
        (Some(limits), _) => {
            format!("RLIMIT_MEMLOCK is too low for io_uring (bytes allowed/needed: {limits}); {RAISE}")
        }
        (_, Some(12)) => format!("io_uring got no memory, most likely because of RLIMIT_MEMLOCK; {RAISE}"),
        (_, Some(1 | 13 | 38)) => {
            "io_uring is forbidden here; allow it (sysctl kernel.io_uring_disabled=0, a seccomp profile that lets \
             io_uring_setup through) or use `--io epoll`"
                .to_owned()
        }
        _ => format!("glommio cannot start: {error}; `--io epoll` needs nothing of it"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_memlock_limit_is_named_with_its_cure() {
        let expected =
            "RLIMIT_MEMLOCK is too low for io_uring (bytes allowed/needed: 65536/524288); raise it with `ulimit";
        let direct = explain(&GlommioError::ReactorError(ReactorErrorKind::MemLockLimit(65_536, 524_288)));
        assert!(direct.0.starts_with(expected), "{direct}");
        let as_text = io::Error::other("MemLockLimit(65536/524288)");
        let wrapped = explain(&GlommioError::IoError(as_text));
        assert!(wrapped.0.starts_with(expected), "{wrapped}");
    }
}
