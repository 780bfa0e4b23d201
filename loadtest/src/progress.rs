//! How far a run is, on standard error: one line that changes in a terminal, a line for each measurement elsewhere.

use std::cell::RefCell;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use super::tally::Tally;

/// Tells how far a run is.
pub(super) struct Progress {
    quiet: bool,
    terminal: bool,
    began: Instant,
    length: Duration,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    done: usize,
    all: usize,
    /// What is measured now.
    now: String,
}

impl Progress {
    pub(super) fn new(quiet: bool, length: Duration) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Self { quiet, terminal, began: Instant::now(), length, state: RefCell::default() }
    }

    /// So many measurements are to come, more or less.
    pub(super) fn expect(&self, all: usize) {
        self.state.borrow_mut().all = all;
    }

    /// A measurement begins.
    pub(super) fn begin(&self, now: String) {
        self.state.borrow_mut().now = now;
        self.line("", false);
    }

    /// What the measurement under way has counted so far.
    pub(super) fn tell(&self, tally: &Tally, elapsed: Duration) {
        if self.terminal {
            self.line(&counted(tally, elapsed), false);
        }
    }

    /// The measurement is over.
    pub(super) fn end(&self, tally: &Tally, elapsed: Duration) {
        self.state.borrow_mut().done += 1;
        self.line(&counted(tally, elapsed), true);
    }

    /// Something beside the measurements.
    pub(super) fn note(&self, text: &str) {
        if !self.quiet {
            self.write(&format!("{}{text}\n", if self.terminal { "\r\x1b[K" } else { "" }));
        }
    }

    fn line(&self, counted: &str, is_end: bool) {
        if self.quiet || !(self.terminal || is_end) {
            return;
        }
        let state = self.state.borrow();
        let left = self.length.saturating_sub(self.began.elapsed()).as_secs();
        let head = format!("[{}/{}] {}: {counted}", state.done, state.all, state.now);
        match self.terminal {
            true => self.write(&format!("\r\x1b[K{head}  about {left} s left")),
            false => self.write(&format!("{head}\n")),
        }
    }

    /// Ends the line that changes.
    pub(super) fn finish(&self) {
        if self.terminal && !self.quiet {
            self.write("\r\x1b[K");
        }
    }

    fn write(&self, text: &str) {
        // Nowhere is left to report a broken standard error to.
        drop(std::io::stderr().write_all(text.as_bytes()));
    }
}

fn counted(tally: &Tally, elapsed: Duration) -> String {
    let answers = tally.answered();
    let failures: u64 = tally.failures.values().sum::<u64>() + tally.unsent;
    let p50 = tally.latency.histogram().map_or(0.0, |times| times.value_at_quantile(0.5) as f64 / 1e6);
    let per_s = answers as f64 / elapsed.as_secs_f64().max(1e-3);
    let failed = if failures > 0 { format!(", {failures} FAILED") } else { String::new() };
    format!("{answers} answers, {per_s:.0}/s, p50 {p50:.2} ms{failed}")
}
