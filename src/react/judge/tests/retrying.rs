//! A backend that says when it is to be asked again.

use std::time::SystemTime;

use super::*;

/// What comes of a question to a backend that is busy for a second or two, says so in this form, and refuses for good whoever comes
/// before.
fn outcome(backend: &'static str, by_date: bool) -> (Status, usize, Duration) {
    let until = Mutex::new(None);
    let scripted = Scripted::new(move |_, _, stream| {
        let (mut until, now) = (until.lock().unwrap(), SystemTime::now());
        match *until {
            None if by_date => {
                // A date has no fractions of a second, so that this one is more than a second away.
                let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
                let at = SystemTime::UNIX_EPOCH + Duration::from_secs(since + 2);
                *until = Some(at);
                let field = format!("Retry-After: {}\r\n", httpdate::fmt_http_date(at));
                answer(stream, "429 Too Many Requests", &field, "{}");
            }
            None => {
                *until = Some(now + Duration::from_secs(1));
                answer(stream, "429 Too Many Requests", "Retry-After: 1\r\n", "{}");
            }
            // The two sides read different clocks.
            Some(at) if now + Duration::from_millis(20) < at => answer(stream, "403 Forbidden", "", "{}"),
            Some(_) => answer(stream, "200 OK", "", &said(backend, VERDICT)),
        }
    });
    let outcome = ask(&judge(scripted.addr, patient(backend), true), PLEASE);
    (status(&outcome), scripted.seen().len(), outcome.took)
}

#[test]
fn a_backend_is_not_asked_again_before_the_time_it_names_in_either_form() {
    std::thread::scope(|scope| {
        for (backend, by_date) in MODELS.into_iter().flat_map(|backend| [(backend, false), (backend, true)]) {
            scope.spawn(move || {
                let (status, asked, took) = outcome(backend, by_date);
                assert_eq!((status, asked), (Status::Success, 2), "{backend}, by date: {by_date}, after {took:?}");
                assert!(took >= Duration::from_millis(980), "{backend}, by date: {by_date}: {took:?}");
            });
        }
    });
}
