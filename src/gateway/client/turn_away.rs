//! Telling a client that there is no room for its connection: 503, and close.
//!
//! Invariant: what this costs is bounded. At most [`TURNED_AWAY_MAX`] of them are lingered for, so that the answer is not
//! destroyed by a reset; beyond that they get the answer and are closed at once.

use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use weir_config::vocab::{Dialect, TraceId};

use super::date;
use crate::exchange::Refusal;
use crate::limits::READ_BYTES_START;
use crate::meter::ClientEvent;
use crate::process::Core;
use crate::process::log_entry::LogEntry;
use crate::rt::{Conn, Deadline, On};
use crate::wire::{HeadWriter, canonical_reason};

/// Connections of one core that are told at their leisure.
const TURNED_AWAY_MAX: usize = 128;
/// How long one of them may take.
const LIMIT: Duration = Duration::from_secs(1);

/// Counts down however the telling ends.
struct Turned(Rc<Core>);

impl Drop for Turned {
    fn drop(&mut self) {
        self.0.turned_away.set(self.0.turned_away.get().saturating_sub(1));
    }
}

/// Counts the refusal and answers it; `None` when it is done already. `plain` is false where the client expects TLS: it could
/// not read an answer, so it gets none.
pub fn turn_away(
    core: &Rc<Core>,
    conn: Conn,
    why: ClientEvent,
    plain: bool,
) -> Option<impl Future<Output = ()> + use<>> {
    core.meter.client(why);
    let mut entry = LogEntry::of_ours(None);
    entry.because(Some("too_many_connections"));
    if let Some(access) = entry.end(&core.process, Some(503), Duration::ZERO, Duration::ZERO) {
        access.write(&core.process, None);
    }
    if !plain {
        return None;
    }
    let answer = no_room(why);
    if core.turned_away.get() >= TURNED_AWAY_MAX {
        conn.try_write(&answer);
        return None;
    }
    core.turned_away.set(core.turned_away.get() + 1);
    Some(tell(conn, answer, Turned(Rc::clone(core))))
}

/// Says `answer` on a connection nothing more is read from, and ends it within [`LIMIT`]. `_counted` is held meanwhile.
pub(crate) async fn tell<T>(mut conn: Conn, answer: Bytes, _counted: T) {
    let deadline = Deadline::new();
    deadline.arm(LIMIT, On::Stop(conn.fd()));
    if conn.write_all(answer).await.is_ok() {
        conn.finish_writing();
        let mut buf = BytesMut::with_capacity(READ_BYTES_START);
        // At most what fits through in the time; a client that has been answered stops.
        while let (Ok(1..), filled) = conn.read(buf).await {
            buf = filled;
            buf.clear();
        }
    }
    // Before the connection goes: a deadline must not outlive the descriptor it would shut down.
    drop(deadline);
}

/// The same answer without a connection of our own, for a socket nobody will serve.
pub fn say_no_room() -> Bytes {
    no_room(ClientEvent::RefusedDescriptors)
}

fn no_room(why: ClientEvent) -> Bytes {
    let message = match why {
        ClientEvent::RefusedAddress => {
            "this client has as many connections as it may, and none of them is idle; reuse connections, or raise \
             `server.max_client_connections_per_address`"
        }
        ClientEvent::RefusedDescriptors => {
            "the process has no file descriptor left; retry after a second, or raise its limit (`ulimit -n`, LimitNOFILE)"
        }
        _ => {
            "as many connections are open as may be, and none of them is idle; retry after a second, or raise \
             `server.max_client_connections`"
        }
    };
    let refusal = Refusal::new(503, "too_many_connections", message).header("Retry-After", 1).closing();
    let body = refusal.body(Dialect::DEFAULT, TraceId::fresh());
    let mut out = BytesMut::with_capacity(256 + body.len());
    write(&refusal, &body, &mut out);
    out.freeze()
}

/// A refusal and its body as bytes, outside any session.
pub(crate) fn write(refusal: &Refusal, body: &[u8], out: &mut BytesMut) {
    let mut writer = HeadWriter::new(out);
    writer.status_line(refusal.status, canonical_reason(refusal.status).as_bytes());
    writer.field("Date", date::http_date().as_bytes());
    writer.field("Content-Type", b"application/json");
    writer.field("Content-Length", body.len().to_string().as_bytes());
    for (name, value) in &refusal.headers {
        writer.field(name, value.as_bytes());
    }
    writer.field("Connection", b"close");
    writer.end();
    out.extend_from_slice(body);
}
