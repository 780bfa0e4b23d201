//! Whether a message of a WebSocket may go on: rates, what is found in it, budgets, as for a request over HTTP. What is refused is
//! answered on its lane with the interface's own error event, and the provider never has it.

use bytes::Bytes;
use serde_json::{Value, json};
use weir_config::vocab::TraceId;

use super::admit_request::turn_within_rates;
use super::exchange::Exchange;
use super::speaks::Speaks;
use super::turns::Asks;
use super::{allow, caps, decide, look, operations};
use crate::exchange::Refusal;
use crate::process::Core;
use crate::settle::journal::Journal;

/// Judges a message, whose journal it gives back.
pub(super) async fn judge(
    core: &Core,
    exchange: &mut Exchange,
    journal: Box<Journal>,
    asks: &Asks,
) -> (Box<Journal>, Result<(), Refusal>) {
    let (body, is_turn, is_charged) = match asks {
        Asks::Nothing => return (journal, Ok(())),
        // What Realtime costs is known when it is over: what it asks for is held to whether there is room.
        Asks::Says { body, answered } => (body.clone(), *answered, false),
        Asks::Turn { body, answered, .. } => (body.clone(), *answered, *answered),
    };
    // The stages work on the exchange: for as long as they do, its journal is that of the turn.
    let of_socket = std::mem::replace(&mut exchange.journal, *journal);
    let judged = stages(core, exchange, &body, (is_turn, is_charged)).await;
    let journal = Box::new(std::mem::replace(&mut exchange.journal, of_socket));
    (journal, judged)
}

/// The stages of a request that a message meets, too, in their order.
async fn stages(
    core: &Core,
    exchange: &mut Exchange,
    body: &Bytes,
    (is_turn, is_charged): (bool, bool),
) -> Result<(), Refusal> {
    if is_turn {
        turn_within_rates(core, exchange)?;
    }
    look::inspect_turn(core, exchange, body).await?;
    allow::judge_turn(exchange, is_charged)?;
    operations::permit_turn(core, exchange).await?;
    decide::decide(exchange)?;
    let changes = exchange.journal.inspection.changes.as_ref();
    if changes.is_some_and(|changes| !changes.list.is_empty()) {
        let message = "this message holds personal data that `pii` takes out of requests, and messages of a WebSocket go on as they are; \
                       send it by HTTP";
        return Err(Refusal::new(403, "content_not_redacted", message).header("x-should-retry", false));
    }
    match (is_turn, is_charged) {
        (_, true) => caps::hold_turn(core, exchange)?,
        (true, false) => caps::has_room(core, exchange)?,
        (false, false) => {}
    }
    Ok(())
}

/// The event that tells the client of a refusal.
pub(super) fn error_event(
    speaks: Speaks,
    (lane, event_id): (Option<&str>, Option<&str>),
    refusal: &Refusal,
    trace_id: TraceId,
) -> Vec<u8> {
    let body = refusal.body(weir_config::vocab::Dialect::DEFAULT, trace_id);
    let mut error = serde_json::from_slice::<Value>(&body).map(|mut body| body["error"].take()).unwrap_or_default();
    let mut event = match speaks {
        Speaks::Responses => json!({ "type": "error", "status": refusal.status }),
        Speaks::Realtime => json!({ "type": "error", "event_id": format!("event_{trace_id}") }),
    };
    if let (Speaks::Realtime, Some(event_id)) = (speaks, event_id) {
        error["event_id"] = json!(event_id);
    }
    if let Some(lane) = lane {
        event["stream_id"] = json!(lane);
    }
    event["error"] = error;
    event.to_string().into_bytes()
}
