//! The stage that asks the provider: a connection, the request written again from its parts, and the one rule about
//! asking again. Invariant: a request that may have had an effect is sent at most once.

use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use weir_config::Settings;
use weir_config::settings::Upstream;

use super::answer_listener::AnswerListener;
use super::credentials::Credentials;
use super::exchange::{Exchange, Stop, Stopped, raw_text};
use super::gather::gather;
use super::rewrite_request::Ready;
use super::unsent::Unsent;
use super::upload::{self, Kept, Relayed, Towards};
use super::upstream::{self, Answered, NoAnswer};
use super::{relay, target, tunnel};
use crate::client::body::{BodyCap, send_continue};
use crate::client::session::{Next, Session};
use crate::client::watch::ClientWatch;
use crate::exchange::{Payload, Refusal};
use crate::forward::{Lease, UpstreamConn};
use crate::inspect::Route;
use crate::limits::{JOIN_BYTES_MAX, kept_bytes_max};
use crate::observe::AnswerKind;
use crate::rt::ReadWhileWriting;
use crate::settle::journal::Journal;
use crate::wire::{self, HeadWriter, RequestBody, RequestHead};

/// Asks the provider, and relays what it answers.
pub(super) async fn forward(session: &mut Session, ready: Ready) -> Result<Next, Stopped> {
    let (mut exchange, payload, marks) = ready.into_parts();
    let mut watch = session.watch();
    let answered = obtain(session, &mut exchange, payload, &mut watch).await;
    let (lease, answered) = match answered {
        Ok(answered) => answered,
        Err(why) => return Err(Stopped { exchange, why }),
    };
    if answered.head.status == 101 {
        return Ok(Box::pin(tunnel::serve(session, exchange, lease, answered)).await);
    }
    if let Err(refusal) = refuse_unasked_stream(exchange.settings(), &answered) {
        return Err(Stopped { exchange, why: refusal.into() });
    }
    relay::answer(session, exchange, lease, answered, &marks, &mut watch).await
}

/// Leases a connection and sends the request until there is an answer, as often as that is safe.
async fn obtain(
    session: &mut Session,
    exchange: &mut Exchange,
    payload: Payload,
    watch: &mut ClientWatch,
) -> Result<(Lease, Answered), Stop> {
    let tenant_id = exchange.journal.ids.tenant_id;
    let mut gathered = None;
    if matches!(payload, Payload::Streamed) {
        *watch = session.watch().behind_bytes();
        let waiting = Instant::now();
        let bodies = &Rc::clone(&session.core).process.bodies;
        let came = gather(session, &exchange.head, || bodies.of(tenant_id).permit()).await;
        exchange.journal.moments.awaiting_client += waiting.elapsed();
        gathered = came?;
    }
    let timeout_ms = exchange.settings().limits.timeout_ms;
    let limit = Duration::from_millis(timeout_ms);
    let holder = session.core.pool.holder(tenant_id.uuid().as_u128());
    let asked = Instant::now();
    let mut fresh = false;
    let found = loop {
        let at_hand = if fresh { None } else { session.core.pool.at_hand(holder) };
        let mut lease = match at_hand {
            Some(lease) => lease,
            None => {
                let waiting = Instant::now();
                let lease = upstream::lease(session, holder, limit.saturating_sub(asked.elapsed()), watch).await;
                exchange.journal.moments.awaiting_upstream += waiting.elapsed();
                lease?
            }
        };
        let reused = lease.reused();
        let left = limit.saturating_sub(asked.elapsed());
        match ask(session, exchange, &payload, &mut lease, left, watch).await {
            Ok(answered) => break (lease, answered),
            Err(NoAnswer::ClientLeft) => return Err(Stop::ClientLeft),
            Err(NoAnswer::Refused(refusal)) => return Err(refusal.into()),
            // The provider may have closed the kept connection just before; asking again is safe only for methods
            // that change nothing (RFC 9110 section 9.2.2).
            Err(NoAnswer::Silent) if reused && is_safe(&exchange.head) => fresh = true,
            // Not a byte has left us: nobody can have seen it.
            Err(NoAnswer::Unsent) if reused => fresh = true,
            Err(NoAnswer::Silent | NoAnswer::Unsent) => {
                let message = "the provider closed the connection without an answer";
                return Err(Refusal::upstream_protocol(message).into());
            }
            Err(NoAnswer::Timeout) => return Err(Refusal::upstream_timeout(timeout_ms).into()),
            Err(NoAnswer::Broken(what)) => {
                let message = format!("the provider's answer is not usable: {what}");
                return Err(Refusal::upstream_protocol(message).into());
            }
        }
    };
    drop(gathered);
    if let Payload::Held { body, permit, .. } = payload {
        // It has been sent; an answer may take minutes.
        drop(body);
        // The record may share its memory for as long as that.
        if let Some(permit) = permit {
            exchange.journal.hold(permit);
        }
    }
    Ok(found)
}

