//! How a connection to the provider comes about: the addresses one after the other, each within the limit, the proxy's
//! tunnel where one is needed, TLS on top.
//! Nothing of a request is sent here.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;

use super::{AcquireError, Peer, UpstreamConn, ViaProxy};
use crate::rt::{self, CallOff, Conn, Deadline, On};
use crate::wire::{HeadScanner, HeadWriter};

/// Opens connections to one peer.
pub struct Dialer {
    peer: Arc<Peer>,
    limit: Duration,
}

impl Dialer {
    /// Each attempt takes at most `limit`.
    pub fn new(peer: Arc<Peer>, limit: Duration) -> Self {
        Self { peer, limit }
    }

    /// A connection to the first address that answers.
    ///
    /// # Errors
    /// What each address said, or that it was called `off`.
    pub async fn dial(&self, off: &CallOff) -> Result<UpstreamConn, AcquireError> {
        let peer = self.peer.describe();
        let addresses = off.or(self.resolved()).await.ok_or(AcquireError::CalledOff)?;
        if addresses.is_empty() {
            let named_by = self.peer.named_by();
            let message = format!("could not resolve the provider's host ({peer}); check `{named_by}` and DNS");
            return Err(AcquireError::Connect(message));
        }
        let mut reasons = Vec::new();
        for addr in addresses.iter() {
            match self.dial_one(*addr, off).await {
                None => return Err(AcquireError::CalledOff),
                Some(Ok(conn)) => return Ok(conn),
                Some(Err(error)) => reasons.push(format!("{addr}: {error}")),
            }
        }
        let reasons = reasons.join("; ");
        Err(AcquireError::Connect(format!(
            "could not connect to the provider ({peer}; {reasons}); check `{}`",
            self.peer.named_by()
        )))
    }

    /// The addresses, waiting for the first lookup of a fresh process.
    async fn resolved(&self) -> Arc<Vec<SocketAddr>> {
        let give_up_ms = rt::now_ms().saturating_add(u64::try_from(self.limit.as_millis()).unwrap_or(u64::MAX));
        loop {
            let addresses = self.peer.addresses();
            if !addresses.is_empty() || rt::now_ms() >= give_up_ms {
                return addresses;
            }
            rt::sleep(Duration::from_millis(20)).await;
        }
    }

    /// `None` when it was called off.
    async fn dial_one(&self, addr: SocketAddr, off: &CallOff) -> Option<io::Result<UpstreamConn>> {
        let began_ms = rt::now_ms();
        let left = || self.limit.saturating_sub(Duration::from_millis(rt::now_ms().saturating_sub(began_ms)));
        let late = |error: io::Error| match error.kind() {
            io::ErrorKind::TimedOut => {
                let limit = self.limit.as_millis();
                io::Error::new(
                    io::ErrorKind::TimedOut,
                    format!("no connection within {limit} ms (`connection_timeout_ms`)"),
                )
            }
            _ => error,
        };
        let conn = match off.or(rt::connect(addr, self.limit)).await?.map_err(late) {
            Ok(conn) => conn,
            Err(error) => return Some(Err(error)),
        };
        let Some(tls) = self.peer.tls() else { return Some(Ok(UpstreamConn::Plain(conn))) };
        let fd = conn.fd();
        let secured = async {
            let conn = match self.peer.proxy() {
                Some(proxy) => tunnel(conn, &self.peer.authority(), proxy, left()).await?,
                None => conn,
            };
            tls.connect(conn, left()).await
        };
        let secured = off.over(fd, secured).await?;
        Some(secured.map(|tls| UpstreamConn::Tls(Box::new(tls))).map_err(late))
    }
}

/// Asks a proxy for a tunnel to `authority` (RFC 9110 section 9.3.6) within `limit`.
async fn tunnel(mut conn: Conn, authority: &str, proxy: &ViaProxy, limit: Duration) -> io::Result<Conn> {
    let deadline = Deadline::new();
    deadline.arm(limit.max(Duration::from_millis(1)), On::Stop(conn.fd()));
    let mut ask = BytesMut::with_capacity(256);
    let mut writer = HeadWriter::new(&mut ask);
    writer.request_line("CONNECT", authority);
    writer.field("Host", authority.as_bytes());
    if let Some(value) = &proxy.authorization {
        writer.field("Proxy-Authorization", value.expose());
    }
    writer.end();
    let asked = conn.write_all(ask.freeze()).await;
    let mut buf = BytesMut::with_capacity(1024);
    let mut scanner = HeadScanner::default();
    let answer = loop {
        let got = match &asked {
            Ok(()) => conn.read(buf).await,
            Err(_) => (Ok(0), buf),
        };
        buf = got.1;
        if deadline.fired() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        if got.0? == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the proxy closed the connection"));
        }
        match scanner.response(&mut buf, "CONNECT") {
            Ok(Some(head)) if head.is_informational() => {}
            Ok(Some(head)) => break head,
            Ok(None) => buf.reserve(1024),
            Err(fault) => {
                return Err(io::Error::other(format!("the proxy's answer is not usable: {}", fault.message())));
            }
        }
    };
    deadline.disarm();
    if !(200..300).contains(&answer.status) {
        let reason = String::from_utf8_lossy(answer.reason()).into_owned();
        return Err(io::Error::other(format!("the proxy refused the tunnel: {} {reason}", answer.status)));
    }
    if !buf.is_empty() {
        // In TLS the client speaks first: whoever sends these bytes is not the provider.
        return Err(io::Error::other("the proxy sent bytes nobody asked for behind its answer"));
    }
    Ok(conn)
}
