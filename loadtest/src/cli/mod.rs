//! Command-line arguments, checked into settings. Everything behind this file can rely on them.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use super::fast::ProviderSettings;
use crate::error::SetupError;

/// Weir's load generator and fake LLM provider. Loopback only.
#[derive(Debug, Parser)]
#[command(name = "weir-loadtest", version)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Serve a fake LLM provider.
    Provider(ProviderArgs),
    /// Load a target and report what it did.
    Run(RunArgs),
}

/// Arguments of `provider`.
#[derive(Debug, Args)]
pub(super) struct ProviderArgs {
    /// Loopback address and port; port 0 picks one. The choice is printed as `listening on ADDRESS`.
    #[arg(long)]
    listen: SocketAddr,
    /// Threads, each with its own listener on the same port.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    cores: u16,
    /// Length of the precomputed JSON answers in bytes.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(512..=67_108_864))]
    answer_bytes: u32,
    /// Content frames of the precomputed streams.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    frames: u32,
    /// Milliseconds between frames of the precomputed streams.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=60_000))]
    frame_ms: u32,
    /// Compute every answer from its prompt instead of precomputing it. `x-fake-*` headers work either way.
    #[arg(long)]
    full: bool,
    /// Answer ordinary requests with this status as soon as their head has come, and read their bodies after that.
    #[arg(long, value_name = "STATUS", conflicts_with = "full", value_parser = clap::value_parser!(u16).range(200..=599))]
    early: Option<u16>,
    /// Stop after this time (`30s`, `500ms`, `10m`); without it, run until ended.
    #[arg(long = "for", value_parser = parse_duration)]
    run_for: Option<Duration>,
}

impl ProviderArgs {
    pub(super) fn settings(self) -> Result<ProviderSettings, SetupError> {
        require_loopback("--listen", self.listen.ip())?;
        Ok(ProviderSettings {
            listen: self.listen,
            cores: usize::from(self.cores),
            answer_bytes: self.answer_bytes as usize,
            frames: self.frames as usize,
            frame_ms: u64::from(self.frame_ms),
            full: self.full,
            early: self.early,
            run_for: self.run_for,
        })
    }
}

/// How the generator decides when to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Every connection sends again as soon as it has its answer.
    Closed,
    /// Requests are due at a rate, whatever the answers do; latency counts from the due time.
    Open,
}

/// Spacing of due times in open mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Arrivals {
    /// Evenly spaced.
    Constant,
    /// Exponentially distributed gaps.
    Poisson,
}

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Plan {
    /// Requests of one length.
    Bodies,
    /// Sessions of a coding agent: 50 turns that grow from 4 KB to 400 KB, with tools and what they bring, one session after the
    /// other on each connection.
    Session,
}

/// Which provider's requests are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RequestDialect {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/messages`.
    Messages,
    /// `/api/chat`.
    Local,
}

/// Arguments of `run`.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// `http://127.0.0.1:PORT`, optionally with a path prefix.
    #[arg(long)]
    target: String,
    #[arg(long, value_enum, default_value_t = Mode::Closed)]
    mode: Mode,
    /// Connections, all opened before the load starts.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,
    /// Length of the measured phase.
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    duration: Duration,
    /// Load of the same kind before measuring.
    #[arg(long, default_value = "2s", value_parser = parse_duration)]
    warmup: Duration,
    /// Requests per second in open mode.
    #[arg(long)]
    rate: Option<f64>,
    /// Spacing in open mode.
    #[arg(long, value_enum, default_value_t = Arrivals::Constant)]
    arrivals: Arrivals,
    #[arg(long, value_enum, default_value_t = RequestDialect::Chat)]
    dialect: RequestDialect,
    /// What is sent; the lengths of a session's bodies are its own.
    #[arg(long, value_enum, default_value_t = Plan::Bodies)]
    plan: Plan,
    /// Length of a request body in bytes.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(512..=67_108_864))]
    body_bytes: u32,
    /// Different bodies prepared; without it 512, or fewer where they would be more than 64 MiB.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    bodies: Option<u32>,
    /// Send the prepared bodies as they are; otherwise each request's newest message is unique.
    #[arg(long)]
    repeat_bodies: bool,
    /// Share of a body's text that stood in earlier requests, as history: 0 is one new message. Without it, as many turns of
    /// history as the length has room for.
    #[arg(long, conflicts_with = "repeat_bodies")]
    seen_share: Option<f64>,
    /// Ask for streamed answers.
    #[arg(long)]
    stream: bool,
    /// Ask the fake provider for gzip-compressed streams; their frames are told apart by the flushes between them.
    #[arg(long, requires = "stream")]
    gzip: bool,
    /// Write the head by itself and the body behind it, as many clients do.
    #[arg(long)]
    head_first: bool,
    /// Extra request header `Name: value`; may be repeated.
    #[arg(long = "header")]
    headers: Vec<String>,
    /// Process whose CPU time and memory are accounted; may be repeated.
    #[arg(long = "pid")]
    pids: Vec<u32>,
    /// Count every other status as a failure. Without it every 2xx is as expected.
    #[arg(long, value_parser = clap::value_parser!(u16).range(100..=599))]
    expect_status: Option<u16>,
    /// Count non-2xx answers, but do not fail because of them.
    #[arg(long, conflicts_with = "expect_status")]
    allow_non_2xx: bool,
    /// The longest silence on a connection while an answer is due.
    #[arg(long, default_value = "10s", value_parser = parse_duration)]
    timeout: Duration,
    /// Where the JSON report goes.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Checked settings of a run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The target's loopback address.
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
    /// Extra request fields.
    pub headers: Vec<(String, String)>,
    /// Processes accounted.
    pub pids: Vec<u32>,
    /// The only status expected; every 2xx when not given.
    pub expect_status: Option<u16>,
    /// Whether statuses never count as failures.
    pub allow_non_2xx: bool,
    /// The longest silence while an answer is due.
    pub timeout: Duration,
}

