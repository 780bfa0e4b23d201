//! What the documentation says of where a call goes, as plainly as it can be said: lists looked through from their beginning.
//! Nothing of this is the gateway's code.

use std::collections::BTreeMap;

use super::draw::{Ask, Lists, Plan};

/// How a provider behaves at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mood {
    Well,
    /// Nobody listens there.
    Gone,
    Fails500,
    /// 429 with a `Retry-After`.
    Busy,
    /// 429 without one.
    BusyForGood,
    /// 503 with a `Retry-After`.
    Overloaded,
}

impl Mood {
    pub(super) const ALL: [Self; 5] = [Self::Well, Self::Fails500, Self::Busy, Self::BusyForGood, Self::Overloaded];
}

/// How one upstream fares, by the calls that went there.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Fares {
    failures: u32,
    pub(super) is_passed_by: bool,
}

/// What has to come out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    /// The upstreams that get the request, in this order.
    pub(super) asked: Vec<String>,
    pub(super) status: u16,
    /// The one whose answer, or failure, the client gets.
    pub(super) last: Option<String>,
}

/// How often each kind of thing was there.
#[derive(Debug, Default)]
pub(super) struct Seen(BTreeMap<&'static str, usize>);

impl Seen {
    pub(super) fn note(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub(super) fn assert_all_were_there(&self) {
        for what in [
            "by address",
            "by header",
            "by route",
            "by dialect",
            "by default",
            "nobody's address",
            "upstream not allowed",
            "model not allowed",
            "group",
            "sent to the next",
            "one was passed by",
            "panic",
        ] {
            assert!(self.0.contains_key(what), "no call of this kind was drawn: {what}; {:?}", self.0);
        }
    }
}

/// `*` stands for any text, whatever the case.
fn fits(pattern: &str, text: &str) -> bool {
    fn from(pattern: &[u8], text: &[u8]) -> bool {
        match (pattern.split_first(), text.split_first()) {
            (None, None) => true,
            (Some((b'*', rest)), _) => from(rest, text) || !text.is_empty() && from(pattern, &text[1..]),
            (Some((a, rest)), Some((b, left))) => a.eq_ignore_ascii_case(b) && from(rest, left),
            _ => false,
        }
    }
    from(pattern.as_bytes(), text.as_bytes())
}

/// The model that the path names.
fn model_in(path: &str) -> Option<&'static str> {
    [("/models/gemini-2.5-pro:", "gemini-2.5-pro"), ("/model/gpt-4o-mini/", "gpt-4o-mini")]
        .into_iter()
        .find_map(|(part, model)| path.contains(part).then_some(model))
}

/// Whose dialect the path is.
fn dialect_of(ask: &Ask) -> Option<&'static str> {
    let by_field = match ask.field {
        Some(("anthropic-version", _)) => "anthropic",
        Some(("x-goog-api-key", _)) => "gemini",
        _ => "openai",
    };
    match ask.path {
        // Spelled alike by the clients of several providers.
        "/v1/models" | "/v1/files" => Some(by_field),
        "/v2/anything" => Some(by_field).filter(|provider| *provider != "openai"),
        "/v1/messages" | "/v1/messages/count_tokens" => Some("anthropic"),
        "/v1beta/cachedContents" => Some(if by_field == "anthropic" { "anthropic" } else { "gemini" }),
        path if path.starts_with("/v1beta/") => Some("gemini"),
        path if path.starts_with("/model/") => Some("bedrock"),
        path if path.starts_with("/api/") => Some("ollama"),
        _ => Some("openai"),
    }
}

impl Plan {
    fn serving(&self, provider: &str) -> Option<String> {
        let of = |serves: &[&str]| serves.iter().any(|served| served.eq_ignore_ascii_case(provider));
        let upstream = self.upstreams.iter().find(|(_, serves)| of(serves)).map(|(name, _)| name);
        upstream.or_else(|| self.groups.iter().find(|group| of(&group.serves)).map(|group| &group.name)).cloned()
    }

