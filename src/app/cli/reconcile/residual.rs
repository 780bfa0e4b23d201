//! Where a bill and the record differ, and by what. Invariant: the residuals add up to the whole difference, in calls, in tokens and in
//! nanodollars.

use std::collections::BTreeMap;

use super::bill::Row;
use super::record::{Ours, by_id, family};

pub(super) const SECOND: i64 = 1_000_000;
/// Clocks differ, and the provider's begins later: a call without an id is looked for so long before its row, and after it.
const NEAR: (i64, i64) = (900 * SECOND, 60 * SECOND);

/// Why two figures differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    ClientLeft,
    Retried,
    NoPrice,
    Tier,
    Estimated,
    Tokens,
    Price,
    OtherKey,
    Gap,
    NotBilled,
}

impl Reason {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::ClientLeft => "client_left",
            Self::Retried => "retried",
            Self::NoPrice => "no_price",
            Self::Tier => "tier",
            Self::Estimated => "estimated",
            Self::Tokens => "tokens",
            Self::Price => "price",
            Self::OtherKey => "other_key",
            Self::Gap => "gap",
            Self::NotBilled => "not_billed",
        }
    }

    /// What it means.
    pub(super) const fn says(self) -> &'static str {
        match self {
            Self::ClientLeft => "the client left or the answer ended early; the provider went on and bills it",
            Self::Retried => "a try that was repeated; the provider bills both",
            Self::NoPrice => "the record has no price for the model or for a unit",
            Self::Tier => "billed at another service tier than the record has",
            Self::Estimated => "the provider did not count in its answer; the record's tokens are an estimate",
            Self::Tokens => "the provider bills other tokens than its answer said",
            Self::Price => "the same tokens at another price",
            Self::OtherKey => "billed, and not made through this gateway: another key, or beside it",
            Self::Gap => {
                "billed in a time of which the record has no calls at all: it was not running, or the calls were removed"
            }
            Self::NotBilled => "in the record and not on the bill: free, another account, or not exported",
        }
    }
}

/// What two sides differ by: positive where the bill has more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) calls: i64,
    pub(super) input: i64,
    pub(super) output: i64,
    pub(super) nano_usd: i128,
}

impl Difference {
    pub(super) fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.input += other.input;
        self.output += other.output;
        self.nano_usd += other.nano_usd;
    }

    pub(super) fn less(mut self, other: &Self) -> Self {
        self.add(&Self { calls: -other.calls, input: -other.input, output: -other.output, nano_usd: -other.nano_usd });
        self
    }
}

/// A part of the difference, with its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Residual {
    pub(super) reason: Reason,
    pub(super) model: String,
    /// When: the call, or the bucket.
    pub(super) at: i64,
    pub(super) difference: Difference,
    /// The provider's id, where it is about one call, and the record's.
    pub(super) id: Option<String>,
    pub(super) span: Option<String>,
}

/// Both sums, and what lies between.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) theirs: Difference,
    pub(super) ours: Difference,
    pub(super) residuals: Vec<Residual>,
    /// Calls, or buckets of a model, that agree.
    pub(super) agreed: u64,
    pub(super) compared: u64,
}

/// Which of the figures a bill has: what it does not say is not held against the record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Says {
    calls: bool,
    tokens: bool,
    cost: bool,
}

impl Says {
    pub(super) fn of(rows: &[Row]) -> Self {
        Self {
            calls: rows.iter().any(|row| row.calls.is_some() || row.id.is_some()),
            tokens: rows.iter().any(|row| row.input.is_some() || row.output.is_some()),
            cost: rows.iter().any(|row| row.nano_usd.is_some()),
        }
    }

    fn theirs(self, row: &Row) -> Difference {
        let signed = |count: Option<u64>| i64::try_from(count.unwrap_or(0)).unwrap_or(i64::MAX);
        let one = row.id.is_some().then_some(1);
        self.only(Difference {
            calls: signed(row.calls.or(one)),
            input: signed(row.input),
            output: signed(row.output),
            nano_usd: row.nano_usd.unwrap_or(0),
        })
    }

    fn ours(self, call: &Ours) -> Difference {
        let signed = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.only(Difference {
            calls: i64::from(call.is_answered),
            input: signed(call.input),
            output: signed(call.output),
            nano_usd: call.nano_usd.unwrap_or(0),
        })
    }

    fn only(self, figures: Difference) -> Difference {
        Difference {
            calls: if self.calls { figures.calls } else { 0 },
            input: if self.tokens { figures.input } else { 0 },
            output: if self.tokens { figures.output } else { 0 },
            nano_usd: if self.cost { figures.nano_usd } else { 0 },
        }
    }
}

