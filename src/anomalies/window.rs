//! The latest values of one kind, and whether a further one is far above them.
//!
//! To the mean and the standard deviation a value that is too far comes clamped to the limit it broke: a lasting shift becomes the
//! ordinary within about a third of the window, and a single spike does not hide the next one. Medians heed no spike; they take
//! values as they are, and a shift becomes the ordinary in half a window. Single values that are mostly small and sometimes large
//! say little about a shift, so the robust method judges the mean of the latest ones, too.

use std::cell::RefCell;

use weir_config::settings::AnomalyMethod;

/// Earlier values without which nothing is judged; fewer where the window is smaller.
const LEAST: usize = 10;
/// Latest values whose mean is judged, too.
const RECENT: usize = 10;
/// The least spread, as a share of what is expected: a series that never changes must not make its first change infinite.
const SPREAD_MIN: f64 = 0.05;
/// A normal distribution's standard deviation for one median absolute deviation.
const SIGMA_OF_MAD: f64 = 1.4826;

/// What values are, which says how much they spread at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Amounts, in units below which nothing counts.
    Amount,
    /// How many there were: by chance alone as many more or fewer as the root of them.
    Count,
}

/// How values are judged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    pub(super) method: AnomalyMethod,
    /// Spreads above the expected from which on a value is too far.
    pub(super) threshold: f64,
    pub(super) kind: Kind,
}

/// A value too far above the others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Above {
    /// What was to be expected.
    pub(super) expected: f64,
    /// From where on a value is too far.
    pub(super) limit: f64,
    /// The distance from the expected in distances of the limit: more than 1.
    pub(super) times: f64,
    /// The mean of the latest values, where not the last one but all of them are too far.
    pub(super) lasting: Option<f64>,
}

/// What the values say about the next one: their middle and their spread, on the scale they are judged on.
#[derive(Debug, Clone, Copy, Default)]
struct Norm {
    middle: f64,
    spread: f64,
}

/// The latest values. Nothing is allocated after the beginning.
#[derive(Debug)]
pub(super) struct Window {
    /// On the scale they are judged on.
    values: Box<[f32]>,
    len: usize,
    next: usize,
    sum: f64,
    squares: f64,
    /// The sum of the latest values that are judged together with the next one.
    lately: f64,
    /// The norm of the robust method, and how many values it is still good for.
    norm: Norm,
    good_for: usize,
}

impl Window {
    pub(super) fn new(size: usize) -> Self {
        let values = vec![0.0; size.max(1)].into_boxed_slice();
        Self { values, len: 0, next: 0, sum: 0.0, squares: 0.0, lately: 0.0, norm: Norm::default(), good_for: 0 }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        (self.len, self.next, self.good_for) = (0, 0, 0);
        (self.sum, self.squares, self.lately) = (0.0, 0.0, 0.0);
    }

    /// Judges `value` (in units, not below 0) by those before it, and keeps it.
    pub(super) fn look(&mut self, value: f64, rule: Rule) -> Option<Above> {
        let value = scaled(value, rule);
        let above = self.judge_scaled(value, rule);
        let clamped = above.filter(|_| rule.method == AnomalyMethod::Sigma);
        // On the scale of this method a limit is what it is.
        self.keep_scaled(clamped.map_or(value, |above| above.limit), rule);
        above
    }

    /// Judges `value` without keeping it.
    pub(super) fn judge(&mut self, value: f64, rule: Rule) -> Option<Above> {
        self.judge_scaled(scaled(value, rule), rule)
    }

    fn judge_scaled(&mut self, value: f64, rule: Rule) -> Option<Above> {
        if self.len < LEAST.min(self.values.len()) {
            return None;
        }
        let Norm { middle, spread } = self.norm(rule);
        let far = rule.threshold * spread;
        let above = |distance: f64, far: f64, lasting: Option<f64>| {
            (distance > far).then(|| Above {
                expected: unscaled(middle, rule),
                limit: unscaled(middle + far, rule),
                times: distance / far,
                lasting: lasting.map(|mean| unscaled(mean, rule)),
            })
        };
        above(value - middle, far, None).or_else(|| {
            let recent = self.recent(value, rule)?;
            above(recent - middle, far / (RECENT as f64).sqrt(), Some(recent))
        })
    }

    /// The mean of `value`, on its scale, and those before it, where it is judged.
    fn recent(&self, value: f64, rule: Rule) -> Option<f64> {
        if !judges_latest(rule) || self.len < RECENT {
            return None;
        }
        Some((value + self.lately) / RECENT as f64)
    }

    /// Keeps `value`.
    pub(super) fn keep(&mut self, value: f64, rule: Rule) {
        self.keep_scaled(scaled(value, rule), rule);
    }

