//! A pattern as a small program of words and gaps, for a search that goes back and remembers where it has been.
//!
//! Rules ask for some words, some distance of each other. A lazy automaton of such a pattern makes a state for each way to count those
//! distances: in a text made to be dear one for each byte, 200 KB in a single run, and each thread makes its own. A program is made once
//! for all threads, takes a few kilobytes, counts a distance by subtraction and grows by nothing. Its search takes each step at each
//! place once at most (selective memoization as in Davis, Servant and Lee, IEEE S&P 2021), so that it is linear, and says how many steps
//! it took. Invariant: a program matches where the pattern does, with the same preferences (leftmost, then the branch that is written
//! first); one that cannot be written so is no program.

mod draft;
mod search;
mod steps;

pub(crate) use search::SearchScratch;
pub(crate) use steps::{PADDING, Program};

#[cfg(test)]
mod tests;
