//! What the log says of exchanges, and the access log.
//!
//! | exchange                                            | log     |
//! |-----------------------------------------------------|---------|
//! | failed: 5xx of ours or the provider's, a cut answer | `warn`  |
//! | refused: 4xx of ours; 401, 403, 429 of the provider | `info`  |
//! | any other                                           | `debug` |
//!
//! Invariant: a line names ids, numbers, our own words, the model and the path without its query; never a text, a header
//! field or a credential. Lines of one kind are bounded ([`super::repeats`]). Nothing here waits: lines go over the bounded
//! queues of [`super::log`].

use std::borrow::Cow;
use std::time::Duration;

use serde_json::json;
use tracing::field::display;
use weir_config::settings::AccessFormat;
use weir_config::vocab::{TenantId, Timestamp, TraceId};

/// Under which name lines about exchanges are filtered (`RUST_LOG=info,weir::exchanges=debug`): documented, so it does not move with the file.
const LOG_TARGET: &str = "weir::exchanges";

use super::log::LineQueue;
use super::repeats::{Kind, LeftOut, Repeats};

/// Most of a path, and of a model's name, that is written.
pub const SHOWN_BYTES_MAX: usize = 256;

/// Most of a method; registered ones have at most 17 bytes.
const METHOD_BYTES_MAX: usize = 24;

/// One exchange.
#[derive(Debug, Clone, Copy)]
pub struct Exchange<'a> {
    /// Its trace, if it has one.
    pub trace_id: Option<TraceId>,
    /// The tenant, if that is known.
    pub tenant_id: Option<TenantId>,
    /// As the client wrote it, without a credential of ours; empty where no head could be read.
    pub method: &'a str,
    /// Without the query, and without a credential of ours.
    pub path: &'a str,
    /// What the client was answered; `None` when it left before.
    pub status: Option<u16>,
    /// Our word for what went wrong.
    pub reason: Option<&'static str>,
    /// What the network said, where the provider could not be asked.
    pub detail: Option<&'a str>,
    /// The answer is ours, not the provider's.
    pub by_us: bool,
    /// Bytes of the answer's body.
    pub bytes: u64,
    /// From the request's head to the end.
    pub took: Duration,
    /// Of these, waiting for the provider.
    pub upstream: Duration,
    /// The model.
    pub model: Option<&'a str>,
}

/// How loud a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loudness {
    Failure,
    Refusal,
    Ordinary,
}

impl Exchange<'_> {
    fn loudness(&self) -> Loudness {
        let status = self.status.unwrap_or(0);
        let cut = self.reason.is_some_and(|reason| reason.starts_with("upstream_") || reason == "internal_error");
        match status {
            // A report of ours, such as /readyz while stopping.
            _ if self.by_us && self.reason.is_none() => Loudness::Ordinary,
            500.. => Loudness::Failure,
            _ if cut => Loudness::Failure,
            400.. if self.by_us => Loudness::Refusal,
            401 | 403 | 429 => Loudness::Refusal,
            _ => Loudness::Ordinary,
        }
    }

    fn by(&self) -> &'static str {
        if self.by_us { "weir" } else { "provider" }
    }

    /// Our word, or that the status says it all.
    fn reason(&self) -> &'static str {
        self.reason.unwrap_or(if self.by_us { "refused" } else { "provider_status" })
    }
}

/// Where exchanges are told of.
pub struct ExchangeLog {
    repeats: Repeats,
    access: Option<(AccessFormat, LineQueue)>,
}

impl ExchangeLog {
    /// With an access log where there is a queue for it.
    pub fn new(access: Option<(AccessFormat, LineQueue)>) -> Self {
        Self { repeats: Repeats::new(), access }
    }

    /// Whether every exchange is written down.
    pub fn has_access_log(&self) -> bool {
        self.access.is_some()
    }

    /// Whether the log has a line for it.
    pub fn wants(&self, exchange: &Exchange<'_>) -> bool {
        exchange.loudness() != Loudness::Ordinary || tracing::enabled!(target: LOG_TARGET, tracing::Level::DEBUG)
    }

