//! When a receiver wants to be asked again.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::RETRY_AFTER;

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
