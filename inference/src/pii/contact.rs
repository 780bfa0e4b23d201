//! E-mail addresses and IPv6 addresses, found from the inside out.

use std::net::Ipv6Addr;

use super::{Pii, PiiType, Token};

/// Longest local part, RFC 5321 4.5.3.1.1.
const LOCAL_MAX: usize = 64;
/// Longest domain that is looked at, in bytes.
const DOMAIN_MAX: usize = 190;
/// Longest label of a domain, RFC 1035 2.3.4.
const LABEL_MAX: usize = 63;

/// The address around the `@` at `at`.
pub(super) fn email(text: &[u8], floor: usize, at: usize) -> Option<Pii> {
    let reach = at.saturating_sub(LOCAL_MAX).max(floor);
    let local = text.get(reach..at)?.iter().rev().take_while(|byte| is_local(**byte)).count();
    let mut start = at - local;
    while start < at && text.get(start).is_some_and(|byte| matches!(byte, b'.' | b'-' | b'%')) {
        start += 1;
    }
    let after = text.get(at + 1..)?;
    let mut len = after
        .iter()
        .take(DOMAIN_MAX)
        .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'))
        .count();
    while len > 0 && matches!(after.get(len - 1), Some(b'.' | b'-')) {
        len -= 1;
    }
    let domain = after.get(..len)?;
    let mut labels = domain.rsplit(|byte| *byte == b'.');
    let top = labels.next()?;
    let plausible = start < at
        && (2..=24).contains(&top.len())
        && top.iter().all(u8::is_ascii_alphabetic)
        && domain.contains(&b'.')
        && labels.all(|label| label.len() <= LABEL_MAX && !matches!(label, [] | [b'-', ..] | [.., b'-']))
        && text.get(at - 1) != Some(&b'.');
    // `git@host:path` is where a repository lies.
    let is_repository = text.get(start..at) == Some(b"git") && after.get(len) == Some(&b':');
    // A password before the host of a URL is not an address.
    let in_url =
        text.get(..start).is_some_and(|head| head.ends_with(b":") && text.get(..start).is_some_and(has_scheme));
    (plausible && !in_url && !is_repository).then_some(Pii { kind: PiiType::Email, start, end: at + 1 + len })
}

fn has_scheme(head: &[u8]) -> bool {
    let from = head.len().saturating_sub(80);
    let word =
        head.get(from..).unwrap_or_default().rsplit(|byte| byte.is_ascii_whitespace()).next().unwrap_or_default();
    word.windows(3).any(|three| three == b"://")
}

fn is_local(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'+' | b'-' | b'%')
}

/// Longest textual IPv6 address, in bytes.
const IP_V6_MAX: usize = 39;

/// An IPv6 address the token is part of.
#[inline]
pub(super) fn ip_v6(token: Token<'_>) -> Option<Pii> {
    let beside_colon = token.text.get(token.end) == Some(&b':') || token.byte_before() == b':';
    if beside_colon { mac(token).or_else(|| ip_v6_around(token)) } else { None }
}

/// Bytes of a hardware address as it is written.
const MAC_BYTES: usize = 17;

/// `3c:22:fb:4a:91:07`, the token in it: no address of all, of many or of none.
fn mac(token: Token<'_>) -> Option<Pii> {
    let Token { text, start, floor, .. } = token;
    let inside = |byte: &&u8| byte.is_ascii_hexdigit() || **byte == b':';
    let back = text.get(start.saturating_sub(MAC_BYTES).max(floor)..start)?.iter().rev().take_while(inside).count();
    let from = start - back;
    let len = text.get(from..)?.iter().take(MAC_BYTES + 1).take_while(inside).count();
    let address = text.get(from..from + MAC_BYTES).filter(|_| len == MAC_BYTES)?;
    let mut octets = [0u8; 6];
    for (slot, (at, pair)) in octets.iter_mut().zip(address.chunks(3).enumerate()) {
        let ends = at == 5 || pair.get(2) == Some(&b':');
        let hex = std::str::from_utf8(pair.get(..2)?).ok().filter(|_| ends)?;
        *slot = u8::from_str_radix(hex, 16).ok()?;
    }
    let is_alone = !from
        .checked_sub(1)
        .and_then(|at| text.get(at))
        .is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
        && !text.get(from + MAC_BYTES).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b':');
    // Addresses of groups, and rows of equal or counted bytes in examples.
    let is_one = octets[0] & 1 == 0
        && octets.iter().any(|octet| *octet != octets[5])
        && octets != [0, 0x11, 0x22, 0x33, 0x44, 0x55];
    (is_alone && is_one).then_some(Pii { kind: PiiType::MacAddress, start: from, end: from + MAC_BYTES })
}

fn ip_v6_around(token: Token<'_>) -> Option<Pii> {
    let Token { text, start, end: _, floor } = token;
    let inside = |byte: &&u8| byte.is_ascii_hexdigit() || **byte == b':';
    let reach = start.saturating_sub(IP_V6_MAX).max(floor);
    let from = start - text.get(reach..start)?.iter().rev().take_while(inside).count();
    let mut to = start + text.get(start..)?.iter().take(IP_V6_MAX + 1).take_while(inside).count();
    if to <= start {
        return None;
    }
    if text.get(to - 1) == Some(&b':') && text.get(to.wrapping_sub(2)) != Some(&b':') {
        to -= 1;
    }
    let address = std::str::from_utf8(text.get(from..to)?).ok()?;
    let groups = address.split(':').filter(|group| !group.is_empty()).count();
    let alone = !text.get(to).is_some_and(|byte| byte.is_ascii_alphanumeric())
        && !from.checked_sub(1).and_then(|at| text.get(at)).is_some_and(|byte| byte.is_ascii_alphanumeric());
    let valid = groups >= 3 && alone && address.parse::<Ipv6Addr>().is_ok_and(|ip| !ip.is_loopback());
    valid.then_some(Pii { kind: PiiType::IpAddress, start: from, end: to })
}