/// Holds a bill against the record. Amounts that differ by no more than `tolerance` of a call or bucket agree.
pub(super) fn compare(rows: &[Row], ours: &[Ours], tolerance: i128) -> Outcome {
    let says = Says::of(rows);
    let mut outcome = Outcome::default();
    rows.iter().for_each(|row| outcome.theirs.add(&says.theirs(row)));
    ours.iter().for_each(|call| outcome.ours.add(&says.ours(call)));
    let (single, buckets): (Vec<&Row>, Vec<&Row>) = rows.iter().partition(|row| row.id.is_some());
    let mut left: Vec<bool> = vec![true; ours.len()];
    by_call(&single, ours, says, tolerance, (&mut left, &mut outcome));
    by_bucket(&buckets, ours, says, tolerance, (&mut left, &mut outcome));
    for (call, _) in ours.iter().zip(&left).filter(|(_, left)| **left) {
        let difference = Difference::default().less(&says.ours(call));
        let reason = if call.is_left && !call.is_answered { Reason::ClientLeft } else { Reason::NotBilled };
        outcome.put(reason, family(&call.model), call.at, difference, (call.id.clone(), Some(call.span.clone())));
    }
    outcome
}

impl Outcome {
    fn put(
        &mut self,
        reason: Reason,
        model: String,
        at: i64,
        difference: Difference,
        (id, span): (Option<String>, Option<String>),
    ) {
        if !difference.is_zero() {
            self.residuals.push(Residual { reason, model, at, difference, id, span });
        }
    }
}

fn by_call(rows: &[&Row], ours: &[Ours], says: Says, tolerance: i128, (left, outcome): (&mut [bool], &mut Outcome)) {
    let known = by_id(ours);
    for row in rows {
        outcome.compared += 1;
        let id = row.id.clone();
        let found = known.get(id.as_deref().unwrap_or_default()).copied().filter(|place| left[*place]);
        let near = || {
            let model = row.model.as_deref().map(family);
            let fits = |call: &Ours| {
                call.id.is_none()
                    && (row.from - NEAR.0..=row.from + NEAR.1).contains(&call.at)
                    && model.as_ref().is_none_or(|model| *model == family(&call.model))
                    && (call.is_left || call.retries > 0)
            };
            ours.iter().enumerate().find(|(place, call)| left[*place] && fits(call)).map(|(place, _)| place)
        };
        let model = |call: Option<&Ours>| {
            family(row.model.as_deref().or(call.map(|call| call.model.as_str())).unwrap_or_default())
        };
        match found.or_else(near) {
            Some(place) => {
                left[place] = false;
                let call = &ours[place];
                let difference = says.theirs(row).less(&says.ours(call));
                if difference.is_zero()
                    || (difference.nano_usd.abs() <= tolerance && difference.input == 0 && difference.output == 0)
                {
                    outcome.agreed += u64::from(difference.calls == 0);
                }
                let tier = (row.tier.as_ref(), call.tier.as_ref());
                let reason = why(&difference, call, tier, found.is_some());
                outcome.put(reason, model(Some(call)), call.at, difference, (id, Some(call.span.clone())));
            }
            None => {
                let is_recorded = ours.iter().any(|call| (call.at - row.from).abs() <= 3_600 * SECOND);
                let reason = if is_recorded { Reason::OtherKey } else { Reason::Gap };
                outcome.put(reason, model(None), row.from, says.theirs(row), (id, None));
            }
        }
    }
}

/// Why one call's figures differ.
fn why(
    difference: &Difference,
    call: &Ours,
    (theirs, ours): (Option<&String>, Option<&String>),
    by_its_id: bool,
) -> Reason {
    if !by_its_id {
        return if call.is_left { Reason::ClientLeft } else { Reason::Retried };
    }
    let same_tokens = difference.input == 0 && difference.output == 0;
    match (same_tokens, call.nano_usd) {
        (_, None) if same_tokens || !call.is_left => Reason::NoPrice,
        (false, _) if call.is_left => Reason::ClientLeft,
        (false, _) if call.is_estimated => Reason::Estimated,
        (false, _) => Reason::Tokens,
        (true, _) if theirs != ours => Reason::Tier,
        (true, _) => Reason::Price,
    }
}

/// A bucket of one model.
#[derive(Default)]
struct Bucket<'a> {
    theirs: Difference,
    ours: Vec<&'a Ours>,
    tiers: Vec<&'a str>,
}

