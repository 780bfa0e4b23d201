//! A bar on standard error while a long scan runs, where somebody may look at it: standard error is a terminal and the work has
//! lasted for a second. A few lines of our own: one bar needs none of the threads, templates and terminal tables of a crate for it.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Shorter work needs no bar.
const QUIET: Duration = Duration::from_secs(1);
/// How often it is drawn.
const PAUSE: Duration = Duration::from_millis(100);
/// Characters of the bar itself.
const WIDTH: u64 = 30;

/// How far the work has come.
pub(in crate::app::cli) struct Progress {
    /// When it is drawn next; `None` where nobody looks.
    due: Option<Instant>,
    drawn: bool,
    /// Bytes there are, as far as is known.
    total: u64,
    done: u64,
    files: u64,
    /// What is counted, where that is not bytes of files.
    counted: Option<&'static str>,
}

impl Progress {
    pub(in crate::app::cli) fn new() -> Self {
        let due = std::io::stderr().is_terminal().then(|| Instant::now() + QUIET);
        Self { due, drawn: false, total: 0, done: 0, files: 0, counted: None }
    }

    /// One that counts things by this name instead of bytes.
    pub(in crate::app::cli) fn counting(things: &'static str) -> Self {
        Self { counted: Some(things), ..Self::new() }
    }

    /// Whether anybody looks.
    pub(super) fn is_shown(&self) -> bool {
        self.due.is_some()
    }

    /// There are so many more.
    pub(in crate::app::cli) fn expect(&mut self, bytes: u64) {
        self.total += bytes;
    }

    /// So many more were looked at.
    pub(in crate::app::cli) fn advance(&mut self, bytes: u64) {
        self.done += bytes;
        let now = Instant::now();
        if self.due.is_some_and(|due| now >= due) {
            self.due = Some(now + PAUSE);
            self.drawn = true;
            drop(write!(std::io::stderr(), "\r\x1b[K{}", self.said()));
        }
    }

    fn said(&self) -> String {
        match self.counted {
            Some(things) => format!("{} of {} {things}", self.done, self.total.max(self.done)),
            None => line(self.done, self.total, self.files),
        }
    }

    /// A file is done.
    pub(super) fn file(&mut self) {
        self.files += 1;
        self.advance(0);
    }

    /// Takes the bar away, so that a line can be written.
    pub(in crate::app::cli) fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            drop(write!(std::io::stderr(), "\r\x1b[K"));
        }
    }
}

fn line(done: u64, total: u64, files: u64) -> String {
    const MIB: u64 = 1 << 20;
    let full = (done.min(total) * WIDTH).checked_div(total).unwrap_or(0);
    let bar: String = (0..WIDTH).map(|at| if at < full { '#' } else { '.' }).collect();
    match total {
        // Standard input does not say how long it is.
        0 => format!("{} MiB, {files} files", done / MIB),
        _ => format!(
            "[{bar}] {:>3} %, {} of {} MiB, {files} files",
            done.min(total) * 100 / total,
            done / MIB,
            total / MIB
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{Instant, Progress, line};

    #[test]
    fn what_is_counted_is_drawn_when_it_is_due_and_where_somebody_looks() {
        let mut unseen = Progress { due: None, ..Progress::counting("spans") };
        unseen.expect(5);
        unseen.advance(2);
        assert!(!unseen.drawn && unseen.said() == "2 of 5 spans");
        let mut seen = Progress { due: Some(Instant::now()), ..Progress::counting("spans") };
        seen.expect(5);
        seen.advance(2);
        assert!(seen.drawn);
        // More may come than were expected.
        seen.advance(4);
        assert_eq!(seen.said(), "6 of 6 spans");
        seen.clear();
        assert!(!seen.drawn);
    }

    #[test]
    fn says_how_far_the_work_has_come() {
        assert_eq!(line(5 << 20, 20 << 20, 3), "[#######.......................]  25 %, 5 of 20 MiB, 3 files");
        assert_eq!(line(30 << 20, 20 << 20, 3), "[##############################] 100 %, 30 of 20 MiB, 3 files");
        assert_eq!(line(5 << 20, 0, 0), "5 MiB, 0 files");
    }
}
