//! Whether and when a receiver wants to be sent the same again.

use std::time::{Duration, SystemTime};

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};

/// What the status of an answer says of the same request sent again, where what is sent must not be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reception {
    /// It was taken.
    Taken,
    /// Less of it may be.
    TooLarge,
    /// It may be taken later. Where that is doubtful, what was sent may be what the receiver cannot deal with.
    Later {
        /// See above.
        is_doubtful: bool,
    },
    /// It never will be.
    Refused,
}

/// Reads a status: addresses and credentials which are wrong cost nothing but time, somebody will correct them.
pub fn reception(status: StatusCode) -> Reception {
    match status.as_u16() {
        200..300 => Reception::Taken,
        413 => Reception::TooLarge,
        300..=399 | 401..=405 | 407 | 408 | 425 | 429 | 502..=504 => Reception::Later { is_doubtful: false },
        500.. => Reception::Later { is_doubtful: true },
        _ => Reception::Refused,
    }
}

/// `body` as gzip has it.
pub fn packed(body: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut packer = flate2::write::GzEncoder::new(Vec::with_capacity(body.len() / 4), flate2::Compression::fast());
    // Writing to memory cannot fail.
    let written = packer.write_all(body).and_then(|()| packer.finish());
    written.unwrap_or_default()
}

/// `Retry-After` (RFC 9110 section 10.2.3): seconds, or a date.
pub fn retry_after(fields: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = fields.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    httpdate::parse_http_date(text).ok().map(|at| at.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_comes_in_two_forms() {
        let read = |text: &str| {
            let fields = HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]);
            retry_after(&fields, SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777))
        };
        assert_eq!(read("12"), Some(Duration::from_secs(12)));
        assert_eq!(read("Sun, 06 Nov 1994 08:49:47 GMT"), Some(Duration::from_secs(10)));
        assert_eq!(read("Sun, 06 Nov 1994 08:49:07 GMT"), Some(Duration::ZERO));
        assert_eq!((read("soon"), read("-1")), (None, None));
    }
}
