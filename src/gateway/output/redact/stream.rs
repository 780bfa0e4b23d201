//! The tap on a stream out of which something is taken; another tap may look at it, too.

use bytes::Bytes;
use weir_inference::Taking;

use super::redactor::Redactor;
use crate::rewrite::{Framed, LateVerdict, Redaction, Tap, Verdict};

/// The tap.
pub(crate) struct RedactStream {
    redactor: Redactor,
    /// Whoever may stop it. It sees what the provider said.
    other: Option<Box<dyn Tap>>,
}

impl RedactStream {
    pub(crate) fn new(framed: Framed, taking: Taking, other: Option<Box<dyn Tap>>) -> Self {
        Self { redactor: Redactor::new(framed, taking), other }
    }

    /// What both say.
    fn both(&self, other: Verdict) -> Verdict {
        let waiting = self.redactor.waiting();
        match other {
            Verdict::Pass if waiting == 0 => Verdict::Pass,
            Verdict::Pass => Verdict::Hold(waiting),
            Verdict::Hold(frames) => Verdict::Hold(frames.max(waiting)),
            Verdict::Stop | Verdict::Later => other,
        }
    }
}

impl Tap for RedactStream {
    fn look(&mut self, frame: &[u8]) -> Verdict {
        self.redactor.read(&Bytes::copy_from_slice(frame));
        let other = self.other.as_mut().map_or(Verdict::Pass, |other| other.look(frame));
        self.both(other)
    }

    fn end(&mut self) -> Verdict {
        self.redactor.end();
        let other = self.other.as_mut().map_or(Verdict::Pass, |other| other.end());
        self.both(other)
    }

    fn answer(&mut self) -> LateVerdict<'_> {
        Box::pin(async {
            let other = match &mut self.other {
                Some(other) => other.answer().await,
                None => Verdict::Pass,
            };
            self.both(other)
        })
    }

    fn pass(&mut self, frame: Bytes) -> Bytes {
        self.redactor.pass(frame)
    }

    fn redaction(&self) -> Redaction {
        self.redactor.redaction()
    }

    fn warning(&self) -> &str {
        self.other.as_ref().map_or("", |other| other.warning())
    }

    fn missed(&self) -> Option<&'static str> {
        self.other.as_ref().and_then(|other| other.missed())
    }
}