    /// Writes the line of the log. `second` is any count of seconds that only grows.
    pub fn tell(&self, exchange: &Exchange<'_>, second: u32) {
        let loudness = exchange.loudness();
        let Exchange { detail, status, .. } = *exchange;
        let method = shown_to(exchange.method, METHOD_BYTES_MAX);
        let method = method.as_ref();
        let (path, reason, by) = (shown(exchange.path), exchange.reason(), exchange.by());
        let (tenant, trace_id) = (exchange.tenant_id.map(display), exchange.trace_id.map(display));
        let duration_ms = milliseconds(exchange.took);
        let path = path.as_ref();
        if loudness == Loudness::Ordinary {
            let reason = exchange.reason;
            tracing::debug!(target: LOG_TARGET, status, reason, by, method, path, tenant, trace_id, duration_ms, "exchange");
            return;
        }
        let is_failure = loudness == Loudness::Failure;
        let (written, left_out) = self.repeats.note(Kind { is_failure, status: status.unwrap_or(0), reason }, second);
        if let Some(left_out) = left_out {
            say_left_out(left_out);
        }
        macro_rules! line {
            ($level:ident, $message:literal) => {
                tracing::$level!(target: LOG_TARGET, status, reason, by, method, path, tenant, trace_id, duration_ms, detail, $message)
            };
        }
        match (written, is_failure) {
            (true, true) => line!(warn, "exchange failed"),
            (true, false) => line!(info, "exchange refused"),
            (false, _) => {
                tracing::debug!(target: LOG_TARGET, status, reason, by, method, path, tenant, trace_id, duration_ms, detail, "exchange");
            }
        }
    }

    /// Says how many lines were left out, of the seconds before `second`.
    pub fn sum_up(&self, second: u32) {
        self.repeats.sum_up(second).for_each(say_left_out);
    }

    /// Writes the line of the access log.
    pub fn access(&self, exchange: &Exchange<'_>) {
        let Some((format, queue)) = &self.access else { return };
        queue.push(match format {
            AccessFormat::Json => json_line(exchange, Timestamp::now()),
            AccessFormat::Text | AccessFormat::Off => text_line(exchange, Timestamp::now()),
        });
    }
}

fn say_left_out(LeftOut { kind: Kind { is_failure, status, reason }, lines }: LeftOut) {
    if is_failure {
        tracing::warn!(target: LOG_TARGET, status, reason, lines, "{lines} more exchanges failed like this within a second");
    } else {
        tracing::info!(target: LOG_TARGET, status, reason, lines, "{lines} more exchanges were refused like this within a second");
    }
}

fn text_line(exchange: &Exchange<'_>, now: Timestamp) -> Vec<u8> {
    let Exchange { trace_id, tenant_id, status, bytes, .. } = *exchange;
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let line = format!(
        "{now} {} {} {} bytes={bytes} ms={} upstream_ms={} by={} reason={} model={} tenant={} trace={}\n",
        or_dash(status.map(|status| status.to_string())),
        or_dash(Some(shown_to(exchange.method, METHOD_BYTES_MAX).into_owned()).filter(|method| !method.is_empty())),
        or_dash(Some(on_one_line(&shown(exchange.path))).filter(|path| !path.is_empty())),
        milliseconds(exchange.took),
        milliseconds(exchange.upstream),
        exchange.by(),
        exchange.reason.unwrap_or("-"),
        // A name comes from the request: quoted, it cannot end the line or look like another field.
        or_dash(exchange.model.map(|model| on_one_line(&json!(shown(model)).to_string()))),
        or_dash(tenant_id.map(|id| id.to_string())),
        or_dash(trace_id.map(|id| id.to_string())),
    );
    line.into_bytes()
}

fn json_line(exchange: &Exchange<'_>, now: Timestamp) -> Vec<u8> {
    let mut line = json!({
        "timestamp": now.to_string(),
        "status": exchange.status,
        "method": shown_to(exchange.method, METHOD_BYTES_MAX),
        "path": shown(exchange.path),
        "bytes": exchange.bytes,
        "duration_ms": milliseconds(exchange.took),
        "upstream_ms": milliseconds(exchange.upstream),
        "by": exchange.by(),
        "reason": exchange.reason,
        "model": exchange.model.map(shown),
        "tenant_id": exchange.tenant_id.map(|id| id.to_string()),
        "trace_id": exchange.trace_id.map(|id| id.to_string()),
    })
    .to_string();
    line.push('\n');
    line.into_bytes()
}

