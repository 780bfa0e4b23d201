//! The network: the listener's address, who can reach it, and whether the provider can be reached, name by name, by TCP
//! and by TLS.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::path::Path;
use std::time::Duration;

use rustls::ClientConnection;
use rustls::pki_types::ServerName;
use weir_config::egress::Egress;
use weir_config::settings::{RouterAction, Scheme, Settings, Upstream};

use super::diagnosis::Diagnosis;
use crate::forward::client_config;

/// How long a running instance may take to answer.
const NEIGHBOUR_LIMIT: Duration = Duration::from_secs(1);

/// An address that Weir listens on.
struct Listener {
    topic: &'static str,
    setting: &'static str,
    addr: SocketAddr,
}

/// All of them; the first is that of proxied calls.
fn all_listeners(settings: &Settings) -> impl Iterator<Item = Listener> {
    let own = Listener { topic: "listen", setting: "listen_addr", addr: settings.listen_addr };
    let grpc = Some(settings.grpc).filter(|grpc| grpc.enabled).map(|grpc| grpc.listen_addr);
    let grpc = grpc.map(|addr| Listener { topic: "grpc", setting: "grpc.listen_addr", addr });
    let metrics = settings.server.metrics_addr;
    let metrics = metrics.map(|addr| Listener { topic: "metrics", setting: "server.metrics_addr", addr });
    [Some(own), grpc, metrics].into_iter().flatten()
}

/// Whether the addresses can be listened on.
pub(super) fn listeners(settings: &Settings) -> Vec<Diagnosis> {
    let is_here = || is_weir(settings.listen_addr);
    let one = |Listener { topic, setting, addr }| match TcpListener::bind(addr) {
        Ok(_) => Diagnosis::ok(topic, format!("{addr} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_here() => {
            Diagnosis::ok(topic, format!("{addr} is served by a running weir"))
        }
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Diagnosis::fail(
            topic,
            format!("{setting} {addr}: {error}; choose another port, or stop the process that holds it"),
        ),
        Err(error) => no_listener(topic, setting, addr, &error),
    };
    all_listeners(settings).map(one).collect()
}

/// Addresses that are in use now. Only a warning: the gateway that uses them may be the one whose settings are checked.
pub(super) fn taken(settings: &Settings) -> Vec<Diagnosis> {
    let one = |Listener { topic, setting, addr }| {
        let error = TcpListener::bind(addr).err()?;
        if error.kind() != io::ErrorKind::AddrInUse {
            return Some(no_listener(topic, setting, addr, &error));
        }
        let by = match is_weir(settings.listen_addr) {
            true => "a running weir; a reload keeps it there, and a second process gets it only with `--take-over`",
            false => "another process that is not Weir; a start fails until that process has ended",
        };
        Some(Diagnosis::warn(topic, format!("{setting} {addr} is held by {by}")))
    };
    all_listeners(settings).filter_map(one).collect()
}

/// The address is free and cannot be bound: which right or interface is missing.
fn no_listener(topic: &'static str, setting: &str, addr: SocketAddr, error: &io::Error) -> Diagnosis {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need CAP_NET_BIND_SERVICE (AmbientCapabilities= of systemd); grant it, or choose another port"
        }
        io::ErrorKind::AddrNotAvailable => "this machine has no such address; name one of its own, or 0.0.0.0",
        _ => "choose another address",
    };
    Diagnosis::fail(topic, format!("{setting} {addr}: {error}; {advice}"))
}

