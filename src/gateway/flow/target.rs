//! What a target may ask of us as such: whose authority an absolute form names, and how far an OPTIONS may travel.
//! Never chooses where a request goes.

use std::net::{IpAddr, SocketAddr};

use crate::exchange::Refusal;
use crate::wire::RequestHead;

/// Refuses an absolute form whose authority is neither the request's own Host nor our listener (RFC 9112 section 3.2.2):
/// such a client believes that we would go where it points.
pub(crate) fn check_authority(head: &RequestHead, listen: SocketAddr) -> Result<(), Refusal> {
    if !head.is_absolute_form() {
        return Ok(());
    }
    let authority = head.host().unwrap_or_default();
    let named = head.get("host").is_some_and(|host| host.eq_ignore_ascii_case(authority.as_bytes()));
    if named || is_ours(authority, listen) {
        return Ok(());
    }
    let message = "the request target names an authority that is neither its Host field nor this gateway; Weir is no \
                   forward proxy: send the path alone";
    Err(Refusal::new(400, "invalid_request", message).closing())
}

/// Whether `authority` is our listener's address.
fn is_ours(authority: &str, listen: SocketAddr) -> bool {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().unwrap_or(0)),
        _ => (authority, 80),
    };
    if port != listen.port() {
        return false;
    }
    if host.eq_ignore_ascii_case("localhost") {
        return listen.ip().is_loopback() || listen.ip().is_unspecified();
    }
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    bare.parse::<IpAddr>().is_ok_and(|ip| ip == listen.ip() || listen.ip().is_unspecified())
}

/// How many more hops an OPTIONS may make (RFC 9110 section 7.6.2); `None` when it does not say or is another method.
///
/// # Errors
/// A `Max-Forwards` that is no number, or two of them: nobody could honour it.
pub(crate) fn hops_left(head: &RequestHead) -> Result<Option<u64>, Refusal> {
    if head.method() != "OPTIONS" {
        return Ok(None);
    }
    let mut values = head.get_all("max-forwards");
    let Some(value) = values.next() else { return Ok(None) };
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let hops = std::str::from_utf8(value).ok().filter(|_| digits).and_then(|text| text.parse().ok());
    match hops.filter(|_| values.next().is_none()) {
        Some(hops) => Ok(Some(hops)),
        None => {
            let message = "`Max-Forwards` of an OPTIONS request has to be one number; correct it or leave it out";
            Err(Refusal::new(400, "invalid_request", message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_address_is_known_in_its_spellings() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert!(is_ours("127.0.0.1:8080", at("127.0.0.1:8080")));
        assert!(is_ours("LOCALHOST:8080", at("127.0.0.1:8080")));
        assert!(is_ours("10.0.0.7", at("0.0.0.0:80")));
        assert!(is_ours("[::1]:8080", at("[::]:8080")));
        for other in ["127.0.0.1:8081", "127.0.0.2:8080", "llm.example:8080", "localhost", "[::1]"] {
            assert!(!is_ours(other, at("127.0.0.1:8080")), "{other}");
        }
        assert!(!is_ours("localhost:8080", at("10.0.0.7:8080")));
    }
}
