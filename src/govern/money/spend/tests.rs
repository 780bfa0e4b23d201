//! Budgets by a clock of the tests' own: exact on all threads, at the edges of periods, and over a restart.

use std::sync::atomic::AtomicI64;

use proptest::prelude::*;
use weir_config::settings::Budget;

use super::cell::SPENT_MAX;
use super::*;

/// 2026-11-21T12:00:00Z, a Saturday.
const NOON: i64 = 1_795_262_400;

/// No budget at all.
const FREE: Budgets = [None; 4];

fn tenant(name: &str) -> TenantId {
    TenantId::from_credential(name.as_bytes())
}

fn budgets(hourly: Option<u64>, monthly: Option<u64>) -> Budgets {
    let hard = |limit: Option<u64>| limit.map(|hard_nano_usd| Budget { hard_nano_usd, soft_nano_usd: None });
    [hard(hourly), None, None, hard(monthly)]
}

fn spent(spend: &Spend, who: TenantId, agent: &str, now_s: i64) -> [u64; 4] {
    spend.snapshot(who, agent, now_s).map(|window| window.spent_nano_usd)
}

#[test]
fn a_reservation_counts_until_it_is_settled_and_then_its_real_cost() {
    let spend = Arc::new(Spend::new());
    let (who, limits) = (tenant("a"), budgets(Some(100), None));
    let first = spend.reserve(who, "bot", &limits, &FREE, 60, NOON).unwrap();
    let refused = spend.reserve(who, "bot", &limits, &FREE, 41, NOON).map(drop).unwrap_err();
    let expected = Exceeded {
        holder: Holder::Agent,
        window: Window::Hourly,
        limit_nano_usd: 100,
        spent_nano_usd: 0,
        reserved_nano_usd: 60,
        resets_at_s: NOON + 3_600,
    };
    assert_eq!(refused, expected);
    let second = spend.reserve(who, "bot", &limits, &FREE, 40, NOON).unwrap();
    assert!(first.settle(5).is_empty());
    assert_eq!(spend.snapshot(who, "bot", NOON).map(|window| window.reserved_nano_usd), [40; 4]);
    drop(second);
    assert_eq!(spent(&spend, who, "bot", NOON), [45; 4], "what was dropped without an end costs its estimate");
    assert!(spend.reserve(who, "bot", &limits, &FREE, 56, NOON).is_err());
    assert!(spend.reserve(who, "bot", &limits, &FREE, 55, NOON).is_ok());
}

#[test]
fn a_refused_reservation_leaves_nothing_in_the_windows_that_had_room() {
    let spend = Arc::new(Spend::new());
    let limits = budgets(Some(100), Some(50));
    let refused = spend.reserve(tenant("a"), "bot", &limits, &FREE, 60, NOON).map(drop).unwrap_err();
    assert_eq!((refused.window, refused.limit_nano_usd), (Window::Monthly, 50));
    assert_eq!(spend.snapshot(tenant("a"), "bot", NOON).map(|window| window.reserved_nano_usd), [0; 4]);
}

#[test]
fn an_absurd_estimate_refuses_nobody_where_no_limit_stands() {
    let spend = Arc::new(Spend::new());
    let (who, limits) = (tenant("a"), budgets(None, None));
    let absurd = spend.reserve(who, "bot", &limits, &FREE, u64::MAX, NOON).unwrap();
    let modest = spend.reserve(who, "bot", &limits, &FREE, 7, NOON).unwrap();
    absurd.settle(2);
    modest.settle(3);
    assert_eq!(spent(&spend, who, "bot", NOON), [5; 4]);
    assert_eq!(spend.snapshot(who, "bot", NOON).map(|window| window.reserved_nano_usd), [0; 4]);
}

