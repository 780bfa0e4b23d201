//! One receiver: the way to it, how fast it is sent events, and what became of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use weir_config::settings::{SiemFormat, SiemReceiver};

use super::batch::{Piece, Said, Share};
use super::event::Event;
use super::requests::Requests;
use super::syslog::Connection;
use super::{cef, json};
use crate::feed::Progress;
use crate::meter::{Exposition, Source, names};
use crate::outbound::Client;

/// A receiver that takes nothing for so long is told of.
const FAILING_AFTER: Duration = Duration::from_secs(60);
/// Messages that are written together.
const MESSAGES: usize = 64;
/// Events of one request, and about its bytes: the least that one of the usual receivers takes is 1 MB.
const EVENTS: usize = 500;
const BYTES: usize = 900_000;
/// Events that are made one after the other before others may work on the thread.
const AT_ONCE: usize = 16;

/// A receiver and the way to it.
pub(super) struct Receiver {
    pub(super) label: String,
    pub(super) settings: SiemReceiver,
    way: Way,
    sent: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
    failing: Mutex<Option<(Instant, String)>>,
}

/// Used by one at a time: what is found and what administrators do come by turns.
enum Way {
    Syslog(tokio::sync::Mutex<Connection>),
    Requests(tokio::sync::Mutex<Requests>),
}

/// Why events were not taken now.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotTaken {
    pub(super) reason: String,
    /// How long the receiver wants to be left alone.
    pub(super) after: Option<Duration>,
}

impl From<String> for NotTaken {
    fn from(reason: String) -> Self {
        Self { reason, after: None }
    }
}

impl Receiver {
    pub(super) fn new(place: usize, settings: &SiemReceiver, client: Client) -> Option<Self> {
        let way = if settings.is_http() {
            Way::Requests(tokio::sync::Mutex::new(Requests::new(settings, client)))
        } else {
            Way::Syslog(tokio::sync::Mutex::new(Connection::new(client, settings.address()?)))
        };
        Some(Self {
            label: settings.label(place),
            settings: settings.clone(),
            way,
            sent: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            failing: Mutex::new(None),
        })
    }

    /// Sends events. Where answers say which were taken, these are not sent again with the same `progress`.
    pub(super) async fn send(&self, events: &[Event], progress: &mut Progress<String>) -> Result<(), NotTaken> {
        match &self.way {
            Way::Syslog(connection) => {
                let mut connection = connection.lock().await;
                for some in events.chunks(self.at_once(MESSAGES)) {
                    let began = Instant::now();
                    let written = connection.write(some, |event| self.text(event)).await;
                    written.map_err(|reason| self.failed(reason.into()))?;
                    self.took(some.len());
                    self.slow_down(some.len(), began).await;
                }
            }
            Way::Requests(requests) => {
                let requests = requests.lock().await;
                let parts = self.parts(&requests, events, progress).await;
                self.post(&requests, parts, progress).await?;
            }
        }
        progress.ends();
        Ok(())
    }

    /// What is left to send, as the requests that it will be; the last one is the first to go.
    async fn parts(&self, requests: &Requests, events: &[Event], progress: &Progress<String>) -> Vec<Vec<Piece>> {
        let (mut parts, mut bytes): (Vec<Vec<Piece>>, usize) = (Vec::new(), 0);
        let most = self.at_once(EVENTS);
        for (place, event) in events.iter().enumerate() {
            if place % AT_ONCE == AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
            if progress.is_done(&event.id) {
                continue;
            }
            let piece = requests.piece(event, &self.text(event));
            bytes += piece.text.len();
            match parts.last_mut().filter(|part| bytes <= BYTES && part.len() < most) {
                Some(part) => part.push(piece),
                None => {
                    bytes = piece.text.len();
                    parts.push(vec![piece]);
                }
            }
        }
        parts.reverse();
        parts
    }

