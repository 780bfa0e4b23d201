//! `otel_export.*`, checked: who is sent finished calls as OpenTelemetry spans.

use crate::vocab::{SharedSecret, TenantId};

/// Most receivers of one gateway.
pub const OTEL_RECEIVERS_MAX: usize = 16;

/// `otel_export.*`.
#[derive(Debug, Clone, PartialEq)]
pub struct OtelExport {
    /// `enabled`.
    pub enabled: bool,
    /// `service_name`: the attribute `service.name` of what is sent.
    pub service_name: String,
    /// `resource_attributes`: further attributes of the resource, `name=value`.
    pub resource_attributes: Vec<String>,
    /// `metrics_interval_seconds`: how often receivers that want metrics are sent them.
    pub metrics_interval_seconds: u64,
    /// `receivers[]`.
    pub receivers: Vec<OtelReceiver>,
}

/// One of `otel_export.receivers[]`.
#[derive(Debug, Clone, PartialEq)]
pub struct OtelReceiver {
    /// `name`: what it is called in metrics, in the log and in the store, which remembers how far it has been sent to.
    pub name: Option<String>,
    /// `endpoint`: the base URL, to which `/v1/traces` is added.
    pub endpoint: Option<SharedSecret>,
    /// `traces_endpoint`: the whole URL; wins over `endpoint`.
    pub traces_endpoint: Option<SharedSecret>,
    /// `headers[]`: fields of each request, `name=value`.
    pub headers: Vec<SharedSecret>,
    /// `timeout_ms`, for one request.
    pub timeout_ms: Option<u64>,
    /// `compression`.
    pub compression: Option<OtelCompression>,
    /// `content`: what is sent of texts.
    pub content: OtelContent,
    /// `semconv`: whose names are used.
    pub semconv: OtelSemconv,
    /// `tenants[]`: whose calls are sent; empty for all.
    pub tenants: Vec<TenantId>,
    /// `clean_sample_rate`: the share of the traces whose calls without findings are sent, 0.0 to 1.0.
    pub clean_sample_rate: f64,
    /// `metrics`: whether metrics are sent, too.
    pub metrics: bool,
    /// `metrics_endpoint`: the whole URL for them; wins over `endpoint`.
    pub metrics_endpoint: Option<SharedSecret>,
    /// `tries`: tries at upstreams are spans of their own instead of events.
    pub tries: bool,
    /// `reported`: also calls that others reported and that did not pass the gateway.
    pub reported: bool,
}

/// `otel_export.receivers[].compression` values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtelCompression {
    /// As it is.
    None,
    /// gzip.
    Gzip,
}

/// `otel_export.receivers[].content` values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtelContent {
    /// No text of anybody.
    None,
    /// Without personal data and credentials.
    Masked,
    /// As it is recorded.
    Full,
}

/// `otel_export.receivers[].semconv` values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtelSemconv {
    /// The first release of the conventions for generative AI, 0.1.0.
    Latest,
    /// Those that the general conventions had at 1.36.
    V1_36,
}

impl Default for OtelExport {
    fn default() -> Self {
        Self {
            enabled: false,
            service_name: "weir".to_owned(),
            resource_attributes: Vec::new(),
            metrics_interval_seconds: 60,
            receivers: Vec::new(),
        }
    }
}

impl Default for OtelReceiver {
    fn default() -> Self {
        Self {
            name: None,
            endpoint: None,
            traces_endpoint: None,
            headers: Vec::new(),
            timeout_ms: None,
            compression: None,
            content: OtelContent::None,
            semconv: OtelSemconv::Latest,
            tenants: Vec::new(),
            clean_sample_rate: 1.0,
            metrics: false,
            metrics_endpoint: None,
            tries: false,
            reported: false,
        }
    }
}

impl OtelReceiver {
    /// Where spans are sent.
    pub fn url(&self) -> Option<String> {
        self.url_of(self.traces_endpoint.as_ref(), "traces")
    }

    /// Where metrics are sent; nowhere unless they are wanted.
    pub fn metrics_url(&self) -> Option<String> {
        self.metrics.then(|| self.url_of(self.metrics_endpoint.as_ref(), "metrics")).flatten()
    }

    fn url_of(&self, whole: Option<&SharedSecret>, signal: &str) -> Option<String> {
        let text = |url: &SharedSecret| String::from_utf8_lossy(url.expose()).into_owned();
        whole.map(text).or_else(|| {
            let base = text(self.endpoint.as_ref()?);
            Some(format!("{}/v1/{signal}", base.trim_end_matches('/')))
        })
    }

    /// What the receiver at this place in the settings is called.
    pub fn label(&self, place: usize) -> String {
        self.name.clone().unwrap_or_else(|| (place + 1).to_string())
    }

    /// The fields of each request.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.headers.iter().filter_map(|header| split(header.expose()))
    }
}

/// A name and what stands behind the first `=`.
pub(super) fn split(pair: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = pair.iter().position(|byte| *byte == b'=')?;
    let (name, value) = pair.split_at_checked(at)?;
    Some((name.trim_ascii(), value.get(1..)?.trim_ascii())).filter(|(name, _)| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_gets_the_path_of_the_signal_and_a_whole_url_does_not() {
        let base = |url: &str| OtelReceiver { endpoint: Some(SharedSecret::new(url)), ..OtelReceiver::default() };
        assert_eq!(base("http://h:4318").url().as_deref(), Some("http://h:4318/v1/traces"));
        assert_eq!(base("http://h/api/public/otel/").url().as_deref(), Some("http://h/api/public/otel/v1/traces"));
        let whole = OtelReceiver { traces_endpoint: Some(SharedSecret::new("http://h/spans")), ..base("http://g") };
        assert_eq!(whole.url().as_deref(), Some("http://h/spans"));
        assert_eq!(OtelReceiver::default().url(), None);
    }

    #[test]
    fn a_header_may_hold_further_equals_signs() {
        let headers = ["authorization=Basic YTpi==", " x = y ", "=no", "none"];
        let receiver = OtelReceiver { headers: headers.map(SharedSecret::new).into(), ..OtelReceiver::default() };
        let fields: Vec<_> = receiver.fields().collect();
        assert_eq!(fields, [(&b"authorization"[..], &b"Basic YTpi=="[..]), (b"x", b"y")]);
    }
}