#[test]
fn absurd_costs_never_carry_a_sum_past_its_end() {
    let spend = Arc::new(Spend::new());
    let (who, limits) = (tenant("a"), budgets(Some(100), None));
    let mut former = 0;
    for _ in 0..200 {
        // Admitted where nothing limits it, as while budgets are being set up.
        let free = spend.reserve(who, "bot", &budgets(None, None), &FREE, 1, NOON).unwrap();
        free.settle(u64::MAX);
        let [hourly, ..] = spent(&spend, who, "bot", NOON);
        assert!(hourly >= former, "{hourly} after {former}");
        former = hourly;
        assert!(spend.reserve(who, "bot", &limits, &FREE, 1, NOON).is_err(), "the budget is spent and stays spent");
    }
    assert_eq!(spent(&spend, who, "bot", NOON), [SPENT_MAX; 4]);
    assert_eq!(spend.snapshot(who, "bot", NOON).map(|window| window.reserved_nano_usd), [0; 4]);
}

#[test]
fn agents_and_tenants_have_budgets_of_their_own() {
    let spend = Arc::new(Spend::new());
    let limits = budgets(Some(10), None);
    for (who, agent) in [("a", "x"), ("a", "y"), ("b", "x")] {
        spend.reserve(tenant(who), agent, &limits, &FREE, 10, NOON).unwrap().settle(10);
        assert!(spend.reserve(tenant(who), agent, &limits, &FREE, 1, NOON).is_err(), "{who} {agent}");
    }
}

#[test]
fn a_call_counts_in_the_period_in_which_it_was_admitted() {
    let spend = Arc::new(Spend::new());
    let (who, limits) = (tenant("a"), budgets(Some(100), None));
    let late = spend.reserve(who, "bot", &limits, &FREE, 90, NOON + 3_599).unwrap();
    let fresh = spend.reserve(who, "bot", &limits, &FREE, 100, NOON + 3_600).unwrap();
    late.settle(90);
    fresh.settle(30);
    let now = NOON + 3_600;
    assert_eq!(spent(&spend, who, "bot", now), [30, 120, 120, 120]);
    assert_eq!(spend.snapshot(who, "bot", now)[0].reserved_nano_usd, 0);
    // A clock that is set back stays in the period it has seen: nobody gets a second budget.
    assert!(spend.reserve(who, "bot", &limits, &FREE, 71, NOON).is_err());
    // Two months on, everything is new.
    assert_eq!(spent(&spend, who, "bot", NOON + 62 * 86_400), [0; 4]);
}

#[test]
fn a_soft_limit_is_reported_once_per_period() {
    let spend = Arc::new(Spend::new());
    let limits: Budgets = [None, Some(Budget { hard_nano_usd: 1_000, soft_nano_usd: Some(50) }), None, None];
    let call = |cost, now| spend.reserve(tenant("a"), "bot", &limits, &FREE, cost, now).unwrap().settle(cost).to_vec();
    assert_eq!(call(49, NOON), []);
    let warning = Warning { holder: Holder::Agent, window: Window::Daily, limit_nano_usd: 50, spent_nano_usd: 52 };
    assert_eq!(call(3, NOON), [warning]);
    assert_eq!(call(3, NOON), []);
    assert_eq!(call(60, NOON + 86_400), [Warning { spent_nano_usd: 60, ..warning }]);
}

#[test]
fn what_was_spent_survives_a_restart_and_what_is_over_does_not() {
    let spend = Arc::new(Spend::new());
    let (who, limits) = (tenant("a"), budgets(None, None));
    assert_eq!(spend.take_dirty(), []);
    let open = spend.reserve(who, "bot", &limits, &FREE, 7, NOON).unwrap();
    spend.reserve(who, "bot", &limits, &FREE, 100, NOON).unwrap().settle(80);
    let rows = spend.take_dirty();
    assert_eq!(rows.iter().map(|row| row.spent_nano_usd).collect::<Vec<_>>(), [80; 4]);
    assert_eq!(spend.take_dirty(), [], "nothing changed since");
    spend.not_kept(&rows);
    assert_eq!(spend.take_dirty(), rows);
    drop(open);
    assert_eq!(spend.take_dirty().first().map(|row| row.spent_nano_usd), Some(87));

    let after = Arc::new(Spend::new());
    after.restore(rows.clone(), NOON + 10);
    assert_eq!(spent(&after, who, "bot", NOON + 10), [80; 4]);
    assert!(after.reserve(who, "bot", &budgets(Some(100), None), &FREE, 21, NOON + 10).is_err());
    // The next morning is Sunday: a new day, the same week and month.
    let tomorrow = Spend::new();
    tomorrow.restore(rows, NOON + 86_400);
    assert_eq!(spent(&tomorrow, who, "bot", NOON + 86_400), [0, 0, 80, 80]);
    after.erase(who, NOON + 10);
    assert_eq!(spent(&after, who, "bot", NOON + 10), [0; 4]);
}

