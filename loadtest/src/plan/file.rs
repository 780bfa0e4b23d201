//! A plan as it is written: every field may be left out.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

use super::units::{parse_bytes, parse_duration};
use crate::settings::{Arrivals, Mode, RequestDialect};

/// A plan.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct PlanFile {
    pub(super) load: LoadFile,
    pub(super) rounds: Option<u32>,
    pub(super) duration: Option<Length>,
    pub(super) warmup: Option<Length>,
    pub(super) timeout: Option<Length>,
    pub(super) seed: Option<u64>,
    pub(super) keep_alive: Option<bool>,
    pub(super) baseline: Option<String>,
    pub(super) headers: std::collections::BTreeMap<String, String>,
    pub(super) provider: ProviderFile,
    pub(super) targets: Vec<TargetFile>,
    pub(super) workloads: Vec<WorkloadFile>,
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LoadFile {
    pub(super) mode: Option<Mode>,
    pub(super) rate: Option<f64>,
    pub(super) arrivals: Option<Arrivals>,
    pub(super) connections: Option<u32>,
}

/// What the fake provider does, where the run starts it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ProviderFile {
    pub(super) listen: Option<SocketAddr>,
    pub(super) answer_bytes: Option<u32>,
    pub(super) frames: Option<u32>,
    pub(super) frame_ms: Option<u32>,
    pub(super) delay_ms: Option<u32>,
    pub(super) cores: Option<u16>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TargetFile {
    pub(super) name: String,
    pub(super) url: String,
    /// Process ids, with commas between them, or `cgroup:FOLDER`.
    #[serde(default)]
    pub(super) process: Option<String>,
}

/// A workload, or one kind of a mix.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct WorkloadFile {
    pub(super) name: Option<String>,
    pub(super) load: LoadFile,
    pub(super) weight: Option<u32>,
    pub(super) mix: Vec<WorkloadFile>,
    pub(super) session: bool,
    pub(super) recorded: Option<String>,
    pub(super) dialect: Option<RequestDialect>,
    pub(super) body: Option<Size>,
    pub(super) stream: bool,
    pub(super) tools: bool,
    pub(super) image: bool,
    pub(super) history: Option<f64>,
}

/// A time as it is written: `2s`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Length(pub(super) Duration);

/// A length in bytes as it is written: `300`, or `4 KB`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size(pub(super) u64);

#[derive(Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(u64),
    Text(String),
}

impl<'de> Deserialize<'de> for Length {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let refuse = |accepted| serde::de::Error::custom(format!("it is `{text}`; {accepted}"));
        parse_duration(&text).map(Self).map_err(refuse)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match NumberOrText::deserialize(from) {
            Ok(NumberOrText::Number(bytes)) => Ok(Self(bytes)),
            Ok(NumberOrText::Text(text)) => {
                let refuse = |accepted| serde::de::Error::custom(format!("it is `{text}`; {accepted}"));
                parse_bytes(&text).map(Self).map_err(refuse)
            }
            Err(_) => Err(serde::de::Error::custom("accepted is a number of bytes, or one with KB or MB, as in 4 KB")),
        }
    }
}
