//! The breaker against a naive model, and its table of transitions row by row.

use proptest::prelude::*;

use super::*;
use crate::ops::clock::ManualClock;

const SETTINGS: CircuitBreaker = CircuitBreaker {
    enabled: true,
    failure_threshold: 10,
    recovery_timeout_ms: 30_000,
    half_open_max_calls: 3,
    scope: BreakerScope::Service,
};

fn breaker(settings: CircuitBreaker) -> (Breaker, ManualClock) {
    let (clock, hand) = Clock::manual();
    (Breaker::new(settings, clock), hand)
}

fn fail(breaker: &Breaker, times: u32) {
    (0..times).for_each(|_| breaker.failure());
}

#[test]
fn the_eleventh_failure_in_a_row_opens_and_the_tenth_does_not() {
    let (breaker, _hand) = breaker(SETTINGS);
    fail(&breaker, 10);
    assert_eq!((breaker.state(), breaker.admit()), (State::Closed, Admit::Yes));
    breaker.failure();
    assert_eq!((breaker.state(), breaker.admit()), (State::Open, Admit::No));
}

#[test]
fn a_success_in_between_starts_the_count_again() {
    let (breaker, _hand) = breaker(SETTINGS);
    fail(&breaker, 10);
    breaker.success();
    fail(&breaker, 10);
    assert_eq!(breaker.state(), State::Closed);
}

#[test]
fn half_open_admits_three_probes_and_no_more() {
    let (breaker, hand) = breaker(SETTINGS);
    fail(&breaker, 11);
    hand.advance(29_999);
    assert_eq!((breaker.state(), breaker.admit()), (State::Open, Admit::No));
    hand.advance(1);
    assert_eq!(breaker.state(), State::HalfOpen);
    let asked: Vec<_> = (0..4).map(|_| breaker.admit()).collect();
    assert_eq!(asked, [Admit::Probe, Admit::Probe, Admit::Probe, Admit::No]);
    assert!(breaker.refuses());
}

#[test]
fn a_failed_probe_opens_again_with_a_fresh_timer() {
    let (breaker, hand) = breaker(SETTINGS);
    fail(&breaker, 11);
    hand.advance(30_000);
    assert_eq!(breaker.admit(), Admit::Probe);
    hand.advance(10_000);
    breaker.failure();
    assert_eq!(breaker.state(), State::Open);
    hand.advance(29_999);
    assert_eq!(breaker.admit(), Admit::No);
    hand.advance(1);
    assert_eq!(breaker.admit(), Admit::Probe);
}

#[test]
fn a_successful_probe_closes_and_forgets_the_failures() {
    let (breaker, hand) = breaker(SETTINGS);
    fail(&breaker, 11);
    hand.advance(30_000);
    assert_eq!(breaker.admit(), Admit::Probe);
    breaker.success();
    fail(&breaker, 10);
    assert_eq!((breaker.state(), breaker.admit()), (State::Closed, Admit::Yes));
}

#[test]
fn failures_while_open_do_not_move_the_timer() {
    let (breaker, hand) = breaker(SETTINGS);
    fail(&breaker, 11);
    hand.advance(20_000);
    fail(&breaker, 5);
    hand.advance(10_000);
    assert_eq!(breaker.admit(), Admit::Probe);
}

#[test]
fn probes_that_vanish_are_replaced_after_the_timeout() {
    let (breaker, hand) = breaker(SETTINGS);
    fail(&breaker, 11);
    hand.advance(30_000);
    (0..3).for_each(|_| assert_eq!(breaker.admit(), Admit::Probe));
    hand.advance(29_999);
    assert_eq!(breaker.admit(), Admit::No);
    hand.advance(1);
    assert_eq!(breaker.admit(), Admit::Probe);
}

#[test]
fn a_disabled_breaker_stays_closed() {
    let (breaker, _hand) = breaker(CircuitBreaker { enabled: false, ..SETTINGS });
    fail(&breaker, 1_000);
    assert_eq!((breaker.state(), breaker.admit()), (State::Closed, Admit::Yes));
}

#[test]
fn settings_at_their_limits_do_not_wrap() {
    let (breaker, hand) = breaker(CircuitBreaker {
        enabled: true,
        failure_threshold: 0,
        recovery_timeout_ms: u64::MAX,
        half_open_max_calls: 0,
        scope: BreakerScope::Service,
    });
    breaker.failure();
    hand.advance(SINCE_MAX);
    assert_eq!((breaker.state(), breaker.admit()), (State::Open, Admit::No));
}

#[test]
fn either_breaker_makes_the_gateway_a_plain_proxy() {
    let (clock, hand) = Clock::manual();
    let breakers = Breakers::new(SETTINGS, &clock);
    assert_eq!((breakers.admit(), breakers.worst()), (Admit::Yes, State::Closed));
    fail(&breakers.security, 11);
    assert_eq!((breakers.admit(), breakers.worst()), (Admit::No, State::Open));
    hand.advance(30_000);
    fail(&breakers.storage, 11);
    // Storage refuses, so security keeps all its probes.
    (0..9).for_each(|_| assert_eq!(breakers.admit(), Admit::No));
    breakers.storage.success();
    let asked: Vec<_> = (0..4).map(|_| breakers.admit()).collect();
    assert_eq!(asked, [Admit::Probe, Admit::Probe, Admit::Probe, Admit::No]);
}

