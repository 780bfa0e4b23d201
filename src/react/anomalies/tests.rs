//! What is called an anomaly, and what is not: over days by chance, exact cases, and how many tenants there is room for.

use proptest::prelude::*;
use weir_config::settings::AnomalyMethod;

use super::norm::Kind;
use super::window::{Rule, Window};
use super::*;

const SECOND_US: i64 = 1_000_000;
/// Monday, 5 January 2026.
const BEGIN_US: i64 = 1_767_571_200 * SECOND_US;

fn settings(method: AnomalyMethod, sigma_threshold: f64) -> AnomalyDetection {
    AnomalyDetection { enabled: true, method, sigma_threshold, ..AnomalyDetection::default() }
}

fn watching(method: AnomalyMethod, sigma_threshold: f64) -> Anomalies {
    Anomalies::new(settings(method, sigma_threshold)).unwrap()
}

fn tenant(number: u32) -> TenantId {
    TenantId::from_credential(&number.to_be_bytes())
}

fn of_tokens(at_us: i64, tokens: u64) -> Call {
    Call { at_us, tokens: Some(tokens), ..Call::default() }
}

/// Numbers by chance, the same in every run (splitmix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Of a normal distribution (Box and Muller).
    fn normal(&mut self) -> f64 {
        let (one, two) = (self.next().max(f64::MIN_POSITIVE), self.next());
        (-2.0 * one.ln()).sqrt() * (std::f64::consts::TAU * two).cos()
    }
}

/// A day of an agent's calls: their number follows the clock, tokens, cost and time are log-normal, and tokens are somewhat more by
/// day than by night.
fn day(chance: &mut Chance, mut each: impl FnMut(Call)) -> u32 {
    let (mut at_us, mut calls) = (BEGIN_US, 0);
    while at_us < BEGIN_US + 86_400 * SECOND_US {
        let hour = (at_us - BEGIN_US) as f64 / 3.6e9;
        let by_day = (1.0 - (std::f64::consts::TAU * hour / 24.0).cos()) / 2.0;
        let per_second = 0.05 + 0.45 * by_day;
        at_us += (-chance.next().max(f64::MIN_POSITIVE).ln() / per_second * 1e6) as i64;
        let tokens = (1_500.0 * (1.0 + 0.3 * by_day) * (0.6 * chance.normal()).exp()) as u64;
        let nano_usd = Some((tokens as f64 * 1_500.0 * (0.2 * chance.normal()).exp()) as u64);
        let latency_ms = Some(800.0 * (1.0 + 0.2 * by_day) * (0.4 * chance.normal()).exp());
        calls += 1;
        each(Call { at_us, nano_usd, tokens: Some(tokens), latency_ms });
    }
    calls
}

/// Anomalies of a day without any, by kind, and the calls of it.
fn false_alarms(method: AnomalyMethod, threshold: f64, seed: u64) -> ([u32; 4], u32) {
    let watching = watching(method, threshold);
    let mut found = [0; 4];
    let calls = day(&mut Chance(seed), |call| {
        for anomaly in watching.look(tenant(1), &call) {
            found[anomaly.watched as usize] += 1;
        }
    });
    (found, calls)
}

/// The share of runs in which a shift to three times the tokens is noticed within a third of the window.
fn shifts_noticed(method: AnomalyMethod, threshold: f64, runs: u64) -> f64 {
    let noticed = (0..runs).filter(|run| {
        let (watching, mut chance) = (watching(method, threshold), Chance(1_000 + run));
        let mut tokens = |times: f64| (times * 1_500.0 * (0.6 * chance.normal()).exp()) as u64;
        for at in 0..200 {
            watching.look(tenant(1), &of_tokens(BEGIN_US + at * SECOND_US, tokens(1.0)));
        }
        (200..233).any(|at| !watching.look(tenant(1), &of_tokens(BEGIN_US + at * SECOND_US, tokens(3.0))).is_empty())
    });
    noticed.count() as f64 / runs as f64
}

