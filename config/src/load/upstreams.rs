//! What `upstreams`, `upstream_groups` and `routes` say of each other and of places outside the settings: names that have to be
//! there, keys in variables and files, the proxy on the way to each. A key that is replaced is read again with the settings.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use serde_json::Value;

use super::layers::Layers;
use super::yaml;
use super::{Place, env};
use crate::address;
use crate::egress;
use crate::error::Violation;
use crate::settings::{DEFAULT_UPSTREAM, Settings};
use crate::vocab::SharedSecret;

/// Names that metrics carry: upstreams and groups together.
const NAMES_MAX: usize = 128;
/// Characters of one name.
const NAME_CHARACTERS_MAX: usize = 64;
/// A key and a line's end.
const KEY_BYTES_MAX: u64 = 16 * 1024;

/// Settles everything that a single row cannot say.
pub(super) fn settle(
    settings: &mut Settings,
    variables: &BTreeMap<String, String>,
    config_text: Option<&str>,
    layers: &mut Layers,
) {
    let mut checks = Checks { layers, config_text };
    checks.names(settings);
    checks.members(settings);
    checks.providers(settings);
    checks.keys(settings, variables);
    let violations = &mut checks.layers.violations;
    for member in &mut settings.upstreams.members {
        member.egress = egress::read(variables, &member.endpoint, violations);
    }
    // Every upstream says the same of a variable that names no proxy.
    let mut said = BTreeSet::new();
    violations.retain(|violation| !matches!(violation.place, Place::Variable(_)) || said.insert(violation.to_string()));
}

struct Checks<'a> {
    layers: &'a mut Layers,
    config_text: Option<&'a str>,
}

