//! A list of our own that is sent as it is read: a piece is asked for when the one before has been taken, so that it takes no more
//! memory than one piece, keeps no worker while the client reads, and ends with the client.
//!
//! Invariant: what could not be sent whole does not look whole. Each piece is asked for as a request of its own: by a caller whose
//! credential still holds, from its tenant's share of the workers, within the memory for bodies.

use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use super::asking::{admit, ask, begin_head, end_head, to_http};
use crate::client::own_answer::End;
use crate::client::session::{Next, Session};
use crate::control::{Further, Terms};
use crate::record::{Budget, Permit};
use crate::rt;
use crate::wire::{LAST_CHUNK, RequestHead, Version, chunk_head};

/// How long a piece is asked for again that nobody has time or room for, and how often.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(200);

/// A list on its way to one client.
pub(super) struct Lines<'a> {
    pub(super) head: &'a RequestHead,
    /// As the router knows it.
    pub(super) target: &'a str,
    pub(super) terms: Terms,
    pub(super) bodies: &'a Budget,
    pub(super) close: bool,
    pub(super) head_only: bool,
}

impl Lines<'_> {
    /// Sends the list whose first piece is there.
    pub(super) async fn send(
        self,
        session: &mut Session,
        first: http::Response<Bytes>,
        mut permit: Permit,
        mut further: Further,
    ) -> Next {
        let (parts, mut piece) = first.into_parts();
        let chunked = self.head.version == Version::Http11;
        let close = self.close || !chunked;
        let mut out = BytesMut::with_capacity(512);
        let mut writer = begin_head(&mut out, &parts);
        if chunked {
            writer.chunked();
        }
        end_head(writer, session, close);
        (session.said.status, session.said.bytes) = (parts.status.as_u16(), 0);
        if self.head_only {
            let sent = session.send(out.freeze()).await.is_ok();
            return session.end(End::of(sent, close)).await;
        }
        let mut next = Some(&mut further);
        loop {
            if !piece.is_empty() && chunked {
                chunk_head(&mut out, piece.len() as u64);
            }
            session.said.bytes += piece.len() as u64;
            let sent = session.send(out.split().freeze()).await.is_ok() && session.send(piece.clone()).await.is_ok();
            if !sent {
                return Next::Cut;
            }
            if !piece.is_empty() && chunked {
                out.extend_from_slice(b"\r\n");
            }
            let Some(from) = next.take() else { break };
            drop(permit);
            let Some((answer, held)) = self.piece(session, from).await else { return Next::Cut };
            permit = held;
            if let Some(after) = answer.extensions().get::<Further>() {
                from.clone_from(after);
                next = Some(from);
            }
            piece = answer.into_body();
        }
        if chunked {
            out.extend_from_slice(LAST_CHUNK);
        }
        let sent = session.send(out.freeze()).await.is_ok();
        session.end(End::of(sent, close)).await
    }

    /// The piece from there on, and the memory it takes. `None` when it cannot be had.
    async fn piece(&self, session: &Session, from: &Further) -> Option<(http::Response<Bytes>, Permit)> {
        let core = Rc::clone(&session.core);
        let until = Instant::now() + PATIENCE;
        loop {
            let caller = admit(session, self.head, self.terms, 0).ok()?;
            let mut request = to_http(self.head, self.target, Bytes::new(), caller)?;
            request.extensions_mut().insert(from.clone());
            let fault = match ask(&core, request, self.terms, caller).await {
                Ok(answer) if answer.status().is_success() => {
                    let mut permit = self.bodies.permit();
                    if permit.grow(answer.body().len()) {
                        return Some((answer, permit));
                    }
                    "there is no room for bodies in memory".to_owned()
                }
                Ok(answer) if answer.status() != http::StatusCode::SERVICE_UNAVAILABLE => {
                    tracing::warn!(
                        status = answer.status().as_u16(),
                        "a list that was being sent as lines was cut off"
                    );
                    return None;
                }
                Ok(answer) => format!("status {}", answer.status().as_u16()),
                Err(error) => error.to_string(),
            };
            if Instant::now() >= until {
                tracing::warn!(fault, "a list that was being sent as lines was cut off");
                return None;
            }
            rt::sleep(PAUSE).await;
        }
    }
}
