//! A tap looks at an answer before the client gets it, and may hold it back or stop it.
//!
//! Without a tap bytes go first and are looked at afterwards. With one the body goes frame by frame. Invariants: what
//! is let through is the provider's own bytes in their order, but for what a tap takes out of them; at most
//! [`HOLD_BYTES_MAX`] bytes wait, each frame counted with [`FRAME_COST_BYTES`] more; a stream that is stopped ends as
//! its dialect ends streams, or does not look whole.

use std::collections::VecDeque;
use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use weir_config::Settings;

use super::ending::Ending;
use super::frames::{Framed, Frames};

/// Bytes that may wait for a tap's next verdict; beyond them the oldest frames go.
pub const HOLD_BYTES_MAX: usize = 1 << 20;
/// What a frame that waits takes beside its bytes, about: a provider may send empty events without end.
const FRAME_COST_BYTES: usize = 128;

/// What becomes of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All that has come goes to the client.
    Pass,
    /// So many of the last frames wait, this one among them.
    Hold(usize),
    /// Nothing more of it goes to the client, what waits included.
    Stop,
    /// It takes longer to say: [`Tap::answer`] says it, and until then nothing more is read of the answer.
    Later,
}

/// What was taken out of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Redaction {
    /// Pieces that were replaced by tags, each as often as it stands in the answer.
    pub taken: usize,
    /// Why something, or all of it, went on as it came although it was to be taken out.
    pub left: Option<&'static str>,
}

/// A verdict that takes longer. One that is given up ends with [`Verdict::Pass`], never later than its own deadline.
pub type LateVerdict<'a> = Pin<Box<dyn Future<Output = Verdict> + 'a>>;

/// Looks at one answer. A verdict has to be quick: it is given on the core.
pub trait Tap {
    /// Looks at the next frame of the body: an event, a line, a message. Where the body has no frames that could be told, a piece
    /// of it.
    fn look(&mut self, frame: &[u8]) -> Verdict;

    /// A frame goes to the client, in the order in which they came: the form in which it goes.
    fn pass(&mut self, frame: Bytes) -> Bytes {
        frame
    }

    /// What has been taken out of the answer until now.
    fn redaction(&self) -> Redaction {
        Redaction::default()
    }

    /// The body is over: the verdict on what still waits.
    fn end(&mut self) -> Verdict {
        Verdict::Pass
    }

    /// The verdict that was to come later.
    fn answer(&mut self) -> LateVerdict<'_> {
        Box::pin(std::future::ready(Verdict::Pass))
    }

    /// Why some of the answer passed without a look, where it did.
    fn missed(&self) -> Option<&'static str> {
        None
    }

    /// What the client is told where the answer was stopped.
    fn warning(&self) -> &str;
}

/// Makes a tap of tests for one answer, under the settings its request came in; `None` where it does not look at it.
pub type MakeTap = fn(&Settings) -> Option<Box<dyn Tap>>;

/// An answer that a tap looks at.
pub struct Tapped {
    tap: Box<dyn Tap>,
    frames: Frames,
    ending: Ending,
    held: VecDeque<Bytes>,
    held_bytes: usize,
    most_held_bytes: usize,
    overheld: u64,
    /// The client has got something of it.
    begun: bool,
}

/// What to do with the answer after a piece of it.
#[derive(Debug, PartialEq, Eq)]
pub enum Onward {
    /// These bytes go to the client, if any.
    Send(Bytes),
    /// These bytes are its end: it is whole for the client.
    End(Bytes),
    /// It is stopped, and the client has seen nothing of it: it gets another answer.
    Replace,
    /// It is stopped, and nobody knows a legal end: after these bytes it must not look whole.
    Cut(Bytes),
}

impl Tapped {
    /// An answer whose body is framed like this, and whether its client is one that would ask again after an ordinary end of a
    /// stopped stream.
    pub fn new(tap: Box<dyn Tap>, framed: Framed, client_retries: bool) -> Self {
        let (frames, ending, held) = (Frames::new(framed), Ending::new(client_retries), VecDeque::new());
        Self { tap, frames, ending, held, held_bytes: 0, most_held_bytes: 0, overheld: 0, begun: false }
    }

