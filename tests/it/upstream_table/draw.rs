//! What is drawn by chance: settings, and what a call says. The same number gives the same draws.

use serde_json::{Value, json};

/// A generator that repeats itself (splitmix64).
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Below `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((word ^ (word >> 31)) % end as u64).unwrap()
    }

    pub(super) fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    pub(super) fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// Some of them, in their order.
    fn some<T: Clone>(&mut self, all: &[T], keep_one_in: usize) -> Vec<T> {
        all.iter().filter(|_| self.one_in(keep_one_in)).cloned().collect()
    }
}

/// A group.
pub(super) struct Group {
    pub(super) name: String,
    pub(super) members: Vec<String>,
    pub(super) serves: Vec<&'static str>,
    pub(super) retry_refused: bool,
    pub(super) by_weight: bool,
    pub(super) sticky: bool,
}

/// A route.
pub(super) struct Route {
    pub(super) model: Option<&'static str>,
    pub(super) path: Option<&'static str>,
    pub(super) to: String,
}

/// What is configured, but for the addresses.
pub(super) struct Plan {
    /// With what each serves.
    pub(super) upstreams: Vec<(String, Vec<&'static str>)>,
    pub(super) groups: Vec<Group>,
    pub(super) routes: Vec<Route>,
    pub(super) eject_after: u32,
    pub(super) panic_percent: usize,
    /// A member that is passed by is due when the next call comes.
    pub(super) soon: bool,
}

/// One of them is called like a provider that somebody else may serve.
const NAMES: [&str; 6] = ["alpha", "beta", "gamma", "delta", "gemini", "local-1"];
const PROVIDERS: [&str; 6] = ["openai", "anthropic", "gemini", "ollama", "bedrock", "vllm"];
const MODEL_PATTERNS: [&str; 5] = ["gpt-*", "*mini", "claude-*", "qwen3", "g*o"];
const PATH_PATTERNS: [&str; 4] = ["/v1/files*", "/v1/chat/*", "*/models*", "/v2/anything"];
pub(super) const MODELS: [&str; 5] = ["gpt-4o", "gpt-4o-mini", "claude-opus-4", "QWEN3", "o3"];

impl Plan {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        let mut names: Vec<String> = NAMES.iter().map(|name| (*name).to_owned()).collect();
        while names.len() > 3 + dice.below(2) {
            names.remove(dice.below(names.len()));
        }
        let mut upstreams: Vec<(String, Vec<&str>)> = names.iter().map(|name| (name.clone(), Vec::new())).collect();
        let mut groups: Vec<Group> = (0..1 + dice.below(2)).map(|at| Self::group(at, &names, dice)).collect();
        for provider in PROVIDERS {
            // By one of them at most; some are served by nobody.
            match dice.below(5) {
                0..2 => upstreams[dice.below(names.len())].1.push(provider),
                2..4 => {
                    let at = dice.below(groups.len());
                    groups[at].serves.push(provider);
                }
                _ => {}
            }
        }
        let targets: Vec<String> = names.iter().cloned().chain(groups.iter().map(|group| group.name.clone())).collect();
        let routes = (0..dice.below(4)).map(|_| Self::route(&targets, dice)).collect();
        let (eject_after, panic_percent) = (*dice.of(&[1, 2, 4, 8]), *dice.of(&[0, 50, 100]));
        Self { upstreams, groups, routes, eject_after, panic_percent, soon: dice.one_in(2) }
    }

    fn group(at: usize, names: &[String], dice: &mut Dice) -> Group {
        let mut members = names.to_vec();
        while members.len() > 2 + usize::from(at == 0) {
            members.remove(dice.below(members.len()));
        }
        members.rotate_left(dice.below(2));
        let (retry_refused, by_weight, sticky) = (dice.one_in(2), dice.one_in(2), dice.one_in(2));
        Group { name: format!("group-{at}"), members, serves: Vec::new(), retry_refused, by_weight, sticky }
    }

    fn route(targets: &[String], dice: &mut Dice) -> Route {
        let model = (!dice.one_in(3)).then(|| *dice.of(&MODEL_PATTERNS));
        let path = (model.is_none() || dice.one_in(3)).then(|| *dice.of(&PATH_PATTERNS));
        Route { model, path, to: dice.of(targets).clone() }
    }

    /// Names of upstreams and groups.
    pub(super) fn targets(&self) -> Vec<String> {
        let groups = self.groups.iter().map(|group| group.name.clone());
        self.upstreams.iter().map(|(name, _)| name.clone()).chain(groups).collect()
    }

    /// The settings; `place` says where an upstream is, and with which key.
    pub(super) fn yaml(&self, place: impl Fn(&str) -> (String, String)) -> String {
        let list = |names: &[&str]| format!("[{}]", names.join(", "));
        let upstream = |(name, serves): &(String, Vec<&'static str>)| {
            let (url, key) = place(name);
            let weight = 1 + name.len() % 3;
            format!("  {name}: {{url: '{url}', api_key: {key}, weight: {weight}, providers: {}}}\n", list(serves))
        };
        let group = |group: &Group| {
            let members: Vec<&str> = group.members.iter().map(String::as_str).collect();
            let Group { name, serves, retry_refused, by_weight, sticky, .. } = group;
            let balance = if *by_weight { "weights" } else { "order" };
            format!(
                "  {name}: {{upstreams: {}, providers: {}, retry_refused: {retry_refused}, balance: {balance}, sticky: {sticky}}}\n",
                list(&members),
                list(serves)
            )
        };
        let route = |route: &Route| {
            let model = route.model.map(|model| format!("model: '{model}', ")).unwrap_or_default();
            let path = route.path.map(|path| format!("path: '{path}', ")).unwrap_or_default();
            format!("{{{model}{path}upstream: {}}}", route.to)
        };
        let routes: Vec<String> = self.routes.iter().map(route).collect();
        format!(
            "upstreams:\n{}upstream_groups:\n{}routes: [{}]\nupstream_health: {{eject_after: {}, eject_ms: {}, panic_percent: {}}}",
            self.upstreams.iter().map(upstream).collect::<String>(),
            self.groups.iter().map(group).collect::<String>(),
            routes.join(", "),
            self.eject_after,
            if self.soon { 1 } else { 600_000 },
            self.panic_percent
        )
    }
}

/// What a key, or its tenant, may use; no list is everything.
#[derive(Debug, Clone, Default)]
pub(super) struct Lists {
    pub(super) upstreams: Option<Vec<String>>,
    pub(super) models: Option<Vec<&'static str>>,
}

impl Lists {
    pub(super) fn draw(targets: &[String], dice: &mut Dice) -> Self {
        let upstreams = dice.one_in(3).then(|| match dice.one_in(4) {
            true => vec!["group-*".to_owned(), "default".to_owned()],
            false => dice.some(targets, 2),
        });
        let models = dice.one_in(3).then(|| dice.some(&["gpt-*", "*mini", "claude-opus-4", "qwen3"], 2));
        Self { upstreams, models }
    }

    pub(super) fn json(&self) -> Value {
        let mut lists = json!({});
        if let Some(upstreams) = &self.upstreams {
            lists["allowed_upstreams"] = json!(upstreams);
        }
        if let Some(models) = &self.models {
            lists["allowed_models"] = json!(models);
        }
        lists
    }
}

/// What a call says of where it goes.
#[derive(Debug, Clone)]
pub(super) struct Ask {
    /// `/upstream/<name>`.
    pub(super) address: Option<String>,
    /// `X-Service-Provider`.
    pub(super) header: Option<String>,
    pub(super) path: &'static str,
    pub(super) is_get: bool,
    /// In its body; a `GET` has none.
    pub(super) model: &'static str,
    /// A field that only one provider's clients send.
    pub(super) field: Option<(&'static str, &'static str)>,
    /// `X-Service-Upstream-Authorization`.
    pub(super) brings_own: bool,
    /// `X-Service-Session-ID`.
    pub(super) session: Option<&'static str>,
    /// Which key it comes with.
    pub(super) key: usize,
}

/// What is asked by `POST`, and what may be by `GET`.
const PATHS: [(&str, bool); 14] = [
    ("/v1/chat/completions", false),
    ("/v1/chat/completions", false),
    ("/v1/responses", false),
    ("/v1/files", false),
    ("/v1/models", true),
    ("/v1/models", true),
    ("/v1/messages", false),
    ("/v1/messages/count_tokens", false),
    ("/v1beta/models/gemini-2.5-pro:generateContent", false),
    ("/v1beta/cachedContents", true),
    ("/model/gpt-4o-mini/converse", false),
    ("/api/chat", false),
    ("/api/tags", true),
    ("/v2/anything", false),
];

impl Ask {
    pub(super) fn draw(targets: &[String], keys: usize, dice: &mut Dice) -> Self {
        let groups: Vec<&String> = targets.iter().filter(|name| name.starts_with("group-")).collect();
        let named =
            |dice: &mut Dice| if dice.one_in(2) { (*dice.of(&groups)).clone() } else { dice.of(targets).clone() };
        let address = match dice.below(10) {
            0..6 => None,
            6..8 => Some(named(dice)),
            8 => Some("default".to_owned()),
            _ => Some("nobody".to_owned()),
        };
        let header = match dice.below(10) {
            0..5 => None,
            5 => Some(named(dice)),
            6 => Some("unheard-of".to_owned()),
            7 => Some(dice.of(&PROVIDERS).to_ascii_uppercase()),
            _ => Some((*dice.of(&PROVIDERS)).to_owned()),
        };
        let (path, is_get) = *dice.of(&PATHS);
        let field = match dice.below(8) {
            0 => Some(("anthropic-version", "2023-06-01")),
            1 => Some(("x-goog-api-key", "of-the-client")),
            _ => None,
        };
        let brings_own = field.is_none() && dice.one_in(4);
        Self {
            address,
            header,
            path,
            is_get,
            model: *dice.of::<&str>(&MODELS),
            field,
            brings_own,
            session: dice.one_in(3).then(|| *dice.of(&["one", "two"])),
            key: dice.below(keys),
        }
    }
}
