//! What the settings say of upstreams, groups and routes, in the form in which requests ask for it. Never changed: a reload
//! publishes another one, and an exchange under way keeps the one it began with.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use weir_config::Settings;
use weir_config::settings::{Balance, DEFAULT_UPSTREAM, NamedUpstream, Pattern, Upstream, UpstreamHealth};
use weir_config::vocab::{Provider, SharedSecret};

use super::health::Health;
use crate::forward::{Peer, PeerError, Permits};
use crate::inspect::provider_of_host;
use crate::money::list_name_of_host;

/// The connections to one upstream may go on as long as this is the same.
pub struct Link {
    /// Where it is.
    pub peer: Arc<Peer>,
    /// How many connections it gets, on all cores together.
    pub permits: Arc<Permits>,
    /// How long connecting may take.
    pub connect_limit: Duration,
    /// What all of that was made of.
    made_of: NamedUpstream,
}

/// One upstream.
pub struct Member {
    /// Its name; `default` is `upstream_url`.
    pub name: Arc<str>,
    /// What requests say of it: the authority, the path in front.
    pub endpoint: Upstream,
    /// Its connections.
    pub link: Arc<Link>,
    /// How it fares. Outlives a reload as long as the name stays.
    pub health: Arc<Health>,
    /// The operator's credential for it.
    pub api_key: Option<SharedSecret>,
    /// How long the head of an answer may take, in milliseconds.
    pub timeout_ms: u64,
    pub(super) weight: u32,
}

/// What a request can be sent to: an upstream, or a group of them.
pub struct Target {
    /// Its name.
    pub name: Arc<str>,
    /// Places of its members in [`UpstreamTable::members`]; at least one.
    pub members: SmallVec<[u16; 4]>,
    /// Whose calls it serves, as the settings say; where they say nothing, what its host tells.
    pub providers: Vec<Provider>,
    /// A group of which the settings do not say whose calls it serves: whom a call is to pay is its member's matter.
    pub is_of_its_members: bool,
    /// Whether what one member refuses for a while is sent to the next.
    pub retry_refused: bool,
    pub(super) balance: Balance,
    pub(super) sticky: bool,
}

pub(super) struct Rule {
    pub(super) model: Option<Pattern>,
    pub(super) path: Option<Pattern>,
    pub(super) target: u16,
}

/// All of them.
pub struct UpstreamTable {
    /// The upstreams; the first is `upstream_url`.
    pub members: Vec<Arc<Member>>,
    /// Upstreams and groups; the first is `upstream_url`.
    pub targets: Vec<Target>,
    pub(super) by_name: HashMap<Arc<str>, u16>,
    /// Which target serves whom, by name: there are few, and every request asks.
    by_provider: Vec<(Provider, u16)>,
    pub(super) rules: Vec<Rule>,
    /// When an upstream is passed by.
    pub health: UpstreamHealth,
    /// There is nothing but `upstream_url`.
    pub is_alone: bool,
    /// Some request may get a credential of the operator's.
    pub lends: bool,
}

impl UpstreamTable {
    /// Builds the table; what is the same as in `former` is taken over from there.
    ///
    /// # Errors
    /// An upstream whose certificates or host TLS cannot use.
    pub(super) fn build(settings: &Settings, cores: usize, former: Option<&Self>) -> Result<Self, PeerError> {
        let given = &settings.upstreams;
        let mut members = Vec::with_capacity(given.members.len() + 1);
        for member in std::iter::once(&default_member(settings)).chain(&given.members) {
            members.push(Arc::new(build_member(settings, member, cores, former)?));
        }
        let mut table = Self {
            targets: Vec::new(),
            by_name: HashMap::new(),
            by_provider: Vec::new(),
            rules: Vec::new(),
            health: given.health,
            is_alone: given.is_empty() && given.groups.is_empty(),
            lends: members.iter().any(|member| member.api_key.is_some()),
            members,
        };
        table.add_single_targets(settings);
        table.add_groups(settings);
        table.rules = given
            .routes
            .iter()
            .filter_map(|route| {
                let target = *table.by_name.get(route.upstream.as_str())?;
                Some(Rule { model: route.model.clone(), path: route.path.clone(), target })
            })
            .collect();
        Ok(table)
    }

    fn add_single_targets(&mut self, settings: &Settings) {
        for (at, member) in self.members.clone().iter().enumerate() {
            let given = at.checked_sub(1).and_then(|at| settings.upstreams.members.get(at));
            let served = given.map(|given| given.providers.clone()).unwrap_or_default();
            let target = Target {
                name: Arc::clone(&member.name),
                members: SmallVec::from_elem(at as u16, 1),
                providers: Vec::new(),
                is_of_its_members: false,
                retry_refused: false,
                balance: Balance::Order,
                sticky: false,
            };
            let by_host = given.and_then(|given| provider_of(&given.endpoint.host));
            self.add(target, served, by_host);
        }
    }

