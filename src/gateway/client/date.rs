//! The Date field, formatted once a second per core (RFC 9110 section 5.6.7).

use std::cell::RefCell;

use time::OffsetDateTime;
use time::macros::format_description;

thread_local! {
    static LAST: RefCell<(i64, String)> = const { RefCell::new((i64::MIN, String::new())) };
}

/// Now, as an IMF-fixdate.
pub(crate) fn http_date() -> String {
    let now = OffsetDateTime::now_utc();
    LAST.with_borrow_mut(|(second, text)| {
        if *second != now.unix_timestamp() {
            *second = now.unix_timestamp();
            *text = format(now);
        }
        text.clone()
    })
}

fn format(at: OffsetDateTime) -> String {
    let shape =
        format_description!("[weekday repr:short], [day] [month repr:short] [year] [hour]:[minute]:[second] GMT");
    at.format(shape).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_an_imf_fixdate() {
        let at = OffsetDateTime::from_unix_timestamp(784_111_777).unwrap();
        assert_eq!(format(at), "Sun, 06 Nov 1994 08:49:37 GMT");
    }
}
