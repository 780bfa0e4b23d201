//! What the documentation says of members that fare badly. Which member of a group by weight stands first is chance: all orders are
//! followed, and those that fit what the providers saw go on.

use std::collections::BTreeMap;

use super::draw::{Group, Plan};
use super::model::Seen;

/// How a provider behaves at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    Well,
    /// Nobody listens there.
    Gone,
    Fails500,
    /// 429 with a `Retry-After`.
    Busy,
    /// 429 without one.
    BusyForGood,
    /// 503 with a `Retry-After`.
    Overloaded,
}

impl Mood {
    pub(super) const ALL: [Self; 5] = [Self::Well, Self::Fails500, Self::Busy, Self::BusyForGood, Self::Overloaded];
}

/// How one upstream stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    #[default]
    Healthy,
    /// Passed by, and its time is up when the next call comes.
    Due,
    /// Passed by for longer than the calls take.
    PassedBy,
}

/// How one upstream fares, by the calls that went there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Fares {
    failures: u32,
    pub(super) standing: Standing,
}

/// What has to come out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    /// The upstreams that get the request, in this order.
    pub(super) asked: Vec<String>,
    pub(super) status: u16,
    /// The one whose answer, or failure, the client gets.
    pub(super) last: Option<String>,
}

/// How all of them fare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Health {
    pub(super) fares: BTreeMap<String, Fares>,
    eject_after: u32,
    panic_percent: usize,
    /// Whoever is passed by is due when the next call comes, unless it has said when to come again.
    soon: bool,
}

/// A call, as far as its target is concerned.
#[derive(Clone, Copy)]
pub(super) struct Sent<'a> {
    /// The members in the order of the settings, or of this call.
    pub(super) members: &'a [String],
    pub(super) group: Option<&'a Group>,
    pub(super) is_get: bool,
    pub(super) moods: &'a BTreeMap<String, Mood>,
}

/// One way in which a call can go.
pub(super) struct Way {
    pub(super) outcome: Outcome,
    pub(super) health: Health,
    /// In which order the call preferred the members.
    pub(super) preferred: Vec<String>,
    pub(super) seen: Seen,
}

impl Health {
    pub(super) fn new<'a>(names: impl Iterator<Item = &'a String>, plan: &Plan) -> Self {
        let fares = names.map(|name| (name.clone(), Fares::default())).collect();
        Self { fares, eject_after: plan.eject_after, panic_percent: plan.panic_percent, soon: plan.soon }
    }

    pub(super) fn is_any_due(&self) -> bool {
        self.fares.values().any(|fares| fares.standing == Standing::Due)
    }

    /// The ways in which a call can go.
    pub(super) fn ways(&self, sent: Sent<'_>) -> Vec<Way> {
        let by_weight = sent.group.is_some_and(|group| group.by_weight);
        let orders = if by_weight { permutations(sent.members) } else { vec![sent.members.to_vec()] };
        orders
            .into_iter()
            .map(|preferred| {
                let (mut health, mut seen) = (self.clone(), Seen::default());
                let outcome = health.call(Sent { members: &preferred, ..sent }, by_weight, &mut seen);
                Way { outcome, health, preferred, seen }
            })
            .collect()
    }

    /// The healthy first, behind the one that this call tries.
    fn order(&self, sent: Sent<'_>, by_weight: bool, seen: &mut Seen) -> Vec<String> {
        let members = sent.members;
        let mut standing: Vec<Standing> = members.iter().map(|name| self.fares[name].standing).collect();
        let healthy = standing.iter().filter(|standing| **standing == Standing::Healthy).count();
        if members.len() == 1 || healthy == members.len() {
            return members.to_vec();
        }
        seen.note("one was passed by");
        let first_healthy = standing.iter().position(|standing| *standing == Standing::Healthy);
        let mut trial = None;
        if by_weight && healthy * 100 < members.len() * self.panic_percent {
            seen.note("panic");
            standing.iter_mut().filter(|standing| **standing == Standing::Due).for_each(|due| *due = Standing::Healthy);
        } else if let Some(first_healthy) = first_healthy {
            let end = if sent.is_get { members.len() } else { first_healthy };
            trial = standing[..end].iter().position(|standing| *standing == Standing::Due);
        } else if standing.contains(&Standing::Due) {
            seen.note("nobody healthy");
        }
        if trial.is_some() {
            seen.note("tried again");
        }
        let of = |wanted: Standing| {
            let fits = |at: &usize| standing[*at] == wanted && Some(*at) != trial;
            (0..members.len()).filter(fits).collect::<Vec<_>>()
        };
        let ranks = [of(Standing::Healthy), of(Standing::Due), of(Standing::PassedBy)];
        trial.into_iter().chain(ranks.concat()).map(|at| members[at].clone()).collect()
    }

    /// One more failure; with a `Retry-After` of a minute if it says so.
    fn failed(&mut self, name: &str, comes_back: bool) {
        let (after, soon) = (self.eject_after, self.soon && !comes_back);
        let fares = self.fares.get_mut(name).unwrap();
        fares.failures += 1;
        if fares.failures >= after || fares.standing != Standing::Healthy {
            fares.standing = if soon { Standing::Due } else { Standing::PassedBy };
        }
    }

    fn call(&mut self, sent: Sent<'_>, by_weight: bool, seen: &mut Seen) -> Outcome {
        let order = self.order(sent, by_weight, seen);
        let retry_refused = sent.group.is_some_and(|group| group.retry_refused);
        let mut asked = Vec::new();
        for (at, name) in order.iter().enumerate() {
            let mood = sent.moods[name];
            if mood != Mood::Gone {
                asked.push(name.clone());
            }
            let (status, goes_on) = match mood {
                Mood::Gone => (502, true),
                Mood::Fails500 => (500, sent.is_get),
                Mood::Overloaded => (503, sent.is_get || retry_refused),
                Mood::Busy => (429, retry_refused),
                Mood::BusyForGood => (429, false),
                Mood::Well => (200, false),
            };
            match mood {
                Mood::Gone | Mood::Fails500 => self.failed(name, false),
                Mood::Overloaded => self.failed(name, true),
                Mood::Busy => self.fares.get_mut(name).unwrap().standing = Standing::PassedBy,
                Mood::BusyForGood | Mood::Well => *self.fares.get_mut(name).unwrap() = Fares::default(),
            }
            if !goes_on || at + 1 == order.len() {
                return Outcome { asked, status, last: Some(name.clone()) };
            }
            seen.note("sent to the next");
        }
        unreachable!("a target has members")
    }
}

fn permutations(all: &[String]) -> Vec<Vec<String>> {
    let Some((first, rest)) = all.split_first() else { return vec![Vec::new()] };
    let put_in = |others: Vec<String>| {
        let with_first_at = move |at: usize| {
            let mut one = others.clone();
            one.insert(at, first.clone());
            one
        };
        (0..=rest.len()).map(with_first_at)
    };
    permutations(rest).into_iter().flat_map(put_in).collect()
}
