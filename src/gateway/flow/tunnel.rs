//! WebSocket: once the provider has agreed to switch, both directions are copied as they come and nobody looks inside.
//!
//! Invariant: bytes pass in order and unread; a side that takes nothing holds up the other after one buffer; when one
//! side ends the other is told at once. The record counts bytes and says that the content was not scanned.

use std::cell::Cell;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use bytes::{Buf as _, BytesMut};

use super::exchange::Exchange;
use super::upstream::Answered;
use crate::client::session::{Next, Session};
use crate::exchange::Skip;
use crate::forward::Lease;
use crate::limits::{READ_BYTES_STREAM, WRITE_STALL_LIMIT};
use crate::rt::{self, Deadline, On, ReadHalf, WriteHalf};
use crate::settle::journal::Journal;
use crate::wire::{HeadWriter, ResponseHead};

/// How long a client may take to close after the provider has.
const FAREWELL: Duration = Duration::from_secs(1);

/// Passes the 101 on and copies until one side ends.
pub(super) async fn serve(
    session: &mut Session,
    mut exchange: Box<Exchange>,
    mut lease: Lease,
    answered: Answered,
) -> Next {
    let Answered { head, rest, .. } = answered;
    let journal = &mut exchange.journal;
    journal.answered(head.status);
    journal.tunnelled();
    switch_head(session, &head, journal);
    let out = session.written();
    if session.send(out).await.is_err() {
        journal.cut_off(session.connection_caller.is_over());
        return Next::Close;
    }
    let early = std::mem::take(&mut session.buf);
    let Some(upstream) = lease.conn() else { return Next::Close };
    let tunnel = Tunnel {
        idle: Deadline::new(),
        idle_limit: Duration::from_millis(journal.settings.limits.stream_idle_timeout_ms),
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
            let open = Instant::now();
            futures_util::join!(sending, receiving);
            // As long as it stands, both sides are waited for.
            journal.moments.awaiting_upstream += open.elapsed();
        }
        _ => journal.failed("internal_error", "no descriptor was left for the two directions of a tunnel"),
    }
    tunnel.settle(journal);
    if session.connection_caller.is_over() {
        journal.cut_off(true);
    }
    Next::Close
}

/// The head the client sees: the provider's fields, and the switch itself, which is of this hop.
fn switch_head(session: &mut Session, head: &ResponseHead, journal: &Journal) {
    let trace_id = journal.trace_id().to_string();
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

/// Which side ended a tunnel.
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
    fn settle(&self, journal: &mut Journal) {
        journal.tag("websocket_bytes_sent", self.sent.get().to_string());
        journal.tag("websocket_bytes_received", self.received.get().to_string());
        let (by, failure) = match self.ended.get() {
            Some(End::Client) | None => ("the client closed", None),
            Some(End::Provider) => ("the provider closed", None),
            Some(End::Idle) => {
                ("nothing passed in either direction within `stream_idle_timeout_ms`", Some("idle_timeout"))
            }
            Some(End::Stalled) => ("one side took no bytes for too long", Some("idle_timeout")),
        };
        journal.sent(self.received.get());
        journal.event("tunnel_ended", by);
        if let Some(error_type) = failure {
            journal.failed(error_type, by);
        }
    }
}
