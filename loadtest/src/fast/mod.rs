//! The fast fake provider: answers to ordinary requests are precomputed, one write each.
//!
//! A request that asks for anything special (an `x-fake-*` header, `Expect`, a chunked body, another path) takes the
//! slow way through [`provider::respond`], so both ways answer by the same rules. Directives in prompts and model names
//! are seen only with `full`.
//!
//! Invariant: loopback only (the command line checks), and one thread per core shares nothing with another.

use std::net::{SocketAddr, TcpListener as StdListener};
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::runtime::{Listener, Socket};
use crate::error::SetupError;
use crate::runtime;
use weir_fake_provider::http::{Request, RequestReader, Step};
use weir_fake_provider::provider::{self, Script};

/// First size of a connection's buffer, and the step by which it grows.
const BUF_BYTES: usize = 32 * 1024;
/// A request longer than this takes the slow way, which bounds it.
const FAST_BYTES_MAX: usize = 1024 * 1024;
/// Read at once where requests are answered from their head: enough for a head, and little of a body.
const HEAD_READ_BYTES: usize = 2 * 1024;

/// Settings of the provider.
#[derive(Debug, Clone)]
pub struct ProviderSettings {
    /// Loopback address; port 0 picks one.
    pub listen: SocketAddr,
    /// Threads.
    pub cores: usize,
    /// Length of the precomputed whole answers.
    pub answer_bytes: usize,
    /// Content frames of the precomputed streams.
    pub frames: usize,
    /// Milliseconds between those frames.
    pub frame_ms: u64,
    /// Compute every answer from its request.
    pub full: bool,
    /// Answer ordinary requests with this status as soon as their head has come, and read their bodies after that.
    pub early: Option<u16>,
    /// When to stop; `None` for never.
    pub run_for: Option<Duration>,
}

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
    let accepting = async {
        loop {
            let stream = listener.accept().await.map_err(refuse)?;
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

/// The precomputed answers.
struct Precomputed {
    paths: Vec<PathAnswers>,
    /// Most bytes read at once.
    read_bytes: usize,
}

struct PathAnswers {
    path: &'static str,
    /// Whether the dialect streams unless told not to.
    streams_by_default: bool,
    whole: Vec<u8>,
    stream: Script,
    /// The answer to a request's head, whatever its body is going to be.
    early: Option<Vec<u8>>,
}

/// What the start of a connection's buffer is.
enum Recognised<'m> {
    NeedMore,
    /// A whole ordinary request of this length, and its answer.
    Whole(usize, &'m [u8]),
    Stream(usize, &'m Script),
    /// The head of an ordinary request of this length, and its answer.
    Head(usize, &'m [u8]),
    /// Anything else.
    Special,
}

impl Precomputed {
    fn new(settings: &ProviderSettings) -> Self {
        let paths: &[(&'static str, &str)] = match settings.full {
            true => &[],
            false => &[
                ("/v1/chat/completions", r#""messages":[{"role":"user","content":"hi"}]"#),
                ("/v1/completions", r#""prompt":"hi""#),
                ("/v1/responses", r#""input":"hi""#),
                ("/v1/messages", r#""messages":[{"role":"user","content":"hi"}]"#),
                ("/api/generate", r#""prompt":"hi""#),
                ("/api/chat", r#""messages":[{"role":"user","content":"hi"}]"#),
            ],
        };
        let answers = |&(path, said): &(&'static str, &str)| {
            let request = |stream: bool| {
                let usage = r#""stream_options":{"include_usage":true}"#;
                let body = format!(r#"{{"model":"fake-small","stream":{stream},{usage},{said}}}"#);
                Request::new("POST", path).with_body(body)
            };
            let whole = request(false).with_header("x-fake-answer-bytes", &settings.answer_bytes.to_string());
            let stream = request(true)
                .with_header("x-fake-frames", &settings.frames.to_string())
                .with_header("x-fake-frame-ms", &settings.frame_ms.to_string())
                .with_header("x-fake-stamp", "1");
            let bytes = |request: &Request| -> Vec<u8> {
                let writes = provider::respond(request).script(true, false).writes;
                writes.into_iter().flat_map(|write| write.bytes).collect()
            };
            let early =
                settings.early.map(|status| bytes(&whole.clone().with_header("x-fake-status", &status.to_string())));
            PathAnswers {
                path,
                streams_by_default: path.starts_with("/api/"),
                whole: bytes(&whole),
                stream: provider::respond(&stream).script(true, false),
                early,
            }
        };
        let read_bytes = if settings.early.is_some() { HEAD_READ_BYTES } else { usize::MAX };
        Self { paths: paths.iter().map(answers).collect(), read_bytes }
    }

    fn recognise(&self, buf: &[u8]) -> Recognised<'_> {
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut head = httparse::Request::new(&mut fields);
        let head_bytes = match head.parse(buf) {
            Ok(httparse::Status::Complete(bytes)) => bytes,
            Ok(httparse::Status::Partial) => return Recognised::NeedMore,
            Err(_) => return Recognised::Special,
        };
        let path = head.path.unwrap_or_default();
        let answers = self.paths.iter().find(|answers| answers.path == path);
        let (Some(answers), Some("POST"), Some(1)) = (answers, head.method, head.version) else {
            return Recognised::Special;
        };
        let mut length = None;
        for field in head.headers.iter() {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            // First letters sort out nearly every field before a comparison.
            match field.name.as_bytes().first().map(u8::to_ascii_lowercase) {
                Some(b'x') if field.name.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("x-fake-")) => {
                    return Recognised::Special;
                }
                Some(b'e') if is("expect") => return Recognised::Special,
                Some(b't') if is("transfer-encoding") => return Recognised::Special,
                Some(b'c') if is("content-length") => {
                    let parsed = std::str::from_utf8(field.value).ok().and_then(|value| value.parse::<usize>().ok());
                    // A second length, or one that is no number, is for the strict reader to refuse.
                    let (Some(parsed), None) = (parsed, length) else { return Recognised::Special };
                    length = Some(parsed);
                }
                Some(b'c') if is("connection") && !field.value.eq_ignore_ascii_case(b"keep-alive") => {
                    return Recognised::Special;
                }
                _ => {}
            }
        }
        let Some(total) = length.and_then(|length| head_bytes.checked_add(length)) else { return Recognised::Special };
        if total > FAST_BYTES_MAX {
            return Recognised::Special;
        }
        if let Some(answer) = &answers.early {
            return Recognised::Head(total, answer);
        }
        match buf.get(head_bytes..total) {
            None => Recognised::NeedMore,
            Some(body) if stream_member(body).unwrap_or(answers.streams_by_default) => {
                Recognised::Stream(total, &answers.stream)
            }
            Some(_) => Recognised::Whole(total, &answers.whole),
        }
    }
}

/// The value of a `"stream"` member. Inside a JSON string its quotes would be escaped, so the text cannot fake it.
fn stream_member(body: &[u8]) -> Option<bool> {
    let start = memchr::memmem::find(body, b"\"stream\"")? + b"\"stream\"".len();
    let mut value = body.get(start..)?.iter().skip_while(|byte| byte.is_ascii_whitespace() || **byte == b':');
    Some(value.next() == Some(&b't'))
}

async fn converse(mut stream: Socket, precomputed: &Precomputed) -> std::io::Result<()> {
    let (mut buf, mut filled) = (vec![0; BUF_BYTES], 0);
    loop {
        let arrived = buf.get(..filled).unwrap_or_default();
        let used = match precomputed.recognise(arrived) {
            Recognised::Whole(used, answer) => {
                stream.write_all(answer).await?;
                used
            }
            Recognised::Stream(used, script) => {
                perform(&mut stream, script).await?;
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
async fn converse_slowly(stream: &mut Socket, arrived: &[u8]) -> std::io::Result<bool> {
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
            stream.finish()?;
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes a script's bytes when they are due.
async fn perform(stream: &mut Socket, script: &Script) -> std::io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_member_is_read_and_a_text_about_it_is_not() {
        assert_eq!(stream_member(br#"{"stream" : true}"#), Some(true));
        assert_eq!(stream_member(br#"{"stream":false}"#), Some(false));
        assert_eq!(stream_member(br#"{"content":"\"stream\":true"}"#), None);
    }
}