    /// Sends them, in halves where a request is too large, or for an event in it. One that is refused by itself does not keep the others
    /// from being sent.
    async fn post(
        &self,
        requests: &Requests,
        mut parts: Vec<Vec<Piece>>,
        progress: &mut Progress<String>,
    ) -> Result<(), NotTaken> {
        let (mut waiting, mut alone) = (None, 0);
        while let Some(mut part) = parts.pop() {
            let (began, count) = (Instant::now(), part.len());
            match requests.send(&part).await {
                Said::Taken => self.taken(&part, progress),
                Said::Each(shares) => waiting = self.each(&part, shares, progress).or(waiting),
                Said::Later { reason, after, is_doubtful: false } => {
                    return Err(self.failed(NotTaken { reason, after }));
                }
                Said::Later { reason, .. } if count > 1 && !progress.is_to_part() => {
                    progress.doubt(Instant::now());
                    return Err(self.failed(reason.into()));
                }
                Said::TooLarge { .. } | Said::Refused { .. } | Said::Later { .. } if count > 1 => {
                    let back = part.split_off(count / 2);
                    parts.extend(if progress.is_back_first() { [part, back] } else { [back, part] });
                }
                Said::TooLarge { reason } => self.give_up(&part, &reason, progress),
                Said::Refused { reason } | Said::Later { reason, .. } if progress.is_hopeless(Instant::now()) => {
                    self.give_up(&part, &reason, progress);
                }
                Said::Refused { reason } | Said::Later { reason, .. } => {
                    (waiting, alone) = (Some(reason), alone + 1);
                    if alone >= Progress::<String>::ALONE {
                        break;
                    }
                }
            }
            self.slow_down(count, began).await;
        }
        let Some(reason) = waiting else { return Ok(()) };
        progress.doubt(Instant::now());
        Err(self.failed(reason.into()))
    }

    /// What became of each event of a request; why some of them have to come again.
    fn each(&self, part: &[Piece], shares: Vec<Share>, progress: &mut Progress<String>) -> Option<String> {
        let (mut waiting, mut refused) = (None, Vec::new());
        for (piece, share) in part.iter().zip(shares) {
            match share {
                Share::Taken => self.taken(std::slice::from_ref(piece), progress),
                Share::Later(reason) => waiting = Some(reason),
                Share::Refused(reason) => refused.push((piece, reason)),
            }
        }
        for (piece, reason) in refused {
            if progress.is_hopeless(Instant::now()) {
                self.give_up(std::slice::from_ref(piece), &reason, progress);
            } else {
                waiting = Some(reason);
            }
        }
        waiting
    }

    fn taken(&self, part: &[Piece], progress: &mut Progress<String>) {
        part.iter().for_each(|piece| progress.taken(piece.id.clone()));
        self.took(part.len());
    }

    fn give_up(&self, part: &[Piece], reason: &str, progress: &mut Progress<String>) {
        part.iter().for_each(|piece| progress.given_up(piece.id.clone()));
        self.refused.fetch_add(part.len() as u64, Ordering::Relaxed);
        let (receiver, events, first) = (&self.label, part.len(), part.first().map(|piece| &*piece.id));
        tracing::warn!(receiver, events, first, reason, "the receiver refused events; they are not sent to it again");
    }

    fn took(&self, count: usize) {
        self.sent.fetch_add(count as u64, Ordering::Relaxed);
        *self.failing.lock() = None;
    }

    fn failed(&self, not: NotTaken) -> NotTaken {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let mut failing = self.failing.lock();
        let since = failing.as_ref().map_or_else(Instant::now, |(since, _)| *since);
        *failing = Some((since, not.reason.clone()));
        not
    }

    /// How many events go together, no more than may go in a second.
    fn at_once(&self, most: usize) -> usize {
        let rate = self.settings.max_per_second.map_or(most, |rate| usize::try_from(rate).unwrap_or(most));
        rate.clamp(1, most)
    }

    async fn slow_down(&self, count: usize, began: Instant) {
        if let Some(rate) = self.settings.max_per_second {
            let due = Duration::from_secs_f64(count as f64 / f64::from(rate));
            tokio::time::sleep(due.saturating_sub(began.elapsed())).await;
        }
    }

    fn text(&self, event: &Event) -> String {
        match self.settings.format {
            SiemFormat::Cef => cef::text(event),
            SiemFormat::Ocsf => json::ocsf(event),
            SiemFormat::Ecs => json::ecs(event),
        }
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

/// All receivers' counters.
pub(super) struct Tallies(pub(super) Vec<std::sync::Arc<Receiver>>);

impl Source for Tallies {
    fn collect(&self, out: &mut Exposition) {
        for receiver in &self.0 {
            let label = ("receiver", receiver.label.as_str());
            out.counter(names::SIEM_EVENTS, &[label], receiver.sent.load(Ordering::Relaxed));
            out.counter(names::SIEM_REFUSED, &[label], receiver.refused.load(Ordering::Relaxed));
            out.counter(names::SIEM_FAILURES, &[label], receiver.failed.load(Ordering::Relaxed));
        }
    }
}
