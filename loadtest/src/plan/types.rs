//! A plan that can be run.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;

use crate::hosts::Place;
use crate::process::Subjects;
use crate::settings::{Arrivals, Mode, Plan, RecordedCall, RequestDialect, Settings};
use crate::trust::Trusted;

/// What the fake provider does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProviderShape {
    /// Where the run starts it though targets are named.
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) answer_bytes: u32,
    pub(crate) frames: u32,
    pub(crate) frame_ms: u32,
    pub(crate) delay_ms: u32,
    pub(crate) cores: u16,
}

/// A system under load.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) url: String,
    pub(crate) place: Place,
    /// Its processes and control groups, if they are accounted.
    pub(crate) subjects: Subjects,
}

/// When requests are sent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Load {
    pub(crate) mode: Mode,
    pub(crate) rate_per_s: f64,
    pub(crate) arrivals: Arrivals,
    pub(crate) connections: usize,
}

/// One kind of requests.
#[derive(Debug, Clone)]
pub(crate) struct Kind {
    pub(crate) name: String,
    pub(crate) plan: Plan,
    pub(crate) dialect: RequestDialect,
    pub(crate) body_bytes: usize,
    pub(crate) stream: bool,
    pub(crate) tools: bool,
    pub(crate) image: bool,
    /// Share of the text that stood in earlier requests.
    pub(crate) history: Option<f64>,
    pub(crate) recorded: Rc<[RecordedCall]>,
}

/// Requests that are measured together.
#[derive(Debug, Clone)]
pub(crate) struct Workload {
    pub(crate) name: String,
    /// With their weights; at least one.
    pub(crate) kinds: Vec<(u32, Kind)>,
    pub(crate) load: Load,
}

/// Rates to try, from the first to the last in equal ratios.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ramp {
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) steps: u32,
    /// A target whose p99 is above this does not keep up.
    pub(crate) p99_max: Duration,
}

/// A whole plan.
#[derive(Debug, Clone)]
pub(crate) struct TestPlan {
    pub(crate) name: String,
    /// None where only the fake provider is measured.
    pub(crate) targets: Vec<Target>,
    pub(crate) workloads: Vec<Workload>,
    pub(crate) rounds: u32,
    pub(crate) duration: Duration,
    pub(crate) warmup: Duration,
    pub(crate) timeout: Duration,
    /// The target that the others are compared with.
    pub(crate) baseline: Option<String>,
    pub(crate) provider: ProviderShape,
    pub(crate) ramp: Option<Ramp>,
    pub(crate) seed: u64,
    pub(crate) keep_alive: bool,
    pub(crate) headers: Vec<(String, String)>,
    /// What makes targets with TLS trusted; there where one speaks it.
    pub(crate) trusted: Option<Arc<ClientConfig>>,
    /// The plan as it was written, without the values of its headers.
    pub(crate) text: String,
    /// How the program was called, without the values of headers.
    pub(crate) command: String,
    /// What the caller has to say of the run.
    pub(crate) notes: Vec<String>,
}

/// Times that a ramp looks between the last rate that was kept up and the first that was not.
pub(crate) const RAMP_HALVINGS: u32 = 2;

/// What the command line says on top of a plan.
#[derive(Debug, Default)]
pub(crate) struct Override {
    pub(crate) mode: Option<Mode>,
    pub(crate) rate: Option<f64>,
    pub(crate) arrivals: Option<Arrivals>,
    pub(crate) connections: Option<u32>,
    pub(crate) duration: Option<Duration>,
    pub(crate) warmup: Option<Duration>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) rounds: Option<u32>,
    pub(crate) dialect: Option<RequestDialect>,
    pub(crate) body_bytes: Option<u32>,
    pub(crate) stream: bool,
    pub(crate) seed: Option<u64>,
    pub(crate) baseline: Option<String>,
    pub(crate) ramp: Option<Ramp>,
    pub(crate) close: bool,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) provider: Option<SocketAddr>,
    pub(crate) trusted: Trusted,
    pub(crate) allowed_hosts: Vec<String>,
    /// Targets in place of the plan's: name and URL.
    pub(crate) targets: Vec<(String, String)>,
    pub(crate) processes: Vec<(String, Subjects)>,
    pub(crate) command: String,
    pub(crate) notes: Vec<String>,
}