/// Without characters that end a line, steer a terminal or turn the direction of writing: JSON leaves most of them as they are.
fn on_one_line(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        let is_steering = character.is_control()
            || matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if is_steering {
            out.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            out.push(character);
        }
    }
    out
}

fn shown(text: &str) -> Cow<'_, str> {
    shown_to(text, SHOWN_BYTES_MAX)
}

/// The beginning of a text, cut where a character ends.
fn shown_to(text: &str, bytes_max: usize) -> Cow<'_, str> {
    if text.len() <= bytes_max {
        return Cow::Borrowed(text);
    }
    let end = text.floor_char_boundary(bytes_max);
    Cow::Owned(format!("{}…", text.get(..end).unwrap_or_default()))
}

/// Milliseconds with microsecond resolution.
fn milliseconds(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Exchange<'static> = Exchange {
        trace_id: None,
        tenant_id: None,
        method: "POST",
        path: "/v1/chat/completions",
        status: Some(200),
        reason: None,
        detail: None,
        by_us: false,
        bytes: 12,
        took: Duration::from_micros(1_500),
        upstream: Duration::from_millis(1),
        model: Some("a \"model\"\n200 GET /forged"),
    };

    #[test]
    fn failures_are_loud_refusals_are_told_and_the_rest_is_quiet() {
        let of = |status, reason, by_us| Exchange { status, reason, by_us, ..GOOD }.loudness();
        for status in [500, 502, 503, 504, 508, 599] {
            assert_eq!(of(Some(status), Some("internal_error"), true), Loudness::Failure);
            assert_eq!(of(Some(status), None, true), Loudness::Ordinary, "a report, no error");
            assert_eq!(of(Some(status), None, false), Loudness::Failure, "an outage of the provider shows");
        }
        assert_eq!(of(Some(200), Some("upstream_protocol_error"), false), Loudness::Failure, "cut in the middle");
        for status in [400, 401, 403, 404, 413, 429] {
            assert_eq!(of(Some(status), Some("invalid_request"), true), Loudness::Refusal);
        }
        for status in [401, 403, 429] {
            assert_eq!(of(Some(status), None, false), Loudness::Refusal);
        }
        for status in [200, 400, 404] {
            assert_eq!(of(Some(status), None, false), Loudness::Ordinary, "the application's own matter");
        }
        assert_eq!(of(None, Some("client_disconnected"), false), Loudness::Ordinary);
    }

    #[test]
    fn an_access_line_is_one_line_whatever_a_client_calls_its_model() {
        let now = Timestamp::from_micros(1_790_000_000_000_000);
        let text = String::from_utf8(text_line(&GOOD, now)).unwrap();
        assert_eq!(
            text,
            format!(
                "{now} 200 POST /v1/chat/completions bytes=12 ms=1.5 upstream_ms=1 by=provider reason=- \
                 model=\"a \\\"model\\\"\\n200 GET /forged\" tenant=- trace=-\n"
            )
        );
        let json = String::from_utf8(json_line(&GOOD, now)).unwrap();
        assert_eq!(json.matches('\n').count(), 1);
        let object: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&object["status"], &object["duration_ms"]), (&json!(200), &json!(1.5)));
    }

    #[test]
    fn nothing_in_a_line_steers_a_terminal_or_ends_it_and_a_method_is_bounded() {
        let model = "m\u{9b}31m\u{85}fake\u{2028}\u{2029}\u{202e}\u{7f}\u{1b}é";
        let said = Exchange { model: Some(model), path: "/v1/\u{85}x", method: &"M".repeat(100), ..GOOD };
        let line = String::from_utf8(text_line(&said, Timestamp::from_micros(0))).unwrap();
        assert!(
            !line.trim_end_matches('\n').contains(|c: char| c.is_control() || ('\u{2028}'..='\u{202e}').contains(&c))
        );
        assert!(line.contains(r#" model="m\u009b31m\u0085fake\u2028\u2029\u202e\u007f\u001bé" "#), "{line}");
        assert!(line.contains(&format!(" 200 {}… /v1/\\u0085x ", "M".repeat(METHOD_BYTES_MAX))), "{line}");
    }

    #[test]
    fn a_long_path_is_cut_where_a_character_ends() {
        let long = "é".repeat(300);
        assert_eq!(shown(&long).chars().count(), SHOWN_BYTES_MAX / 2 + 1);
        assert_eq!(shown("/short"), "/short");
    }
}
