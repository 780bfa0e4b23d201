//! `siem_export.*`, checked: who is sent what was found, what was refused, and what administrators did, by syslog or in requests of HTTP.

use std::path::PathBuf;

use crate::settings::OtelCompression;
use crate::vocab::{Severity, SharedSecret, TenantId};

/// What stands for the token in `headers`.
pub const SIEM_TOKEN: &str = "{token}";

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
    /// `url`: `tcp://host:port` or `tls://host:port` for syslog; `https://` or `http://` for requests, where it may hold a credential.
    pub url: SharedSecret,
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
    /// `batch`: how the events of a request are put together.
    pub batch: SiemBatch,
    /// `headers[]`: fields of each request, `name=value`, where `{token}` stands for the token.
    pub headers: Vec<SharedSecret>,
    /// What the variable `token_env` holds.
    pub token: Option<SharedSecret>,
    /// `token_file`: read again for each request.
    pub token_file: Option<PathBuf>,
    /// `timeout_ms`, for one request.
    pub timeout_ms: Option<u64>,
    /// `compression` of requests.
    pub compression: OtelCompression,
}

/// `siem_export.receivers[].batch` values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SiemBatch {
    /// A line for each event.
    Ndjson,
    /// One array of JSON.
    Array,
    /// Events for Splunk's HTTP Event Collector.
    Splunk,
    /// The bulk API of Elasticsearch and OpenSearch, with ids by which an event that comes twice is kept once.
    Elastic,
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
    /// Host, port and whether it is TLS, for syslog; `None` where `url` is no such address.
    pub fn address(&self) -> Option<(String, u16, bool)> {
        let url = std::str::from_utf8(self.url.expose()).ok()?;
        let (rest, is_tls) = match url.split_once("://")? {
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

    /// Whether it is sent requests of HTTP.
    pub fn is_http(&self) -> bool {
        let url = self.url.expose();
        url.starts_with(b"http://") || url.starts_with(b"https://")
    }

    /// The fields of each request, with the token where it stands.
    pub fn fields(&self, token: Option<&[u8]>) -> Vec<(Vec<u8>, Vec<u8>)> {
        let with_token = |value: &[u8]| {
            let (Some(token), mark) = (token, SIEM_TOKEN.as_bytes()) else { return value.to_vec() };
            match value.windows(mark.len()).position(|part| part == mark) {
                Some(at) => {
                    let (before, behind) = (value.get(..at), value.get(at + mark.len()..));
                    [before.unwrap_or_default(), token, behind.unwrap_or_default()].concat()
                }
                None => value.to_vec(),
            }
        };
        let fields = self.headers.iter().filter_map(|header| super::otel::split(header.expose()));
        fields.map(|(name, value)| (name.to_vec(), with_token(value))).collect()
    }

    /// What the receiver at this place in the settings is called.
    pub fn label(&self, place: usize) -> String {
        self.name.clone().unwrap_or_else(|| (place + 1).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receiver(url: &str, headers: &[&str]) -> SiemReceiver {
        SiemReceiver {
            name: None,
            url: SharedSecret::new(url),
            format: SiemFormat::Cef,
            min_severity: Severity::Low,
            refusals: true,
            evidence: false,
            tenants: Vec::new(),
            max_per_second: None,
            batch: SiemBatch::Ndjson,
            headers: headers.iter().map(|header| SharedSecret::new(*header)).collect(),
            token: None,
            token_file: None,
            timeout_ms: None,
            compression: OtelCompression::None,
        }
    }

    #[test]
    fn the_token_stands_where_a_header_says() {
        let receiver = receiver("https://h/x", &["Authorization=Splunk {token}", "x={to", "y=a{token}=b"]);
        let fields = |token: Option<&[u8]>| {
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
            receiver.fields(token).into_iter().map(|(_, value)| text(value)).collect::<Vec<_>>()
        };
        assert_eq!(fields(Some(b"s=1")), ["Splunk s=1", "{to", "as=1=b"]);
        assert_eq!(fields(None), ["Splunk {token}", "{to", "a{token}=b"]);
        assert!(receiver.is_http() && receiver.address().is_none());
    }

    #[test]
    fn addresses_are_a_host_and_a_port() {
        let read = |url: &str| receiver(url, &[]).address();
        assert_eq!(read("tcp://siem.example:514"), Some(("siem.example".to_owned(), 514, false)));
        assert_eq!(read("tls://[::1]:6514/"), Some(("::1".to_owned(), 6_514, true)));
        for bad in
            ["", "tcp://h", "udp://h:514", "tcp://:514", "tcp://h:0", "tcp://a b:1", "tcp://::1:514", "tcp://u@h:1"]
        {
            assert_eq!(read(bad), None, "{bad}");
        }
    }
}
