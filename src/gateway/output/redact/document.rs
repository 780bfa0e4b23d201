//! The tap on a document out of which something is taken: it is held, and goes on as one piece.
//!
//! Invariant: at most [`HOLD_BYTES_MAX`] bytes wait, and they stand in the budget for bodies; what is longer, or takes longer than
//! analysis may, passes as it came and is said.

use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_channel::oneshot;
use weir_config::vocab::TenantId;
use weir_inference::{Job, Lane, Taking, Turn, Work};

use super::super::body::{Body, is_binary, sniffed};
use super::redactor::Redactor;
use crate::limits::INLINE_TEXT_BYTES_MAX;
use crate::observe::AnswerKind;
use crate::process::Core;
use crate::record::Permit;
use crate::rewrite::{Framed, HOLD_BYTES_MAX, LateVerdict, Redaction, Tap, Verdict};
use crate::rt;
use crate::settle::inspection::survive;
use crate::settle::journal::Journal;

/// What has come of it.
enum State {
    /// It is read.
    Coming(BytesMut),
    /// It goes on like this; nothing once it has gone.
    Ready(Bytes),
    /// It goes on as it came.
    Untouched,
}

/// The tap.
pub(crate) struct RedactDocument {
    core: Rc<Core>,
    tenant: TenantId,
    limit: Duration,
    taking: Taking,
    reads: Body,
    state: State,
    redaction: Redaction,
    room: Permit,
    /// Whoever may stop it. It sees what the provider said.
    other: Option<Box<dyn Tap>>,
    /// Both have still to say something.
    both_late: bool,
}

impl RedactDocument {
    pub(crate) fn new(
        core: &Rc<Core>,
        journal: &Journal,
        taking: Taking,
        reads: Body,
        other: Option<Box<dyn Tap>>,
    ) -> Self {
        Self {
            core: Rc::clone(core),
            tenant: journal.ids.tenant_id,
            limit: Duration::from_millis(journal.settings.limits.security_analysis_timeout_ms),
            taking,
            reads,
            state: State::Coming(BytesMut::new()),
            redaction: Redaction::default(),
            room: core.process.bodies.of(journal.ids.tenant_id).permit(),
            other,
            both_late: false,
        }
    }

    fn give_up(&mut self, reason: &'static str) {
        self.state = State::Untouched;
        self.redaction.left.get_or_insert(reason);
    }

    /// Takes it out on the pool.
    async fn elsewhere(&self, body: Bytes) -> Result<(Bytes, Redaction), &'static str> {
        let (tell, told) = oneshot::channel();
        let bytes = body.len();
        let deadline = Instant::now() + self.limit;
        let work = Box::new(RedactJob { body, taking: self.taking, reads: self.reads, deadline, tell });
        let job = Job { lane: Lane::of(bytes), tenant: self.tenant, bytes, deadline, work };
        self.core.process.parts.inspection.inference.submit(job).map_err(|_| "queue_full")?;
        match rt::within(self.limit, told).await {
            Some(Ok(done)) => Ok(done),
            Some(Err(_)) if Instant::now() < deadline => Err("analyzer_error"),
            Some(Err(_)) | None => Err("timeout"),
        }
    }

    async fn finish(&mut self) {
        let State::Coming(body) = &mut self.state else { return };
        let body = body.split().freeze();
        let done = if body.len() <= INLINE_TEXT_BYTES_MAX {
            survive(|| redacted(&body, self.taking, self.reads, None)).flatten().ok_or("analyzer_error")
        } else {
            self.elsewhere(body).await
        };
        match done {
            Ok((body, redaction)) => (self.state, self.redaction) = (State::Ready(body), redaction),
            Err(reason) => self.give_up(reason),
        }
    }
}

