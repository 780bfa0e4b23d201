//! What is spoken on a WebSocket, by the path of its handshake.

use weir_config::vocab::Operation;

use crate::wire::RequestHead;

/// What is spoken on a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaks {
    Responses,
    Realtime,
}

impl Speaks {
    /// What the record of the socket and those of its turns are named for.
    pub(super) const fn operation(self) -> Operation {
        match self {
            Self::Responses => Operation::Responses,
            Self::Realtime => Operation::Realtime,
        }
    }

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
