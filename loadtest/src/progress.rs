//! How far a run is, on standard error: one line that changes in a terminal, a line for each measurement elsewhere.

use std::cell::RefCell;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use super::settings::Settings;
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

    /// So many measurements are to come.
    pub(super) fn expect(&self, all: usize) {
        self.state.borrow_mut().all = all;
    }

    /// A measurement begins.
    pub(super) fn begin(&self, now: String) {
        self.state.borrow_mut().now = now;
        self.line("", false);
    }

    /// What the measurement under way has counted so far.
    pub(super) fn tell(&self, tally: &Tally, elapsed: Duration, settings: &Settings) {
        if self.terminal {
            self.line(&counted(tally, elapsed, settings), false);
        }
    }

    /// The measurement is over.
    pub(super) fn end(&self, tally: &Tally, elapsed: Duration, settings: &Settings) {
        self.state.borrow_mut().done += 1;
        self.line(&counted(tally, elapsed, settings), true);
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
        // How many rates a ramp tries is not known before its end.
        let of = if state.all > 0 { format!("/{}", state.all) } else { String::new() };
        let head = format!("[{}{of}] {}: {counted}", state.done, state.now);
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

fn counted(tally: &Tally, elapsed: Duration, settings: &Settings) -> String {
    let answers = tally.answered();
    let per_s = answers as f64 / elapsed.as_secs_f64().max(1e-3);
    let p50 = tally.latency.histogram().map(|times| times.value_at_quantile(0.5) as f64 / 1e6);
    let p50 = p50.map_or(", none as expected".to_owned(), |p50| format!(", p50 {p50:.2} ms"));
    let errors: Vec<String> =
        tally.errors(settings).into_iter().map(|(name, count)| format!("{name}: {count}")).collect();
    let failed = match errors.is_empty() {
        true => String::new(),
        false => format!(", {} FAILED ({})", tally.failed(settings), errors.join(", ")),
    };
    format!("{answers} answers, {per_s:.0}/s{p50}{failed}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::settings;

    #[test]
    fn refusals_are_told_as_failures_and_have_no_latency() {
        let mut tally = Tally::new(0);
        tally.statuses.insert(401, 200);
        let told = counted(&tally, Duration::from_secs(1), &settings());
        assert_eq!(told, "200 answers, 200/s, none as expected, 200 FAILED (status 401: 200)");
        tally.statuses.insert(200, 10);
        tally.latency.add(Duration::from_millis(2));
        let told = counted(&tally, Duration::from_secs(1), &settings());
        assert_eq!(told, "210 answers, 210/s, p50 2.00 ms, 200 FAILED (status 401: 200)");
    }
}
