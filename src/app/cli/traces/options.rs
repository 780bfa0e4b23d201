//! What can be asked of `weir traces`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use weir_config::vocab::{SpanId, TenantId, Timestamp, TraceId};
use weir_storage::RecordReader;
use weir_storage::query::{Facets, SpanFilter, TraceFilter};

use super::TracesError;

/// The commands.
#[derive(Debug, Clone, Subcommand)]
pub(in crate::app::cli) enum TracesCommand {
    /// The newest traces, a line each: time, id, model, status, tokens, cost, score.
    List {
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        filter: Filter,
        /// At most so many.
        #[arg(long, short = 'n', value_name = "COUNT", default_value = "20", value_parser = clap::value_parser!(u32).range(1..=1000))]
        limit: u32,
        /// One JSON object per line, as the API shows it.
        #[arg(long)]
        json: bool,
    },
    /// One trace as a conversation: who said what, tool calls and results, findings where they are.
    Show {
        #[command(flatten)]
        of: Of,
        /// The trace's id (`X-Service-Trace-Id` of the answer), or that of one of its spans: a UUID, or the 16 digits that
        /// OpenTelemetry has of a span.
        #[arg(value_name = "ID")]
        id: Wanted,
        /// The trace as JSON, as the API shows it.
        #[arg(long)]
        json: bool,
        /// Lines are no longer than this; left out, as wide as the terminal, and as they are where there is none.
        #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(20..))]
        width: Option<u16>,
    },
    /// Calls as they end, a line each, until interrupted.
    Tail {
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        filter: Filter,
        /// One JSON object per line, as the API shows spans.
        #[arg(long)]
        json: bool,
    },
    /// All traces that match, newest first, as JSON Lines; of several tenants, one tenant after the other.
    Export(ExportOptions),
}

/// What `weir export` and `weir traces export` write.
#[derive(Debug, Clone, Args)]
pub(in crate::app::cli) struct ExportOptions {
    #[command(flatten)]
    pub(super) of: Of,
    #[command(flatten)]
    pub(super) filter: Filter,
    /// Spans instead of traces.
    #[arg(long)]
    pub(super) spans: bool,
    /// With the conversation of each span.
    #[arg(long)]
    pub(super) messages: bool,
    /// Without the texts of requests and answers.
    #[arg(long, conflicts_with = "messages")]
    pub(super) no_texts: bool,
    /// A table of what is counted of each call, without texts, instead of JSON Lines.
    #[arg(long, conflicts_with_all = ["messages", "spans", "no_texts"])]
    pub(super) csv: bool,
    /// Where to, instead of standard output: the file is there when it is whole.
    #[arg(long, short, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,
}

/// Whose records, and where they are.
#[derive(Debug, Clone, Args)]
pub(in crate::app::cli) struct Of {
    /// The database file, in place of `storage.database_path`.
    #[arg(long, value_name = "FILE")]
    pub(super) database: Option<PathBuf>,
    /// Whose records: a tenant's name or id, or `all`, as where it is left out.
    #[arg(long, value_name = "NAME|ID")]
    tenant: Option<Whose>,
}

/// The trace that is to be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::app::cli) enum Wanted {
    /// Of this id, or with a span of this id.
    Id(TraceId),
    /// With the span that other systems know by these bytes.
    OfSpan([u8; 8]),
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let of_span = || text.parse::<SpanId>().ok()?.as_w3c().map(Self::OfSpan);
        text.parse().map(Self::Id).ok().or_else(of_span).ok_or_else(|| {
            "the id of a trace or a span: a UUID such as 6f1c2b1e-0d5a-4c6f-9e7b-0d9a4c3b2a10, or 16 hexadecimal digits".to_owned()
        })
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(f, "{id}"),
            Self::OfSpan(bytes) => write!(f, "{:016x}", u64::from_be_bytes(*bytes)),
        }
    }
}

/// One tenant, or all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Whose {
    One(TenantId),
    /// The one with this name.
    Named(String),
    All,
}

impl FromStr for Whose {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "all" => Ok(Self::All),
            "" => Err("the name or the id of a tenant, or `all`".to_owned()),
            text => Ok(text.parse().map_or_else(|_| Self::Named(text.to_owned()), Self::One)),
        }
    }
}

impl Of {
    /// Whose records; all unless one tenant is named.
    pub(super) fn whose(&self) -> &Whose {
        self.tenant.as_ref().unwrap_or(&Whose::All)
    }

    /// The tenants that are meant, with their names.
    pub(in crate::app::cli) fn tenants(&self, record: &RecordReader) -> Result<Vec<(TenantId, String)>, TracesError> {
        let mut all = record.tenants()?;
        match self.whose() {
            Whose::All => {}
            Whose::One(tenant) => {
                all.retain(|(id, _)| id == tenant);
                if all.is_empty() {
                    all.push((*tenant, tenant.to_string()));
                }
            }
            Whose::Named(name) => {
                let (named, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, its)| its == name);
                if named.is_empty() {
                    let mut names: Vec<String> = others.into_iter().map(|(_, name)| name).collect();
                    names.sort_unstable();
                    return Err(TracesError::NoTenant { name: name.clone(), names });
                }
                all = named;
            }
        }
        Ok(all)
    }
}

