//! In which order the members of a target are tried. Those that are passed by come last; of those whose time is up one call
//! tries one, and they come before the former. What `order` prefers is never left for one that fares worse; `weights` with too few
//! healthy gives those whose time is up their share at once.
//!
//! | healthy | order of the call |
//! |---|---|
//! | all | that of the settings, or by weight |
//! | some | the one that this call tries, where it stands first; the healthy; those whose time is up; the others |
//! | too few of a group by weight | the healthy and those whose time is up, by weight; the others |
//! | none | those whose time is up; the others |

use smallvec::SmallVec;
use weir_config::settings::Balance;

use super::table::{Target, UpstreamTable};

/// Places of upstreams, in the order in which they are tried.
pub type Tried = SmallVec<[u16; 4]>;

/// What the order of a call depends on, beside the members.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// What stands for its session.
    pub session: Option<u64>,
    /// A number that no other call has.
    pub chance: u64,
    /// When it is made.
    pub now_ms: u64,
    /// It may be sent to the next member whatever becomes of it.
    pub is_safe: bool,
}

/// How a member stands at the moment of a call, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// This call tries it.
    OnTrial,
    Healthy,
    /// Its time is up, and nobody has tried it.
    Due,
    PassedBy,
}

impl UpstreamTable {
    /// The order for a call.
    pub fn order(&self, target: &Target, call: &Call) -> Tried {
        if target.members.len() == 1 {
            return target.members.clone();
        }
        let mut all = target.members.clone();
        if target.balance == Balance::Weights {
            let key = call.session.filter(|_| target.sticky).unwrap_or(call.chance);
            // Each call has its own order of preference, in which a member stands first in proportion to its weight; without
            // one member the order of the others is the same (rendezvous hashing with weights).
            all.sort_by(|a, b| self.preference(*b, key).total_cmp(&self.preference(*a, key)));
        }
        // Asked once of each: another core may change it meanwhile.
        let mut standing: SmallVec<[(Standing, u16); 4]> =
            all.iter().map(|at| (self.standing(*at, call.now_ms), *at)).collect();
        let healthy = standing.iter().filter(|(standing, _)| *standing == Standing::Healthy).count();
        if healthy == all.len() {
            return all;
        }
        // By members, not by weight: many that fail at once say that the fault may not be theirs.
        let too_few = healthy * 100 < all.len() * self.health.panic_percent as usize;
        if target.balance == Balance::Weights && too_few {
            standing
                .iter_mut()
                .filter(|(standing, _)| *standing == Standing::Due)
                .for_each(|due| due.0 = Standing::Healthy);
        } else if healthy > 0 {
            // One that stands behind a healthy one would not be tried: a call that may be sent on does so, and no other is
            // risked for it.
            let mut may =
                standing.iter_mut().take_while(|(standing, _)| call.is_safe || *standing != Standing::Healthy);
            let tries = may.find(|(standing, at)| {
                *standing == Standing::Due && self.member(*at).health.may_try(call.now_ms, &self.health)
            });
            if let Some((standing, _)) = tries {
                *standing = Standing::OnTrial;
            }
        }
        standing.sort_by_key(|(standing, _)| *standing);
        standing.into_iter().map(|(_, at)| at).collect()
    }

    fn standing(&self, at: u16, now_ms: u64) -> Standing {
        let health = &self.member(at).health;
        match (health.is_healthy(), health.is_due(now_ms)) {
            (true, _) => Standing::Healthy,
            (false, true) => Standing::Due,
            (false, false) => Standing::PassedBy,
        }
    }

