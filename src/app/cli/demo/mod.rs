//! `weir demo`: the whole product in one command. A fake provider and the gateway start on free loopback ports, a handful
//! of real calls goes through, and what Weir recorded is printed as a table. Nothing leaves the machine.

mod calls;
mod story;
mod table;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use weir_config::vocab::TenantId;
use weir_config::{Loaded, Sources};
use weir_fake_provider::server::StdServer;
use weir_storage::SpanLog as _;

use super::common::say;
use crate::boot::{self, StartError};
use crate::meter::Registry;
use crate::ops::log;

/// How long the records of the calls may take to become visible. A call is recorded when its answer has left, which is a moment
/// after its client has it.
const VISIBLE_WITHIN: Duration = Duration::from_secs(10);
/// How often they are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Options of `weir demo`.
#[derive(Debug, Clone, Args)]
pub(super) struct DemoOptions {
    /// End after printing the traces instead of staying up.
    #[arg(long)]
    once: bool,
    /// Keep the database at this path instead of a temporary one.
    #[arg(long, value_name = "FILE")]
    database: Option<PathBuf>,
}

/// Runs the demonstration.
///
/// # Errors
/// [`StartError`] when the gateway or the fake provider cannot start.
pub(super) fn run(options: &DemoOptions) -> Result<ExitCode, StartError> {
    let thread = |what| move |source: io::Error| StartError::Thread { what, source };
    let provider = StdServer::start(("127.0.0.1", 0)).map_err(thread("the fake provider"))?;
    let place = Place::of(options).map_err(thread("the demo's folder"))?;
    let loaded = load(provider.addr(), &place)?;
    let registry = Arc::new(Registry::new());
    let _log = log::init(&loaded.settings.logging, Arc::clone(registry.shared()))?;
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(thread("the signal handler"))?;
    let gateway = boot::start(loaded, registry)?;
    let addr = gateway.addr();
    say(&format!("fake provider  http://{}", provider.addr()));
    say(&format!("weir           http://{addr}   ({}, {} cores)", gateway.mode(), gateway.cores()));
    say(&format!("console        http://{addr}/ui"));
    say(&format!("database       {}", place.database.display()));
    say("");
    let made: Vec<_> = calls::all().into_iter().map(|call| calls::make(addr, call)).collect();
    let turns = story::play(addr);
    let until = Instant::now() + VISIBLE_WITHIN;
    let complete = table::print(&made, |trace| {
        loop {
            let recorded = gateway.store().trace(TenantId::DEFAULT, trace).ok().flatten();
            if recorded.is_some() || Instant::now() >= until {
                return recorded;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    });
    say("");
    say(&format!(
        "And {turns} turns of three agents, to be looked at in the console: a prompt cache that a date has broken, an order in a"
    ));
    say("tool's result, a provider that did not use its cache, a budget.");
    if options.once {
        let clean = gateway.stop();
        provider.stop();
        return Ok(if complete && clean { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    invite(addr);
    signals.forever().next();
    gateway.stop();
    provider.stop();
    Ok(ExitCode::SUCCESS)
}

/// The demo's settings come from nowhere but here: a file or variable meant for the real gateway does not count.
fn load(provider: SocketAddr, place: &Place) -> Result<Loaded, StartError> {
    let env = [
        ("SERVICE_LISTEN_ADDR", "127.0.0.1:0".to_owned()),
        ("SERVICE_UPSTREAM_URL", format!("http://{provider}")),
        ("SERVICE_STORAGE_DATABASE_PATH", place.database.display().to_string()),
        ("SERVICE_LOG_LEVEL", "warn".to_owned()),
    ];
    let env = env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Ok(weir_config::load(&Sources { env, config: Some(place.settings.clone()), ..Sources::default() })?)
}

fn invite(addr: SocketAddr) {
    say("");
    say(&format!("Open http://{addr}/ui in a browser."));
    say("");
    say("Weir stays up until you press Ctrl-C. Point a client at it:");
    say("");
    say(&format!("  OpenAI client     base_url=\"http://{addr}/v1\"   api_key=\"anything\""));
    say(&format!("  Anthropic client  base_url=\"http://{addr}\"      api_key=\"anything\""));
    say(&format!("  Ollama client     host=\"http://{addr}\""));
    say("");
    say(&format!("  curl http://{addr}/v1/chat/completions -H 'content-type: application/json' \\"));
    say("    -d '{\"model\":\"fake-large\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'");
    say(&format!("  curl http://{addr}/api/v1/traces"));
    say(&format!("  curl http://{addr}/health      curl http://{addr}/metrics"));
    say("");
    say("A call with a key is recorded under a tenant derived from that key: send the same Authorization header to");
    say("/api/v1/traces to see it, or the header X-Service-Tenant-ID on both.");
}

/// A budget, so that there is one to see.
const SETTINGS: &str = "cost_caps:
  enabled: true
  tenant_budget_caps: [{window: daily, soft_limit_usd: 0.25, hard_limit_usd: 1.00}]
  default_budget_caps: [{window: hourly, hard_limit_usd: 0.50}]
";

/// Where the demo keeps its database and its settings; the temporary folder goes when the demo ends.
struct Place {
    database: PathBuf,
    settings: PathBuf,
    temporary: PathBuf,
}

impl Place {
    fn of(options: &DemoOptions) -> io::Result<Self> {
        let folder = std::env::temp_dir().join(format!("weir-demo-{}", uuid::Uuid::new_v4().simple()));
        std::fs::create_dir_all(&folder)?;
        let settings = folder.join("weir.yaml");
        std::fs::write(&settings, SETTINGS)?;
        let database = options.database.clone().unwrap_or_else(|| folder.join("demo.db"));
        Ok(Self { database, settings, temporary: folder })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.temporary) {
            tracing::warn!(folder = %self.temporary.display(), %error, "the demo's temporary folder could not be removed");
        }
    }
}