#[test]
fn the_gauge_is_one_for_exactly_the_state_it_is_in() {
    let (clock, _hand) = Clock::manual();
    let breakers = Arc::new(Breakers::new(SETTINGS, &clock));
    fail(&breakers.storage, 11);
    let mut out = Exposition::default();
    BreakerGauges(breakers).collect(&mut out);
    let text = out.render().unwrap();
    let samples: Vec<&str> = text.lines().filter(|line| line.starts_with("service_circuit_breaker_state")).collect();
    assert_eq!(
        samples,
        [
            r#"service_circuit_breaker_state{subsystem="storage",state="closed"} 0"#,
            r#"service_circuit_breaker_state{subsystem="storage",state="half_open"} 0"#,
            r#"service_circuit_breaker_state{subsystem="storage",state="open"} 1"#,
            r#"service_circuit_breaker_state{subsystem="security",state="closed"} 1"#,
            r#"service_circuit_breaker_state{subsystem="security",state="half_open"} 0"#,
            r#"service_circuit_breaker_state{subsystem="security",state="open"} 0"#,
        ]
    );
}

/// Half-open probes asked for by many threads at once are handed out exactly as often as allowed.
#[test]
fn threads_never_share_a_probe() {
    let (breaker, hand) = breaker(SETTINGS);
    for _ in 0..200 {
        fail(&breaker, 11);
        hand.advance(30_000);
        let probes: usize = std::thread::scope(|scope| {
            let ask = || (0..4).filter(|_| breaker.admit() == Admit::Probe).count();
            let askers: Vec<_> = (0..3).map(|_| scope.spawn(ask)).collect();
            askers.into_iter().map(|asker| asker.join().unwrap()).sum()
        });
        assert_eq!(probes, 3);
        breaker.success();
    }
}

/// The automaton as a person would write it down: plain fields, one step at a time.
struct Model {
    settings: CircuitBreaker,
    state: State,
    failures: u32,
    since_ms: u64,
    probes: Option<u32>,
}

impl Model {
    fn let_time_act(&mut self, now_ms: u64) {
        let passed = now_ms - self.since_ms >= self.settings.recovery_timeout_ms;
        if self.state == State::Open && passed {
            (self.state, self.probes) = (State::HalfOpen, None);
        } else if self.state == State::HalfOpen && passed && self.probes.is_some() {
            self.probes = None;
        }
    }

    fn admit(&mut self, now_ms: u64) -> Admit {
        match (self.state, self.probes) {
            (State::Closed, _) => Admit::Yes,
            (State::Open, _) => Admit::No,
            (State::HalfOpen, None) => {
                (self.since_ms, self.probes) = (now_ms, Some(1));
                Admit::Probe
            }
            (State::HalfOpen, Some(taken)) if taken < self.settings.half_open_max_calls => {
                self.probes = Some(taken + 1);
                Admit::Probe
            }
            (State::HalfOpen, Some(_)) => Admit::No,
        }
    }

    fn success(&mut self) {
        (self.state, self.failures) = (State::Closed, 0);
    }

    fn failure(&mut self, now_ms: u64) {
        match self.state {
            State::Open => {}
            State::HalfOpen => (self.state, self.since_ms) = (State::Open, now_ms),
            State::Closed => {
                self.failures += 1;
                if self.failures > self.settings.failure_threshold {
                    (self.state, self.since_ms) = (State::Open, now_ms);
                }
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Admit,
    Success,
    Failure,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Admit),
        1 => Just(Step::Success),
        6 => Just(Step::Failure),
        2 => (0_u64..15).prop_map(Step::Wait),
    ]
}

proptest! {
    #[test]
    fn does_what_the_model_does(
        failure_threshold in 0_u32..4,
        recovery_timeout_ms in 0_u64..20,
        half_open_max_calls in 1_u32..4,
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let settings = CircuitBreaker { failure_threshold, recovery_timeout_ms, half_open_max_calls, ..SETTINGS };
        let (breaker, hand) = breaker(settings);
        let mut model = Model { settings, state: State::Closed, failures: 0, since_ms: 0, probes: None };
        let mut now_ms = 0;
        for step in steps {
            model.let_time_act(now_ms);
            match step {
                Step::Admit => {
                    prop_assert_eq!(breaker.refuses(), matches!((model.state, model.probes), (State::Open, _))
                        || model.state == State::HalfOpen && model.probes == Some(half_open_max_calls));
                    prop_assert_eq!(breaker.admit(), model.admit(now_ms));
                }
                Step::Success => {
                    breaker.success();
                    model.success();
                }
                Step::Failure => {
                    breaker.failure();
                    model.failure(now_ms);
                }
                Step::Wait(ms) => {
                    hand.advance(ms);
                    now_ms += ms;
                }
            }
            model.let_time_act(now_ms);
            prop_assert_eq!(breaker.state(), model.state);
        }
    }
}