    fn keep_scaled(&mut self, value: f64, rule: Rule) {
        let value = value as f32;
        if judges_latest(rule) {
            self.lately += f64::from(value) - self.leaving();
        }
        let Some(slot) = self.values.get_mut(self.next) else { return };
        let former = f64::from(std::mem::replace(slot, value));
        let value = f64::from(value);
        if self.len == self.values.len() {
            self.sum -= former;
            self.squares -= former * former;
        } else {
            self.len += 1;
        }
        self.sum += value;
        self.squares += value * value;
        self.good_for = self.good_for.saturating_sub(1);
        self.next += 1;
        if self.next == self.values.len() {
            self.next = 0;
            // What rounding has added up ends with every round.
            self.sum = self.values.iter().map(|value| f64::from(*value)).sum();
            self.squares = self.values.iter().map(|value| f64::from(*value).powi(2)).sum();
            self.lately = self.values.iter().rev().take(RECENT - 1).map(|value| f64::from(*value)).sum();
        }
    }

    /// The value that the next one takes the place of among the latest.
    fn leaving(&self) -> f64 {
        let (size, back) = (self.values.len(), RECENT - 1);
        let at = if self.next >= back { self.next - back } else { (self.next + size).saturating_sub(back) };
        if self.len < back { 0.0 } else { self.values.get(at).map_or(0.0, |value| f64::from(*value)) }
    }

    fn norm(&mut self, rule: Rule) -> Norm {
        match rule.method {
            AnomalyMethod::Sigma => {
                let mean = self.sum / self.len as f64;
                let deviation = (self.squares / self.len as f64 - mean * mean).max(0.0).sqrt();
                let by_chance = if rule.kind == Kind::Count { mean.max(0.0).sqrt() } else { 0.0 };
                let least = (mean * SPREAD_MIN).max(1.0).max(by_chance);
                Norm { middle: mean, spread: deviation.max(least) }
            }
            AnomalyMethod::Robust => {
                if self.good_for == 0 {
                    self.norm = robust(self.values.get(..self.len).unwrap_or_default(), rule.kind);
                    self.good_for = (self.len / 10).max(1);
                }
                self.norm
            }
        }
    }
}

/// Whether the mean of the latest values is judged, too.
fn judges_latest(rule: Rule) -> bool {
    rule.method == AnomalyMethod::Robust && rule.kind == Kind::Amount
}

/// Median, and median absolute deviation, of logarithms.
fn robust(values: &[f32], kind: Kind) -> Norm {
    thread_local! {
        static ROOM: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
    }
    let (middle, spread) = ROOM.with_borrow_mut(|room| {
        room.clear();
        // Logarithms of one and more are not below 0, and such numbers are in the order of their bits.
        room.extend(values.iter().map(|value| value.to_bits()));
        let middle = median(room);
        room.iter_mut().for_each(|value| *value = (f32::from_bits(*value) - middle).abs().to_bits());
        (f64::from(middle), f64::from(median(room)) * SIGMA_OF_MAD)
    });
    let by_chance = if kind == Kind::Count { (-middle / 2.0).exp() } else { 0.0 };
    Norm { middle, spread: spread.max((1.0 + SPREAD_MIN).ln()).max(by_chance) }
}

/// Of numbers that are not below 0, each as its bits.
fn median(values: &mut [u32]) -> f32 {
    if values.is_empty() {
        return 0.0;
    }
    let at = values.len() / 2;
    f32::from_bits(*values.select_nth_unstable(at).1)
}

/// A value on the scale it is judged on: as it is, or the logarithm of one unit more.
fn scaled(value: f64, rule: Rule) -> f64 {
    match rule.method {
        AnomalyMethod::Sigma => value,
        AnomalyMethod::Robust => value.max(0.0).ln_1p(),
    }
}

fn unscaled(value: f64, rule: Rule) -> f64 {
    match rule.method {
        AnomalyMethod::Sigma => value,
        AnomalyMethod::Robust => value.exp_m1(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The mean of the latest ten that is kept agrees with one made from scratch, at any place of the ring.
        #[test]
        fn the_mean_of_the_latest_is_what_it_is(
            size in RECENT..40_usize,
            values in proptest::collection::vec(0.0f64..1e6, RECENT..200),
        ) {
            let rule = Rule { method: AnomalyMethod::Robust, threshold: 3.0, kind: Kind::Amount };
            let mut window = Window::new(size);
            for (at, value) in values.iter().enumerate() {
                let latest = values[..=at].iter().rev().take(RECENT).map(|value| scaled(*value, rule));
                let expected = latest.sum::<f64>() / RECENT as f64;
                if let Some(recent) = window.recent(scaled(*value, rule), rule) {
                    prop_assert!((recent - expected).abs() < 1e-4, "{recent} and not {expected}");
                } else {
                    prop_assert!(at < RECENT);
                }
                window.keep(*value, rule);
            }
        }
    }
}
