//! What the fast provider is asked for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Settings of the provider.
#[derive(Debug, Clone)]
pub struct ProviderSettings {
    /// Loopback address; port 0 picks one.
    pub listen: SocketAddr,
    /// Threads.
    pub cores: usize,
    /// Length of the precomputed whole answers.
    pub answer_bytes: usize,
    /// Content frames of the precomputed streams.
    pub frames: usize,
    /// Milliseconds between those frames.
    pub frame_ms: u64,
    /// Milliseconds before each answer, as if a model were thinking.
    pub delay_ms: u64,
    /// How often, and for how long, the server does nothing at all.
    pub stall: Option<(Duration, Duration)>,
    /// Say in each head which bytes the body has.
    pub digest: bool,
    /// Speak TLS.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Compute every answer from its request.
    pub full: bool,
    /// Answer ordinary requests with this status as soon as their head has come, and read their bodies after that.
    pub early: Option<u16>,
    /// When to stop; `None` for never.
    pub run_for: Option<Duration>,
}
