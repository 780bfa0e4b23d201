//! What SIGHUP reloads: a list of named parts, each of which reads its files again or keeps what it had.
//!
//! Invariant: a part that fails (or panics) keeps its former values, says why in the log, and does not stop the others.
//! Runs on the thread that waits for signals, never on a core. Knows none of the parts.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use parking_lot::Mutex;
use weir_config::{Change, Changes, Origin};

/// Reads a part's files again; `Ok` says what is in effect now, `Err` why the former values stay.
pub type Reload = Box<dyn Fn() -> Result<String, String> + Send + Sync>;

/// The parts that can be reloaded.
#[derive(Default)]
pub struct Reloaders {
    parts: Mutex<Vec<(&'static str, Reload)>>,
}

impl Reloaders {
    /// Adds a part; `name` stands in the log.
    pub fn add(&self, name: &'static str, reload: impl Fn() -> Result<String, String> + Send + Sync + 'static) {
        self.parts.lock().push((name, Box::new(reload)));
    }

    /// Reloads every part in the order they were added; returns how many failed.
    pub fn reload(&self) -> usize {
        let parts = self.parts.lock();
        let one = |(name, reload): &(&'static str, Reload)| {
            let outcome = catch_unwind(AssertUnwindSafe(reload));
            match outcome.unwrap_or_else(|_| Err("reloading it panicked".to_owned())) {
                Ok(now) => tracing::info!(part = name, now, "reloaded"),
                Err(reason) => {
                    tracing::error!(part = name, reason, "not reloaded; the former values stay in effect");
                    return 1;
                }
            }
            0
        };
        parts.iter().map(one).sum()
    }
}

/// Names every change of a setting in the log: what is in force, what waits for the next start, and what another layer overrules.
pub fn tell(changes: &Changes) {
    for Change { path, from, to } in &changes.in_force {
        tracing::info!(setting = path, from, to, "setting changed: in force");
    }
    for Change { path, from, to } in &changes.next_start {
        tracing::warn!(setting = path, from, to, "setting changed in what is written: takes effect at the next start");
    }
    for (Change { path, from, to }, wins) in &changes.overruled {
        let wins = match wins {
            Origin::Overlay => "the flag that was changed at run time",
            Origin::Cli => "the command line",
            _ => "the environment variable",
        };
        tracing::warn!(
            setting = path,
            from,
            to,
            wins,
            "setting changed in the file: no effect, another layer wins over the file"
        );
    }
}

/// The changes by name, for the audit log.
pub fn detail(changes: &Changes) -> BTreeMap<String, String> {
    let names = |changes: &[Change]| changes.iter().map(|change| change.path).collect::<Vec<_>>().join(", ");
    let rows = [("in_force", names(&changes.in_force)), ("next_start", names(&changes.next_start))];
    rows.into_iter().filter(|(_, names)| !names.is_empty()).map(|(kind, names)| (kind.to_owned(), names)).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_part_that_fails_or_panics_does_not_stop_the_others() {
        let reloaders = Reloaders::default();
        let done = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&done);
        reloaders.add("prices", || Err("line 3: not a number".to_owned()));
        reloaders.add("rules", || panic!("a defect"));
        reloaders.add("certificates", move || {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok("2 certificates".to_owned())
        });
        assert_eq!(reloaders.reload(), 2);
        assert_eq!(reloaders.reload(), 2);
        assert_eq!(done.load(Ordering::SeqCst), 2);
    }
}