#[test]
fn of_a_deleted_tenant_nothing_is_handed_out_but_what_was_counted_since() {
    let spend = Arc::new(Spend::new());
    let (who, limits) = (tenant("a"), budgets(None, None));
    let since = |rows: Vec<KeptSpend>| rows.iter().map(|row| (row.since_s, row.spent_nano_usd)).collect::<Vec<_>>();
    let open = spend.reserve(who, "bot", &limits, &FREE, 7, NOON).unwrap();
    spend.erase(who, NOON);
    drop(open);
    assert_eq!(spend.take_dirty(), [], "a call that was under way counts for the former one");
    spend.reserve(who, "bot", &limits, &FREE, 9, NOON).unwrap().settle(9);
    assert_eq!(since(spend.take_dirty()), [(NOON + 1, 9); 4], "later than the deletion, if in the same second");
    // Another process deletes it.
    spend.erase_until(who, NOON, NOON + 9);
    assert_eq!(spent(&spend, who, "bot", NOON + 9), [9; 4], "it was heard of before");
    spend.erase_until(who, NOON + 8, NOON + 9);
    spend.reserve(who, "bot", &limits, &FREE, 5, NOON + 9).unwrap().settle(5);
    assert_eq!(since(spend.take_dirty()), [(NOON + 10, 5); 4]);
}

#[test]
fn the_last_to_keep_spend_gets_what_one_under_way_could_not_keep() {
    let spend = Arc::new(Spend::new());
    let who = tenant("a");
    spend.reserve(who, "bot", &budgets(None, None), &FREE, 9, NOON).unwrap().settle(9);
    let (returned, last) = std::sync::mpsc::channel();
    let mut other = None;
    let kept = spend.keep(|_| {
        let spend = Arc::clone(&spend);
        other = Some(std::thread::spawn(move || {
            let mut rows = Vec::new();
            spend.keep(|given| {
                rows.extend_from_slice(given);
                true
            });
            returned.send(()).unwrap();
            rows
        }));
        // One that does not wait is back long before.
        let _waits = last.recv_timeout(std::time::Duration::from_millis(200));
        false
    });
    assert!(!kept);
    let rows = other.unwrap().join().unwrap();
    assert_eq!(rows.iter().map(|row| row.spent_nano_usd).collect::<Vec<_>>(), [9; 4]);
}

#[test]
fn agents_beyond_the_bound_share_one_account() {
    let spend = Arc::new(Spend::new());
    let limits = budgets(Some(10), None);
    for agent in 0..AGENTS_PER_TENANT_MAX + 50 {
        drop(spend.reserve(tenant("a"), &format!("agent-{agent}"), &limits, &FREE, 0, NOON));
    }
    assert!(spend.accounts().count() <= AGENTS_PER_TENANT_MAX as usize + 1);
    spend.reserve(tenant("a"), "late-1", &limits, &FREE, 10, NOON).unwrap().settle(10);
    assert!(spend.reserve(tenant("a"), "late-2", &limits, &FREE, 1, NOON).is_err());
    assert!(spend.reserve(tenant("b"), "late-1", &limits, &FREE, 10, NOON).is_ok(), "another tenant is not concerned");
}

