//! The gRPC listener needs an address that no other listener has.

use std::net::{IpAddr, SocketAddr};

use super::layers::Layers;
use crate::error::{Place, Violation};
use crate::settings::Settings;

/// Refuses an address on which the start could not listen, because another listener of ours has it.
pub(super) fn check(settings: &Settings, layers: &mut Layers) {
    if !settings.grpc.enabled {
        return;
    }
    let grpc = settings.grpc.listen_addr;
    let others = [("listen_addr", Some(settings.listen_addr)), ("server.metrics_addr", settings.server.metrics_addr)];
    let taken = others.into_iter().find_map(|(name, addr)| Some((name, addr.filter(|addr| share(*addr, grpc))?)));
    let Some((name, addr)) = taken else { return };
    let path = "grpc.listen_addr";
    // Where the default stands, the other one was written.
    let written = layers.written.get(path).or_else(|| layers.written.get(name));
    layers.violations.push(Violation {
        place: written.map_or(Place::Variable(path), |written| written.place.clone()),
        path: Some(path.to_owned()),
        problem: format!("got {grpc}, on which `{name}` ({addr}) listens already"),
        accepted: Some("an address and port of its own".to_owned()),
        advice: "choose another port for one of them".to_owned(),
    });
}

/// Whether one process cannot listen on both. Port 0 is a free one.
fn share(one: SocketAddr, other: SocketAddr) -> bool {
    let (a, b) = (one.ip().to_canonical(), other.ip().to_canonical());
    // `[::]` hears both families, `0.0.0.0` IPv4 only.
    let hears = |any: IpAddr, ip: IpAddr| any.is_unspecified() && (any.is_ipv6() || ip.is_ipv4());
    one.port() == other.port() && one.port() != 0 && (a == b || hears(a, b) || hears(b, a))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_cannot_be_listened_on_together_are_told_from_others() {
        let shared = |one: &str, other: &str| {
            let [one, other] = [one, other].map(|text| text.parse().unwrap());
            assert_eq!(share(one, other), share(other, one));
            share(one, other)
        };
        for other in ["127.0.0.1:80", "0.0.0.0:80", "[::]:80", "[::ffff:127.0.0.1]:80"] {
            assert!(shared("127.0.0.1:80", other), "{other}");
        }
        for other in ["127.0.0.1:81", "127.0.0.2:80", "[::1]:80"] {
            assert!(!shared("127.0.0.1:80", other), "{other}");
        }
        assert!(!shared("[::1]:80", "0.0.0.0:80") && !shared("127.0.0.1:0", "127.0.0.1:0"));
    }
}
