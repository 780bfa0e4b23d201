//! A plan as it is written: every field may be left out.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

use super::units::{parse_bytes, parse_duration, parse_listen, parse_share};
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
    pub(super) connections: Option<Count>,
}

/// What the fake provider does, where the run starts it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ProviderFile {
    pub(super) listen: Option<Place>,
    pub(super) answer_bytes: Option<Size>,
    pub(super) frames: Option<Count>,
    pub(super) frame_ms: Option<Millis>,
    pub(super) delay_ms: Option<Millis>,
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
    pub(super) weight: Option<Count>,
    pub(super) mix: Vec<WorkloadFile>,
    pub(super) session: bool,
    pub(super) recorded: Option<String>,
    pub(super) dialect: Option<RequestDialect>,
    pub(super) body: Option<Size>,
    pub(super) stream: bool,
    pub(super) tools: bool,
    pub(super) image: bool,
    pub(super) history: Option<Share>,
}

/// A time as it is written: `2s`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Length(pub(super) Duration);

/// A length in bytes as it is written: `300`, or `4 KB`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size(pub(super) u64);

/// A whole number.
#[derive(Debug, Clone, Copy)]
pub(super) struct Count(pub(super) u64);

/// A number of milliseconds: `500`, or with its unit as in `500ms`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Millis(pub(super) u64);

/// A share: `0.8` or `80%`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share(pub(super) f64);

/// Where to listen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place(pub(super) SocketAddr);

/// Reads whatever was written, as text, so that what is accepted can be said in the plan's words.
fn read<'de, D: Deserializer<'de>, T>(from: D, parse: impl Fn(&str) -> Result<T, String>) -> Result<T, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Whole(i64),
        Number(f64),
        Text(String),
    }
    let text = match Written::deserialize(from) {
        Ok(Written::Whole(number)) => number.to_string(),
        Ok(Written::Number(number)) => number.to_string(),
        Ok(Written::Text(text)) => text,
        Err(_) => return Err(serde::de::Error::custom(parse("").err().unwrap_or_default())),
    };
    parse(&text).map_err(|accepted| serde::de::Error::custom(format!("it is `{text}`; {accepted}")))
}

fn parse_millis(text: &str) -> Result<u64, String> {
    let found = text.parse().ok().or_else(|| u64::try_from(parse_duration(text).ok()?.as_millis()).ok());
    found.ok_or_else(|| "accepted is a number of milliseconds, as in 500 or 500ms".to_owned())
}

fn parse_share_or_more(text: &str) -> Result<f64, String> {
    // A number beyond is within nobody's bounds either; there the field says its own.
    text.parse().or_else(|_| parse_share(text))
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read(from, |text| text.parse().map(Self).map_err(|_| "accepted is a whole number".to_owned()))
    }
}

impl<'de> Deserialize<'de> for Millis {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read(from, parse_millis).map(Self)
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read(from, parse_share_or_more).map(Self)
    }
}

impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        read(from, parse_listen).map(Self)
    }
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
        read(from, parse_bytes).map(Self)
    }
}