fn by_bucket(rows: &[&Row], ours: &[Ours], says: Says, tolerance: i128, (left, outcome): (&mut [bool], &mut Outcome)) {
    let mut buckets: BTreeMap<(i64, i64, String), Bucket<'_>> = BTreeMap::new();
    let mut spans: Vec<(i64, i64)> = rows.iter().map(|row| (row.from, row.to)).collect();
    spans.sort_unstable();
    spans.dedup();
    for row in rows {
        let key = (row.from, row.to, row.model.as_deref().map(family).unwrap_or_default());
        let bucket = buckets.entry(key).or_default();
        bucket.theirs.add(&says.theirs(row));
        bucket.tiers.extend(row.tier.as_deref());
    }
    for (place, call) in ours.iter().enumerate() {
        // The last bucket that begins before it, if it has not ended.
        let at = spans.partition_point(|(from, _)| *from <= call.at);
        let Some((from, to)) = at.checked_sub(1).and_then(|at| spans.get(at)).filter(|(_, to)| call.at < *to) else {
            continue;
        };
        let named = (*from, *to, family(&call.model));
        // Exports that name no model count all of them together.
        let nameless = (*from, *to, String::new());
        let key = if !buckets.contains_key(&named) && buckets.contains_key(&nameless) { nameless } else { named };
        if left[place] {
            left[place] = false;
            buckets.entry(key).or_default().ours.push(call);
        }
    }
    for ((from, _, model), bucket) in buckets {
        outcome.compared += 1;
        explain(&model, from, &bucket, says, tolerance, outcome);
    }
}

/// Takes the difference of a bucket apart, one reason after the other; what none explains is last.
fn explain(model: &str, at: i64, bucket: &Bucket<'_>, says: Says, tolerance: i128, outcome: &mut Outcome) {
    let mut sum = Difference::default();
    bucket.ours.iter().for_each(|call| sum.add(&says.ours(call)));
    let mut rest = bucket.theirs.less(&sum);
    if rest.nano_usd.abs() <= tolerance && (rest.calls, rest.input, rest.output) == (0, 0, 0) {
        outcome.agreed += 1;
        outcome.put(Reason::Price, model.to_owned(), at, rest, (None, None));
        return;
    }
    let mut put = |reason: Reason, part: Difference, rest: &mut Difference| {
        *rest = rest.less(&part);
        outcome.put(reason, model.to_owned(), at, part, (None, None));
    };
    if bucket.ours.is_empty() {
        return put(Reason::OtherKey, rest, &mut Difference::default());
    }
    if bucket.theirs.is_zero() {
        return put(Reason::NotBilled, rest, &mut Difference::default());
    }
    // Calls first: whose tokens and money are then shared out by what a call of the bucket has on average.
    let average = |count: i64, calls: i64| if calls > 0 { count / calls } else { 0 };
    let share = |calls: i64, rest: &Difference| {
        let all = rest.calls;
        Difference {
            calls,
            input: average(rest.input * calls, all),
            output: average(rest.output * calls, all),
            nano_usd: if all > 0 { rest.nano_usd * i128::from(calls) / i128::from(all) } else { 0 },
        }
    };
    let left = bucket.ours.iter().filter(|call| call.is_left && !call.is_answered).count() as i64;
    let retries: i64 = bucket.ours.iter().map(|call| call.retries as i64).sum();
    for (reason, most) in [(Reason::ClientLeft, left), (Reason::Retried, retries)] {
        let calls = rest.calls.min(most);
        if calls > 0 {
            put(reason, share(calls, &rest), &mut rest);
        }
    }
    if rest.calls != 0 {
        let reason = if rest.calls > 0 { Reason::OtherKey } else { Reason::NotBilled };
        return put(reason, rest, &mut Difference::default());
    }
    let any = |is: fn(&Ours) -> bool| bucket.ours.iter().any(|call| is(call));
    if (rest.input, rest.output) != (0, 0) {
        let reason = match () {
            () if any(|call| call.is_left) => Reason::ClientLeft,
            () if any(|call| call.is_estimated) => Reason::Estimated,
            () if !says.calls => {
                if rest.input + rest.output > 0 {
                    Reason::OtherKey
                } else {
                    Reason::NotBilled
                }
            }
            () => Reason::Tokens,
        };
        return put(reason, rest, &mut Difference::default());
    }
    let ours: Vec<&str> = bucket.ours.iter().filter_map(|call| call.tier.as_deref()).collect();
    let reason = match () {
        () if any(|call| call.nano_usd.is_none()) => Reason::NoPrice,
        () if ours.is_empty() != bucket.tiers.is_empty() => Reason::Tier,
        () => Reason::Price,
    };
    put(reason, rest, &mut Difference::default());
}
