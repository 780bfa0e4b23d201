//! The stage that asks the provider: a connection, the request written anew from its parts, and the one rule about
//! asking again. Invariant: a request that may have had an effect is sent at most once.

use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use weir_config::Settings;
use weir_config::settings::Upstream;

use super::credentials::Credentials;
use super::gather::gather;
use super::hearing::Hearing;
use super::ledger::Ledger;
use super::look::raw_text;
use super::relay::{self, Ended};
use super::request::Stop;
use super::session::{Next, Session};
use super::upload::{self, Kept, Relayed, Towards};
use super::upstream::{self, Answered, NoAnswer};
use super::watch::ClientWatch;
use super::{target, tunnel};
use crate::exchange::{Parsed, Payload, Ready, Refusal};
use crate::forward::{Lease, UpstreamConn};
use crate::observe::AnswerKind;
use crate::rt::Listen;
use crate::wire::{self, HeadWriter, RequestBody, RequestHead};

pub(super) async fn forward(
    session: &mut Session,
    settings: &Settings,
    ready: Ready,
    ledger: &mut Ledger,
) -> Result<Next, Stop> {
    let Ready { parsed, payload, marks } = ready;
    let mut watch = session.watch();
    if matches!(payload, Payload::Streamed) {
        watch = watch.behind_bytes();
    }
    let mut gathered = None;
    if matches!(payload, Payload::Streamed) {
        let waiting = Instant::now();
        let bodies = &Rc::clone(&session.core).process.bodies;
        gathered = gather(session, &parsed.head, || bodies.of(parsed.identity.tenant_id).permit()).await?;
        ledger.moments.awaiting_client += waiting.elapsed();
    }
    let limit = Duration::from_millis(settings.limits.timeout_ms);
    let holder = session.core.pool.holder(parsed.identity.tenant_id.uuid().as_u128());
    let asked = Instant::now();
    let mut fresh = false;
    let (lease, answered) = loop {
        let at_hand = if fresh { None } else { session.core.pool.at_hand(holder) };
        let mut lease = match at_hand {
            Some(lease) => lease,
            None => {
                let waiting = Instant::now();
                let lease = upstream::lease(session, holder, limit.saturating_sub(asked.elapsed()), &mut watch).await;
                ledger.moments.awaiting_upstream += waiting.elapsed();
                lease?
            }
        };
        let reused = lease.reused();
        let left = limit.saturating_sub(asked.elapsed());
        match ask(session, settings, &parsed, &payload, &mut lease, left, &mut watch, ledger).await? {
            Ok(answered) => break (lease, answered),
            Err(NoAnswer::ClientLeft) => return Err(Stop::ClientLeft),
            // The provider may have closed the kept connection just before; asking again is safe only for methods
            // that change nothing (RFC 9110 section 9.2.2).
            Err(NoAnswer::Silent) if reused && is_safe(&parsed.head) => fresh = true,
            // Not a byte has left us: nobody can have seen it.
            Err(NoAnswer::Unsent) if reused => fresh = true,
            Err(NoAnswer::Silent | NoAnswer::Unsent) => {
                let message = "the provider closed the connection without an answer";
                return Err(Refusal::upstream_protocol(message).into());
            }
            Err(NoAnswer::Timeout) => return Err(Refusal::upstream_timeout(settings.limits.timeout_ms).into()),
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
            ledger.hold(permit);
        }
    }
    if answered.head.status == 101 {
        return Ok(tunnel::serve(session, settings, lease, answered, ledger).await);
    }
    refuse_unasked_stream(settings, &answered)?;
    let ended = relay::answer(session, settings, &parsed, lease, answered, &marks, &mut watch, ledger).await;
    Ok(match ended {
        Ended::Complete { keep: true } => Next::Keep,
        Ended::Complete { keep: false } => Next::Close,
        Ended::Cut => Next::Cut,
    })
}

fn is_safe(head: &RequestHead) -> bool {
    head.body == RequestBody::Empty && matches!(head.method(), "GET" | "HEAD" | "OPTIONS")
}

