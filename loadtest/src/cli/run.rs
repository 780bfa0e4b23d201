//! Arguments of `run`. One target without a name and without any of the options for several is one measurement with a plain report;
//! everything else is a plan in rounds.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use clap::Args;

use crate::error::SetupError;
use crate::hosts;
use crate::plan::{
    self, Override, Ramp, TestPlan, duration_within, parse_bytes_within, parse_duration, parse_listen, rate_within,
};
use crate::process::Subjects;
use crate::settings::{Arrivals, Mode, Plan, RequestDialect, Settings};
use crate::trust::Trusted;

/// Arguments of `run`.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// `http://HOST:PORT`, optionally with a path prefix and with a name: `nginx=http://127.0.0.1:8080`. May be repeated; left out, the
    /// fake provider is started and measured.
    #[arg(long = "target", value_name = "[NAME=]URL")]
    targets: Vec<String>,
    /// Start the fake provider here, for gateways that are to be measured in front of it, and measure it, too, as `direct`.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_listen)]
    provider: Option<SocketAddr>,
    /// What is sent: `quick`, `sizes`, `streams`, `session`, `mix`, a YAML file, or `bodies` for one length.
    #[arg(long)]
    plan: Option<String>,
    /// How often each target has its turn.
    #[arg(long)]
    rounds: Option<u32>,
    /// Look for the highest rate that each target keeps up with, from the first to the second: `100:5000`.
    #[arg(long, value_name = "FROM:TO", value_parser = parse_ramp)]
    ramp: Option<(f64, f64)>,
    /// Rates that a ramp tries.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=100))]
    ramp_steps: u32,
    /// A target whose p99 is above this does not keep up; of streams it is the p99 until the first token.
    #[arg(long, default_value = "100ms", value_parser = parse_duration)]
    ramp_p99: Duration,
    /// The target that others are compared with; left out, the one named `direct`.
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,
    /// A target's processes, whose CPU time and memory are accounted with their children's: `nginx=PID`, `nginx=PID,PID` or
    /// `weir=cgroup:/sys/fs/cgroup/weir`. May be repeated.
    #[arg(long = "process", value_name = "NAME=PID")]
    processes: Vec<String>,
    /// Where the page with the curves goes.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// A line that stands with the results, in the table, in JSON and on the page; may be repeated.
    #[arg(long = "note", value_name = "TEXT")]
    notes: Vec<String>,
    /// Where the table goes as Markdown.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// A host other than this machine that may be loaded; may be repeated.
    #[arg(long = "i-may-load-this-host", value_name = "HOST")]
    allowed_hosts: Vec<String>,
    /// Trust these authorities, too, where a target speaks TLS: a file of certificates, PEM.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Trust any certificate.
    #[arg(long, conflicts_with = "ca")]
    insecure: bool,
    /// A connection for each request.
    #[arg(long)]
    no_keep_alive: bool,
    /// Where random choices begin; the same seed sends the same requests.
    #[arg(long)]
    seed: Option<u64>,
    /// Say nothing of how far it is.
    #[arg(long)]
    quiet: bool,
    /// `closed`, or `open` at a rate.
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Connections, all opened before the load starts.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: Option<u32>,
    /// Length of the measured phase, 10 s; in rounds what the plan says, else 2 s.
    #[arg(long, value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Load of the same kind before measuring, 2 s; in rounds what the plan says, else 500 ms.
    #[arg(long, value_parser = parse_duration)]
    warmup: Option<Duration>,
    /// Requests per second in open mode.
    #[arg(long)]
    rate: Option<f64>,
    /// Spacing in open mode.
    #[arg(long, value_enum)]
    arrivals: Option<Arrivals>,
    /// Whose requests.
    #[arg(long, value_enum)]
    dialect: Option<RequestDialect>,
    /// Length of a request body: bytes, or with KB or MB, as in `4KB`.
    #[arg(long, value_name = "BYTES", value_parser = parse_body_bytes)]
    body_bytes: Option<u32>,
    /// One measurement: different bodies prepared; without it 512, or fewer where they would be more than 64 MiB.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    bodies: Option<u32>,
    /// One measurement: send the prepared bodies as they are; otherwise each request's newest message is unique.
    #[arg(long)]
    repeat_bodies: bool,
    /// One measurement: share of a body's text that stood in earlier requests, as history: 0 is one new message. Without it, as many
    /// turns of history as the length has room for.
    #[arg(long, conflicts_with = "repeat_bodies")]
    seen_share: Option<f64>,
    /// Ask for streamed answers.
    #[arg(long)]
    stream: bool,
    /// One measurement: ask the fake provider for gzip-compressed streams; their frames are told apart by the flushes between them.
    #[arg(long, requires = "stream")]
    gzip: bool,
    /// One measurement: write the head by itself and the body behind it, as many clients do.
    #[arg(long)]
    head_first: bool,
    /// Extra request header `Name: value`; may be repeated. `{n}` in a value is the number of the prepared request or of the session, twelve
    /// hexadecimal digits: that many users, keys or tenants.
    #[arg(long = "header")]
    headers: Vec<String>,
    /// One measurement: process whose CPU time and memory are accounted; may be repeated.
    #[arg(long = "pid")]
    pids: Vec<u32>,
    /// One measurement: count every other status as a failure. Without it every 2xx is as expected.
    #[arg(long, value_parser = clap::value_parser!(u16).range(100..=599))]
    expect_status: Option<u16>,
    /// One measurement: count non-2xx answers, but do not fail because of them.
    #[arg(long, conflicts_with = "expect_status")]
    allow_non_2xx: bool,
    /// The longest silence on a connection while an answer is due: 10 s.
    #[arg(long, value_parser = parse_duration)]
    timeout: Option<Duration>,
    /// Where the JSON report goes.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What is to be done.
