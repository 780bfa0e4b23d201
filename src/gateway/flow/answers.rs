//! What the server says on a WebSocket. Where nobody may stop an answer or take something out of it, bytes pass as they come and a
//! copy is read. Elsewhere each message is held until it is whole, looked at by the tap of its turn, and goes on in a frame of its
//! own: not compressed, which a socket that has agreed on compression allows message by message (RFC 7692 section 6.1). From the first
//! such message on a compressed socket stays like that, because the client's window lacks what went without.
//!
//! Invariants: messages of one turn go in their order; control frames wait for nothing; what cannot be read passes, is counted and is
//! said, unless it cannot be passed on without its window.

use std::rc::Rc;

use bytes::{Bytes, BytesMut};

use super::judge_turn::error_event;
use super::tapped_turn::{Onwards, ended};
use super::tunnel::{HELD_BEYOND_MESSAGE, POLICY_VIOLATION, Tunnel};
use super::turns::{Heard, Looked};
use crate::codec::websocket::{Event, Frames, MESSAGE_BYTES_MAX, binary_frame, text_frame};
use crate::output;
use crate::process::Core;

/// The opcode of a close.
const CLOSE: u8 = 8;
/// Why a compressed socket ends whose message cannot be read.
const NO_WINDOW: &str = "a message of the provider cannot be read, and not be passed on without what came before it";

/// Reads the server's messages.
pub(super) struct Answers {
    core: Rc<Core>,
    /// `None` once what comes are no frames.
    frames: Option<Frames>,
    /// Messages may come compressed.
    deflated: bool,
    /// Messages wait until they are whole.
    holds: bool,
    /// Of a message that is too long the rest goes on as it comes.
    passes: bool,
    held: BytesMut,
    /// Where in that the last frame begins.
    frame_at: usize,
}

impl Answers {
    pub(super) fn new(core: &Rc<Core>, frames: Frames, deflated: bool) -> Self {
        let core = Rc::clone(core);
        Self { core, frames: Some(frames), deflated, holds: false, passes: false, held: BytesMut::new(), frame_at: 0 }
    }

    /// Whether the next byte for the client is the first of a frame.
    pub(super) fn is_between_frames(&self) -> bool {
        let is_copied = !self.holds || self.passes;
        !is_copied || self.frames.as_ref().is_none_or(Frames::is_between_frames)
    }

    /// Whether something may be said of the next message before the client has it.
    fn follow(&mut self, tunnel: &Tunnel) {
        let settings = self.core.settings();
        let looks = settings.stops_streams() || settings.redacts_answers() || tunnel.has_taps();
        self.holds = looks || self.holds && self.deflated;
    }

    /// Reads what has come, and gives what goes on; `Err` where the socket ends.
    pub(super) async fn take(&mut self, tunnel: &Tunnel, data: Bytes) -> Result<Bytes, ()> {
        let mut rest = &data[..];
        let mut out = BytesMut::new();
        // Most sockets are copied: then what has come goes on as it is.
        let (mut copied, mut is_cut) = (0, false);
        while !rest.is_empty() {
            let before = rest;
            let Some(frames) = self.frames.as_mut() else { break };
            if frames.is_between() && self.held.is_empty() {
                self.follow(tunnel);
            }
            let Some(frames) = self.frames.as_mut() else { break };
            let event = frames.next(&mut rest);
            let has_room = tunnel.has_room(self.held.len() + frames.held_bytes());
            if !has_room && matches!(event, Ok(None | Some(Event::Piece))) {
                frames.leave_out();
            }
            let read = before.get(..before.len() - rest.len()).unwrap_or_default();
            if self.holds && !is_cut {
                is_cut = true;
                out.extend_from_slice(data.get(..copied).unwrap_or_default());
            }
            match (self.holds && !self.passes, is_cut) {
                (true, _) => self.held.extend_from_slice(read),
                (false, true) => out.extend_from_slice(read),
                (false, false) => copied += read.len(),
            }
            let is_long = self.held.len() > MESSAGE_BYTES_MAX + HELD_BEYOND_MESSAGE;
            match event {
                Ok(None) if self.holds && !self.passes && (is_long || !has_room) => self.pass_on(tunnel, &mut out)?,
                Ok(None) => {}
                Ok(Some(Event::Piece)) => self.frame_at = self.held.len(),
                Ok(Some(Event::Control)) => self.control(tunnel, &mut out).await,
                Ok(Some(Event::Text { .. })) => self.message(tunnel, &mut out).await,
                Ok(Some(Event::Binary)) => self.unread(tunnel, true, &mut out)?,
                Ok(Some(Event::Unread)) => self.unread(tunnel, false, &mut out)?,
                Err(_) => {
                    tunnel.count_unread();
                    self.frames = None;
                    // Whoever can read it has to have all of it.
                    out.extend_from_slice(&self.held.split());
                    if is_cut {
                        out.extend_from_slice(rest);
                    }
                    break;
                }
            }
        }
        Ok(if is_cut { out.freeze() } else { data })
    }

