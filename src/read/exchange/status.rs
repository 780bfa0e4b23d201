//! A refusal as exporters of OpenTelemetry read it (OTLP 1.9, section "Failures"): a `google.rpc.Status` in the encoding of the request,
//! in JSON beside the gateway's own error. Pure.

use serde_json::{Value, json};

/// How a report is encoded, and so its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportEncoding {
    /// JSON, as protobuf maps to it.
    Json,
    /// Protobuf.
    Protobuf,
}

impl ReportEncoding {
    /// By the field `Content-Type`; `None` for what is neither.
    pub fn of(content_type: Option<&[u8]>) -> Option<Self> {
        let media = content_type?.split(|byte| *byte == b';').next()?.trim_ascii();
        let is = |name: &str| media.eq_ignore_ascii_case(name.as_bytes());
        match () {
            () if is("application/json") => Some(Self::Json),
            () if is("application/x-protobuf") || is("application/protobuf") => Some(Self::Protobuf),
            () => None,
        }
    }

    /// The answer's `Content-Type`.
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf => "application/x-protobuf",
        }
    }

    /// The answer's body where it has this status and says this; `error` is the gateway's own error in JSON.
    pub fn refusal(self, status: u16, message: &str, error: &[u8]) -> Vec<u8> {
        match self {
            Self::Json => {
                let mut answer: Value = serde_json::from_slice(error).unwrap_or_default();
                if let Some(fields) = answer.as_object_mut() {
                    fields.insert("code".to_owned(), json!(code(status)));
                    fields.insert("message".to_owned(), json!(message));
                }
                answer.to_string().into_bytes()
            }
            Self::Protobuf => {
                let mut body = vec![0x08];
                put_varint(&mut body, u64::from(code(status)));
                put_bytes(&mut body, 2, message.as_bytes());
                body
            }
        }
    }
}

/// `google.rpc.Code` of a status.
const fn code(status: u16) -> u8 {
    match status {
        401 => 16,
        403 => 7,
        404 => 5,
        405 => 12,
        413 | 429 => 8,
        503 => 14,
        500 => 13,
        _ => 3,
    }
}

/// Writes a number as protobuf does.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes a field of bytes as protobuf does.
pub fn put_bytes(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    out.push(number << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_encoding_of_the_request() {
        let of = |media: &str| ReportEncoding::of(Some(media.as_bytes()));
        assert_eq!(of("Application/JSON; charset=utf-8"), Some(ReportEncoding::Json));
        assert_eq!(of(" application/x-protobuf"), Some(ReportEncoding::Protobuf));
        assert_eq!((of("application/protobuf"), of("text/plain")), (Some(ReportEncoding::Protobuf), None));
        assert_eq!(ReportEncoding::of(None), None);
        assert_eq!(ReportEncoding::Protobuf.refusal(404, "no", b"{}"), b"\x08\x05\x12\x02no");
        let json = ReportEncoding::Json.refusal(429, "later", br#"{"error":{"type":"x"}}"#);
        assert_eq!(json, br#"{"code":8,"error":{"type":"x"},"message":"later"}"#);
    }
}