pub(crate) enum Work {
    /// One measurement.
    Once(Box<Settings>, Option<PathBuf>),
    /// A plan in rounds.
    Rounds(Box<TestPlan>, Wanted),
}

/// What is wanted of the results beside the table.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) json: Option<PathBuf>,
    pub(crate) html: Option<PathBuf>,
    pub(crate) markdown: Option<PathBuf>,
    pub(crate) quiet: bool,
}

/// Bytes of all prepared bodies where nobody says how many there are.
const BODIES_BYTES: u32 = 64 << 20;
/// The plans of one measurement.
const BODIES: &str = "bodies";
const SESSION: &str = "session";

impl RunArgs {
    pub(crate) fn work(self) -> Result<Work, SetupError> {
        let is_plain = matches!(self.targets.as_slice(), [only] if !only.contains('=') || only.starts_with("http"));
        let is_one_plan = matches!(self.plan.as_deref(), None | Some(BODIES | SESSION));
        let for_several = self.provider.is_some()
            || self.rounds.is_some()
            || self.ramp.is_some()
            || self.html.is_some()
            || self.markdown.is_some()
            || !self.notes.is_empty();
        if is_plain && is_one_plan && !for_several && self.processes.is_empty() && self.baseline.is_none() {
            return self.once().map(|(settings, json)| Work::Once(Box::new(settings), json));
        }
        self.refuse_what_is_for_one()?;
        self.rounds_of_a_plan()
    }

    /// Options that a plan in rounds would not heed.
    fn refuse_what_is_for_one(&self) -> Result<(), SetupError> {
        let given = [
            ("--pid", !self.pids.is_empty(), "use --process NAME=PID"),
            ("--bodies", self.bodies.is_some(), "a plan prepares as many as fit"),
            ("--repeat-bodies", self.repeat_bodies, "in a plan every request is unique"),
            ("--seen-share", self.seen_share.is_some(), "use `history:` in a plan"),
            ("--gzip", self.gzip, "leave it out"),
            ("--head-first", self.head_first, "leave it out"),
            ("--expect-status", self.expect_status.is_some(), "leave it out"),
            ("--allow-non-2xx", self.allow_non_2xx, "leave it out"),
        ];
        match given.iter().find(|(_, is_given, _)| *is_given) {
            Some((name, _, instead)) => Err(SetupError(format!(
                "{name} is for one measurement: one --target without a name, a plan or rounds; {instead}"
            ))),
            None => Ok(()),
        }
    }

