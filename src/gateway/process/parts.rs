//! What the process is put together from, by what it is for.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use weir_config::Settings;
use weir_inference::{Analyser, PoolHandle};
use weir_storage::{SpanSink, SpendBook};

use super::objects::MadeObjects;
use super::outside::OutsideVerdict;
use crate::admit::Guard;
use crate::admit::access::AccessTable;
use crate::admit::blocked::Blocked;
use crate::admit::provider_keys::ProviderKeys;
use crate::admit::web::Pages;
use crate::anomalies::Anomalies;
use crate::control::{ApiHandle, Terms};
use crate::feed;
use crate::meter::Registry;
use crate::money::{Prices, Spend};
use crate::ops::breaker::Breakers;
use crate::ops::exchanges::ExchangeLog;
use crate::ops::health::Health;
use crate::redaction::Redaction;
use crate::rewrite::MakeTap;
use crate::rt::DriverMode;
use crate::upstreams::SharedUpstreams;

/// Parts every core shares. Nothing in here takes a lock on a core thread.
pub struct ProcessParts {
    /// The current settings; a request reads one snapshot.
    pub settings: Arc<ArcSwap<Settings>>,
    /// Metrics.
    pub registry: Arc<Registry>,
    /// Who may do what, and at which price.
    pub policy: Policy,
    /// What looks at requests and answers.
    pub inspection: Inspection,
    /// Where a call goes when it is over, and what it may take in memory until then.
    pub recording: Recording,
    /// Where clients come in, and what they reach beside providers.
    pub edge: Edge,
}

/// Who may do what, and at which price.
pub struct Policy {
    /// Authenticates callers.
    pub guard: Arc<Guard>,
    /// Which models and upstreams they may use.
    pub access: Arc<AccessTable>,
    /// Tenants' own credentials for providers.
    pub provider_keys: Arc<ProviderKeys>,
    /// Keeps the gateway's credentials out of what goes on.
    pub redaction: Arc<Redaction>,
    /// Who is turned away for what came from its address; `None` where nobody may be.
    pub blocked: Option<Arc<Blocked>>,
    /// Which of them has made what at providers.
    pub objects: Arc<MadeObjects>,
    /// What models cost.
    pub prices: Arc<Prices>,
    /// What has been spent.
    pub spend: Arc<Spend>,
    /// Where it is kept over restarts.
    pub spend_book: Arc<dyn SpendBook>,
    /// Storage and security breakers.
    pub breakers: Arc<Breakers>,
    /// The providers.
    pub upstreams: Arc<SharedUpstreams>,
}

/// What looks at requests and answers.
pub struct Inspection {
    /// The rules, compiled once.
    pub analyser: Arc<Analyser>,
    /// Threads for analysis that is not worth doing on a core.
    pub inference: PoolHandle,
    /// Outside verdicts that are asked for before a request is forwarded; mostly none.
    pub outside: Vec<Arc<dyn OutsideVerdict>>,
    /// What looks at answers before clients get them; empty where bytes go first.
    pub taps: Vec<MakeTap>,
    /// What a tenant's latest calls were like; `None` where nobody watches.
    pub anomalies: Option<Arc<Anomalies>>,
}

/// Where a call goes when it is over, and what it may take in memory until then.
pub struct Recording {
    /// Where finished spans go.
    pub sink: SpanSink,
    /// Takes the spans that the store does not take to the consumers; `None` where there are none.
    pub feed: Option<Arc<feed::Inlet>>,
    /// Bytes that bodies may take in memory, on all cores together.
    pub body_bytes: usize,
}

/// Where clients come in, and what they reach beside providers.
pub struct Edge {
    /// The control thread's router.
    pub api: ApiHandle,
    /// On which terms a method on one of our own paths is let in.
    pub terms: fn(&str, &str) -> Terms,
    /// Which web pages may ask.
    pub pages: Pages,
    /// What the log is told of exchanges.
    pub exchanges: ExchangeLog,
    /// What probes are answered from.
    pub health: Arc<Health>,
    /// How cores wait for the kernel.
    pub mode: DriverMode,
    /// Our pseudonym in `Via`.
    pub instance: String,
    /// Where clients are listened to.
    pub listen: SocketAddr,
    /// How many cores share `max_connections`.
    pub cores: usize,
}
