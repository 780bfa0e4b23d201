//! Identifiers as newtypes, so that a tenant can never be passed where a trace is meant.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Timestamp;

/// A text that should have been a UUID (RFC 9562) and is not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a UUID such as 6f1c2b1e-0d5a-4c6f-9e7b-0d9a4c3b2a10")]
pub struct InvalidId(pub String);

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $other:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        #[schemars(inline)]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps an existing UUID.
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// Wraps 16 bytes in network order.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }

            /// The UUID inside.
            pub const fn uuid(self) -> Uuid {
                self.0
            }

            /// The 16 bytes in network order.
            pub const fn as_bytes(&self) -> &[u8; 16] {
                self.0.as_bytes()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                let other: fn(&str) -> Option<Self> = $other;
                let parsed = Uuid::parse_str(text).ok().map(Self).or_else(|| other(text));
                parsed.ok_or_else(|| InvalidId(text.to_owned()))
            }
        }
    };
}

id! {
    /// Whose data this is. Every read of storage takes one first.
    TenantId, |_| None
}
id! {
    /// One agent run or one call: the W3C trace id when the client sent `traceparent`, else a fresh UUID v7.
    TraceId, |_| None
}
id! {
    /// One proxied exchange, or one ingested span.
    SpanId, of_w3c_text
}

id! {
    /// One API key. Names the key in logs, records and the API; never the key itself.
    KeyId, |_| None
}

impl TenantId {
    /// The tenant of callers that present no key, token or tenant header: the nil UUID.
    pub const DEFAULT: Self = Self(Uuid::nil());

    /// The tenant of a caller that is known only by a bearer credential: UUID v5 in the URL namespace, so the same
    /// credential is the same tenant on every restart and the credential cannot be read back from it.
    pub fn from_credential(credential: &[u8]) -> Self {
        Self(Uuid::new_v5(&Uuid::NAMESPACE_URL, credential))
    }
}

/// A fresh UUID v7 (RFC 9562 section 5.7) at `now`: milliseconds, then 74 random bits from the thread's own generator.
/// The uuid crate's `now_v7` keeps a counter behind a process-wide lock, which core threads must not take.
pub fn fresh_uuid(now: Timestamp) -> Uuid {
    let (high, low) = Uuid::new_v4().as_u64_pair();
    let mut random = [0; 10];
    let (front, back) = random.split_at_mut(2);
    // The lowest bits of the high half are random in a v4; the version stands above them.
    front.copy_from_slice(&(high as u16).to_be_bytes());
    back.copy_from_slice(&low.to_be_bytes());
    let millis = u64::try_from(now.micros() / 1_000).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}

impl TenantId {
    /// A fresh random id (UUID v4): nobody can guess the next tenant.
    pub fn fresh() -> Self {
        Self(Uuid::new_v4())
    }
}

impl KeyId {
    /// A fresh, time-ordered id (UUID v7).
    pub fn fresh() -> Self {
        Self(fresh_uuid(Timestamp::now()))
    }
}

impl TraceId {
    /// A fresh, time-ordered id (UUID v7): rows written one after the other stay neighbours in an index.
    pub fn fresh() -> Self {
        Self::fresh_at(Timestamp::now())
    }

    /// The same, by a clock the caller has read already.
    pub fn fresh_at(now: Timestamp) -> Self {
        Self(fresh_uuid(now))
    }
}

/// Other systems write a span's id as the 16 digits of its 8 bytes.
fn of_w3c_text(text: &str) -> Option<SpanId> {
    let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    digits.then(|| u64::from_str_radix(text, 16).ok()).flatten().map(|low| SpanId::from_w3c(low.to_be_bytes()))
}

impl SpanId {
    /// A fresh, time-ordered id (UUID v7).
    pub fn fresh() -> Self {
        Self::fresh_at(Timestamp::now())
    }

    /// The same, by a clock the caller has read already.
    pub fn fresh_at(now: Timestamp) -> Self {
        Self(fresh_uuid(now))
    }

    /// The id of the span that begins a trace of ours: the trace's. The store keeps it once while no other span belongs to the trace.
    pub const fn of_lone(trace: TraceId) -> Self {
        Self(trace.0)
    }

    /// The id of a span known by the 8 bytes of W3C trace context or OTLP: the low half of a UUID whose high half is
    /// zero, so the 8 bytes can be read back.
    pub fn from_w3c(low: [u8; 8]) -> Self {
        Self(Uuid::from_u64_pair(0, u64::from_be_bytes(low)))
    }

    /// The 8 bytes, where the id has no more: it is another system's, or was read from what other systems write.
    pub fn as_w3c(self) -> Option<[u8; 8]> {
        let (high, low) = self.0.as_u64_pair();
        (high == 0).then(|| low.to_be_bytes())
    }

    /// The 8 bytes other systems see: the low half of the UUID.
    pub fn to_w3c(self) -> [u8; 8] {
        self.0.as_u64_pair().1.to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w3c_span_ids_survive_the_round_trip() {
        let id = SpanId::from_w3c([0, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]);
        assert_eq!("00f067aa0ba902b7".parse(), Ok(id), "as other systems write it");
        assert!("00f067aa0ba902b".parse::<SpanId>().is_err() && "00f067aa0ba902bg".parse::<SpanId>().is_err());
        assert!("00f067aa0ba902b7".parse::<TraceId>().is_err());
        assert_eq!(id.to_string(), "00000000-0000-0000-00f0-67aa0ba902b7");
        assert_eq!(id.to_w3c(), [0, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]);
        assert_eq!((id.as_w3c(), SpanId::fresh().as_w3c()), (Some(id.to_w3c()), None));
    }

    #[test]
    fn fresh_ids_are_version_7_in_the_order_of_time() {
        let early = fresh_uuid(Timestamp::from_micros(1_700_000_000_000_000));
        let late = fresh_uuid(Timestamp::from_micros(1_700_000_000_001_000));
        assert_eq!((early.get_version_num(), late.get_version_num()), (7, 7));
        assert!(early < late);
        assert_ne!(fresh_uuid(Timestamp::from_micros(5)), fresh_uuid(Timestamp::from_micros(5)));
    }

    #[test]
    fn a_credential_always_names_the_same_tenant() {
        assert_eq!(TenantId::from_credential(b"sk-1"), TenantId::from_credential(b"sk-1"));
        assert_ne!(TenantId::from_credential(b"sk-1"), TenantId::from_credential(b"sk-2"));
    }
}
