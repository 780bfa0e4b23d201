//! A toy tap: stops an answer that is longer than so many bytes. Events pass until then, documents wait for their end.

use weir::rewrite::{Tap, Verdict};
use weir_config::Settings;

/// Bytes of an answer that may pass.
pub(crate) const LONGEST: usize = 2_000;

/// What the client is told.
pub(crate) const WARNING: &str = "The toy tap has heard enough.";

/// What stands in the line of registration.
pub(super) fn make(_: &Settings) -> Option<Box<dyn Tap>> {
    Some(Box::new(ToyTap { seen: 0 }))
}

struct ToyTap {
    seen: usize,
}

impl Tap for ToyTap {
    fn look(&mut self, frame: &[u8]) -> Verdict {
        self.seen += frame.len();
        match frame {
            _ if self.seen > LONGEST => Verdict::Stop,
            [b'd' | b'e', ..] => Verdict::Pass,
            _ => Verdict::Hold(usize::MAX),
        }
    }

    fn warning(&self) -> &str {
        WARNING
    }
}
