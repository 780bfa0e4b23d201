//! The stage that asks the provider and relays what it answers.

use weir_config::Settings;

use super::exchange::Stopped;
use super::rewrite_request::Ready;
use super::upstream::{Answered, WaitingClient};
use super::{attempts, relay, tunnel};
use crate::client::session::{Next, Session};
use crate::exchange::Refusal;
use crate::observe::AnswerKind;

/// Asks the provider, and relays what it answers.
pub(super) async fn forward(session: &mut Session, ready: Ready) -> Result<Next, Stopped> {
    let (mut exchange, payload, marks) = ready.into_parts();
    let mut client = WaitingClient::new(session);
    let answered = attempts::obtain(&mut client, &mut exchange, payload).await;
    let (lease, answered) = match answered {
        Ok(answered) => answered,
        Err(why) => return Err(Stopped { exchange, why }),
    };
    if answered.head.status == 101 {
        return Ok(Box::pin(tunnel::serve(client.session, exchange, lease, answered)).await);
    }
    if let Err(refusal) = refuse_unasked_stream(exchange.settings(), &answered) {
        return Err(Stopped { exchange, why: refusal.into() });
    }
    relay::answer(client, exchange, lease, answered, &marks).await
}

/// With streaming switched off, a stream that comes all the same is not passed on.
fn refuse_unasked_stream(settings: &Settings, answered: &Answered) -> Result<(), Refusal> {
    let is_stream = || AnswerKind::from_content_type(answered.head.get("content-type")).is_stream();
    if settings.enable_streaming || !is_stream() {
        return Ok(());
    }
    Err(Refusal::upstream_protocol(
        "the provider answered with a stream although streaming is switched off by `enable_streaming: false`",
    ))
}
