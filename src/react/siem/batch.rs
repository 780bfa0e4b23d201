//! How events are put together to the body of a request, and what its answer says of them.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use weir_config::settings::SiemBatch;
use weir_config::vocab::Timestamp;

use super::event::Event;
use crate::outbound::{Answer, Reception, reception, retry_after};

/// The longest that a receiver may ask to be left alone: what it says may be a mistake, and the events wait meanwhile.
const AFTER_MAX: Duration = Duration::from_secs(3_600);
/// Characters of what a receiver says that go into the log.
const WORDS_MAX: usize = 300;
/// What Splunk's collector calls an event's own fault in an answer 400: no data, no format, no event, an empty one, fields that it
/// cannot index. Its other codes are about the token, the index and the channel, which somebody will correct.
const SPLUNK_EVENT_CODES: [u64; 5] = [5, 6, 12, 13, 15];

/// An event as it stands in a request.
pub(super) struct Piece {
    pub(super) id: String,
    pub(super) text: String,
}

/// What became of one event of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Share {
    Taken,
    Later(String),
    Refused(String),
}

/// What an answer says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    Taken,
    /// Of each event by itself, in their order.
    Each(Vec<Share>),
    /// Fewer at once may be taken.
    TooLarge {
        reason: String,
    },
    /// At least one of them never will be taken.
    Refused {
        reason: String,
    },
    /// The same comes again, no sooner than after this time. Where that is doubtful, an event may be what the receiver cannot deal with.
    Later {
        reason: String,
        after: Option<Duration>,
        is_doubtful: bool,
    },
}

/// The media type of the body.
pub(super) const fn media_type(batch: SiemBatch) -> &'static str {
    match batch {
        SiemBatch::Ndjson | SiemBatch::Elastic => "application/x-ndjson",
        SiemBatch::Array | SiemBatch::Splunk => "application/json",
    }
}

/// An event, whose JSON is `text`, as it stands in a body.
pub(super) fn piece(batch: SiemBatch, event: &Event, text: &str, host: &str) -> Piece {
    let text = match batch {
        SiemBatch::Ndjson | SiemBatch::Array => text.to_owned(),
        SiemBatch::Splunk => {
            let (seconds, host) = (seconds(event.at), json!(host));
            format!(r#"{{"time":{seconds},"host":{host},"source":"weir","event":{text}}}"#)
        }
        // The id says that it is the same where it comes twice.
        SiemBatch::Elastic => format!("{}\n{text}", json!({"create": {"_id": event.id}})),
    };
    Piece { id: event.id.clone(), text }
}

/// The body with these events.
pub(super) fn body(batch: SiemBatch, part: &[Piece]) -> Vec<u8> {
    let (begin, between, end) = match batch {
        SiemBatch::Array => ("[", ",\n", "]\n"),
        SiemBatch::Ndjson | SiemBatch::Splunk | SiemBatch::Elastic => ("", "\n", "\n"),
    };
    let mut body = String::with_capacity(part.iter().map(|piece| piece.text.len() + between.len()).sum::<usize>() + 4);
    body.push_str(begin);
    for (place, piece) in part.iter().enumerate() {
        if place > 0 {
            body.push_str(between);
        }
        body.push_str(&piece.text);
    }
    body.push_str(end);
    body.into_bytes()
}

/// What the answer says of a request with so many events.
pub(super) fn judge(batch: SiemBatch, answer: &Answer, count: usize) -> Said {
    let said = shown(&String::from_utf8_lossy(&answer.body));
    let reason = || match said.trim() {
        "" => format!("the receiver answered {}", answer.status),
        words => format!("the receiver answered {}: {words}", answer.status),
    };
    let after = || retry_after(&answer.fields, SystemTime::now()).map(|after| after.min(AFTER_MAX));
    match reception(answer.status) {
        Reception::Taken if batch == SiemBatch::Elastic => of_bulk(answer, count).unwrap_or_else(|| Said::Later {
            reason: format!("this is no answer of the bulk API ({})", reason()),
            after: None,
            is_doubtful: false,
        }),
        Reception::Taken => Said::Taken,
        Reception::TooLarge => Said::TooLarge { reason: reason() },
        Reception::Later { is_doubtful } => Said::Later { reason: reason(), after: after(), is_doubtful },
        Reception::Refused if batch == SiemBatch::Splunk && !is_of_event(answer) => {
            Said::Later { reason: reason(), after: after(), is_doubtful: false }
        }
        Reception::Refused => Said::Refused { reason: reason() },
    }
}

/// Whether Splunk's collector finds fault with an event.
fn is_of_event(answer: &Answer) -> bool {
    let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    said.get("code").and_then(Value::as_u64).is_some_and(|code| SPLUNK_EVENT_CODES.contains(&code))
}

/// What the bulk API says: whether all were taken, else of each.
fn of_bulk(answer: &Answer, count: usize) -> Option<Said> {
    let said: Value = serde_json::from_slice(&answer.body).ok()?;
    if !said.get("errors")?.as_bool()? {
        return Some(Said::Taken);
    }
    let items = said.get("items")?.as_array().filter(|items| items.len() == count)?;
    let share = |item: &Value| {
        let item = item.as_object()?.values().next()?;
        let status = item.get("status")?.as_u64()?;
        let error = item.get("error").map(|error| shown(&error.to_string())).unwrap_or_default();
        let reason = format!("the receiver answered {status} for an event: {error}");
        // It has an event of this id: the same.
        if status == 409 {
            return Some(Share::Taken);
        }
        let status = http::StatusCode::from_u16(u16::try_from(status).ok()?).ok()?;
        Some(match reception(status) {
            Reception::Taken => Share::Taken,
            Reception::Later { .. } => Share::Later(reason),
            Reception::TooLarge | Reception::Refused => Share::Refused(reason),
        })
    };
    items.iter().map(share).collect::<Option<Vec<_>>>().map(Said::Each)
}

/// Seconds, to the microsecond.
fn seconds(at: Timestamp) -> String {
    let micros = at.micros();
    format!("{}.{:06}", micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000))
}

