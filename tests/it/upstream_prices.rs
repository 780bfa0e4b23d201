//! Promise: a call costs what the upstream asks that it went to, whichever way it came there and whoever of a group answered.

use serde_json::{Value, json};

use crate::support::{Answer, Call, Driver, Gateway, Setup, Upstream, call, on_both_drivers_in_full};
use crate::upstreams::status;

/// In the public lists at 0.7 and 2.4 dollars per million tokens with DeepInfra, at 0.4 and 0.4 with Hyperbolic.
const MODEL: &str = "deepseek-ai/deepseek-r1";
/// 1,000 tokens at 0.7 and 500 at 2.4 dollars per million.
const DEEPINFRA_USD: f64 = 0.0019;
/// 1,000 tokens at 0.4 and 500 at 0.4 dollars per million.
const HYPERBOLIC_USD: f64 = 0.0006;

fn answer() -> String {
    let body = json!({
        "id": "1", "object": "chat.completion",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 500, "total_tokens": 1500}
    })
    .to_string();
    format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

struct World {
    gateway: Gateway,
    _providers: Vec<Upstream>,
}

impl World {
    fn new(driver: Driver) -> Self {
        let well = [Upstream::always(answer()), Upstream::always(answer()), Upstream::always(answer())];
        let busy = Upstream::always(status("429 Too Many Requests", "Retry-After: 30\r\n"));
        let gateway = Setup::new(driver)
            .unlimited()
            .upstream(well[2].url())
            .with(&format!(
                "upstreams:\n  dear: {{url: '{}', providers: [deepinfra]}}\n  cheap: {{url: '{}', providers: [hyperbolic]}}\n  \
                 busy: {{url: '{}', providers: [novita]}}\n  by-path: {{url: '{}', \
                 providers: [openai]}}\n  azure: {{url: '{}', providers: [azure_openai]}}",
                well[0].url(),
                well[1].url(),
                busy.url(),
                well[2].url(),
                well[2].url()
            ))
            .with(
                "upstream_groups:\n  to-cheap: {upstreams: [busy, cheap], retry_refused: true}\n  to-dear: {upstreams: [busy, dear], \
                 retry_refused: true}\n  at-once: {upstreams: [cheap, dear]}\n  fixed: {upstreams: [cheap, dear], providers: \
                 [nebius]}",
            )
            .with("routes: [{path: '/v1/completions', upstream: cheap}, {model: '*-r1', upstream: dear}]")
            .start();
        let [dear, cheap, default] = well;
        Self { gateway, _providers: vec![dear, cheap, default, busy] }
    }

    fn ask(&self, model: &str, path: &str, header: Option<&str>) -> Answer {
        let ask =
            Call::post(path, json!({"model": model, "messages": [{"role": "user", "content": "hi"}]}).to_string());
        let ask = match header {
            Some(header) => ask.field("X-Service-Provider", header),
            None => ask,
        };
        call(self.gateway.addr, ask.bytes())
    }

    fn assert_cost(&self, (model, path, header): (&str, &str, Option<&str>), upstream: &str, provider: &str, usd: f64) {
        let span = self.gateway.span_of(&self.ask(model, path, header));
        let named = (&span["tags"]["upstream"], &span["provider"]);
        assert_eq!(named, (&json!(upstream), &json!(provider)), "{model} {path} {header:?}");
        let cost = span["estimated_cost_usd"].as_f64().unwrap_or(-1.0);
        assert!((cost - usd).abs() < 1e-9, "{path} {header:?}: {cost} for {usd}: {}", Value::to_string(&span));
    }
}

on_both_drivers_in_full! {
    fn a_call_costs_what_its_own_upstream_asks(driver) {
        let world = World::new(driver);
        let chat = "/v1/chat/completions";
        for (path, header, upstream) in [
            ("/upstream/dear/v1/chat/completions", None, "dear"),
            ("/upstream/cheap/v1/chat/completions", None, "cheap"),
            (chat, Some("deepinfra"), "dear"),
            (chat, Some("hyperbolic"), "cheap"),
            (chat, Some("cheap"), "cheap"),
            ("/v1/completions", None, "cheap"),
            (chat, None, "dear"),
            // The members say what they serve, and not the group: the one that answers is paid.
            ("/upstream/at-once/v1/chat/completions", None, "cheap"),
            ("/upstream/to-cheap/v1/chat/completions", None, "cheap"),
            ("/upstream/to-dear/v1/chat/completions", None, "dear"),
        ] {
            let (provider, usd) =
                if upstream == "dear" { ("deepinfra", DEEPINFRA_USD) } else { ("hyperbolic", HYPERBOLIC_USD) };
            world.assert_cost((MODEL, path, header), upstream, provider, usd);
        }
        // Where the group says it, that counts: 1,000 tokens at 0.8 and 500 at 2.4 dollars per million with Nebius.
        world.assert_cost((MODEL, "/upstream/fixed/v1/chat/completions", None), "cheap", "nebius", 0.002);
        // By the path's dialect, and by the header beside it: 10 and 30 dollars per million with OpenAI, 11 and 33 with Azure.
        world.assert_cost(("gpt-4-turbo", chat, None), "by-path", "openai", 0.025);
        world.assert_cost(("gpt-4-turbo", chat, Some("azure_openai")), "azure", "azure_openai", 0.0275);
    }
}
