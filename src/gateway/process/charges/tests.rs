//! Charges of batches: once over all gateways, and what memory does while the store is away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weir_config::settings::{Budgets, Window};
use weir_storage::ReadError;

use super::*;

/// Another gateway may charge in between; the store may be away.
#[derive(Default)]
struct Book {
    charged: Mutex<HashMap<BatchId, u64>>,
    spent: Mutex<u64>,
    faster: Mutex<Option<u64>>,
    is_away: AtomicBool,
}

impl SpendBook for Book {
    fn save_spend(&self, _: Vec<SpendRow>) -> Result<Vec<(TenantId, i64)>, NotWritten> {
        Ok(Vec::new())
    }

    fn load_spend(&self, _: i64) -> Result<Vec<SpendRow>, ReadError> {
        Ok(Vec::new())
    }

    fn charged(&self, id: &BatchId) -> Result<Option<u64>, ReadError> {
        Ok(self.charged.lock().unwrap().get(id).copied())
    }

    fn charge_batch(&self, rows: Vec<SpendRow>, charge: BatchCharge) -> Result<Booked, NotWritten> {
        if self.is_away.load(Ordering::Relaxed) {
            return Err(NotWritten::Closed);
        }
        let mut charged = self.charged.lock().unwrap();
        if let Some(faster) = self.faster.lock().unwrap().take() {
            charged.insert(charge.id.clone(), faster);
        }
        let known = charged.get(&charge.id).copied();
        if known != charge.before {
            return Ok(Booked::Other(known));
        }
        charged.insert(charge.id, charge.nano_usd);
        let of_day = rows.iter().find(|row| row.window == Window::Daily);
        *self.spent.lock().unwrap() = of_day.map_or(0, |row| row.spent_nano_usd);
        Ok(Booked::Kept(Vec::new()))
    }
}

struct Gateway {
    charges: ResultCharges,
    spend: Arc<Spend>,
}

impl Gateway {
    fn new() -> Self {
        Self { charges: ResultCharges::default(), spend: Arc::new(Spend::new()) }
    }

    fn fetch(&self, book: &Book, nano_usd: u64) -> (Option<u64>, u64) {
        let limits = Budgets::default();
        let reserved = self.spend.reserve(TenantId::DEFAULT, "ada", &limits, &limits, 0, 1);
        let Ok(mut reservation) = reserved else { panic!("nothing limits it") };
        let books = Books { book, spend: &self.spend };
        let id = results_id(TenantId::DEFAULT, "openai", "files/a");
        let more = self.charges.charge(books, (&id, nano_usd, 1), Some(&mut reservation));
        reservation.settle(more.unwrap_or(0));
        (more, self.spend.snapshot(TenantId::DEFAULT, "ada", 1)[1].spent_nano_usd)
    }
}

#[test]
fn results_are_charged_once_by_all_and_what_a_longer_fetch_brings_beyond() {
    let book = Book::default();
    let (one, two) = (Gateway::new(), Gateway::new());
    assert_eq!(one.fetch(&book, 300), (Some(300), 300));
    assert_eq!(*book.spent.lock().unwrap(), 300, "kept with the charge");
    assert_eq!([one.fetch(&book, 300), two.fetch(&book, 100)], [(None, 300), (None, 0)]);
    assert_eq!([two.fetch(&book, 700), one.fetch(&book, 700)], [(Some(400), 400), (None, 300)]);
    // As a fresh process.
    assert_eq!(Gateway::new().fetch(&book, 700), (None, 0));
}

#[test]
fn whoever_is_slower_charges_the_rest_alone() {
    let book = Book::default();
    *book.faster.lock().unwrap() = Some(200);
    assert_eq!(Gateway::new().fetch(&book, 300), (Some(100), 100));
    let book = Book::default();
    *book.faster.lock().unwrap() = Some(300);
    assert_eq!(Gateway::new().fetch(&book, 300), (None, 0));
}

#[test]
fn what_the_store_does_not_take_is_charged_by_memory_and_written_later() {
    let (book, gateway) = (Book::default(), Gateway::new());
    book.is_away.store(true, Ordering::Relaxed);
    assert_eq!([gateway.fetch(&book, 300), gateway.fetch(&book, 300)], [(Some(300), 300), (None, 300)]);
    assert!(!gateway.charges.catch_up(&book));
    book.is_away.store(false, Ordering::Relaxed);
    assert!(gateway.charges.catch_up(&book) && gateway.charges.catch_up(&book));
    assert_eq!(Gateway::new().fetch(&book, 300), (None, 0));
}

#[test]
fn memory_and_names_are_bounded() {
    let charges = ResultCharges::default();
    for at in 0..=CHARGED_MAX {
        charges.charge_by_memory(&results_id(TenantId::DEFAULT, "openai", &at.to_string()), 1, 1);
    }
    let knows = |at: usize| charges.is_charged(&results_id(TenantId::DEFAULT, "openai", &at.to_string()), 1);
    assert!(!knows(0) && knows(1) && knows(CHARGED_MAX));
    assert_eq!(lock(&charges.unwritten).len(), UNWRITTEN_MAX);
    assert!(results_id(TenantId::DEFAULT, "openai", &"a".repeat(9_999)).batch.len() <= BATCH_ID_BYTES_MAX);
}
