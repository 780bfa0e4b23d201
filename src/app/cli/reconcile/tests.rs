//! Differences with a known reason, and that they add up.

use proptest::prelude::*;

use super::bill::Row;
use super::record::Ours;
use super::residual::{Difference, Outcome, SECOND, compare};

fn call(id: Option<&str>, at: i64, input: u64, nano: Option<i128>) -> Ours {
    let id = id.map(str::to_owned);
    Ours {
        span: format!("s{at}"),
        id,
        at: at * SECOND,
        model: "m".into(),
        input,
        nano_usd: nano,
        is_answered: true,
        ..Ours::default()
    }
}

fn row(id: &str, at: i64, input: u64, nano: i128) -> Row {
    let (from, to) = (at * SECOND, at * SECOND);
    Row {
        id: Some(id.into()),
        from,
        to,
        model: Some("m-2025-01-01".into()),
        input: Some(input),
        nano_usd: Some(nano),
        ..Row::default()
    }
}

fn reasons(outcome: &Outcome) -> Vec<&'static str> {
    outcome.residuals.iter().map(|residual| residual.reason.as_str()).collect()
}

fn sum(outcome: &Outcome) -> Difference {
    let mut sum = Difference::default();
    outcome.residuals.iter().for_each(|residual| sum.add(&residual.difference));
    sum
}

#[test]
fn each_call_has_its_reason() {
    let left = Ours { is_left: true, is_answered: false, ..call(None, 50, 0, None) };
    let cut = Ours { is_left: true, is_estimated: true, ..call(Some("cut"), 60, 9, Some(9)) };
    let batch = Ours { tier: Some("batch".into()), ..call(Some("tier"), 70, 5, Some(5)) };
    let ours = [
        call(Some("same"), 10, 5, Some(100)),
        call(Some("free"), 20, 5, None),
        call(Some("dear"), 30, 5, Some(100)),
        call(Some("gone"), 40, 5, Some(100)),
        left,
        cut,
        batch,
    ];
    let rows = [
        row("same", 10, 5, 100),
        row("free", 20, 5, 70),
        row("dear", 30, 5, 170),
        row("beside", 45, 7, 30),
        row("left", 55, 3, 11),
        row("cut", 60, 20, 20),
        row("tier", 70, 5, 10),
        row("old", -90_000, 1, 1),
    ];
    let outcome = compare(&rows, &ours, 0);
    // The call without an id is taken for the first row near it that no id explains.
    assert_eq!(
        reasons(&outcome),
        ["no_price", "price", "client_left", "other_key", "client_left", "tier", "gap", "not_billed"]
    );
    assert_eq!(outcome.agreed, 1);
    assert_eq!(sum(&outcome), outcome.theirs.less(&outcome.ours));
}

#[test]
fn a_bucket_is_taken_apart() {
    let bucket = |calls, input, nano| Row {
        from: 0,
        to: 3_600 * SECOND,
        model: Some("m".into()),
        calls: Some(calls),
        input: Some(input),
        nano_usd: Some(nano),
        ..Row::default()
    };
    let retried = Ours { retries: 1, ..call(Some("a"), 10, 10, Some(100)) };
    let left = Ours { is_left: true, is_answered: false, ..call(None, 20, 0, None) };
    let outcome = compare(&[bucket(4, 40, 400)], &[retried, left], 0);
    assert_eq!(reasons(&outcome), ["client_left", "retried", "other_key"]);
    assert_eq!(outcome.residuals[0].difference, Difference { calls: 1, input: 10, output: 0, nano_usd: 100 });
    assert_eq!(sum(&outcome), outcome.theirs.less(&outcome.ours));
    let same = compare(&[bucket(1, 10, 101)], &[call(Some("a"), 10, 10, Some(100))], 1);
    assert_eq!((same.agreed, same.compared), (1, 1));
    assert_eq!(reasons(&compare(&[bucket(1, 10, 300)], &[call(None, 10, 10, None)], 1)), ["no_price"]);
    assert_eq!(
        reasons(&compare(&[bucket(1, 10, 300)], &[call(None, 7_200, 10, Some(1))], 1)),
        ["other_key", "not_billed"]
    );
}

proptest! {
    #[test]
    fn residuals_add_up_to_the_difference(
        ours in proptest::collection::vec((0..4u8, 0..8_000i64, 0..50u64, proptest::option::of(0..900i128), 0..3u64, any::<bool>(), any::<bool>()), 0..30),
        single in proptest::collection::vec((0..6u8, 0..8_000i64, 0..50u64, 0..900i128), 0..20),
        buckets in proptest::collection::vec((0..3i64, proptest::option::of(0..9u64), 0..90u64, 0..900i128, 0..3u8), 0..20),
    ) {
        let models = ["m", "n", ""];
        let ours: Vec<Ours> = ours.into_iter().enumerate().map(|(n, (id, at, input, nano, retries, is_left, is_answered))| Ours {
            id: (id > 0).then(|| format!("{id}-{}", n % 9)),
            model: models[n % 2].into(),
            retries,
            is_left,
            is_answered,
            ..call(None, at, input, nano)
        }).collect();
        let mut rows: Vec<Row> = single.into_iter().enumerate().map(|(n, (id, at, input, nano))| row(&format!("{id}-{}", n % 9), at, input, nano)).collect();
        rows.extend(buckets.into_iter().map(|(hour, calls, input, nano, model)| Row {
            from: hour * 3_600 * SECOND,
            to: (hour + 1) * 3_600 * SECOND,
            model: Some(models[usize::from(model)].into()).filter(|model: &String| !model.is_empty()),
            calls,
            input: Some(input),
            nano_usd: Some(nano),
            ..Row::default()
        }));
        let outcome = compare(&rows, &ours, 0);
        prop_assert_eq!(sum(&outcome), outcome.theirs.less(&outcome.ours));
    }
}
