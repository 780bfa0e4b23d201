//! Keeps spend over restarts: read before the first request, written behind the traffic once a second and at the end.
//!
//! What a kill can lose is bounded: the spend of the last second, and what was reserved by calls under way.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use weir_config::vocab::Timestamp;
use weir_storage::{ReadError, SpendBook, SpendRow, Store};

use super::sharing::Sharing;
use crate::money::{KeptSpend, Spend};
use crate::process::charges::{Books, ResultCharges};

/// How long spend stands in memory only.
const KEEP_INTERVAL: Duration = Duration::from_secs(1);
const MICROS_PER_SECOND: i64 = 1_000_000;

/// Takes back what was spent in the periods that still run.
pub(super) fn restore(spend: &Spend, store: &dyn SpendBook) -> Result<(), ReadError> {
    let now_s = Timestamp::now().micros() / MICROS_PER_SECOND;
    spend.restore(store.load_spend(now_s)?.into_iter().map(kept).collect(), now_s);
    Ok(())
}

/// Writes down what changed, and hears which tenants another process has deleted. Blocks until it is durable; what could
/// not be written is tried again the next time.
pub(super) fn save(spend: &Spend, store: &dyn SpendBook) -> bool {
    spend.keep(|rows| match (Books { book: store, spend }).save(rows) {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(%error, accounts = rows.len(), "spend could not be saved; it stays in memory, and saving will be retried");
            false
        }
    })
}

/// Counts in what other gateways have spent since the last time, where several share what is spent, be it stores or a file. False when
/// that is not known.
fn hear(spend: &Spend, store: &Store, sharing: Option<&Sharing>) -> bool {
    let now_s = Timestamp::now().micros() / MICROS_PER_SECOND;
    let is_due = store.gateways().is_some() || sharing.is_some_and(Sharing::take_owing);
    if !is_due {
        return true;
    }
    match store.spent_elsewhere(now_s) {
        Ok(rows) => {
            rows.into_iter().for_each(|row| spend.count_in(&kept(row), now_s));
            true
        }
        Err(error) => {
            tracing::debug!(%error, "what other gateways have spent could not be read");
            sharing.into_iter().for_each(Sharing::still_owing);
            false
        }
    }
}

fn kept(row: SpendRow) -> KeptSpend {
    let SpendRow { tenant, agent, window, period_start_s, since_s, spent_nano_usd } = row;
    KeptSpend { tenant, agent, window, period_start_s, since_s, spent_nano_usd }
}

/// Does that again and again.
pub(super) async fn keep(
    (spend, charges): (Arc<Spend>, Arc<ResultCharges>),
    store: Store,
    sharing: Option<Arc<Sharing>>,
) {
    let mut next = Instant::now() + KEEP_INTERVAL;
    let mut stale = next;
    loop {
        tokio::time::sleep_until(stale).await;
        spend.went_stale();
        tokio::time::sleep_until(next).await;
        let saved = {
            let (spend, charges) = (Arc::clone(&spend), Arc::clone(&charges));
            let (store, sharing) = (store.clone(), sharing.clone());
            move || {
                let sharing = sharing.as_deref();
                // What is left is tried again the next time.
                let _left = !charges.catch_up(&store);
                let is_saved = save(&spend, &store);
                let heard = Instant::now();
                let knows_others = is_saved && hear(&spend, &store, sharing);
                let gateways = store.gateways().or(sharing.map(Sharing::gateways));
                spend.divide(gateways.unwrap_or(1), knows_others);
                heard
            }
        };
        match tokio::task::spawn_blocking(saved).await {
            Ok(heard) => stale = heard + KEEP_INTERVAL,
            Err(_) => tracing::error!("saving spend panicked"),
        }
        // From the end of a round, so that no two of them are closer than what was heard counts for.
        next = Instant::now() + KEEP_INTERVAL;
    }
}