/// One line of it.
fn shown(words: &str) -> String {
    words.chars().take(WORDS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, StatusCode};
    use proptest::prelude::*;

    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        let fields = HeaderMap::from_iter([(http::header::RETRY_AFTER, "7".parse().unwrap())]);
        Answer { status: StatusCode::from_u16(status).unwrap(), fields, body: body.to_owned().into() }
    }

    #[test]
    fn an_answer_says_what_comes_again() {
        let judged = |batch, status, body: &str| judge(batch, &answer(status, body), 2);
        let waits = |said: &Said| matches!(said, Said::Later { after: Some(after), .. } if after.as_secs() == 7);
        assert_eq!(judged(SiemBatch::Array, 204, ""), Said::Taken);
        for status in [301, 401, 403, 404, 408, 429, 500, 502, 503, 504] {
            assert!(waits(&judged(SiemBatch::Ndjson, status, "")), "{status}");
        }
        let refused = judged(SiemBatch::Array, 400, "no\nway");
        assert_eq!(refused, Said::Refused { reason: "the receiver answered 400 Bad Request: no way".to_owned() });
        assert!(matches!(judged(SiemBatch::Array, 413, ""), Said::TooLarge { .. }));
        // Of what Splunk finds fault with, it waits for what is about its settings.
        let event = r#"{"text":"Invalid data format","code":6,"invalid-event-number":0}"#;
        assert!(matches!(judged(SiemBatch::Splunk, 400, event), Said::Refused { .. }));
        assert!(waits(&judged(SiemBatch::Splunk, 400, r#"{"text":"Incorrect index","code":7}"#)));
    }

    #[test]
    fn the_bulk_api_says_it_of_each_event() {
        let judged = |body: &str| judge(SiemBatch::Elastic, &answer(200, body), 4);
        assert_eq!(judged(r#"{"took":1,"errors":false,"items":[]}"#), Said::Taken);
        let each = r#"{"errors":true,"items":[{"create":{"status":201}},{"create":{"status":409,"error":{"type":"version_conflict_engine_exception"}}},
            {"create":{"status":429}},{"create":{"status":400,"error":{"type":"document_parsing_exception"}}}]}"#;
        let Said::Each(shares) = judged(each) else { panic!("not of each") };
        assert_eq!(shares[..2], [Share::Taken, Share::Taken]);
        assert!(matches!((&shares[2], &shares[3]), (Share::Later(_), Share::Refused(why)) if why.contains("parsing")));
        // A page of a proxy, or an answer of fewer, is none.
        for other in ["<html>Sign in</html>", "{}", r#"{"errors":true,"items":[]}"#] {
            assert!(matches!(judged(other), Said::Later { .. }), "{other}");
        }
    }

    proptest! {
        #[test]
        fn any_answer_is_read(body in "\\PC{0,80}|\\{\"errors\":true,\"items\":\\[[{}\":a-z0-9,]{0,30}\\]\\}", status in 200_u16..600) {
            for batch in [SiemBatch::Ndjson, SiemBatch::Array, SiemBatch::Splunk, SiemBatch::Elastic] {
                let said = judge(batch, &answer(status, &body), 2);
                prop_assert!(status < 300 || said != Said::Taken, "{said:?}");
            }
        }
    }
}
