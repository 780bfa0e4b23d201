//! The norm of the robust method: median, and median absolute deviation, of logarithms or roots.
//!
//! A tenant's values are in no order that a processor could foresee, which makes sorting them, even in part, expensive. What is asked
//! for lies close to where it lay ten values ago, so it is looked for from there on: all values are compared with one, eight at a
//! time and without a branch, then with the next one above or below. Only where it has moved far are they sorted in part.

use std::cell::RefCell;

/// The least spread, as a share of what is expected: a series that never changes must not make its first change infinite.
pub(super) const SPREAD_MIN: f32 = 0.05;
/// A normal distribution's standard deviation for one median absolute deviation.
const SIGMA_OF_MAD: f32 = 1.4826;
/// Parts of the former spread that values are rounded to in a search, and how many of them one may be off.
const PARTS: f32 = 2_000.0;
const REACH: i16 = 16_000;
/// Values gone through in a search.
const STEPS: u32 = 12;
/// Values compared at a time: as many as fit into a register of 128 bits, which every x86-64 and ARM processor has.
const LANES: usize = 8;

/// What values are, which says how much they spread at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Amounts, in units below which nothing counts.
    Amount,
    /// How many there were: by chance alone as many more or fewer as the root of them, which is one on the scale of roots.
    Count,
}

/// What values say about the next one: their middle and their spread, on the scale they are judged on.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Norm {
    pub(super) middle: f32,
    pub(super) spread: f32,
}

thread_local! {
    static ROUNDED: RefCell<Vec<i16>> = const { RefCell::new(Vec::new()) };
    static EXACT: RefCell<Vec<u32>> = const { RefCell::new(Vec::new()) };
}

/// The norm of `values`, which was `former` a few values ago.
pub(super) fn robust(values: &[f32], former: Norm, kind: Kind) -> Norm {
    searched(values, former, kind).unwrap_or_else(|| sorted(values, kind))
}

/// The least spread around this middle.
fn least_spread(middle: f32, kind: Kind) -> f32 {
    match kind {
        Kind::Amount => SPREAD_MIN.ln_1p(),
        // A share of what is expected is half that share of its root.
        Kind::Count => (middle * SPREAD_MIN / 2.0).max(1.0),
    }
}

/// The norm from values that are sorted in part, twice.
fn sorted(values: &[f32], kind: Kind) -> Norm {
    let median = |values: &mut [u32]| match values.len() / 2 {
        0 => values.first().map_or(0.0, |value| f32::from_bits(*value)),
        at => f32::from_bits(*values.select_nth_unstable(at).1),
    };
    EXACT.with_borrow_mut(|room| {
        room.clear();
        // Neither logarithms of one and more nor roots are below 0, and such numbers are in the order of their bits.
        room.extend(values.iter().map(|value| value.to_bits()));
        let middle = median(room);
        room.iter_mut().for_each(|value| *value = (f32::from_bits(*value) - middle).abs().to_bits());
        Norm { middle, spread: least_spread(middle, kind).max(SIGMA_OF_MAD * median(room)) }
    })
}

/// The norm, to a part of the former spread. `None` where it has moved too far.
fn searched(values: &[f32], former: Norm, kind: Kind) -> Option<Norm> {
    if former.spread <= 0.0 {
        return None;
    }
    let (part, parts) = (former.spread / PARTS, PARTS / former.spread);
    let reach = f32::from(REACH);
    ROUNDED.with_borrow_mut(|room| {
        room.clear();
        room.extend(values.iter().map(|value| ((value - former.middle) * parts).clamp(-reach, reach) as i16));
        // What fills the last register up is above all others, and stays there.
        room.resize(values.len().next_multiple_of(LANES), i16::MAX);
        let rank = values.len() / 2;
        let off = ranked(room, rank, 0, -REACH)?;
        let middle = former.middle + f32::from(off) * part;
        room.iter_mut().for_each(|value| *value = value.saturating_sub(off).saturating_abs());
        let least = least_spread(middle, kind);
        let near = (PARTS / SIGMA_OF_MAD) as i16;
        let deviation = ranked(room, rank, near, (least / SIGMA_OF_MAD * parts).min(reach) as i16)?;
        // Values that were cut off are at least so far from the middle; how much farther, nobody can tell any more.
        let told = REACH - off.saturating_abs();
        (deviation < told).then(|| Norm { middle, spread: least.max(SIGMA_OF_MAD * f32::from(deviation) * part) })
    })
}