/// Slots after its beginning in which a loop of 20 calls a second is noticed.
fn loop_noticed(method: AnomalyMethod, threshold: f64, seed: u64) -> i64 {
    let (watching, mut last) = (watching(method, threshold), BEGIN_US);
    day(&mut Chance(seed), |call| {
        if call.at_us < BEGIN_US + 43_200 * SECOND_US {
            last = call.at_us;
            watching.look(tenant(1), &Call { at_us: call.at_us, ..Call::default() });
        }
    });
    let begin = last;
    loop {
        last += SECOND_US / 20;
        let found = watching.look(tenant(1), &Call { at_us: last, ..Call::default() });
        if found.iter().any(|anomaly| anomaly.watched == Measure::Velocity) {
            return (last - begin).div_euclid(velocity::SLOT_US) + 1;
        }
        assert!(last < begin + 600 * SECOND_US, "never noticed");
    }
}

/// Each kind is counted under its own label.
#[test]
fn a_loop_is_counted_as_velocity() {
    let watching = Arc::new(watching(AnomalyMethod::Robust, 4.0));
    let counted = || {
        let mut out = Exposition::default();
        Figures(Arc::clone(&watching)).collect(&mut out);
        let text = out.render().unwrap();
        let of = |label: &str| -> u64 {
            let start = format!("service_anomalies_total{{anomaly_type=\"{label}\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&start)).unwrap().parse().unwrap()
        };
        ["velocity", "cost", "tokens", "latency"].map(of)
    };
    let look = |at_us| drop(watching.look(tenant(1), &Call { at_us, ..Call::default() }));
    // Three calls a minute for half a day, then twenty a second.
    (0..2_160).for_each(|number| look(BEGIN_US + number * 20 * SECOND_US));
    let [before, ..] = counted();
    (0..12_000).for_each(|number| look(BEGIN_US + 43_200 * SECOND_US + number * SECOND_US / 20));
    let [after, cost, tokens, latency] = counted();
    assert!(after > before, "{before}, {after}");
    assert_eq!([cost, tokens, latency], [0; 3]);
}

/// A day of somebody at work with an assistant now and then: some fifteen sessions of a few calls, a few seconds apart,
/// sometimes several at once, and nothing between them.
fn thin_day(chance: &mut Chance, mut each: impl FnMut(i64)) {
    let mut at_us = BEGIN_US;
    let mut after = |chance: &mut Chance, seconds: f64| {
        at_us += (-chance.next().max(f64::MIN_POSITIVE).ln() * seconds * 1e6) as i64;
        (at_us < BEGIN_US + 86_400 * SECOND_US).then_some(at_us)
    };
    while after(chance, 5_400.0).is_some() {
        for _ in 0..5 + (36.0 * chance.next()) as u32 {
            let Some(at_us) = after(chance, 3.0) else { return };
            let at_once = if chance.next() < 0.1 { 3 + (4.0 * chance.next()) as u32 } else { 1 };
            (0..at_once).for_each(|_| each(at_us));
        }
    }
}

/// Who has a loop.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Whose {
    /// An agent with a call every other second, and with one in twenty.
    Busy,
    Nightly,
    /// Somebody with few sessions.
    Thin,
}

/// The calls of a tenant before its loop begins.
fn before_a_loop(whose: Whose, seed: u64) -> Vec<i64> {
    let mut all = Vec::new();
    let end = match whose {
        Whose::Busy | Whose::Nightly => {
            day(&mut Chance(seed), |call| all.push(call.at_us));
            if whose == Whose::Busy { 12 } else { 2 }
        }
        Whose::Thin => {
            thin_day(&mut Chance(seed), |at_us| all.push(at_us));
            20
        }
    };
    all.retain(|at_us| *at_us < BEGIN_US + end * 3_600 * SECOND_US);
    all
}

