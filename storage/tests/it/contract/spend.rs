//! The contract of [`SpendBook`].

use weir_config::settings::Window;
use weir_storage::{SpendBook, SpendRow};

use super::checks;
use crate::support::tenant;

checks! { dyn SpendBook:
    spend_of_a_period_never_falls_and_the_next_period_begins_anew,
    periods_that_are_over_are_not_loaded,
}

const DAY: i64 = 86_400;

fn row(period_start_s: i64, spent_nano_usd: u64) -> SpendRow {
    let (tenant, agent, window) = (tenant(1), "agent".to_owned(), Window::Daily);
    SpendRow { tenant, agent, window, period_start_s, since_s: period_start_s, spent_nano_usd }
}

fn spend_of_a_period_never_falls_and_the_next_period_begins_anew(book: &dyn SpendBook) {
    let spent = || book.load_spend(DAY).unwrap().iter().map(|row| row.spent_nano_usd).collect::<Vec<_>>();
    for (written, kept) in [(row(0, 5), 5), (row(0, 9), 9), (row(0, 7), 9), (row(DAY, 1), 1), (row(0, 99), 1)] {
        assert_eq!(book.save_spend(vec![written]).unwrap(), []);
        assert_eq!(spent(), [kept]);
    }
}

fn periods_that_are_over_are_not_loaded(book: &dyn SpendBook) {
    let other = SpendRow { window: Window::Monthly, ..row(40 * DAY, 2) };
    book.save_spend(vec![row(DAY, 1), other]).unwrap();
    let loaded = book.load_spend(41 * DAY).unwrap();
    assert_eq!(loaded.iter().map(|row| (row.window, row.spent_nano_usd)).collect::<Vec<_>>(), [(Window::Monthly, 2)]);
}
