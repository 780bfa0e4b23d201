//! WebSocket: once the provider has agreed to switch, both directions are copied as they come and nobody looks inside.
//!
//! Invariant: bytes pass in order and unread; a side that takes nothing holds up the other after one buffer; when one
//! side ends the other is told at once. The record counts bytes and says that the content was not scanned.

use std::cell::Cell;
use std::os::fd::RawFd;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use weir_config::Settings;
use weir_config::settings::WebSocket;

use super::ledger::Ledger;
use super::session::{Next, Session};
use super::upstream::Answered;
use super::{READ_BYTES_STREAM, WRITE_STALL_LIMIT};
use crate::exchange::{Refusal, Skip};
use crate::forward::Lease;
use crate::rt::{self, Deadline, On, ReadHalf, WriteHalf};
use crate::wire::{HeadWriter, RequestHead, ResponseHead};

/// How long a client may take to close after the provider has.
const FAREWELL: Duration = Duration::from_secs(1);

/// Refuses a WebSocket where the settings do: its frames are neither read nor charged.
pub(super) fn check_allowed(settings: &Settings) -> Result<(), Refusal> {
    let message = match settings.websocket {
        Some(WebSocket::Deny) => "WebSockets are switched off by `server.websocket: deny`",
        None if settings.enforcement.can_block() => {
            "`enforcement` blocks requests, and what passes in a WebSocket is not read; set `server.websocket: allow` to let \
             it pass unread"
        }
        Some(WebSocket::Allow) | None => return Ok(()),
    };
    Err(Refusal::new(403, "permission_denied", message))
}

/// Refuses a handshake no server could answer (RFC 6455 section 4.2.1).
pub(super) fn check_handshake(head: &RequestHead) -> Result<(), Refusal> {
    let mut keys = head.get_all("sec-websocket-key");
    let valid = |key: &[u8]| key.len() == 24 && key.ends_with(b"==");
    if keys.next().is_some_and(valid) && keys.next().is_none() {
        return Ok(());
    }
    let message = "a WebSocket handshake needs exactly one `Sec-WebSocket-Key` of 24 characters (RFC 6455 section 4.1)";
    Err(Refusal::new(400, "invalid_request", message))
}

/// Whether the provider has switched to what it was asked for.
pub(super) fn has_switched(head: &ResponseHead) -> bool {
    let is = |name: &str, wanted: &str| {
        let mut elements = head.get_all(name).flat_map(|value| value.split(|byte| *byte == b','));
        elements.any(|element| element.trim_ascii().eq_ignore_ascii_case(wanted.as_bytes()))
    };
    is("upgrade", "websocket") && is("connection", "upgrade") && head.get("sec-websocket-accept").is_some()
}

/// Passes the 101 on and copies until one side ends.
pub(super) async fn serve(
    session: &mut Session,
    settings: &Settings,
    mut lease: Lease,
    answered: Answered,
    ledger: &mut Ledger,
) -> Next {
    let Answered { head, rest, .. } = answered;
    ledger.answered(head.status);
    ledger.tunnelled();
    switch_head(session, &head, ledger);
    let out = session.written();
    if session.send(out).await.is_err() {
        ledger.cut_off(session.tenure.is_over());
        return Next::Close;
    }
    let early = std::mem::take(&mut session.buf);
    let Some(upstream) = lease.conn() else { return Next::Close };
    let tunnel = Tunnel {
        idle: Deadline::new(),
        idle_limit: Duration::from_millis(settings.limits.stream_idle_timeout_ms),
        client: session.conn.fd(),
        upstream: upstream.tcp().fd(),
        ended: Cell::new(None),
        sent: Cell::new(0),
        received: Cell::new(0),
    };
    let (mut ours, mut theirs) = (session.conn.duplex(), upstream.duplex());
    match (ours.split(), theirs.split()) {
        (Ok((from_client, to_client)), Ok((from_provider, to_provider))) => {
            tunnel.touch();
            let sending = tunnel.pump(End::Client, from_client, to_provider, early);
            let receiving = tunnel.pump(End::Provider, from_provider, to_client, rest);
            futures_util::join!(sending, receiving);
        }
        _ => ledger.failed("internal_error", "no descriptor was left for the two directions of a tunnel"),
    }
    tunnel.settle(ledger);
    if session.tenure.is_over() {
        ledger.cut_off(true);
    }
    Next::Close
}