/// The slot in which a loop of so many calls a second has been noticed in all of ten runs; `None` where it is not within ten minutes.
fn slower_loop_noticed(method: AnomalyMethod, threshold: f64, whose: Whose, per_second: f64) -> Option<i64> {
    let slots = (1..=10).map(|seed| {
        let (watching, mut chance) = (watching(method, threshold), Chance(50 + seed));
        let look = |at_us| {
            let found = watching.look(tenant(1), &Call { at_us, ..Call::default() });
            found.iter().any(|anomaly| anomaly.watched == Measure::Velocity)
        };
        let before = before_a_loop(whose, seed);
        for at_us in &before {
            look(*at_us);
        }
        let begin = before.last().unwrap() + (chance.next() * 10.0 * SECOND_US as f64) as i64;
        let mut at_us = begin;
        while at_us < begin + 600 * SECOND_US {
            // A call takes its time, and not always the same.
            at_us += ((0.3 * chance.normal()).exp() / per_second * SECOND_US as f64) as i64;
            if look(at_us) {
                return Some((at_us - begin).div_euclid(velocity::SLOT_US) + 1);
            }
        }
        None
    });
    slots.collect::<Option<Vec<i64>>>()?.into_iter().max()
}

/// The document says what is counted here.
fn is_shown(table: &str) {
    println!("{table}");
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/anomalies.md");
    let document = std::fs::read_to_string(document).unwrap();
    assert!(document.contains(table), "docs/anomalies.md does not say what was counted:\n{table}");
}

/// The second table of docs/anomalies.md.
#[test]
fn slower_loops_are_noticed_from_two_calls_a_second_on() {
    const RATES: [f64; 5] = [0.5, 1.0, 2.0, 5.0, 20.0];
    let mut table = String::new();
    for (method, name, threshold) in [(AnomalyMethod::Sigma, "sigma", 3.0), (AnomalyMethod::Robust, "robust", 4.0)] {
        for (whose, called) in
            [(Whose::Busy, "30 calls a minute"), (Whose::Nightly, "3 calls a minute"), (Whose::Thin, "few sessions")]
        {
            let noticed = RATES.map(|rate| slower_loop_noticed(method, threshold, whose, rate));
            assert!(
                noticed[3..].iter().all(|slot| slot.is_some_and(|slot| slot <= 2)),
                "{name}, {called}: {noticed:?}"
            );
            let cells = noticed.map(|slot| slot.map_or("never".to_owned(), |slot| format!("slot {slot}")));
            table.push_str(&format!("| {name} | {threshold} | {called} | {} |\n", cells.join(" | ")));
        }
        let mut wrong = 0;
        for seed in 1..=10 {
            let watching = watching(method, threshold);
            thin_day(&mut Chance(seed), |at_us| {
                wrong += watching.look(tenant(1), &Call { at_us, ..Call::default() }).len();
            });
        }
        println!("{name}: {wrong} slots of ten thin days are called too full");
        assert!(wrong as f64 <= 0.001 * 86_400.0, "{name}: {wrong}");
    }
    is_shown(&table);
}

