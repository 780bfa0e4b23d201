//! Addresses that lead somewhere they should not, or do not say where they lead.
//!
//! The host is read as a client would read it: what stands before `@` is no host, `0x7f000001` and `2130706433` are
//! addresses. Loopback and private networks are ordinary for agents and not flagged; a metadata service is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_config::vocab::Severity;

use super::{Found, Sign, path};

/// Hosts that hand out credentials of the machine that asks.
const METADATA_HOSTS: [&str; 5] =
    ["metadata.google.internal", "metadata.goog", "metadata", "instance-data", "instance-data.ec2.internal"];
const METADATA_ADDRESSES: [IpAddr; 5] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 169, 254)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
];
/// Where data is dropped for somebody else to pick up; subdomains count.
const DROPS: [&str; 24] = [
    "pastebin.com",
    "hastebin.com",
    "paste.ee",
    "dpaste.org",
    "transfer.sh",
    "file.io",
    "0x0.st",
    "anonfiles.com",
    "gofile.io",
    "webhook.site",
    "requestbin.com",
    "requestbin.net",
    "pipedream.net",
    "beeceptor.com",
    "requestcatcher.com",
    "burpcollaborator.net",
    "oastify.com",
    "oast.fun",
    "oast.pro",
    "oast.live",
    "oast.site",
    "interact.sh",
    "interactsh.com",
    "canarytokens.com",
];
/// Doors into somebody's machine; subdomains count.
const TUNNELS: [&str; 10] = [
    "ngrok.io",
    "ngrok.app",
    "ngrok-free.app",
    "ngrok.dev",
    "trycloudflare.com",
    "serveo.net",
    "localhost.run",
    "loca.lt",
    "localtunnel.me",
    "bore.pub",
];
/// Addresses that hide where they lead.
const SHORTENERS: [&str; 8] = ["bit.ly", "tinyurl.com", "t.co", "goo.gl", "is.gd", "ow.ly", "cutt.ly", "rebrand.ly"];
/// Schemes through which a request becomes another protocol's, a file or a script.
const SCHEMES: [&str; 9] = ["file", "gopher", "dict", "ldap", "ldaps", "jar", "javascript", "vbscript", "tftp"];
/// Programs by their ends.
const PROGRAMS: [&str; 8] = [".exe", ".scr", ".hta", ".vbs", ".ps1", ".bat", ".msi", ".dll"];

const fn sign(rule: &'static str, severity: Severity, description: &'static str) -> Sign {
    Sign { finding_type: "suspicious_url", rule, severity, confidence: 0.85, description }
}

/// Looks at an address; a text without a scheme is taken for `host/path`.
pub(super) fn address(text: &str, found: &mut Found) {
    let (scheme, rest) = match text.split_once(':') {
        Some((scheme, rest)) if rest.starts_with("//") || is_bare_scheme(scheme) => {
            (scheme.to_ascii_lowercase(), rest.trim_start_matches('/'))
        }
        _ => (String::new(), text),
    };
    if SCHEMES.contains(&scheme.as_str()) {
        let said = "Uses a scheme that reads files, runs scripts or speaks another protocol.";
        found.add(sign("scheme", Severity::High, said), text);
        if scheme == "file" {
            path::access(&format!("/{rest}"), false, found);
        }
        return;
    }
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let (authority, behind) = rest.split_at(end);
    let host = match authority.rsplit_once('@') {
        Some((user, host)) => {
            userinfo(&scheme, user, text, found);
            host
        }
        None => authority,
    };
    look_at_host(without_port(host), text, found);
    let behind = behind.split(['?', '#']).next().unwrap_or_default().to_ascii_lowercase();
    if !scheme.is_empty() && PROGRAMS.iter().any(|end| behind.ends_with(end)) {
        found.add(sign("program_download", Severity::Low, "Leads to a program for Windows."), text);
    }
}

fn is_bare_scheme(scheme: &str) -> bool {
    ["javascript", "vbscript", "file", "jar"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
}

fn without_port(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().unwrap_or_default();
    }
    host.split(':').next().unwrap_or_default()
}

