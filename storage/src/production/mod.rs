//! The `production` profile: several gateways, one record.
//!
//! Spans go to the journal, which is the SQLite file of each gateway, and from there to the analytics store (`ship`, `wide`, `lists`);
//! everything else is in the relational store (`registry`, `audit`, `books`, `spend`, `alerts`). A late fact about a span is a new version of
//! its row, made under a lock of the relational store, so that two gateways do not undo each other's.
//!
//! Invariants: no request waits for a store; what was acknowledged is in the journal or in its store; where a store is away, a question
//! has the journal's answer or says that it has none, and nobody gets another tenant's.

mod alerts;
mod analytics;
mod audit;
mod books;
mod cache;
mod facts;
mod imports;
mod leases;
mod lists;
mod migrate;
mod onlooker;
mod posts;
mod registry;
mod relational;
mod ship;
mod spend;
mod tables;
mod tls;
mod wide;

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use uuid::Uuid;
use weir_config::store_url::StoreUrl;
use weir_config::vocab::{TenantId, Timestamp};

use self::analytics::Analytics;
use self::cache::Cache;
use self::lists::Scope;
use self::relational::{Fail, Relational, col, p, tenant_of};
use self::ship::Shipping;
use crate::error::{OpenError, ReadError};
use crate::leases::{Leased, Wish};
use crate::retention::Retention;
use crate::sqlite::Reads;
use crate::store::Store;

pub use self::imports::Imported;
pub(crate) use self::imports::import;
pub use self::migrate::Migrated;
pub(crate) use self::onlooker::Onlooker;
pub(crate) use self::ship::shipped_upto;

/// How long a question waits for the analytics store to have what the journal held when it was asked.
const CATCH_UP: Duration = Duration::from_secs(2);
/// Between looks at what other gateways have deleted.
const FOLLOW_EVERY: Duration = Duration::from_millis(500);
/// Between looks for what is past its age, in turns of following.
const AGE_EVERY: u32 = 6;
/// The same of the ledger's old operations.
const DRAW_EVERY: u32 = 1_200;
/// How long what a deleted tenant had begun is looked for in the analytics store: batches of other gateways may have been on their way.
const SWEEP_FOR_US: i64 = 3_600_000_000;

/// How far clocks may be apart before `weir doctor` complains.
const SKEW_MAX_MS: i64 = 1_000;

/// The stores of the profile, as the settings name them.
#[derive(Clone)]
pub struct Stores {
    /// `storage.analytics_url`.
    pub analytics_url: StoreUrl,
    /// `storage.analytics_database`.
    pub analytics_database: Option<String>,
    /// `storage.relational_url`.
    pub relational_url: StoreUrl,
    /// `storage.cache_url`.
    pub cache_url: StoreUrl,
    /// `storage.ca_file`.
    pub ca_file: Option<PathBuf>,
    /// Apply pending migrations instead of refusing to open.
    pub auto_migrate: bool,
    /// How long the opening waits for them.
    pub wait: Duration,
}

impl fmt::Debug for Stores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { analytics_url, relational_url, cache_url, .. } = self;
        write!(f, "{analytics_url:?}, {relational_url:?}, {cache_url:?}")
    }
}

/// How a store of the profile is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreState {
    /// `analytics`, `relational` or `cache`.
    pub name: &'static str,
    /// What is wrong with it; `None` when it answers.
    pub problem: Option<String>,
}

/// The stores, and what this gateway knows of them.
pub(crate) struct Production {
    relational: Relational,
    analytics: Analytics,
    cache: Cache,
    node: Uuid,
    shipping: Shipping,
    others: spend::Others,
    leases: leases::Leases,
    /// Deleted tenants, each with the moment.
    burials: RwLock<HashMap<TenantId, i64>>,
    /// Age in microseconds past which nothing is shown; 0 is no bound.
    max_age_us: AtomicI64,
    /// Spans that could not be written as rows.
    unshippable: AtomicU64,
    states: Mutex<Vec<StoreState>>,
}