/// The first table of docs/anomalies.md: `cargo test -p weir --lib anomalies -- --nocapture`.
#[test]
fn a_day_of_an_agent_raises_few_alarms_and_what_is_wrong_is_noticed() {
    let mut table = String::new();
    for (method, name) in [(AnomalyMethod::Sigma, "sigma"), (AnomalyMethod::Robust, "robust")] {
        for threshold in [3.0, 4.0, 6.0] {
            let (mut found, mut calls) = ([0; 4], 0);
            for seed in 1..=3 {
                let (of_day, in_day) = false_alarms(method, threshold, seed);
                found.iter_mut().zip(of_day).for_each(|(all, one)| *all += one);
                calls += in_day;
            }
            let share = found.map(|count| 100.0 * f64::from(count) / f64::from(calls));
            let slots = 3.0 * 8_640.0;
            let of_slots = 100.0 * f64::from(found[Measure::Velocity as usize]) / slots;
            let shift = shifts_noticed(method, threshold, 200);
            let slot = loop_noticed(method, threshold, 7);
            table.push_str(&format!(
                "| {name} | {threshold} | {:.3} % | {:.3} % | {of_slots:.3} % | {:.3} % | {:.1} % | slot {slot} |\n",
                share[Measure::Cost as usize],
                share[Measure::Tokens as usize],
                share[Measure::Latency as usize],
                100.0 * shift
            ));
            assert!(slot <= 2, "{name} at {threshold}: a loop is noticed in slot {slot}");
            if (method, threshold) == (AnomalyMethod::Robust, 4.0) {
                assert!(share.iter().all(|share| *share <= 0.1), "{share:?}");
            }
            if threshold < 6.0 {
                assert!(shift >= 0.95, "{name} at {threshold}: {shift}");
            }
        }
    }
    is_shown(&table);
}

#[test]
fn steady_calls_are_ordinary_and_one_that_is_not_is_told_with_its_place_among_them() {
    let watching = watching(AnomalyMethod::Sigma, 3.0);
    let look = |number: i64, tokens| watching.look(tenant(1), &of_tokens(BEGIN_US + number * SECOND_US, tokens));
    assert!((0..30).all(|number| look(number, 120 + number as u64 % 3 + number as u64 % 2).is_empty()));
    let found = look(30, 900_000);
    let [anomaly] = &found[..] else { panic!("{found:?}") };
    let finding = anomaly.finding();
    assert_eq!(
        (&*finding.finding_type, finding.severity, &*finding.detector),
        ("anomaly_tokens", Severity::Critical, "anomalies")
    );
    assert_eq!(finding.evidence, "900000 tokens; expected 122, far from 140 on");
    assert!(anomaly.is_new && !finding.metadata.contains_key(CONTINUES));
    // It does not hide the next one, which belongs to the same episode.
    let next = look(31, 900_000);
    assert!(!next[0].is_new && next[0].finding().metadata.contains_key(CONTINUES));
    // After ten ordinary ones another episode begins.
    assert!((32..42).all(|number| look(number, 121).is_empty()));
    assert!(look(42, 900_000)[0].is_new);
}

#[test]
fn a_lasting_shift_becomes_the_ordinary() {
    for method in [AnomalyMethod::Sigma, AnomalyMethod::Robust] {
        let watching = watching(method, 3.0);
        let look =
            |number: i64, tokens| watching.look(tenant(1), &of_tokens(BEGIN_US + number * SECOND_US, tokens)).len();
        (0..100).for_each(|number| assert_eq!(look(number, 1_000), 0));
        let told = (100..300).filter(|number| look(*number, 3_000) > 0).count();
        assert!((5..100).contains(&told), "{method:?}: {told}");
        assert!((300..400).all(|number| look(number, 3_000) == 0));
    }
}

#[test]
fn a_late_answer_is_told_and_the_first_ten_calls_never_are() {
    let watching = watching(AnomalyMethod::Sigma, 6.0);
    let look = |tenant, number: i64, latency_ms| {
        let call = Call { at_us: BEGIN_US + number * SECOND_US, latency_ms: Some(latency_ms), ..Call::default() };
        watching.look(tenant, &call).len()
    };
    assert_eq!(look(tenant(2), 0, 1.0) + look(tenant(2), 1, 60_000.0), 0);
    assert!((0..20).all(|number| look(tenant(1), number, 40.0 + (number % 5) as f64) == 0));
    assert_eq!(look(tenant(1), 20, 2_500.0), 1);
}

