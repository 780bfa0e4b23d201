//! What is spoken on a WebSocket, by the path of its handshake.

use crate::wire::RequestHead;

/// What is spoken on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaks {
    Responses,
    Realtime,
}

impl Speaks {
    /// By the path of its handshake; `None` where nobody here reads it.
    pub(super) fn of(head: &RequestHead) -> Option<Self> {
        let path = head.path().trim_end_matches('/');
        match path.rsplit('/').next() {
            Some("responses") => Some(Self::Responses),
            Some("realtime") => Some(Self::Realtime),
            _ => None,
        }
    }
}
