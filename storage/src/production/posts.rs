//! A small HTTP/1.1 client for one address: the analytics store's interface. It blocks, follows no redirect, and ends with its deadline.
//!
//! A connection that was kept may have ended meanwhile: a request on it that brought no byte of an answer is sent again on a fresh
//! one, so what is asked for has to bear being asked twice.

use std::fmt::Write as _;
use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use weir_config::store_url::StoreUrl;

/// How long a connection may take to come about.
const CONNECT_WAIT: Duration = Duration::from_secs(2);
/// Connections that are kept when nobody uses them: as many as questions come at a time.
const IDLE_MAX: usize = 4;
/// Of an answer, its head apart.
const ANSWER_BYTES_MAX: usize = 256 * 1024 * 1024;
/// Of the head of an answer, all its lines together.
const HEAD_BYTES_MAX: u64 = 64 * 1024;

trait Stream: Read + Write + Send {
    fn socket(&self) -> &TcpStream;
}

impl Stream for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl Stream for StreamOwned<ClientConnection, TcpStream> {
    fn socket(&self) -> &TcpStream {
        &self.sock
    }
}

type Connection = BufReader<Box<dyn Stream>>;

/// What the other side said.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

/// One address.
pub(super) struct Http {
    host: String,
    port: u16,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// Header lines of every request.
    head: String,
    idle: Mutex<Vec<Connection>>,
}

impl Http {
    pub(super) fn new(
        url: &StoreUrl,
        tls: Option<Arc<ClientConfig>>,
        headers: &[(&str, &str)],
    ) -> Result<Self, String> {
        let name = || ServerName::try_from(url.host.clone()).map_err(|_| format!("{}: no name of a host", url.shown()));
        let tls = tls.map(|config| Ok::<_, String>((config, name()?))).transpose()?;
        let port = url.port.unwrap_or(if tls.is_some() { 8443 } else { 8123 });
        let host = if url.host.contains(':') { format!("[{}]", url.host) } else { url.host.clone() };
        let mut head = format!("host: {host}:{port}\r\nuser-agent: weir/{}\r\n", env!("CARGO_PKG_VERSION"));
        for (name, value) in headers {
            if value.bytes().any(|byte| byte.is_ascii_control()) {
                return Err(format!("{}: a credential holds a control character", url.shown()));
            }
            write!(head, "{name}: {value}\r\n").map_err(|error| error.to_string())?;
        }
        Ok(Self { host: url.host.clone(), port, tls, head, idle: Mutex::default() })
    }

    fn connect(&self) -> io::Result<Connection> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in (self.host.as_str(), self.port).to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, CONNECT_WAIT) {
                Ok(socket) => {
                    socket.set_nodelay(true)?;
                    let stream: Box<dyn Stream> = match &self.tls {
                        None => Box::new(socket),
                        Some((config, name)) => {
                            let client = ClientConnection::new(Arc::clone(config), name.clone());
                            Box::new(StreamOwned::new(client.map_err(io::Error::other)?, socket))
                        }
                    };
                    return Ok(BufReader::with_capacity(64 * 1024, stream));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Posts a body to `/?query`.
    pub(super) fn post(&self, query: &str, body: &[u8], within: Duration) -> io::Result<Answer> {
        let until = Instant::now() + within;
        let kept = self.idle.lock().pop();
        if let Some(connection) = kept {
            match self.ask(connection, query, body, until) {
                Err((_, true)) => {}
                Err((error, false)) => return Err(error),
                Ok(answer) => return Ok(answer),
            }
        }
        self.ask(self.connect()?, query, body, until).map_err(|(error, _)| error)
    }

    /// The error comes with whether nothing was answered.
    fn ask(
        &self,
        mut connection: Connection,
        query: &str,
        body: &[u8],
        until: Instant,
    ) -> Result<Answer, (io::Error, bool)> {
        let unanswered = |error| (error, true);
        limit(&connection, until).map_err(unanswered)?;
        let head = format!("POST /?{query} HTTP/1.1\r\n{}content-length: {}\r\n\r\n", self.head, body.len());
        let stream = connection.get_mut();
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).map_err(unanswered)?;
        stream.flush().map_err(unanswered)?;
        if connection.fill_buf().map_err(|error| (late(error), true))?.is_empty() {
            return Err((io::ErrorKind::UnexpectedEof.into(), true));
        }
        let (answer, keeps) = read(&mut connection, until).map_err(|error| (late(error), false))?;
        let mut idle = self.idle.lock();
        if keeps && idle.len() < IDLE_MAX {
            idle.push(connection);
        }
        Ok(answer)
    }
}

fn late(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { io::ErrorKind::TimedOut.into() } else { error }
}

/// What is left of the time bounds the next read and write.
fn limit(connection: &Connection, until: Instant) -> io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let socket = connection.get_ref().socket();
    socket.set_read_timeout(Some(left))?;
    socket.set_write_timeout(Some(left))
}

fn line(connection: &mut Connection) -> io::Result<String> {
    let mut bytes = Vec::new();
    connection.by_ref().take(HEAD_BYTES_MAX).read_until(b'\n', &mut bytes)?;
    if bytes.pop() != Some(b'\n') {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer has no end"));
    }
    let text = String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "no HTTP"))?;
    Ok(text.trim_end_matches('\r').to_owned())
}

/// Reads an answer; whether the connection may be used again.
fn read(connection: &mut Connection, until: Instant) -> io::Result<(Answer, bool)> {
    let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let first = line(connection)?;
    let status = first.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(|| invalid("no HTTP"))?;
    let (mut length, mut chunked, mut keeps) = (None, false, first.starts_with("HTTP/1.1"));
    let mut bytes = 0;
    loop {
        let header = line(connection)?;
        bytes += header.len();
        if header.is_empty() {
            break;
        }
        if bytes as u64 > HEAD_BYTES_MAX {
            return Err(invalid("the answer's head has no end"));
        }
        let Some((name, value)) = header.split_once(':') else { continue };
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            length = Some(value.parse::<usize>().map_err(|_| invalid("no length"))?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            chunked = value.eq_ignore_ascii_case("chunked");
        } else if name.eq_ignore_ascii_case("connection") {
            keeps = !value.eq_ignore_ascii_case("close");
        }
    }
    let mut body = Vec::new();
    if chunked {
        loop {
            limit(connection, until)?;
            let size = line(connection)?;
            let size = usize::from_str_radix(size.split(';').next().unwrap_or_default().trim(), 16);
            let size = size.map_err(|_| invalid("no length of a chunk"))?;
            take(connection, size, &mut body, until)?;
            line(connection)?;
            if size == 0 {
                break;
            }
        }
    } else if let Some(length) = length {
        take(connection, length, &mut body, until)?;
    } else {
        keeps = false;
        limit(connection, until)?;
        connection.take(ANSWER_BYTES_MAX as u64).read_to_end(&mut body)?;
    }
    Ok((Answer { status, body }, keeps))
}

fn take(connection: &mut Connection, bytes: usize, into: &mut Vec<u8>, until: Instant) -> io::Result<()> {
    if bytes > ANSWER_BYTES_MAX.saturating_sub(into.len()) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is too large"));
    }
    limit(connection, until)?;
    let before = into.len();
    connection.by_ref().take(bytes as u64).read_to_end(into)?;
    if into.len() - before == bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}