/// A document without what is taken out of it; `None` where the deadline passed.
fn redacted(body: &Bytes, taking: Taking, reads: Body, deadline: Option<Instant>) -> Option<(Bytes, Redaction)> {
    let kind = if reads == Body::Json { Some(AnswerKind::Json) } else { sniffed(body) };
    let read = |is_json: bool| {
        let mut redactor = Redactor::until(Framed::Whole, taking, deadline);
        if is_json {
            redactor.read(body);
        } else {
            redactor.read_text(body);
        }
        redactor.end();
        if redactor.is_late() {
            return None;
        }
        let body = redactor.pass(body.clone());
        Some((body, redactor.redaction()))
    };
    if kind != Some(AnswerKind::Json) {
        let (body, mut redaction) = read(false)?;
        if kind == Some(AnswerKind::EventStream) {
            // What its events cut in two is not found in the text of all of them.
            redaction.left.get_or_insert("not_framed");
        }
        return Some((body, redaction));
    }
    let as_json = read(true)?;
    // What only looks like JSON is text.
    if reads != Body::Json && as_json.1.left == Some("not_read") { read(false) } else { Some(as_json) }
}

/// Whether a JSON document is read before the deadline.
#[cfg(test)]
pub(crate) fn redacts(body: &Bytes, taking: Taking, deadline: Option<Instant>) -> bool {
    redacted(body, taking, Body::Json, deadline).is_some()
}

/// A document on its way to the pool and back.
struct RedactJob {
    body: Bytes,
    taking: Taking,
    reads: Body,
    deadline: Instant,
    tell: oneshot::Sender<(Bytes, Redaction)>,
}

impl Work for RedactJob {
    fn run(self: Box<Self>, turn: Turn<'_>) {
        let Self { body, taking, reads, deadline, tell } = *self;
        let Turn::Run(..) = turn else { return };
        if let Some(done) = survive(|| redacted(&body, taking, reads, Some(deadline))).flatten() {
            // The waiting core may have given up; then nobody needs it.
            drop(tell.send(done));
        }
    }
}

impl Tap for RedactDocument {
    fn look(&mut self, frame: &[u8]) -> Verdict {
        let other = self.other.as_mut().map_or(Verdict::Pass, |other| other.look(frame));
        let State::Coming(body) = &mut self.state else { return other };
        if body.is_empty() && self.reads == Body::Bytes && is_binary(frame) {
            self.give_up("media_type");
            return other;
        }
        let lost = if body.len() + frame.len() > HOLD_BYTES_MAX {
            "held_too_much"
        } else if !self.room.grow(frame.len()) {
            "out_of_memory"
        } else {
            body.extend_from_slice(frame);
            return if other == Verdict::Stop { other } else { Verdict::Hold(usize::MAX) };
        };
        self.give_up(lost);
        other
    }

    fn end(&mut self) -> Verdict {
        let other = self.other.as_mut().map_or(Verdict::Pass, |other| other.end());
        self.both_late = other == Verdict::Later;
        match &self.state {
            State::Coming(_) if other != Verdict::Stop => Verdict::Later,
            _ => other,
        }
    }

    fn answer(&mut self) -> LateVerdict<'_> {
        Box::pin(async {
            let other = match &mut self.other {
                Some(other) if self.both_late => other.answer().await,
                _ => Verdict::Pass,
            };
            if other != Verdict::Stop {
                self.finish().await;
            }
            other
        })
    }

    fn pass(&mut self, frame: Bytes) -> Bytes {
        match &mut self.state {
            // All of it goes with its first bytes.
            State::Ready(body) => std::mem::take(body),
            State::Coming(_) => {
                self.give_up("held_too_much");
                frame
            }
            State::Untouched => frame,
        }
    }

    fn redaction(&self) -> Redaction {
        self.redaction
    }

    fn warning(&self) -> &str {
        self.other.as_ref().map_or("", |other| other.warning())
    }

    fn missed(&self) -> Option<&'static str> {
        self.other.as_ref().and_then(|other| other.missed())
    }
}
