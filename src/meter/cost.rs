//! What tenants' calls cost, per tenant and model.
//!
//! Counted in nanodollars, shown in whole microdollars: calls that cost less than one add up. Invariant: at most
//! [`TENANTS_MAX`] tenants and [`SERIES_MAX`] series per core; what is beyond shows as `other`. Knows no prices.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use crossbeam_queue::SegQueue;
use weir_config::vocab::TenantId;

use super::cell::Counter;
use super::core::Fresh;
use super::expose::Exposition;
use super::label::{Admitted, MODELS_MAX, NO_MODEL, OTHER, is_legal};
use super::names;
use super::table::Table;

/// Different `tenant` values shown before `other`.
pub const TENANTS_MAX: usize = 1_000;
/// Pairs of tenant and model counted apart on one core.
const SERIES_MAX: usize = 10_000;
const NANO_PER_MICRO: u64 = 1_000;

/// What one tenant's calls of one model cost on one core.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct CostSeries {
    /// `None` is everybody beyond the bound.
    tenant: Option<TenantId>,
    model: Box<str>,
    nano_usd: Counter,
}

/// One core's cost cells.
pub(super) struct CoreCosts {
    fresh: Arc<SegQueue<Fresh>>,
    series: RefCell<Table<Arc<CostSeries>>>,
    count: std::cell::Cell<usize>,
}

impl CoreCosts {
    pub(super) fn new(fresh: Arc<SegQueue<Fresh>>) -> Self {
        Self { fresh, series: RefCell::new(Table::new()), count: std::cell::Cell::new(0) }
    }

    pub(super) fn add(&self, tenant: TenantId, model: Option<&str>, nano_usd: u64) {
        let mut table = self.series.borrow_mut();
        let model = model.filter(|model| is_legal(model)).unwrap_or(if model.is_some() { OTHER } else { NO_MODEL });
        let full = self.count.get() >= SERIES_MAX;
        let at = Self::find(&table, Some(tenant), model)
            .or_else(|| full.then(|| Self::find(&table, None, OTHER)).flatten())
            .unwrap_or_else(|| {
                let (tenant, model) = if full { (None, OTHER) } else { (Some(tenant), model) };
                let series = Arc::new(CostSeries { tenant, model: model.into(), nano_usd: Counter::default() });
                self.fresh.push(Fresh::Cost(Arc::clone(&series)));
                self.count.set(self.count.get() + 1);
                let hash = Self::hash(&table, tenant, model);
                table.insert(hash, series)
            });
        if let Some(series) = table.get_mut(at) {
            series.nano_usd.add(nano_usd);
        }
    }

    fn hash(table: &Table<Arc<CostSeries>>, tenant: Option<TenantId>, model: &str) -> u64 {
        let (high, low) = tenant.map_or((1, 0), |tenant| tenant.uuid().as_u64_pair());
        table.hash(model, high.rotate_left(32) ^ low)
    }

    fn find(table: &Table<Arc<CostSeries>>, tenant: Option<TenantId>, model: &str) -> Option<usize> {
        table.find(Self::hash(table, tenant, model), |known| known.tenant == tenant && *known.model == *model)
    }
}

/// What scrapes know of costs.
pub(super) struct KnownCosts {
    tenants: Admitted,
    models: Admitted,
    series: Vec<(Arc<CostSeries>, Arc<str>, Arc<str>)>,
}

impl KnownCosts {
    pub(super) fn new() -> Self {
        Self { tenants: Admitted::new(TENANTS_MAX), models: Admitted::new(MODELS_MAX), series: Vec::new() }
    }

    pub(super) fn take_in(&mut self, series: Arc<CostSeries>) {
        let tenant = series.tenant.map_or_else(|| OTHER.to_owned(), |tenant| tenant.to_string());
        let (tenant, _) = self.tenants.admit(&tenant);
        let (model, _) = self.models.admit(&series.model);
        self.series.push((series, tenant, model));
    }

    pub(super) fn expose(&self, out: &mut Exposition) {
        let mut sums = BTreeMap::<(&str, &str), u64>::new();
        for (series, tenant, model) in &self.series {
            *sums.entry((tenant, model)).or_default() += series.nano_usd.get();
        }
        for ((tenant, model), nano_usd) in sums {
            out.counter(names::COST, &[("tenant", tenant), ("model", model)], nano_usd / NANO_PER_MICRO);
        }
    }
}
