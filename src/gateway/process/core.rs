//! What a core thread works with: the process-wide parts behind one `Arc`, and its own parts behind one `Rc`.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use weir_config::Settings;
use weir_config::vocab::{TenantId, TraceId};
use weir_inference::{Plan, Scratch};

use super::background::Background;
use super::bill::Bill;
use super::charges::ResultCharges;
use super::parts::ProcessParts;
use super::plans::{Plans, SharedPlans};
use super::prompts::{PromptCounts, Prompts};
use super::turns::{ORIGINS, Turns};
use super::unsettled::{Noted, Unsettled};
use super::waiting::Waiting;
use crate::admit::access::Allowed;
use crate::admit::attempts::Attempts;
use crate::admit::connection_table::ConnectionTable;
use crate::admit::connections::{ClientKey, Connections};
use crate::admit::eviction::Evictions;
use crate::admit::rate::{self, RateTable, Verdict};
use crate::admit::shared::SharedRates;
use crate::control::{CALLS_PER_CORE, Shares};
use crate::enforce::Earlier;
use crate::exchange::{Caller, Proof, Refusal};
use crate::forward::ConnPool;
use crate::meter::CoreMeter;
use crate::record::Budget;
use crate::rt;
use crate::upstreams::LocalUpstreams;

/// The process.
pub struct Process {
    /// Its parts.
    pub parts: ProcessParts,
    /// Token buckets of proxied requests.
    pub rates: RateTable,
    /// Those of calls to the gateway's own API.
    pub own_rates: RateTable,
    /// The same of keys that have a rate of their own, for proxied requests.
    pub key_rates: RateTable,
    /// The same of such keys, for calls to the gateway's own API and for reports.
    pub own_key_rates: RateTable,
    /// Bounds the body bytes in memory.
    pub bodies: Budget,
    /// Answers whose end a later request fetches.
    pub(crate) background: Background<Bill>,
    /// Results of batches that have been charged.
    pub(crate) results: Arc<ResultCharges>,
    /// What was found in earlier calls, for `enforcement.scope`.
    pub earlier: Earlier,
    /// What users said last in conversations that the provider keeps.
    pub(crate) turns: Turns,
    /// What the latest prompts of sessions were made of.
    pub(crate) prompts: Arc<Prompts>,
    /// Whose words there were in conversations that the provider keeps.
    pub(crate) origins: Turns,
    /// The calls whose records are still being made, where something can report them.
    unsettled: Option<Arc<Unsettled>>,
    /// The requests that wait for what models say.
    pub(crate) models: Waiting,
    /// What analyses do under the settings in effect.
    plans: SharedPlans,
    /// Bounds the client connections.
    pub clients: Connections,
    /// Tries at the admin key.
    pub attempts: Attempts,
    /// Where cores ask each other to end idle connections.
    pub evictions: Evictions,
    /// `health_check.path`, where it is not `/health`. Fixed while the process runs.
    moved_health: Option<String>,
    /// `otel_ingest.enabled`. Fixed while the process runs.
    takes_spans: bool,
    draining: AtomicBool,
    cut: AtomicUsize,
    epoch: Instant,
}

/// Where the router has the health report.
pub(crate) const HEALTH: &str = "/health";

impl Process {
    /// Puts the parts together.
    pub fn new(parts: ProcessParts) -> Arc<Self> {
        let health_path = parts.settings.load().health_check.path.clone();
        let several = parts.settings.load().auth.enabled;
        let takes_reports = parts.settings.load().takes_reports();
        let takes_spans = parts.settings.load().otel_ingest.enabled;
        let prompts = Arc::<Prompts>::default();
        parts.registry.add_source(Box::new(PromptCounts(Arc::clone(&prompts))));
        Arc::new(Self {
            evictions: Evictions::new(parts.edge.cores),
            bodies: Budget::new(parts.recording.body_bytes, several),
            parts,
            clients: Connections::new(),
            attempts: Attempts::new(),
            rates: RateTable::new(),
            own_rates: RateTable::new(),
            key_rates: RateTable::new(),
            own_key_rates: RateTable::new(),
            background: Background::new(),
            results: Arc::default(),
            earlier: Earlier::default(),
            turns: Turns::default(),
            prompts,
            origins: Turns::of(ORIGINS),
            unsettled: takes_reports.then(Arc::default),
            models: Waiting::default(),
            plans: SharedPlans::default(),
            moved_health: (health_path != HEALTH).then_some(health_path),
            takes_spans,
            draining: AtomicBool::new(false),
            cut: AtomicUsize::new(0),
            epoch: Instant::now(),
        })
    }