/// Whether the process behind `addr` reports its health as Weir does.
fn is_weir(addr: SocketAddr) -> bool {
    let ask = || -> io::Result<String> {
        let local = if addr.ip().is_unspecified() { SocketAddr::new([127, 0, 0, 1].into(), addr.port()) } else { addr };
        let mut stream = TcpStream::connect_timeout(&local, NEIGHBOUR_LIMIT)?;
        stream.set_read_timeout(Some(NEIGHBOUR_LIMIT))?;
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.take(65_536).read_to_string(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.contains("\"io_driver\""))
}

/// Milliseconds an answer may take to begin, for models that think.
const PATIENT_MS: u64 = 600_000;

/// Whether answers that are not streamed have the time that models take for them.
pub(super) fn patience(settings: &Settings) -> Diagnosis {
    match settings.limits.timeout_ms {
        patient if patient >= PATIENT_MS => Diagnosis::ok("timeout", format!("timeout_ms is {patient}")),
        short => Diagnosis::warn(
            "timeout",
            format!(
                "timeout_ms is {short}: an answer that is not streamed begins when the model has finished; set {PATIENT_MS} \
                 for models that think"
            ),
        ),
    }
}

/// Whether strangers can use the gateway.
pub(super) fn exposure(settings: &Settings) -> Diagnosis {
    let grpc = Some(settings.grpc).filter(|grpc| grpc.enabled).map(|grpc| grpc.listen_addr);
    // Whichever is reachable.
    let addr = grpc.filter(|addr| !addr.ip().is_loopback()).unwrap_or(settings.listen_addr);
    match (settings.auth.enabled, addr.ip().is_loopback()) {
        (true, _) => Diagnosis::ok("exposure", "authentication is on"),
        (false, true) => {
            Diagnosis::ok("exposure", format!("authentication is off, and {addr} is reachable from here only"))
        }
        (false, false) => Diagnosis::fail(
            "exposure",
            format!(
                "authentication is off and {addr} is reachable from outside: anybody can send traffic and read every \
                 tenant's traces; set auth.enabled: true, or listen on 127.0.0.1"
            ),
        ),
    }
}

/// What `block_ip` does behind a load balancer: it would block the balancer. Weir cannot tell one from a client, so the line comes
/// whenever a rule says `block_ip`.
pub(super) fn blocking(settings: &Settings) -> Option<Diagnosis> {
    let router = &settings.action_router;
    router.may(RouterAction::BlockIp).then(|| {
        let said = match (router.ip_block.allow_shared, settings.listen_addr.ip().is_loopback()) {
            (true, _) => {
                "`action_router.ip_block.allow_shared` is true: behind a load balancer or a proxy the first offenders have \
                 everybody refused; set it only where clients connect directly"
            }
            (false, true) => {
                "only this machine connects, which `block_ip` never turns away: it does nothing behind a proxy on this \
                 machine; block by address there, or have clients connect directly"
            }
            (false, false) => {
                "`block_ip` looks at the address that connects: behind a load balancer that is the load balancer's, \
                 which is spared while most requests come from it, so that nobody is blocked; use it where clients \
                 connect directly"
            }
        };
        Diagnosis::warn("block_ip", said)
    })
}

/// The provider, or the proxy on the way to it: its name, its port, its certificate. Stops at the first that fails.
pub(super) fn upstreams(settings: &Settings) -> Vec<Diagnosis> {
    let limit_ms = settings.limits.connection_timeout_ms;
    let default = Destination {
        name: None,
        named_by: "upstream_url",
        authority_by: "upstream_ca_file",
        endpoint: &settings.upstream,
        egress: &settings.egress,
        ca_file: settings.upstream_ca_file.as_deref(),
        limit: Duration::from_millis(limit_ms),
    };
    let mut found = reach(&default);
    for member in &settings.upstreams.members {
        let of = |field: &str| format!("upstreams.{}.{field}", member.name);
        let (named_by, authority_by) = (of("url"), of("ca_file"));
        found.extend(reach(&Destination {
            name: Some(&member.name),
            named_by: &named_by,
            authority_by: &authority_by,
            endpoint: &member.endpoint,
            egress: &member.egress,
            ca_file: member.ca_file.as_deref(),
            limit: Duration::from_millis(member.connection_timeout_ms.unwrap_or(limit_ms)),
        }));
    }
    found
}

/// An upstream, as far as reaching it is concerned.
struct Destination<'a> {
    /// Its name among the upstreams.
    name: Option<&'a str>,
    /// The setting that says where it is.
    named_by: &'a str,
    /// The setting that names the authorities of its certificate.
    authority_by: &'a str,
    endpoint: &'a Upstream,
    egress: &'a Egress,
    ca_file: Option<&'a Path>,
    limit: Duration,
}

/// Collects the findings about one upstream, each with its name.
fn reach(destination: &Destination<'_>) -> Vec<Diagnosis> {
    let mut found = try_to_reach(destination);
    if let Some(name) = destination.name {
        found.iter_mut().for_each(|diagnosis| diagnosis.text = format!("`{name}`: {}", diagnosis.text));
    }
    found
}

fn try_to_reach(destination: &Destination<'_>) -> Vec<Diagnosis> {
    let Destination { named_by, endpoint: upstream, egress, limit, .. } = *destination;
    // Behind a proxy it is the proxy that has to be found; what lies behind it shows with the first request.
    let proxy = egress.proxy.as_ref();
    let (host, port, named_by) = match proxy {
        Some(proxy) => (proxy.host.as_str(), proxy.port, proxy.variable),
        None => (upstream.host.as_str(), upstream.port, named_by),
    };
    let target = format!("{host}:{port}");
    let mut found = Vec::new();
    let addresses: Vec<SocketAddr> = match (host, port).to_socket_addrs() {
        Ok(addresses) => addresses.collect(),
        Err(error) => {
            let text = format!("`{host}` cannot be resolved: {error}; correct {named_by} or the resolver");
            found.push(Diagnosis::fail("upstream dns", text));
            return found;
        }
    };
    let shown: Vec<String> = addresses.iter().map(|addr| addr.ip().to_string()).collect();
    found.push(Diagnosis::ok("upstream dns", format!("{host} is {}", shown.join(", "))));
    let stream = match connect(&addresses, limit) {
        Ok(stream) => stream,
        Err(error) => {
            let text = format!(
                "{target} ({named_by}) cannot be reached: {error}; check that the provider is up and that no firewall is in the way"
            );
            found.push(Diagnosis::fail("upstream tcp", text));
            return found;
        }
    };
    found.push(Diagnosis::ok("upstream tcp", format!("{target} accepts connections")));
    if upstream.scheme == Scheme::Https && proxy.is_none() {
        found.push(match handshake(destination, stream) {
            Ok(version) => Diagnosis::ok("upstream tls", format!("{} is verified, {version}", upstream.host)),
            Err(error) => Diagnosis::fail(
                "upstream tls",
                format!("{target}: {error}; a provider with a private authority needs {}", destination.authority_by),
            ),
        });
    }
    found
}

/// The first address that answers.
fn connect(addresses: &[SocketAddr], limit: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for addr in addresses {
        match TcpStream::connect_timeout(addr, limit) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A TLS handshake; the version that was agreed on.
fn handshake(destination: &Destination<'_>, mut stream: TcpStream) -> io::Result<String> {
    let Destination { endpoint: upstream, egress, ca_file, limit, .. } = *destination;
    let config = client_config(ca_file, egress).map_err(io::Error::other)?;
    let name = ServerName::try_from(upstream.host.clone()).map_err(io::Error::other)?;
    let mut tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    while tls.is_handshaking() {
        tls.complete_io(&mut stream)?;
    }
    Ok(tls.protocol_version().map_or_else(|| "TLS".to_owned(), |version| format!("{version:?}")))
}