/// 1,000,000 decisions on four threads around the edges of hours, against limits that bite. Estimates are never below the
/// real cost here, so the documented bound is the limit itself.
#[test]
fn a_million_decisions_on_all_threads_never_exceed_a_limit() {
    const LIMIT: u64 = 1_000_000;
    const STEPS: i64 = 250_000;
    let spend = Arc::new(Spend::new());
    let limits = budgets(Some(LIMIT), None);
    let clock = AtomicI64::new(NOON);
    let charged: Vec<std::collections::HashMap<i64, u64>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..4_u64)
            .map(|worker| {
                let (spend, limits, clock) = (&spend, &limits, &clock);
                scope.spawn(move || {
                    let mut seed = 0x9e37_79b9_7f4a_7c15_u64 ^ worker;
                    let mut charged = std::collections::HashMap::new();
                    let mut held = Vec::new();
                    for step in 0..STEPS {
                        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        let now = if step % 64 == 0 {
                            clock.fetch_add(1, Ordering::Relaxed)
                        } else {
                            clock.load(Ordering::Relaxed)
                        };
                        let (estimate, actual) = (1 + (seed >> 40) % 1_000, (seed >> 20) % 1_000);
                        if let Ok(reservation) = spend.reserve(TenantId::DEFAULT, "bot", limits, &FREE, estimate, now) {
                            held.push((reservation, actual.min(estimate)));
                        }
                        if held.len() > 16 || seed.is_multiple_of(3) {
                            for (reservation, actual) in held.drain(..) {
                                *charged.entry(reservation.holds[0].cells[0].period.start_s).or_insert(0) += actual;
                                reservation.settle(actual);
                            }
                        }
                    }
                    for (reservation, actual) in held {
                        *charged.entry(reservation.holds[0].cells[0].period.start_s).or_insert(0) += actual;
                        reservation.settle(actual);
                    }
                    charged
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).collect()
    });
    let mut hours = std::collections::BTreeMap::<i64, u64>::new();
    for (hour, amount) in charged.into_iter().flatten() {
        *hours.entry(hour).or_default() += amount;
    }
    assert!(hours.len() >= 4, "the clock passed several edges: {hours:?}");
    assert!(hours.values().all(|spent| *spent <= LIMIT), "{hours:?}");
    assert!(hours.values().any(|spent| *spent > LIMIT * 9 / 10), "the limit bites: {hours:?}");
    let now = clock.load(Ordering::Relaxed);
    let windows = spend.snapshot(TenantId::DEFAULT, "bot", now);
    assert_eq!(windows.map(|window| window.reserved_nano_usd), [0; 4], "every reservation came back");
    assert_eq!(windows[3].spent_nano_usd, hours.values().sum::<u64>(), "the month is the sum of its hours");
}

#[derive(Debug, Clone)]
enum Step {
    Reserve { agent: u8, estimate: u64 },
    Settle { which: usize, actual: u64 },
    Forget { which: usize },
    Pass { seconds: i64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_u8, 0..200_u64).prop_map(|(agent, estimate)| Step::Reserve { agent, estimate }),
        3 => (any::<usize>(), 0..300_u64).prop_map(|(which, actual)| Step::Settle { which, actual }),
        1 => any::<usize>().prop_map(|which| Step::Forget { which }),
        1 => (0..40_000_i64).prop_map(|seconds| Step::Pass { seconds }),
    ]
}

