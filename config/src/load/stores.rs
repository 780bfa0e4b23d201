//! What the `production` profile needs beside its name: three stores, each by its own kind of address. None of them is shown.

use super::layers::Layers;
use crate::error::{Place, Violation};
use crate::settings::{Settings, StorageProfile};
use crate::store_url::StoreUrl;
use crate::vocab::SharedSecret;

/// Refuses the profile without its stores, and an address that is none.
pub(super) fn check(settings: &Settings, layers: &mut Layers) {
    let storage = &settings.storage;
    let stores: [(&'static str, &Option<SharedSecret>, &[&str], &str); 3] = [
        ("storage.analytics_url", &storage.analytics_url, &["http", "https"], "an http:// or https:// address"),
        ("storage.relational_url", &storage.relational_url, &["postgres", "postgresql"], "a postgres:// address"),
        ("storage.cache_url", &storage.cache_url, &["redis", "rediss"], "a redis:// or rediss:// address"),
    ];
    let is_needed = storage.profile == StorageProfile::Production;
    for (path, url, schemes, accepted) in stores {
        let problem = match url {
            None if is_needed => "is not set, and the profile `production` needs it",
            None => continue,
            Some(url) => {
                let read = std::str::from_utf8(url.expose()).ok().and_then(StoreUrl::parse);
                if read.is_some_and(|url| schemes.contains(&url.scheme.as_str())) {
                    continue;
                }
                "is not such an address (it is not shown, as it may hold a password)"
            }
        };
        let written = layers.written.get(path).or_else(|| layers.written.get("storage.profile"));
        layers.violations.push(Violation {
            place: written.map_or(Place::Variable(path), |written| written.place.clone()),
            path: Some(path.to_owned()),
            problem: problem.to_owned(),
            accepted: Some(accepted.to_owned()),
            advice: if url.is_some() { "correct it" } else { "set it, or choose the profile `lite`" }.to_owned(),
        });
    }
    if !is_needed && stores.iter().any(|(_, url, ..)| url.is_some()) {
        layers.warnings.push(
            "storage.analytics_url, storage.relational_url and storage.cache_url are not used: `storage.profile` is not `production`"
                .to_owned(),
        );
    }
}