/// What each of them says of itself, before anything is opened.
fn connect(stores: &Stores, node: Uuid) -> Result<(Relational, Analytics, Cache), OpenError> {
    let lasting = |reason| OpenError::Stores { reason, is_lasting: true };
    let ca_file = stores.ca_file.as_deref();
    let relational = Relational::new(&stores.relational_url, ca_file, node).map_err(lasting)?;
    let database = stores.analytics_database.as_deref();
    let analytics = Analytics::new(&stores.analytics_url, database, ca_file).map_err(lasting)?;
    let cache = Cache::new(stores.cache_url.clone(), ca_file).map_err(lasting)?;
    Ok((relational, analytics, cache))
}

/// Waits until all three answer.
fn await_stores(stores: &Stores, of: (&Relational, &Analytics, &Cache)) -> Result<(), OpenError> {
    let until = Instant::now() + stores.wait;
    let mut told = false;
    loop {
        let text = |error: ReadError| error.to_string();
        let answers = of.0.probe().map_err(text).and_then(|()| of.1.probe().map_err(text)).and_then(|()| of.2.probe());
        let Err(reason) = answers else { return Ok(()) };
        if Instant::now() >= until {
            let reason = format!("the profile `production` cannot start: {reason}; waited storage.startup_timeout_ms");
            return Err(OpenError::Stores { reason, is_lasting: false });
        }
        if !std::mem::replace(&mut told, true) {
            tracing::warn!(reason, "waiting for a store (storage.startup_timeout_ms)");
        }
        std::thread::sleep(Duration::from_millis(250));
    }
}

/// Refuses an analytics store that lacks what is used.
fn check_version(analytics: &Analytics) -> Result<(), OpenError> {
    let version =
        analytics.version().map_err(|error| OpenError::Stores { reason: error.to_string(), is_lasting: false })?;
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let (major, minor) = analytics::OLDEST;
    if found < analytics::OLDEST {
        let reason =
            format!("storage.analytics_url: the server's version is {version}; {major}.{minor} or later is needed");
        return Err(OpenError::Stores { reason, is_lasting: true });
    }
    Ok(())
}

/// Applies pending migrations to the stores.
pub(crate) fn migrate_stores(stores: &Stores) -> Result<Migrated, OpenError> {
    let (relational, analytics, cache) = connect(stores, Uuid::nil())?;
    await_stores(stores, (&relational, &analytics, &cache))?;
    check_version(&analytics)?;
    migrate::run(&relational, &analytics, true)
}

