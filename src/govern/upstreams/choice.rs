//! Which upstream or group a request goes to: the address it asks, `X-Service-Provider`, the routes, whose dialect its path
//! is, `upstream_url`; the first that says something counts.

use weir_config::settings::DEFAULT_UPSTREAM;
use weir_config::vocab::Provider;

use super::table::UpstreamTable;

/// Where addresses of upstreams begin.
const ADDRESS: &str = "/upstream/";

/// The place of `upstream_url` among the targets.
const DEFAULT: u16 = 0;

/// What is known of a request.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Its path, without the address of an upstream.
    pub path: &'a str,
    /// `X-Service-Provider`.
    pub provider: Option<&'a str>,
    /// Whose dialect its path is or, where it does not say so, its fields are.
    pub dialect: Option<&'static str>,
    /// Its model.
    pub model: Model<'a>,
}

/// What is known of a request's model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model<'a> {
    /// It names this one.
    Named(&'a str),
    /// It names none.
    None,
    /// It may stand in the body, which nobody has read.
    Unread,
}

/// Where a request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chosen {
    /// The place of the target in [`UpstreamTable::targets`].
    pub target: u16,
    /// The request named it, by its address.
    pub by_address: bool,
    /// A route may say something else once the model is known.
    pub waits_for_model: bool,
    /// It asks the address of an upstream that is not there.
    pub is_nobody: bool,
}

/// The name in an upstream's address, and the path behind it: `/upstream/<name>/<path>`.
pub fn addressed(path: &str) -> Option<(&str, &str)> {
    let rest = path.strip_prefix(ADDRESS)?;
    let end = rest.find('/').unwrap_or(rest.len());
    rest.split_at_checked(end)
}

impl UpstreamTable {
    /// Where a request goes that asks an upstream's address.
    pub fn named(&self, name: &str) -> Chosen {
        match self.by_name.get(name) {
            Some(target) => Chosen { target: *target, by_address: true, ..Chosen::default() },
            None => Chosen { is_nobody: true, ..Chosen::default() },
        }
    }

    /// Where any other request goes.
    pub fn choose(&self, asked: &Asked<'_>) -> Chosen {
        if self.is_alone {
            return Chosen::default();
        }
        let at = |target: u16| Chosen { target, ..Chosen::default() };
        if let Some(target) = asked.provider.and_then(|name| self.serving(name)) {
            return at(target);
        }
        for rule in &self.rules {
            if rule.path.as_ref().is_some_and(|path| !path.fits(asked.path)) {
                continue;
            }
            match (&rule.model, asked.model) {
                (None, _) => return at(rule.target),
                (Some(pattern), Model::Named(model)) if pattern.fits(model) => return at(rule.target),
                (Some(_), Model::Unread) => {
                    return Chosen { waits_for_model: true, ..at(self.by_dialect(asked)) };
                }
                (Some(_), Model::Named(_) | Model::None) => {}
            }
        }
        at(self.by_dialect(asked))
    }

    /// The upstream or group of this name, or the one that serves the provider of this name.
    fn serving(&self, name: &str) -> Option<u16> {
        let name = name.trim();
        let by_name = || self.by_name.get(name).copied().filter(|_| name != DEFAULT_UPSTREAM);
        self.serves(Provider::named(name).as_str()).or_else(by_name)
    }

    fn by_dialect(&self, asked: &Asked<'_>) -> u16 {
        let below = |prefix: &str| asked.path.starts_with(prefix);
        let provider = match asked.dialect {
            Some(provider) => provider,
            None if below("/v1beta/") || below("/v1alpha/") => "gemini",
            None if below("/model/") => "bedrock",
            None if below("/api/") => "ollama",
            None if below("/v1/") => "openai",
            None => return DEFAULT,
        };
        self.serves(provider).unwrap_or(DEFAULT)
    }
}