    fn rounds_of_a_plan(self) -> Result<Work, SetupError> {
        let is_one = self.targets.len() == 1;
        let named = |(at, target): (usize, &String)| match target.split_once('=') {
            Some((name, url)) if !name.is_empty() && !target.starts_with("http") => (name.to_owned(), url.to_owned()),
            _ if is_one => ("target".to_owned(), target.clone()),
            _ => (format!("target {}", at + 1), target.clone()),
        };
        let processes = self.processes.iter().map(|text| process(text)).collect::<Result<Vec<_>, _>>()?;
        let ramp = self.ramp.map(|(from, to)| -> Result<Ramp, SetupError> {
            let (from, to) = (rate_within("--ramp FROM", from)?, rate_within("--ramp TO", to)?);
            match from < to {
                true => Ok(Ramp { from, to, steps: self.ramp_steps, p99_max: self.ramp_p99 }),
                false => {
                    Err(SetupError(format!("--ramp is {from}:{to}; accepted is a lower rate before a higher one")))
                }
            }
        });
        let over = Override {
            mode: self.mode,
            rate: self.rate,
            arrivals: self.arrivals,
            connections: self.connections,
            duration: self.duration,
            warmup: self.warmup,
            timeout: self.timeout,
            rounds: self.rounds,
            dialect: self.dialect,
            body_bytes: self.body_bytes,
            stream: self.stream,
            seed: self.seed,
            baseline: self.baseline,
            ramp: ramp.transpose()?,
            close: self.no_keep_alive,
            headers: self.headers.iter().map(|header| split_header(header)).collect::<Result<Vec<_>, _>>()?,
            provider: self.provider,
            trusted: Trusted { ca: self.ca, insecure: self.insecure },
            allowed_hosts: self.allowed_hosts,
            targets: self.targets.iter().enumerate().map(named).collect(),
            processes,
            command: command(std::env::args()),
            notes: self.notes,
        };
        let name = self.plan.as_deref().unwrap_or("quick");
        if name == BODIES {
            return Err(SetupError(format!(
                "--plan {BODIES} is for one measurement: one --target without a name, a page or rounds; for several use --plan quick, or a YAML file with `body:` (`weir-loadtest plan quick` prints one to begin with)"
            )));
        }
        let plan = plan::load(name, over)?;
        let wanted = Wanted { json: self.json, html: self.html, markdown: self.markdown, quiet: self.quiet };
        Ok(Work::Rounds(Box::new(plan), wanted))
    }