proptest! {
    /// The same decisions as plain sums over a list of calls.
    #[test]
    fn decides_like_sums_over_a_list_of_calls(steps in prop::collection::vec(step(), 1..120)) {
        let spend = Arc::new(Spend::new());
        let limits = budgets(Some(500), Some(1_500));
        let mut now = NOON;
        // (agent, admitted at, what it counts as) and the reservation while it is open.
        let mut calls: Vec<(u8, i64, u64)> = Vec::new();
        let mut open: Vec<(usize, Reservation)> = Vec::new();
        for step in steps {
            match step {
                Step::Reserve { agent, estimate } => {
                    let sum = |window: Window| {
                        let period = Period::of(window, now);
                        let counts = |call: &&(u8, i64, u64)| call.0 == agent && (period.start_s..period.end_s).contains(&call.1);
                        calls.iter().filter(counts).map(|call| call.2).sum::<u64>()
                    };
                    let allowed = sum(Window::Hourly) + estimate <= 500 && sum(Window::Monthly) + estimate <= 1_500;
                    let reserved = spend.reserve(TenantId::DEFAULT, &agent.to_string(), &limits, &FREE, estimate, now);
                    prop_assert_eq!(reserved.is_ok(), allowed);
                    if let Ok(reservation) = reserved {
                        open.push((calls.len(), reservation));
                        calls.push((agent, now, estimate));
                    }
                }
                Step::Settle { which, actual } if !open.is_empty() => {
                    let (call, reservation) = open.remove(which % open.len());
                    calls[call].2 = actual;
                    reservation.settle(actual);
                }
                Step::Forget { which } if !open.is_empty() => drop(open.remove(which % open.len())),
                Step::Pass { seconds } => now += seconds,
                Step::Settle { .. } | Step::Forget { .. } => {}
            }
        }
    }
}

#[test]
fn all_agents_of_a_tenant_together_stay_within_its_own_budget() {
    let spend = Arc::new(Spend::new());
    let (who, over_all) = (tenant("a"), budgets(None, Some(100)));
    let limits = budgets(None, Some(60));
    let take = |agent: &str, estimate| spend.reserve(who, agent, &limits, &over_all, estimate, NOON);
    take("one", 50).unwrap().settle(50);
    let open = take("two", 40).unwrap();
    let refused = take("three", 11).map(drop).unwrap_err();
    let expected = Exceeded {
        holder: Holder::Tenant,
        window: Window::Monthly,
        limit_nano_usd: 100,
        spent_nano_usd: 50,
        reserved_nano_usd: 40,
        resets_at_s: Period::of(Window::Monthly, NOON).end_s,
    };
    assert_eq!(refused, expected);
    let untouched = spend.snapshot(who, "three", NOON).map(|window| window.reserved_nano_usd);
    assert_eq!(untouched, [0; 4], "what the tenant's budget refuses is not reserved in the agent's");
    assert_eq!(take("two", 30).map(drop).unwrap_err().holder, Holder::Agent, "the agent's own budget comes first");
    drop(open);
    assert_eq!(spent(&spend, who, WHOLE_TENANT, NOON), [90; 4], "an end nobody saw costs both their estimate");
    assert!(spend.reserve(tenant("b"), "one", &limits, &over_all, 60, NOON).is_ok(), "another tenant is not concerned");

    // A restart, a deletion: the tenant's account is kept and forgotten as the agents' are.
    let after = Arc::new(Spend::new());
    after.restore(spend.take_dirty(), NOON + 5);
    let later = |agent: &str, estimate| after.reserve(who, agent, &FREE, &over_all, estimate, NOON + 10).map(drop);
    assert_eq!(later("four", 11).unwrap_err().spent_nano_usd, 90);
    after.erase(who, NOON + 20);
    assert!(after.reserve(who, "four", &FREE, &over_all, 100, NOON + 21).is_ok());
}

#[test]
fn a_thousand_agents_do_not_take_the_tenant_s_own_account_away() {
    let spend = Arc::new(Spend::new());
    let (who, over_all) = (tenant("a"), budgets(None, Some(100)));
    for agent in 0..AGENTS_PER_TENANT_MAX + 10 {
        drop(spend.reserve(who, &format!("agent-{agent}"), &FREE, &FREE, 0, NOON));
    }
    spend.reserve(who, "late", &FREE, &over_all, 60, NOON).unwrap().settle(60);
    assert_eq!(spent(&spend, who, WHOLE_TENANT, NOON), [60; 4]);
    assert_eq!(spent(&spend, who, "late", NOON), [60; 4], "once, in the account that late agents share");
    assert!(spend.reserve(who, "later", &FREE, &over_all, 41, NOON).is_err());
}

