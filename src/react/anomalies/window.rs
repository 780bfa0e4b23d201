//! The latest values of one kind, and whether a further one is far above them.
//!
//! To the mean and the standard deviation a value that is too far comes clamped to the limit it broke: a lasting shift becomes the
//! ordinary within about a third of the window, and a single spike does not hide the next one. Medians heed no spike; they take
//! values as they are, and a shift becomes the ordinary in half a window. Single values that are mostly small and sometimes large
//! say little about a shift, so the robust method judges the mean of the latest ones, too.

use weir_config::settings::AnomalyMethod;

use super::norm::{Kind, Norm, SPREAD_MIN, robust};

/// Earlier values without which nothing is judged; fewer where the window is smaller.
const LEAST: usize = 10;
/// Latest values whose mean is judged, too.
const RECENT: usize = 10;

/// What is added to a count before its root is taken.
const ANSCOMBE: f64 = 0.375;

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

/// The latest values. Nothing is allocated after the beginning.
///
/// Where there are thousands of tenants, none of this lies in a cache. What the robust method needs for every value therefore fills
/// the first line; the ring is read and written when the norm is made anew, once in ten values.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Window {
    /// The norm of the robust method, and how many values it is still good for.
    norm: Norm,
    good_for: u16,
    /// Where the next value goes among the latest, and how many of those before are not in the ring yet.
    at: u8,
    waiting: u8,
    len: u32,
    /// The sum of the latest values that are judged together with the next one.
    lately: f64,
    latest: [f32; RECENT],

    /// All values, on the scale they are judged on.
    ring: Box<[f32]>,
    next: usize,
    sum: f64,
    squares: f64,
}

impl Window {
    pub(super) fn new(size: usize) -> Self {
        Self::of(vec![0.0; size.max(1)].into_boxed_slice())
    }

    fn of(ring: Box<[f32]>) -> Self {
        let latest = [0.0; RECENT];
        let norm = Norm::default();
        Self {
            norm,
            good_for: 0,
            at: 0,
            waiting: 0,
            len: 0,
            lately: 0.0,
            latest,
            ring,
            next: 0,
            sum: 0.0,
            squares: 0.0,
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        *self = Self::of(std::mem::take(&mut self.ring));
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
        if self.good_for == 0 && (self.len as usize) < LEAST.min(self.ring.len()) {
            return None;
        }
        let (middle, spread) = self.norm(rule);
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
        if !judges_latest(rule) || (self.len as usize) < RECENT {
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
        match rule.method {
            AnomalyMethod::Sigma => self.add_up(value),
            AnomalyMethod::Robust => self.wait(value),
        }
    }

    /// Keeps a value and the sums.
    fn add_up(&mut self, value: f32) {
        let former = f64::from(self.enter(value));
        let value = f64::from(value);
        self.sum += value - former;
        self.squares += value * value - former * former;
        if self.next == 0 {
            // What rounding has added up ends with every round.
            self.sum = self.ring.iter().map(|value| f64::from(*value)).sum();
            self.squares = self.ring.iter().map(|value| f64::from(*value).powi(2)).sum();
        }
    }

    /// Keeps a value beside the ring until the norm is due, or there is no more room for it.
    fn wait(&mut self, value: f32) {
        let Some(slot) = self.latest.get_mut(usize::from(self.at)) else { return };
        *slot = value;
        self.at = (self.at + 1) % RECENT as u8;
        // The next value is judged together with all of these but the oldest.
        let oldest = self.latest.get(usize::from(self.at)).copied().unwrap_or_default();
        self.lately += f64::from(value) - f64::from(oldest);
        self.waiting += 1;
        self.good_for = self.good_for.saturating_sub(1);
        if self.good_for > 0 && usize::from(self.waiting) < RECENT {
            return;
        }
        for back in (1..=usize::from(std::mem::take(&mut self.waiting))).rev() {
            let at = (usize::from(self.at) + RECENT - back) % RECENT;
            let value = self.latest.get(at).copied().unwrap_or_default();
            self.enter(value);
        }
        // What rounding has added up ends here.
        self.lately = self.latest.iter().map(|value| f64::from(*value)).sum::<f64>() - f64::from(oldest);
    }

    /// Puts a value into the ring: the one whose place it takes, else 0.
    fn enter(&mut self, value: f32) -> f32 {
        let Some(slot) = self.ring.get_mut(self.next) else { return 0.0 };
        let former = std::mem::replace(slot, value);
        self.next = if self.next + 1 == self.ring.len() { 0 } else { self.next + 1 };
        if self.len as usize == self.ring.len() {
            return former;
        }
        self.len += 1;
        0.0
    }

    /// The middle and the spread.
    fn norm(&mut self, rule: Rule) -> (f64, f64) {
        match rule.method {
            AnomalyMethod::Sigma => {
                let count = f64::from(self.len);
                let mean = self.sum / count;
                let deviation = (self.squares / count - mean * mean).max(0.0).sqrt();
                let by_chance = if rule.kind == Kind::Count { mean.max(0.0).sqrt() } else { 0.0 };
                let least = (mean * f64::from(SPREAD_MIN)).max(1.0).max(by_chance);
                (mean, deviation.max(least))
            }
            AnomalyMethod::Robust => {
                if self.good_for == 0 {
                    let len = self.len as usize;
                    self.norm = robust(self.ring.get(..len).unwrap_or_default(), self.norm, rule.kind);
                    self.good_for = u16::try_from(len / 10).unwrap_or(u16::MAX).max(1);
                }
                (f64::from(self.norm.middle), f64::from(self.norm.spread))
            }
        }
    }
}

/// Whether the mean of the latest values is judged, too.
fn judges_latest(rule: Rule) -> bool {
    rule.method == AnomalyMethod::Robust && rule.kind == Kind::Amount
}

/// A value on the scale it is judged on: as it is; the logarithm of one unit more; or, for how many there were, twice the root, on
/// which counting by chance spreads by one whatever is to be expected (Anscombe 1948).
fn scaled(value: f64, rule: Rule) -> f64 {
    match (rule.method, rule.kind) {
        (AnomalyMethod::Sigma, _) => value,
        (AnomalyMethod::Robust, Kind::Amount) => (1.0 + value.max(0.0)).ln(),
        (AnomalyMethod::Robust, Kind::Count) => 2.0 * (value.max(0.0) + ANSCOMBE).sqrt(),
    }
}

fn unscaled(value: f64, rule: Rule) -> f64 {
    match (rule.method, rule.kind) {
        (AnomalyMethod::Sigma, _) => value,
        (AnomalyMethod::Robust, Kind::Amount) => value.exp_m1(),
        (AnomalyMethod::Robust, Kind::Count) => (value / 2.0).powi(2) - ANSCOMBE,
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