/// The value of this rank (0: the smallest), looked for from `near` on; `least` where it is not above that. `None` where it is
/// not found in a few steps, or too far away to be told from others.
fn ranked(values: &[i16], rank: usize, near: i16, least: i16) -> Option<i16> {
    let mut here = near.max(least);
    let (mut above, mut next) = count_above(values, here);
    let mut steps = 0..STEPS;
    if values.len() - above <= rank {
        while values.len() - above <= rank {
            steps.next()?;
            here = next;
            (above, next) = count_above(values, here);
        }
        return (here < REACH).then_some(here);
    }
    while here > least {
        let (below, next) = count_below(values, here);
        if below <= rank {
            return Some(here);
        }
        steps.next()?;
        here = next;
    }
    // Without a least value that counts, this is only where values are cut off.
    (least > -REACH).then_some(least)
}

/// How many values are above `here`, and the smallest of them.
fn count_above(values: &[i16], here: i16) -> (usize, i16) {
    // Distances from the first number above, turned so that values not above it are the farthest.
    let first = here.wrapping_add(1).wrapping_add(i16::MIN);
    let (count, nearest) = counted(values, |value| (value > here, value.wrapping_sub(first)));
    (count, nearest.wrapping_add(first))
}

/// How many values are below `here`, and the largest of them.
fn count_below(values: &[i16], here: i16) -> (usize, i16) {
    let first = here.wrapping_sub(1).wrapping_add(i16::MIN);
    let (count, nearest) = counted(values, |value| (value < here, first.wrapping_sub(value)));
    (count, first.wrapping_sub(nearest))
}

/// How many values are wanted, and the smallest distance: a lane for each value in a register, so that the compiler compares all
/// of them with one instruction. A lane counts up to 1,250, in a window of 10,000.
#[inline(always)]
fn counted(values: &[i16], seen: impl Fn(i16) -> (bool, i16)) -> (usize, i16) {
    let (mut counts, mut nearest) = ([0_i16; LANES], [i16::MAX; LANES]);
    for lanes in values.as_chunks::<LANES>().0 {
        for ((count, nearest), value) in counts.iter_mut().zip(&mut nearest).zip(lanes) {
            let (wanted, distance) = seen(*value);
            *count += i16::from(wanted);
            *nearest = (*nearest).min(distance);
        }
    }
    let count = counts.iter().map(|count| usize::from(count.unsigned_abs())).sum();
    (count, nearest.iter().copied().min().unwrap_or(i16::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However the values have moved, the norm is that of the sorted ones.
        #[test]
        fn a_norm_that_was_searched_is_that_of_the_sorted_values(
            values in proptest::collection::vec(0.0f32..20.0, 10..300),
            scale in prop_oneof![Just(0.0f32), 0.001..1.0f32],
            moved in prop_oneof![Just(0.0f32), -9.0..9.0f32],
            wider in 0.2f32..5.0,
            kind in prop_oneof![Just(Kind::Amount), Just(Kind::Count)],
        ) {
            let values: Vec<f32> = values.iter().map(|value| 10.0 + (value - 10.0) * scale).collect();
            let exact = sorted(&values, kind);
            let former = Norm { middle: exact.middle + moved * exact.spread, spread: exact.spread * wider };
            let found = robust(&values, former, kind);
            let part = former.spread / PARTS;
            prop_assert!((found.middle - exact.middle).abs() <= part + 1e-5, "{found:?} and not {exact:?}");
            prop_assert!((found.spread - exact.spread).abs() <= 3.0 * part + 1e-5, "{found:?} and not {exact:?}");
        }
    }

    /// Values beyond what a search can tell apart are not taken for near ones.
    #[test]
    fn a_middle_at_the_edge_of_the_search_has_its_own_spread() {
        let values = [0.6, 0.6, 0.6, 0.6, 8.6, 3.9, 5.8, 5.4, 3.3, 11.3];
        let exact = sorted(&values, Kind::Amount);
        for parts in [7.0, 7.9, 7.99, 8.1] {
            for towards in [-1.0, 1.0] {
                let former = Norm { middle: exact.middle + towards * parts * exact.spread, spread: exact.spread };
                let found = robust(&values, former, Kind::Amount);
                assert!((found.spread - exact.spread).abs() < 0.01, "{parts}: {found:?} and not {exact:?}");
            }
        }
    }

    /// Where little has changed, nothing is sorted: that is what a decision may cost no more.
    #[test]
    fn a_norm_that_has_moved_little_is_found_by_searching() {
        let value = |number: u32| 7.0 + (number.wrapping_mul(2_654_435_761) >> 16) as f32 / 65_536.0;
        let window = |from: u32| (from..from + 100).map(value).collect::<Vec<f32>>();
        let mut norm = sorted(&window(0), Kind::Amount);
        for from in (10..10_000).step_by(10) {
            let found = searched(&window(from), norm, Kind::Amount);
            norm = found.unwrap_or_else(|| panic!("sorted at {from}"));
        }
    }
}
