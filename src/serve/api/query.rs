//! Query parameters: typed, bounded, and none tolerated that nobody knows.
//!
//! A misspelt filter that is silently ignored shows data the caller did not ask for, so an unknown or repeated parameter
//! is 400 and the message lists the accepted ones. Invariant: every value is checked here; handlers see typed filters.
//! Knows no routes, and of the store its filters only.

use std::str::FromStr;

use axum::extract::Query;
use http::Uri;
use weir_config::vocab::Timestamp;
use weir_storage::query::{Facets, Page, SpanFilter, TraceFilter};
use weir_storage::usage::{CacheMiss, SessionFilter};

use super::error::ErrorAnswer;

/// `limit` when none is given.
pub(super) const LIMIT_DEFAULT: u32 = 50;
/// Larger limits are clamped to this.
pub(super) const LIMIT_MAX: u32 = 1_000;

/// A query parameter a route accepts.
#[derive(Debug)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// What it does, for the document.
    pub(super) says: &'static str,
}

/// What a parameter's value may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// An RFC 3339 time.
    Time,
    /// A text that is not empty.
    Text,
    /// 0 to 100.
    Score,
    /// A UUID.
    Id,
    /// `true` or `false`.
    Flag,
    /// A status, or a class of them such as `5xx`.
    Status,
    /// An amount of USD.
    Usd,
    /// A number of milliseconds.
    Millis,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Names of fields, separated by commas.
    Fields,
    /// A place in the list that a page before has given.
    Cursor,
    /// Items of a page.
    Limit,
    /// Items to skip.
    Offset,
}

const fn parameter(name: &'static str, kind: Kind, says: &'static str) -> Parameter {
    Parameter { name, kind, says }
}

const MODEL: Parameter = parameter("model", Kind::Text, "Exact model name.");
const OPERATION: Parameter = parameter(
    "operation_name",
    Kind::Text,
    "Exact operation, e.g. `chat_completion`, `responses`, `messages`, `generate_content`.",
);
const SCORE_MIN: Parameter = parameter("security_score_min", Kind::Score, "Lowest score, inclusive.");
const SCORE_MAX: Parameter = parameter("security_score_max", Kind::Score, "Highest score, inclusive.");
const LIMIT: Parameter = parameter(
    "limit",
    Kind::Limit,
    "Items of the page; more than 1000 means 1000. Left out, 50, or as many as 64 MiB hold where that is less: the answer's \
     `limit` says how many.",
);
const OFFSET: Parameter = parameter("offset", Kind::Offset, "Items to skip.");

const CURSOR: Parameter = parameter(
    "cursor",
    Kind::Cursor,
    "`next_cursor` of the page before, in place of `offset`; the filters stay the same.",
);
const TEXTS: Parameter = parameter(
    "texts",
    Kind::Flag,
    "`false` leaves the texts of requests and answers out: `prompt` and `response` are null.",
);
const FIELDS: Parameter = parameter(
    "fields",
    Kind::Fields,
    "Only these fields of each item, separated by commas; those of a trace's spans as `spans.<field>`. `messages`, the \
     conversation of a span, is in a list only where it is named here, and `request`, the body as it was sent, nowhere else.",
);
/// How a list of records may come.
pub(super) const FORMATS: &[&str] = &["json", "jsonl"];
const FORMAT: Parameter = parameter(
    "format",
    Kind::Word(FORMATS),
    "`jsonl` gives the whole list, one item per line in the list's order, read and sent piece by piece; `limit` and `offset` do not \
     go with it. An answer that breaks off ends without the end its framing announces. On the profile `production`, \
     `X-Service-Unshipped-Spans` says how many of the tenant's spans wait in this gateway's journal and are not in it. Left out, \
     `json`: a page.",
);
const STATUS: Parameter =
    parameter("status", Kind::Status, "Status of the answer, e.g. `429`, or a class, e.g. `5xx`.");
const ERROR_TYPE: Parameter = parameter("error_type", Kind::Text, "Exact error type, e.g. `upstream_timeout`.");
const AGENT: Parameter = parameter("agent_id", Kind::Text, "Exact agent.");
const SESSION: Parameter = parameter("session_id", Kind::Text, "Exact session.");
const CLIENT: Parameter = parameter("client", Kind::Text, "Exact client, e.g. `claude-cli`.");
const FINDING_TYPE: Parameter = parameter("finding_type", Kind::Text, "A finding of this type is among the span's.");
const COST_MIN: Parameter =
    parameter("cost_min_usd", Kind::Usd, "Lowest cost, inclusive; calls without a price match none.");
