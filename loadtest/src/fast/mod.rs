//! The fast fake provider: answers to ordinary requests are precomputed, one write each.
//!
//! A request that asks for anything special (an `x-fake-*` header, `Expect`, a chunked body, another path) takes the
//! slow way through [`provider::respond`], so both ways answer by the same rules. Directives in prompts and model names
//! are seen only with `full`.
//!
//! Invariant: loopback only (the command line checks), and one thread per core shares nothing with another.

mod options;
mod precomputed;

use std::net::{SocketAddr, TcpListener as StdListener};
use std::rc::Rc;
use std::time::Instant;

pub use self::options::ProviderSettings;
use self::precomputed::{FAST_BYTES_MAX, Precomputed, Recognised};
use crate::error::SetupError;
use crate::runtime::{self, Listener};
use crate::stream::Stream;
use weir_fake_provider::http::{RequestReader, Step};
use weir_fake_provider::provider::{self, Script};

/// First size of a connection's buffer, and the step by which it grows.
const BUF_BYTES: usize = 32 * 1024;

/// Serves until the time is over, or forever. `ready` is told the address once it listens.
///
/// # Errors
/// The address is taken, or epoll cannot be used.
pub fn serve(settings: ProviderSettings, ready: impl FnOnce(SocketAddr)) -> Result<(), SetupError> {
    let refuse = |error: std::io::Error| SetupError(format!("--listen {}: {error}", settings.listen));
    // The cores share the port by SO_REUSEPORT, which would also let a second provider join silently: ask first.
    let probe = StdListener::bind(settings.listen).map_err(refuse)?;
    let listen = probe.local_addr().map_err(refuse)?;
    drop(probe);
    let settings = ProviderSettings { listen, ..settings };
    let (started, starting) = std::sync::mpsc::channel();
    let threads: Vec<_> = (0..settings.cores)
        .map(|_| {
            let (settings, started) = (settings.clone(), started.clone());
            std::thread::spawn(move || runtime::block_on(serve_core(settings, started))?)
        })
        .collect();
    drop(started);
    if starting.iter().take(settings.cores).count() == settings.cores {
        ready(listen);
    }
    for thread in threads {
        thread.join().map_err(|_| SetupError("a provider thread panicked".to_owned()))??;
    }
    Ok(())
}

async fn serve_core(settings: ProviderSettings, started: std::sync::mpsc::Sender<()>) -> Result<(), SetupError> {
    let refuse = |error| SetupError(format!("--listen {}: {error}", settings.listen));
    let listener = Listener::bind(settings.listen).map_err(refuse)?;
    let precomputed = Rc::new(Precomputed::new(&settings));
    // Nobody waits for the word when another core has failed already.
    started.send(()).unwrap_or_default();
    drop(started);
    if let Some((every, length)) = settings.stall {
        runtime::spawn(async move {
            loop {
                runtime::sleep(every).await;
                // The thread itself stands still, as one does that collects garbage or waits for a disk.
                std::thread::sleep(length);
            }
        });
    }
    let accepting = async {
        loop {
            let socket = listener.accept().await.map_err(refuse)?;
            let Ok(stream) = Stream::server(socket, settings.tls.clone()) else { continue };
            let precomputed = Rc::clone(&precomputed);
            runtime::spawn(async move {
                // A broken connection concerns its client, which sees it.
                drop(converse(stream, &precomputed).await);
            });
        }
    };
    match settings.run_for {
        None => accepting.await,
        Some(time) => runtime::timeout(time, accepting).await.unwrap_or(Ok(())),
    }
}

async fn converse(mut stream: Stream, precomputed: &Precomputed) -> std::io::Result<()> {
    let (mut buf, mut filled) = (vec![0; BUF_BYTES], 0);
    loop {
        let arrived = buf.get(..filled).unwrap_or_default();
        let used = match precomputed.recognise(arrived) {
            Recognised::Whole(used, answer, closes) => {
                if !precomputed.delay.is_zero() {
                    runtime::sleep(precomputed.delay).await;
                }
                stream.write_all(answer).await?;
                if closes {
                    return stream.finish().await;
                }
                used
            }
            Recognised::Stream(used, script, closes) => {
                perform(&mut stream, script).await?;
                if closes {
                    return stream.finish().await;
                }
                used
            }
            Recognised::Head(total, answer) => {
                stream.write_all(answer).await?;
                let mut missing = total.saturating_sub(filled);
                while missing > 0 {
                    let room = missing.min(BUF_BYTES);
                    let count = stream.read(buf.get_mut(..room).unwrap_or_default()).await?;
                    if count == 0 {
                        return Ok(());
                    }
                    missing -= count;
                }
                total.min(filled)
            }
            Recognised::NeedMore if filled <= FAST_BYTES_MAX => {
                if filled == buf.len() {
                    buf.resize(filled + BUF_BYTES.max(filled), 0);
                }
                let end = buf.len().min(filled.saturating_add(precomputed.read_bytes));
                let count = stream.read(buf.get_mut(filled..end).unwrap_or_default()).await?;
                if count == 0 {
                    return Ok(());
                }
                filled += count;
                continue;
            }
            Recognised::Special | Recognised::NeedMore => {
                if !converse_slowly(&mut stream, arrived).await? {
                    return Ok(());
                }
                filled
            }
        };
        buf.copy_within(used..filled, 0);
        filled -= used;
        if filled == 0 {
            // Nothing to recognise: straight to the next read.
            let end = buf.len().min(precomputed.read_bytes);
            filled = stream.read(buf.get_mut(..end).unwrap_or_default()).await?;
            if filled == 0 {
                return Ok(());
            }
        }
    }
}

/// Serves requests by the full rules until none is half read, so that one special request (a health check through a
/// proxy's pooled connection) does not slow down what follows it. False when the connection has ended.
async fn converse_slowly(stream: &mut Stream, arrived: &[u8]) -> std::io::Result<bool> {
    let (mut reader, mut buf) = (RequestReader::default(), vec![0; BUF_BYTES]);
    reader.push(arrived);
    while !reader.is_idle() {
        let script = match reader.next_step() {
            Ok(Step::Complete(request)) => {
                provider::respond(&request).script(request.keep_alive, request.method == "HEAD")
            }
            Ok(Step::SendContinue) => {
                stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
                continue;
            }
            Ok(Step::NeedMore) => {
                let count = stream.read(&mut buf).await?;
                if count == 0 {
                    return Ok(false);
                }
                reader.push(buf.get(..count).unwrap_or_default());
                continue;
            }
            Err(error) => provider::refuse("/", 400, &error.to_string()).script(false, false),
        };
        perform(stream, &script).await?;
        if script.closes {
            stream.finish().await?;
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes a script's bytes when they are due.
async fn perform(stream: &mut Stream, script: &Script) -> std::io::Result<()> {
    let (start, mut bytes) = (Instant::now(), Vec::new());
    for write in &script.writes {
        let early = (start + write.due).saturating_duration_since(Instant::now());
        if !early.is_zero() {
            runtime::sleep(early).await;
        }
        bytes.clear();
        bytes.extend_from_slice(&write.bytes);
        provider::stamp_now(&mut bytes);
        stream.write_all(&bytes).await?;
    }
    Ok(())
}
