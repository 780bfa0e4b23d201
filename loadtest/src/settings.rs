//! What one measurement is made with, checked. Everything that sends or counts can rely on it.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde::{Deserialize, Serialize};

/// How the generator decides when to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Every connection sends again as soon as it has its answer.
    Closed,
    /// Requests are due at a rate, whatever the answers do; latency counts from the due time.
    Open,
}

/// Spacing of due times in open mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Evenly spaced.
    Constant,
    /// Exponentially distributed gaps.
    Poisson,
}

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Plan {
    /// Requests of one length.
    Bodies,
    /// Sessions of a coding agent: 50 turns that grow from 4 KB to 400 KB, with tools and what they bring, one session after the
    /// other on each connection.
    Session,
    /// Requests that were recorded.
    Recorded,
}

/// Which provider's requests are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestDialect {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/messages`.
    Messages,
    /// `/v1/responses`.
    Responses,
    /// `/v1beta/models/fake-small:generateContent` and `:streamGenerateContent`.
    Gemini,
    /// `/api/chat`.
    Local,
}

impl RequestDialect {
    /// The dialect as it is written on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Messages => "messages",
            Self::Responses => "responses",
            Self::Gemini => "gemini",
            Self::Local => "local",
        }
    }
}

/// Checked settings of a run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The target's address.
    pub addr: SocketAddr,
    /// The target as given.
    pub target: String,
    /// Value of the Host field.
    pub authority: String,
    /// Put in front of every path; empty or `/a/b`.
    pub path_prefix: String,
    /// When requests are sent.
    pub mode: Mode,
    /// Connections held.
    pub connections: usize,
    /// Length of the measured phase.
    pub duration: Duration,
    /// Length of the phase before it; zero for none.
    pub warmup: Duration,
    /// Requests per second in open mode.
    pub rate_per_s: f64,
    /// Spacing in open mode.
    pub arrivals: Arrivals,
    /// Which requests are sent.
    pub dialect: RequestDialect,
    /// Length of a body in bytes.
    pub body_bytes: usize,
    /// Which requests of the dialect.
    pub plan: Plan,
    /// Different bodies prepared.
    pub bodies: usize,
    /// Whether every request's newest message is unique.
    pub unique: bool,
    /// Share of a body's text that is history; as much as makes a usual conversation where it is not given.
    pub seen_share: Option<f64>,
    /// Whether answers are streamed.
    pub stream: bool,
    /// Whether streams are compressed with gzip.
    pub gzip: bool,
    /// Whether the head is written by itself.
    pub head_first: bool,
    /// Extra request fields; `{n}` in a value is the number of the prepared request or of the session.
    pub headers: Vec<(String, String)>,
    /// Processes accounted.
    pub pids: Vec<u32>,
    /// The only status expected; every 2xx when not given.
    pub expect_status: Option<u16>,
    /// Whether statuses never count as failures.
    pub allow_non_2xx: bool,
    /// The longest silence while an answer is due.
    pub timeout: Duration,
    /// Whether bodies define tools.
    pub tools: bool,
    /// Whether the newest message holds a picture, which takes what the length leaves.
    pub image: bool,
    /// Whether a connection carries more than one request.
    pub keep_alive: bool,
    /// What is sent by the plan [`Plan::Recorded`].
    pub recorded: Rc<[RecordedCall]>,
    /// Several kinds of requests, with their weights; empty where these settings are the only kind.
    pub mix: Vec<(u32, Rc<Settings>)>,
    /// Whom to trust, and the name that a certificate has to bear, where the target speaks TLS.
    pub tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
    /// Where random choices begin.
    pub seed: u64,
    /// Whether all prepared requests are sent once before the warm-up.
    pub sends_first: bool,
}

/// A request that was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedCall {
    /// Path with its query.
    pub path: String,
    /// Whose request it is.
    pub dialect: RequestDialect,
    /// Whether its answer is a stream.
    pub stream: bool,
    /// The body.
    pub body: String,
}

impl Settings {
    /// Whether an answer with this status is what the run wants.
    pub(crate) fn expects(&self, status: u16) -> bool {
        self.expect_status.map_or((200..300).contains(&status), |expected| expected == status)
    }
}