/// Sends the request and awaits the head of the answer for at most `limit`, not counting the time a streamed body takes.
#[allow(clippy::too_many_arguments)] // One exchange's parts; a struct for one call would only rename them.
async fn ask(
    session: &mut Session,
    settings: &Settings,
    parsed: &Parsed,
    payload: &Payload,
    lease: &mut Lease,
    limit: Duration,
    watch: &mut ClientWatch,
    ledger: &mut Ledger,
) -> Result<Result<Answered, NoAnswer>, Stop> {
    if matches!(payload, Payload::Streamed) {
        upload::send_continue(session, &parsed.head).await?;
    }
    let Some((conn, read_buf)) = lease.parts() else { return Ok(Err(NoAnswer::Silent)) };
    let mut hearing = Hearing::new(&parsed.head, std::mem::take(read_buf));
    let sent_before = conn.tcp().sent();
    let mut unsent = None;
    request_head(session, settings, parsed, payload);
    let sent = match payload {
        Payload::Empty => {
            let out = session.written();
            Sent::from(upstream::send(session, conn, out, watch).await)
        }
        Payload::Held { body, chunked, .. } => {
            Sent::from(send_held(session, conn, body, *chunked, watch, &mut hearing).await)
        }
        Payload::Streamed => {
            let cap = (settings.limits.max_request_size_bytes, settings.limits.max_request_size_source);
            let mut kept = ledger.wants_text().then(|| Kept {
                bytes: BytesMut::new(),
                permit: session.core.process.bodies.of(parsed.identity.tenant_id).permit(),
                bytes_max: super::kept_bytes_max(settings),
                truncated: false,
            });
            let mut waited = Duration::ZERO;
            let to = Towards { conn, watch, hearing: &mut hearing };
            let relayed = upload::relay(session, to, &parsed.head, cap, kept.as_mut(), &mut waited).await;
            ledger.moments.awaiting_client += waited;
            if let Some(mut kept) = kept {
                kept.truncated |= !matches!(relayed, Relayed::Complete);
                ledger.text = raw_text(parsed, kept.bytes.freeze(), kept.truncated);
                ledger.hold(kept.permit);
            }
            match relayed {
                Relayed::Complete => {
                    // Whatever the client says from here on is no part of this exchange.
                    *watch = session.watch();
                    Sent::All
                }
                Relayed::Answered(rest) => {
                    unsent = Some(rest);
                    Sent::All
                }
                Relayed::UpstreamStopped => Sent::Stopped,
                Relayed::ClientLeft => return Err(Stop::ClientLeft),
                Relayed::Refused(refusal) => return Err(refusal.into()),
            }
        }
    };
    if watch.client_left() {
        return Err(Stop::ClientLeft);
    }
    if sent == Sent::Stalled {
        return Err(upload::stalled_refusal().into());
    }
    if sent == Sent::Stopped && conn.tcp().sent() == sent_before && !matches!(payload, Payload::Streamed) {
        return Ok(Err(NoAnswer::Unsent));
    }
    let mut waited = Duration::ZERO;
    let answered = upstream::await_head(session, conn, &mut hearing, limit, watch, &mut waited).await;
    ledger.moments.awaiting_upstream += waited;
    if sent == Sent::All && matches!(answered, Err(NoAnswer::ClientLeft | NoAnswer::Timeout)) {
        ledger.left_unanswered();
    }
    // A provider that refuses early stops reading; its answer may still be there. Without one, nothing was served.
    Ok(match answered {
        Err(NoAnswer::Broken(_)) if sent == Sent::Stopped => Err(NoAnswer::Silent),
        Ok(mut answered) if sent == Sent::Stopped => {
            // Half a request stands on it.
            answered.head.keep_alive = false;
            Ok(answered)
        }
        Ok(answered) => Ok(Answered { unsent, ..answered }),
        other => other,
    })
}

/// Sends the head that stands in the session's buffer and a body that is in memory, in one write where that is cheap. A larger
/// one may be answered before all of it has been read.
async fn send_held(
    session: &mut Session,
    conn: &mut UpstreamConn,
    body: &Bytes,
    chunked: bool,
    watch: &mut ClientWatch,
    hearing: &mut Hearing<'_>,
) -> io::Result<()> {
    let joined = body.len() <= super::JOIN_BYTES_MAX;
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
    let mut listen = Listen::new();
    upstream::send_listening(session, conn, body.clone(), watch, &mut listen, hearing).await?;
    if chunked {
        upstream::send(session, conn, Bytes::from_static(b"\r\n0\r\n\r\n"), watch).await?;
    }
    Ok(())
}

/// How sending a request went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// All of it is out.
    All,
    /// The provider stopped reading; it may have answered.
    Stopped,
    /// The provider took nothing for too long.
    Stalled,
}

impl From<io::Result<()>> for Sent {
    fn from(sent: io::Result<()>) -> Self {
        match sent {
            Ok(()) => Self::All,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Self::Stalled,
            Err(_) => Self::Stopped,
        }
    }
}

/// The head the provider sees: the client's fields in their order and spelling, without what belongs to this hop or to
/// us, with Host rewritten in its place and one framing field. Written into the session's buffer.
fn request_head(session: &mut Session, settings: &Settings, parsed: &Parsed, payload: &Payload) {
    let head = &parsed.head;
    let body_room = match payload {
        Payload::Held { body, .. } if body.len() <= super::JOIN_BYTES_MAX => body.len() + 32,
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
    let mut credentials = Credentials::new(&core.process.parts.guard, head, settings);
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
        } else if field.is("traceparent") && parsed.trace.is_some() {
            let child = parsed.trace.map(|trace| trace.child(parsed.identity.span_id)).unwrap_or_default();
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
    credentials.write(&mut writer, parsed.dialect());
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
    let is_stream = AnswerKind::from_content_type(answered.head.get("content-type")).is_stream();
    if settings.enable_streaming || !is_stream {
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
