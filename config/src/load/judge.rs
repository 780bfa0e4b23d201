//! What the judge's settings must keep between them.

use super::layers::Layers;
use crate::address::{self, Scheme};
use crate::error::{Place, Violation};
use crate::settings::{JudgeTier, Settings};

/// Refuses a judge that would be asked in the clear or without its key, and a band that is none.
pub(super) fn check(settings: &Settings, layers: &mut Layers) {
    let judge = &settings.judge;
    if judge.tiers().any(|tier| tier == JudgeTier::SelfHosted)
        && !judge.allow_plaintext
        && in_the_clear(&judge.selfhosted.base_url)
    {
        refuse(
            layers,
            "judge.selfhosted.base_url",
            format!("got {}, which is neither encrypted nor on this machine", judge.selfhosted.base_url),
            "https://, or http:// to localhost, 127.0.0.1 or [::1]",
            "serve the model over https, or set `judge.selfhosted.allow_plaintext: true` where the network is trusted",
        );
    }
    if judge.cascade.low > judge.cascade.high {
        let problem =
            format!("the band begins at {} and ends before that, at {}", judge.cascade.low, judge.cascade.high);
        let low = "judge.cascade.ambiguous_low";
        let written = layers.written.contains_key(low);
        refuse(
            layers,
            if written { low } else { "judge.cascade.ambiguous_high" },
            problem,
            "`ambiguous_low` no larger than `ambiguous_high`",
            "exchange the two",
        );
    }
    if judge.enabled
        && let Some((name, tier)) = missing_key(settings)
    {
        let problem = format!("{name} is not set, and the backend {} needs its key", tier.as_str());
        refuse(layers, "judge.enabled", problem, "the key in the environment", "set it, or choose another backend");
    }
    for tier in [JudgeTier::HostedCompat, JudgeTier::HostedMessages] {
        let Some(model) = judge.model(tier).filter(|_| judge.tiers().any(|used| used == tier)) else { continue };
        if in_the_clear(&model.base_url) {
            layers.warnings.push(format!(
                "judge.{}.base_url: the judge's key and the texts go to another machine unencrypted; use https://",
                tier.as_str()
            ));
        }
    }
}

/// The variable that a backend the judge asks needs and that is not set, with that backend.
pub(crate) fn missing_key(settings: &Settings) -> Option<(&'static str, JudgeTier)> {
    let judge = &settings.judge;
    let hosted = [
        ("SERVICE_JUDGE_HOSTEDCOMPAT_API_KEY", JudgeTier::HostedCompat),
        ("SERVICE_JUDGE_HOSTEDMESSAGES_API_KEY", JudgeTier::HostedMessages),
    ];
    let lacks =
        |tier| judge.tiers().any(|used| used == tier) && judge.model(tier).is_some_and(|model| model.key.is_none());
    hosted.into_iter().find(|(_, tier)| lacks(*tier))
}

/// Whether `url` leads to another machine without TLS.
fn in_the_clear(url: &str) -> bool {
    address::upstream(url).is_ok_and(|upstream| {
        let literal: Option<std::net::IpAddr> = upstream.host.parse().ok();
        let is_local = literal.map_or(upstream.host.eq_ignore_ascii_case("localhost"), |ip| ip.is_loopback());
        upstream.scheme == Scheme::Http && !is_local
    })
}

fn refuse(layers: &mut Layers, path: &'static str, problem: String, accepted: &str, advice: &str) {
    let written = layers.written.get(path);
    layers.violations.push(Violation {
        place: written.map_or(Place::Variable(path), |written| written.place.clone()),
        path: Some(path.to_owned()),
        problem,
        accepted: Some(accepted.to_owned()),
        advice: advice.to_owned(),
    });
}