impl Checks<'_> {
    /// Something is wrong at `path`, which begins with the setting `setting`.
    fn refuse(&mut self, setting: &'static str, path: String, problem: String, accepted: Option<String>, advice: &str) {
        let Some(written) = self.layers.written.get(setting) else { return };
        let place = match (&written.place, &written.steps, self.config_text) {
            (Place::File { path, .. }, Some(steps), Some(text)) => {
                Place::File { path: path.clone(), position: yaml::locate(text, steps, false) }
            }
            (place, _, _) => place.clone(),
        };
        self.layers.violations.push(Violation {
            place,
            path: Some(path),
            problem,
            accepted,
            advice: advice.to_owned(),
        });
    }

    fn names(&mut self, settings: &Settings) {
        let upstreams = &settings.upstreams;
        let accepted = || Some(format!("1 to {NAME_CHARACTERS_MAX} characters of a-z, 0-9, `-`, `_` and `.`"));
        let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte);
        let members = upstreams.members.iter().map(|member| ("upstreams", &member.name));
        let groups = upstreams.groups.iter().map(|group| ("upstream_groups", &group.name));
        let mut known = BTreeSet::new();
        for (setting, name) in members.chain(groups) {
            let path = format!("{setting}.{name}");
            let fits =
                (1..=NAME_CHARACTERS_MAX).contains(&name.len()) && name.bytes().all(legal) && !name.starts_with('.');
            if !fits {
                self.refuse(
                    setting,
                    path,
                    format!("`{name}` is not a valid name for an upstream"),
                    accepted(),
                    "rename it",
                );
            } else if name == DEFAULT_UPSTREAM {
                let problem = "`default` is the name of `upstream_url`".to_owned();
                self.refuse(setting, path, problem, None, "rename it");
            } else if !known.insert(name) {
                let problem = format!("`{name}` is the name of an upstream and of a group");
                self.refuse(setting, path, problem, None, "rename one of them");
            }
        }
        if known.len() > NAMES_MAX {
            let problem = format!("got {} upstreams and groups", known.len());
            let accepted = Some(format!("at most {NAMES_MAX} together"));
            self.refuse("upstreams", "upstreams".to_owned(), problem, accepted, "remove some");
        }
    }

    /// Every name that is used is there, and no upstream is this gateway.
    fn members(&mut self, settings: &Settings) {
        let upstreams = &settings.upstreams;
        let list = |names: &mut dyn Iterator<Item = &str>| names.collect::<Vec<_>>().join(", ");
        for member in &upstreams.members {
            if address::is_own_listener(&member.endpoint, settings.listen_addr) {
                let path = format!("upstreams.{}.url", member.name);
                let problem = format!("it is this gateway's own listener ({})", settings.listen_addr);
                self.refuse("upstreams", path, problem, None, "name the provider's address");
            }
        }
        let is_member =
            |name: &str| name == DEFAULT_UPSTREAM || upstreams.members.iter().any(|member| member.name == name);
        for group in &upstreams.groups {
            let path = format!("upstream_groups.{}.upstreams", group.name);
            let mut twice = BTreeSet::new();
            let faulty = group.members.iter().find(|name| !is_member(name) || !twice.insert(name.as_str()));
            let accepted =
                || list(&mut upstreams.members.iter().map(|member| member.name.as_str()).chain([DEFAULT_UPSTREAM]));
            if let Some(name) = faulty {
                let problem = format!("got `{name}`, which is not an upstream, or is listed twice");
                self.refuse("upstream_groups", path, problem, Some(accepted()), "correct it");
            } else if group.members.is_empty() {
                let problem = "got no upstream".to_owned();
                self.refuse("upstream_groups", path, problem, Some(accepted()), "name one, or remove the group");
            }
        }
        for (index, route) in upstreams.routes.iter().enumerate() {
            if !upstreams.names().any(|name| name == route.upstream) {
                let problem = format!("got `{}`, which is neither an upstream nor a group", route.upstream);
                let accepted = Some(list(&mut upstreams.names()));
                self.refuse("routes", format!("routes[{index}].upstream"), problem, accepted, "correct it");
            }
        }
    }

    /// A provider is served by one upstream or group: with two, nobody could say whom a client's credential goes to.
    fn providers(&mut self, settings: &Settings) {
        let upstreams = &settings.upstreams;
        let members = upstreams.members.iter().map(|member| ("upstreams", &member.name, &member.providers));
        let groups = upstreams.groups.iter().map(|group| ("upstream_groups", &group.name, &group.providers));
        let mut served: BTreeMap<&str, &str> = BTreeMap::new();
        for (setting, name, providers) in members.chain(groups) {
            for provider in providers {
                if let Some(other) = served.insert(provider.as_str(), name).filter(|other| other != name) {
                    let problem = format!("`{provider}` is served by `{other}` already");
                    let path = format!("{setting}.{name}.providers");
                    let advice = "put both into a group of `upstream_groups`, and let the group alone serve it";
                    self.refuse(setting, path, problem, None, advice);
                }
            }
        }
    }

    /// Reads keys from variables and files.
    fn keys(&mut self, settings: &mut Settings, variables: &BTreeMap<String, String>) {
        let written = self.layers.written.get("upstreams").map(|written| written.value.clone()).unwrap_or_default();
        for member in &mut settings.upstreams.members {
            let text = |field: &str| written.get(&member.name)?.get(field).and_then(Value::as_str);
            let (variable, file) = (text("api_key_env"), text("api_key_file"));
            let path = |field: &str| format!("upstreams.{}.{field}", member.name);
            let given = [member.api_key.is_some(), variable.is_some(), file.is_some()];
            if given.into_iter().filter(|given| *given).count() > 1 {
                let problem = "more than one of `api_key`, `api_key_env` and `api_key_file` is set".to_owned();
                self.refuse("upstreams", path("api_key"), problem, None, "keep one of them");
            }
            let read = match (variable, file) {
                (Some(name), _) => {
                    let found =
                        env::variable(variables, name).ok_or_else(|| format!("the variable `{name}` is not set"));
                    Some(("api_key_env", found.and_then(|key| usable(key).map_err(|why| format!("`{name}` {why}")))))
                }
                (None, Some(file)) => Some(("api_key_file", read_key(Path::new(file)))),
                (None, None) => None,
            };
            match read {
                Some((_, Ok(key))) => member.api_key = Some(key),
                Some((field, Err(problem))) => {
                    let accepted = Some("visible ASCII text without blanks, at least 8 characters".to_owned());
                    self.refuse("upstreams", path(field), problem, accepted, "put the provider's credential there");
                }
                None => {}
            }
        }
    }
}

fn read_key(path: &Path) -> Result<SharedSecret, String> {
    let read = || -> io::Result<String> {
        let mut text = String::new();
        File::open(path)?.take(KEY_BYTES_MAX).read_to_string(&mut text)?;
        Ok(text)
    };
    let text = read().map_err(|error| format!("`{}` cannot be read: {error}", path.display()))?;
    usable(text.trim()).map_err(|why| format!("`{}` {why}", path.display()))
}

fn usable(key: &str) -> Result<SharedSecret, &'static str> {
    let fits = key.len() >= 8 && key.bytes().all(|byte| byte.is_ascii_graphic());
    if fits { Ok(SharedSecret::new(key)) } else { Err("holds no credential that fits") }
}
