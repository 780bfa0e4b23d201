//! Messages of RFC 5424, each with its length in front (RFC 6587 section 3.4.1, RFC 5425): whatever they say, none ends another one.

use weir_config::vocab::Severity;

use super::event::Event;

/// Security and authorization messages.
const FACILITY: u8 = 4;
/// Characters of a host's name that RFC 5424 has room for.
const HOST_MAX: usize = 255;
/// Bytes of a message's text: what rsyslog takes with its usual settings, which cut or drop the rest.
const TEXT_BYTES_MAX: usize = 7 * 1024;

/// How a message begins, but for what is of this event.
pub(super) struct Heading {
    host: String,
    process: u32,
}

impl Heading {
    /// Of this machine.
    pub(super) fn here() -> Self {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host: String = name.trim().chars().filter(char::is_ascii_graphic).take(HOST_MAX).collect();
        Self { host: if host.is_empty() { "-".to_owned() } else { host }, process: std::process::id() }
    }

    /// Writes the message of an event behind others.
    pub(super) fn frame(&self, event: &Event, text: &str, into: &mut Vec<u8>) {
        let text = text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or_default();
        let priority = FACILITY * 8 + level(event.severity);
        let (at, kind) = (event.at, event.kind.as_str());
        let Self { host, process } = self;
        let message = format!("<{priority}>1 {at} {host} weir {process} {kind} - {text}");
        into.extend_from_slice(message.len().to_string().as_bytes());
        into.push(b' ');
        into.extend_from_slice(message.as_bytes());
    }
}

/// As RFC 5424 counts, the worst first.
const fn level(severity: Severity) -> u8 {
    match severity {
        Severity::Critical => 2,
        Severity::High => 3,
        Severity::Medium => 4,
        Severity::Low => 5,
        Severity::Info => 6,
    }
}
