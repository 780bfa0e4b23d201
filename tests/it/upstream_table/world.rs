//! A gateway with drawn settings, its providers, and what they have seen.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::draw::{Ask, Dice, Lists, Plan};
use super::fares::{Health, Mood, Outcome, Sent, Standing};
use super::model::{self, Seen};
use crate::support::{AUTH, Call, ClosedPort, Driver, Gateway, Setup, Upstream, call};

/// A request as a provider has seen it.
struct Came {
    to: String,
    head: String,
    body: Vec<u8>,
}

type Log = Arc<Mutex<Vec<Came>>>;

/// A key, and who it is held to.
struct Key {
    text: String,
    lists: [Lists; 2],
    /// The upstreams for which its tenant has a credential of its own.
    own: BTreeMap<String, String>,
}

pub(super) struct World {
    plan: Plan,
    gateway: Gateway,
    keys: Vec<Key>,
    /// How the upstreams may fare, as far as the providers have shown it.
    health: Vec<Health>,
    /// In which orders the calls of a session may prefer the members of a group, by group, tenant and session.
    preferred: BTreeMap<(String, usize, &'static str), Vec<Vec<String>>>,
    /// When one said for how long it is not to be asked.
    began: Instant,
    /// What the providers behave by.
    moods: Arc<Mutex<BTreeMap<String, Mood>>>,
    log: Log,
    _providers: Vec<Upstream>,
    _closed: Vec<ClosedPort>,
}

fn canary(name: &str) -> String {
    format!("sk-canary-of-{name}-")
}

fn answer(mood: Mood) -> &'static str {
    match mood {
        Mood::Well | Mood::Gone => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        Mood::Fails500 => "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\n{}",
        Mood::Busy => "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 60\r\nContent-Length: 2\r\n\r\n{}",
        Mood::BusyForGood => "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\n{}",
        Mood::Overloaded => "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 60\r\nContent-Length: 2\r\n\r\n{}",
    }
}

fn provider(name: &str, moods: &Arc<Mutex<BTreeMap<String, Mood>>>, log: &Log) -> Upstream {
    let (name, moods, log) = (name.to_owned(), Arc::clone(moods), Arc::clone(log));
    Upstream::play(move |peer| {
        while let Some(request) = peer.request() {
            let head = String::from_utf8_lossy(request.raw_head()).into_owned();
            log.lock().unwrap().push(Came { to: name.clone(), head, body: request.body.clone() });
            let mood = moods.lock().unwrap()[&name];
            peer.say(answer(mood));
        }
    })
}

impl World {
    pub(super) fn draw(driver: Driver, dice: &mut Dice) -> Self {
        let plan = Plan::draw(dice);
        let mut moods: BTreeMap<String, Mood> = BTreeMap::from([("default".to_owned(), Mood::Well)]);
        for (name, _) in &plan.upstreams {
            let mood = if dice.one_in(6) { Mood::Gone } else { Mood::Well };
            moods.insert(name.clone(), mood);
        }
        let (log, shared) = (Log::default(), Arc::new(Mutex::new(moods.clone())));
        let (mut urls, mut providers, mut closed) = (BTreeMap::new(), Vec::new(), Vec::new());
        for (name, mood) in &moods {
            if *mood == Mood::Gone {
                closed.push(ClosedPort::new());
                urls.insert(name.clone(), format!("http://{}", closed.last().unwrap().addr));
            } else {
                providers.push(provider(name, &shared, &log));
                urls.insert(name.clone(), providers.last().unwrap().url());
            }
        }
        let gateway = Setup::new(driver)
            .unlimited()
            .with(AUTH)
            .upstream(urls["default"].clone())
            .with(&format!("upstream_api_key: {}", canary("default")))
            .with(&plan.yaml(|name| (urls[name].clone(), canary(name))))
            .start();
        let keys = Self::draw_keys(&gateway, &plan, dice);
        let health = vec![Health::new(moods.keys(), &plan)];
        let (preferred, began) = (BTreeMap::new(), Instant::now());
        Self {
            plan,
            gateway,
            keys,
            health,
            preferred,
            began,
            moods: shared,
            log,
            _providers: providers,
            _closed: closed,
        }
    }

