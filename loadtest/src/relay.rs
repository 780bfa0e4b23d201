//! A relay that does to some answers what networks do: holds them back, lets them dribble, cuts them off, breaks the connection.
//!
//! It copies bytes and knows no protocol: an answer begins with the first byte that comes after something was sent to the server. Which
//! answers are hit is drawn from the seed, for each connection apart, so that the same connections meet the same faults again.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{Either, select};

use super::arrivals::Random;
use super::error::SetupError;
use super::runtime::{self, Listener, Socket};

const BUF_BYTES: usize = 16 * 1024;
/// A connection on which nothing happens for so long is dropped.
const SILENCE_MAX: Duration = Duration::from_secs(3600);

/// What becomes of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mishap {
    /// It begins later by this time.
    Delay(Duration),
    /// It comes in pieces of so many bytes, with this time between them.
    Dribble(usize, Duration),
    /// The connection is closed after so many bytes.
    Cut(usize),
    /// The connection breaks after so many bytes.
    Reset(usize),
}

/// Settings of a relay.
#[derive(Debug, Clone)]
pub(super) struct RelaySettings {
    pub(super) listen: SocketAddr,
    pub(super) to: SocketAddr,
    /// Shares of all answers; together at most 1.
    pub(super) mishaps: Vec<(f64, Mishap)>,
    pub(super) seed: u64,
    pub(super) run_for: Option<Duration>,
}

/// How many answers met what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) answers: u64,
    pub(super) delayed: u64,
    pub(super) dribbled: u64,
    pub(super) cut: u64,
    pub(super) reset: u64,
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { answers, delayed, dribbled, cut, reset } = self;
        write!(f, "{answers} answers: {delayed} delayed, {dribbled} dribbled, {cut} cut, {reset} reset")
    }
}

/// Relays until the time is over, or forever. `ready` is told the address once it listens.
pub(super) fn serve(settings: RelaySettings, ready: impl FnOnce(SocketAddr)) -> Result<Counts, SetupError> {
    let refuse = |error: std::io::Error| SetupError(format!("--listen {}: {error}", settings.listen));
    let probe = std::net::TcpListener::bind(settings.listen).map_err(refuse)?;
    let listen = probe.local_addr().map_err(refuse)?;
    drop(probe);
    runtime::block_on(async {
        let listener = Listener::bind(listen).map_err(refuse)?;
        ready(listen);
        let counts = Rc::new(Cell::new(Counts::default()));
        let settings = Rc::new(settings.clone());
        let accepting = async {
            for number in 0u64.. {
                let client = listener.accept().await.map_err(refuse)?;
                let seed = settings.seed ^ number.wrapping_mul(0x2545_f491_4f6c_dd1d);
                let connection = Rc::new(Relayed {
                    settings: Rc::clone(&settings),
                    counts: Rc::clone(&counts),
                    random: RefCell::new(Random::new(seed)),
                    is_asked: Cell::new(false),
                });
                runtime::spawn(async move {
                    // A broken connection concerns its two ends, which see it.
                    drop(connection.relay(client).await);
                });
            }
            Ok(())
        };
        match settings.run_for {
            None => accepting.await?,
            Some(time) => runtime::timeout(time, accepting).await.unwrap_or(Ok(()))?,
        }
        Ok(counts.get())
    })?
}

/// One connection through the relay.
struct Relayed {
    settings: Rc<RelaySettings>,
    counts: Rc<Cell<Counts>>,
    random: RefCell<Random>,
    /// Something was sent to the server and nothing has come back yet.
    is_asked: Cell<bool>,
}

impl Relayed {
    async fn relay(&self, client: Socket) -> std::io::Result<()> {
        let server = Socket::connect(self.settings.to, SILENCE_MAX).await?;
        let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
        let forth = pin!(self.forth(from_client, to_server));
        let back = pin!(self.back(from_server, to_client));
        match select(forth, back).await {
            // The client has said all; the answer may be on its way.
            Either::Left((Ok(()), back)) => back.await,
            Either::Left((broken, _)) | Either::Right((broken, _)) => broken,
        }
    }

    async fn forth(&self, mut from: Socket, mut to: Socket) -> std::io::Result<()> {
        let mut buf = vec![0; BUF_BYTES];
        loop {
            let count = from.read(&mut buf).await?;
            if count == 0 {
                return to.finish();
            }
            to.write_all(buf.get(..count).unwrap_or_default()).await?;
            self.is_asked.set(true);
        }
    }

    async fn back(&self, mut from: Socket, mut to: Socket) -> std::io::Result<()> {
        let (mut buf, mut mishap, mut passed) = (vec![0; BUF_BYTES], None, 0);
        loop {
            let count = from.read(&mut buf).await?;
            if count == 0 {
                return Ok(());
            }
            if self.is_asked.take() {
                (mishap, passed) = (self.draw(), 0);
                if let Some(Mishap::Delay(time)) = mishap {
                    runtime::sleep(time).await;
                }
            }
            let arrived = buf.get(..count).unwrap_or_default();
            match mishap {
                Some(Mishap::Dribble(bytes, pause)) => {
                    for piece in arrived.chunks(bytes) {
                        to.write_all(piece).await?;
                        runtime::sleep(pause).await;
                    }
                }
                Some(Mishap::Cut(bytes) | Mishap::Reset(bytes)) if passed + count > bytes => {
                    to.write_all(arrived.get(..bytes - passed).unwrap_or_default()).await?;
                    self.count(|counts| match mishap {
                        Some(Mishap::Reset(_)) => counts.reset += 1,
                        _ => counts.cut += 1,
                    });
                    return if matches!(mishap, Some(Mishap::Reset(_))) { to.reset_when_dropped() } else { Ok(()) };
                }
                _ => to.write_all(arrived).await?,
            }
            passed += count;
        }
    }

    /// What becomes of the next answer.
    fn draw(&self) -> Option<Mishap> {
        let mut drawn = self.random.borrow_mut().share();
        let found = self.settings.mishaps.iter().find(|(share, _)| {
            drawn -= share;
            drawn < 0.0
        });
        let mishap = found.map(|(_, mishap)| *mishap);
        self.count(|counts| {
            counts.answers += 1;
            match mishap {
                Some(Mishap::Delay(_)) => counts.delayed += 1,
                Some(Mishap::Dribble(..)) => counts.dribbled += 1,
                // Counted when it happens: an answer may be shorter.
                Some(Mishap::Cut(_) | Mishap::Reset(_)) | None => {}
            }
        });
        mishap
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }
}
