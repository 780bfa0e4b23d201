//! Request after request on one client connection, until somebody closes: each goes to our own API or to the provider.

use std::rc::Rc;
use std::time::Instant;

use super::{own_path, request};
use crate::client::session::{Next, NoRequest, Said, Session};
use crate::client::{Admission, ClientConn, shake_hands};
use crate::exchange::Refusal;
use crate::limits::{HEAD_LIMIT, IDLE_FEW};
use crate::process::Core;
use crate::rt::{Conn, TlsAcceptor};

/// Serves `conn` until it closes, over TLS when there is an acceptor.
pub async fn serve(core: Rc<Core>, conn: Conn, admission: Admission, tls: Option<&TlsAcceptor>) {
    let Some(tls) = tls else {
        return serve_connection(Session::new(core, ClientConn::Plain(conn), admission, false)).await;
    };
    if let Some(session) = shake_hands(core, conn, admission, tls).await {
        serve_connection(session).await;
    }
}

async fn serve_connection(mut session: Session) {
    let mut rests = session.core.open_connections.borrow().waiting() > IDLE_FEW;
    loop {
        if rests {
            session.rest().await;
        }
        // The many kilobytes of state that a request needs live in here; they go while the connection rests.
        if Box::pin(serve_requests(&mut session)).await == Served::All {
            break;
        }
        rests = true;
    }
}

/// Why [`serve_requests`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Served {
    /// The connection is to be closed.
    All,
    /// Nothing has come for a while.
    ForNow,
}

/// Serves request after request until the connection ends or falls silent.
async fn serve_requests(session: &mut Session) -> Served {
    loop {
        let refusal = match session.next_head().await {
            Ok(head) => {
                let next = if own_path::is_ours(&session.core.process, &head) {
                    let (line, started) = (head.line(), Instant::now());
                    session.said = Said::default();
                    let next = Box::pin(own_path::answer(session, head)).await;
                    session.tell_of_own(Some(line), started);
                    next
                } else {
                    request::exchange(session, Box::new(head)).await
                };
                match next {
                    Next::Keep => continue,
                    Next::Close => {
                        session.farewell().await;
                        return Served::All;
                    }
                    Next::Cut => return Served::All,
                }
            }
            Err(NoRequest::Quiet) => return Served::ForNow,
            Err(NoRequest::Closed) => {
                session.farewell().await;
                return Served::All;
            }
            Err(NoRequest::SlowHead) => Refusal::new(
                408,
                "invalid_request",
                format!("the request head was not complete within {} s", HEAD_LIMIT.as_secs()),
            )
            .closing(),
            Err(NoRequest::Fault(fault)) => Refusal::broken_framing(&fault),
        };
        let _closes = session.refuse_unparsed(&refusal).await;
        return Served::All;
    }
}
