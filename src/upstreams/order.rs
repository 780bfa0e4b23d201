//! In which order the members of a target are tried: the healthy ones first, in the order of the settings or by weight. With
//! too few of them healthy all count as healthy; those that are passed by come last, and one of them is tried when its time
//! is up.

use smallvec::SmallVec;
use weir_config::settings::Balance;

use super::roster::{Roster, Target};

/// Places of upstreams, in the order in which they are tried.
pub type Tried = SmallVec<[u16; 4]>;

impl Roster {
    /// The order for a call. `session` is what stands for its session, `chance` a number that no other call has.
    pub fn order(&self, target: &Target, session: Option<u64>, chance: u64, now_ms: u64) -> Tried {
        if target.members.len() == 1 {
            return target.members.clone();
        }
        let mut all = target.members.clone();
        if target.balance == Balance::Weights {
            let key = session.filter(|_| target.sticky).unwrap_or(chance);
            // Each call has its own order of preference, in which a member stands first in proportion to its weight; without
            // one member the order of the others is the same (rendezvous hashing with weights).
            all.sort_by(|a, b| self.preference(*b, key).total_cmp(&self.preference(*a, key)));
        }
        let healthy = |at: &u16| self.member(*at).health.is_healthy();
        let count = all.iter().filter(|at| healthy(at)).count();
        if count == all.len() || count * 100 < all.len() * self.health.panic_percent as usize {
            return all;
        }
        // One that stands behind a healthy one would not be tried by this call.
        let mut before = all.iter().copied().take_while(|at| !healthy(at));
        let tries = before.find(|at| self.member(*at).health.may_try(now_ms, &self.health));
        let is_first = |at: &u16| healthy(at) || tries == Some(*at);
        let (first, last): (Tried, Tried) = all.iter().copied().partition(is_first);
        first.into_iter().chain(last).collect()
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

    fn roster(balance: Balance, weights: &[u32]) -> Roster {
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
        Roster::build(&settings, 1, None).unwrap()
    }

    fn fail(roster: &Roster, at: u16, now_ms: u64) {
        for _ in 0..roster.health.eject_after {
            roster.member(at).health.ended(Ended::NotConnected, now_ms, &roster.health);
        }
    }

    #[test]
    fn weights_are_kept_and_a_session_stays() {
        let roster = roster(Balance::Weights, &[1, 3]);
        let group = roster.target(roster.named("g").target);
        let firsts = (0..8_000).filter(|chance| roster.order(group, None, mixed(*chance), 0)[0] == 2).count();
        assert!((5_800..6_200).contains(&firsts), "{firsts} of 8000 at weight 3 of 4");
        for session in 0..50 {
            let first = roster.order(group, Some(mixed(session)), 1, 0);
            assert!((2..10).all(|chance| roster.order(group, Some(mixed(session)), chance, 0) == first));
        }
    }

    #[test]
    fn what_is_passed_by_comes_last_and_is_tried_by_one_call_when_its_time_is_up() {
        let roster = roster(Balance::Order, &[1, 1, 1]);
        let group = roster.target(roster.named("g").target);
        let order = |now_ms| roster.order(group, None, 0, now_ms).into_vec();
        assert_eq!(order(0), [1, 2, 3]);
        fail(&roster, 1, 1);
        assert_eq!(order(2), [2, 3, 1]);
        let due = 1 + roster.health.eject_ms;
        assert_eq!(order(due), [1, 2, 3], "one call tries it");
        assert_eq!(order(due), [2, 3, 1], "and no other");
        fail(&roster, 2, due);
        assert_eq!(order(due), [1, 2, 3], "with one of three healthy all count as healthy");
    }
}