#[test]
fn a_slot_that_is_too_full_is_told_once_and_an_idle_tenant_may_wake() {
    let watching = watching(AnomalyMethod::Sigma, 3.0);
    let look = |at_us| watching.look(tenant(1), &Call { at_us, ..Call::default() });
    // A call a second for five minutes.
    assert!((0..300).all(|second| look(BEGIN_US + second * SECOND_US).is_empty()));
    let begin = BEGIN_US + 300 * SECOND_US;
    let told: Vec<Anomalous> = (0..400).map(|at| look(begin + at * 25_000)).filter(|found| !found.is_empty()).collect();
    assert_eq!(told.len(), 1, "one slot of 400 calls");
    assert_eq!(told[0][0].finding().evidence, "20.0 calls in 10 s; expected 10.0, far from 19.5 on");
    // The next slot goes on with it; after a minute of quiet there is another episode.
    let next = (0..400).flat_map(|at| look(begin + 10 * SECOND_US + at * 25_000)).collect::<Vec<_>>();
    assert!(matches!(&next[..], [one] if !one.is_new), "{next:?}");
    let later = begin + 3_600 * SECOND_US;
    let woken = (0..400).flat_map(|at| look(later + at * 25_000)).collect::<Vec<_>>();
    assert!(matches!(&woken[..], [one] if one.is_new), "{woken:?}");
}

#[test]
fn tenants_are_apart_and_bounded() {
    let watching = watching(AnomalyMethod::Sigma, 3.0);
    for number in 0..12_000 {
        watching.look(tenant(number), &of_tokens(BEGIN_US, u64::from(number)));
    }
    let left_out = watching.no_room.load(Ordering::Relaxed);
    assert_eq!(watching.watched.load(Ordering::Relaxed), TENANTS_MAX);
    assert!((2_000..2_100).contains(&left_out), "{left_out}");
    let bytes = State::bytes(settings(AnomalyMethod::Sigma, 3.0));
    assert!(bytes * TENANTS_MAX < 24 << 20, "{bytes} bytes a tenant");
    // What has been idle for an hour makes room.
    let later = |number: u32| watching.look(tenant(number), &of_tokens(BEGIN_US + 2 * IDLE_US, 1));
    (20_000..25_000).for_each(|number| drop(later(number)));
    let since = watching.no_room.load(Ordering::Relaxed) - left_out;
    assert!(since < 500, "{since} of 5,000");
    let wide = Anomalies::new(AnomalyDetection { window_size: 10_000, ..settings(AnomalyMethod::Sigma, 3.0) }).unwrap();
    assert!(wide.watched_max * State::bytes(wide.settings) <= BYTES_MAX && wide.watched_max > 400);
}

#[test]
fn nothing_is_made_where_nothing_is_watched() {
    let off = AnomalyDetection {
        check_cost: false,
        check_tokens: false,
        check_velocity: false,
        check_latency: false,
        ..settings(AnomalyMethod::Sigma, 3.0)
    };
    assert!(Anomalies::new(off).is_none());
    assert!(Anomalies::new(AnomalyDetection::default()).is_none());
}

proptest! {
    /// The sums that are kept agree with those made anew.
    #[test]
    fn the_window_knows_its_mean_and_spread(values in proptest::collection::vec(0.0f64..1e6, 11..400)) {
        let rule = Rule { method: AnomalyMethod::Sigma, threshold: 3.0, kind: Kind::Amount };
        let mut window = Window::new(50);
        for value in &values {
            window.keep(*value, rule);
        }
        let last: Vec<f64> = values.iter().rev().take(50).map(|value| f64::from(*value as f32)).collect();
        let mean = last.iter().sum::<f64>() / last.len() as f64;
        let deviation = (last.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / last.len() as f64).sqrt();
        let limit = mean + 3.0 * deviation.max(mean * 0.05).max(1.0);
        prop_assert!(window.judge(limit * 1.001 + 1.0, rule).is_some());
        prop_assert!(window.judge(limit * 0.999 - 1.0, rule).is_none());
    }
}
