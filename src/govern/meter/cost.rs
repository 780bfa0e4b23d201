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
    calls: Counter,
}

/// One core's cost cells.
pub(super) struct CoreCosts {
    fresh: Arc<SegQueue<Fresh>>,
    series: RefCell<Table<Arc<CostSeries>>>,
    count: std::cell::Cell<usize>,
    models: RefCell<Admitted>,
}

impl CoreCosts {
    pub(super) fn new(fresh: Arc<SegQueue<Fresh>>) -> Self {
        let (series, models) = (RefCell::new(Table::new()), RefCell::new(Admitted::new(MODELS_MAX)));
        Self { fresh, series, count: std::cell::Cell::new(0), models }
    }

    pub(super) fn add(&self, tenant: TenantId, model: Option<&str>, nano_usd: u64) {
        let mut table = self.series.borrow_mut();
        let model = model.filter(|model| is_legal(model)).unwrap_or(if model.is_some() { OTHER } else { NO_MODEL });
        let known = Self::find(&table, Some(tenant), model);
        let at = known.unwrap_or_else(|| self.begin(&mut table, tenant, model));
        if let Some(series) = table.get_mut(at) {
            series.nano_usd.add(nano_usd);
            series.calls.add(1);
        }
    }

    /// The series of a pair that has none yet: its own where there is room, else one that others share.
    #[cold]
    fn begin(&self, table: &mut Table<Arc<CostSeries>>, tenant: TenantId, model: &str) -> usize {
        let folded = self.models.borrow_mut().admit_from(tenant, model).1;
        let full = self.count.get() >= SERIES_MAX;
        let model = if folded || full { OTHER } else { model };
        let tenant = (!full).then_some(tenant);
        if let Some(at) = Self::find(table, tenant, model) {
            return at;
        }
        let (nano_usd, calls) = (Counter::default(), Counter::default());
        let series = Arc::new(CostSeries { tenant, model: model.into(), nano_usd, calls });
        self.fresh.push(Fresh::Cost(Arc::clone(&series)));
        self.count.set(self.count.get() + 1);
        let hash = Self::hash(table, tenant, model);
        table.insert(hash, series)
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
    series: Vec<Shown>,
}

/// A series and the labels it is shown under.
struct Shown {
    cells: Arc<CostSeries>,
    tenant: Arc<str>,
    model: Arc<str>,
    /// Its tenant is one too many.
    folded: bool,
}

impl KnownCosts {
    pub(super) fn new() -> Self {
        Self { tenants: Admitted::new(TENANTS_MAX), models: Admitted::new(MODELS_MAX), series: Vec::new() }
    }

    pub(super) fn take_in(&mut self, cells: Arc<CostSeries>) {
        let (tenant, folded) = match cells.tenant {
            Some(tenant) => self.tenants.admit(&tenant.to_string()),
            None => (Arc::from(OTHER), true),
        };
        let (model, _) = match cells.tenant {
            Some(tenant) => self.models.admit_from(tenant, &cells.model),
            None => self.models.admit(&cells.model),
        };
        self.series.push(Shown { cells, tenant, model, folded });
    }

    /// Calls of tenants that are shown as `other`.
    pub(super) fn folded_tenants(&self) -> u64 {
        self.series.iter().filter(|series| series.folded).map(|series| series.cells.calls.get()).sum()
    }

    pub(super) fn expose(&self, out: &mut Exposition) {
        let mut sums = BTreeMap::<(&str, &str), u64>::new();
        for Shown { cells, tenant, model, .. } in &self.series {
            *sums.entry((tenant, model)).or_default() += cells.nano_usd.get();
        }
        for ((tenant, model), nano_usd) in sums {
            out.counter(names::COST, &[("tenant", tenant), ("model", model)], nano_usd / NANO_PER_MICRO);
        }
    }
}
