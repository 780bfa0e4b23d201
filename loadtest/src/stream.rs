//! A connection as both ends use it: plain, or with TLS.

use std::io::{self, Read as _, Write as _};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, ServerConfig, ServerConnection};

use super::runtime::Socket;

/// Most bytes taken from a socket at once.
const RAW_BYTES: usize = 16 * 1024;

/// A connection.
pub(super) enum Stream {
    Plain(Socket),
    Secure(Box<Secure>),
}

/// A connection with TLS.
pub(super) struct Secure {
    socket: Socket,
    session: Connection,
    /// What came from the socket; up to `raw_at` the session has it.
    raw: Vec<u8>,
    raw_at: usize,
    raw_end: usize,
    out: Vec<u8>,
}

impl Stream {
    /// The client's side, hands shaken.
    pub(super) async fn client(
        socket: Socket,
        tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    ) -> io::Result<Self> {
        let Some((config, name)) = tls else { return Ok(Self::Plain(socket)) };
        let session = ClientConnection::new(config, name).map_err(io::Error::other)?;
        let mut secure = Secure::new(socket, session.into());
        secure.shake_hands().await?;
        Ok(Self::Secure(Box::new(secure)))
    }

    /// The server's side.
    pub(super) fn server(socket: Socket, tls: Option<Arc<ServerConfig>>) -> io::Result<Self> {
        let Some(config) = tls else { return Ok(Self::Plain(socket)) };
        let session = ServerConnection::new(config).map_err(io::Error::other)?;
        Ok(Self::Secure(Box::new(Secure::new(socket, session.into()))))
    }

    /// Reads what is there, waiting for the first byte; 0 is the end.
    pub(super) async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buf).await,
            Self::Secure(secure) => secure.read(buf).await,
        }
    }

    /// Writes everything.
    pub(super) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.write_all(bytes).await,
            Self::Secure(secure) => secure.write_all(bytes).await,
        }
    }

    /// Says that nothing more will be written.
    pub(super) async fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.finish(),
            Self::Secure(secure) => {
                secure.session.send_close_notify();
                secure.flush().await?;
                secure.socket.finish()
            }
        }
    }
}

impl Secure {
    fn new(socket: Socket, session: Connection) -> Self {
        Self { socket, session, raw: vec![0; RAW_BYTES], raw_at: 0, raw_end: 0, out: Vec::new() }
    }

    async fn shake_hands(&mut self) -> io::Result<()> {
        while self.session.is_handshaking() {
            self.flush().await?;
            if self.session.is_handshaking() && !self.take_in().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        self.flush().await
    }

    async fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.session.reader().read(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The peer went without a word of goodbye, as many servers do; whether the answer was whole, its framing says.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                outcome => return outcome,
            }
            if !self.take_in().await? {
                return Ok(0);
            }
            // Hands shaken, tickets, renewed keys.
            self.flush().await?;
        }
    }

    async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.session.is_handshaking() {
            self.shake_hands().await?;
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let count = self.session.writer().write(rest)?;
            rest = rest.get(count..).unwrap_or_default();
            self.flush().await?;
        }
        Ok(())
    }

    /// Gives the session what came; false at the end of the connection.
    async fn take_in(&mut self) -> io::Result<bool> {
        if self.raw_at == self.raw_end {
            (self.raw_at, self.raw_end) = (0, self.socket.read(&mut self.raw).await?);
        }
        let mut came = self.raw.get(self.raw_at..self.raw_end).unwrap_or_default();
        self.raw_at += self.session.read_tls(&mut came)?;
        if let Err(error) = self.session.process_new_packets() {
            // The peer is told why; that it may have gone already changes nothing.
            self.flush().await.unwrap_or_default();
            return Err(io::Error::other(error));
        }
        Ok(self.raw_end > 0)
    }

    /// Sends what the session has to send.
    async fn flush(&mut self) -> io::Result<()> {
        while self.session.wants_write() {
            self.out.clear();
            self.session.write_tls(&mut self.out)?;
            self.socket.write_all(&self.out).await?;
        }
        Ok(())
    }
}