/// Which ones. All but the times are about a trace's first span.
#[derive(Debug, Clone, Default, Args)]
pub(in crate::app::cli) struct Filter {
    /// Begun at this time or later: RFC 3339, or so long ago as `90s`, `15m`, `2h` or `7d`.
    #[arg(long, value_name = "TIME")]
    since: Option<Moment>,
    /// Begun at this time or earlier.
    #[arg(long, value_name = "TIME")]
    until: Option<Moment>,
    /// Exact model.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Exact provider.
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    /// Exact agent.
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Exact session.
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Exact client, e.g. `claude-cli`.
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// Status of the answer, e.g. `429`, or a class, e.g. `5xx`.
    #[arg(long, value_name = "STATUS")]
    status: Option<Statuses>,
    /// With a finding of exactly this type.
    #[arg(long, value_name = "TYPE")]
    finding: Option<String>,
}

/// A moment, or so long before now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Moment(Timestamp);

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(moment) = text.parse() {
            return Ok(Self(moment));
        }
        let refused =
            || "an RFC 3339 time such as 2026-01-31T12:00:00Z, or a time before now: 90s, 15m, 2h, 7d".to_owned();
        let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(refused)?;
        let seconds = match unit {
            "s" => 1,
            "m" => 60,
            "h" => 3_600,
            "d" => 86_400,
            _ => return Err(refused()),
        };
        let number: i64 = number.parse().ok().filter(|number| (0..=1_000_000).contains(number)).ok_or_else(refused)?;
        Ok(Self(Timestamp::from_micros(Timestamp::now().micros() - number * seconds * 1_000_000)))
    }
}

/// The lowest and the highest status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Statuses(u16, u16);

impl FromStr for Statuses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let class =
            text.strip_suffix("xx").and_then(|class| class.parse().ok()).filter(|class| (1..=5u16).contains(class));
        let one = text.parse().ok().filter(|status| (100..=599u16).contains(status));
        match (class, one) {
            (Some(class), _) => Ok(Self(class * 100, class * 100 + 99)),
            (_, Some(status)) => Ok(Self(status, status)),
            _ => Err("a status from 100 to 599, or a class: 1xx to 5xx".to_owned()),
        }
    }
}

impl Filter {
    fn facets(&self) -> Facets {
        Facets {
            status: self.status.map(|Statuses(min, max)| (min, max)),
            agent_id: self.agent.clone(),
            session_id: self.session.clone(),
            client: self.client.clone(),
            finding_type: self.finding.clone(),
            ..Facets::default()
        }
    }

    /// For a list of traces.
    pub(super) fn traces(&self) -> TraceFilter {
        TraceFilter {
            start_time: self.since.map(|moment| moment.0),
            end_time: self.until.map(|moment| moment.0),
            provider: self.provider.clone(),
            model: self.model.clone(),
            facets: self.facets(),
        }
    }

    /// For a list of spans.
    pub(in crate::app::cli) fn spans(&self) -> SpanFilter {
        let TraceFilter { start_time, end_time, provider, model, facets } = self.traces();
        SpanFilter { start_time, end_time, provider, model, facets, ..SpanFilter::default() }
    }

    /// Whether a span is one of them.
    pub(super) fn fits(&self, span: &weir_storage::record::SpanRecord) -> bool {
        let exact = |asked: &Option<String>, said: Option<&str>| asked.is_none() || asked.as_deref() == said;
        let found = |kind: &String| span.security_findings.iter().any(|finding| finding.finding_type == kind.as_str());
        exact(&self.model, span.model.as_deref())
            && exact(&self.provider, Some(&span.provider))
            && exact(&self.agent, span.agent_id.as_deref())
            && exact(&self.session, span.session_id.as_deref())
            && exact(&self.client, span.client.as_deref())
            && self.finding.as_ref().is_none_or(found)
            && self.since.is_none_or(|moment| span.start_time >= moment.0)
            && self.until.is_none_or(|moment| span.start_time <= moment.0)
            && self
                .status
                .is_none_or(|Statuses(min, max)| span.status_code.is_some_and(|code| (min..=max).contains(&code)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_statuses_are_read_or_refused() {
        let at: Moment = "2026-01-31T12:00:00Z".parse().unwrap();
        assert_eq!(at.0.to_string(), "2026-01-31T12:00:00.000000Z");
        let ago = |text: &str| {
            let then: Moment = text.parse().unwrap();
            (Timestamp::now().micros() - then.0.micros()) / 1_000_000
        };
        assert_eq!(["90s", "15m", "2h", "7d"].map(ago), [90, 900, 7_200, 604_800]);
        for wrong in ["", "h", "-1h", "2w", "1.5h", "yesterday", "é"] {
            assert!(wrong.parse::<Moment>().is_err(), "{wrong}");
        }
        assert_eq!("5xx".parse(), Ok(Statuses(500, 599)));
        assert_eq!("404".parse(), Ok(Statuses(404, 404)));
        for wrong in ["", "xx", "6xx", "99", "600", "0xx"] {
            assert!(wrong.parse::<Statuses>().is_err(), "{wrong}");
        }
    }
}
