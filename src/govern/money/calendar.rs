//! The calendar of budgets: which hour, day, ISO week and month a moment lies in, in UTC.
//!
//! Invariant: the periods of a window follow one another without gap or overlap, and every moment lies in exactly one.
//! Knows no clock: the moment is given, in seconds since 1970-01-01 (leap seconds do not exist in it).

use time::OffsetDateTime;
use weir_config::settings::Window;

const HOUR_S: i64 = 3_600;
const DAY_S: i64 = 24 * HOUR_S;
const WEEK_S: i64 = 7 * DAY_S;
/// 1970-01-05 was a Monday.
const FIRST_MONDAY_S: i64 = 4 * DAY_S;

/// One period of a window, from its first second to the first one after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    /// The first second.
    pub start_s: i64,
    /// The first second of the next period.
    pub end_s: i64,
}

impl Period {
    /// The period of `window` that `now_s` lies in.
    pub fn of(window: Window, now_s: i64) -> Self {
        match window {
            Window::Hourly => Self::regular(HOUR_S, 0, now_s),
            Window::Daily => Self::regular(DAY_S, 0, now_s),
            Window::Weekly => Self::regular(WEEK_S, FIRST_MONDAY_S, now_s),
            Window::Monthly => Self::month(now_s),
        }
    }

    fn regular(length_s: i64, first_s: i64, now_s: i64) -> Self {
        let start_s = now_s - (now_s - first_s).rem_euclid(length_s);
        Self { start_s, end_s: start_s + length_s }
    }

