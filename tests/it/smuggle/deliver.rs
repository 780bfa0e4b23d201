//! One case through the gateway: how it is sent, what comes back, and what that proves.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use super::corpus::Case;
use super::rng::Rng;
use crate::support::PATIENCE;

/// What surrounds the case on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Context {
    Alone,
    /// Behind another request.
    Second,
    /// Before another request.
    Canary,
}

/// How the bytes are cut into writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    OneWrite,
    /// Two writes, cut here.
    At(usize),
    EachByte,
}

pub(crate) const CONTEXTS: [Context; 3] = [Context::Alone, Context::Second, Context::Canary];

/// Longer than every short length a case declares, so that a body in want of bytes gets them; then lines that no
/// request can begin with, so that whatever waits for a request is refused and the connection ends.
const SENTINEL: &[u8] = &[b'\n'; 400];

/// How long the gateway may be silent before the client says that nothing more comes. Reached only by cases that
/// declare more than [`SENTINEL`] holds.
const SILENCE: Duration = Duration::from_millis(250);

/// One answer the client saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    /// `X-Target`: which request the provider says this answers.
    pub(crate) target: Option<String>,
}

/// What became of one delivery.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) answers: Vec<Answered>,
    /// The connection was reset, or the client had to say that nothing more comes: answers may be missing.
    pub(crate) is_cut: bool,
    /// What is wrong, if anything.
    pub(crate) fault: Option<String>,
}

pub(crate) fn first_target(id: usize) -> String {
    format!("/first-{id:08}")
}

pub(crate) fn canary_target(id: usize) -> String {
    format!("/canary-{id:08}")
}

/// A cut somewhere in the middle of the case.
pub(crate) fn cut_somewhere(case: &Case, rng: &mut Rng) -> Cut {
    Cut::At(1 + rng.below(case.bytes(0).len().saturating_sub(1)))
}

/// Sends the case and reads until the gateway closes.
pub(crate) fn deliver(gateway: SocketAddr, case: &Case, id: usize, context: Context, cut: Cut) -> Outcome {
    let bytes = case.bytes(id);
    let mut before = Vec::new();
    if context == Context::Second {
        before = format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", first_target(id)).into_bytes();
    }
    let mut after = Vec::new();
    if context == Context::Canary {
        after = format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", canary_target(id)).into_bytes();
    }
    after.extend_from_slice(SENTINEL);
    let mut stream = TcpStream::connect(gateway).expect("the gateway listens");
    stream.set_nodelay(true).expect("a TCP socket");
    stream.set_write_timeout(Some(PATIENCE)).expect("a TCP socket");
    // A gateway that has refused may close before it has been told everything: a failed write ends the sending.
    let _told_everything = match cut {
        Cut::OneWrite => stream.write_all(&[&before[..], &bytes, &after].concat()),
        Cut::At(at) => {
            let (start, end) = bytes.split_at(at.min(bytes.len()));
            stream.write_all(&[&before[..], start].concat()).and_then(|()| stream.write_all(&[end, &after].concat()))
        }
        Cut::EachByte => {
            let sent = before.iter().chain(&bytes).try_for_each(|byte| stream.write_all(&[*byte]));
            sent.and_then(|()| stream.write_all(&after))
        }
    };
    let (received, is_cut, hung) = read_to_end(&mut stream);
    let mut outcome = read_answers(&received, is_cut);
    if hung {
        outcome.fault = Some("the connection hung".to_owned());
    }
    if outcome.fault.is_none() {
        outcome.fault = misplaced(&outcome.answers, &[&before[..], &bytes, &after].concat());
    }
    if outcome.fault.is_none() && context == Context::Second && !outcome.is_cut {
        let first = outcome.answers.first().and_then(|answer| answer.target.clone());
        if first != Some(first_target(id)) {
            outcome.fault = Some(format!("the first request got {:?}", outcome.answers.first()));
        }
    }
    outcome
}

/// Everything until the close; whether it was cut; whether it never ended.
fn read_to_end(stream: &mut TcpStream) -> (Vec<u8>, bool, bool) {
    let (mut received, mut is_cut) = (Vec::new(), false);
    let mut piece = [0; 16 * 1024];
    stream.set_read_timeout(Some(SILENCE)).expect("a TCP socket");
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return (received, is_cut, false),
            Ok(count) => received.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if is_cut {
                    return (received, is_cut, true);
                }
                is_cut = true;
                // Fails when the gateway has just closed.
                drop(stream.shutdown(Shutdown::Write));
                stream.set_read_timeout(Some(PATIENCE)).expect("a TCP socket");
            }
            Err(_) => return (received, true, false),
        }
    }
}

/// Reads a client's side of a connection: heads, bodies by Content-Length, nothing behind an announced close.
fn read_answers(received: &[u8], mut is_cut: bool) -> Outcome {
    let mut answers = Vec::new();
    let mut at = 0;
    let mut closed = false;
    let fault = loop {
        let rest = &received[at..];
        if rest.is_empty() {
            break None;
        }
        if closed {
            break Some(format!("bytes behind an announced close: {:?}", lossy(rest)));
        }
        let Some(head_end) = memchr::memmem::find(rest, b"\r\n\r\n") else {
            is_cut = true;
            break None;
        };
        let head = lossy(&rest[..head_end]);
        let field = |name: &str| {
            let mut lines = head.split("\r\n").skip(1).filter_map(|line| line.split_once(": "));
            lines.find(|(own, _)| own.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
        };
        let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)).and_then(|text| text.parse().ok());
        let Some(status): Option<u16> = status else { break Some(format!("no answer begins like this: {head:?}")) };
        at += head_end + 4;
        if status < 200 {
            continue;
        }
        let target = field("x-target");
        let rest = &received[at..];
        // A refusal of a HEAD request says how long its body would be and has none.
        let bodiless = field("x-method").as_deref() == Some("HEAD")
            || target.is_none() && (rest.is_empty() || rest.starts_with(b"HTTP/1."));
        let length = field("content-length").and_then(|text| text.parse::<usize>().ok());
        closed = field("connection").is_some_and(|value| value == "close");
        answers.push(Answered { status, target });
        match length {
            _ if bodiless => {}
            Some(length) if received.len() - at >= length => at += length,
            Some(_) => {
                is_cut = true;
                break None;
            }
            None => break Some(format!("an answer of no length: {head:?}")),
        }
    };
    Outcome { answers, is_cut, fault }
}

/// An answer that does not belong to the next request sent: the targets have to stand in what was sent, in this order.
fn misplaced(answers: &[Answered], sent: &[u8]) -> Option<String> {
    let mut from = 0;
    for (number, answer) in answers.iter().enumerate() {
        let Some(target) = &answer.target else { continue };
        // An absolute form without a path gains one on its way.
        let target = target.trim_start_matches(['/', '*']);
        match memchr::memmem::find(&sent[from..], target.as_bytes()) {
            Some(at) => from += at + target.len().min(1),
            None => return Some(format!("answer {number} is for {target}, out of turn")),
        }
    }
    None
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