fn userinfo(scheme: &str, user: &str, text: &str, found: &mut Found) {
    // `git@` and database addresses carry a user by custom.
    if !matches!(scheme, "http" | "https" | "ftp" | "ws" | "wss") {
        return;
    }
    let name = user.split(':').next().unwrap_or_default();
    if name.contains('.') {
        found.add(
            sign("userinfo_host", Severity::High, "Names one host and leads to another: what stands before @."),
            text,
        );
    } else if user.contains(':') {
        // The password itself must not reach the record.
        let shown = text.replacen(user, &format!("{name}:***"), 1);
        found.add(sign("userinfo_password", Severity::Medium, "Carries a user name and password."), &shown);
    }
}

fn look_at_host(host: &str, text: &str, found: &mut Found) {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let is_below = |list: &[&str]| {
        list.iter().any(|known| host.strip_suffix(known).is_some_and(|sub| sub.is_empty() || sub.ends_with('.')))
    };
    if let Some((address, plain)) = ip(&host) {
        look_at_address(address, plain, text, found);
    } else if METADATA_HOSTS.contains(&host.as_str()) {
        metadata(text, found);
    } else if host.split('.').any(|label| label.starts_with("xn--")) || !host.is_ascii() {
        let said = "Its host name uses characters beyond ASCII, which can look like another name.";
        found.add(sign("lookalike_host", Severity::Medium, said), text);
    } else if host.ends_with(".onion") {
        found.add(sign("onion", Severity::High, "Leads into an anonymous network."), text);
    } else if is_below(&DROPS) {
        found.add(
            sign("drop_box", Severity::High, "Leads to a service where data is dropped or requests are caught."),
            text,
        );
    } else if is_below(&TUNNELS) {
        found.add(sign("tunnel", Severity::Medium, "Leads through a tunnel into a machine nobody knows."), text);
    } else if is_below(&SHORTENERS) {
        found.add(sign("shortener", Severity::Low, "Hides where it leads."), text);
    }
    if host.split('.').any(is_payload) {
        let said = "A label of its host name looks like data carried out by name lookups.";
        found.add(sign("name_payload", Severity::Medium, said), text);
    }
}

fn metadata(text: &str, found: &mut Found) {
    let said = "Leads to a metadata service, which hands out the machine's own credentials.";
    found.add(sign("metadata_service", Severity::Critical, said), text);
}

fn look_at_address(address: IpAddr, plain: bool, text: &str, found: &mut Found) {
    let mapped = match address {
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or(address, IpAddr::V4),
        four => four,
    };
    if METADATA_ADDRESSES.contains(&mapped) {
        return metadata(text, found);
    }
    if !plain {
        found.add(sign("disguised_address", Severity::High, "Writes an address in a form that hides it."), text);
        return;
    }
    let (ordinary, link_local) = match mapped {
        IpAddr::V4(four) => (four.is_loopback() || four.is_private() || four.is_unspecified(), four.is_link_local()),
        IpAddr::V6(six) => {
            (six.is_loopback() || six.is_unspecified() || six.is_unique_local(), six.is_unicast_link_local())
        }
    };
    if link_local {
        found.add(
            sign("link_local", Severity::High, "Leads to an address of this link only, as metadata services use."),
            text,
        );
    } else if !ordinary {
        found.add(sign("address_literal", Severity::Medium, "Names a public host by its bare address."), text);
    }
}

/// The address a host is, and whether it is written in the ordinary way. One to four numbers, each decimal, octal or
/// hexadecimal, are an IPv4 address to most clients (inet_aton).
fn ip(host: &str) -> Option<(IpAddr, bool)> {
    if let Ok(address) = host.parse() {
        return Some((address, true));
    }
    let parts: Vec<u32> = host.split('.').map(number).collect::<Option<_>>()?;
    let (last, front) = parts.split_last()?;
    if front.len() > 3 || front.iter().any(|part| *part > 255) {
        return None;
    }
    let mut value = *last;
    for (at, part) in front.iter().enumerate() {
        value |= part << (24 - 8 * at);
    }
    Some((IpAddr::V4(Ipv4Addr::from(value)), false))
}

fn number(part: &str) -> Option<u32> {
    match part.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None if part.len() > 1 && part.starts_with('0') => u32::from_str_radix(part, 8).ok(),
        None => part.parse().ok(),
    }
}

/// A long label of hexadecimal or base32, as names that carry data have.
fn is_payload(label: &str) -> bool {
    let digits = label.bytes().filter(u8::is_ascii_digit).count();
    label.len() >= 40 && digits >= 4 && label.bytes().all(|byte| byte.is_ascii_alphanumeric())
}