/// What each store says of itself: its name, and how it is or what is wrong with it.
pub type StoreReports = Vec<(&'static str, Result<String, String>)>;

/// What the stores say: a line for each, with what is wrong.
pub(crate) fn examine_stores(stores: &Stores) -> Result<StoreReports, OpenError> {
    let (relational, analytics, cache) = connect(stores, Uuid::nil())?;
    let postgres = relational.read(|tx| tx.value::<String>("SELECT current_setting('server_version')", p![]));
    let clickhouse = analytics.version().map_err(|error| error.to_string()).and_then(|version| {
        check_version(&analytics).map(|()| format!("version {version}")).map_err(|error| error.to_string())
    });
    let pending = match (&postgres, &clickhouse) {
        (Ok(_), Ok(_)) => match migrate::pending(&relational, &analytics) {
            Ok(pending) if pending == Migrated::default() => Ok("no migration is pending".to_owned()),
            Ok(pending) => Ok(format!(
                "{} migration(s) of the relational store and {} of the analytics store are pending",
                pending.relational, pending.analytics
            )),
            Err(error) => Err(error.to_string()),
        },
        _ => Err("a store does not answer".to_owned()),
    };
    Ok(vec![
        ("analytics", clickhouse),
        ("relational", postgres.map(|version| format!("version {version}")).map_err(|error| error.to_string())),
        ("cache", cache.probe().map(|()| "it answers".to_owned())),
        ("migrations", pending),
        ("clocks", clock_skew(&relational)),
    ])
}

/// How far this machine's clock and the relational store's are apart: windows of budgets begin by the clock.
fn clock_skew(relational: &Relational) -> Result<String, String> {
    let before = Timestamp::now().micros();
    let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    let theirs: i64 = relational.read(|tx| tx.value(sql, p![])).map_err(|error| error.to_string())?;
    let after = Timestamp::now().micros();
    let apart_ms = (theirs - (before + after) / 2).abs() / 1_000;
    if apart_ms > SKEW_MAX_MS {
        return Err(format!(
            "this machine's clock and the relational store's are {apart_ms} ms apart; set both by NTP"
        ));
    }
    Ok(format!("this machine's and the relational store's are {apart_ms} ms apart"))
}

impl Production {
    /// Opens the stores for the gateway of this journal.
    pub(crate) fn open(stores: &Stores, reads: &Reads<'_>) -> Result<Self, OpenError> {
        let away = |error: ReadError| OpenError::Stores { reason: error.to_string(), is_lasting: false };
        let shipping = Shipping::resume(reads).map_err(away)?;
        // The journal's number is the gateway's: another journal begins another chain and other batches.
        let node = Uuid::new_v5(&Uuid::NAMESPACE_OID, &shipping.file.to_be_bytes());
        let (relational, analytics, cache) = connect(stores, node)?;
        await_stores(stores, (&relational, &analytics, &cache))?;
        check_version(&analytics)?;
        migrate::run(&relational, &analytics, stores.auto_migrate)?;
        let production = Self {
            relational,
            analytics,
            cache,
            node,
            shipping,
            others: spend::Others::default(),
            leases: leases::Leases::default(),
            burials: RwLock::default(),
            max_age_us: AtomicI64::new(0),
            unshippable: AtomicU64::new(0),
            states: Mutex::default(),
        };
        let buried = production
            .relational
            .read(|tx| {
                let rows = tx.rows("SELECT tenant, at_us FROM burials", p![])?;
                rows.iter().map(|row| Ok((tenant_of(row, 0)?, col(row, 1)?))).collect::<Result<HashMap<_, i64>, Fail>>()
            })
            .map_err(away)?;
        production.note_burials(&buried);
        Ok(production)
    }

    /// Whose records are asked for, and from which start on they are shown.
    fn scope(&self, tenant: TenantId) -> Scope {
        let age = self.max_age_us.load(Ordering::Relaxed);
        let kept_from = if age > 0 { Timestamp::now().micros().saturating_sub(age) } else { i64::MIN };
        let buried = self.burials.read().get(&tenant).map_or(i64::MIN, |at_us| at_us + 1);
        Scope { tenant, from_us: kept_from.max(buried) }
    }

    fn note_burials(&self, buried: &HashMap<TenantId, i64>) {
        if buried.is_empty() {
            return;
        }
        let mut burials = self.burials.write();
        for (tenant, at_us) in buried {
            let known = burials.entry(*tenant).or_insert(*at_us);
            *known = (*known).max(*at_us);
        }
    }

    pub(crate) fn set_retention(&self, retention: Retention) {
        let age = retention.max_age.map_or(0, |age| i64::try_from(age.as_micros()).unwrap_or(i64::MAX).max(1));
        self.max_age_us.store(age, Ordering::Relaxed);
    }

    /// Does again and again what no question waits for: what other gateways have deleted, what is past its age, how the stores are.
    pub(crate) fn follow(&self, store: impl Fn() -> Option<Store>) {
        let mut turn = 0u32;
        let mut erased = 0;
        let mut buried_us = 0;
        while let Some(store) = store() {
            if let Err(error) = self.follow_once(&store, &mut erased, &mut buried_us) {
                tracing::debug!(%error, "what other gateways have deleted could not be read");
            }
            if turn.is_multiple_of(AGE_EVERY) {
                self.forget_aged();
            }
            if turn.is_multiple_of(DRAW_EVERY)
                && let Err(error) = self.relational.draw_together(Timestamp::now().micros())
            {
                tracing::debug!(%error, "old operations of the ledger could not be drawn together");
            }
            self.look_at_stores();
            turn = turn.wrapping_add(1);
            drop(store);
            std::thread::sleep(FOLLOW_EVERY);
        }
    }

    /// Deletions of other gateways, carried out in this one's journal; and what was on its way at a tenant's deletion.
    fn follow_once(&self, store: &Store, erased: &mut i64, buried_us: &mut i64) -> Result<(), ReadError> {
        let (after, since) = (*erased, *buried_us);
        let now_us = Timestamp::now().micros();
        let (traces, buried) = self.relational.read(|tx| {
            let traces = tx.rows("SELECT id, tenant, trace_id FROM erasures WHERE id > $1 ORDER BY id", p![after])?;
            let buried = tx.rows("SELECT tenant, at_us FROM burials WHERE at_us > $1", p![now_us - SWEEP_FOR_US])?;
            let traces = traces.iter().map(|row| Ok((col(row, 0)?, tenant_of(row, 1)?, col(row, 2)?)));
            let buried = buried.iter().map(|row| Ok((tenant_of(row, 0)?, col(row, 1)?)));
            Ok((
                traces.collect::<Result<Vec<(i64, TenantId, Uuid)>, Fail>>()?,
                buried.collect::<Result<HashMap<TenantId, i64>, Fail>>()?,
            ))
        })?;
        for (id, tenant, trace) in traces {
            store.local_erase_trace(tenant, weir_config::vocab::TraceId::from_bytes(*trace.as_bytes()));
            *erased = id;
        }
        let known = self.burials.read().clone();
        for (tenant, at_us) in &buried {
            if known.get(tenant).is_none_or(|known_us| known_us < at_us) {
                self.forget_tenant(*tenant);
                store.local_erase_tenant(*tenant);
            }
            if *at_us > since {
                *buried_us = (*buried_us).max(*at_us);
            }
            if now_us - at_us < SWEEP_FOR_US && self.shipping.failing().is_none() && now_us % 20 == 0 {
                self.analytics.delete_tenant(*tenant, *at_us)?;
            }
        }
        self.note_burials(&buried);
        Ok(())
    }

    fn forget_aged(&self) {
        let age = self.max_age_us.load(Ordering::Relaxed);
        if age == 0 {
            return;
        }
        let before_us = Timestamp::now().micros().saturating_sub(age);
        if let Err(error) = self.relational.erase_aged(before_us) {
            tracing::debug!(%error, "what is past its age could not be removed from the relational store");
        }
        match self.analytics.drop_before(before_us) {
            Ok(0) => {}
            Ok(partitions) => tracing::info!(partitions, "partitions past their age were dropped"),
            Err(error) => tracing::debug!(%error, "what is past its age could not be removed from the analytics store"),
        }
    }

    fn look_at_stores(&self) {
        let text = |error: ReadError| error.to_string();
        let shipped = self.shipping.failing().map_or(Ok(()), Err);
        let answers = [
            ("analytics", shipped.and_then(|()| self.analytics.probe().map_err(text)).err()),
            ("relational", self.relational.probe().map_err(text).err()),
            ("cache", self.cache.probe().err()),
        ];
        let states: Vec<StoreState> = answers.into_iter().map(|(name, problem)| StoreState { name, problem }).collect();
        let mut known = self.states.lock();
        for state in &states {
            let before =
                known.iter().find(|before| before.name == state.name).and_then(|before| before.problem.as_ref());
            match (&state.problem, before) {
                (Some(problem), None) => tracing::warn!(store = state.name, problem, "a store does not answer"),
                (None, Some(_)) => tracing::info!(store = state.name, "the store answers again"),
                _ => {}
            }
        }
        *known = states;
    }

    /// How the stores were when they were last looked at.
    pub(crate) fn states(&self) -> Vec<StoreState> {
        self.states.lock().clone()
    }

    /// See [`Store::lease`].
    pub(crate) fn lease(&self, number: u64, wishes: &[Wish]) -> Result<Leased, ReadError> {
        self.leases.exchange(&self.cache, number, wishes)
    }

    pub(crate) fn gateways(&self) -> u32 {
        self.leases.gateways()
    }

    pub(crate) fn stop(&self) {
        self.shipping.stop();
    }

    pub(crate) fn run_shipper(&self, store: impl Fn() -> Option<Store>) {
        self.ship(store);
    }
}
