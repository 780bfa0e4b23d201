//! `siem_export.*`, checked: who is sent what was found, what was refused, and what administrators did, by syslog.

use crate::vocab::{Severity, TenantId};

/// Most receivers of one gateway.
pub const SIEM_RECEIVERS_MAX: usize = 16;

/// `siem_export.*`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SiemExport {
    /// `enabled`.
    pub enabled: bool,
    /// `receivers[]`.
    pub receivers: Vec<SiemReceiver>,
}

/// One of `siem_export.receivers[]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiemReceiver {
    /// `name`: what it is called in metrics, in the log and in the store, which remembers how far it has been sent to.
    pub name: Option<String>,
    /// `url`: `tcp://host:port` or `tls://host:port`.
    pub url: String,
    /// `format`.
    pub format: SiemFormat,
    /// `min_severity`: least severity of a finding.
    pub min_severity: Severity,
    /// `refusals`: also calls that the gateway answered itself.
    pub refusals: bool,
    /// `evidence`: with the words that findings quote.
    pub evidence: bool,
    /// `tenants[]`: whose; empty for all.
    pub tenants: Vec<TenantId>,
    /// `max_per_second`: messages.
    pub max_per_second: Option<u32>,
}

/// `siem_export.receivers[].format` values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SiemFormat {
    /// ArcSight Common Event Format.
    Cef,
    /// JSON of the Open Cybersecurity Schema Framework 1.3.
    Ocsf,
    /// JSON of the Elastic Common Schema 8.
    Ecs,
}

impl SiemReceiver {
    /// Host, port and whether it is TLS; `None` where `url` is no such address.
    pub fn address(&self) -> Option<(String, u16, bool)> {
        let (rest, is_tls) = match self.url.split_once("://")? {
            ("tcp", rest) => (rest, false),
            ("tls", rest) => (rest, true),
            _ => return None,
        };
        let (host, port) = rest.trim_end_matches('/').rsplit_once(':')?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = bare.unwrap_or(host);
        let legal = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
        let fits = !host.is_empty() && host.chars().all(legal) && (bare.is_some() || !host.contains(':'));
        let port = port.parse().ok().filter(|port| *port > 0)?;
        fits.then(|| (host.to_owned(), port, is_tls))
    }

    /// What the receiver at this place in the settings is called.
    pub fn label(&self, place: usize) -> String {
        self.name.clone().unwrap_or_else(|| (place + 1).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_a_host_and_a_port() {
        let read = |url: &str| {
            let (name, format, min_severity) = (None, SiemFormat::Cef, Severity::Low);
            let (refusals, evidence, tenants, max_per_second) = (true, false, Vec::new(), None);
            let url = url.to_owned();
            SiemReceiver { name, url, format, min_severity, refusals, evidence, tenants, max_per_second }.address()
        };
        assert_eq!(read("tcp://siem.example:514"), Some(("siem.example".to_owned(), 514, false)));
        assert_eq!(read("tls://[::1]:6514/"), Some(("::1".to_owned(), 6_514, true)));
        for bad in
            ["", "tcp://h", "udp://h:514", "tcp://:514", "tcp://h:0", "tcp://a b:1", "tcp://::1:514", "tcp://u@h:1"]
        {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