#[test]
fn a_key_stays_within_its_own_budget_and_a_refusal_reserves_nothing() {
    let spend = Arc::new(Spend::new());
    let (who, key, other) = (tenant("a"), KeyId::from_bytes([1; 16]), KeyId::from_bytes([2; 16]));
    let (limits, over_all) = (budgets(None, None), budgets(None, Some(1_000)));
    let of_key = budgets(Some(100), None);
    let take = |key, agent: &str, estimate| {
        spend.reserve(who, agent, &limits, &over_all, estimate, NOON)?.and_of_key((who, key), &of_key, NOON)
    };
    take(key, "one", 50).unwrap().settle(60);
    let open = take(key, "two", 30).unwrap();
    let refused = take(key, "three", 11).map(drop).unwrap_err();
    let said = (refused.holder, refused.window, refused.spent_nano_usd, refused.reserved_nano_usd);
    assert_eq!(said, (Holder::Key, Window::Hourly, 60, 30));
    for agent in ["three", WHOLE_TENANT] {
        let reserved = spend.snapshot(who, agent, NOON).map(|window| window.reserved_nano_usd);
        assert_eq!(reserved, if agent == WHOLE_TENANT { [30; 4] } else { [0; 4] }, "{agent:?}");
    }
    assert!(take(other, "one", 100).is_ok(), "another key is not concerned");
    drop(open);
    assert_eq!(take(key, "one", 11).map(drop).unwrap_err().spent_nano_usd, 90);

    // A restart keeps it, a deletion forgets it.
    let rows = spend.take_dirty();
    let after = Arc::new(Spend::new());
    after.restore(rows, NOON + 10);
    let again = |estimate| {
        let reserved = after.reserve(who, "one", &limits, &over_all, estimate, NOON + 10)?;
        reserved.and_of_key((who, key), &of_key, NOON + 10)
    };
    assert!(again(11).is_err() && again(10).is_ok());
    after.erase(who, NOON + 20);
    assert!(after.reserve(who, "one", &limits, &over_all, 1, NOON + 20).is_ok());
    assert!(again(100).is_ok());
}

/// What gateways have spent, as they write it down: of each its own.
type Ledger = Vec<u64>;

/// One of several gateways with a budget in common, and what it has counted in of the others.
struct Sharing {
    spend: Arc<Spend>,
    theirs: u64,
    under_way: Vec<Reservation>,
}

impl Sharing {
    fn spent(&self) -> u64 {
        spent(&self.spend, tenant("a"), "bot", NOON)[0]
    }

    /// Writes down what it has spent.
    fn tell(&self, own: usize, ledger: &mut Ledger) {
        let theirs = self.theirs;
        self.spend.keep(|rows| {
            let row = rows.iter().find(|row| row.window == Window::Hourly).unwrap();
            ledger[own] = row.spent_nano_usd - theirs;
            true
        });
    }

