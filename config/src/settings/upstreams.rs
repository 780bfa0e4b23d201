//! `upstreams`, `upstream_groups`, `routes` and `upstream_health`, checked: every name that is used is there, and every
//! credential has been read from wherever the operator keeps it.

use std::path::PathBuf;

use crate::address::Upstream;
use crate::egress::Egress;
use crate::vocab::{Provider, SharedSecret};

/// The name under which `upstream_url` is known beside `upstreams`.
pub const DEFAULT_UPSTREAM: &str = "default";

/// Every upstream beside `upstream_url`, and which calls go to which.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Upstreams {
    /// `upstreams`, by name.
    pub members: Vec<NamedUpstream>,
    /// `upstream_groups`, by name.
    pub groups: Vec<UpstreamGroup>,
    /// `routes`, in their order.
    pub routes: Vec<RouteRule>,
    /// `upstream_health.*`.
    pub health: UpstreamHealth,
}

/// One entry of `upstreams`.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedUpstream {
    /// Its name.
    pub name: String,
    /// `url`, taken apart.
    pub endpoint: Upstream,
    /// The proxy on the way to it and the certificates that the environment names.
    pub egress: Egress,
    /// `providers`: whose calls come here.
    pub providers: Vec<Provider>,
    /// The credential for requests that bring none, from `api_key`, `api_key_env` or `api_key_file`.
    pub api_key: Option<SharedSecret>,
    /// `ca_file`: PEM bundle trusted beside the system roots.
    pub ca_file: Option<PathBuf>,
    /// `timeout_ms` in place of the gateway's.
    pub timeout_ms: Option<u64>,
    /// `connection_timeout_ms` in place of the gateway's.
    pub connection_timeout_ms: Option<u64>,
    /// `max_connections` of this upstream, in place of the gateway's.
    pub max_connections: Option<u32>,
    /// `weight` in its groups; 1 where none is written.
    pub weight: u32,
}

/// One entry of `upstream_groups`: upstreams that can stand in for each other.
#[derive(Debug, Clone, PartialEq)]
pub struct UpstreamGroup {
    /// Its name.
    pub name: String,
    /// `upstreams`: names, in the order in which they are tried.
    pub members: Vec<String>,
    /// `providers`: whose calls come here.
    pub providers: Vec<Provider>,
    /// `balance`.
    pub balance: Balance,
    /// `sticky`: calls of one session go to the same member as long as it is healthy.
    pub sticky: bool,
    /// `retry_refused`: what one member answers with 429 or 503 and a `Retry-After` is sent to the next.
    pub retry_refused: bool,
}

/// `upstream_groups.*.balance` values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Balance {
    /// The first that is healthy.
    Order,
    /// Each in proportion to its weight.
    Weights,
}

/// One entry of `routes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteRule {
    /// `model`: a pattern of model names.
    pub model: Option<Pattern>,
    /// `path`: a pattern of paths.
    pub path: Option<Pattern>,
    /// `upstream`: the name of an upstream or a group.
    pub upstream: String,
}

/// `upstream_health.*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpstreamHealth {
    /// `eject_after`: failures in a row that take a member out of its groups.
    pub eject_after: u32,
    /// `eject_ms`: for how long, the first time.
    pub eject_ms: u64,
    /// `panic_percent`: with fewer healthy members than this, those whose time is up get their share at once. Members are counted,
    /// whatever they weigh.
    pub panic_percent: u32,
    /// `left_after_ms`: a client that has waited so long for an answer and leaves counts as a failure; 0: none does.
    pub left_after_ms: u64,
}

impl Default for UpstreamHealth {
    fn default() -> Self {
        Self { eject_after: 3, eject_ms: 10_000, panic_percent: 50, left_after_ms: 10_000 }
    }
}

impl Upstreams {
    /// Whether there is nothing but `upstream_url`.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Everything that can be named: upstreams, groups and `default`.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let members = self.members.iter().map(|member| member.name.as_str());
        members.chain(self.groups.iter().map(|group| group.name.as_str())).chain([DEFAULT_UPSTREAM])
    }
}

/// A text in which `*` stands for any text, in capitals or small letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    /// What stands between the stars, in small letters; the first and the last part may be empty.
    parts: Vec<String>,
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.parts.join("*"))
    }
}

impl Pattern {
    /// Reads a pattern.
    pub fn new(text: &str) -> Self {
        Self { parts: text.to_ascii_lowercase().split('*').map(str::to_owned).collect() }
    }

    /// Whether every path fits: each begins with a slash, so that `/*` says no more than `*`.
    pub fn fits_every_path(&self) -> bool {
        let Some((first, rest)) = self.parts.split_first() else { return false };
        !rest.is_empty() && (first.is_empty() || first == "/") && rest.iter().all(String::is_empty)
    }

    /// Whether all of `text` fits. Linear in its length for each part; nothing is copied where both ends settle it.
    pub fn fits(&self, text: &str) -> bool {
        let Some((first, rest)) = self.parts.split_first() else { return false };
        let Some((last, between)) = rest.split_last() else { return text.eq_ignore_ascii_case(first) };
        let is = |part: &str, place: Option<&str>| place.is_some_and(|place| place.eq_ignore_ascii_case(part));
        let end = text.len().saturating_sub(last.len());
        if !is(first, text.get(..first.len())) || !is(last, text.get(end..)) {
            return false;
        }
        // What stands between the two; they may not overlap.
        let Some(left) = text.get(first.len()..end) else { return false };
        if between.iter().all(String::is_empty) {
            return true;
        }
        let (left, mut at) = (left.to_ascii_lowercase(), 0);
        between.iter().all(|part| {
            let found = left.get(at..).and_then(|rest| rest.find(part.as_str()));
            at += found.unwrap_or_default() + part.len();
            found.is_some()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for (pattern, text, fits) in [
            ("gpt-4o", "gpt-4o", true),
            ("gpt-4o", "gpt-4o-mini", false),
            ("gpt-*", "GPT-4o", true),
            ("*-mini", "gpt-4o-mini", true),
            ("*-mini", "gpt-4o-mini-2", false),
            ("g*4*i", "gpt-4o-mini", true),
            ("ab*ba", "aba", false),
            ("*", "", true),
            ("", "x", false),
            ("a**b", "ab", true),
            ("ü*Ä", "üÄ", true),
            ("ü*", "u", false),
            ("*a*b*", "xxAyyByy", true),
            ("*b*a*", "xxAyyByy", false),
            ("x*a*y", "xay", true),
            ("x*ay*y", "xay", false),
        ] {
            assert_eq!(Pattern::new(pattern).fits(text), fits, "{pattern} {text}");
        }
    }

    #[test]
    fn patterns_that_every_path_fits_are_known() {
        let known = ["*", "**", "/*", "/**"].map(|pattern| Pattern::new(pattern).fits_every_path());
        assert_eq!(known, [true; 4]);
        let others =
            ["", "/", "//*", "/v1/*", "*/", "/*/*", "*v1*"].map(|pattern| Pattern::new(pattern).fits_every_path());
        assert_eq!(others, [false; 7]);
    }
}
