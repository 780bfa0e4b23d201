//! The cache: a small client for the protocol that Redis speaks (RESP2). It blocks, within a time; one connection at a time.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use weir_config::store_url::StoreUrl;

use super::tls;

/// For the store of counters, which stands near: one that takes longer is treated as away.
const WAIT: Duration = Duration::from_secs(1);
/// Of one reply; what is asked for is far smaller.
const REPLY_BYTES_MAX: usize = 1024 * 1024;
/// Replies within replies: scripts answer with one list.
const DEPTH_MAX: u32 = 4;

trait Stream: Read + Write + Send {}

impl Stream for TcpStream {}
impl Stream for StreamOwned<ClientConnection, TcpStream> {}

/// What the cache replies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    Nothing,
    Number(i64),
    Text(Vec<u8>),
    Many(Vec<Self>),
}

/// The cache.
pub(super) struct Cache {
    url: StoreUrl,
    tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    connection: Mutex<Option<BufReader<Box<dyn Stream>>>>,
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Cache {
    /// Connects to nothing yet.
    pub(super) fn new(url: StoreUrl, ca_file: Option<&Path>) -> Result<Self, String> {
        let tls = if url.scheme == "rediss" {
            let name =
                ServerName::try_from(url.host.clone()).map_err(|_| format!("{}: no name of a host", url.shown()))?;
            Some((tls::checked(ca_file)?, name))
        } else {
            None
        };
        if !url.path.is_empty() && url.path.parse::<u32>().is_err() {
            return Err("storage.cache_url: what follows the host has to be the number of a database".to_owned());
        }
        Ok(Self { url, tls, connection: Mutex::default() })
    }

    fn connect(&self) -> io::Result<BufReader<Box<dyn Stream>>> {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in (self.url.host.as_str(), self.url.port.unwrap_or(6379)).to_socket_addrs()? {
            let socket = match TcpStream::connect_timeout(&address, WAIT) {
                Ok(socket) => socket,
                Err(error) => {
                    last = error;
                    continue;
                }
            };
            socket.set_nodelay(true)?;
            socket.set_read_timeout(Some(WAIT))?;
            socket.set_write_timeout(Some(WAIT))?;
            let stream: Box<dyn Stream> = match &self.tls {
                None => Box::new(socket),
                Some((config, name)) => {
                    let client = ClientConnection::new(Arc::clone(config), name.clone()).map_err(io::Error::other)?;
                    Box::new(StreamOwned::new(client, socket))
                }
            };
            let mut connection = BufReader::new(stream);
            if let Some(password) = &self.url.password {
                let credentials: Vec<&str> = if self.url.user.is_empty() {
                    vec!["AUTH", password]
                } else {
                    vec!["AUTH", &self.url.user, password]
                };
                // What is said of it may hold what was sent.
                exchange(&mut connection, &credentials)
                    .map_err(|_| io::Error::other("it does not take the password"))?;
            }
            if !self.url.path.is_empty() {
                exchange(&mut connection, &["SELECT", &self.url.path])?;
            }
            return Ok(connection);
        }
        Err(last)
    }

    /// Sends a command; one that a kept connection did not answer is sent again on a fresh one, so it has to bear being sent twice.
    pub(super) fn command(&self, words: &[&str]) -> io::Result<Reply> {
        let mut kept = self.connection.lock();
        if let Some(mut connection) = kept.take()
            && let Ok(reply) = exchange(&mut connection, words)
        {
            *kept = Some(connection);
            return Ok(reply);
        }
        let mut connection = self.connect()?;
        let reply = exchange(&mut connection, words)?;
        *kept = Some(connection);
        Ok(reply)
    }

    /// Whether it answers.
    pub(super) fn probe(&self) -> Result<(), String> {
        self.command(&["PING"]).map(|_| ()).map_err(|error| format!("the cache: {}: {error}", self.url.shown()))
    }
}

fn exchange(connection: &mut BufReader<Box<dyn Stream>>, words: &[&str]) -> io::Result<Reply> {
    let mut command = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        command.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        command.extend_from_slice(word.as_bytes());
        command.extend_from_slice(b"\r\n");
    }
    connection.get_mut().write_all(&command)?;
    connection.get_mut().flush()?;
    reply(connection, 0)
}

fn reply(connection: &mut BufReader<Box<dyn Stream>>, depth: u32) -> io::Result<Reply> {
    let mut line = Vec::new();
    connection.by_ref().take(64 * 1024).read_until(b'\n', &mut line)?;
    let text = std::str::from_utf8(&line).ok().and_then(|line| line.strip_suffix("\r\n"));
    let text = text.ok_or_else(|| invalid("no reply of a cache"))?;
    let (kind, rest) = text.split_at_checked(1).ok_or_else(|| invalid("an empty reply"))?;
    let number = || rest.parse::<i64>().map_err(|_| invalid("no number"));
    match kind {
        "+" => Ok(Reply::Text(rest.as_bytes().to_vec())),
        "-" => Err(io::Error::other(rest.chars().take(200).collect::<String>())),
        ":" => Ok(Reply::Number(number()?)),
        "$" => {
            let Ok(length) = usize::try_from(number()?) else { return Ok(Reply::Nothing) };
            if length > REPLY_BYTES_MAX {
                return Err(invalid("too long a reply"));
            }
            let mut bytes = vec![0; length + 2];
            connection.read_exact(&mut bytes)?;
            bytes.truncate(length);
            Ok(Reply::Text(bytes))
        }
        "*" if depth < DEPTH_MAX => {
            let Ok(length) = usize::try_from(number()?) else { return Ok(Reply::Nothing) };
            if length > 100_000 {
                return Err(invalid("too long a reply"));
            }
            (0..length).map(|_| reply(connection, depth + 1)).collect::<io::Result<_>>().map(Reply::Many)
        }
        _ => Err(invalid("no reply of a cache")),
    }
}