    /// Counts in what the others have written down, which ends its round.
    fn listen(&mut self, own: usize, ledger: &Ledger) {
        let others = ledger.iter().sum::<u64>() - ledger[own];
        if others > self.theirs {
            let (tenant, agent, window) = (tenant("a"), "bot".to_owned(), Window::Hourly);
            let more = others - self.theirs;
            let row = KeptSpend { tenant, agent, window, period_start_s: NOON, since_s: NOON, spent_nano_usd: more };
            self.spend.count_in(&row, NOON);
            self.theirs = others;
        }
        self.spend.divide(ledger.len() as u32, true);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// However calls come, end and are told of, gateways that each know of the others once a round exceed their budget by no more than
    /// two calls of each other one, and use nearly all of it. A gateway tells, others spend and tell, and then it listens.
    #[test]
    fn several_gateways_keep_one_budget(seed in any::<u64>(), many in 2..5_usize, cost in 1..400_u64) {
        const LIMIT: u64 = 10_000;
        let mut seed = seed;
        let mut random = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let limits = budgets(Some(LIMIT), None);
        let mut gateways: Vec<Sharing> = (0..many)
            .map(|_| Sharing { spend: Arc::new(Spend::new()), theirs: 0, under_way: Vec::new() })
            .collect();
        gateways.iter().for_each(|gateway| gateway.spend.divide(many as u32, true));
        let mut ledger = vec![0; many];
        for _round in 0..200 {
            // Each tells and then listens once in a round, at any times of it.
            let mut due: Vec<usize> = (0..many).chain(0..many).collect();
            let mut told = vec![false; many];
            for _ in 0..2 * many {
                for gateway in &mut gateways {
                    for _ in 0..random(40) {
                        let asked = gateway.spend.reserve(tenant("a"), "bot", &limits, &FREE, cost, NOON);
                        gateway.under_way.extend(asked.ok());
                    }
                    while gateway.under_way.len() as u64 > random(30) {
                        let at = random(gateway.under_way.len() as u64) as usize;
                        gateway.under_way.swap_remove(at).settle(cost);
                    }
                }
                let own = due.swap_remove(random(due.len() as u64) as usize);
                match std::mem::replace(&mut told[own], true) {
                    false => gateways[own].tell(own, &mut ledger),
                    true => gateways[own].listen(own, &ledger),
                }
            }
        }
        for gateway in &mut gateways {
            gateway.under_way.drain(..).for_each(|call| drop(call.settle(cost)));
        }
        // What was held back for calls under way can be spent now.
        for _round in 0..200 {
            for (own, gateway) in gateways.iter_mut().enumerate() {
                let asked = gateway.spend.reserve(tenant("a"), "bot", &limits, &FREE, cost, NOON);
                asked.into_iter().for_each(|call| drop(call.settle(cost)));
                gateway.tell(own, &mut ledger);
                gateway.listen(own, &ledger);
            }
        }
        let all: u64 = gateways.iter().map(|gateway| gateway.spent() - gateway.theirs).sum();
        let most = LIMIT + 2 * (many as u64 - 1) * cost;
        prop_assert!(all <= most, "{all} of {LIMIT}, at most {most}");
        prop_assert!(all + 2 * many as u64 * cost >= LIMIT, "{all} of {LIMIT} at {cost} a call is used");
    }
}

#[test]
fn a_gateway_that_is_alone_has_all_of_a_budget_and_one_of_several_a_share() {
    let spend = Arc::new(Spend::new());
    let limits = budgets(Some(600), None);
    let all_fits = |spend: &Arc<Spend>| spend.reserve(tenant("a"), "bot", &limits, &FREE, 50, NOON).ok();
    let held: Vec<_> = std::iter::from_fn(|| all_fits(&spend)).collect();
    assert_eq!(held.len(), 12);
    held.into_iter().for_each(|call| drop(call.settle(0)));
    spend.make_room(2);
    let held: Vec<_> = std::iter::from_fn(|| all_fits(&spend)).collect();
    assert_eq!(held.len(), 3, "a second one is there, and the next round has not come");
    held.into_iter().for_each(|call| drop(call.settle(0)));
    spend.make_room(1);
    let held: Vec<_> = std::iter::from_fn(|| all_fits(&spend)).collect();
    assert_eq!(held.len(), 3, "that it has left holds from the next round on");
    held.into_iter().for_each(|call| drop(call.settle(0)));
    spend.divide(3, true);
    let held: Vec<_> = std::iter::from_fn(|| all_fits(&spend)).collect();
    assert_eq!(held.len(), 2, "a sixth");
    held.into_iter().for_each(|call| drop(call.settle(0)));
    spend.divide(3, false);
    assert_eq!(std::iter::from_fn(|| all_fits(&spend).map(|call| drop(call.settle(50)))).count(), 4, "its third");
    spend.divide(3, true);
    assert!(spend.reserve(tenant("b"), "bot", &limits, &FREE, 600, NOON).is_ok(), "one call alone may take all");
    spend.went_stale();
    let asked = |cost| spend.reserve(tenant("c"), "bot", &limits, &FREE, cost, NOON).is_ok();
    assert!(!asked(600) && asked(100), "not where what was heard is old: then a call needs its share");
}