fn is_safe(head: &RequestHead) -> bool {
    head.body == RequestBody::Empty && matches!(head.method(), "GET" | "HEAD" | "OPTIONS")
}

/// Sends the request and awaits the head of the answer for at most `limit`, not counting the time a streamed body takes.
async fn ask(
    session: &mut Session,
    exchange: &mut Exchange,
    payload: &Payload,
    lease: &mut Lease,
    limit: Duration,
    watch: &mut ClientWatch,
) -> Result<Answered, NoAnswer> {
    let streams = matches!(payload, Payload::Streamed);
    if streams {
        send_continue(session, &exchange.head).await?;
    }
    let Some((conn, read_buf)) = lease.parts() else { return Err(NoAnswer::Silent) };
    request_head(session, exchange, payload);
    let Exchange { head, route, journal, .. } = exchange;
    let mut listener = AnswerListener::new(head, std::mem::take(read_buf));
    let sent_before = conn.tcp().sent();
    let sent = match payload {
        Payload::Empty => {
            let out = session.written();
            Sent::from(upstream::send(session, conn, out, watch).await)
        }
        Payload::Held { body, chunked, .. } => {
            let joined = body.len() <= JOIN_BYTES_MAX;
            let sending = (!joined).then(Instant::now);
            let sent = send_held(session, conn, body, *chunked, watch, &mut listener).await;
            // A large body waits for the provider to take it.
            journal.moments.awaiting_upstream += sending.map_or(Duration::ZERO, |since| since.elapsed());
            Sent::from(sent)
        }
        Payload::Streamed => {
            let to = Towards { conn, watch, listener: &mut listener };
            let sent = Box::pin(send_streamed(session, head, route, journal, to)).await?;
            if matches!(sent, Sent::All(None)) {
                // Whatever the client says from here on is no part of this exchange.
                *watch = session.watch();
            }
            sent
        }
    };
    if watch.client_left() {
        return Err(NoAnswer::ClientLeft);
    }
    let unsent = match sent {
        Sent::Stalled => return Err(NoAnswer::Refused(upload::stalled_refusal())),
        Sent::Stopped if conn.tcp().sent() == sent_before && !streams => return Err(NoAnswer::Unsent),
        Sent::Stopped => None,
        Sent::All(unsent) => Some(unsent),
    };
    let mut waited = Duration::ZERO;
    let answered = upstream::await_head(session, conn, &mut listener, limit, watch, &mut waited).await;
    journal.moments.awaiting_upstream += waited;
    if unsent.is_some() && matches!(answered, Err(NoAnswer::ClientLeft | NoAnswer::Timeout)) {
        journal.left_unanswered();
    }
    match (answered, unsent) {
        // A provider that refuses early stops reading; its answer may still be there. Without one, nothing was served.
        (Err(NoAnswer::Broken(_)), None) => Err(NoAnswer::Silent),
        (Ok(mut answered), None) => {
            // Half a request stands on it.
            answered.head.keep_alive = false;
            Ok(answered)
        }
        (Ok(answered), Some(unsent)) => Ok(Answered { unsent, ..answered }),
        (Err(error), _) => Err(error),
    }
}