    fn preference(&self, at: u16, key: u64) -> f64 {
        let member = self.member(at);
        let name = member
            .name
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        // 53 bits, above 0 and below 1.
        let unit = ((mixed(name ^ key.rotate_left(32)) >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        -f64::from(member.weight) / unit.ln()
    }
}

/// Spreads the bits of a number (the finaliser of MurmurHash3).
pub(super) fn mixed(mut word: u64) -> u64 {
    word = (word ^ (word >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    word = (word ^ (word >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    word ^ (word >> 33)
}

#[cfg(test)]
mod tests {
    use weir_config::Settings;
    use weir_config::settings::{NamedUpstream, UpstreamGroup};

    use super::*;
    use crate::upstreams::Ended;

    fn table(balance: Balance, weights: &[u32]) -> UpstreamTable {
        let mut settings = Settings::default();
        let member = |(at, weight): (usize, &u32)| NamedUpstream {
            name: format!("m{at}"),
            endpoint: settings.upstream.clone(),
            egress: settings.egress.clone(),
            providers: Vec::new(),
            api_key: None,
            ca_file: None,
            timeout_ms: None,
            connection_timeout_ms: None,
            max_connections: None,
            weight: *weight,
        };
        let members: Vec<NamedUpstream> = weights.iter().enumerate().map(member).collect();
        settings.upstreams.groups = vec![UpstreamGroup {
            name: "g".to_owned(),
            members: members.iter().map(|member| member.name.clone()).collect(),
            providers: Vec::new(),
            balance,
            sticky: true,
            retry_refused: false,
        }];
        settings.upstreams.members = members;
        UpstreamTable::build(&settings, 1, None).unwrap()
    }

    fn fail(table: &UpstreamTable, at: u16, now_ms: u64) {
        for _ in 0..table.health.eject_after {
            table.member(at).health.ended(Ended::NotConnected, now_ms, &table.health);
        }
    }

    fn call(chance: u64, now_ms: u64) -> Call {
        Call { session: None, chance, now_ms, is_safe: false }
    }

    #[test]
    fn weights_are_kept_and_a_session_stays() {
        let table = table(Balance::Weights, &[1, 3]);
        let group = table.target(table.named("g").target);
        let firsts = (0..8_000).filter(|chance| table.order(group, &call(mixed(*chance), 0))[0] == 2).count();
        assert!((5_800..6_200).contains(&firsts), "{firsts} of 8000 at weight 3 of 4");
        for session in 0..50 {
            let of = |chance| Call { session: Some(mixed(session)), ..call(chance, 0) };
            let first = table.order(group, &of(1));
            assert!((2..10).all(|chance| table.order(group, &of(chance)) == first));
        }
    }

    #[test]
    fn what_is_passed_by_comes_last_and_is_tried_by_one_call_when_its_time_is_up() {
        let table = table(Balance::Order, &[1, 1, 1]);
        let group = table.target(table.named("g").target);
        let order = |now_ms| table.order(group, &call(0, now_ms)).into_vec();
        assert_eq!(order(0), [1, 2, 3]);
        fail(&table, 1, 1);
        assert_eq!(order(2), [2, 3, 1]);
        let due = 1 + table.health.eject_ms;
        assert_eq!(order(due), [1, 2, 3], "one call tries it");
        assert_eq!(order(due), [2, 3, 1], "and no other");
        fail(&table, 2, due);
        assert_eq!(order(due), [3, 1, 2], "the healthy one, the one that is being tried, the one that has just failed");
        fail(&table, 3, due);
        assert_eq!(order(due), [1, 2, 3], "nobody is healthy: every call goes to the one whose time is up");
        fail(&table, 1, due);
        assert_eq!(order(due), [1, 2, 3], "all are passed by: the order of the settings");
    }

    #[test]
    fn a_spare_whose_time_is_up_is_tried_by_a_call_that_may_be_sent_on_and_comes_before_one_that_fails() {
        let table = table(Balance::Order, &[1, 1]);
        let group = table.target(table.named("g").target);
        let order = |is_safe, now_ms| table.order(group, &Call { is_safe, ..call(0, now_ms) }).into_vec();
        fail(&table, 2, 1);
        let due = 1 + table.health.eject_ms;
        assert_eq!(order(true, due - 1), [1, 2], "not yet");
        assert_eq!(order(false, due), [1, 2], "no call is risked for a spare");
        assert_eq!(order(true, due), [2, 1], "one that may be sent on tries it");
        assert_eq!(order(true, due), [1, 2], "and no other");
        fail(&table, 1, due);
        assert_eq!(order(false, due), [2, 1], "though another call is trying it, and none is healthy");
    }

    #[test]
    fn with_too_few_healthy_those_whose_time_is_up_get_their_share_at_once() {
        let table = table(Balance::Weights, &[1, 1, 1]);
        let group = table.target(table.named("g").target);
        fail(&table, 1, 1);
        fail(&table, 2, 5_000);
        let due = 1 + table.health.eject_ms;
        let mut firsts = [0; 4];
        for chance in 0..3_000 {
            let order = table.order(group, &call(mixed(chance), due));
            firsts[usize::from(order[0])] += 1;
            assert_eq!(order[2], 2, "who has failed comes last");
        }
        assert!(firsts[1] > 1_300 && firsts[3] > 1_300, "{firsts:?}");
    }

    #[test]
    fn too_few_are_told_by_members_whatever_they_weigh() {
        // One of three fails, first the one with nearly all of the weight, then two of three, but for that one.
        let dues = |failing: &[u16]| {
            let table = table(Balance::Weights, &[98, 1, 1]);
            let group = table.target(table.named("g").target);
            failing.iter().for_each(|at| fail(&table, *at, 1));
            let due = 1 + table.health.eject_ms;
            // The calls that one tries while the others are well, or all that its share gives it.
            let orders = (0..2_000).map(|chance| table.order(group, &call(mixed(chance), due)));
            orders.filter(|order| failing.contains(&order[0])).count()
        };
        assert_eq!(dues(&[1]), 1, "two of three are healthy: one call tries the heavy one");
        let share = dues(&[2, 3]);
        assert!((10..120).contains(&share), "one of three is healthy: {share} of 2,000 calls at weight 2 of 100");
    }
}
