//! A refusal of the gateway as a gRPC status, with the time after which a call may be made again where there is one.

use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::exchange::Refusal;

/// The status of `refusal`: its message, and `google.rpc.RetryInfo` where it has a `Retry-After`.
pub(super) fn of(refusal: &Refusal) -> Status {
    let code = match refusal.status {
        400 => Code::InvalidArgument,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        413 | 429 => Code::ResourceExhausted,
        503 => Code::Unavailable,
        _ => Code::Internal,
    };
    let after = refusal.headers.iter().find(|(name, _)| *name == "Retry-After");
    match after.and_then(|(_, seconds)| seconds.parse().ok()) {
        Some(seconds) => again(code, &refusal.message, Duration::from_secs(seconds)),
        None => Status::new(code, &refusal.message),
    }
}

/// A status that says when the call may be made again.
pub(super) fn again(code: Code, message: &str, after: Duration) -> Status {
    Status::with_error_details(code, message, ErrorDetails::with_retry_info(Some(after)))
}

/// A call that came too late: another process or a later try takes it.
pub(super) fn stopping() -> Status {
    again(Code::Unavailable, "the gateway is stopping; send this again", Duration::from_secs(1))
}

/// The HTTP status that says the same, for the log.
pub(super) fn http(code: Code) -> u16 {
    match code {
        Code::Ok => 200,
        Code::InvalidArgument | Code::OutOfRange | Code::FailedPrecondition => 400,
        Code::Unauthenticated => 401,
        Code::PermissionDenied => 403,
        Code::NotFound | Code::Unimplemented => 404,
        Code::ResourceExhausted => 429,
        Code::Cancelled => 499,
        Code::Unavailable => 503,
        Code::DeadlineExceeded => 504,
        _ => 500,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_keeps_its_words_and_says_when_to_come_back() {
        let limited = Refusal::new(429, "rate_limit_exceeded", "slower").header("Retry-After", 7);
        let status = of(&limited);
        assert_eq!((status.code(), status.message()), (Code::ResourceExhausted, "slower"));
        let retry = status.get_error_details().retry_info().and_then(|info| info.retry_delay);
        assert_eq!(retry, Some(Duration::from_secs(7)));
        for (http_status, code) in [
            (400, Code::InvalidArgument),
            (401, Code::Unauthenticated),
            (403, Code::PermissionDenied),
            (413, Code::ResourceExhausted),
            (503, Code::Unavailable),
            (500, Code::Internal),
        ] {
            let status = of(&Refusal::new(http_status, "x", "y"));
            assert_eq!(status.code(), code);
            assert!(status.get_error_details().retry_info().is_none());
        }
    }
}