impl Settings {
    /// Whether an answer with this status is what the run wants.
    pub(super) fn expects(&self, status: u16) -> bool {
        self.expect_status.map_or((200..300).contains(&status), |expected| expected == status)
    }
}

/// Bytes of all prepared bodies where nobody says how many there are.
const BODIES_BYTES: u32 = 64 << 20;
const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);
const RATE_MAX: f64 = 1_000_000.0;

impl RunArgs {
    pub(super) fn settings(self) -> Result<(Settings, Option<PathBuf>), SetupError> {
        let (authority, path_prefix) = split_target(&self.target)?;
        let addr = resolve(&authority)?;
        let rate_per_s = match (self.mode, self.rate) {
            (Mode::Closed, None) => 0.0,
            (Mode::Closed, Some(_)) => return Err(SetupError("--rate needs --mode open".to_owned())),
            (Mode::Open, Some(rate)) if (0.1..=RATE_MAX).contains(&rate) => rate,
            (Mode::Open, Some(rate)) => {
                return Err(SetupError(format!("--rate is {rate}; accepted are 0.1 to {RATE_MAX} per second")));
            }
            (Mode::Open, None) => return Err(SetupError("--mode open needs --rate, requests per second".to_owned())),
        };
        let bounds = [
            ("--duration", self.duration, Duration::from_millis(1)),
            ("--warmup", self.warmup, Duration::ZERO),
            ("--timeout", self.timeout, Duration::from_millis(1)),
        ];
        for (name, given, least) in bounds {
            if !(least..=DURATION_MAX).contains(&given) {
                return Err(SetupError(format!("{name} is {given:?}; accepted are {least:?} to 24 hours")));
            }
        }
        if let Some(share) = self.seen_share.filter(|share| !(0.0..=0.95).contains(share)) {
            return Err(SetupError(format!("--seen-share is {share}; accepted are 0 to 0.95")));
        }
        let mut headers = self.headers.iter().map(|header| split_header(header)).collect::<Result<Vec<_>, _>>()?;
        if self.gzip {
            headers.push(("x-fake-encoding".to_owned(), "gzip".to_owned()));
        }
        let settings = Settings {
            addr,
            target: self.target,
            authority,
            path_prefix,
            mode: self.mode,
            connections: self.connections as usize,
            duration: self.duration,
            warmup: self.warmup,
            rate_per_s,
            arrivals: self.arrivals,
            dialect: self.dialect,
            body_bytes: self.body_bytes as usize,
            plan: self.plan,
            bodies: self.bodies.unwrap_or_else(|| (BODIES_BYTES / self.body_bytes).clamp(16, 512)) as usize,
            unique: !self.repeat_bodies,
            seen_share: self.seen_share,
            stream: self.stream,
            gzip: self.gzip,
            head_first: self.head_first,
            headers,
            pids: self.pids,
            expect_status: self.expect_status,
            allow_non_2xx: self.allow_non_2xx,
            timeout: self.timeout,
        };
        Ok((settings, self.json))
    }
}