    fn month(now_s: i64) -> Self {
        // A moment no calendar reaches is given a day instead of a month: it has to end some time.
        let Ok(now) = OffsetDateTime::from_unix_timestamp(now_s) else { return Self::regular(DAY_S, 0, now_s) };
        let day = Self::regular(DAY_S, 0, now_s);
        let start_s = day.start_s - DAY_S * i64::from(now.day() - 1);
        let days = now.month().length(now.year());
        Self { start_s, end_s: start_s + DAY_S * i64::from(days) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::format_description::well_known::Rfc3339;

    use super::*;

    fn at(text: &str) -> i64 {
        OffsetDateTime::parse(text, &Rfc3339).unwrap().unix_timestamp()
    }

    fn shown(seconds: i64) -> String {
        OffsetDateTime::from_unix_timestamp(seconds).unwrap().format(&Rfc3339).unwrap()
    }

    /// Instants on both sides of the edges, and the period each lies in, taken from a printed calendar.
    #[test]
    fn forty_instants_lie_where_the_calendar_says() {
        use Window::{Daily, Hourly, Monthly, Weekly};
        for (window, now, start, end) in [
            // Hours.
            (Hourly, "2026-11-21T00:00:00Z", "2026-11-21T00:00:00Z", "2026-11-21T01:00:00Z"),
            (Hourly, "2026-11-21T00:59:59Z", "2026-11-21T00:00:00Z", "2026-11-21T01:00:00Z"),
            (Hourly, "2026-11-21T01:00:00Z", "2026-11-21T01:00:00Z", "2026-11-21T02:00:00Z"),
            (Hourly, "2026-12-31T23:59:59Z", "2026-12-31T23:00:00Z", "2027-01-01T00:00:00Z"),
            (Hourly, "2028-02-29T23:30:00Z", "2028-02-29T23:00:00Z", "2028-03-01T00:00:00Z"),
            // The hours in which clocks change in Europe and America: UTC has no such thing.
            (Hourly, "2026-03-29T01:00:00Z", "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"),
            (Hourly, "2026-11-01T06:59:59Z", "2026-11-01T06:00:00Z", "2026-11-01T07:00:00Z"),
            // A leap second is the last second of its hour.
            (Hourly, "2016-12-31T23:59:59Z", "2016-12-31T23:00:00Z", "2017-01-01T00:00:00Z"),
            // Days.
            (Daily, "2026-11-21T00:00:00Z", "2026-11-21T00:00:00Z", "2026-11-22T00:00:00Z"),
            (Daily, "2026-11-20T23:59:59Z", "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z"),
            (Daily, "2027-02-28T12:00:00Z", "2027-02-28T00:00:00Z", "2027-03-01T00:00:00Z"),
            (Daily, "2028-02-28T23:59:59Z", "2028-02-28T00:00:00Z", "2028-02-29T00:00:00Z"),
            (Daily, "2028-02-29T00:00:00Z", "2028-02-29T00:00:00Z", "2028-03-01T00:00:00Z"),
            (Daily, "2100-02-28T23:59:59Z", "2100-02-28T00:00:00Z", "2100-03-01T00:00:00Z"),
            (Daily, "2026-12-31T23:59:59Z", "2026-12-31T00:00:00Z", "2027-01-01T00:00:00Z"),
            (Daily, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "1970-01-02T00:00:00Z"),
            (Daily, "1969-12-31T23:59:59Z", "1969-12-31T00:00:00Z", "1970-01-01T00:00:00Z"),
            // ISO weeks begin on Monday; 2026-11-16 is one.
            (Weekly, "2026-11-15T23:59:59Z", "2026-11-09T00:00:00Z", "2026-11-16T00:00:00Z"),
            (Weekly, "2026-11-16T00:00:00Z", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z"),
            (Weekly, "2026-11-21T12:00:00Z", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z"),
            (Weekly, "2026-11-22T23:59:59Z", "2026-11-16T00:00:00Z", "2026-11-23T00:00:00Z"),
            // 2027-01-01 is a Friday of week 53 of 2026.
            (Weekly, "2026-12-31T23:59:59Z", "2026-12-28T00:00:00Z", "2027-01-04T00:00:00Z"),
            (Weekly, "2027-01-01T00:00:00Z", "2026-12-28T00:00:00Z", "2027-01-04T00:00:00Z"),
            (Weekly, "2027-01-03T23:59:59Z", "2026-12-28T00:00:00Z", "2027-01-04T00:00:00Z"),
            (Weekly, "2027-01-04T00:00:00Z", "2027-01-04T00:00:00Z", "2027-01-11T00:00:00Z"),
            // 2024-12-30 is a Monday of week 1 of 2025.
            (Weekly, "2024-12-30T00:00:00Z", "2024-12-30T00:00:00Z", "2025-01-06T00:00:00Z"),
            (Weekly, "2024-12-29T23:59:59Z", "2024-12-23T00:00:00Z", "2024-12-30T00:00:00Z"),
            (Weekly, "2028-02-29T10:00:00Z", "2028-02-28T00:00:00Z", "2028-03-06T00:00:00Z"),
            (Weekly, "1970-01-01T00:00:00Z", "1969-12-29T00:00:00Z", "1970-01-05T00:00:00Z"),
            // Months.
            (Monthly, "2026-11-01T00:00:00Z", "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"),
            (Monthly, "2026-10-31T23:59:59Z", "2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z"),
            (Monthly, "2026-11-30T23:59:59Z", "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"),
            (Monthly, "2026-12-31T23:59:59Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"),
            (Monthly, "2027-01-01T00:00:00Z", "2027-01-01T00:00:00Z", "2027-02-01T00:00:00Z"),
            (Monthly, "2027-02-28T23:59:59Z", "2027-02-01T00:00:00Z", "2027-03-01T00:00:00Z"),
            (Monthly, "2028-02-28T23:59:59Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"),
            (Monthly, "2028-02-29T23:59:59Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"),
            (Monthly, "2028-03-01T00:00:00Z", "2028-03-01T00:00:00Z", "2028-04-01T00:00:00Z"),
            (Monthly, "2000-02-29T12:00:00Z", "2000-02-01T00:00:00Z", "2000-03-01T00:00:00Z"),
            (Monthly, "2100-02-28T12:00:00Z", "2100-02-01T00:00:00Z", "2100-03-01T00:00:00Z"),
        ] {
            let period = Period::of(window, at(now));
            assert_eq!(
                (shown(period.start_s).as_str(), shown(period.end_s).as_str()),
                (start, end),
                "{window:?} {now}"
            );
        }
    }

    proptest! {
        #[test]
        fn every_moment_lies_in_one_period_and_the_next_begins_where_it_ends(now in -10_000_000_000_i64..250_000_000_000) {
            for window in Window::ALL {
                let period = Period::of(window, now);
                prop_assert!((period.start_s..period.end_s).contains(&now));
                prop_assert_eq!(Period::of(window, period.start_s), period);
                prop_assert_eq!(Period::of(window, period.end_s - 1), period);
                prop_assert_eq!(Period::of(window, period.end_s).start_s, period.end_s);
            }
        }
    }
}
