//! One sending of a request: its head written again from its parts, the body behind it, and the head of the answer. How often
//! it is sent, and to whom, is decided in `attempts`.

use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use weir_config::Settings;
use weir_config::settings::Upstream;

use super::answer_listener::AnswerListener;
use super::credentials::{Credentials, Form, supplied};
use super::exchange::{Exchange, raw_text};
use super::target;
use super::unsent::Unsent;
use super::upload::{self, Kept, Relayed, Towards, Upload};
use super::upstream::{self, Answered, NoAnswer, WaitingClient};
use super::websocket;
use crate::client::body::{BodyCap, send_continue};
use crate::client::session::Session;
use crate::exchange::Payload;
use crate::forward::{Lease, UpstreamConn};
use crate::inspect::Route;
use crate::limits::{JOIN_BYTES_MAX, kept_bytes_max};
use crate::rt::ReadWhileWriting;
use crate::settle::journal::Journal;
use crate::wire::{self, HeadWriter, RequestBody, RequestHead};

/// Whether sending it twice does no more than sending it once.
pub(super) fn is_safe(head: &RequestHead) -> bool {
    head.body == RequestBody::Empty && matches!(head.method(), "GET" | "HEAD" | "OPTIONS")
}

/// Sends the request and awaits the head of the answer for at most `limit`, not counting the time a streamed body takes.
pub(super) async fn ask(
    client: &mut WaitingClient<'_>,
    exchange: &mut Exchange,
    payload: &Payload,
    lease: &mut Lease,
    limit: Duration,
) -> Result<Answered, NoAnswer> {
    let streams = matches!(payload, Payload::Streamed);
    if streams {
        send_continue(client.session, &exchange.head).await?;
    }
    let Some((conn, read_buf)) = lease.parts() else { return Err(NoAnswer::Silent) };
    request_head(client.session, exchange, payload);
    let Exchange { head, route, journal, member, .. } = exchange;
    let pool = Rc::clone(journal.settings.local_upstreams.pool(*member));
    let mut listener = AnswerListener::new(head, std::mem::take(read_buf));
    let sent_before = conn.tcp().sent();
    let sent = match payload {
        Payload::Empty => {
            let out = client.session.written();
            Sent::from(upstream::send(client, conn, out).await)
        }
        Payload::Held { body, chunked, .. } => {
            let joined = body.len() <= JOIN_BYTES_MAX;
            let sending = (!joined).then(Instant::now);
            let sent = send_held(client, conn, body, *chunked, &mut listener).await;
            // A large body waits for the provider to take it.
            journal.moments.awaiting_upstream += sending.map_or(Duration::ZERO, |since| since.elapsed());
            Sent::from(sent)
        }
        Payload::Streamed => {
            let to = Towards { conn, pool: &pool, listener: &mut listener };
            let sent = Box::pin(send_streamed(client, head, route, journal, to)).await?;
            if matches!(sent, Sent::All(None)) {
                // Whatever the client says from here on is no part of this exchange.
                client.watch = client.session.watch();
            }
            sent
        }
    };
    if client.watch.client_left() {
        return Err(NoAnswer::ClientLeft);
    }
    let unsent = match sent {
        Sent::Stalled => return Err(NoAnswer::Refused(upload::stalled_refusal())),
        Sent::Stopped if conn.tcp().sent() == sent_before && !streams => return Err(NoAnswer::Unsent),
        Sent::Stopped => None,
        Sent::All(unsent) => Some(unsent),
    };
    let mut waited = Duration::ZERO;
    let answered = upstream::await_head(client, conn, &mut listener, limit, &mut waited).await;
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
    client: &mut WaitingClient<'_>,
    head: &RequestHead,
    route: &Route,
    journal: &mut Journal,
    to: Towards<'_, '_>,
) -> Result<Sent, NoAnswer> {
    let kept = journal.wants_text().then(|| Kept {
        bytes: BytesMut::new(),
        permit: client.session.core.process.bodies.of(journal.ids.tenant_id).permit(),
        bytes_max: kept_bytes_max(&journal.settings),
        truncated: false,
    });
    let tenant = journal.ids.tenant_id;
    let mut upload = Upload { framing: head.body, cap: BodyCap::of(&journal.settings), kept, tenant };
    let relayed = upload.relay(client, to, &mut journal.moments).await;
    if let Some(mut kept) = upload.kept {
        kept.truncated |= !matches!(relayed, Relayed::Complete);
        journal.inspection.text = raw_text(head, route, &journal.settings, kept.bytes.freeze(), kept.truncated);
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

/// Sends the head that stands in the session's buffer and a body that is in memory, in one write where that is cheap. Of a larger
/// one the beginning goes with the head, and it may be answered before the rest has been read.
async fn send_held(
    client: &mut WaitingClient<'_>,
    conn: &mut UpstreamConn,
    body: &Bytes,
    chunked: bool,
    listener: &mut AnswerListener<'_>,
) -> io::Result<()> {
    let joined = body.len() <= JOIN_BYTES_MAX;
    let out = &mut client.session.out;
    let mut rest = body.clone();
    let beginning = rest.split_to(body.len().min(JOIN_BYTES_MAX));
    match (joined, chunked) {
        (true, true) => {
            // No chunk for a body without content: that would be the last one already.
            wire::data_chunk(out, body);
            out.extend_from_slice(wire::LAST_CHUNK);
        }
        (false, true) => {
            wire::chunk_head(out, body.len() as u64);
            out.extend_from_slice(&beginning);
        }
        (_, false) => out.extend_from_slice(&beginning),
    }
    let first = client.session.written();
    upstream::send(client, conn, first).await?;
    if joined {
        return Ok(());
    }
    let mut reading = ReadWhileWriting::new();
    upstream::send_listening(client, conn, rest, &mut reading, listener).await?;
    if chunked {
        upstream::send(client, conn, Bytes::from_static(b"\r\n0\r\n\r\n")).await?;
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
    let (head, trace) = (&exchange.head, exchange.trace);
    let member = exchange.journal.settings.local_upstreams.member(exchange.member);
    let endpoint = &member.endpoint;
    let body_room = match payload {
        Payload::Held { body, .. } => body.len().min(JOIN_BYTES_MAX) + 32,
        _ => 64,
    };
    let core = Rc::clone(&session.core);
    // A proxy wants the whole URL; a tunnel through one is none of a request's business.
    let proxy = member.link.peer.proxy().filter(|proxy| proxy.base.is_some());
    let base = proxy.and_then(|proxy| proxy.base.as_deref()).unwrap_or_default();
    let out = session.room(head.wire_bytes() + base.len() + endpoint.authority.len() + 160 + body_room);
    let mut writer = HeadWriter::new(out);
    // The absolute form of `OPTIONS *` has no path (RFC 9112 section 3.2.4).
    let target = if proxy.is_some() && head.target() == "*" { "" } else { head.target() };
    writer.request_line_below(head.method(), [base, upstream_prefix(endpoint, head.path())], target);
    let length = match payload {
        Payload::Held { body, chunked: false, .. } => Some(body.len() as u64),
        _ => match head.body {
            RequestBody::Length(length) => Some(length),
            _ => None,
        },
    };
    let mut credentials = Credentials::new(&core.process.parts.policy.redaction, head, supplied(exchange));
    let hops = target::hops_left(head).ok().flatten();
    let mut host_written = false;
    let plain = wants_plain(exchange.settings());
    let counts_results = exchange.journal.counts_results();
    let no_extensions = websocket::forbids_extensions(exchange.settings(), head);
    for field in head.fields() {
        if field.is("host") {
            writer.relay_with(field, endpoint.authority.as_bytes());
            host_written = true;
        } else if field.is("content-length") {
            writer.relay_with_number(field, length.unwrap_or(0));
        } else if field.is("transfer-encoding") {
            writer.chunked();
        } else if let Some(hops) = hops
            && field.is("max-forwards")
        {
            writer.relay_with_number(field, hops.saturating_sub(1));
        } else if no_extensions && field.is("sec-websocket-extensions") {
            // None is offered.
        } else if counts_results && (field.is("range") || field.is("if-range")) {
            // A part of the results would be charged as if it were all of them.
        } else if plain && field.is("accept-encoding") {
            // Written once, below.
        } else if field.is("traceparent") && trace.is_some() {
            let child = trace.map(|trace| trace.child(exchange.journal.ids.span_id)).unwrap_or_default();
            writer.relay_with(field, child.as_bytes());
        } else if exchange.is_decoded && field.is("content-encoding") {
            // What is forwarded has none any more.
        } else if !field.is("expect")
            && !field.name_starts_with("x-service-")
            && !field.is_hop_by_hop()
            && credentials.let_pass(field)
        {
            writer.relay(field);
        }
    }
    if !host_written {
        writer.field("Host", endpoint.authority.as_bytes());
    }
    if plain {
        writer.field("Accept-Encoding", b"identity");
    }
    credentials.write(&mut writer, key_form(exchange));
    if head.upgrade_websocket {
        writer.field("Upgrade", b"websocket");
        writer.field("Connection", b"Upgrade");
    }
    writer.field("Via", core.process.parts.edge.instance.as_bytes());
    if let Some(value) = proxy.and_then(|proxy| proxy.authorization.as_ref()) {
        writer.field("Proxy-Authorization", value.expose());
    }
    writer.end();
}

/// Whether answers are asked for without a content coding: what may be stopped in the middle ends legally only then, and of what is
/// changed it would have to be undone.
fn wants_plain(settings: &Settings) -> bool {
    settings.redacts_answers()
        || settings.output_safety.enabled && (settings.stops_streams() || settings.blocks_answers())
}

/// How the provider wants the operator's credential.
fn key_form(exchange: &Exchange) -> Form {
    // What `upstream_url` gets is known by the dialect alone.
    let named = exchange.member > 0;
    if let Some(field) = exchange.route.dialect.key_field() {
        return Form::Field(field);
    }
    match exchange.route.provider.as_str() {
        "gemini" if named => Form::Field("x-goog-api-key"),
        "azure_openai" if named => Form::Field("api-key"),
        _ => Form::Bearer,
    }
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