/// The head the client sees: the provider's fields, and the switch itself, which is of this hop.
fn switch_head(session: &mut Session, head: &ResponseHead, ledger: &Ledger) {
    let trace_id = ledger.trace_id.to_string();
    let mut writer = HeadWriter::new(session.room(head.wire_bytes() + 256));
    writer.status_line(head.status, head.reason());
    for field in head.end_to_end_fields() {
        if !field.name_starts_with("x-service-") {
            writer.relay(field);
        }
    }
    writer.field("Upgrade", b"websocket");
    writer.field("Connection", b"Upgrade");
    writer.field("X-Service-Trace-Id", trace_id.as_bytes());
    writer.field("X-Service-Analysis", Skip::WebSocket.header().as_bytes());
    writer.end();
}

/// Who ended a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Client,
    Provider,
    /// Nothing passed for too long.
    Idle,
    /// One side took nothing for too long.
    Stalled,
}

struct Tunnel {
    idle: Deadline,
    idle_limit: Duration,
    client: RawFd,
    upstream: RawFd,
    ended: Cell<Option<End>>,
    sent: Cell<u64>,
    received: Cell<u64>,
}

impl Tunnel {
    /// Something has passed.
    fn touch(&self) {
        if self.ended.get().is_none() {
            self.idle.arm(self.idle_limit, On::Stop(self.client));
        }
    }

    /// Copies from one side, `source`, to the other until one of them ends.
    async fn pump(&self, source: End, mut from: ReadHalf<'_, '_>, mut to: WriteHalf<'_, '_>, mut buf: BytesMut) {
        let stall = Deadline::new();
        let count = if source == End::Client { &self.sent } else { &self.received };
        let end = loop {
            if buf.has_remaining() {
                let data = buf.split().freeze();
                count.set(count.get() + data.len() as u64);
                stall.arm(WRITE_STALL_LIMIT, On::Stop(to.fd()));
                let written = to.write_all(data).await;
                if stall.disarm() {
                    break End::Stalled;
                }
                if written.is_err() {
                    break if source == End::Client { End::Provider } else { End::Client };
                }
                self.touch();
            }
            buf.reserve(READ_BYTES_STREAM);
            let (got, filled) = from.read(buf).await;
            buf = filled;
            if !matches!(got, Ok(count) if count > 0) {
                break if self.idle.fired() { End::Idle } else { source };
            }
        };
        let first = self.ended.replace(self.ended.get().or(Some(end))).is_none();
        match (source, end) {
            // The client may still have something to read; its end is awaited for a moment.
            (End::Provider, End::Provider) => {
                to.finish().await;
                if first {
                    self.idle.arm(FAREWELL, On::Stop(self.client));
                }
            }
            _ => {
                rt::stop(self.upstream);
                rt::stop(self.client);
            }
        }
    }

    /// Writes down what became of it.
    fn settle(&self, ledger: &mut Ledger) {
        ledger.tag("websocket_bytes_sent", self.sent.get().to_string());
        ledger.tag("websocket_bytes_received", self.received.get().to_string());
        let (by, failure) = match self.ended.get() {
            Some(End::Client) | None => ("the client closed", None),
            Some(End::Provider) => ("the provider closed", None),
            Some(End::Idle) => {
                ("nothing passed in either direction within `stream_idle_timeout_ms`", Some("idle_timeout"))
            }
            Some(End::Stalled) => ("one side took no bytes for too long", Some("idle_timeout")),
        };
        ledger.told.bytes = self.received.get();
        ledger.event("tunnel_ended", by);
        if let Some(error_type) = failure {
            ledger.failed(error_type, by);
        }
    }
}