const COST_MAX: Parameter = parameter("cost_max_usd", Kind::Usd, "Highest cost, inclusive.");
const DURATION_MIN: Parameter = parameter("duration_min_ms", Kind::Millis, "Shortest duration, inclusive.");
const DURATION_MAX: Parameter = parameter("duration_max_ms", Kind::Millis, "Longest duration, inclusive.");
const STREAMING: Parameter =
    parameter("streaming", Kind::Flag, "Whether the answer was, or was asked to be, a stream.");
const UPSTREAM: Parameter =
    parameter("upstream", Kind::Text, "Exact name of the upstream the call went to, where there are `upstreams`.");
const PROVIDER: Parameter = parameter("provider", Kind::Text, "Exact provider, e.g. `openai`.");

/// Of the judge's verdicts.
pub(super) const VERDICTS: &[Parameter] = &[
    parameter("trace_id", Kind::Id, "The trace the verdicts are about; has to be there."),
    parameter("tenant_id", Kind::Id, "Whose trace; left out, the default tenant's."),
    FORMAT,
];

/// Of lists that are one piece and have no filters.
pub(super) const WHOLE: &[Parameter] = &[FORMAT];

/// Of one record.
pub(super) const ONE: &[Parameter] = &[FIELDS];

/// Of the trace list. All filters but the times are about the trace's first span.
pub(super) const TRACES: &[Parameter] = &[
    parameter("start_time", Kind::Time, "Traces created at this time or later."),
    parameter("end_time", Kind::Time, "Traces created at this time or earlier."),
    PROVIDER,
    MODEL,
    STATUS,
    ERROR_TYPE,
    AGENT,
    SESSION,
    CLIENT,
    FINDING_TYPE,
    COST_MIN,
    COST_MAX,
    DURATION_MIN,
    DURATION_MAX,
    STREAMING,
    UPSTREAM,
    FIELDS,
    FORMAT,
    TEXTS,
    LIMIT,
    OFFSET,
    CURSOR,
];
/// Of the span list.
pub(super) const SPANS: &[Parameter] = &[
    parameter("start_time", Kind::Time, "Spans that began at this time or later."),
    parameter("end_time", Kind::Time, "Spans that began at this time or earlier."),
    SCORE_MIN,
    SCORE_MAX,
    OPERATION,
    PROVIDER,
    MODEL,
    STATUS,
    ERROR_TYPE,
    AGENT,
    SESSION,
    CLIENT,
    FINDING_TYPE,
    COST_MIN,
    COST_MAX,
    DURATION_MIN,
    DURATION_MAX,
    STREAMING,
    UPSTREAM,
    FIELDS,
    FORMAT,
    TEXTS,
    LIMIT,
    OFFSET,
    CURSOR,
];
/// Of the list of spans with findings.
pub(super) const FINDINGS: &[Parameter] = &[FIELDS, FORMAT, TEXTS, LIMIT, OFFSET, CURSOR];
/// Of the list of sessions.
pub(super) const SESSIONS: &[Parameter] = &[
    parameter("start_time", Kind::Time, "Sessions with a call at this time or later."),
    parameter("end_time", Kind::Time, "Sessions with a call at this time or earlier."),
    AGENT,
    CLIENT,
    parameter(
        "prompt_cache",
        Kind::Word(CACHE_MISSES),
        "Sessions with a call whose prompt parted from the one before (`broken`), or of whose prompt the provider read nothing from its \
         cache although it could have (`unused`).",
    ),
    FORMAT,
    LIMIT,
    OFFSET,
    CURSOR,
];
/// What may be wrong with the prompts of a session.
pub(super) const CACHE_MISSES: &[&str] = &["broken", "unused"];
/// What a series may be split by.
pub(super) const SPLITS: &[&str] = &["tenant", "agent", "model", "session", "client"];
/// The buckets of a series.
pub(super) const BUCKETS: &[&str] = &["hour", "day"];
/// Of the series of costs.
pub(super) const SERIES: &[Parameter] = &[
    parameter(
        "start_time",
        Kind::Time,
        "Begins with the bucket of this moment; left out, a day (hours) or 30 days (days) before the end.",
    ),
    parameter("end_time", Kind::Time, "Ends before this moment; left out, now."),
    parameter("bucket", Kind::Word(BUCKETS), "Length of a bucket, in UTC; left out, `hour`."),
    parameter("group_by", Kind::Word(SPLITS), "What each bucket is split by; left out, `tenant`: not at all."),
    AGENT,
    SESSION,
    MODEL,
    FORMAT,
];
/// Of the summary of actions.
pub(super) const ACTIONS: &[Parameter] = &[SCORE_MIN, SCORE_MAX, OPERATION, MODEL];
/// `state` of an alert.
pub(super) const ALERT_STATES: &[&str] = &["open", "acknowledged", "resolved"];
/// `severity` of an alert.
pub(super) const SEVERITIES: &[&str] = &["Info", "Low", "Medium", "High", "Critical"];
/// Of the list of alerts.
pub(super) const ALERTS: &[Parameter] = &[
    parameter("state", Kind::Word(ALERT_STATES), "Whether anybody has to do with it."),
    parameter("finding_type", Kind::Text, "Exact type."),
    parameter("severity", Kind::Word(SEVERITIES), "Exact severity."),
    FORMAT,
    LIMIT,
    OFFSET,
];
/// Of the audit log.
pub(super) const AUDIT: &[Parameter] = &[
    parameter("tenant_id", Kind::Id, "Only what concerns this tenant."),
    parameter(
        "verify",
        Kind::Flag,
        "`true` checks every line of the log for changes, `false` none; left out, what is on the page and what is younger \
         than the last check of every line, which is repeated after ten minutes.",
    ),
    FORMAT,
    LIMIT,
    OFFSET,
];
/// Of the list of keys.
pub(super) const KEYS: &[Parameter] = &[
    parameter("tenant_id", Kind::Id, "Whose keys; without it those of the tenant the caller acts for."),
    FORMAT,
    LIMIT,
    OFFSET,
];
/// Of a list without filters.
pub(super) const PAGE: &[Parameter] = &[FORMAT, LIMIT, OFFSET];

