//! Which offence comes first in a head that was refused.
//!
//! The parsers on the fast path only know that something is wrong. This reads the same bytes once more, strictly and
//! from the start, so that the answer names one offence and its place, and so that it does not depend on how the
//! bytes were cut into reads. It also serves as the strict automaton that tests hold accepted heads against.
//!
//! Invariant: silent on every head the fast path accepts. Runs only on heads that are refused anyway, so its cost does
//! not matter. Knows syntax and limits, nothing of meaning.

use crate::wire::fault::{Fault, FaultKind, Side};
use crate::wire::grammar::{is_target_byte, is_token_byte, is_value_byte};
use crate::wire::head::head_limit;
use crate::wire::limits::{FIELDS_MAX, REQUEST_LINE_BYTES_MAX};

/// An offence and its offset in the line.
type Offence = (usize, FaultKind);

/// The fault to report for a buffer whose head was found to be broken.
pub(super) fn diagnose(buffer: &[u8], side: Side) -> Fault {
    first_offence(buffer, side).unwrap_or(Fault::new(FaultKind::Malformed, side, 0))
}

/// The first offence in the head at the front of `buffer`, or in as much of it as is there.
pub(super) fn first_offence(buffer: &[u8], side: Side) -> Option<Fault> {
    let limit = head_limit(side);
    let mut start = 0;
    let mut lines = 0_usize;
    loop {
        let rest = buffer.get(start..).unwrap_or_default();
        let end = memchr::memchr(b'\n', rest);
        let line = Line { bytes: rest.get(..end.unwrap_or(rest.len())).unwrap_or_default(), whole: end.is_some() };
        let offence = match lines {
            0 if side == Side::Request => line.request_line(),
            0 => line.status_line(),
            _ => line.field(lines, side),
        };
        let offence = offence.map(|(at, kind)| (start + at, kind));
        let too_large = start + line.bytes.len() + usize::from(line.whole) > limit;
        let too_large = too_large.then_some((limit, FaultKind::HeadTooLarge));
        if let Some((at, kind)) = [offence, too_large].into_iter().flatten().min_by_key(|(at, _)| *at) {
            return Some(Fault::new(kind, side, at as u64));
        }
        if !line.whole || (lines > 0 && line.bytes == b"\r") {
            return None;
        }
        start += line.bytes.len() + 1;
        lines += 1;
    }
}

/// A line up to, not including, its LF; possibly only the front part of one.
struct Line<'a> {
    bytes: &'a [u8],
    whole: bool,
}

// === impl Line ===

