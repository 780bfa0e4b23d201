//! Messages of RFC 5424, each with its length in front (RFC 6587 section 3.4.1, RFC 5425): whatever they say, none ends another one.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use weir_config::vocab::Severity;

use super::event::Event;
use crate::outbound::{Client, Opened};

/// Security and authorization messages.
const FACILITY: u8 = 4;
/// Characters of a host's name that RFC 5424 has room for.
const HOST_MAX: usize = 255;
/// Bytes of a message's text: what rsyslog takes with its usual settings, which cut or drop the rest.
const TEXT_BYTES_MAX: usize = 7 * 1024;

/// For writing what is sent at once: a receiver that reads nothing for so long is hung.
const WRITE_LIMIT: Duration = Duration::from_secs(10);

/// The connection to a receiver.
pub(super) struct Connection {
    client: Client,
    address: (String, u16, bool),
    heading: Heading,
    opened: Option<Opened>,
}

impl Connection {
    pub(super) fn new(client: Client, address: (String, u16, bool)) -> Self {
        Self { client, address, heading: Heading::here(), opened: None }
    }

    /// Writes the messages of events, each with its text, to the connection, or to a new one where it is gone.
    pub(super) async fn write(&mut self, events: &[Event], text: impl Fn(&Event) -> String) -> Result<(), String> {
        let mut bytes = Vec::new();
        events.iter().for_each(|event| self.heading.frame(event, &text(event), &mut bytes));
        let outcome = tokio::time::timeout(WRITE_LIMIT, self.write_bytes(&bytes)).await;
        outcome.unwrap_or_else(|_| Err("it reads nothing".to_owned())).map_err(|why| {
            // A message may have been cut in the middle.
            self.opened = None;
            format!("{}:{}: {why}", self.address.0, self.address.1)
        })
    }

    async fn write_bytes(&mut self, bytes: &[u8]) -> Result<(), String> {
        let gone = match &mut self.opened {
            Some(Opened::Plain(tcp)) => is_gone(tcp).await,
            Some(Opened::Tls(tls)) => is_gone(tls).await,
            None => true,
        };
        if gone {
            let (host, port, is_tls) = &self.address;
            let opened = self.client.open(host, *port, *is_tls).await.map_err(|error| error.to_string())?;
            self.opened = Some(opened);
        }
        let written: io::Result<()> = match &mut self.opened {
            Some(Opened::Plain(tcp)) => tcp.write_all(bytes).await,
            Some(Opened::Tls(tls)) => match tls.write_all(bytes).await {
                Ok(()) => tls.flush().await,
                failed => failed,
            },
            None => Ok(()),
        };
        written.map_err(|error| error.to_string())
    }
}

/// Whether the other side has closed; it has nothing to say otherwise.
async fn is_gone(connection: &mut (impl AsyncRead + Unpin)) -> bool {
    let mut byte = [0];
    // No time: what is there is there.
    let read = tokio::time::timeout(Duration::ZERO, connection.read(&mut byte)).await;
    matches!(read, Ok(Ok(0) | Err(_)))
}

/// The name of this machine, as RFC 5424 writes it.
pub(super) fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = name.trim().chars().filter(char::is_ascii_graphic).take(HOST_MAX).collect();
    if host.is_empty() { "-".to_owned() } else { host }
}

/// How a message begins, but for what is of this event.
pub(super) struct Heading {
    host: String,
    process: u32,
}

impl Heading {
    /// Of this machine.
    pub(super) fn here() -> Self {
        Self { host: host(), process: std::process::id() }
    }

    /// Writes the message of an event behind others.
    pub(super) fn frame(&self, event: &Event, text: &str, into: &mut Vec<u8>) {
        let text = text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or_default();
        let priority = FACILITY * 8 + level(event.severity);
        let (at, kind) = (event.at, event.kind.as_str());
        let Self { host, process } = self;
        let message = format!("<{priority}>1 {at} {host} weir {process} {kind} - {text}");
        into.extend_from_slice(message.len().to_string().as_bytes());
        into.push(b' ');
        into.extend_from_slice(message.as_bytes());
    }
}

/// As RFC 5424 counts, the worst first.
const fn level(severity: Severity) -> u8 {
    match severity {
        Severity::Critical => 2,
        Severity::High => 3,
        Severity::Medium => 4,
        Severity::Low => 5,
        Severity::Info => 6,
    }
}