/// Relays the body as it arrives, and keeps what the record wants of it.
async fn send_streamed(
    session: &mut Session,
    head: &RequestHead,
    route: &Route,
    journal: &mut Journal,
    to: Towards<'_, '_>,
) -> Result<Sent, NoAnswer> {
    let cap = BodyCap::of(&journal.settings);
    let mut kept = journal.wants_text().then(|| Kept {
        bytes: BytesMut::new(),
        permit: session.core.process.bodies.of(journal.ids.tenant_id).permit(),
        bytes_max: kept_bytes_max(&journal.settings),
        truncated: false,
    });
    let relayed = upload::relay(session, to, head, cap, kept.as_mut(), &mut journal.moments).await;
    if let Some(mut kept) = kept {
        kept.truncated |= !matches!(relayed, Relayed::Complete);
        journal.inspection.text = raw_text(head, route, kept.bytes.freeze(), kept.truncated);
        journal.hold(kept.permit);
    }
    match relayed {
        Relayed::Complete => Ok(Sent::All(None)),
        Relayed::Answered(unsent) => Ok(Sent::All(Some(unsent))),
        Relayed::UpstreamStopped => Ok(Sent::Stopped),
        Relayed::ClientLeft => Err(NoAnswer::ClientLeft),
        Relayed::Refused(refusal) => Err(NoAnswer::Refused(refusal)),
    }
}

/// Sends the head that stands in the session's buffer and a body that is in memory, in one write where that is cheap. A larger
/// one may be answered before all of it has been read.
async fn send_held(
    session: &mut Session,
    conn: &mut UpstreamConn,
    body: &Bytes,
    chunked: bool,
    watch: &mut ClientWatch,
    listener: &mut AnswerListener<'_>,
) -> io::Result<()> {
    let joined = body.len() <= JOIN_BYTES_MAX;
    let out = &mut session.out;
    match (joined, chunked) {
        (true, true) => {
            wire::data_chunk(out, body);
            out.extend_from_slice(wire::LAST_CHUNK);
        }
        (true, false) => out.extend_from_slice(body),
        (false, true) => wire::chunk_head(out, body.len() as u64),
        (false, false) => {}
    }
    let first = session.written();
    upstream::send(session, conn, first, watch).await?;
    if joined {
        return Ok(());
    }
    let mut reading = ReadWhileWriting::new();
    upstream::send_listening(session, conn, body.clone(), watch, &mut reading, listener).await?;
    if chunked {
        upstream::send(session, conn, Bytes::from_static(b"\r\n0\r\n\r\n"), watch).await?;
    }
    Ok(())
}

/// How sending a request went.
enum Sent {
    /// All of it is out, but for what an early answer has made needless.
    All(Option<Unsent>),
    /// The provider stopped reading; it may have answered.
    Stopped,
    /// The provider took nothing for too long.
    Stalled,
}

impl From<io::Result<()>> for Sent {
    fn from(sent: io::Result<()>) -> Self {
        match sent {
            Ok(()) => Self::All(None),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Self::Stalled,
            Err(_) => Self::Stopped,
        }
    }
}