    /// From now on rate limits are those that several gateways share.
    pub fn share_rates(&self, shared: &Arc<SharedRates>) {
        self.rate_tables().into_iter().enumerate().for_each(|(at, table)| table.share(shared, at));
    }

    /// From now on this process grants one of so many equal parts of each rate limit.
    pub fn divide_rates(&self, parts: u32) {
        self.rate_tables().into_iter().for_each(|table| table.divide(parts));
    }

    /// So many gateways spend the same budgets now.
    pub fn make_room_in_budgets(&self, gateways: u32) {
        self.parts.policy.spend.make_room(gateways);
    }

    fn rate_tables(&self) -> [&RateTable; 4] {
        [&self.rates, &self.own_rates, &self.key_rates, &self.own_key_rates]
    }

    /// What analyses do under `settings`, the same for all that work with them.
    pub(crate) fn plans(&self, settings: &Arc<Settings>) -> Plans {
        self.plans.of(&self.parts.inspection.analyser, settings)
    }

    /// Notes that a record of this trace is being made, where a report could ask for it.
    pub(crate) fn note_unsettled(&self, trace: TraceId) -> Option<Noted> {
        self.unsettled.as_ref().map(|table| table.note(trace))
    }

    /// Takes one call from the bucket that a key with a rate of its own has in `rates`.
    pub(crate) fn key_within_rate(
        &self,
        rates: &RateTable,
        settings: &Settings,
        allowed: &Allowed,
    ) -> Result<(), Refusal> {
        let Some((key, limit)) = allowed.key_rate() else { return Ok(()) };
        let verdict = rates.take_of_key(key, limit, settings.rate_limiting.window_seconds, self.now_ns());
        let Verdict::Limited { retry_after_ns } = verdict else { return Ok(()) };
        let setting = "`access.keys.<id>.rate_limit` in the tenant's `config`";
        Err(rate::refusal(&format!("key {key}"), limit, retry_after_ns, setting)
            .with("tenant_id", allowed.tenant().to_string())
            .with("key_id", key.to_string()))
    }

    /// The same of a caller of the gateway's own API, or one that reports.
    pub(crate) fn caller_within_key_rate(&self, settings: &Settings, caller: &Caller) -> Result<(), Refusal> {
        let Proof::Key(key) = caller.proof else { return Ok(()) };
        let allowed = self.parts.policy.access.of(caller.tenant_id, Some(key));
        allowed.map_or(Ok(()), |allowed| self.key_within_rate(&self.own_key_rates, settings, &allowed))
    }

    /// Waits until the records of these traces are made, `within` at the most; false when one still is not. Blocks: not for cores.
    pub(crate) fn await_settled(&self, traces: impl Iterator<Item = TraceId>, within: Duration) -> bool {
        self.unsettled.as_ref().is_none_or(|table| table.wait(traces, within))
    }

    /// Where the health report has been moved to, if so.
    pub(crate) fn moved_health(&self) -> Option<&str> {
        self.moved_health.as_deref()
    }

    /// Whether spans are taken in by OTLP/HTTP.
    pub(crate) const fn takes_spans(&self) -> bool {
        self.takes_spans
    }

