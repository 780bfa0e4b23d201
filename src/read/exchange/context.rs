//! The caller's trace context (W3C Trace Context, version 00) and the moments an exchange goes through.

use std::time::{Duration, Instant};

use weir_config::vocab::{SpanId, TraceId};

/// A valid `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace the caller is in.
    pub trace_id: TraceId,
    /// The caller's span.
    pub parent: SpanId,
    /// Flags, passed on as they came.
    pub flags: u8,
}

impl TraceContext {
    /// Reads `00-<32 hex>-<16 hex>-<2 hex>`. `None` for anything else: the specification says to start afresh then.
    /// A version above 00 may carry more fields behind; they are ignored.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?.trim();
        let mut fields = text.split('-');
        let (version, trace, parent, flags) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let rest = fields.next();
        if version.len() != 2 || version == "ff" || (version == "00" && rest.is_some()) {
            return None;
        }
        hex(version, 2)?;
        let trace_id = TraceId::from_bytes(hex(trace, 32)?.to_be_bytes());
        let parent = u64::try_from(hex(parent, 16)?).ok()?;
        if trace_id.as_bytes() == &[0; 16] || parent == 0 {
            return None;
        }
        let flags = u8::try_from(hex(flags, 2)?).ok()?;
        Some(Self { trace_id, parent: SpanId::from_w3c(parent.to_be_bytes()), flags })
    }

    /// The value the provider gets: same trace, our span as parent.
    pub fn child(&self, span: SpanId) -> String {
        let own = u64::from_be_bytes(span.to_w3c());
        format!("00-{:032x}-{own:016x}-{:02x}", self.trace_id.uuid().as_u128(), self.flags)
    }
}

/// Exactly `digits` lower-case hex digits, as the specification demands.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let legal = text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    legal.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

/// When things happened, for durations and for what Weir itself added.
#[derive(Debug, Clone, Copy)]
pub struct Moments {
    /// The request head had been read.
    pub started: Instant,
    /// Time spent waiting for the client's body.
    pub awaiting_client: Duration,
    /// Time spent waiting for the provider: connecting, its head, its body.
    pub awaiting_upstream: Duration,
    /// The first body byte of the answer had been read.
    pub first_byte: Option<Instant>,
}

impl Moments {
    /// Starts the clock.
    pub fn now() -> Self {
        Self {
            started: Instant::now(),
            awaiting_client: Duration::ZERO,
            awaiting_upstream: Duration::ZERO,
            first_byte: None,
        }
    }

    /// What Weir added: the total minus the waits for others.
    pub fn overhead(&self, total: Duration) -> Duration {
        total.saturating_sub(self.awaiting_client).saturating_sub(self.awaiting_upstream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continues_a_trace_with_its_own_span() {
        let given = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context = TraceContext::parse(given).unwrap();
        assert_eq!(context.trace_id.to_string(), "4bf92f35-77b3-4da6-a3ce-929d0e0e4736");
        let child = context.child(SpanId::from_w3c([0, 0, 0, 0, 0, 0, 0, 9]));
        assert_eq!(child, "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000009-01");
    }

    #[test]
    fn refuses_what_the_specification_calls_invalid() {
        for bad in [
            "",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceContext::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
