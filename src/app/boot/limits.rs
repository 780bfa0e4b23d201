//! Rounds of the rate limits that several gateways share, on a thread of their own behind the traffic.

use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_storage::{Store, StoreState, leases};

use super::StartError;
use crate::admit::shared::{Leased, ROUND, SharedFigures, SharedRates, Wish};
use crate::meter::{Exposition, Source, names};
use crate::process::Process;

/// After so long without an answer of the cache each gateway grants its own part of rate limits.
const CUT_OFF: Duration = Duration::from_secs(1);
/// By how much rounds vary, nanoseconds.
const VARIES_NS: u64 = ROUND.as_nanos() as u64 / 2;

/// What metrics say of them, and of the stores.
struct SharedLimits(Arc<SharedRates>, Store);

impl Source for SharedLimits {
    fn collect(&self, out: &mut Exposition) {
        let SharedFigures { gateways, is_away, by_own_part } = self.0.figures();
        out.gauge(names::GATEWAYS, &[], f64::from(gateways));
        out.gauge(names::LIMITS_APART, &[], f64::from(u8::from(is_away)));
        out.counter(names::LIMITED_APART, &[], by_own_part);
        for StoreState { name, problem } in self.1.store_states() {
            out.gauge(names::STORE_AWAY, &[("store", name)], f64::from(u8::from(problem.is_some())));
        }
    }
}

/// Shares the process's rate limits and budgets with other gateways, where several use the same stores. The first round is made at once,
/// so that the number of gateways is known before the first request.
pub(super) fn share(process: &Arc<Process>, store: &Store) -> Result<(), StartError> {
    if store.gateways().is_none() {
        return Ok(());
    }
    let shared = Arc::new(SharedRates::new());
    round(&shared, store);
    process.parts.policy.spend.divide(store.gateways().unwrap_or(1), true);
    process.share_rates(&shared);
    process.parts.registry.add_source(Box::new(SharedLimits(Arc::clone(&shared), store.clone())));
    let (process, store) = (Arc::downgrade(process), store.clone());
    let run = move || {
        let mut last = Instant::now();
        while process.upgrade().is_some() {
            let varies = u64::from(uuid::Uuid::new_v4().as_fields().0) % VARIES_NS;
            std::thread::sleep(ROUND * 3 / 4 + Duration::from_nanos(varies));
            let was_away = shared.figures().is_away;
            if round(&shared, &store) {
                last = Instant::now();
                if was_away {
                    tracing::info!("rate limits are shared again");
                }
            } else if last.elapsed() >= CUT_OFF && !was_away {
                let gateways = shared.figures().gateways;
                tracing::warn!(
                    gateways,
                    "the cache does not answer: rate limits are divided by the last known number of gateways"
                );
                shared.is_cut_off();
            }
        }
    };
    let spawned = std::thread::Builder::new().name("weir-limits".to_owned()).spawn(run);
    spawned.map(|_| ()).map_err(|source| StartError::Thread { what: "the thread for shared limits", source })
}

fn round(shared: &SharedRates, store: &Store) -> bool {
    shared.round(|number, wishes| match store.lease(number, &wishes.iter().map(asked).collect::<Vec<_>>()) {
        Ok(leases::Leased { gateways, granted }) => Some(Leased { gateways, granted }),
        Err(error) => {
            tracing::debug!(%error, "a round of shared rate limits has failed; it is made again");
            None
        }
    })
}

fn asked(wish: &Wish) -> leases::Wish {
    let Wish { table, whose, rate, burst, tokens } = *wish;
    leases::Wish { table, whose, rate, burst, tokens }
}

#[cfg(test)]
mod tests {
    use crate::admit::shared;

    #[test]
    fn gateways_and_the_bucket_reckon_with_one_credit() {
        for (burst, gateways) in [(1, 1), (1, 3), (50, 3), (200, 7), (u32::MAX, 2), (5, 0)] {
            assert_eq!(shared::credit(burst, gateways), weir_storage::leases::credit(burst, gateways));
        }
    }
}