    fn add_groups(&mut self, settings: &Settings) {
        for group in &settings.upstreams.groups {
            let places = group.members.iter().filter_map(|name| self.by_name.get(name.as_str()).copied());
            let members: SmallVec<[u16; 4]> = places.collect();
            let first = members.first().and_then(|at| self.members.get(usize::from(*at)));
            let by_host = first.and_then(|first| provider_of(&first.endpoint.host));
            let target = Target {
                name: Arc::from(group.name.as_str()),
                members,
                providers: Vec::new(),
                is_of_its_members: group.providers.is_empty(),
                retry_refused: group.retry_refused,
                balance: group.balance,
                sticky: group.sticky,
            };
            self.add(target, group.providers.clone(), by_host);
        }
    }

    /// Adds a target that serves `served`, or is taken to be what its host tells where nothing is said.
    fn add(&mut self, mut target: Target, served: Vec<Provider>, by_host: Option<Provider>) {
        let at = self.targets.len() as u16;
        self.by_name.insert(Arc::clone(&target.name), at);
        for provider in &served {
            match self.place_of(provider.as_str()) {
                Ok(place) => self.by_provider[place].1 = at,
                Err(place) => self.by_provider.insert(place, (provider.clone(), at)),
            }
        }
        target.providers = if served.is_empty() { by_host.into_iter().collect() } else { served };
        self.targets.push(target);
    }

    /// The upstream at a place; there is always one.
    pub fn member(&self, at: u16) -> &Arc<Member> {
        self.members.get(usize::from(at)).unwrap_or(&self.members[0])
    }

    /// The target at a place; there is always one.
    pub fn target(&self, at: u16) -> &Target {
        self.targets.get(usize::from(at)).unwrap_or(&self.targets[0])
    }

    /// The target that an upstream is by itself: the first of them are the upstreams, in their order.
    pub fn alone(&self, member: u16) -> u16 {
        member
    }

    fn place_of(&self, provider: &str) -> Result<usize, usize> {
        self.by_provider.binary_search_by(|(served, _)| served.as_str().cmp(provider))
    }

    /// The target that serves the provider of this name.
    pub(super) fn serves(&self, provider: &str) -> Option<u16> {
        self.place_of(provider).ok().and_then(|place| self.by_provider.get(place)).map(|(_, target)| *target)
    }

    /// Whether a request's model may say where it goes.
    pub fn asks_models(&self) -> bool {
        self.rules.iter().any(|rule| rule.model.is_some())
    }

    /// What a request may name, for messages.
    pub fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.targets.iter().map(|target| &*target.name).collect();
        names.sort_unstable();
        names
    }
}

/// The provider whose prices hold where the settings name none.
fn provider_of(host: &str) -> Option<Provider> {
    provider_of_host(host).or_else(|| list_name_of_host(host)).map(Provider::named)
}

/// `upstream_url` in the form of the others.
fn default_member(settings: &Settings) -> NamedUpstream {
    NamedUpstream {
        name: DEFAULT_UPSTREAM.to_owned(),
        endpoint: settings.upstream.clone(),
        egress: settings.egress.clone(),
        providers: Vec::new(),
        api_key: settings.upstream_api_key.clone(),
        ca_file: settings.upstream_ca_file.clone(),
        timeout_ms: None,
        connection_timeout_ms: None,
        max_connections: None,
        weight: 1,
    }
}

fn build_member(
    settings: &Settings,
    given: &NamedUpstream,
    cores: usize,
    former: Option<&UpstreamTable>,
) -> Result<Member, PeerError> {
    let known = former.and_then(|former| former.members.iter().find(|member| *member.name == *given.name));
    let link = match known.filter(|known| connects_alike(&known.link.made_of, given)) {
        Some(known) => Arc::clone(&known.link),
        None => Arc::new(build_link(settings, given, cores)?),
    };
    Ok(Member {
        name: Arc::from(given.name.as_str()),
        endpoint: given.endpoint.clone(),
        link,
        health: known.map_or_else(Arc::default, |known| Arc::clone(&known.health)),
        api_key: given.api_key.clone(),
        timeout_ms: given.timeout_ms.unwrap_or(settings.limits.timeout_ms),
        weight: given.weight,
    })
}

fn build_link(settings: &Settings, given: &NamedUpstream, cores: usize) -> Result<Link, PeerError> {
    let (limits, is_default) = (&settings.limits, given.name == DEFAULT_UPSTREAM);
    let named_by = if is_default { "upstream_url".to_owned() } else { format!("upstreams.{}.url", given.name) };
    let ca_file = given.ca_file.as_deref();
    let connections = given.max_connections.unwrap_or(limits.max_connections);
    Ok(Link {
        peer: Arc::new(Peer::new(named_by, &given.endpoint, ca_file, &given.egress)?),
        permits: Arc::new(Permits::new(connections, cores)),
        connect_limit: Duration::from_millis(given.connection_timeout_ms.unwrap_or(limits.connection_timeout_ms)),
        made_of: given.clone(),
    })
}

/// Whether connections made for one may go on for the other.
fn connects_alike(a: &NamedUpstream, b: &NamedUpstream) -> bool {
    let place = |upstream: &Upstream| (upstream.scheme, upstream.host.clone(), upstream.port);
    place(&a.endpoint) == place(&b.endpoint)
        && a.egress == b.egress
        && a.ca_file == b.ca_file
        && a.connection_timeout_ms == b.connection_timeout_ms
        && a.max_connections == b.max_connections
}
