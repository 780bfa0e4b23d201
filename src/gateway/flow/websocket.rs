//! The opening handshake of a WebSocket: whether it may be made, is well-formed, and has been agreed to.

use weir_config::Settings;
use weir_config::settings::WebSocket;

use super::speaks::Speaks;
use crate::exchange::Refusal;
use crate::wire::{RequestHead, ResponseHead};

/// Refuses a WebSocket where the settings do. Where requests may be blocked, only those pass that are read here.
pub(super) fn check_allowed(settings: &Settings, head: &RequestHead) -> Result<(), Refusal> {
    let message = match settings.websocket {
        Some(WebSocket::Deny) => "WebSockets are switched off by `server.websocket: deny`",
        None if settings.enforcement.can_block() && Speaks::of(head).is_none() => {
            "`enforcement` blocks requests, and what passes in a WebSocket of this path is not read; set `server.websocket: allow` to let \
             it pass unread"
        }
        Some(WebSocket::Allow) | None => return Ok(()),
    };
    Err(Refusal::no_websocket(message))
}

/// Whether extensions are kept from being agreed on: a compressed message cannot be held back, stopped or changed without spoiling
/// those behind it, which are compressed with what it said.
pub(super) fn forbids_extensions(settings: &Settings, head: &RequestHead) -> bool {
    let changes = settings.enforcement.can_block() || settings.stops_streams() || settings.redacts_answers();
    head.upgrade_websocket && changes && Speaks::of(head).is_some()
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