    /// Two keys of a tenant that may use everything, two of one that may not.
    fn draw_keys(gateway: &Gateway, plan: &Plan, dice: &mut Dice) -> Vec<Key> {
        let targets = plan.targets();
        let mut all = Vec::new();
        for (number, tenant_lists) in [Lists::default(), Lists::draw(&targets, dice)].into_iter().enumerate() {
            let tenant = gateway.tenant("acme");
            let own = Self::draw_own(gateway, &tenant, number, plan, dice);
            let mut by_key = serde_json::Map::new();
            for lists in [Lists::default(), Lists::draw(&targets, dice)] {
                let (id, text) = gateway.key(&tenant, "operator");
                by_key.insert(id, lists.json());
                all.push(Key { text, lists: [tenant_lists.clone(), lists], own: own.clone() });
            }
            let mut access = tenant_lists.json();
            // Here it matters where a call goes, whatever it asks for.
            access["allowed_operations"] = json!(["all"]);
            access["keys"] = Value::Object(by_key);
            let change = Call::put(&format!("/api/v1/tenants/{tenant}"), &json!({"config": {"access": access}}));
            assert_eq!(gateway.admin(change).status, 200);
        }
        all
    }

    /// Some upstreams get a credential of the tenant's own.
    fn draw_own(
        gateway: &Gateway,
        tenant: &str,
        number: usize,
        plan: &Plan,
        dice: &mut Dice,
    ) -> BTreeMap<String, String> {
        let mut own = BTreeMap::new();
        for name in plan.upstreams.iter().map(|(name, _)| name.as_str()).chain(["default"]) {
            if dice.one_in(3) {
                let key = canary(&format!("tenant-{number}-at-{name}"));
                let put =
                    Call::put(&format!("/api/v1/tenants/{tenant}/provider-keys/{name}"), &json!({ "api_key": key }));
                assert_eq!(gateway.admin(put).status, 200);
                own.insert(name.to_owned(), key);
            }
        }
        own
    }

    /// One provider behaves in another way from now on.
    pub(super) fn change_a_mood(&mut self, dice: &mut Dice) {
        let name = dice.of(&self.plan.upstreams).0.clone();
        let mood = if dice.one_in(3) { Mood::Well } else { *dice.of(&Mood::ALL) };
        let mut moods = self.moods.lock().unwrap();
        if moods[&name] != Mood::Gone {
            moods.insert(name, mood);
        }
    }

    /// Whether a `Retry-After` of the first call may be over soon.
    pub(super) fn is_old(&self) -> bool {
        self.began.elapsed() > Duration::from_secs(45)
    }

    /// Where a call goes, or with what it is refused.
    fn target(&self, ask: &Ask, seen: &mut Seen) -> Result<String, (u16, &'static str)> {
        let target = self.plan.target(ask, seen).ok_or((404, "upstream_not_found"))?;
        let lists = &self.keys[ask.key].lists;
        if let Some(error) = model::refused(&[&lists[0], &lists[1]], &self.plan, &target, ask) {
            seen.note(if error == "model_not_allowed" { "model not allowed" } else { "upstream not allowed" });
            return Err((403, error));
        }
        Ok(target)
    }

    /// Holds what came of a call against the ways in which it may go; the upstreams whose answer it may have got.
    fn follow(&mut self, target: &str, ask: &Ask, came: (u16, &[String]), seen: &mut Seen) -> Vec<String> {
        let members = self.plan.members(target);
        let group = self.plan.groups.iter().find(|group| group.name == target);
        let moods = self.moods.lock().unwrap().clone();
        let sent = Sent { members: &members, group, is_get: ask.is_get, moods: &moods };
        let sticky = group.filter(|group| group.sticky && group.by_weight).and(ask.session);
        let place = sticky.map(|session| (target.to_owned(), ask.key / 2, session));
        let known = place.as_ref().and_then(|place| self.preferred.get(place));
        let ways: Vec<_> = self.health.iter().flat_map(|health| health.ways(sent)).collect();
        let expected: Vec<Outcome> = ways.iter().map(|way| way.outcome.clone()).collect();
        let fits = |way: &super::fares::Way| {
            (way.outcome.status, &*way.outcome.asked) == came
                && known.is_none_or(|known| known.contains(&way.preferred))
        };
        let (mut health, mut preferred, mut last) = (Vec::new(), Vec::new(), Vec::new());
        let mut told = false;
        for way in ways.into_iter().filter(fits) {
            if !std::mem::replace(&mut told, true) {
                seen.add(&way.seen);
            }
            last.extend(way.outcome.last);
            if !health.contains(&way.health) {
                health.push(way.health);
            }
            if !preferred.contains(&way.preferred) {
                preferred.push(way.preferred);
            }
        }
        assert!(
            told,
            "{ask:?} to {target}: came {came:?}, expected one of {expected:?} of a session that prefers {known:?}"
        );
        if group.is_some() {
            seen.note("group");
        }
        if group.is_some_and(|group| group.by_weight) {
            seen.note("by weight");
        }
        if let Some(place) = place {
            seen.note("session");
            self.preferred.insert(place, preferred);
        }
        self.health = health;
        last
    }