    /// Takes the next bytes of the body.
    pub async fn feed(&mut self, content: &[u8]) -> Onward {
        self.frames.put(content);
        let mut out = BytesMut::new();
        while let Some(frame) = self.frames.next() {
            if !self.take(frame, &mut out).await {
                return self.stop(out);
            }
        }
        Onward::Send(out.freeze())
    }

    /// The body is over: what waits goes, unless the tap stops it now.
    pub async fn finish(&mut self) -> Onward {
        let mut out = BytesMut::new();
        let rest = self.frames.rest();
        if !rest.is_empty() && !self.take(rest, &mut out).await {
            return self.stop(out);
        }
        let verdict = self.tap.end();
        if self.settled(verdict).await == Verdict::Stop {
            return self.stop(out);
        }
        self.release(0, &mut out);
        Onward::Send(out.freeze())
    }

    /// There is no room for what waits: it goes.
    pub fn let_go(&mut self) -> Bytes {
        let mut out = BytesMut::new();
        self.overheld += self.held.len() as u64;
        self.release(0, &mut out);
        out.freeze()
    }

    /// What the client is told where the answer was stopped.
    pub fn warning(&self) -> &str {
        self.tap.warning()
    }

    /// Why some of the answer passed without a look, where it did.
    pub fn missed(&self) -> Option<&'static str> {
        self.tap.missed()
    }

    /// What has been taken out of it until now.
    pub fn redaction(&self) -> Redaction {
        self.tap.redaction()
    }

    /// Whether something that has come waits, so that the client has not seen it.
    pub fn holds(&self) -> bool {
        self.held_bytes > 0 || self.frames.holds()
    }

    /// Bytes that waited at most.
    pub const fn most_held_bytes(&self) -> usize {
        self.most_held_bytes
    }

    /// Frames that went although the tap would have held them.
    pub const fn overheld(&self) -> u64 {
        self.overheld
    }

    async fn settled(&mut self, verdict: Verdict) -> Verdict {
        if verdict == Verdict::Later { self.tap.answer().await } else { verdict }
    }

    /// False where the answer is stopped.
    async fn take(&mut self, frame: Bytes, out: &mut BytesMut) -> bool {
        let verdict = self.tap.look(&frame);
        let verdict = self.settled(verdict).await;
        self.held_bytes += frame.len();
        self.held.push_back(frame);
        match verdict {
            // Nobody is asked twice.
            Verdict::Pass | Verdict::Later => self.release(0, out),
            Verdict::Hold(frames) => {
                self.release(frames, out);
                while self.held_bytes + self.held.len() * FRAME_COST_BYTES > HOLD_BYTES_MAX {
                    self.overheld += 1;
                    self.release(self.held.len() - 1, out);
                }
                self.most_held_bytes = self.most_held_bytes.max(self.held_bytes);
            }
            Verdict::Stop => return false,
        }
        true
    }

    /// Lets all but the last `kept` frames go.
    fn release(&mut self, kept: usize, out: &mut BytesMut) {
        while self.held.len() > kept {
            let Some(frame) = self.held.pop_front() else { return };
            self.held_bytes -= frame.len();
            let frame = self.tap.pass(frame);
            self.frames.follow(&frame, &mut self.ending);
            out.extend_from_slice(&frame);
            self.begun |= !frame.is_empty();
        }
    }

    fn stop(&mut self, mut out: BytesMut) -> Onward {
        self.held.clear();
        self.held_bytes = 0;
        if !self.begun {
            return Onward::Replace;
        }
        match self.ending.end(self.tap.warning()).filter(|_| self.frames.are_told()) {
            Some(messages) => {
                out.extend_from_slice(&self.frames.encode(&messages));
                Onward::End(out.freeze())
            }
            None => Onward::Cut(out.freeze()),
        }
    }
}

#[cfg(test)]
mod tests;
