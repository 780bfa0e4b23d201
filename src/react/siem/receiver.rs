//! One receiver: its connection, how fast it is sent events, and what became of them.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use weir_config::settings::{SiemFormat, SiemReceiver};

use super::event::Event;
use super::syslog::Heading;
use super::{cef, json};
use crate::meter::{Exposition, Source, names};
use crate::outbound::{Client, Opened};

/// For writing what is sent at once: a receiver that reads nothing for so long is hung.
const WRITE_LIMIT: Duration = Duration::from_secs(10);
/// A receiver that takes nothing for so long is told of.
const FAILING_AFTER: Duration = Duration::from_secs(60);
/// Events that are written together.
const AT_ONCE: usize = 64;

/// A receiver and the way to it.
pub(super) struct Receiver {
    pub(super) label: String,
    pub(super) settings: SiemReceiver,
    address: (String, u16, bool),
    client: Client,
    heading: Heading,
    connection: tokio::sync::Mutex<Option<Opened>>,
    sent: AtomicU64,
    failed: AtomicU64,
    failing: Mutex<Option<(Instant, String)>>,
}

impl Receiver {
    pub(super) fn new(place: usize, settings: &SiemReceiver, client: Client) -> Option<Self> {
        Some(Self {
            label: settings.label(place),
            settings: settings.clone(),
            address: settings.address()?,
            client,
            heading: Heading::here(),
            connection: tokio::sync::Mutex::new(None),
            sent: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            failing: Mutex::new(None),
        })
    }

    /// Writes events to the connection, or to a new one where it is gone.
    pub(super) async fn send(&self, events: &[Event]) -> Result<(), String> {
        let mut connection = self.connection.lock().await;
        for some in events.chunks(AT_ONCE) {
            let began = Instant::now();
            let mut bytes = Vec::new();
            some.iter().for_each(|event| self.heading.frame(event, &self.text(event), &mut bytes));
            match tokio::time::timeout(WRITE_LIMIT, self.write(&mut connection, &bytes)).await {
                Ok(Ok(())) => {}
                outcome => {
                    // A message may have been cut in the middle.
                    *connection = None;
                    let why =
                        outcome.map_or_else(|_| "it reads nothing".to_owned(), |why| why.err().unwrap_or_default());
                    let reason = format!("{}:{}: {why}", self.address.0, self.address.1);
                    self.failed.fetch_add(1, Ordering::Relaxed);
                    let mut failing = self.failing.lock();
                    let since = failing.as_ref().map_or_else(Instant::now, |(since, _)| *since);
                    *failing = Some((since, reason.clone()));
                    return Err(reason);
                }
            }
            self.sent.fetch_add(some.len() as u64, Ordering::Relaxed);
            *self.failing.lock() = None;
            if let Some(rate) = self.settings.max_per_second {
                let due = Duration::from_secs_f64(some.len() as f64 / f64::from(rate));
                tokio::time::sleep(due.saturating_sub(began.elapsed())).await;
            }
        }
        Ok(())
    }

    fn text(&self, event: &Event) -> String {
        match self.settings.format {
            SiemFormat::Cef => cef::text(event),
            SiemFormat::Ocsf => json::ocsf(event),
            SiemFormat::Ecs => json::ecs(event),
        }
    }

    async fn write(&self, connection: &mut Option<Opened>, bytes: &[u8]) -> Result<(), String> {
        let gone = match connection {
            Some(Opened::Plain(tcp)) => is_gone(tcp).await,
            Some(Opened::Tls(tls)) => is_gone(tls).await,
            None => true,
        };
        if gone {
            let (host, port, is_tls) = &self.address;
            let opened = self.client.open(host, *port, *is_tls).await.map_err(|error| error.to_string())?;
            *connection = Some(opened);
        }
        let written: io::Result<()> = match connection {
            Some(Opened::Plain(tcp)) => tcp.write_all(bytes).await,
            Some(Opened::Tls(tls)) => match tls.write_all(bytes).await {
                Ok(()) => tls.flush().await,
                failed => failed,
            },
            None => Ok(()),
        };
        written.map_err(|error| error.to_string())
    }

    /// What is to be said of a receiver that has taken nothing for long.
    pub(super) fn complaint(&self) -> Option<String> {
        let failing = self.failing.lock();
        let (since, reason) = failing.as_ref()?;
        let (passed, label) = (since.elapsed(), &self.label);
        (passed >= FAILING_AFTER).then(|| {
            format!("the receiver {label} of `siem_export` has taken no events for {} s: {reason}", passed.as_secs())
        })
    }
}

/// Whether the other side has closed; it has nothing to say otherwise.
async fn is_gone(connection: &mut (impl AsyncRead + Unpin)) -> bool {
    let mut byte = [0];
    // No time: what is there is there.
    let read = tokio::time::timeout(Duration::ZERO, connection.read(&mut byte)).await;
    matches!(read, Ok(Ok(0) | Err(_)))
}

/// All receivers' counters.
pub(super) struct Tallies(pub(super) Vec<std::sync::Arc<Receiver>>);

impl Source for Tallies {
    fn collect(&self, out: &mut Exposition) {
        for receiver in &self.0 {
            let label = ("receiver", receiver.label.as_str());
            out.counter(names::SIEM_EVENTS, &[label], receiver.sent.load(Ordering::Relaxed));
            out.counter(names::SIEM_FAILURES, &[label], receiver.failed.load(Ordering::Relaxed));
        }
    }
}
