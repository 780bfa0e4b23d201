//! How sure a figure is: the bootstrap over rounds.
//!
//! Answers of one round are no independent samples of anything (they share the machine's mood), rounds nearly are; so rounds are drawn
//! again, with all their answers, and the middle 95 % of what comes out is the interval.

use serde::{Deserialize, Serialize};

use crate::arrivals::Random;

const DRAWS: usize = 1000;

/// A figure, and between which ones it is with 95 % confidence.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Interval {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// The interval of what `figure` makes of a choice of `rounds` rounds. Always the same for the same rounds.
pub(crate) fn interval(rounds: usize, figure: impl Fn(&[usize]) -> Option<f64>) -> Option<Interval> {
    interval_of_two(rounds, rounds, |one, _| figure(one))
}

/// The same for a figure made of the rounds of two runs, which are drawn apart.
pub(crate) fn interval_of_two(
    first: usize,
    second: usize,
    figure: impl Fn(&[usize], &[usize]) -> Option<f64>,
) -> Option<Interval> {
    let (all_first, all_second): (Vec<usize>, Vec<usize>) = ((0..first).collect(), (0..second).collect());
    let value = figure(&all_first, &all_second)?;
    let mut random = Random::new(0xb007);
    let mut drawn: Vec<f64> = (0..DRAWS)
        .filter_map(|_| {
            let one: Vec<usize> = (0..first).map(|_| random.below(first)).collect();
            let other: Vec<usize> = (0..second).map(|_| random.below(second)).collect();
            figure(&one, &other)
        })
        .collect();
    drawn.sort_by(f64::total_cmp);
    let at =
        |share: f64| drawn.get(((drawn.len() as f64 * share) as usize).min(drawn.len().saturating_sub(1))).copied();
    Some(Interval { value, low: at(0.025)?, high: at(0.975)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_holds_the_figure_and_narrows_with_rounds() {
        let width = |rounds: usize| {
            let values: Vec<f64> = (0..rounds).map(|round| 100.0 + (round * 7 % 5) as f64).collect();
            let mean =
                |chosen: &[usize]| Some(chosen.iter().map(|round| values[*round]).sum::<f64>() / chosen.len() as f64);
            let found = interval(rounds, mean).unwrap();
            assert!(found.low <= found.value && found.value <= found.high);
            assert_eq!(interval(rounds, mean), Some(found), "it is the same each time");
            found.high - found.low
        };
        assert!(width(50) < width(5) / 2.0);
        assert_eq!(interval(3, |_| None), None);
    }
}