    fn once(self) -> Result<(Settings, Option<PathBuf>), SetupError> {
        let target = self.targets.first().cloned().unwrap_or_default();
        let place = hosts::place("--target", &target, &self.allowed_hosts)?;
        let trusted = Trusted { ca: self.ca, insecure: self.insecure };
        let tls = place.secure_name.map(|name| Ok((trusted.config()?, name))).transpose()?;
        // A rate says which mode is meant.
        let mode = self.mode.unwrap_or(if self.rate.is_some() { Mode::Open } else { Mode::Closed });
        let rate_per_s = match (mode, self.rate) {
            (Mode::Closed, None) => 0.0,
            (Mode::Closed, Some(rate)) => {
                return Err(SetupError(format!(
                    "--rate {rate} has no meaning in a closed loop; leave out --mode closed"
                )));
            }
            (Mode::Open, Some(rate)) => rate_within("--rate", rate)?,
            (Mode::Open, None) => return Err(SetupError("--mode open needs --rate, requests per second".to_owned())),
        };
        if let Some(share) = self.seen_share.filter(|share| !(0.0..=0.95).contains(share)) {
            return Err(SetupError(format!("--seen-share is {share}; accepted are 0 to 0.95")));
        }
        let mut headers = self.headers.iter().map(|header| split_header(header)).collect::<Result<Vec<_>, _>>()?;
        if self.gzip {
            headers.push(("x-fake-encoding".to_owned(), "gzip".to_owned()));
        }
        let (second, millisecond) = (Duration::from_secs(1), Duration::from_millis(1));
        let body_bytes = self.body_bytes.unwrap_or(1000);
        let settings = Settings {
            addr: place.addr,
            target,
            authority: place.authority,
            path_prefix: place.path_prefix,
            mode,
            connections: self.connections.unwrap_or(64) as usize,
            duration: duration_within("--duration", self.duration.unwrap_or(10 * second), millisecond)?,
            warmup: duration_within("--warmup", self.warmup.unwrap_or(2 * second), Duration::ZERO)?,
            rate_per_s,
            arrivals: self.arrivals.unwrap_or(Arrivals::Constant),
            dialect: self.dialect.unwrap_or(RequestDialect::Chat),
            body_bytes: body_bytes as usize,
            plan: if self.plan.as_deref() == Some(SESSION) { Plan::Session } else { Plan::Bodies },
            bodies: self.bodies.unwrap_or_else(|| (BODIES_BYTES / body_bytes).clamp(16, 512)) as usize,
            unique: !self.repeat_bodies,
            seen_share: self.seen_share,
            stream: self.stream,
            gzip: self.gzip,
            head_first: self.head_first,
            headers,
            pids: self.pids,
            expect_status: self.expect_status,
            allow_non_2xx: self.allow_non_2xx,
            timeout: duration_within("--timeout", self.timeout.unwrap_or(10 * second), millisecond)?,
            tools: false,
            image: false,
            keep_alive: !self.no_keep_alive,
            recorded: Rc::from(Vec::new()),
            mix: Vec::new(),
            tls,
            seed: self.seed.unwrap_or(0),
            sends_first: true,
        };
        Ok((settings, self.json))
    }
}

/// How the program was called, without what may be secret: the values of header fields.
fn command(args: impl Iterator<Item = String>) -> String {
    let mut shown = vec!["weir-loadtest".to_owned()];
    let mut is_header = false;
    for arg in args.skip(1) {
        let (option, value) =
            arg.split_once('=').filter(|(option, _)| *option == "--header").unwrap_or(("", arg.as_str()));
        let hidden = match (is_header || option == "--header", value.split_once(':')) {
            (true, Some((name, _))) => format!("{name}: ..."),
            (true, None) => "...".to_owned(),
            (false, _) => value.to_owned(),
        };
        is_header = arg == "--header";
        let plain = hidden.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_./:=,%@{}+".contains(letter));
        let quoted = if plain { hidden } else { format!("'{}'", hidden.replace('\'', "'\\''")) };
        shown.push(if option.is_empty() { quoted } else { format!("{option}={quoted}") });
    }
    shown.join(" ")
}

fn parse_body_bytes(text: &str) -> Result<u32, String> {
    parse_bytes_within(text, 256, 64 << 20)
}

fn process(text: &str) -> Result<(String, Subjects), SetupError> {
    let (name, subjects) = text.split_once('=').ok_or_else(|| {
        SetupError(format!(
            "--process is `{text}`; accepted is NAME=PID, NAME=PID,PID or NAME=cgroup:FOLDER, with a target's name"
        ))
    })?;
    Ok((name.to_owned(), plan::subjects("--process", subjects)?))
}

fn parse_ramp(text: &str) -> Result<(f64, f64), String> {
    let (from, to) = text.split_once(':').ok_or("accepted is FROM:TO in requests per second, as in 100:5000")?;
    let number =
        |text: &str| text.parse::<f64>().map_err(|_| "accepted is FROM:TO in requests per second, as in 100:5000");
    Ok((number(from)?, number(to)?))
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

#[cfg(test)]
mod tests;
