//! Where calls go: which provider's, which route's and all others, and which upstreams they reach without a key.

use weir_config::settings::{DEFAULT_UPSTREAM, Pattern, RouteRule, Settings};
use weir_config::vocab::Provider;

use super::diagnosis::Diagnosis;

/// One line for the providers, one for each route, one for the rest; nothing where there is only `upstream_url`.
pub(super) fn choice(settings: &Settings) -> Vec<Diagnosis> {
    let given = &settings.upstreams;
    if given.is_empty() && given.groups.is_empty() {
        return Vec::new();
    }
    let with_members = |name: &str| match given.groups.iter().find(|group| group.name == name) {
        Some(group) => format!("`{name}` ({})", group.members.join(", ")),
        None => format!("`{name}`"),
    };
    let members = given.members.iter().map(|member| (&member.name, &member.providers));
    let served = members.chain(given.groups.iter().map(|group| (&group.name, &group.providers)));
    let pairs = served.flat_map(|(name, providers)| providers.iter().map(move |provider| (provider, name)));
    let providers: Vec<String> =
        pairs.map(|(provider, name)| format!("{} to {}", Provider::as_str(provider), with_members(name))).collect();
    // Routes come before dialects: where one takes every call, neither those behind it nor the dialect of a path is asked.
    let last = given.routes.iter().position(takes_all);
    let mut found = Vec::new();
    if !providers.is_empty() {
        let by = if last.is_none() { ", and by the dialect of a path" } else { "" };
        found.push(Diagnosis::ok("provider", format!("by X-Service-Provider{by}: {}", providers.join("; "))));
    }
    for (at, route) in given.routes.iter().enumerate() {
        let said = format!("{}: {} to {}", at + 1, what_fits(route), with_members(&route.upstream));
        found.push(match last {
            Some(last) if at > last => {
                Diagnosis::warn("route", format!("{said}, but route {} takes every call", last + 1))
            }
            _ => Diagnosis::ok("route", said),
        });
    }
    let others = match last.and_then(|at| Some((at, given.routes.get(at)?))) {
        Some((at, route)) => format!("{} (route {})", with_members(&route.upstream), at + 1),
        None => format!("`{DEFAULT_UPSTREAM}` (upstream_url)"),
    };
    found.push(Diagnosis::ok("upstreams", format!("every other call goes to {others}")));
    let default = settings.upstream_api_key.is_none().then_some(DEFAULT_UPSTREAM);
    let named = given.members.iter().filter(|member| member.api_key.is_none()).map(|member| member.name.as_str());
    let keyless: Vec<&str> = default.into_iter().chain(named).collect();
    if !keyless.is_empty() {
        let text = format!("without a key of the operator's: {}; calls bring their own there", keyless.join(", "));
        found.push(Diagnosis::ok("api_key", text));
    }
    found
}

/// Whether a route takes every call. One with a pattern of models does not: a call may name no model.
fn takes_all(route: &RouteRule) -> bool {
    route.model.is_none() && route.path.as_ref().is_none_or(Pattern::fits_every_path)
}

/// The calls that a route takes.
fn what_fits(route: &RouteRule) -> String {
    let said = [("model", &route.model), ("path", &route.path)];
    let parts: Vec<String> =
        said.into_iter().filter_map(|(name, pattern)| Some(format!("{name} `{}`", pattern.as_ref()?))).collect();
    if parts.is_empty() { "every call".to_owned() } else { parts.join(" and ") }
}
