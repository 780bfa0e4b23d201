//! The action router behind the answer: what the rules of `action_router` ask about the findings of a finished call is done here,
//! once for each call. `flag` and `block` were taken before the call was forwarded (`enforce`), or not at all; alerts are told by the
//! channels of `alerts`, each in its own time.
//!
//! Invariants: the router is a consumer of finished spans, so a call without findings costs the data path nothing; what may fail
//! (the webhook) is a consumer of its own, so that it delays nothing else; every action that is not taken is counted with the
//! reason. Knows no requests.

mod follow;
mod lines;
mod offenders;
mod tally;
mod webhook;

use std::sync::Arc;

use weir_config::settings::{ActionRouter, RouterAction};
use weir_storage::record::SpanRecord;

use crate::feed::{Batch, Consumer, Failure, Feed};
use crate::meter::Registry;
pub use follow::{Follow, follow};
use lines::Lines;
pub use offenders::{Offenders, SOURCE};
pub use tally::Tally;
use tally::{Tallies, Unable};
use webhook::Webhook;

/// The tag of a span that says what its findings asked for, and the one that says what of it came too late.
pub const ACTIONS: &str = "actions";
/// See [`ACTIONS`].
pub const NOT_APPLIED: &str = "actions_not_applied";

/// Adds the router's consumers; `offenders` where a rule blocks addresses. Gives their counters, which `/metrics` shows, to
/// those who take an action elsewhere.
pub fn add(
    feed: &mut Feed,
    settings: &ActionRouter,
    offenders: Option<Arc<Offenders>>,
    registry: &Registry,
) -> Arc<Tally> {
    let (settings, tally) = (Arc::new(settings.clone()), Arc::new(Tally::default()));
    if settings.may(RouterAction::Webhook) {
        feed.add(Webhook::new(Arc::clone(&settings), feed.client(), Arc::clone(&tally)));
    }
    feed.add(Router { settings, offenders, tally: Arc::clone(&tally), lines: Lines::default() });
    registry.add_source(Box::new(Tallies(Arc::clone(&tally))));
    tally
}

/// What is done at once.
struct Router {
    settings: Arc<ActionRouter>,
    offenders: Option<Arc<Offenders>>,
    tally: Arc<Tally>,
    lines: Lines,
}

impl Consumer for Router {
    fn name(&self) -> &'static str {
        "action_router"
    }

    fn reads_alone(&self) -> bool {
        true
    }

    fn heeds_clean_calls(&self) -> bool {
        false
    }

    async fn take(&mut self, batch: Batch<'_>) -> Result<(), Failure> {
        let asked: Vec<(&SpanRecord, Follow)> = batch
            .spans
            .iter()
            .map(|span| (*span, follow(span, &self.settings)))
            .filter(|(_, to)| !to.asked.is_empty())
            .collect();
        // First what may fail: the batch comes again then, and noting an offence twice changes nothing.
        let mut offences = Vec::new();
        if let Some(offenders) = &self.offenders {
            for (span, _) in asked.iter().filter(|(_, to)| to.asked.has(RouterAction::BlockIp)) {
                offences.push(offenders.note(span).await?);
            }
        }
        for outcome in offences {
            match outcome {
                Ok(()) => self.tally.executed(RouterAction::BlockIp),
                Err(why) => self.tally.unable(RouterAction::BlockIp, why),
            }
        }
        for (span, to) in asked {
            self.follow(span, to);
        }
        Ok(())
    }
}

impl Router {
    fn follow(&mut self, span: &SpanRecord, to: Follow) {
        for action in to.asked.iter() {
            match action {
                RouterAction::Log => self.lines.write(span),
                RouterAction::Flag | RouterAction::Block if to.not_applied.has(action) => {
                    self.tally.unable(action, Unable::TooLate);
                    continue;
                }
                // Done, or told by the channels of alerts.
                RouterAction::Flag | RouterAction::Block | RouterAction::Alert => {}
                // Counted where they are done; no setting leads to the judge.
                RouterAction::Webhook | RouterAction::BlockIp | RouterAction::JudgeRoute => continue,
            }
            self.tally.executed(action);
        }
    }
}
