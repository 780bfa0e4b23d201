//! The TLS handshake, where the listener speaks TLS.
//!
//! Invariant: it ends within [`HANDSHAKE_LIMIT`]. A client that speaks HTTP to a TLS listener is told so in plain text; nothing
//! it says is served.

use std::rc::Rc;

use bytes::{Bytes, BytesMut};
use weir_config::vocab::{Dialect, TraceId};

use super::session::Session;
use super::{Admission, ClientConn};
use crate::exchange::Refusal;
use crate::limits::HANDSHAKE_LIMIT;
use crate::meter::ClientEvent;
use crate::process::Core;
use crate::rt::{Conn, Greeting, TlsAcceptor};

/// The session of a client that has completed its TLS handshake.
pub(crate) async fn shake_hands(
    core: Rc<Core>,
    conn: Conn,
    admission: Admission,
    tls: &TlsAcceptor,
) -> Option<Session> {
    // Until the handshake it may make room like an idle one: it has not asked for anything yet.
    admission.greet();
    match Box::pin(tls.accept(conn, HANDSHAKE_LIMIT)).await {
        Greeting::Tls(tls) => {
            let input_ended = admission.work();
            return Some(Session::new(core, ClientConn::Tls(tls), admission, input_ended));
        }
        Greeting::Other(conn, said) => {
            core.meter.client(ClientEvent::HandshakeFailed);
            // Methods are upper-case words; anything else may be any protocol, and an answer would be noise to it.
            if said.first().is_some_and(u8::is_ascii_uppercase) {
                super::turn_away::tell(conn, speaks_plain(), admission).await;
            }
        }
        Greeting::Failed(error) => {
            core.meter.client(ClientEvent::HandshakeFailed);
            tracing::debug!(%error, "a client did not complete its TLS handshake");
        }
    }
    None
}

fn speaks_plain() -> Bytes {
    let message = "this port speaks HTTPS and the request came as plain HTTP; use https:// in the base URL";
    let refusal = Refusal::new(400, "invalid_request", message).closing();
    let body = refusal.body(Dialect::DEFAULT, TraceId::fresh());
    let mut out = BytesMut::new();
    super::turn_away::write(&refusal, &body, &mut out);
    out.freeze()
}