fn split_target(target: &str) -> Result<(String, String), SetupError> {
    let rest = target.strip_prefix("http://").filter(|rest| !rest.is_empty());
    let rest = rest.ok_or_else(|| SetupError(format!("--target is `{target}`; accepted is http://LOOPBACK:PORT")))?;
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let path = path.trim_end_matches('/');
    let prefix = if path.is_empty() { String::new() } else { format!("/{path}") };
    Ok((authority.to_owned(), prefix))
}

fn resolve(authority: &str) -> Result<SocketAddr, SetupError> {
    let addrs = authority
        .to_socket_addrs()
        .map_err(|error| SetupError(format!("--target `{authority}` cannot be resolved: {error}")))?;
    let mut first = None;
    for addr in addrs {
        require_loopback("--target", addr.ip())?;
        first.get_or_insert(addr);
    }
    first.ok_or_else(|| SetupError(format!("--target `{authority}` has no address")))
}

fn require_loopback(argument: &str, ip: IpAddr) -> Result<(), SetupError> {
    match ip.is_loopback() {
        true => Ok(()),
        false => {
            Err(SetupError(format!("{argument} is {ip}; only loopback addresses are accepted (127.0.0.0/8, ::1)")))
        }
    }
}

fn split_header(header: &str) -> Result<(String, String), SetupError> {
    let token = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
    match header.split_once(':') {
        Some((name, value)) if token(name) && !value.contains(['\r', '\n', '\0']) => {
            Ok((name.to_owned(), value.trim().to_owned()))
        }
        _ => Err(SetupError(format!("--header is `{header}`; accepted is `Name: value`"))),
    }
}

/// `10s`, `500ms`, `2m`, `1h`.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit_ms = match unit {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let parsed = number.parse::<u64>().ok().zip(unit_ms).and_then(|(number, unit_ms)| number.checked_mul(unit_ms));
    parsed.map(Duration::from_millis).ok_or_else(|| "accepted is a number with ms, s, m or h, as in 10s".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(args: &str) -> Result<Settings, String> {
        let cli = Cli::try_parse_from(format!("weir-loadtest run {args}").split_whitespace());
        match cli.map_err(|error| error.to_string())?.command {
            Command::Run(args) => args.settings().map(|(settings, _)| settings).map_err(|error| error.to_string()),
            Command::Provider(_) => Err("provider".to_owned()),
        }
    }

    #[test]
    fn takes_the_usual_arguments() {
        let settings = run("--target http://127.0.0.1:9/a/b/ --mode open --rate 6000 --duration 1500ms").unwrap();
        assert_eq!((settings.authority.as_str(), settings.path_prefix.as_str()), ("127.0.0.1:9", "/a/b"));
        assert_eq!((settings.rate_per_s, settings.duration), (6000.0, Duration::from_millis(1500)));
        assert!(settings.unique && settings.connections == 64 && settings.body_bytes == 1000);
    }

    #[test]
    fn refuses_targets_that_are_not_loopback() {
        let error = run("--target http://192.0.2.1:80").unwrap_err();
        assert_eq!(error, "--target is 192.0.2.1; only loopback addresses are accepted (127.0.0.0/8, ::1)");
        let cli = Cli::try_parse_from(["weir-loadtest", "provider", "--listen", "0.0.0.0:1"]).unwrap();
        let Command::Provider(args) = cli.command else { panic!() };
        assert!(args.settings().unwrap_err().to_string().starts_with("--listen is 0.0.0.0;"));
    }

    #[test]
    fn errors_name_the_argument_and_what_is_accepted() {
        for (args, part) in [
            ("--target https://127.0.0.1:9", "accepted is http://LOOPBACK:PORT"),
            ("--target http://127.0.0.1:9 --mode open", "--mode open needs --rate"),
            ("--target http://127.0.0.1:9 --rate 5", "--rate needs --mode open"),
            ("--target http://127.0.0.1:9 --mode open --rate 0", "accepted are 0.1 to 1000000 per second"),
            ("--target http://127.0.0.1:9 --duration 5", "accepted is a number with ms, s, m or h"),
            ("--target http://127.0.0.1:9 --duration 0s", "--duration is 0ns; accepted are 1ms to 24 hours"),
            ("--target http://127.0.0.1:9 --connections 0", "1..=10000"),
            ("--target http://127.0.0.1:9 --header x", "accepted is `Name: value`"),
            ("--target http://127.0.0.1:9 --gzip", "--stream"),
        ] {
            let error = run(args).unwrap_err();
            assert!(error.contains(part), "{args}: {error}");
        }
    }
}