    /// Nanoseconds since the process began, the same on every core.
    pub fn now_ns(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Whole seconds since the process began.
    pub fn now_s(&self) -> u32 {
        u32::try_from(self.epoch.elapsed().as_secs()).unwrap_or(u32::MAX)
    }

    /// From now on answers carry `Connection: close`.
    pub fn start_draining(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// Notes connections that were cut because the time for stopping was up.
    pub fn count_cut(&self, connections: usize) {
        self.cut.fetch_add(connections, Ordering::Relaxed);
    }

    /// How many there were.
    pub fn cut(&self) -> usize {
        self.cut.load(Ordering::Relaxed)
    }

    /// No more answers are waited for: what they have reserved counts as spent.
    pub fn give_up_background(&self) {
        self.background.clear();
    }

    /// Whether the process is on its way out.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }
}

/// The settings as a core uses them, with what follows from them.
pub struct InEffect {
    settings: Settings,
    /// What analyses do.
    pub plan: Arc<Plan>,
    /// What looks at an answer before its client has it.
    pub answer_plan: Arc<Plan>,
    /// The providers, and this core's connections to them.
    pub local_upstreams: Rc<LocalUpstreams>,
}

/// One core.
pub struct Core {
    /// The process.
    pub process: Arc<Process>,
    /// This core's metrics.
    pub meter: Rc<CoreMeter>,
    /// This core's scratch memory for analysis.
    pub scratch: RefCell<Scratch>,
    /// This core's copy of the settings: the count of references to a shared one would bounce between cores.
    settings: RefCell<(Arc<Settings>, Rc<InEffect>)>,
    /// Which core this is; the first is 0.
    pub index: usize,
    /// Client connections open on this core. The beginning of a drain ends the reading of those that wait for a request, its
    /// end cuts the rest.
    pub open_connections: RefCell<ConnectionTable>,
    /// Calls to the gateway's own API that are under way on this core, by tenant; `None` is whoever needs no key.
    pub own_calls: RefCell<Shares<Option<TenantId>>>,
    /// Connections that are being told that there is no room.
    pub turned_away: Cell<usize>,
}

impl InEffect {
    fn of(settings: &Arc<Settings>, process: &Process, meter: &Rc<CoreMeter>, former: Option<&Self>) -> Rc<Self> {
        let Plans { all, of_answers } = process.plans(settings);
        let former = former.map(|former| &*former.local_upstreams);
        let local_upstreams =
            Rc::new(LocalUpstreams::new(process.parts.policy.upstreams.table(), former, |pool| lend(pool, meter)));
        Rc::new(Self { settings: Settings::clone(settings), plan: all, answer_plan: of_answers, local_upstreams })
    }
}

impl Deref for InEffect {
    type Target = Settings;

    fn deref(&self) -> &Settings {
        &self.settings
    }
}

/// Lets other cores have the places that this core's pool does not use.
fn lend(pool: &Rc<ConnPool>, meter: &Rc<CoreMeter>) {
    let meter = Rc::clone(meter);
    rt::spawn(ConnPool::lend(Rc::downgrade(pool)), move |message| {
        meter.panic();
        tracing::error!(message, "a task panicked; only its connection is lost");
    });
}

impl Core {
    /// Core number `index` of `process`.
    pub fn new(process: Arc<Process>, index: usize) -> Rc<Self> {
        let settings = process.parts.settings.load_full();
        let meter = Rc::new(process.parts.registry.core());
        let copy = InEffect::of(&settings, &process, &meter, None);
        Rc::new(Self {
            settings: RefCell::new((settings, copy)),
            meter,
            scratch: RefCell::new(process.parts.inspection.analyser.scratch()),
            index,
            open_connections: RefCell::default(),
            own_calls: RefCell::new(Shares::new(CALLS_PER_CORE)),
            turned_away: Cell::new(0),
            process,
        })
    }

    /// The settings as they are now.
    pub fn settings(&self) -> Rc<InEffect> {
        let current = self.process.parts.settings.load();
        let mut mine = self.settings.borrow_mut();
        if !Arc::ptr_eq(&current, &mine.0) {
            let next = InEffect::of(&current, &self.process, &self.meter, Some(&mine.1));
            *mine = (Arc::clone(&current), next);
        }
        Rc::clone(&mine.1)
    }

    /// Ends the reading of the client connection that has waited for a request longest, of `client` if one is named; its place
    /// is free at once. False when none waits.
    pub fn end_longest_idle(&self, client: Option<ClientKey>) -> bool {
        let mut open_connections = self.open_connections.borrow_mut();
        let Some((fd, client)) = open_connections.end_longest(client) else { return false };
        self.process.clients.leave(client);
        self.process.evictions.show(self.index, open_connections.waiting());
        rt::stop_reading(fd);
        true
    }

    /// Cuts what is under way with a credential that has been taken away. `seen` is the directory's generation at the last
    /// call; while that stands nothing has been.
    pub fn end_revoked(&self, seen: &mut u64) {
        let generation = self.process.parts.policy.guard.directory().generation();
        if std::mem::replace(seen, generation) == generation {
            return;
        }
        for fd in self.open_connections.borrow().revoked() {
            // An end in order could make an answer that only an end frames look whole.
            rt::reset(fd);
        }
    }

    /// Ends the reading of all client connections that wait for a request; not of those that are shaking hands.
    pub fn end_idle(&self) {
        let mut open_connections = self.open_connections.borrow_mut();
        for (fd, client) in open_connections.end_idle() {
            self.process.clients.leave(client);
            rt::stop_reading(fd);
        }
        self.process.evictions.show(self.index, open_connections.waiting());
    }
}
