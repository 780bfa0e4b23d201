//! What it takes to find out where a call goes, with `upstream_url` alone and beside one and twenty upstreams, half of them with routes that
//! fit other calls. Whole calls with as many are counted by `benches/instructions.py`.

use std::hint::black_box;

use weir::upstreams::{Asked, Call, Ended, Model, SharedUpstreams};
use weir_config::Settings;
use weir_config::settings::{NamedUpstream, Pattern, RouteRule};
use weir_config::vocab::Provider;

use crate::{Outcome, scenario};

pub(crate) fn all() -> Outcome {
    for (name, count) in [
        ("find where a call goes, upstream_url alone", 0),
        ("find where a call goes, one upstream", 1),
        ("find where a call goes, twenty upstreams", 20),
    ] {
        let table = SharedUpstreams::open(&settings(count), 1)?.table();
        let last = format!("provider-{}", count.max(1) - 1);
        let expected = if count == 0 { "default" } else { last.as_str() };
        let asked =
            Asked { path: "/v1/chat/completions", provider: None, dialect: Some("openai"), model: Model::Unread };
        scenario(name, 1_000, &mut |number| {
            let target = table.target(table.choose(black_box(&asked)).target);
            let call = Call { session: None, chance: number as u64, now_ms: 1, is_safe: false };
            let order = table.order(target, &call);
            let member = table.member(*order.first().ok_or("nobody is tried")?);
            member.health.ended(Ended::Answered, 1, &table.health);
            if *member.name == *expected { Ok(()) } else { Err("another upstream") }
        })?;
    }
    Ok(())
}

/// So many upstreams, of which the last one serves the call.
fn settings(count: usize) -> Settings {
    let mut settings = Settings::default();
    let member = |at: usize| NamedUpstream {
        name: format!("provider-{at}"),
        endpoint: settings.upstream.clone(),
        egress: settings.egress.clone(),
        providers: vec![if at + 1 == count { Provider::OPENAI } else { Provider::named(&format!("other-{at}")) }],
        api_key: None,
        ca_file: None,
        timeout_ms: None,
        connection_timeout_ms: None,
        max_connections: None,
        weight: 1,
    };
    let members = (0..count).map(member).collect();
    let route = |at: usize| RouteRule {
        model: None,
        path: Some(Pattern::new(&format!("/elsewhere/{at}/*"))),
        upstream: format!("provider-{at}"),
    };
    settings.upstreams.routes = (0..count / 2).map(route).collect();
    settings.upstreams.members = members;
    settings
}