/// The head the provider sees: the client's fields in their order and spelling, without what belongs to this hop or to
/// us, with Host rewritten in its place and one framing field. Written into the session's buffer.
fn request_head(session: &mut Session, exchange: &Exchange, payload: &Payload) {
    let (head, settings, trace) = (&exchange.head, exchange.settings(), exchange.trace);
    let body_room = match payload {
        Payload::Held { body, .. } if body.len() <= JOIN_BYTES_MAX => body.len() + 32,
        _ => 64,
    };
    let core = Rc::clone(&session.core);
    // A proxy wants the whole URL; a tunnel through one is none of a request's business.
    let proxy = core.process.parts.peer.proxy().filter(|proxy| proxy.base.is_some());
    let base = proxy.and_then(|proxy| proxy.base.as_deref()).unwrap_or_default();
    let out = session.room(head.wire_bytes() + base.len() + settings.upstream.authority.len() + 160 + body_room);
    let mut writer = HeadWriter::new(out);
    // The absolute form of `OPTIONS *` has no path (RFC 9112 section 3.2.4).
    let target = if proxy.is_some() && head.target() == "*" { "" } else { head.target() };
    writer.request_line_below(head.method(), [base, upstream_prefix(&settings.upstream, head.path())], target);
    let length = match payload {
        Payload::Held { body, chunked: false, .. } => Some(body.len() as u64),
        _ => match head.body {
            RequestBody::Length(length) => Some(length),
            _ => None,
        },
    };
    let mut credentials = Credentials::new(&core.process.parts.redaction, head, settings);
    let hops = target::hops_left(head).ok().flatten();
    let mut host_written = false;
    for field in head.fields() {
        if field.is("host") {
            writer.field(field.name(), settings.upstream.authority.as_bytes());
            host_written = true;
        } else if field.is("content-length") {
            writer.number(field.name(), length.unwrap_or(0));
        } else if field.is("transfer-encoding") {
            writer.chunked();
        } else if let Some(hops) = hops
            && field.is("max-forwards")
        {
            writer.number(field.name(), hops.saturating_sub(1));
        } else if field.is("traceparent") && trace.is_some() {
            let child = trace.map(|trace| trace.child(exchange.journal.ids.span_id)).unwrap_or_default();
            writer.field(field.name(), child.as_bytes());
        } else if !field.is("expect")
            && !field.name_starts_with("x-service-")
            && !field.is_hop_by_hop()
            && credentials.let_pass(field)
        {
            writer.relay(field);
        }
    }
    if !host_written {
        writer.field("Host", settings.upstream.authority.as_bytes());
    }
    credentials.write(&mut writer, exchange.route.dialect);
    if head.upgrade_websocket {
        writer.field("Upgrade", b"websocket");
        writer.field("Connection", b"Upgrade");
    }
    writer.field("Via", core.process.parts.instance.as_bytes());
    if let Some(value) = proxy.and_then(|proxy| proxy.authorization.as_ref()) {
        writer.field("Proxy-Authorization", value.expose());
    }
    writer.end();
}

/// The part of the upstream's own path that goes in front of a request's path: all of it, unless the path begins with
/// it already, or both meet in `/v1`.
fn upstream_prefix<'a>(upstream: &'a Upstream, path: &str) -> &'a str {
    let prefix = upstream.path_prefix.as_str();
    let below = |base: &str| path.strip_prefix(base).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if prefix.is_empty() || below(prefix) || path == "*" {
        return "";
    }
    match prefix.strip_suffix("/v1") {
        Some(shorter) if below("/v1") => shorter,
        _ => prefix,
    }
}

/// With streaming switched off, a stream that comes all the same is not passed on.
fn refuse_unasked_stream(settings: &Settings, answered: &Answered) -> Result<(), Refusal> {
    let is_stream = || AnswerKind::from_content_type(answered.head.get("content-type")).is_stream();
    if settings.enable_streaming || !is_stream() {
        return Ok(());
    }
    Err(Refusal::upstream_protocol(
        "the provider answered with a stream although streaming is switched off by `enable_streaming: false`",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(path_prefix: &str) -> Upstream {
        Upstream { path_prefix: path_prefix.to_owned(), ..Upstream::default() }
    }

    #[test]
    fn the_upstream_path_is_written_once() {
        assert_eq!(upstream_prefix(&upstream(""), "/v1/models"), "");
        assert_eq!(upstream_prefix(&upstream("/v1"), "/v1/models"), "");
        assert_eq!(upstream_prefix(&upstream("/v1"), "/models"), "/v1");
        assert_eq!(upstream_prefix(&upstream("/openai/v1"), "/v1/models"), "/openai");
        assert_eq!(upstream_prefix(&upstream("/openai/v1"), "/openai/v1/models"), "");
        assert_eq!(upstream_prefix(&upstream("/openai"), "/v1/models"), "/openai");
        assert_eq!(upstream_prefix(&upstream("/v1"), "/v1beta/models"), "/v1");
        assert_eq!(upstream_prefix(&upstream("/v1"), "*"), "");
    }
}