/// Bytes of all prepared bodies of one kind: targets and workloads have their own.
const BODIES_BYTES: usize = 8 << 20;

impl TestPlan {
    /// The settings that measure this workload on this target.
    pub(crate) fn settings(&self, target: &Target, workload: &Workload) -> Settings {
        let part = |kind: &Kind| Settings {
            addr: target.place.addr,
            target: target.url.clone(),
            authority: target.place.authority.clone(),
            path_prefix: target.place.path_prefix.clone(),
            mode: workload.load.mode,
            connections: workload.load.connections,
            duration: self.duration,
            warmup: self.warmup,
            rate_per_s: workload.load.rate_per_s,
            arrivals: workload.load.arrivals,
            dialect: kind.dialect,
            body_bytes: kind.body_bytes,
            plan: kind.plan,
            bodies: (BODIES_BYTES / kind.body_bytes.max(1)).clamp(8, 256),
            unique: true,
            seen_share: kind.history,
            stream: kind.stream,
            gzip: false,
            head_first: false,
            headers: self.headers.clone(),
            pids: Vec::new(),
            expect_status: None,
            allow_non_2xx: false,
            timeout: self.timeout,
            tools: kind.tools,
            image: kind.image,
            keep_alive: self.keep_alive,
            recorded: Rc::clone(&kind.recorded),
            mix: Vec::new(),
            tls: self.trusted.clone().zip(target.place.secure_name.clone()),
            seed: self.seed,
            sends_first: false,
        };
        match workload.kinds.as_slice() {
            [(_, only)] => part(only),
            several => {
                let mix = several.iter().map(|(weight, kind)| (*weight, Rc::new(part(kind)))).collect();
                let first = several.first().map(|(_, kind)| part(kind));
                // A workload has at least one kind; without any there is nothing to send.
                first.map_or_else(|| unreachable!("a workload without requests"), |first| Settings { mix, ..first })
            }
        }
    }

    /// Whether the run starts the fake provider, which is a target then, too.
    pub(crate) fn starts_provider(&self) -> bool {
        self.targets.is_empty() || self.provider.listen.is_some()
    }

    /// How long the whole run takes at least.
    pub(crate) fn length(&self) -> Duration {
        let steps = match self.ramp {
            // The first rate that is too much is tried twice, and so is each of those between.
            Some(ramp) => ramp.steps + 1 + 2 * RAMP_HALVINGS,
            None => self.rounds,
        };
        (self.duration + self.warmup)
            * steps
            * (self.workloads.len() * (self.targets.len() + usize::from(self.starts_provider()))) as u32
    }
}

impl ProviderShape {
    /// What it answers, in words.
    pub(crate) fn in_words(&self) -> String {
        let Self { answer_bytes, frames, frame_ms, delay_ms, cores, .. } = self;
        format!(
            "answers of {answer_bytes} bytes, streams of {frames} frames {frame_ms} ms apart, {delay_ms} ms before each, {cores} cores"
        )
    }
}

impl Workload {
    /// What it sends, in words: two workloads that say the same send the same.
    pub(crate) fn in_words(&self) -> String {
        let kind = |(weight, kind): &(u32, Kind)| {
            let what = match kind.plan {
                Plan::Bodies => format!("{} bytes", kind.body_bytes),
                Plan::Session => "sessions".to_owned(),
                Plan::Recorded => format!("{} recorded requests", kind.recorded.len()),
            };
            let words = [(kind.stream, "streamed"), (kind.tools, "with tools"), (kind.image, "with a picture")];
            let words: String = words.iter().filter(|(is, _)| *is).map(|(_, word)| format!(", {word}")).collect();
            let history = kind.history.map_or(String::new(), |share| format!(", history {share}"));
            let times = if self.kinds.len() > 1 { format!("{weight} times ") } else { String::new() };
            format!("{times}{what}, {}{words}{history}", kind.dialect.name())
        };
        self.kinds.iter().map(kind).collect::<Vec<_>>().join("; ")
    }
}