impl<'a> Line<'a> {
    /// The line without its CR. In a part of a line a CR at the end may still turn out to be half of a CRLF.
    fn content(&self) -> &'a [u8] {
        self.bytes.strip_suffix(b"\r").unwrap_or(self.bytes)
    }

    /// The offence of a line whose content is in order up to its end: no CR before the LF.
    fn line_end(&self) -> Option<Offence> {
        (self.whole && !self.bytes.ends_with(b"\r")).then_some((self.bytes.len(), FaultKind::LineEnd))
    }

    /// The first byte from `from` on that fails `allowed`; a lone CR is an offence of its own.
    fn check(&self, from: usize, allowed: impl Fn(u8) -> bool, kind: FaultKind) -> Option<Offence> {
        let content = self.content();
        let at = from + content.get(from..)?.iter().position(|byte| !allowed(*byte))?;
        Some((at, if content.get(at) == Some(&b'\r') { FaultKind::LineEnd } else { kind }))
    }

    fn request_line(&self) -> Option<Offence> {
        let too_long = (self.content().len() > REQUEST_LINE_BYTES_MAX)
            .then_some((REQUEST_LINE_BYTES_MAX, FaultKind::RequestLineTooLong));
        [self.request_line_syntax(), too_long].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    fn request_line_syntax(&self) -> Option<Offence> {
        let content = self.content();
        let Some(method_len) = content.iter().position(|byte| *byte == b' ') else {
            let offence = self.check(0, is_token_byte, FaultKind::MethodSyntax);
            return offence.or(self.whole.then_some((content.len(), FaultKind::MethodSyntax)));
        };
        if let Some(offence) = self.check(0, is_token_byte, FaultKind::MethodSyntax).filter(|(at, _)| *at < method_len)
        {
            return Some(offence);
        }
        if method_len == 0 {
            return Some((0, FaultKind::MethodSyntax));
        }
        let target_start = method_len + 1;
        let target = content.get(target_start..).unwrap_or_default();
        let Some(target_len) = target.iter().position(|byte| *byte == b' ') else {
            let offence = self.check(target_start, is_target_byte, FaultKind::TargetSyntax);
            return offence.or(self.whole.then_some((content.len(), FaultKind::TargetSyntax)));
        };
        let version_start = target_start + target_len + 1;
        let offence = self.check(target_start, is_target_byte, FaultKind::TargetSyntax);
        if let Some(offence) = offence.filter(|(at, _)| *at < version_start - 1) {
            return Some(offence);
        }
        if target_len == 0 {
            return Some((target_start, FaultKind::TargetSyntax));
        }
        self.version(version_start, true)
    }

    fn status_line(&self) -> Option<Offence> {
        if let Some(offence) = self.version(0, false) {
            return Some(offence);
        }
        let content = self.content();
        for (at, byte) in content.iter().enumerate().skip(8) {
            let valid = match at {
                8 | 12 => *byte == b' ',
                9..=11 => byte.is_ascii_digit(),
                _ => is_value_byte(*byte),
            };
            if !valid {
                return Some((at, if *byte == b'\r' { FaultKind::LineEnd } else { FaultKind::StatusLine }));
            }
        }
        (self.whole && content.len() < 12).then_some((content.len(), FaultKind::StatusLine)).or(self.line_end())
    }

    /// The version at `start`; `last` says that the line ends with it.
    fn version(&self, start: usize, last: bool) -> Option<Offence> {
        let content = self.content();
        let text = content.get(start..).unwrap_or_default();
        for (at, (byte, expected)) in text.iter().zip(b"HTTP/d.d").enumerate() {
            let valid = if *expected == b'd' { byte.is_ascii_digit() } else { byte == expected };
            if !valid {
                return Some((start + at, FaultKind::VersionSyntax));
            }
        }
        if text.len() < 8 {
            return self.whole.then_some((content.len(), FaultKind::VersionSyntax));
        }
        if last && text.len() > 8 {
            let lone_cr = text.get(8) == Some(&b'\r');
            return Some((start + 8, if lone_cr { FaultKind::LineEnd } else { FaultKind::VersionSyntax }));
        }
        if !matches!(text.get(5..8), Some(b"1.0" | b"1.1")) {
            return Some((start, FaultKind::VersionUnsupported));
        }
        if last { self.line_end() } else { None }
    }

    fn field(&self, number: usize, side: Side) -> Option<Offence> {
        let content = self.content();
        let Some(first) = content.first() else { return self.line_end() };
        if matches!(first, b' ' | b'\t') {
            return Some((0, if number == 1 { FaultKind::SpaceBeforeFields } else { FaultKind::ObsFold }));
        }
        if number > FIELDS_MAX {
            return Some((0, FaultKind::TooManyFields));
        }
        let name_len = content.iter().position(|byte| !is_token_byte(*byte));
        let Some(name_len) = name_len else { return self.whole.then_some((content.len(), FaultKind::FieldName)) };
        let spaces = content.get(name_len..)?.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let colon = name_len + spaces;
        if spaces > 0 && side == Side::Request {
            return Some((name_len, FaultKind::SpaceBeforeColon));
        }
        match content.get(colon) {
            Some(b':') if name_len > 0 => {}
            Some(b'\r') => return Some((colon, FaultKind::LineEnd)),
            None if !self.whole => return None,
            _ => return Some((colon, FaultKind::FieldName)),
        }
        self.check(colon + 1, is_value_byte, FaultKind::FieldValue).or(self.line_end())
    }
}