    /// The upstream or group that a call goes to; `None` where it asks the address of nobody.
    pub(super) fn target(&self, ask: &Ask, seen: &mut Seen) -> Option<String> {
        let names = self.targets();
        if let Some(name) = &ask.address {
            let known = name == "default" || names.contains(name);
            seen.note(if known { "by address" } else { "nobody's address" });
            return known.then(|| name.clone());
        }
        let by_header = ask
            .header
            .as_ref()
            .and_then(|header| self.serving(header).or_else(|| names.iter().find(|name| *name == header).cloned()));
        if let Some(name) = by_header {
            seen.note("by header");
            return Some(name);
        }
        let model = model_in(ask.path).or_else(|| (!ask.is_get).then_some(ask.model));
        let route = self.routes.iter().find(|route| {
            route.path.is_none_or(|path| fits(path, ask.path))
                && route.model.is_none_or(|pattern| model.is_some_and(|model| fits(pattern, model)))
        });
        if let Some(route) = route {
            seen.note("by route");
            return Some(route.to.clone());
        }
        let by_dialect = dialect_of(ask).and_then(|provider| self.serving(provider));
        seen.note(if by_dialect.is_some() { "by dialect" } else { "by default" });
        Some(by_dialect.unwrap_or_else(|| "default".to_owned()))
    }

    /// Who may be asked for a target, in the order of the settings.
    pub(super) fn members(&self, target: &str) -> Vec<String> {
        let group = self.groups.iter().find(|group| group.name == target);
        group.map_or_else(|| vec![target.to_owned()], |group| group.members.clone())
    }
}

impl Lists {
    pub(super) fn allow_upstream(&self, name: &str) -> bool {
        self.upstreams.as_ref().is_none_or(|names| names.iter().any(|pattern| fits(pattern, name)))
    }

    fn allow_model(&self, model: &str) -> bool {
        self.models.as_ref().is_none_or(|names| names.iter().any(|pattern| fits(pattern, model)))
    }
}

/// What those who hold the call to their lists say; `None` where all let it pass.
pub(super) fn refused(lists: &[&Lists], plan: &Plan, target: &str, ask: &Ask) -> Option<&'static str> {
    let may = |name: &str| lists.iter().all(|lists| lists.allow_upstream(name));
    if !may(target) && !plan.members(target).iter().all(|member| may(member)) {
        return Some("upstream_not_allowed");
    }
    let named = model_in(ask.path).into_iter().chain((!ask.is_get).then_some(ask.model));
    let mut named = named.filter(|model| !lists.iter().all(|lists| lists.allow_model(model)));
    named.next().map(|_| "model_not_allowed")
}

/// How all of them fare.
pub(super) struct Health {
    pub(super) fares: BTreeMap<String, Fares>,
    pub(super) moods: BTreeMap<String, Mood>,
    eject_after: u32,
    panic_percent: usize,
}

impl Health {
    pub(super) fn new(moods: BTreeMap<String, Mood>, plan: &Plan) -> Self {
        let fares = moods.keys().map(|name| (name.clone(), Fares::default())).collect();
        Self { fares, moods, eject_after: plan.eject_after, panic_percent: plan.panic_percent }
    }

    /// Those that are passed by last.
    fn order(&self, members: Vec<String>, seen: &mut Seen) -> Vec<String> {
        let (passed_by, healthy): (Vec<_>, Vec<_>) =
            members.iter().cloned().partition(|name| self.fares[name].is_passed_by);
        if members.len() == 1 || passed_by.is_empty() {
            return members;
        }
        if healthy.len() * 100 < members.len() * self.panic_percent {
            seen.note("panic");
        }
        seen.note("one was passed by");
        [healthy, passed_by].concat()
    }

    fn failed(&mut self, name: &str) {
        let after = self.eject_after;
        let fares = self.fares.get_mut(name).unwrap();
        fares.failures += 1;
        fares.is_passed_by |= fares.failures >= after;
    }

    /// A call to one of `members`.
    pub(super) fn call(&mut self, members: Vec<String>, retry_refused: bool, is_get: bool, seen: &mut Seen) -> Outcome {
        let order = self.order(members, seen);
        let mut asked = Vec::new();
        for (at, name) in order.iter().enumerate() {
            let mood = self.moods[name];
            if mood != Mood::Gone {
                asked.push(name.clone());
            }
            let (status, goes_on) = match mood {
                Mood::Gone => (502, true),
                Mood::Fails500 => (500, is_get),
                Mood::Overloaded => (503, is_get || retry_refused),
                Mood::Busy => (429, retry_refused),
                Mood::BusyForGood => (429, false),
                Mood::Well => (200, false),
            };
            match mood {
                Mood::Gone | Mood::Fails500 | Mood::Overloaded => self.failed(name),
                Mood::Busy => self.fares.get_mut(name).unwrap().is_passed_by = true,
                Mood::BusyForGood | Mood::Well => *self.fares.get_mut(name).unwrap() = Fares::default(),
            }
            if !goes_on || at + 1 == order.len() {
                return Outcome { asked, status, last: Some(name.clone()) };
            }
            seen.note("sent to the next");
        }
        unreachable!("a target has members")
    }
}
