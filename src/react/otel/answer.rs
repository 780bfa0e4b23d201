//! What a receiver answered, and what follows from it.

use std::time::{Duration, SystemTime};

use serde_json::Value as Json;

use crate::outbound::{Answer, Reception, reception, retry_after};

/// Characters of what a receiver says that go into the log.
const WORDS_MAX: usize = 300;
/// The longest that a receiver may ask to be left alone: what it says may be a mistake, and the spans wait meanwhile.
const AFTER_MAX: Duration = Duration::from_secs(3_600);

/// What follows from an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Taken, but for so many, and what was said about these.
    Accepted { rejected: u64, words: Option<String> },
    /// The same comes again, no sooner than after this time. It may be about the spans, and then it would never be taken.
    Later { reason: String, after: Option<Duration>, is_doubtful: bool },
    /// Fewer at once may be taken.
    TooLarge { reason: String },
    /// It never will be taken.
    Refused { reason: String },
}

/// Reads an answer as OTLP/HTTP 1.9 says, but that addresses and credentials which are wrong cost nothing but time.
pub(super) fn judge(answer: &Answer) -> Verdict {
    let reason = || format!("the receiver answered {}", answer.status);
    match reception(answer.status) {
        Reception::Taken => accepted(answer),
        Reception::TooLarge => Verdict::TooLarge { reason: reason() },
        Reception::Later { is_doubtful } => {
            let after = retry_after(&answer.fields, SystemTime::now()).map(|after| after.min(AFTER_MAX));
            Verdict::Later { reason: reason(), after, is_doubtful }
        }
        Reception::Refused => {
            let said = words_of_status(answer).map(|words| format!(": {words}")).unwrap_or_default();
            Verdict::Refused { reason: format!("{}{said}", reason()) }
        }
    }
}

fn accepted(answer: &Answer) -> Verdict {
    if is_json(answer) {
        let said: Json = serde_json::from_slice(&answer.body).unwrap_or_default();
        let partial = said.get("partialSuccess");
        // 64-bit integers are texts in the JSON form, and numbers from some.
        let rejected = partial.and_then(|partial| partial.get("rejectedSpans"));
        let rejected = rejected.and_then(|count| count.as_u64().or_else(|| count.as_str()?.parse().ok())).unwrap_or(0);
        let words = partial.and_then(|partial| partial.get("errorMessage")?.as_str());
        return Verdict::Accepted { rejected, words: words.filter(|words| !words.is_empty()).map(shown) };
    }
    let mut outcome = (0, None);
    // A body that is something else says nothing against the status.
    let partial = fields(&answer.body).into_iter().flatten().find_map(|field| match field {
        (1, Field::Bytes(bytes)) => Some(bytes),
        _ => None,
    });
    for field in partial.and_then(fields).into_iter().flatten() {
        match field {
            (1, Field::Varint(rejected)) => outcome.0 = rejected,
            (2, Field::Bytes(words)) => outcome.1 = Some(shown(&String::from_utf8_lossy(words))),
            _ => {}
        }
    }
    let (rejected, words) = outcome;
    Verdict::Accepted { rejected, words: words.filter(|words| !words.is_empty()) }
}

/// The message of a `google.rpc.Status`.
fn words_of_status(answer: &Answer) -> Option<String> {
    let words = if is_json(answer) {
        let said: Json = serde_json::from_slice(&answer.body).ok()?;
        said.get("message")?.as_str().map(str::to_owned)
    } else {
        fields(&answer.body)?.into_iter().find_map(|field| match field {
            (2, Field::Bytes(words)) => Some(String::from_utf8_lossy(words).into_owned()),
            _ => None,
        })
    };
    words.map(|words| shown(&words)).filter(|words| !words.is_empty())
}

fn is_json(answer: &Answer) -> bool {
    let kind = answer.fields.get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    kind.trim_start().to_ascii_lowercase().starts_with("application/json")
}

/// One line of it.
fn shown(words: &str) -> String {
    words.chars().take(WORDS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A field of a message by its wire type.
enum Field<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    Other,
}

/// The fields of a message; `None` where the bytes are none.
fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, Field<'_>)>> {
    fn varint(bytes: &mut &[u8]) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = bytes.split_first()?;
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let mut take = |len: usize| {
            let (taken, rest) = bytes.split_at_checked(len)?;
            bytes = rest;
            Some(taken)
        };
        let field = match key & 7 {
            0 => Field::Varint(varint(&mut bytes)?),
            1 => take(8).map(|_| Field::Other)?,
            5 => take(4).map(|_| Field::Other)?,
            2 => {
                let len = usize::try_from(varint(&mut bytes)?).ok()?;
                let (taken, rest) = bytes.split_at_checked(len)?;
                bytes = rest;
                Field::Bytes(taken)
            }
            _ => return None,
        };
        all.push((key >> 3, field));
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, StatusCode};
    use proptest::prelude::*;

    use super::*;

    fn answer(status: u16, kind: &str, body: impl Into<Bytes>) -> Answer {
        let fields = HeaderMap::from_iter([
            (http::header::CONTENT_TYPE, kind.parse().unwrap()),
            (http::header::RETRY_AFTER, "90000".parse().unwrap()),
        ]);
        Answer { status: StatusCode::from_u16(status).unwrap(), fields, body: body.into() }
    }

    #[test]
    fn an_answer_says_whether_it_comes_again() {
        let judged = |status| judge(&answer(status, "text/plain", "no"));
        let later = |status, is_doubtful| match judged(status) {
            Verdict::Later { after, is_doubtful: doubt, .. } => after == Some(AFTER_MAX) && doubt == is_doubtful,
            _ => false,
        };
        assert!([301, 401, 403, 404, 408, 429, 502, 503, 504].into_iter().all(|status| later(status, false)));
        assert!([500, 501, 507, 599].into_iter().all(|status| later(status, true)));
        assert!([400, 409, 415, 422].into_iter().all(|status| matches!(judged(status), Verdict::Refused { .. })));
        assert!(matches!(judged(413), Verdict::TooLarge { .. }));
        let whole = Verdict::Accepted { rejected: 0, words: None };
        assert_eq!((judged(200), judged(204)), (whole.clone(), whole));
    }

    #[test]
    fn partial_success_is_read_in_both_forms() {
        let some = Verdict::Accepted { rejected: 300, words: Some("too old".to_owned()) };
        let protobuf = [&[0x0a, 12, 0x08, 0xac, 0x02, 0x12, 7][..], b"too old"].concat();
        assert_eq!(judge(&answer(200, "application/x-protobuf", protobuf)), some);
        let json = r#"{"partialSuccess":{"rejectedSpans":"300","errorMessage":"too old"}}"#;
        assert_eq!(judge(&answer(200, "application/json; charset=utf-8", json)), some);
        let refused = judge(&answer(400, "application/x-protobuf", [&[0x08, 3, 0x12, 3][..], b"b\nd"].concat()));
        assert_eq!(refused, Verdict::Refused { reason: "the receiver answered 400 Bad Request: b d".to_owned() });
    }

    proptest! {
        #[test]
        fn any_body_is_an_answer(body in proptest::collection::vec(any::<u8>(), 0..200), json in any::<bool>()) {
            let kind = if json { "application/json" } else { "application/x-protobuf" };
            prop_assert!(matches!(judge(&answer(200, kind, body)), Verdict::Accepted { .. }), "a status of 200 was not taken");
        }
    }
}