    /// One call, held against what has to come out.
    pub(super) fn call(&mut self, number: u64, dice: &mut Dice, seen: &mut Seen) {
        if self.health.iter().any(Health::is_any_due) {
            // Their time passes: 16 ms at most, and the gateway's clock may be a few behind.
            std::thread::sleep(Duration::from_millis(40));
        }
        let ask = Ask::draw(&self.plan.targets(), self.keys.len(), dice);
        let chosen = self.target(&ask, seen);
        let target =
            format!("{}{}", ask.address.as_ref().map(|name| format!("/upstream/{name}")).unwrap_or_default(), ask.path);
        let body = json!({ "model": ask.model, "messages": [] }).to_string();
        let mut request = if ask.is_get { Call::get(&target) } else { Call::post(&target, body.clone()) };
        request = request.key(&self.keys[ask.key].text);
        if let Some(header) = &ask.header {
            request = request.field("X-Service-Provider", header);
        }
        if let Some(session) = ask.session {
            request = request.field("X-Service-Session-ID", session);
        }
        if let Some((name, value)) = ask.field {
            request = request.field(name, value);
        }
        if ask.brings_own {
            request = request.field("X-Service-Upstream-Authorization", "Bearer of-the-client");
        }
        let answer = call(self.gateway.addr, request.bytes());
        let came = std::mem::take(&mut *self.log.lock().unwrap());
        let asked: Vec<String> = came.iter().map(|came| came.to.clone()).collect();
        let what = || format!("call {number}: {ask:?}\n{}", answer.text());
        let last = match chosen {
            Ok(target) => self.follow(&target, &ask, (answer.status, &asked), seen),
            Err((status, error)) => {
                // In the form of each dialect.
                let says_so = answer.text().contains(&format!("\"{error}\""));
                assert!((answer.status, asked.len(), says_so) == (status, 0, true), "{}", what());
                Vec::new()
            }
        };
        let sent: &[u8] = if ask.is_get { b"" } else { body.as_bytes() };
        for came in &came {
            assert!(came.body == sent, "another body came: {}", what());
            self.assert_fits(came, &ask);
        }
        if !last.is_empty() && number.is_multiple_of(9) {
            let shown = self.upstream_in_record(&answer.trace_id(), ask.key);
            assert!(last.contains(&shown), "{shown} of {last:?}\n{}", what());
        }
    }

    /// Whoever chose it: a provider gets what its address is for, its own credential, and only from those who may use it.
    fn assert_fits(&self, came: &Came, ask: &Ask) {
        let Came { to, head, .. } = came;
        let method = if ask.is_get { "GET" } else { "POST" };
        assert!(head.starts_with(&format!("{method} {} HTTP/1.1\r\n", ask.path)), "{head}");
        let brings_own = ask.brings_own || matches!(ask.field, Some(("x-goog-api-key", _)));
        let supplied = self.keys[ask.key].own.get(to).cloned().unwrap_or_else(|| canary(to));
        let count = |text: &str| head.matches(text).count();
        let (right, all, own) = (count(&supplied), count("sk-canary-of-"), count("of-the-client"));
        let meant = if brings_own { (0, 0, 1) } else { (1, 1, 0) };
        assert_eq!((right, all, own), meant, "{to}:\n{head}");
        let lower = head.to_ascii_lowercase();
        assert!(!lower.contains("svc_") && !lower.contains("x-service-") && !lower.contains("/upstream/"), "{head}");
        let lists = &self.keys[ask.key].lists;
        let may = |name: &str| lists.iter().all(|lists| lists.allow_upstream(name));
        let groups = self.plan.groups.iter().filter(|group| group.members.contains(to));
        let mut by = groups.map(|group| group.name.as_str()).chain([to.as_str()]);
        assert!(by.any(may), "{to} was reached by a key that may not use it: {ask:?}");
    }

    /// The span's tag.
    fn upstream_in_record(&self, trace: &str, key: usize) -> String {
        let path = format!("/api/v1/traces/{trace}");
        crate::support::eventually("the call is recorded", || {
            let answer = call(self.gateway.addr, Call::get(&path).key(&self.keys[key].text).bytes());
            let name = answer.json()["spans"][0]["tags"]["upstream"].as_str().map(str::to_owned);
            (answer.status == 200).then(|| name.unwrap_or_else(|| panic!("no upstream in {}", answer.text())))
        })
    }

    /// What the metrics say of the upstreams.
    pub(super) fn assert_health(&self) {
        let page = self.gateway.admin(Call::get("/metrics")).text();
        let shows = |health: &Health| {
            health.fares.iter().all(|(name, fares)| {
                let is_healthy = u8::from(fares.standing == Standing::Healthy);
                let line = format!("service_upstream_healthy{{upstream=\"{name}\"}} {is_healthy}");
                page.lines().any(|shown| shown == line)
            })
        };
        assert!(self.health.iter().any(shows), "{:?}\n{page}", self.health);
    }
}
