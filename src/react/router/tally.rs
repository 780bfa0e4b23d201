//! What became of actions, for `/metrics`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use weir_config::settings::RouterAction;

use crate::meter::{Exposition, Source, names};

/// Why an action was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unable {
    /// `flag` and `block`: the request was decided before, or `enforcement.mode` is log.
    TooLate,
    /// `block_ip`: it is not known where the call came from.
    NoAddress,
    /// `block_ip`: it came from this machine.
    Loopback,
    /// `block_ip`: most requests come from there.
    Shared,
    /// `webhook`: the receiver will not have it.
    Refused,
    /// `webhook`: it is an hour old.
    Expired,
}

impl Unable {
    /// Each of them, with the actions it can befall.
    const ALL: [(Self, &'static str, &'static [RouterAction]); 6] = [
        (Self::TooLate, "too_late", &[RouterAction::Flag, RouterAction::Block]),
        (Self::NoAddress, "no_address", &[RouterAction::BlockIp]),
        (Self::Loopback, "loopback", &[RouterAction::BlockIp]),
        (Self::Shared, "shared", &[RouterAction::BlockIp]),
        (Self::Refused, "refused", &[RouterAction::Webhook]),
        (Self::Expired, "expired", &[RouterAction::Webhook]),
    ];
}

/// Counters of actions.
#[derive(Default)]
pub struct Tally {
    executed: [AtomicU64; RouterAction::ALL.len()],
    unable: [[AtomicU64; Unable::ALL.len()]; RouterAction::ALL.len()],
}

impl Tally {
    /// Counts an action that was taken.
    pub fn executed(&self, action: RouterAction) {
        if let Some(count) = self.executed.get(action as usize) {
            count.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn unable(&self, action: RouterAction, why: Unable) {
        if let Some(count) = self.of(action, why) {
            count.fetch_add(1, Relaxed);
        }
    }

    fn of(&self, action: RouterAction, why: Unable) -> Option<&AtomicU64> {
        self.unable.get(action as usize)?.get(why as usize)
    }
}

/// Shows them.
pub(super) struct Tallies(pub(super) Arc<Tally>);

impl Source for Tallies {
    fn collect(&self, out: &mut Exposition) {
        for (action, count) in RouterAction::ALL.into_iter().zip(&self.0.executed) {
            out.counter(names::ACTIONS, &[("action_type", action.as_str())], count.load(Relaxed));
        }
        for (why, reason, actions) in Unable::ALL {
            for action in actions {
                let count = self.0.of(*action, why).map_or(0, |count| count.load(Relaxed));
                let labels = [("action_type", action.as_str()), ("reason", reason)];
                out.counter(names::ACTIONS_NOT_TAKEN, &labels, count);
            }
        }
    }
}
