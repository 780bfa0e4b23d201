//! The contract of [`SpendBook`].

use weir_config::settings::Window;
use weir_storage::{BatchCharge, BatchId, Booked, SpendBook, SpendRow};

use super::checks;
use crate::support::tenant;

checks! { dyn SpendBook:
    spend_of_a_period_never_falls_and_the_next_period_begins_anew,
    periods_that_are_over_are_not_loaded,
    results_of_a_batch_are_charged_with_what_is_spent_or_not_at_all,
    charges_of_a_hundred_days_ago_are_forgotten,
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

fn results(provider: &str, batch: &str) -> BatchId {
    BatchId { tenant: tenant(1), provider: provider.to_owned(), batch: batch.to_owned() }
}

fn results_of_a_batch_are_charged_with_what_is_spent_or_not_at_all(book: &dyn SpendBook) {
    let spent = || book.load_spend(DAY).unwrap().iter().map(|row| row.spent_nano_usd).sum::<u64>();
    let charge = |before, nano_usd| BatchCharge { id: results("openai", "files/a"), before, nano_usd, at_us: 7 };
    let known = |id: BatchId| book.charged(&id).unwrap();
    assert_eq!(known(results("openai", "files/a")), None);
    assert_eq!(book.charge_batch(vec![row(DAY, 5)], charge(None, 5)).unwrap(), Booked::Kept(vec![]));
    assert_eq!((known(results("openai", "files/a")), spent()), (Some(5), 5));
    // Another gateway that knew nothing of it.
    assert_eq!(book.charge_batch(vec![row(DAY, 10)], charge(None, 5)).unwrap(), Booked::Other(Some(5)));
    assert_eq!((known(results("openai", "files/a")), spent()), (Some(5), 5), "neither is kept");
    assert_eq!(book.charge_batch(vec![row(DAY, 8)], charge(Some(5), 8)).unwrap(), Booked::Kept(vec![]));
    assert_eq!(book.charge_batch(vec![], charge(Some(5), 9)).unwrap(), Booked::Other(Some(8)));
    assert_eq!((known(results("openai", "files/a")), spent()), (Some(8), 8));
    let foreign = BatchId { tenant: tenant(2), ..results("openai", "files/a") };
    assert_eq!([results("anthropic", "files/a"), results("openai", "files/b"), foreign].map(known), [None, None, None]);
}

fn charges_of_a_hundred_days_ago_are_forgotten(book: &dyn SpendBook) {
    let at = |batch: &str, day: i64| BatchCharge {
        id: results("openai", batch),
        before: None,
        nano_usd: 1,
        at_us: day * DAY * 1_000_000,
    };
    for (batch, day) in [("files/a", 1), ("files/b", 2), ("files/c", 101), ("files/d", 102)] {
        assert_eq!(book.charge_batch(vec![], at(batch, day)).unwrap(), Booked::Kept(vec![]));
    }
    let known = ["files/a", "files/b", "files/c"].map(|batch| book.charged(&results("openai", batch)).unwrap());
    assert_eq!(known, [None, Some(1), Some(1)]);
}
