//! A tap on the answer of one turn of a WebSocket: which of its messages go on, in which form, and how the turn ends that it stops.
//! Knows no frames; a message is a line here, as the messages of a turn are in its record.

use std::rc::Rc;

use serde_json::{Value, json};

use super::speaks::Speaks;
use super::tapped::{self, Halt};
use crate::exchange::Refusal;
use crate::observe::AnswerKind;
use crate::output::{self, Body, Form};
use crate::process::Core;
use crate::record::Permit;
use crate::rewrite::{Framed, Onward, Tapped};
use crate::settle::journal::Journal;

/// The tap.
pub(super) struct TurnTap {
    tapped: Tapped,
    /// What waits, at its most, in the budget for bodies.
    room: Permit,
    charged: usize,
    /// Its client asks again after a 403.
    client_retries: bool,
}

/// What goes to the client for a message of the provider.
#[derive(Default)]
pub(super) struct Onwards {
    pub(super) messages: Vec<Vec<u8>>,
    pub(super) halt: Option<Halt>,
}

impl TurnTap {
    /// The tap that the settings of this turn ask for.
    pub(super) fn of(core: &Rc<Core>, journal: &Journal) -> Option<Self> {
        let form = Form { kind: AnswerKind::JsonLines, framed: Framed::Lines, body: Body::Json };
        let tap = output::tap(core, journal, 200, form)?;
        let room = core.process.bodies.of(journal.ids.tenant_id).permit();
        let client_retries = journal.client_retries();
        Some(Self { tapped: Tapped::new(tap, Framed::Lines, client_retries), room, charged: 0, client_retries })
    }

    /// What goes on once the provider has said this, and nothing more where it `ends` the answer.
    pub(super) async fn take(&mut self, message: &[u8], ends: bool) -> Onwards {
        let mut onwards = Onwards::default();
        if !message.is_empty() {
            // A line that has begun is not looked at: the message goes in one piece.
            let line = [message, b"\n"].concat();
            onwards.put(self.tapped.feed(&line).await);
        }
        let more = self.tapped.most_held_bytes().saturating_sub(self.charged);
        if onwards.halt.is_none() && !self.room.grow(more) {
            onwards.put(Onward::Send(self.tapped.let_go()));
        } else {
            self.charged += more;
        }
        if ends && onwards.halt.is_none() {
            onwards.put(self.tapped.finish().await);
        }
        onwards
    }

    /// Notes in the record of the turn what the tap did. The provider goes on and bills it, so the record stays one of an answer.
    pub(super) fn record(&self, core: &Core, journal: &mut Journal, halt: Option<Halt>) {
        if let Some(refusal) = tapped::record(core, journal, &self.tapped, halt) {
            journal.failed(refusal.error_type, &refusal.message);
        }
    }

    /// What the client is told where the answer was stopped.
    pub(super) fn refusal(&self) -> Refusal {
        let refusal = Refusal::new(403, "output_safety_blocked", self.tapped.warning());
        if self.client_retries { refusal.for_retrying(false) } else { refusal }
    }
}

impl Onwards {
    fn put(&mut self, onward: Onward) {
        let (bytes, halt) = match onward {
            Onward::Send(bytes) => (bytes, None),
            Onward::End(bytes) => (bytes, Some(Halt::Ended)),
            Onward::Cut(bytes) => (bytes, Some(Halt::Cut)),
            Onward::Replace => (bytes::Bytes::new(), Some(Halt::Replaced)),
        };
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        self.messages.extend(lines.map(<[u8]>::to_vec));
        self.halt = halt;
    }
}

/// The end of a turn that was stopped, as its interface spells it and on its lane. What was made for an event stream has no lane, and
/// Realtime has an end of its own.
pub(super) fn ended(
    speaks: Speaks,
    (lane, response): (Option<&str>, Option<&str>),
    onwards: &mut Onwards,
    error: impl FnOnce() -> Vec<u8>,
) {
    let read = |message: &Vec<u8>| serde_json::from_slice::<Value>(message).unwrap_or_default();
    match speaks {
        Speaks::Responses => {
            for message in &mut onwards.messages {
                let mut event = read(message);
                if let Some(lane) = lane.filter(|_| event.is_object() && event.get("stream_id").is_none()) {
                    event["stream_id"] = json!(lane);
                    *message = event.to_string().into_bytes();
                }
            }
            if onwards.halt != Some(Halt::Ended) {
                onwards.messages.push(error());
            }
        }
        Speaks::Realtime => {
            onwards.messages.retain(|message| {
                let event = read(message);
                let of_provider = ["event_id", "response_id"].iter().any(|name| event.get(*name).is_some());
                of_provider || event["type"] == "response.created"
            });
            onwards.messages.push(error());
            let details = json!({ "type": "incomplete", "reason": "content_filter" });
            let response = json!({
                "id": response, "object": "realtime.response", "status": "incomplete", "status_details": details, "output": [],
            });
            onwards.messages.push(json!({ "type": "response.done", "response": response }).to_string().into_bytes());
        }
    }
}
