//! `weir serve`: start, say what is on and what is off, wait for a signal, stop.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use weir_config::Loaded;
use weir_config::settings::StorageProfile;

use super::common::{Options, sources};
use crate::boot::{self, Extensions, Gateway, StartError};
use crate::meter::Registry;
use crate::ops::log;
use crate::ops::notify::Notifier;

/// Options of `weir serve`.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct ServeOptions {
    /// Take the place of the gateway that serves `listen_addr` now: it hands its sockets over and drains, and no connection is
    /// refused. Without one, start as usual.
    #[arg(long)]
    take_over: bool,
}

/// Runs the gateway until a signal ends it.
pub(super) fn run(options: &Options, how: &ServeOptions, extensions: Extensions) -> Result<ExitCode, StartError> {
    let loaded = weir_config::load(&sources(options))?;
    let registry = Arc::new(Registry::new());
    let _log = log::init(&loaded.settings.logging, Arc::clone(registry.shared()))?;
    // Registered before anything is started: a signal during the start must not be lost.
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])
        .map_err(|source| StartError::Thread { what: "the signal handler", source })?;
    for warning in loaded.alarms.iter().chain(&loaded.warnings).chain(&loaded.remarks()) {
        tracing::warn!("{warning}");
    }
    let mut gateway = boot::start_with(loaded.clone(), registry, how.take_over, extensions)?;
    // No signal of our own: one that came together with somebody else's would be the second.
    let handle = signals.handle();
    gateway.offer_sockets(move || handle.close());
    banner(&loaded, &gateway);
    let manager = Notifier::from_env(|name| std::env::var_os(name));
    manager.ready(&format!("serving on {}", gateway.addr()));
    let pulses = Arc::clone(gateway.heartbeats());
    let watchdog = manager
        .watch(move || pulses.oldest())
        .map_err(|source| StartError::Thread { what: "the watchdog's thread", source })?;
    let signal = signals.forever().find(|signal| match *signal {
        SIGHUP => {
            gateway.reload();
            false
        }
        _ => true,
    });
    tracing::info!(
        signal,
        limit_s = loaded.settings.shutdown_timeout_seconds,
        "stopping; a second signal exits at once"
    );
    second_signal_exits()?;
    // Cores that have drained beat no more; the manager limits the stop itself.
    drop(watchdog);
    manager.stopping();
    let clean = gateway.stop();
    tracing::info!(clean, "stopped");
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// From now on a signal ends the process at once.
fn second_signal_exits() -> Result<(), StartError> {
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::new(std::sync::atomic::AtomicBool::new(true)))
            .map_err(|source| StartError::Thread { what: "the signal handler", source })?;
    }
    Ok(())
}

/// Says what is on, what is off, and what a reader should know before traffic comes.
fn banner(loaded: &Loaded, gateway: &Gateway) {
    let settings = &loaded.settings;
    let upstream = &settings.upstream;
    let scheme = match upstream.scheme {
        weir_config::settings::Scheme::Http => "http",
        weir_config::settings::Scheme::Https => "https",
    };
    let storage = match settings.storage.profile {
        StorageProfile::Lite => settings.storage.database_path.display().to_string(),
        StorageProfile::Production => {
            let shown = |url: &Option<weir_config::vocab::SharedSecret>| {
                let url = url.as_ref().and_then(|url| std::str::from_utf8(url.expose()).ok());
                url.and_then(weir_config::store_url::StoreUrl::parse).map(|url| url.shown()).unwrap_or_default()
            };
            let storage = &settings.storage;
            let journal = storage.database_path.display();
            format!("{}, {}; journal {journal}", shown(&storage.analytics_url), shown(&storage.relational_url))
        }
        StorageProfile::Memory => "memory (lost on restart)".to_owned(),
    };
    let on_off = |on: bool| if on { "on" } else { "off" };
    tracing::info!(
        version = super::version::FULL,
        listen = %gateway.addr(),
        upstream = format!("{scheme}://{}{}", upstream.authority, upstream.path_prefix),
        cores = gateway.cores(),
        io = %gateway.mode(),
        storage,
        "weir is ready"
    );
    tracing::info!(
        authentication = on_off(settings.auth.enabled),
        analysis = on_off(settings.enable_security_analysis),
        classifier = on_off(settings.security_analysis.ml_enabled),
        trace_storage = on_off(settings.enable_trace_storage),
        streaming = on_off(settings.enable_streaming),
        advisory = on_off(settings.llm_advisory_injection_enabled),
        rate_limit = on_off(settings.rate_limiting.enabled),
        circuit_breaker = on_off(settings.circuit_breaker.enabled),
        enforcement = settings.enforcement.mode.as_str(),
        fails_open = "analysis (queue full, timeout), storage (queue full, breaker open)",
        "features"
    );
    if let Some(proxy) = &settings.egress.proxy {
        tracing::info!(proxy = proxy.authority(), named_by = proxy.variable, "the provider is reached through a proxy");
    }
    if !settings.auth.enabled && !gateway.addr().ip().is_loopback() {
        tracing::warn!(
            listen = %gateway.addr(),
            "authentication is off and the listener is reachable from outside: any client can send traffic, read every \
             tenant's traces and claim any tenant id; set `auth.enabled: true`, or listen on 127.0.0.1"
        );
    }
}
