//! What the documentation says of where a call goes, as plainly as it can be said: lists looked through from their beginning.
//! Nothing of this is the gateway's code.

use std::collections::BTreeMap;

use super::draw::{Ask, Lists, Plan};

/// How often each kind of thing was there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Seen(BTreeMap<&'static str, usize>);

impl Seen {
    pub(super) fn note(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (what, count) in &other.0 {
            *self.0.entry(what).or_default() += count;
        }
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
            "tried again",
            "nobody healthy",
            "panic",
            "by weight",
            "session",
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
    // What is not known cannot be held to a list.
    if lists.iter().any(|lists| lists.models.is_some()) && ask.path == "/v2/anything" {
        return Some("model_not_allowed");
    }
    let named = model_in(ask.path).into_iter().chain((!ask.is_get).then_some(ask.model));
    let mut named = named.filter(|model| !lists.iter().all(|lists| lists.allow_model(model)));
    named.next().map(|_| "model_not_allowed")
}
