//! Byte classes of RFC 9110 and 9112.
//!
//! Invariant: tables are complete over all 256 bytes and stricter than or equal to the RFC. Knows nothing of messages.

const TOKEN: u8 = 1;
const TARGET: u8 = 2;
const VALUE: u8 = 4;
const HOST: u8 = 8;

static CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let b = byte as u8;
        let alphanumeric = b.is_ascii_alphanumeric();
        let mut class = 0;
        if alphanumeric || in_set(b, b"!#$%&'*+-.^_`|~") {
            class |= TOKEN;
        }
        if b.is_ascii_graphic() && b != b'#' {
            class |= TARGET;
        }
        if b == b'\t' || b == b' ' || b.is_ascii_graphic() || b >= 0x80 {
            class |= VALUE;
        }
        if alphanumeric || in_set(b, b"-._~!$&'()*+,;=") {
            class |= HOST;
        }
        classes[byte] = class;
        byte += 1;
    }
    classes
};

const fn in_set(byte: u8, set: &[u8]) -> bool {
    let mut index = 0;
    while index < set.len() {
        if set[index] == byte {
            return true;
        }
        index += 1;
    }
    false
}

#[inline]
fn class(byte: u8) -> u8 {
    CLASSES[usize::from(byte)]
}

/// `tchar` (RFC 9110 5.6.2).
#[inline]
pub(super) fn is_token_byte(byte: u8) -> bool {
    class(byte) & TOKEN != 0
}

/// Visible ASCII without `#`: wider than a URI, because clients do send braces and quotes; narrower than the tokenizer.
#[inline]
pub(super) fn is_target_byte(byte: u8) -> bool {
    class(byte) & TARGET != 0
}

/// `field-vchar`, space or tab (RFC 9110 5.5).
#[inline]
pub(super) fn is_value_byte(byte: u8) -> bool {
    class(byte) & VALUE != 0
}

/// The opposite of [`is_value_byte`], without a table.
#[inline]
pub(super) const fn is_control(byte: u8) -> bool {
    (byte < b' ' && byte != b'\t') || byte == 0x7f
}

/// Whether `host` is `uri-host [":" port]` (RFC 9110 7.2) and not empty.
pub(super) fn is_host(host: &[u8]) -> bool {
    let (name, port) = match host.strip_prefix(b"[") {
        Some(rest) => {
            let Some(end) = rest.iter().position(|byte| *byte == b']') else { return false };
            let (address, port) = rest.split_at(end);
            let literal = std::str::from_utf8(address).ok().and_then(|text| text.parse::<std::net::Ipv6Addr>().ok());
            if literal.is_none() {
                return false;
            }
            (None, port.strip_prefix(b"]").unwrap_or_default())
        }
        None => {
            let end = host.iter().position(|byte| *byte == b':').unwrap_or(host.len());
            let (name, port) = host.split_at(end);
            (Some(name), port)
        }
    };
    name.is_none_or(is_registered_name) && is_port(port)
}

/// `reg-name` (RFC 3986 3.2.2), which covers dotted IPv4, but not empty.
fn is_registered_name(name: &[u8]) -> bool {
    let mut rest = name;
    while let Some((byte, after)) = rest.split_first() {
        rest = match (byte, after) {
            (b'%', [high, low, after @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => after,
            (byte, after) if class(*byte) & HOST != 0 => after,
            _ => return false,
        };
    }
    !name.is_empty()
}

/// Nothing, or a colon and a number that is a port; the empty port of RFC 3986 is allowed.
fn is_port(port: &[u8]) -> bool {
    match port.strip_prefix(b":") {
        None => port.is_empty(),
        Some(digits) => {
            digits.len() <= 5
                && digits.iter().all(u8::is_ascii_digit)
                && digits.iter().fold(0_u32, |number, digit| number * 10 + u32::from(digit - b'0'))
                    <= u32::from(u16::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_a_control_or_may_stand_in_a_value() {
        assert!((0..=u8::MAX).all(|byte| is_control(byte) != is_value_byte(byte)));
    }
}