/// Of the spend snapshot.
pub(super) const COSTS: &[Parameter] = &[
    parameter("agent_id", Kind::Text, "The agent; without it the one of requests that name none, `_default`."),
    parameter("key_id", Kind::Id, "With what this key has spent, where it has budgets in its tenant's `config`."),
];

/// Filters of the trace list.
pub(super) fn trace_filter(parameters: &Parameters) -> Result<TraceFilter, ErrorAnswer> {
    let (start_time, end_time) = parameters.times()?;
    Ok(TraceFilter {
        start_time,
        end_time,
        provider: parameters.text("provider")?,
        model: parameters.text("model")?,
        facets: facets(parameters)?,
    })
}

/// Filters of the span list, and of what is summed up over spans.
pub(super) fn span_filter(parameters: &Parameters) -> Result<SpanFilter, ErrorAnswer> {
    let (start_time, end_time) = parameters.times()?;
    let filter = SpanFilter {
        start_time,
        end_time,
        provider: parameters.text("provider")?,
        security_score_min: parameters.score("security_score_min")?,
        security_score_max: parameters.score("security_score_max")?,
        operation_name: parameters.text("operation_name")?,
        model: parameters.text("model")?,
        facets: facets(parameters)?,
    };
    ordered(filter.security_score_min, filter.security_score_max, "security_score_min", "security_score_max")?;
    Ok(filter)
}

/// Filters of the list of sessions.
pub(super) fn session_filter(parameters: &Parameters) -> Result<SessionFilter, ErrorAnswer> {
    let (start_time, end_time) = parameters.times()?;
    let (agent_id, client) = (parameters.text("agent_id")?, parameters.text("client")?);
    let fault = parameters.word("prompt_cache", CACHE_MISSES)?;
    let prompt_cache = fault.map(|fault| if fault == "broken" { CacheMiss::Broken } else { CacheMiss::Unused });
    Ok(SessionFilter { start_time, end_time, agent_id, client, prompt_cache })
}

fn facets(parameters: &Parameters) -> Result<Facets, ErrorAnswer> {
    let facets = Facets {
        status: parameters.status("status")?,
        error_type: parameters.text("error_type")?,
        agent_id: parameters.text("agent_id")?,
        session_id: parameters.text("session_id")?,
        client: parameters.text("client")?,
        finding_type: parameters.text("finding_type")?,
        cost_min_nano_usd: parameters.decimal("cost_min_usd", 1e6, 1e9)?,
        cost_max_nano_usd: parameters.decimal("cost_max_usd", 1e6, 1e9)?,
        duration_min_us: parameters.decimal("duration_min_ms", 1e9, 1e3)?,
        duration_max_us: parameters.decimal("duration_max_ms", 1e9, 1e3)?,
        streaming: parameters.flag("streaming")?,
        upstream: parameters.text("upstream")?,
    };
    ordered(facets.cost_min_nano_usd, facets.cost_max_nano_usd, "cost_min_usd", "cost_max_usd")?;
    ordered(facets.duration_min_us, facets.duration_max_us, "duration_min_ms", "duration_max_ms")?;
    Ok(facets)
}

