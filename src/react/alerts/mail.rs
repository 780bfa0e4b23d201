//! Messages by mail: over a connection of our own, so that whom it trusts is decided where that is decided for all calls out.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use lettre::Message;
use lettre::address::{Address, Envelope};
use lettre::message::{Mailbox, header::ContentType};
use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, AsyncTokioStream};
use lettre::transport::smtp::extension::ClientId;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use weir_config::settings::MailUrl;

use super::message::Notice;
use crate::feed::Failure;
use crate::outbound::{Client, Opened};

/// Sends `notice`; done when the server has accepted it for all receivers.
pub(super) async fn send(client: &Client, to: &MailUrl, notice: &Notice) -> Result<(), Failure> {
    let (envelope, bytes) = write(to, notice).map_err(|what| Failure::Never { reason: what.to_owned() })?;
    let opened = client.open(&to.host, to.port, to.is_tls).await.map_err(|error| Failure::Later {
        reason: format!("{}:{} cannot be connected to: {error}", to.host, to.port),
        after: None,
    })?;
    let said = |error: Error| failure(to, &error);
    let hello = ClientId::default();
    let mut connection =
        AsyncSmtpConnection::connect_with_transport(Box::new(Wire(opened)), &hello).await.map_err(said)?;
    if let Some((user, password)) = &to.credentials {
        let password = String::from_utf8_lossy(password.expose()).into_owned();
        let credentials = Credentials::new(user.clone(), password);
        connection.auth(&[Mechanism::Plain, Mechanism::Login], &credentials).await.map_err(said)?;
    }
    connection.send(&envelope, &bytes).await.map_err(said)?;
    // It has been accepted: what becomes of the farewell says nothing.
    drop(connection.quit().await);
    Ok(())
}

/// Who it is for, and the message as it goes out.
pub(super) fn write(to: &MailUrl, notice: &Notice) -> Result<(Envelope, Vec<u8>), &'static str> {
    const UNFIT: &str = "the message cannot be written as a mail";
    let address = |text: &str| text.parse::<Address>().map_err(|_| UNFIT);
    let receivers = to.to.iter().map(|to| address(to)).collect::<Result<Vec<_>, _>>()?;
    let sender = address(&to.from)?;
    let (subject, text) = notice.mail();
    let id = format!("<{}@{}>", notice.id(), sender.domain());
    let mut message = Message::builder().from(Mailbox::new(None, sender.clone())).subject(subject).message_id(Some(id));
    for receiver in &receivers {
        message = message.to(Mailbox::new(None, receiver.clone()));
    }
    let message = message.header(ContentType::TEXT_PLAIN).body(text).map_err(|_| UNFIT)?;
    Ok((Envelope::new(Some(sender), receivers).map_err(|_| UNFIT)?, message.formatted()))
}

/// What the server says in its own words is left out: it may repeat what it was told.
fn failure(to: &MailUrl, error: &Error) -> Failure {
    let (host, port) = (&to.host, to.port);
    let reason = match error.status() {
        Some(code) => format!("{host}:{port} answered {code}"),
        None if error.is_client() => format!("{host}:{port} does not offer what the message or the credential needs"),
        None => format!("the conversation with {host}:{port} broke off"),
    };
    if error.is_permanent() || error.is_client() {
        Failure::Never { reason }
    } else {
        Failure::Later { reason, after: None }
    }
}

/// A connection in lettre's terms.
#[derive(Debug)]
struct Wire(Opened);

impl AsyncTokioStream for Wire {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        match &self.0 {
            Opened::Plain(tcp) => tcp.peer_addr(),
            Opened::Tls(tls) => tls.get_ref().0.peer_addr(),
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Opened::Plain(tcp) => Pin::new(tcp).poll_read(cx, into),
            Opened::Tls(tls) => Pin::new(tls).poll_read(cx, into),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.0 {
            Opened::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Opened::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Opened::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Opened::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            Opened::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Opened::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}
