//! The request target: which form it has, what its origin form is, and whether its path can be trusted to mean the
//! same to everybody (RFC 9112 3.2, 3.3).
//!
//! Invariant: an accepted target is visible ASCII, begins with `/` or is the `*` of OPTIONS, and its path has no dot
//! segment in any spelling that some server might fold. Never decides where a request goes.

use bytes::{Bytes, BytesMut};

use crate::wire::fault::FaultKind;
use crate::wire::fields::Span;
use crate::wire::grammar::{is_host, is_target_byte};

/// A checked target, as spans into the head it came with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Target {
    /// Path and query, or `*`.
    pub(super) origin: Span,
    /// The path part of `origin`.
    pub(super) path: Span,
    /// The authority of an absolute-form target.
    pub(super) authority: Option<Span>,
    /// `origin`, when it is a usual one: it is asked for ten times a request, and finding out each time that it is text is dear.
    pub(super) usual: Option<&'static str>,
}

/// Where the absolute form keeps its parts.
struct Absolute<'a> {
    authority: &'a [u8],
    /// From the first `/` or `?` on; empty when the authority ends the target.
    rest: &'a [u8],
}

/// Checks the target and finds its parts. `raw` gains bytes at its end only in the one case where the origin form
/// does not stand in the head: an absolute form without a path.
pub(super) fn read(raw: &mut Bytes, target: Span, is_options: bool) -> Result<Target, FaultKind> {
    let text = target.get(raw);
    let mut suspicious = false;
    let mut valid = true;
    for byte in text {
        valid &= is_target_byte(*byte);
        suspicious |= matches!(*byte, b'.' | b'%' | b'\\');
    }
    if !valid {
        return Err(FaultKind::TargetSyntax);
    }
    let (origin, authority) = match text.first() {
        Some(b'/') => (target, None),
        Some(b'*') if text.len() == 1 && is_options => (target, None),
        _ => {
            let absolute = absolute(text).ok_or(FaultKind::TargetForm)?;
            let authority = Span::of(absolute.authority, raw);
            (absolute_origin(raw, Span::of(absolute.rest, raw), is_options), Some(authority))
        }
    };
    let text = origin.get(raw);
    let path_len = memchr::memchr(b'?', text).unwrap_or(text.len());
    let path = Span::new(origin.start(), origin.start() + path_len);
    if suspicious && has_dot_segment(path.get(raw)) {
        return Err(FaultKind::DotSegment);
    }
    Ok(Target { origin, path, authority, usual: usual(text) })
}

pub(super) fn usual(target: &[u8]) -> Option<&'static str> {
    Some(match target {
        b"/v1/chat/completions" => "/v1/chat/completions",
        b"/v1/responses" => "/v1/responses",
        b"/v1/messages" => "/v1/messages",
        b"/api/chat" => "/api/chat",
        _ => return None,
    })
}

fn absolute(target: &[u8]) -> Option<Absolute<'_>> {
    let scheme = |scheme: &str| {
        let (start, rest) = target.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme.as_bytes()).then_some(rest)
    };
    let rest = scheme("http://").or_else(|| scheme("https://"))?;
    let end = memchr::memchr2(b'/', b'?', rest).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at(end);
    // User information fails here too: `@` is in no host.
    is_host(authority).then_some(Absolute { authority, rest })
}

/// The origin form of an absolute target (RFC 9112 3.2.1, 3.2.4): an empty path is `/`, or `*` for a bare OPTIONS.
fn absolute_origin(raw: &mut Bytes, rest: Span, is_options: bool) -> Span {
    let missing: &[u8] = match rest.get(raw).first() {
        Some(b'/') => return rest,
        None if is_options => b"*",
        _ => b"/",
    };
    // Rare enough that a copy of the head is fine.
    let mut longer = BytesMut::with_capacity(raw.len() + missing.len() + rest.get(raw).len());
    longer.extend_from_slice(raw);
    let start = longer.len();
    longer.extend_from_slice(missing);
    longer.extend_from_slice(rest.get(raw));
    let end = longer.len();
    *raw = longer.freeze();
    Span::new(start, end)
}

/// Whether some segment of the path is `.` or `..` to some server: percent-encoded dots, slashes and backslashes
/// count as what they decode to, a backslash as a slash, and what follows `;` in a segment as a parameter.
fn has_dot_segment(path: &[u8]) -> bool {
    let (mut dots, mut other, mut parameter) = (0_usize, false, false);
    let mut rest = path;
    while let Some((byte, after)) = decoded(rest) {
        rest = after;
        match byte {
            b'/' | b'\\' => {
                if (1..=2).contains(&dots) && !other {
                    return true;
                }
                (dots, other, parameter) = (0, false, false);
            }
            b';' => parameter = true,
            _ if parameter => {}
            b'.' => dots += 1,
            _ => other = true,
        }
    }
    (1..=2).contains(&dots) && !other
}

/// The first byte of a path with one level of percent-encoding undone, and what follows it.
fn decoded(path: &[u8]) -> Option<(u8, &[u8])> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (first, rest) = path.split_first()?;
    if let (b'%', [high, low, after @ ..]) = (*first, rest)
        && let (Some(high), Some(low)) = (digit(*high), digit(*low))
    {
        return Some((high << 4 | low, after));
    }
    Some((*first, rest))
}