fn ordered<T: PartialOrd>(min: Option<T>, max: Option<T>, min_name: &str, max_name: &str) -> Result<(), ErrorAnswer> {
    if min.zip(max).is_some_and(|(min, max)| min > max) {
        return Err(ErrorAnswer::invalid(format!("`{max_name}` is below `{min_name}`")));
    }
    Ok(())
}

/// The decoded pairs of a query, each name known and given once.
#[derive(Debug, Default)]
pub(super) struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// Reads the query of `uri`; what is not in `accepted` is refused.
    pub(super) fn read(uri: &Uri, accepted: &[Parameter]) -> Result<Self, ErrorAnswer> {
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|_| ErrorAnswer::invalid("the query is not a list of name=value pairs"))?;
        for (at, (name, _)) in pairs.iter().enumerate() {
            if !accepted.iter().any(|known| known.name == name) {
                let shown: String = name.chars().take(64).collect();
                let names: Vec<&str> = accepted.iter().map(|known| known.name).collect();
                let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                return Err(ErrorAnswer::invalid(format!("unknown query parameter `{shown}`; accepted here: {names}")));
            }
            if pairs.iter().take(at).any(|(earlier, _)| earlier == name) {
                return Err(ErrorAnswer::invalid(format!("`{name}` is given more than once")));
            }
        }
        Ok(Self(pairs))
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A text that is not empty.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, ErrorAnswer> {
        match self.get(name) {
            Some("") => Err(ErrorAnswer::invalid(format!("`{name}` is empty; leave it out to match any value"))),
            value => Ok(value.map(str::to_owned)),
        }
    }

    /// An RFC 3339 time.
    pub(super) fn time(&self, name: &str) -> Result<Option<Timestamp>, ErrorAnswer> {
        let Some(text) = self.get(name) else { return Ok(None) };
        // An offset's plus sign, when not percent-encoded, has been decoded to a blank.
        let parsed = text.parse().or_else(|fault| match text.len().checked_sub("+00:00".len()) {
            Some(at) if text.as_bytes().get(at) == Some(&b' ') => text.replace(' ', "+").parse(),
            _ => Err(fault),
        });
        let refused =
            |_| ErrorAnswer::invalid(format!("`{name}` must be an RFC 3339 time such as 2026-01-31T12:00:00Z"));
        parsed.map(Some).map_err(refused)
    }

    /// An id.
    pub(super) fn id<T: FromStr>(&self, name: &str) -> Result<Option<T>, ErrorAnswer> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let refused = |_| ErrorAnswer::invalid(format!("`{name}` must be a UUID"));
        text.parse().map(Some).map_err(refused)
    }

    /// A flag.
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, ErrorAnswer> {
        match self.get(name) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => Err(ErrorAnswer::invalid(format!("`{name}` must be `true` or `false`"))),
        }
    }

    /// `start_time` and `end_time`, in this order of time.
    fn times(&self) -> Result<(Option<Timestamp>, Option<Timestamp>), ErrorAnswer> {
        let (start, end) = (self.time("start_time")?, self.time("end_time")?);
        if start.zip(end).is_some_and(|(start, end)| start > end) {
            return Err(ErrorAnswer::invalid("`end_time` is before `start_time`"));
        }
        Ok((start, end))
    }

    /// A status, or a class of them, as the lowest and the highest.
    fn status(&self, name: &str) -> Result<Option<(u16, u16)>, ErrorAnswer> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let class = text.strip_suffix("xx").and_then(number).filter(|class| (1..=5).contains(class));
        let one = number(text).filter(|status| (100..=599).contains(status) && text.len() == 3);
        let range = match (class, one) {
            (Some(class), _) => Some((class * 100, class * 100 + 99)),
            (_, one) => one.map(|status| (status, status)),
        };
        let refused = || {
            let shown: String = text.chars().take(64).collect();
            ErrorAnswer::invalid(format!(
                "`{name}` is `{shown}`; it must be a status from 100 to 599, or a class: 1xx to 5xx"
            ))
        };
        let range = range.ok_or_else(refused)?;
        Ok(u16::try_from(range.0).ok().zip(u16::try_from(range.1).ok()))
    }

    /// A decimal number from 0 to `most`, in units of which `scale` make one.
    fn decimal(&self, name: &str, most: f64, scale: f64) -> Result<Option<i64>, ErrorAnswer> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let parsed = text.parse::<f64>().ok().filter(|value| plain && (0.0..=most).contains(value));
        let value = parsed.ok_or_else(|| {
            let shown: String = text.chars().take(64).collect();
            ErrorAnswer::invalid(format!(
                "`{name}` is `{shown}`; it must be a decimal number from 0 to {most}, such as 0.25"
            ))
        })?;
        Ok(Some((value * scale).round() as i64))
    }

    /// One of these words.
    pub(super) fn word<'a>(&self, name: &str, words: &[&'a str]) -> Result<Option<&'a str>, ErrorAnswer> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let shown = || text.chars().take(64).collect::<String>();
        let refused =
            || ErrorAnswer::invalid(format!("`{name}` is `{}`; it must be one of: {}", shown(), words.join(", ")));
        words.iter().find(|word| **word == text).copied().map(Some).ok_or_else(refused)
    }

    /// Names out of `known`, separated by commas.
    pub(super) fn fields(&self, known: &[String]) -> Result<Option<Vec<String>>, ErrorAnswer> {
        let Some(text) = self.get("fields") else { return Ok(None) };
        let mut fields: Vec<String> = Vec::new();
        for name in text.split(',') {
            if !known.iter().any(|known| known == name) {
                let shown: String = name.chars().take(64).collect();
                let known = known.join(", ");
                return Err(ErrorAnswer::invalid(format!(
                    "`fields` names `{shown}`; it takes, separated by commas: {known}"
                )));
            }
            if !fields.iter().any(|field| field == name) {
                fields.push(name.to_owned());
            }
        }
        Ok(Some(fields))
    }

    /// Whether the whole list is asked for, as lines.
    pub(super) fn lines(&self) -> Result<bool, ErrorAnswer> {
        let lines = self.word("format", FORMATS)? == Some("jsonl");
        if let Some(name) = ["limit", "offset"].into_iter().find(|name| lines && self.get(name).is_some()) {
            return Err(ErrorAnswer::invalid(format!(
                "`{name}` does not go with `format=jsonl`, which gives the whole list; leave it out, and narrow the list by its filters"
            )));
        }
        Ok(lines)
    }

    /// The cursor, as it was given; not together with `offset`.
    pub(super) fn cursor(&self) -> Result<Option<&str>, ErrorAnswer> {
        let cursor = self.get("cursor");
        if cursor.is_some() && self.get("offset").is_some() {
            return Err(ErrorAnswer::invalid("`cursor` and `offset` both say where the page begins; send one of them"));
        }
        Ok(cursor)
    }

    /// A score.
    pub(super) fn score(&self, name: &str) -> Result<Option<u8>, ErrorAnswer> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let score = number(text).and_then(|score| u8::try_from(score).ok()).filter(|score| *score <= 100);
        score.map(Some).ok_or_else(|| ErrorAnswer::invalid(format!("`{name}` must be a whole number from 0 to 100")))
    }

    /// The same of a list of records, with or without texts.
    pub(super) fn listed_page(&self) -> Result<Page, ErrorAnswer> {
        let texts = self.flag("texts")?.unwrap_or(true);
        Ok(Page { texts, ..self.page()? })
    }

    /// The page; 50 items from the first one on when nothing else is said, or fewer where an answer has no room for them.
    pub(super) fn page(&self) -> Result<Page, ErrorAnswer> {
        let asked = self.get("limit").map(number);
        let limit = match asked {
            None => LIMIT_DEFAULT,
            Some(Some(limit)) if limit > 0 => u32::try_from(limit).unwrap_or(LIMIT_MAX).min(LIMIT_MAX),
            Some(_) => {
                let message =
                    format!("`limit` must be a whole number of at least 1; more than {LIMIT_MAX} means {LIMIT_MAX}");
                return Err(ErrorAnswer::invalid(message));
            }
        };
        // The store counts rows in signed 64-bit numbers.
        let offset = match self.get("offset").map(number) {
            None => 0,
            Some(Some(offset)) if i64::try_from(offset).is_ok() => offset,
            Some(_) => return Err(ErrorAnswer::invalid("`offset` must be a whole number of at least 0")),
        };
        Ok(Page { limit, offset, or_fewer: asked.is_none(), ..Page::default() })
    }
}

/// Digits only (no sign, no blank); a number beyond 64 bits counts as the largest.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}