    /// The socket ends: what waits goes on.
    pub(super) async fn end(&mut self, tunnel: &Tunnel) -> Bytes {
        let mut out = BytesMut::new();
        self.release(tunnel, &mut out).await;
        out.extend_from_slice(&self.held.split());
        out.freeze()
    }

    /// What of a message has come goes on, and so does what comes of it.
    fn pass_on(&mut self, tunnel: &Tunnel, out: &mut BytesMut) -> Result<(), ()> {
        if self.deflated {
            tunnel.close(POLICY_VIOLATION, NO_WINDOW);
            return Err(());
        }
        self.passes = true;
        self.frame_at = 0;
        out.extend_from_slice(&self.held.split());
        Ok(())
    }

    async fn control(&mut self, tunnel: &Tunnel, out: &mut BytesMut) {
        if !self.holds || self.passes {
            return;
        }
        let frame = self.held.split_off(self.frame_at.min(self.held.len()));
        if frame.first().is_some_and(|first| first & 0x0f == CLOSE) {
            // Nothing may follow it.
            self.release(tunnel, out).await;
        }
        out.extend_from_slice(&frame);
    }

    /// A message that nobody here reads.
    fn unread(&mut self, tunnel: &Tunnel, is_binary: bool, out: &mut BytesMut) -> Result<(), ()> {
        tunnel.count_unread();
        self.frame_at = 0;
        if self.holds && !self.passes && self.deflated {
            let message = self.frames.as_mut().map(Frames::take_message).filter(|_| is_binary);
            self.held.clear();
            let Some(message) = message else {
                tunnel.close(POLICY_VIOLATION, NO_WINDOW);
                return Err(());
            };
            out.extend_from_slice(&binary_frame(&message));
            return Ok(());
        }
        self.passes = false;
        out.extend_from_slice(&self.held.split());
        Ok(())
    }

    /// A message is whole.
    async fn message(&mut self, tunnel: &Tunnel, out: &mut BytesMut) {
        self.frame_at = 0;
        let passes = std::mem::take(&mut self.passes) || !self.holds;
        let Some(message) = self.frames.as_mut().map(Frames::take_message) else { return };
        let raw = self.held.split();
        let heard = tunnel.heard(&message);
        match heard {
            // What is lost of it is lost to the tap, too.
            Heard::Looked(looked) if passes => tunnel.looked(looked, None),
            _ if passes => {}
            Heard::Withheld => {}
            Heard::Looked(looked) => self.look(tunnel, looked, &one_line(&message), out).await,
            Heard::Passes { redacts } => {
                let without = if redacts { output::without(&self.core.settings(), &one_line(&message)) } else { None };
                match without {
                    Some((changed, taken)) => {
                        self.core.meter.redacted(false, taken);
                        out.extend_from_slice(&text_frame(&changed));
                    }
                    None if self.deflated => out.extend_from_slice(&text_frame(&message)),
                    None => out.extend_from_slice(&raw),
                }
            }
        }
    }

    async fn look(&self, tunnel: &Tunnel, mut looked: Looked, message: &[u8], out: &mut BytesMut) {
        let mut onwards = looked.tap.take(message, looked.ends).await;
        if onwards.halt.is_some() {
            stop(&looked, &mut onwards);
        }
        for message in &onwards.messages {
            out.extend_from_slice(&text_frame(message));
        }
        tunnel.looked(looked, onwards.halt);
    }

    /// What waits in the taps of all turns goes on.
    async fn release(&self, tunnel: &Tunnel, out: &mut BytesMut) {
        while let Some(mut looked) = tunnel.next_tap() {
            let mut onwards = looked.tap.take(&[], true).await;
            if onwards.halt.is_some() {
                stop(&looked, &mut onwards);
            }
            onwards.messages.iter().for_each(|message| out.extend_from_slice(&text_frame(message)));
            tunnel.released(looked, onwards.halt);
        }
    }
}

/// Ends a turn that its tap has stopped.
fn stop(looked: &Looked, onwards: &mut Onwards) {
    let refusal = looked.tap.refusal();
    let (lane, response) = (looked.lane.as_deref(), looked.response.as_deref());
    ended(looked.speaks, (lane, response), onwards, || {
        error_event(looked.speaks, (lane, None), &refusal, looked.trace)
    });
}

/// A message as one line: what breaks a line in JSON is white space.
fn one_line(message: &[u8]) -> Vec<u8> {
    message.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte }).collect()
}
